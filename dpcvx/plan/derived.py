"""The numbers of a plan that follow from its fingerprint: equal on all machines but for rounding.

Another processor, or another version of a library, gives them other last digits. A run writes them
into its ledger, and where it is gone on with, or replayed, it has those that it began with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .terms import Terms

Array = NDArray[np.float64]
P = TypeVar("P", bound=Terms)

# Relative; starts are points, whose entries are compared with the largest one.
AGREEMENT = 1e-9


def derived(plan: Terms) -> Array:
    """Those of the method and of the noise, one after the other, and then all starts."""
    starts = [local.start for local in plan.program.agents]
    return np.concatenate([np.array(list(_numbers(_settled(plan))), dtype=float), *starts])


def with_derived(plan: P, numbers: Array) -> P | None:
    """The plan with numbers that were written down before, or None if they are not its own.

    Parameters
    ----------
    plan : Terms
    numbers : ndarray
        See `derived`.
    """
    own = derived(plan)
    if np.array_equal(own, numbers, equal_nan=True):
        return plan
    if own.shape != numbers.shape:
        return None
    count = own.size - sum(local.start.size for local in plan.program.agents)
    sizes = np.abs(own)
    sizes[count:] = np.maximum(1.0, sizes[count:].max(initial=0.0))
    same = (own == numbers) | (np.isnan(own) & np.isnan(numbers))
    if not (same | (np.abs(own - numbers) <= AGREEMENT * sizes)).all():
        return None
    left = iter(numbers.tolist())
    algorithm, noises, _ = _with(_settled(plan), left)
    programs = []
    for local in plan.program.agents:
        start = np.array([next(left) for _ in range(local.n)])
        programs.append(replace(local, start=start))
    agents = [
        replace(agent, program=program, noise=noise)
        for agent, program, noise in zip(plan.agents, programs, noises, strict=True)
    ]
    program = replace(plan.program, agents=tuple(programs))
    return replace(plan, algorithm=algorithm, program=program, agents=tuple(agents))


def _settled(plan: Terms) -> Any:
    # Clips are compared alone: sensitivities were derived with them.
    clips = tuple(local.clip for local in plan.program.agents)
    return plan.algorithm, tuple(agent.noise for agent in plan.agents), clips


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
