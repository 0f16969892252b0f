"""Stored rows of a figure: one line per curve, after a line with their origin."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..provenance import commit, versions

__all__ = ["STORED", "Row", "read", "row", "stored", "write"]

Floats = NDArray[np.float64]
# Folder of the stored rows in a checkout.
STORED = Path(__file__).parents[2] / "docs" / "papers" / "stored"
# Number of stored significant digits.
_DIGITS = 4


@dataclass(frozen=True)
class Row:
    """A curve of a figure.

    Attributes
    ----------
    panel, curve : str
        Names of the panel and of the curve.
    x, y : tuple of float
        Coordinates of the curve; y is a mean over runs if there are `low` and `high`.
    low, high : tuple of float
        Least and largest values over the runs; empty for a single run.
    epsilon : float or None
        Total epsilon of the whole run at `delta`. None without noise, or if the noise covers no
        sensitivity; infinite if it overflows.
    delta : float
        Delta of the total.
    """

    panel: str
    curve: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    epsilon: float | None = None
    delta: float = 0.0


def row(
    panel: str,
    curve: str,
    x: ArrayLike,
    runs: ArrayLike,
    epsilon: float | None = None,
    delta: float = 0.0,
) -> Row:
    """Return the row of a curve from its runs, rounded as it is stored.

    Parameters
    ----------
    panel, curve : str
        Names of the panel and of the curve.
    x : array of numbers, shape (P,)
        Horizontal coordinates.
    runs : array of numbers, shape (runs, P)
        Vertical coordinates by run.
    epsilon, delta : float
        Budget, as for `Row`.
    """
    values = np.asarray(runs, dtype=np.float64)
    several = len(values) > 1
    return Row(
        panel,
        curve,
        _rounded(np.asarray(x, dtype=np.float64)),
        _rounded(values.mean(axis=0)),
        _rounded(values.min(axis=0)) if several else (),
        _rounded(values.max(axis=0)) if several else (),
        None if epsilon is None else _rounded(np.array([epsilon]))[0],
        delta,
    )


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(float(f"{value:.{_DIGITS}g}") for value in values)


def write(path: Path, rows: Sequence[Row], command: str, settings: Mapping[str, object]) -> None:
    """Write rows, with the commit, the command, and the settings that made them.

    Parameters
    ----------
    path : Path
        File with a JSON object on each line.
    rows : sequence of Row
    command : str
        Command that made the rows.
    settings : mapping of str to value
        Settings, such as the number of runs.
    """
    head = {
        "command": command,
        "commit": commit(),
        "versions": versions(),
        "machine": platform.machine(),
        "settings": settings,
    }
    lines = [json.dumps(head), *(json.dumps(_compact(asdict(each))) for each in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _compact(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a row without empty ones, with whole numbers written without a point."""
    return {
        key: [_short(v) for v in value] if isinstance(value, tuple) else value
        for key, value in fields.items()
        if value not in ((), 0.0) or key == "epsilon"
    } | ({"epsilon": "inf"} if fields["epsilon"] == math.inf else {})


def _short(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None  # the run diverged
    return int(value) if value == int(value) and abs(value) < 1e6 else value


def read(path: Path) -> tuple[dict[str, object], list[Row]]:
    """Return the first line and the rows of a file."""
    first, *others = path.read_text(encoding="utf-8").splitlines()
    return json.loads(first), [_row(json.loads(line)) for line in others]


def stored(figure: str) -> dict[tuple[str, str], Row]:
    """Return the stored rows of a figure, by panel and curve."""
    return {(own.panel, own.curve): own for own in read(STORED / f"{figure}.jsonl")[1]}


def _row(fields: Mapping[str, object]) -> Row:
    lists = {key: _numbers(value) for key, value in fields.items() if isinstance(value, list)}
    epsilon = fields["epsilon"]
    total = float(epsilon) if isinstance(epsilon, (int, float, str)) else None
    delta = fields.get("delta", 0.0)
    assert isinstance(delta, (int, float))
    return Row(
        str(fields["panel"]),
        str(fields["curve"]),
        lists["x"],
        lists["y"],
        lists.get("low", ()),
        lists.get("high", ()),
        total,
        delta,
    )


def _numbers(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(math.nan if value is None else float(value) for value in values)
