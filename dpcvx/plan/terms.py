"""Terms of a plan, and the properties that follow from them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import cvxpy as cp

from .._arguments import FLAG, check_argument, count, one_of, show
from ..algorithms.base import Algorithm
from ..algorithms.program import Program
from ..errors import ModelError
from ..guard import VERSION, frameless, of_this_version
from ..model.declaration import Declaration, Values, changed_parameter
from ..privacy.accounting import Composition, Price
from ..privacy.accounts import Account
from ..privacy.last_iterate import LastIterate
from .agent_plan import AgentPlan, Agents, composed
from .guarantee import ALONE, COUNTED, SEEDED, Guarantee
from .request import Choice, Observer, Release


@dataclass(frozen=True, eq=False)
class Terms:
    """Settings and numbers of a plan; the public class `dpcvx.Plan` adds methods for users."""

    problem: Declaration = field(repr=False)
    algorithm: Algorithm[Any, Any]
    rounds: int
    release: Release
    observer: Observer
    program: Program = field(repr=False)
    agents: Agents
    last: LastIterate | None = field(repr=False)
    guarantee: Guarantee = field(repr=False)
    fingerprint: str = field(repr=False)
    # Texts on the defaults that completed the request; no other field of a plan depends on them.
    choices: tuple[Choice, ...] = ()
    warnings: str = ""  # on diverging steps and nonconvex objectives
    beside: str = ""  # remark on the noise relative to the data
    advice: str = ""  # declarations that would allow a prediction of the accuracy
    violation_probability: float | None = None
    # The user's cvxpy parameters, with the values that the plan was made with.
    parameters: tuple[tuple[cp.Parameter, Values], ...] = field(default=(), repr=False)

    def __getstate__(self) -> dict[str, object]:
        # Parameters are omitted: after unpickling, no user code can change them.
        return {**self.__dict__, "parameters": (), VERSION: version("dpcvx")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(of_this_version(state, "plan"))

    def require_current_parameters(self) -> None:
        """Refuse to run if a public parameter has another value than when the plan was made.

        Raises
        ------
        ModelError
        """
        changed = changed_parameter(self.parameters)
        if changed is not None:
            name, old, new = changed
            raise ModelError(
                f"Public parameter {name} was {old} when the plan was made, and is {new} now. Make "
                f"the plan again with problem.plan(...), or set the value back to {old}. A plan "
                "keeps the values that it was made with, and its guarantee holds for these."
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> Terms:
        # all other fields are immutable and public
        return replace(self, problem=copy.deepcopy(self.problem, memo))

    @frameless
    def guarantee_for(self, *, seeded: bool, counted: bool = False) -> Guarantee:
        """Return the guarantee of a run of this plan.

        Parameters
        ----------
        seeded : bool
            Whether the run has a seed.
        counted : bool
            Whether the run has a ledger, which adds up the losses of all its runs.
        """
        check_argument("", "seeded", seeded, FLAG)
        check_argument("", "counted", counted, FLAG)
        if self.guarantee.kind == "none":
            return self.guarantee
        alone = (
            COUNTED if counted and text == ALONE else text for text in self.guarantee.assumptions
        )
        return replace(self.guarantee, assumptions=(*([SEEDED] if seeded else []), *alone))

    @property
    def reported(self) -> str:
        """Return the kind of the returned iterate, such as "average"."""
        noisy = self.noisy and not self.published and not self.hidden
        return self.algorithm.returned or ("average" if noisy else "last")

    @frameless
    def agent(self, name: str) -> AgentPlan:
        """Return the plan of the agent of this name.

        Raises
        ------
        ModelError
            If there is no such agent.
        """
        agent_ = next((agent for agent in self.agents if one_of(name, agent.name)), None)
        if agent_ is None:
            names = ", ".join(f"'{agent.name}'" for agent in self.agents)
            raise ModelError(
                f"plan.agent({show(name)}) names no agent of the plan. The agents are {names}."
            )
        return agent_

    @property
    def price(self) -> Price | None:
        """Largest privacy loss of any agent over all planned releases; None without noise."""
        prices = [agent.price for agent in self.agents if agent.price is not None]
        return max(prices, key=lambda price: price.epsilon, default=None)

    @property
    def remarks(self) -> str:
        """Remarks and advice on the solution that need no simulation, as text; may be empty."""
        return ". ".join(filter(None, (self.notes, self.advice)))

    @property
    def notes(self) -> str:
        """Remarks without advice, as text; a result's notes contain it."""
        return "; ".join(filter(None, (self.warnings, self.beside)))

    @property
    def slack_penalty(self) -> float:
        """Penalty for violating a private constraint by one unit; 0 if none may be violated."""
        return next((limit.price or 0.0 for limit in self.program.kept), 0.0)

    @property
    def noisy(self) -> bool:
        """Return whether the plan adds noise to releases."""
        return any(agent.noise is not None for agent in self.agents)

    @property
    def hidden(self) -> bool:
        """Return whether only the last iterate is released."""
        return self.observer == "last_iterate"

    @property
    def prepaid(self) -> bool:
        """Return whether a run is charged as a whole, before it begins, instead of by release."""
        return self.last is not None

    @property
    def secret_draws(self) -> bool:
        """Return whether no observer of a run may learn which user was drawn in each round."""
        return self.last is not None and self.last.secret

    @property
    def published(self) -> bool:
        """Return whether agents release their data once; all rounds are then post-processing."""
        return self.noisy and self.release == "once"

    @frameless
    def releases(self, rounds: int) -> int:
        """Return the number of releases of an agent in `rounds` rounds."""
        check_argument("", "rounds", rounds, count(0))
        return releases_of(self.algorithm, self.release, int(rounds), self.program)

    @frameless
    def composed(self, rounds: int) -> dict[str, Composition]:
        """Return the privacy loss of one person's data in `rounds` rounds, by agent."""
        return composed(self.agents, self.releases(rounds))

    def accounts(self) -> list[Account]:
        """Return new privacy accounts with the plan's budgets, one per agent."""
        return [agent.account() for agent in self.agents]


def require_plan(value: object, caller: str) -> None:
    """Raise an error unless `value` is a plan.

    Parameters
    ----------
    value : object
        Argument of a function.
    caller : str
        Name of the function, as in user code.

    Raises
    ------
    ModelError
    """
    if not isinstance(value, Terms):
        raise ModelError(
            f"{caller} takes a plan, got {type(value).__name__}; write {caller}(problem.plan(...))."
        )


def releases_of(
    algorithm: Algorithm[Any, Any], release: Release, rounds: int, program: Program
) -> int:
    """Return the largest number of releases of an agent in `rounds` rounds."""
    return 1 if release == "once" else algorithm.releases(rounds, program)
