"""Errors of the package; their messages state the object and its fault, the fix, and the reason.

No message contains a private value. All errors that the package raises on purpose derive from
`DpcvxError`, so ``except dp.DpcvxError`` catches all of them.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ._words import at_most, plural


class DpcvxError(Exception):
    """Base class of every error that the package raises on purpose."""


class ModelError(DpcvxError, ValueError):
    """The model, an argument or a public input is invalid."""


class UnsolvableError(ModelError):
    """The problem has no solution with any method, or none for some values of the noise."""


class DataError(ModelError):
    """Private data do not fit their declaration (shape, sign, finiteness). Values are not shown."""


class FileError(DataError):
    """A file of private data cannot be read; the text names lines and columns, and no contents."""


def package_fault(fact: str) -> DataError:
    """Return the error for a step whose conditions the package itself should have met.

    Parameters
    ----------
    fact : str
        Violated condition, as a sentence about public facts.
    """
    return DataError(
        f"{fact} This is a fault of the package, not of the model: please report it with the model."
    )


class PrivacyError(DpcvxError, ValueError):
    """A guarantee cannot be proved, or a call would reveal private data."""


class LedgerError(PrivacyError):
    """A ledger file is not intact, not a ledger, in use, or cannot be written.

    The file holds all that was released.
    """


class WorkerLostError(PrivacyError):
    """Loss of a worker process, with the state of the agents in it; no release was repeated.

    Attributes
    ----------
    workers : tuple of str
        Names of the lost workers, as the executor's engine names them.
    agents : tuple of int
        Positions of the agents in these workers.
    """

    def __init__(self, message: str, workers: tuple[str, ...], agents: tuple[int, ...]) -> None:
        super().__init__(message)
        self.workers = workers
        self.agents = agents

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerLostError, (str(self), self.workers, self.agents)


class BudgetError(PrivacyError):
    """A release would exceed the privacy budget; nothing was released.

    Attributes
    ----------
    agent : str
        Agent whose budget is exhausted.
    spent, requested, allowed : float
        Epsilon so far, epsilon after the refused release, and epsilon of the budget, at `delta`.
    delta : float
        Delta at which these three epsilons are stated.
    affordable : int
        Number of further releases of the same kind that the budget covers.
    accountant : str
        Accounting rule of `spent`.
    instead : str
        Arguments for a plan with the same noise and a large enough budget, if known.
    whole : float or None
        Epsilon after the whole planned run, at `delta`, if the run was refused at its start.
    rounds : tuple of int or None
        Number of rounds that the budget covers, and number of planned rounds, if the budget covers
        only a small part of the plan.
    left : str
        Arguments for a plan with the same noise and as many rounds as the budget covers, if known.
    idle : bool
        Whether the refused release was by another agent of the same group, because this agent has
        spent too much. `requested` is then equal to `spent`.
    """

    def __init__(
        self,
        agent: str,
        *,
        spent: float,
        requested: float,
        allowed: float,
        delta: float,
        affordable: int,
        accountant: str = "",
        instead: str = "",
        whole: float | None = None,
        rounds: tuple[int, int] | None = None,
        left: str = "",
        idle: bool = False,
    ) -> None:
        self.agent = agent
        self.spent = spent
        self.requested = requested
        self.allowed = allowed
        self.delta = delta
        self.affordable = affordable
        self.accountant = accountant
        self.instead = instead
        self.whole: float | None = whole
        self.rounds: tuple[int, int] | None = rounds
        self.left: str = left
        self.idle = idle
        if math.isinf(spent) and delta == 0 and accountant != "released without noise":
            advice = (
                "The ledger holds Gaussian noise, which has no guarantee at delta=0: plan with the "
                "delta of the runs before."
            )
        elif math.isinf(spent):
            advice = (
                "The ledger holds a release without noise, after which no budget gives these data "
                "a guarantee again."
            )
        elif rounds is not None:
            total = f": plan({instead})" if instead else ""
            rest = f", or plan({left})" if left else f", or plan with rounds={rounds[0]}"
            advice = (
                "Pass a mechanism with a fixed noise level, and the total budget of all "
                f"runs{total}{rest}, which spends the rest of the budget on fewer rounds. A small "
                "part of a run seldom ends near a solution."
            )
        elif affordable == 0:
            advice = (
                "The budget covers no further release of this kind. Raising `epsilon` alone "
                "recalibrates to less noise, so each release costs more. Pass a mechanism with a "
                "fixed noise level, and the total budget of all runs"
            )
            advice += f": plan({instead})." if instead else "."
        else:
            advice = (
                f"The budget still covers {plural(affordable, 'release')} of this kind: lower "
                "`rounds` or `local_updates`, or plan with a larger `epsilon`."
            )
        # Show enough digits that the requested epsilon is visibly larger than the allowed one.
        digits = next((n for n in range(6, 17) if f"{requested:.{n}g}" != f"{allowed:.{n}g}"), 6)
        # A plan may cost a millionth less than the user's budget: show the user's number.
        round_, asked = f"{allowed:.4g}", float(f"{requested:.{digits}g}")
        near = abs(float(round_) - allowed) <= 2e-6 * allowed and float(round_) < asked
        total = round_ if near else f"{allowed:.{digits}g}"
        budget = f"its budget is ({total}, {delta:.3g})"
        rule = f" ({accountant})" if accountant else ""
        if idle:
            what = (
                f"Agent '{agent}' may hold data of the same people as others of its group, and "
                f"earlier releases brought it to ({spent:.6g}, {delta:.3g})-DP{rule}; {budget}, so "
                "no agent of the group may release more."
            )
        else:
            what = (
                f"The next release would bring agent '{agent}' to ({requested:.{digits}g}, "
                f"{delta:.3g})-DP; {budget}, and epsilon {spent:.6g} is already spent{rule}."
            )
        if rounds is not None:
            what = (
                f"The ledger leaves agent '{agent}' budget for {rounds[0]} of the "
                f"{plural(rounds[1], 'planned round')}; {budget}, and epsilon {spent:.6g} is "
                f"already spent{rule}."
            )
        needs = "" if whole is None else f" The whole run needs epsilon {at_most(whole)} in all."
        super().__init__(f"{what}{needs} Nothing was released. {advice}")

    def __reduce__(self) -> tuple[object, ...]:
        named = {name: value for name, value in vars(self).items() if name != "agent"}
        return partial(BudgetError, **named), (self.agent,)


class RefusedError(PrivacyError):
    """An owner takes no part in a run, or a message between owners was refused.

    The text contains nothing private.

    Attributes
    ----------
    code : str
        Code of the reason; only this code is sent to other parties.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return RefusedError, (self.code, str(self))


class RepeatWarning(UserWarning):
    """Data were used by an earlier run, and no ledger counts both runs together."""


class SolverError(DpcvxError, RuntimeError):
    """A conic solver failed, and no released value could replace its answer."""
