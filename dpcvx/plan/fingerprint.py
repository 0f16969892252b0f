"""Fingerprints of plans, and the numbers of a plan that are derived from fingerprinted inputs.

A fingerprint is a digest of all inputs that fix the meaning of a plan's releases. Derived numbers,
such as smoothness constants, noise multipliers and initial points, differ in their last digits
between processors and library versions, so the digest excludes them (see `derived`). A run writes
them into its ledger; if it is resumed or replayed, it uses the recorded numbers.

The digest is followed by the name of the numerical kernel of local steps, if the kernel matters:
results of two kernels differ in their last digits. A resumed or replayed run uses the kernel of the
first run, or is refused if this kernel is not installed.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..algorithms.base import Algorithm
from ..algorithms.program import LocalProgram, Program
from ..model.adjacency import Adjacency, Within
from ..model.declaration import Declaration
from ..model.private_constraints import PrivateConstraint
from ..model.structure import Opaque, digest_of
from ..solvers.newton import require_kernel
from .agent_plan import AgentPlan, Agents
from .request import CompleteRequest, Noises
from .terms import Terms

Array = NDArray[np.float64]


def fingerprint_of(
    problem: Declaration,
    program: Program,
    agents: Agents,
    asked: Noises,
    request: CompleteRequest,
) -> str:
    """Return the fingerprint: a hash of problem, method, mechanisms, rounds and release mode.

    Parameters
    ----------
    problem : Declaration
        Problem with its agents.
    program : Program
        Compiled program of the problem.
    agents : tuple of AgentPlan
        Agents in the order of the program.
    asked : mapping of str to (Declared or None)
        Mechanisms that the user requested, by agent.
    request : CompleteRequest
        Request of the plan. The hash covers each field of the method as the user passed it; if that
        value has no digest, as the plan chose it.
    """
    digest = hashlib.sha256()
    levels = [of_agent.mechanism.per_step() for of_agent in asked.values() if of_agent is not None]
    # If every mechanism has a noise level of its own, the budget does not determine the noise.
    delta = request.delta or 0.0 if None in levels else 0.0
    noise = [asked[agent.name] for agent in agents]
    terms = (request.rounds, request.release, request.observer, delta)
    limits = (request.violation_probability, request.slack_penalty)
    if request.limited:
        limits = (*limits, "limited")
    if request.constraints != "true":
        limits = (*limits, request.constraints)
    for part in (
        terms,
        limits,
        problem.group_names,
        noise,
        *_methods(request.given, request.algorithm),
    ):
        digest.update(digest_of(part))
    order = {v.id: k for k, v in enumerate(problem.variables())}
    each = zip(program.agents, problem.agents, agents, program.written, strict=True)
    labeled = functools.cache(_labeled)
    for local, agent, plan, written in each:
        # Names of private objects are excluded: cvxpy numbers unnamed objects.
        private = [
            (
                s.shape,
                labeled(s.adjacency),
                s.sign,
                *(["PSD"] if s.psd else []),
                *([] if s.bounds is None else [s.bounds]),
                *([] if s.kind == "real" else [s.kind]),
            )
            for s in local.form.private
        ]
        chosen = local.clip is not None if agent.clip_norm is None else agent.clip_norm
        pieces = [(order[p.variable], p.entries) for p in local.layout.pieces]
        told = None if plan.publication is None else plan.publication.kind
        expected = [
            None if of_agent is None else (of_agent.mean, of_agent.spread)
            for of_agent in plan.expected
        ]
        facts = (local.name, private, chosen, agent.sensitivity, pieces, told, expected)
        stand_ins = [p.proxy for p in agent.private]
        used = local.limits or plan.moved
        if used and any(of_agent is not None for of_agent in stand_ins):
            facts = (*facts, stand_ins)  # they determine noise, margins and estimates
        digest.update(digest_of(facts))
        digest.update(_compiled(local) if written is None else written)
    places = {key: f"x{k}" for key, k in order.items()}
    starts = {places[v.id]: np.asarray(start) for v, start in problem.start.items()}
    digest.update(digest_of(starts))
    try:
        digest.update(digest_of(problem.equalities, places))
        for _, constraint in problem.conic:
            digest.update(digest_of(constraint, places))
    except Opaque:
        assert program.coupling is not None
        parts = [sp.csr_array(program.coupling.of(local.layout)) for local in program.agents]
        digest.update(digest_of((program.coupling.right, parts)))
    return named(digest.hexdigest(), program.kernel)


def named(digest: str, kernel: str) -> str:
    """Return a fingerprint: the digest of all inputs, and the kernel of local steps if any."""
    return f"{digest}-{kernel}" if kernel else digest


def _compiled(local: LocalProgram) -> bytes:
    """Return the digest of compiled arrays, for objectives that have no digest themselves."""
    sets = [local.constraints, *([] if local.rest is None else [local.rest])]
    limits = [
        (c.data, c.offsets, c.slopes)
        if isinstance(c, PrivateConstraint)
        else (c.position, c.above, c.below)
        for c in local.limits
    ]
    return digest_of((local.form.digest(), sets, limits))


def _methods(given: Any, resolved: Any) -> Iterator[Any]:
    """Yield a method's fields: as the user passed them if they have a digest, else as chosen."""
    yield type(given).__qualname__
    if not is_dataclass(given):
        yield repr(resolved)
        return
    for field in fields(given):
        value = getattr(given, field.name)
        if "later" in field.metadata and value == field.default:
            continue
        try:
            digest_of(value)
        except Opaque:
            value = getattr(resolved, field.name)
            try:
                digest_of(value)
            except Opaque:
                value = repr(value)
        yield field.name, value


