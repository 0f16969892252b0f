"""Figures to files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # slow to import, and used with --plot only
    from matplotlib.figure import Figure

_DPI = 130


def write(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write figures under their names into a folder, which is created if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(folder / name, dpi=_DPI)
    return [folder / name for name in figures]


def announce(figures: Mapping[str, Figure], folder: Path) -> None:
    """Write figures, and print where they are."""
    for path in write(figures, folder):
        print(f"wrote {path}")
