"""Reading of files and checks of folders that users name, with errors as sentences."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path
from typing import NoReturn

from dpcvx.errors import ModelError

# Limits on unpacked bytes, since a small archive may claim to hold any number of bytes.
_LARGE, _MOST_RATIO, _MOST_BYTES = 2**27, 200, 2**33


def unpacks_too_far(packed: int, total: int) -> bool:
    """Return whether a file unpacks to far more bytes than a data set of its size would."""
    return total > _MOST_BYTES or (total > _LARGE and total > _MOST_RATIO * packed)


def content(path: Path, named: str, error: type[ModelError], remedy: str) -> bytes:
    """Return the bytes of a regular file.

    Parameters
    ----------
    path : Path
    named : str
        Description of the file in messages.
    error : type
        Type of the raised error.
    remedy : str
        Sentence on what to write instead.

    Raises
    ------
    ModelError
        If there is no such file, or it cannot be read; of type `error`.
    """
    check_file(path, named, error, remedy)
    try:
        return path.read_bytes()
    except (OSError, ValueError, MemoryError) as raised:
        _refuse(raised, named, error, remedy)


def check_file(path: Path, named: str, error: type[ModelError], remedy: str) -> None:
    """Refuse a path that is no regular file, since pipes and devices may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as raised:
        _refuse(raised, named, error, remedy)
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise error(f"{named}: it cannot be read as a file, since it is {kind}. {remedy}")


def text(path: Path, named: str, error: type[ModelError], remedy: str) -> str:
    """Return the text of a regular UTF-8 file, without byte-order mark, with uniform newlines.

    Raises
    ------
    ModelError
        If the file cannot be read, or is no text in UTF-8; of type `error`.
    """
    try:
        found = content(path, named, error, remedy).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{named}: it cannot be read as text in UTF-8. {remedy}") from None
    return found.replace("\r\n", "\n").replace("\r", "\n")


def check_folder(folder: Path, named: str) -> None:
    """Create a folder if it is missing, and refuse it if no file can be written there.

    Raises
    ------
    ModelError
        If no file can be written to the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as raised:
        raise ModelError(
            f"{named} '{folder}' is no folder that files can be written to ({_reason(raised)}), so "
            "the results could not be kept. Name another folder."
        ) from None


def _refuse(raised: Exception, named: str, error: type[ModelError], remedy: str) -> NoReturn:
    if isinstance(raised, FileNotFoundError):
        raise error(f"{named}: no such file, so it cannot be read. {remedy}") from None
    raise error(f"{named}: it cannot be read ({_reason(raised)}). {remedy}") from None


def _reason(raised: Exception) -> str:
    """Return the reason of an error as text, without the path."""
    if isinstance(raised, OSError) and raised.strerror:
        return raised.strerror
    return {ValueError: "its name has a zero byte", MemoryError: "it is larger than memory"}.get(
        type(raised), type(raised).__name__
    )