def _labeled(adjacency: Adjacency) -> Adjacency:
    """Return the adjacency with its default label set, because labels do not change releases."""
    return (
        adjacency if isinstance(adjacency, Within) else replace(adjacency, records=adjacency.label)
    )


P = TypeVar("P", bound=Terms)


def computed_by(plan: P, fingerprints: Iterable[str]) -> P:
    """Return a plan with the kernel of a recorded run of it; the plan itself if none differs.

    Parameters
    ----------
    plan : Terms
        Plan for a run.
    fingerprints : iterable of str
        Fingerprints of recorded runs; the last one with the plan's digest counts.

    Raises
    ------
    SolverError
        If the kernel of the recorded run is not installed.
    """
    digest = plan.fingerprint.partition("-")[0]
    same = [part for part in fingerprints if part.partition("-")[0] == digest]
    if not same or plan.fingerprint in same:
        return plan
    kernel = same[-1].partition("-")[2]
    require_kernel(kernel)
    program, agents = with_kernel(plan.program, plan.agents, kernel)
    return replace(plan, program=program, agents=agents, fingerprint=named(digest, kernel))


def with_kernel(program: Program, agents: Agents, kernel: str) -> tuple[Program, Agents]:
    """Return a program and its agents with another kernel of local steps, if it uses one."""
    if program.kernel in ("", kernel):
        return program, agents
    program = replace(
        program, agents=tuple(local.stepping_with(kernel) for local in program.agents)
    )
    pairs = zip(agents, program.agents, strict=True)
    return program, tuple(replace(agent, program=local) for agent, local in pairs)


# Relative tolerance of derived numbers. Initial points are compared relative to their largest
# entry.
AGREEMENT = 1e-9


def derived(algorithm: Algorithm[Any, Any], agents: Sequence[AgentPlan]) -> Array:
    """Return the derived numbers of the method and the noise, followed by all initial points.

    Parameters
    ----------
    algorithm : Algorithm
        Method of the plan.
    agents : sequence of AgentPlan
        Agents with their noise and initial points.
    """
    starts = [agent.program.start for agent in agents]
    numbers = list(_numbers(_settled(algorithm, agents)))
    return np.concatenate([np.array(numbers, dtype=float), *starts])


def with_derived(
    algorithm: Algorithm[Any, Any], agents: Sequence[AgentPlan], numbers: Array
) -> tuple[Algorithm[Any, Any], Agents] | None:
    """Return method and agents with recorded numbers; None if these differ beyond rounding.

    Parameters
    ----------
    algorithm : Algorithm
        Method of the plan.
    agents : sequence of AgentPlan
        Agents with their noise and initial points.
    numbers : ndarray
        Recorded numbers; see `derived`.
    """
    values = derived(algorithm, agents)
    if np.array_equal(values, numbers, equal_nan=True):
        return algorithm, tuple(agents)
    if values.shape != numbers.shape:
        return None
    count = values.size - sum(agent.program.start.size for agent in agents)
    finite = np.isfinite(values) & np.isfinite(numbers)
    sizes = np.abs(values)
    sizes[count:] = sizes[count:].max(initial=1.0, where=np.isfinite(values[count:]))
    # Infinity and NaN must match exactly.
    same = (values == numbers) | (np.isnan(values) & np.isnan(numbers))
    same[finite] |= np.abs(values[finite] - numbers[finite]) <= AGREEMENT * sizes[finite]
    if not same.all():
        return None
    left = iter(numbers.tolist())
    algorithm, noises, _ = _with(_settled(algorithm, agents), left)
    changed = []
    for agent, noise in zip(agents, noises, strict=True):
        start = np.array([next(left) for _ in range(agent.program.n)])
        changed.append(replace(agent, program=replace(agent.program, start=start), noise=noise))
    return algorithm, tuple(changed)


def begun_with(plan: P, numbers: Array) -> P | None:
    """Return a plan with recorded derived numbers; None if these differ beyond rounding.

    Parameters
    ----------
    plan : Terms
        Plan for a run.
    numbers : ndarray
        Recorded numbers; see `derived`.
    """
    derived = with_derived(plan.algorithm, plan.agents, numbers)
    if derived is None:
        return None
    algorithm, agents = derived
    if algorithm is plan.algorithm and agents == plan.agents:
        return plan
    program = replace(plan.program, agents=tuple(agent.program for agent in agents))
    return replace(plan, algorithm=algorithm, program=program, agents=agents)


def _settled(algorithm: Algorithm[Any, Any], agents: Sequence[AgentPlan]) -> Any:
    # Clips are only compared, not replaced: the sensitivities were derived with them.
    clips = tuple(agent.program.clip for agent in agents)
    return algorithm, tuple(agent.noise for agent in agents), clips


def _numbers(value: Any) -> Iterator[float]:
    """Yield the floats in a declaration at any depth, in the order of its fields."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        yield from value.ravel().tolist()
    else:
        for part in _parts(value).values():
            yield from _numbers(part)


def _with(value: Any, numbers: Iterator[float]) -> Any:
    """Return a declaration with its floats replaced, in the order of `_numbers`."""
    if isinstance(value, float):
        return next(numbers)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.array([next(numbers) for _ in range(value.size)]).reshape(value.shape)
    parts = {name: _with(part, numbers) for name, part in _parts(value).items()}
    if isinstance(value, (tuple, list)):
        return type(value)(parts.values())
    changed = {name: part for name, part in parts.items() if part is not getattr(value, name)}
    return replace(value, **changed) if changed else value  # pyright: ignore[reportArgumentType]


def _parts(value: Any) -> dict[Any, Any]:
    if isinstance(value, (tuple, list)):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value) if f.init}
    return {}
