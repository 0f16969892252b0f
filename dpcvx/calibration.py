"""The noise that a plan asks for, agent by agent, and the multipliers that meet it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from .accounting import check_delta, check_epsilon
from .errors import ModelError, PrivacyError
from .last_iterate import LastIterate
from .mechanism import Calibrated, Gaussian, Laplace, Mechanism

Asked = Mechanism | str | None


@dataclass(frozen=True)
class Declared:
    """What was asked for one agent.

    Attributes
    ----------
    mechanism : Gaussian or Laplace
    epsilon : float or None
        In total; None if the mechanism has a level of its own.
    """

    mechanism: Mechanism
    epsilon: float | None


def declared(
    agents: Mapping[str, bool],
    mechanism: Asked | Mapping[str, Asked],
    epsilon: float | Mapping[str, float] | None,
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
        If a mechanism is unknown, or switched off for some agents only.
    """
    by_name = isinstance(mechanism, Mapping) or isinstance(epsilon, Mapping)
    private = [name for name, has in agents.items() if has]
    if isinstance(mechanism, Mapping):
        _check_names("mechanism", mechanism, private, "'laplace'")
        kinds = {name: _mechanism(mechanism[name]) for name in private}
        for name, kind in kinds.items():
            if kind is None:
                raise PrivacyError(
                    f"mechanism= switches the noise of agent '{name}' off and keeps it for others. "
                    "Name a mechanism for it, or write its data as public constants; "
                    "mechanism=None switches all noise off."
                )
    else:
        kinds = dict.fromkeys(agents, _mechanism(mechanism))
    if isinstance(epsilon, Mapping):
        needy = [n for n in private if (kind := kinds[n]) is None or kind.per_step() is None]
        _check_names("epsilon", epsilon, private, "1.0", needy)
    found: list[Declared | None] = []
    for name, has in agents.items():
        kind = kinds.get(name)
        if kind is None or (by_name and not has):
            found.append(None)
            continue
        own = epsilon.get(name) if isinstance(epsilon, Mapping) else epsilon
        if own is not None:
            check_epsilon(own)
        found.append(Declared(kind, own))
    return tuple(found)


def _check_names(
    argument: str,
    given: Mapping[str, object],
    private: Sequence[str],
    example: str,
    needed: Sequence[str] | None = None,
) -> None:
    needed = private if needed is None else needed
    unknown = [name for name in given if name not in private]
    missing = [name for name in needed if name not in given]
    if not unknown and not missing:
        return
    wrong = (
        f"names {unknown[0]!r}, which is no agent with private data"
        if unknown
        else f"lacks agent '{missing[0]}'"
    )
    raise ModelError(
        f"{argument}={{...}} {wrong}. Give one value for all agents, or one by name for each of "
        f"those with private data ({', '.join(private) or 'there are none'}), such as "
        f"{argument}={{'{private[0] if private else 'name'}': {example}}}."
    )


def _mechanism(mechanism: Asked) -> Mechanism | None:
    # Not isinstance: a subclass could draw other noise than the guarantee is computed for.
    if mechanism is None or type(mechanism) in (Gaussian, Laplace):
        return cast("Mechanism | None", mechanism)
    named = {"gaussian": Gaussian(), "laplace": Laplace()}
    if isinstance(mechanism, str) and mechanism in named:
        return named[mechanism]
    raise PrivacyError(
        f"mechanism={mechanism!r} is unknown. Write dp.Gaussian(), dp.Laplace(), or None for a "
        "run without noise and without guarantee."
    )


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
        If the budget is incomplete, or given twice.
    """
    mechanism, epsilon = asked.mechanism, asked.epsilon
    fixed = mechanism.per_step()
    if delta is not None:
        check_delta(delta)
    if fixed is None and epsilon is None:
        raise PrivacyError(
            "The plan has no privacy budget. Write plan(..., epsilon=1.0, delta=1e-6) for a total "
            "budget, give the mechanism a level per release (step_epsilon=...), or pass "
            "mechanism=None for a run without noise and without guarantee."
        )
    if isinstance(mechanism, Gaussian) and not delta:
        raise PrivacyError(
            f"Gaussian noise has no guarantee at delta={delta!r}: its privacy loss is unbounded. "
            "Write plan(..., delta=1e-6), or use mechanism=dp.Laplace() for pure epsilon."
        )
    if fixed is None:
        assert epsilon is not None
        if last is not None:
            return Calibrated(mechanism, last.multiplier(epsilon, delta or 0.0))
        return Calibrated(mechanism, mechanism.for_total(steps, epsilon, delta or 0.0, ratios))
    if epsilon is not None:
        raise PrivacyError(
            f"{mechanism} noise was given a level of its own and the plan a total epsilon, which "
            "would fix it twice. Drop epsilon= (the total is then computed and printed), or the "
            "mechanism's level."
        )
    return Calibrated(mechanism, fixed)
