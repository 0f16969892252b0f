"""The numbers of a plan that follow from its fingerprint: equal on all machines but for rounding.

Another processor, or another version of a library, gives them other last digits. A run writes them
into its ledger, and where it is gone on with, or replayed, it has those that it began with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Algorithm
from .agent_plan import AgentPlan, Agents
from .terms import Terms

Array = NDArray[np.float64]
P = TypeVar("P", bound=Terms)

# Relative; starts are points, whose entries are compared with the largest one.
AGREEMENT = 1e-9


def derived(algorithm: Algorithm[Any, Any], agents: Sequence[AgentPlan]) -> Array:
    """Those of the method and of the noise, one after the other, and then all starts.

    Parameters
    ----------
    algorithm : Algorithm
    agents : sequence of AgentPlan
    """
    starts = [agent.program.start for agent in agents]
    numbers = list(_numbers(_settled(algorithm, agents)))
    return np.concatenate([np.array(numbers, dtype=float), *starts])


def with_derived(
    algorithm: Algorithm[Any, Any], agents: Sequence[AgentPlan], numbers: Array
) -> tuple[Algorithm[Any, Any], Agents] | None:
    """Method and agents with numbers that were written down before, or None if they are not theirs.

    Parameters
    ----------
    algorithm : Algorithm
    agents : sequence of AgentPlan
    numbers : ndarray
        See `derived`.
    """
    own = derived(algorithm, agents)
    if np.array_equal(own, numbers, equal_nan=True):
        return algorithm, tuple(agents)
    if own.shape != numbers.shape:
        return None
    count = own.size - sum(agent.program.start.size for agent in agents)
    finite = np.isfinite(own) & np.isfinite(numbers)
    sizes = np.abs(own)
    sizes[count:] = sizes[count:].max(initial=1.0, where=np.isfinite(own[count:]))
    # What is infinite, or no number, has no digits that rounding could change.
    same = (own == numbers) | (np.isnan(own) & np.isnan(numbers))
    same[finite] |= np.abs(own[finite] - numbers[finite]) <= AGREEMENT * sizes[finite]
    if not same.all():
        return None
    left = iter(numbers.tolist())
    algorithm, noises, _ = _with(_settled(algorithm, agents), left)
    found = []
    for agent, noise in zip(agents, noises, strict=True):
        start = np.array([next(left) for _ in range(agent.program.n)])
        found.append(replace(agent, program=replace(agent.program, start=start), noise=noise))
    return algorithm, tuple(found)


def begun_with(plan: P, numbers: Array) -> P | None:
    """The plan with numbers that were written down before, or None if they are not its own.

    Parameters
    ----------
    plan : Terms
    numbers : ndarray
        See `derived`.
    """
    found = with_derived(plan.algorithm, plan.agents, numbers)
    if found is None:
        return None
    algorithm, agents = found
    if algorithm is plan.algorithm and agents == plan.agents:
        return plan
    program = replace(plan.program, agents=tuple(agent.program for agent in agents))
    return replace(plan, algorithm=algorithm, program=program, agents=agents)


def _settled(algorithm: Algorithm[Any, Any], agents: Sequence[AgentPlan]) -> Any:
    # Clips are compared alone: sensitivities were derived with them.
    clips = tuple(agent.program.clip for agent in agents)
    return algorithm, tuple(agent.noise for agent in agents), clips


def _numbers(value: Any) -> Iterator[float]:
    """The floats in a declaration, at any depth, in the order of its fields."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        yield from value.ravel().tolist()
    else:
        for part in _parts(value).values():
            yield from _numbers(part)


def _with(value: Any, numbers: Iterator[float]) -> Any:
    """The same declaration with other floats."""
    if isinstance(value, float):
        return next(numbers)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.array([next(numbers) for _ in range(value.size)]).reshape(value.shape)
    found = {name: _with(part, numbers) for name, part in _parts(value).items()}
    if isinstance(value, (tuple, list)):
        return type(value)(found.values())
    changed = {name: part for name, part in found.items() if part is not getattr(value, name)}
    return replace(value, **changed) if changed else value  # pyright: ignore[reportArgumentType]


def _parts(value: Any) -> dict[Any, Any]:
    if isinstance(value, (tuple, list)):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value) if f.init}
    return {}
