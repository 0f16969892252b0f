"""A digest of everything that fixes what a plan's releases mean."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from .algorithms.base import Algorithm
from .mechanism import Calibrated
from .program import Program


def fingerprint_of(
    program: Program,
    algorithm: Algorithm[Any, Any],
    calibrated: Calibrated | None,
    rounds: int,
    release: str,
) -> str:
    """Hash of the program, the algorithm, the mechanism, the rounds and the kind of release."""
    digest = hashlib.sha256(f"{algorithm!r} {calibrated!r} {rounds} {release}".encode())
    for local in program.agents:
        # Not the names of private objects: cvxpy numbers those that have none.
        private = [(s.shape, s.adjacency, s.sign) for s in local.form.private]
        limits = f"{local.clip} {local.asserted}"
        digest.update(f"{local.name} {local.n} {private} {limits}".encode())
        pieces = [(p.shape, p.entries.tolist(), p.offset) for p in local.layout.pieces]
        digest.update(f"{pieces} {local.constraints.cones} {local.constraints.A.shape}".encode())
        A = local.constraints.A
        for array in (local.shared, local.slots, local.start, local.constraints.b):
            digest.update(np.ascontiguousarray(array).tobytes())
        for array in (A.data, A.indices, A.indptr):
            digest.update(np.ascontiguousarray(array).tobytes())
        points = local.start, local.start + 1.0, local.start + np.sin(np.arange(local.n))
        digest.update(local.form.probe(points).tobytes())
    return digest.hexdigest()
