"""A request while defaults fill it: what was chosen so far, and why."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from ..plan.agent_plan import Agents
from ..plan.request import Choice, Request


@dataclass(frozen=True, kw_only=True)
class Selection(Request):
    """A request with the choices that were made so far."""

    choices: tuple[Choice, ...] = ()
    forecast: str = ""  # what is predicted of noisy steps
    quiet: Agents = ()  # with noise and what they release once, if these were chosen together

    @staticmethod
    def of(request: Request) -> Selection:
        """Return a request with nothing chosen yet."""
        return Selection(**{field.name: getattr(request, field.name) for field in fields(Request)})

    def chosen(self, what: str, why: str) -> Selection:
        """Return the request with one more choice."""
        return replace(self, choices=(*self.choices, Choice(what, why)))
