"""The noise that a plan asks for, agent by agent, and the multipliers that meet it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from .._arguments import show
from ..errors import ModelError, PrivacyError
from ..privacy.accounting import Price, check_delta, check_epsilon
from ..privacy.last_iterate import LastIterate
from ..privacy.mechanism import Calibrated, Gaussian, Laplace, Mechanism

Asked = Mechanism | str | None
# Relative, so that the price of a plan is a budget for it.
_SLACK = 1e-9
# Agents that an error lists.
_NAMES = 12


@dataclass(frozen=True)
class Declared:
    """What was asked for one agent.

    Attributes
    ----------
    mechanism : Gaussian or Laplace
    epsilon : float or None
        In total. If the mechanism has a level of its own, what the ledger may hold in the end; None
        for no more than the plan's price.
    """

    mechanism: Mechanism
    epsilon: float | None


def declared(
    agents: Mapping[str, bool],
    mechanism: Asked | Mapping[str, Asked],
    epsilon: float | Mapping[str, float | None] | None,
) -> tuple[Declared | None, ...]:
    """What is asked for each agent; None for all without noise.

    Parameters
    ----------
    agents : mapping of str to bool
        Names, and whether there is something private.
    mechanism, epsilon
        As given to the plan: for all agents alike, or by name for those with private data.

    Raises
    ------
    ModelError
        If names and agents do not match.
    PrivacyError
        If a mechanism is unknown, or switched off for some agents only, or if a budget is missing
        or given twice.
    """
    private = [name for name, has in agents.items() if has]
    if isinstance(mechanism, Mapping):
        _check_names("mechanism", mechanism, private, private)
        kinds = {name: _mechanism(mechanism[name]) for name in private}
    else:
        kinds = dict.fromkeys(private, _mechanism(mechanism))
    silent = [name for name, kind in kinds.items() if kind is None]
    if len(silent) == len(kinds):
        return (None,) * len(agents)
    if silent:
        raise PrivacyError(
            f"mechanism= switches the noise of agent '{silent[0]}' off and keeps it for others. "
            "Name a mechanism for it, or write its data as public constants; mechanism=None "
            "switches all noise off."
        )
    needy = [n for n in private if (kind := kinds[n]) is not None and kind.per_step() is None]
    if isinstance(epsilon, Mapping):
        _check_names("epsilon", epsilon, private, needy)
    elif epsilon is not None and 0 < len(needy) < len(private):
        raise PrivacyError(
            "Some mechanisms have a level of their own, and one epsilon= for all agents would fix "
            "the noise of some and only bound the ledger of others. Write it for those without a "
            f"level: epsilon={_example(needy)}."
        )
    budgets = epsilon if isinstance(epsilon, Mapping) else dict.fromkeys(kinds, epsilon)
    found = {
        name: _declared(name, kind, budgets.get(name))
        for name, kind in kinds.items()
        if kind is not None
    }
    # The noise of agents without private data hides nothing, unless it is that of all.
    alike = set(found.values())
    if len(alike) == 1:
        return tuple(alike) * len(agents)
    return tuple(found.get(name) for name in agents)


def _declared(agent: str, mechanism: Mechanism, epsilon: float | None) -> Declared:
    fixed = mechanism.per_step() is not None
    if epsilon is None and not fixed:
        raise PrivacyError(
            f"The plan has no privacy budget for agent '{agent}'. Write plan(..., epsilon=1.0, "
            "delta=1e-6) for a total "
            "budget, give the mechanism a level per release (step_epsilon=...), or pass "
            "mechanism=None for a run without noise and without guarantee."
        )
    if epsilon is None:
        return Declared(mechanism, None)
    check_epsilon(epsilon)
    return Declared(mechanism, float(epsilon))


def _check_names(
    argument: str, given: Mapping[str, object], private: Sequence[str], needed: Sequence[str]
) -> None:
    unknown = [name for name in given if name not in private]
    missing = [name for name in needed if name not in given]
    if unknown:
        wrong = f"names {show(unknown[0])}, which is no agent with private data"
    elif missing:
        wrong = f"lacks agent '{missing[0]}'"
    else:
        return
    raise ModelError(
        f"{argument}={{...}} {wrong}. Give one value for all agents, or one for each of those with "
        f"private data: {argument}={_example(needed or private)}."
    )


def _example(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}': ..." for name in names[:_NAMES])
    return "{" + shown + (", ..." if len(names) > _NAMES else "") + "}"


def _mechanism(mechanism: Asked) -> Mechanism | None:
    # Not isinstance: a subclass could draw other noise than the guarantee is computed for.
    if mechanism is None or type(mechanism) in (Gaussian, Laplace):
        return cast("Mechanism | None", mechanism)
    named = {"gaussian": Gaussian(), "laplace": Laplace()}
    if isinstance(mechanism, str) and mechanism in named:
        return named[mechanism]
    raise PrivacyError(
        f"mechanism={show(mechanism)} is unknown. Write dp.Gaussian(), dp.Laplace(), or None for a "
        "run without noise and without guarantee."
    )


def budget(agent: str, asked: Declared | None, price: Price) -> float:
    """The epsilon that an agent's ledger may hold after the plan.

    Raises
    ------
    PrivacyError
        If noise of a level of its own costs more than the total that was asked for.
    """
    if asked is None or asked.epsilon is None or asked.mechanism.per_step() is None:
        return price.epsilon
    if asked.epsilon * (1 + _SLACK) < price.epsilon:
        raise PrivacyError(
            f"{asked.mechanism} noise of agent '{agent}' has a level of its own, at which the plan "
            f"costs epsilon {price.epsilon:.6g}, more than epsilon={asked.epsilon:g}. Raise "
            "epsilon=, add noise, or drop the mechanism's level, which is then fixed by epsilon=."
        )
    return max(asked.epsilon, price.epsilon)


def calibrate(
    asked: Declared,
    steps: int,
    ratios: Sequence[float],
    delta: float | None,
    last: LastIterate | None,
) -> Calibrated:
    """The multiplier that spends the budget in so many releases at each of the ratios.

    Raises
    ------
    PrivacyError
        If the mechanism needs a delta.
    """
    mechanism, epsilon = asked.mechanism, asked.epsilon
    if delta is not None:
        check_delta(delta)
    if isinstance(mechanism, Gaussian) and not delta:
        raise PrivacyError(
            f"Gaussian noise has no guarantee at delta={show(delta)}: its privacy loss is "
            "unbounded. "
            "Write plan(..., delta=1e-6), or use mechanism=dp.Laplace() for pure epsilon."
        )
    fixed = mechanism.per_step()
    if fixed is not None:
        return Calibrated(mechanism, fixed)
    assert epsilon is not None  # or it would not have been declared
    if last is not None:
        return Calibrated(mechanism, last.multiplier(epsilon, delta or 0.0))
    return Calibrated(mechanism, mechanism.for_total(steps, epsilon, delta or 0.0, ratios))
