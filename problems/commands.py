"""Types of command-line arguments that check values, with errors as sentences."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dpcvx.errors import DpcvxError

from .files import check_folder
from .pictures import FORMATS

# Largest number of rounds, seeds and so on.
MOST = 10**6


def count(least: int = 1) -> Callable[[str], int]:
    """Return the type of an argument that is a whole number of at least `least`."""

    def parse(text: str) -> int:
        value = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else -1
        if not least <= value <= MOST:
            raise argparse.ArgumentTypeError(
                f"must be positive and whole, from {least} to {MOST}, not {text[:30]!r}"
            )
        return value

    return parse


def positive(text: str) -> float:
    """Parse an argument that is a positive finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text[:30]!r} is not a positive finite number")
    return value


def folder(text: str) -> Path:
    """Parse an argument that names a folder to write to, and create the folder if it is missing."""
    try:
        check_folder(Path(text), "the folder")
    except DpcvxError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def some_of(known: Iterable[str], what: str) -> Callable[[str], tuple[str, ...]]:
    """Return the type of an argument with one or several of these names, separated by commas.

    Parameters
    ----------
    known : iterable of str
        Allowed names.
    what : str
        Name of one element in messages.
    """
    allowed = tuple(known)

    def parse(text: str) -> tuple[str, ...]:
        named = dict.fromkeys(part.strip().lower() for part in text.split(","))
        for name in named:
            if name not in allowed:
                raise argparse.ArgumentTypeError(
                    f"{name[:30]!r} is no {what}; write one or several of {','.join(allowed)}"
                )
        return tuple(named)

    return parse


def add_plot(parser: argparse._ActionsContainer, what: str = "the figures") -> None:
    """Add the options ``--plot DIR`` and ``--format`` of commands that draw figures.

    Parameters
    ----------
    parser : argparse.ArgumentParser or one of its groups
        Its namespace gets `plot`, a path or None, and `format`, a tuple.
    what : str
        Name of the figures in the help.
    """
    parser.add_argument("--plot", type=folder, metavar="DIR", help=f"write {what} to this folder")
    parser.add_argument(
        "--format",
        type=some_of(FORMATS, "format for figures"),
        default=("png",),
        help=f"of the figures, such as pdf,svg; of {', '.join(FORMATS)} (default png)",
    )


def sentence(error: DpcvxError | OSError) -> str:
    """Return the text for an error: its message and notes, or a sentence on a file."""
    if isinstance(error, OSError):
        where = "" if error.filename is None else f" '{error.filename}'"
        why = error.strerror or type(error).__name__
        return f"a file{where} cannot be read or written ({why}). Name another one."
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


@contextmanager
def in_words(parser: argparse.ArgumentParser) -> Iterator[None]:
    """End the command with exit code 2 and a sentence if an input or a file is invalid."""
    try:
        yield
    except (DpcvxError, OSError) as error:
        parser.error(sentence(error))
