"""Long runs of the printed curves: saved after every measurement, and resumed after a kill."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .errors import DatasetError
from .metrics import Metrics
from .printed import Curve, Setting, State, Trace, run, scored

Floats = NDArray[np.float64]

# Early rounds that are measured; later ones are multiples of 25.
_EARLY, _EVERY = (1, 2, 5, 10, 15, 20), 25


def traced(setting: Setting, curve: Curve, rounds: int, folder: Path | None = None) -> Trace:
    """Run a curve up to some round, resuming from its file if there is one.

    Parameters
    ----------
    setting : Setting
        Records and their division.
    curve : Curve
        The method.
    rounds : int
        Number of rounds, T.
    folder : Path, optional
        Folder of the run's file, which is complete at any time. If omitted, nothing is saved.

    Returns
    -------
    Trace
        Measurements, equal to the last bit whether the run was interrupted or not.

    Raises
    ------
    DatasetError
        If the file is of another run.
    """
    path = None if folder is None else folder / f"{_name(curve)}.npz"
    key = _key(setting, curve)
    rows, state = ([], None) if path is None else _found(path, key)
    metrics = Metrics(
        setting.dataset.clipped(setting.dataset.train.take(np.concatenate(setting.parts))),
        setting.dataset.test,
        0.0,
    )
    for after in run(setting, curve, rounds, state):
        if _is_measured(after.t, rounds):
            rows = [row for row in rows if row[0] < after.t] + [scored(metrics, after)]
            if path is not None:
                _keep(path, key, rows, after)
    return Trace.of(np.array([row for row in rows if _is_measured(int(row[0]), rounds)]))


def _is_measured(t: int, rounds: int) -> bool:
    return t <= rounds and (t in _EARLY or t % _EVERY == 0 or t == rounds)


def digest(setting: Setting) -> str:
    """Return the SHA-256 of the records and of their division among agents."""
    found = hashlib.sha256()
    dataset = setting.dataset
    for records in (dataset.train, dataset.test):
        for values in (records.features, records.labels):
            found.update(f"{values.dtype.str} {values.shape}".encode())
            found.update(values.tobytes())
    for part in setting.parts:
        found.update(part.tobytes())
    return found.hexdigest()


def _name(curve: Curve) -> str:
    noise = "exact" if curve.epsilon is None else f"{curve.epsilon:g}"
    return f"{curve.noise}_{noise}_{curve.updates}"


def _key(setting: Setting, curve: Curve) -> str:
    """Return the key of a run: all settings except its length."""
    rule = setting.penalty
    return json.dumps(
        [str(curve), setting.box, str(rule), setting.dataset.bound, setting.seed, digest(setting)]
    )


def _found(path: Path, key: str) -> tuple[list[Floats], State | None]:
    if not path.exists():
        return [], None
    with np.load(path) as kept:
        if str(kept["key"]) != key:
            raise DatasetError(
                f"'{path}' is of a run on other records or with other settings, and going on with "
                "it would mix the two. Name another folder."
            )
        state = State(
            int(kept["t"]), kept["last"], kept["sent"], kept["multipliers"], float(kept["noise"])
        )
        return list(kept["rows"]), state


def _keep(path: Path, key: str, rows: list[Floats], state: State) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part.npz")
    np.savez(
        beside, key=key, rows=np.array(rows), t=state.t, last=state.last, sent=state.sent,
        multipliers=state.multipliers, noise=state.magnitude,
    )  # fmt: skip
    os.replace(beside, path)
