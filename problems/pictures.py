"""Writing of figures to files, by name and format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpcvx._figure import ONE_COLUMN, STYLE, TWO_COLUMNS, styled

if TYPE_CHECKING:  # matplotlib is slow to import, and only needed with --plot
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLUE", "FORMATS", "GREEN", "GREY", "ONE_COLUMN", "ORANGE", "PINK", "RED", "SKY",
    "TWO_COLUMNS", "announce", "legend_below", "styled", "whole_rounds", "write",
]  # fmt: skip

# Okabe and Ito's colors, as in the style, for curves that have one color in several panels.
BLUE, RED, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY = "#E69F00", "#56B4E9", "0.45"
# Metadata to omit: files would contain their date, and equal figures should be equal files.
FORMATS: dict[str, dict[str, None]] = {
    "png": {},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}
"""Metadata that files of each format omit."""


def whole_rounds(axes: Axes) -> None:
    """Label the horizontal axis "round", with ticks at whole rounds only."""
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True)


# Metadata field for free text, by format.
_TEXT = {"png": "Description", "pdf": "Keywords", "svg": "Description"}


def write(
    figures: Mapping[str, Figure],
    folder: Path,
    formats: Sequence[str] = ("png",),
    about: str = "",
) -> list[Path]:
    """Write figures under their names into a folder, which is created if missing.

    Parameters
    ----------
    figures : mapping of str to Figure
        Figures by file name without suffix.
    folder : Path
    formats : sequence of {"png", "pdf", "svg"}
    about : str
        Origin of the figures, for the metadata of the files.

    Returns
    -------
    list of Path
        The files, figure by figure.
    """
    from matplotlib import style

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with style.context(STYLE):
        for name, figure in figures.items():
            for kind in formats:
                written.append(folder / f"{name}.{kind}")
                text = {_TEXT[kind]: about} if about else {}
                figure.savefig(written[-1], metadata={**FORMATS[kind], **text})
    return written


def announce(
    figures: Mapping[str, Figure], folder: Path, formats: Sequence[str] = ("png",)
) -> None:
    """Write figures, as `write` does, and print where they are."""
    for path in write(figures, folder, formats):
        print(f"wrote {path}")


def legend_below(figure: Figure, panels: Iterable[Axes], columns: int) -> None:
    """Draw one legend for the lines of these panels, below all panels."""
    lines: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            lines.setdefault(label, handle)
    figure.legend([*lines.values()], [*lines], loc="outside lower center", ncols=columns)
