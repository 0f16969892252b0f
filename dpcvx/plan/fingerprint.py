"""A digest of everything that fixes what a plan's releases mean: of what was given, not derived.

Numbers that follow from it, such as smoothness constants, multipliers of noise and starts, have
other last digits on other processors, and are no part of it; see `derived`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..algorithms.program import LocalProgram, Program
from ..model.adjacency import Adjacency, Within
from ..model.declaration import Declaration
from ..model.structure import Opaque, digest_of
from .agent_plan import Agents
from .request import CompleteRequest, Noises


def fingerprint_of(
    problem: Declaration,
    program: Program,
    agents: Agents,
    asked: Noises,
    request: CompleteRequest,
) -> str:
    """Hash of the problem, the method, the mechanisms, the rounds, and what is released when.

    Parameters
    ----------
    problem : Declaration
    program : Program
        The same, compiled.
    agents : tuple of AgentPlan
    asked : mapping of str to (Declared or None)
    request : CompleteRequest
        Of its method, fields as given; where only the method with all numbers has words for one,
        that.
    """
    digest = hashlib.sha256()
    levels = [one.mechanism.per_step() for one in asked.values() if one is not None]
    # With a level of its own, noise does not follow from the budget.
    delta = request.delta or 0.0 if None in levels else 0.0
    noise = [asked[agent.name] for agent in agents]
    terms = (request.rounds, request.release, request.observer, delta)
    kept = (request.violation_probability, request.slack_penalty)
    if request.constraints != "true":
        kept = (*kept, request.constraints)
    for part in (
        terms,
        kept,
        problem.group_names,
        noise,
        *_methods(request.given, request.algorithm),
    ):
        digest.update(digest_of(part))
    order = {v.id: k for k, v in enumerate(problem.variables())}
    each = zip(program.agents, problem.agents, agents, program.written, strict=True)
    labeled = functools.cache(_labeled)
    for local, agent, plan, written in each:
        # Not the names of private objects: cvxpy numbers those that have none.
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
        expected = [None if one is None else (one.mean, one.spread) for one in plan.expected]
        facts = (local.name, private, chosen, agent.sensitivity, pieces, told, expected)
        stand_ins = [p.proxy for p in agent.private]
        used = local.limits or plan.moved
        if used and any(one is not None for one in stand_ins):
            facts = (*facts, stand_ins)  # noise, margins and estimates follow from them
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
    """A fingerprint: the digest of what was given, and what takes local steps where it matters."""
    return f"{digest}-{kernel}" if kernel else digest


def _compiled(local: LocalProgram) -> bytes:
    """Objective and constraints as compiled, where they hold unknown objects."""
    sets = [local.constraints, *([] if local.rest is None else [local.rest])]
    limits = [(c.data, c.offsets, c.slopes) for c in local.limits]
    return digest_of((local.form.digest(), sets, limits))


def _methods(given: Any, resolved: Any) -> Iterator[Any]:
    """What a method consists of: field by field as given, or as resolved if only that has words."""
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
    """With the label that stands for none: whether it was written down changes no release."""
    return (
        adjacency if isinstance(adjacency, Within) else replace(adjacency, records=adjacency.label)
    )
