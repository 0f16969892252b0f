"""A plan in words: problem, algorithm, sensitivity and its derivation, noise, guarantee."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import NamedTuple

from .._words import paragraph, plural, together
from ..algorithms.base import OUTPUTS
from ..model.adjacency import Rows
from ..model.declaration import SLACK, Declaration
from ..sensitivity.argument import argument, figures, moved
from .guarantee import Guarantee
from .limits import margin_rows
from .terms import Terms

WIDTH = 80
_LABEL = 13
# Agents or groups of like agents that are listed one by one.
LISTED = 12
# Stands around the number of a name: no text holds it.
_NAME = "\0"


class _Named(NamedTuple):
    """What names something of one agent in a text, between what stands around it."""

    before: str
    name: str
    after: str = ""


def banner(plan: Terms, guarantee: Guarantee) -> str:
    """The plan in words: problem, algorithm, sensitivity and its derivation, noise, guarantee."""
    versions = f"cvxpy {version('cvxpy')}, clarabel {version('clarabel')}"
    unread = " (fixed by the plan; no data have been read)" if plan.noisy else ""
    return "\n".join(
        [
            f"== dpcvx {version('dpcvx')} ({versions}) ".ljust(WIDTH, "="),
            *_problem_rows(plan),
            *_coupling_rows(plan),
            row("algorithm", f"{plan.algorithm}; {plural(plan.rounds, 'round')}"),
            *[row("" if k else "chosen", why) for k, why in enumerate(_choices(plan))],
            *_rate_rows(plan),
            *_sensitivity_rows(plan),
            *[row("" if k else "margins", text) for k, text in enumerate(_margins(plan))],
            *([row("forecast", plan.forecast)] if plan.forecast else []),
            f"guarantee:{unread}",
            textwrap.indent(str(guarantee), "  "),
            "=" * WIDTH,
        ]
    )


def _choices(plan: Terms) -> list[str]:
    """What the plan chose, and the iterate to report where its method was left to it as well."""
    reasons = [choice.why for choice in plan.choices]
    output = plan.algorithm.output
    if output is None or plan.published or plan.rounds == 1:
        return reasons
    if all(choice.what != "algorithm" for choice in plan.choices):
        return reasons
    found = f"what is returned is the {OUTPUTS[output]}: predicted to end nearest to the optimum"
    return [*reasons, found]


def _problem_rows(plan: Terms) -> list[str]:
    program = plan.program
    local = sum(a.n - a.shared.size for a in program.agents)
    agents = plural(sum(a.name != SLACK for a in program.agents), "agent")
    shared = plural(program.size, "shared component")
    sets = [
        (
            agent.name,
            f"{plural(agent.n, 'variable')} ({agent.shared.size} shared), "
            f"set: {agent.set_description}"
            if agent.name != SLACK
            else f"{plural(agent.n, 'variable')} of the package's own, what the inequalities in "
            "coupling= leave over",
            (),
        )
        for agent in program.agents
    ]
    first = row("problem", f"{agents}, {shared}, {local} local")
    return [first, *_by_agent(sets), *own_rows(plan.problem)]


def own_rows(problem: Declaration) -> list[str]:
    """Which agents have ``own=``, and what keeps it."""
    pairs = problem.named.items()
    deciding = [name for name, agent in pairs if agent.own]
    if not deciding:
        return []
    return [row("", f"only result.own(...) keeps the own= of {together(deciding)}")]


def _coupling_rows(plan: Terms) -> list[str]:
    text = plan.algorithm.coupling(plan.program)
    return [] if text is None else [row("coupling", text)]


def _rate_rows(plan: Terms) -> list[str]:
    text = plan.algorithm.rate(plan.program)
    return [] if text is None else [row("convergence", text)]


def _margins(plan: Terms) -> list[str]:
    return margin_rows(plan.program) if plan.published else []


def _sensitivity_rows(plan: Terms) -> list[str]:
    if not plan.noisy:
        return []
    known = [agent.sensitivity for agent in plan.agents if agent.sensitivity is not None]
    entries = {entry.agent: entry for entry in plan.guarantee.agents}
    bounds: list[tuple[str, str, Sequence[_Named]]] = []
    for agent in plan.agents:
        if agent.sensitivity is None:
            bounds.append((agent.name, "nothing private", ()))
            continue
        entry = entries[agent.name]
        derived = f" ({why})" if (why := figures(agent.sensitivity)) else ""
        bounded = "its constraints contain private data, which leave with noise"
        if entry.sensitivity > 0 or not entry.releases:
            bounded = moved(agent.sensitivity, entry.norm, agent.program.start)
        text = f"{bounded}; noise: {entry.noise}{derived}"
        named = [_Named("", f"'{spec.name}'") for spec in agent.sensitivity.private]
        kinds = [spec.adjacency for spec in agent.sensitivity.private]
        people = dict.fromkeys(one.label for one in kinds if isinstance(one, Rows))
        named += [_Named("one ", label, " (") for label in people]
        bounds.append((agent.name, text, named))
    return [*([row("sensitivity", argument(known))] if known else []), *_by_agent(bounds)]


def _by_agent(said: Iterable[tuple[str, str, Sequence[_Named]]]) -> list[str]:
    """What is said of each agent, once for all of whom the same is true.

    Of each: its name, the text, and what in it may differ between agents.
    """
    alike: dict[str, tuple[list[str], list[Sequence[_Named]]]] = {}
    for agent, text, names in said:
        for k, name in enumerate(names):
            text = text.replace("".join(name), f"{_NAME}{k}{_NAME}")
        agents, named = alike.setdefault(text, ([], []))
        agents.append(agent)
        named.append(names)
    rows = []
    for text, (agents, named) in alike.items():
        for k, others in enumerate(zip(*named, strict=True)):
            one, names = others[0], list(dict.fromkeys(other.name for other in others))
            text = text.replace(f"{_NAME}{k}{_NAME}", f"{one.before}{together(names)}{one.after}")
        rows.append(row("", f"{together(agents)}{', each' if len(agents) > 1 else ''}: {text}"))
    if len(rows) <= LISTED:
        return rows
    more = sum(len(agents) for agents, _ in list(alike.values())[LISTED:])
    return [*rows[:LISTED], row("", f"... and {plural(more, 'more agent')}")]


def row(label: str, text: str) -> str:
    """A labelled paragraph; lines below the first are indented."""
    return paragraph(f"{label + ':' if label else '':<{_LABEL}}", text, WIDTH)
