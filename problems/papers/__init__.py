"""Numbers of the papers' experiments in one table, each with the quotation that states it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENTRIES", "Entry", "entry", "settings"]

Value = bool | int | float | str | list[float]
_SOURCES = ("words", "code", "choice")


@dataclass(frozen=True)
class Entry:
    """Values of a paper from one source.

    Attributes
    ----------
    where : str
        Section, figure or table of the paper.
    source : {"words", "code", "choice"}
        Whether the paper's text states the values, its authors' code, or neither.
    said : str
        Quotation, file of the code, or reason for the choice.
    values : mapping of str to value
        Values by the paper's symbols.
    """

    where: str
    source: str
    said: str
    values: Mapping[str, Value]

    def number(self, symbol: str) -> float:
        """Return one number."""
        value = self.values[symbol]
        assert isinstance(value, (int, float)), symbol
        return value

    def whole(self, symbol: str) -> int:
        """Return one whole number."""
        value = self.values[symbol]
        assert isinstance(value, int), symbol
        return value

    def numbers(self, symbol: str) -> tuple[float, ...]:
        """Return a list of numbers."""
        value = self.values[symbol]
        assert isinstance(value, list), symbol
        return tuple(value)


def _read() -> dict[str, dict[str, Entry]]:
    table = tomllib.loads((Path(__file__).parent / "values.toml").read_text(encoding="utf-8"))
    return {
        paper: {name: _entry(stated) for name, stated in entries.items()}
        for paper, entries in table.items()
    }


def _entry(stated: Mapping[str, Value]) -> Entry:
    (source,) = (kind for kind in _SOURCES if kind in stated)
    values = {key: value for key, value in stated.items() if key not in ("where", source)}
    return Entry(str(stated["where"]), source, str(stated[source]), values)


ENTRIES: Mapping[str, Mapping[str, Entry]] = _read()


def entry(paper: str, name: str) -> Entry:
    """Return an entry of the table.

    Parameters
    ----------
    paper : {"chan_xie_zhao", "ou_wang_liu_lu", "ryu_kim", "xiao_ye_devadas"}
    name : str
    """
    return ENTRIES[paper][name]


def settings(paper: str, *names: str) -> str:
    """Return the settings of a figure as lines of text: values, then their sources.

    Parameters
    ----------
    paper : str
        Name of the paper, as for `entry`.
    names : str
        Names of entries; all entries of the paper if omitted.
    """
    return "\n".join(_lines(paper, names or tuple(ENTRIES[paper])))


def _lines(paper: str, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        stated = entry(paper, name)
        pairs = ", ".join(f"{symbol} = {_text(value)}" for symbol, value in stated.values.items())
        yield f"{name}: {pairs}"
        said = f'"{stated.said}"' if stated.source == "words" else f"{stated.source}: {stated.said}"
        yield f"    {stated.where}: {said}"


def _text(value: Value) -> str:
    if isinstance(value, list):
        return ", ".join(f"{each:g}" for each in value)
    return f"{value:g}" if isinstance(value, (int, float)) and value is not True else str(value)
