"""The noise and the budget that are asked for, agent by agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from .._arguments import pairs, show
from ..errors import ModelError, PrivacyError
from ..model.agent import Agent
from ..model.declaration import Declaration
from ..privacy.accounting import check_epsilon
from ..privacy.mechanism import Gaussian, Laplace, Mechanism
from .request import Asked, Declared, Mechanisms

T = TypeVar("T")
# Agents that an error lists.
_NAMES = 12


def asked_of(
    problem: Declaration, mechanism: Mechanisms, epsilon: float | Mapping[Any, float] | None
) -> dict[str, Declared | None]:
    """What noise and what budget is asked for, by agent.

    Parameters
    ----------
    problem : Declaration
    mechanism, epsilon
        As given to the plan: for all agents alike, or by agent or its name.

    Returns
    -------
    dict of str to (Declared or None)
        None for all without noise.

    Raises
    ------
    ModelError
        If names and agents do not match.
    PrivacyError
        If a mechanism is unknown, or switched off for some agents only, or if a budget is missing
        or given twice.
    """
    private = {n: bool(a.private) for n, a in problem.named.items()}
    found = _declared(
        private, by_name(problem, "mechanism", mechanism), by_name(problem, "epsilon", epsilon)
    )
    return dict(zip(problem.names, found, strict=True))


def by_name(
    problem: Declaration, argument: str, given: T | Mapping[Agent | str, T]
) -> T | Mapping[str, T]:
    """A mapping with names of agents in place of agents.

    Parameters
    ----------
    problem : Declaration
    argument : str
        What is given, for messages.
    given : mapping of agent or its name, or a value for all
        Values are as they are.

    Raises
    ------
    ModelError
        If a key is no agent and no name, or an agent has two values.
    """
    if not isinstance(given, Mapping):
        return given
    names = {id(agent): name for name, agent in problem.named.items()}
    values = pairs(given)
    if values is None:
        raise ModelError(
            f"{argument}= is {show(given)}, which cannot be read. Write a dict, such as "
            f"{argument}={{'north': ...}}."
        )
    found: dict[str, T] = {}
    for key, value in values:
        name = names.get(id(key), key)
        if not isinstance(name, str):
            raise ModelError(
                f"{argument}= takes one value for all agents, or a mapping by agents of the "
                f"problem or their names, and has a key of type {type(key).__name__} that is none "
                "of these."
            )
        if name in found:
            raise ModelError(
                f"{argument}= has two values for agent {show(name)}, by itself and by its name. "
                "Keep one."
            )
        found[name] = value
    return found


def _declared(
    agents: Mapping[str, bool],
    mechanism: Asked | Mapping[str, Asked],
    epsilon: float | Mapping[str, float | None] | None,
) -> tuple[Declared | None, ...]:
    """The same, from names of agents and whether they have private data."""
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
    asked = {name: (kind, budgets.get(name)) for name, kind in kinds.items() if kind is not None}
    # Thousands of agents mostly share what was asked: told apart by identity, in no time.
    made: dict[tuple[int, int], Declared] = {}
    found: dict[str, Declared] = {}
    for name, (kind, budget) in asked.items():
        place = id(kind), id(budget)
        if place not in made:
            made[place] = _one(name, kind, budget)
        found[name] = made[place]
    # The noise of agents without private data hides nothing, unless it is that of all.
    alike = set(made.values())
    if len(alike) == 1:
        return tuple(alike) * len(agents)
    return tuple(found.get(name) for name in agents)


def _one(agent: str, mechanism: Mechanism, epsilon: float | None) -> Declared:
    fixed = mechanism.per_step() is not None
    if epsilon is None and not fixed:
        raise PrivacyError(
            f"The plan has no privacy budget for agent '{agent}'. Write problem.plan(..., "
            "epsilon=1.0, delta=1e-6) for a total budget, give the mechanism a level per release "
            "such as mechanism=dp.Laplace(release_epsilon=0.1), or pass mechanism=None for a run "
            "without noise and without guarantee."
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
        f"mechanism={show(mechanism)} is unknown. Write 'gaussian', 'laplace', dp.Gaussian() or "
        "dp.Laplace(); leave it out, or write 'auto', to have the kind chosen; None is for a run "
        "without noise and without guarantee."
    )
