"""A digest of everything that fixes what a plan's releases mean."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..algorithms.base import Algorithm
from ..algorithms.program import Program
from ..model.private import Adjacency, Within
from ..privacy.mechanism import Calibrated


def fingerprint_of(
    program: Program,
    algorithm: Algorithm[Any, Any],
    calibrated: Sequence[Calibrated | None],
    rounds: int,
    release: str,
    groups: tuple[tuple[str, ...], ...],
) -> str:
    """Hash of the program, the algorithm, the mechanism, the rounds, what is released when."""
    # One for all agents is named once: then it does not matter how it was asked for.
    noise = calibrated[0] if len(set(calibrated)) == 1 else calibrated
    digest = hashlib.sha256(f"{algorithm!r} {noise!r} {rounds} {release} {groups}".encode())
    splits = [one.split for one in calibrated if one is not None and one.split is not None]
    if splits:
        digest.update(repr(splits).encode())
    cuts = [one.truncation for one in calibrated if one is not None and one.truncation is not None]
    if cuts:
        digest.update(repr(cuts).encode())
    for local in program.agents:
        # Not the names of private objects: cvxpy numbers those that have none.
        private = [
            (s.shape, _labelled(s.adjacency), s.sign, *(["PSD"] if s.psd else []))
            for s in local.form.private
        ]
        limits = f"{local.clip} {local.asserted}"
        digest.update(f"{local.name} {local.n} {private} {limits}".encode())
        pieces = [(p.shape, p.entries.tolist(), p.offset) for p in local.layout.pieces]
        digest.update(f"{pieces} {local.constraints.cones} {local.constraints.A.shape}".encode())
        arrays = [local.shared, local.slots, local.start, local.constraints.b]
        matrices = [local.constraints.A]
        if local.rest is not None:
            digest.update(f"{local.rest.cones} {local.rest.A.shape}".encode())
            arrays += [local.rest.b, local.rest.q]
            matrices += [local.rest.A, local.rest.P]
        for array in (*arrays, *(part for M in matrices for part in (M.data, M.indices, M.indptr))):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(local.form.digest())
    for kept in program.kept:
        tightened = kept.tightened
        limit, balls = tightened.constraint, tightened.balls
        radii = {part: ball.radius for part, ball in balls.items()}
        numbers = f"{kept.agent} {limit.data.cones} {limit.parts} {tightened.margins} {radii}"
        digest.update(f"{numbers} {tightened.price}".encode())
        matrices = [limit.data.A, limit.offsets, limit.slopes, *(b.noise for b in balls.values())]
        arrays = [kept.columns, limit.data.b]
        for array in (*arrays, *(part for M in matrices for part in (M.data, M.indices, M.indptr))):
            digest.update(np.ascontiguousarray(array).tobytes())
    if program.coupling is not None:
        digest.update(program.coupling.right.tobytes())
        for local in program.agents:
            digest.update(program.coupling.of(local.layout).toarray().tobytes())
    return digest.hexdigest()


def _labelled(adjacency: Adjacency) -> Adjacency:
    """With the label that stands for none: whether it was written down changes no release."""
    return (
        adjacency if isinstance(adjacency, Within) else replace(adjacency, records=adjacency.label)
    )
