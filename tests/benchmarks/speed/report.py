"""The table, the machine it was measured on, and the ratios that were committed."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from .measure import Row

COMMITTED = Path(__file__).with_name("committed.json")
_PACKAGES = ("dpcvx", "cvxpy", "clarabel", "osqp", "numpy", "scipy", "dp-accounting")
# Loss against the committed ratio that is flagged.
_LOSS = 1.2


@dataclass(frozen=True)
class Known:
    """A committed ratio and the size it belongs to."""

    size: str
    ratio: float


def machine() -> str:
    """Cores, processor and versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{cores} cores, {_processor()}, BLAS threads: {threads}{load}\n"
        f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def committed() -> dict[str, Known]:
    """The committed ratios by name of the row."""
    if not COMMITTED.exists():
        return {}
    return {name: Known(**entry) for name, entry in json.loads(COMMITTED.read_text()).items()}


def commit(rows: Iterable[Row]) -> None:
    """Replace the ratios of these rows."""
    known = {name: vars(entry) for name, entry in committed().items()}
    for row in rows:
        if row.unit == "x" and row.measured is not None:
            known[row.name] = {"size": row.size, "ratio": float(f"{row.measured:.4g}")}
    COMMITTED.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def lost(row: Row, known: dict[str, Known]) -> bool:
    """Whether a row is worse than committed by more than is tolerated."""
    before = known.get(row.name)
    if before is None or row.measured is None or row.unit != "x" or before.size != row.size:
        return False
    return bool(row.measured > _LOSS * before.ratio)


def table(rows: Sequence[Row], known: dict[str, Known]) -> str:
    """Markdown: pasted into docs/benchmarks/speed.md as it is."""
    head = ("what", "compared with", "size", "measured", "required", "", "committed", "in detail")
    lines = [head, tuple("---" for _ in head)]
    for row in rows:
        before = known.get(row.name)
        lines.append(
            (
                row.name,
                row.against,
                row.size,
                _figure(row.measured, row.unit),
                "" if row.required is None else f"<= {_figure(row.required, row.unit)}",
                _verdict(row, known),
                "" if before is None or before.size != row.size else f"{before.ratio:.3g}",
                row.note,
            )
        )
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return "\n".join(
        "| " + " | ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "not available"
    return f"{value:.3g}" + {"x": "", "us": " us", "s": " s", "B": " B", "": ""}[unit]


def _verdict(row: Row, known: dict[str, Known]) -> str:
    verdict = {True: "pass", False: "FAIL", None: ""}[row.passed]
    return f"{verdict} LOSS".strip() if lost(row, known) else verdict
