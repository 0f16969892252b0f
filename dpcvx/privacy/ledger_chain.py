"""The bytes of a ledger file: a head, then one JSON object per line, chained by hashes.

Each line holds the hash of itself and of everything before it. Lines are written in groups: the
charges of an exchange and then its values, or one line of another kind. The head has a fixed width
and is rewritten in place after a group is on disk: it counts the lines and holds the hash of the
last one. A group is forced to disk before it takes effect, the head with the next group. So three
states are not damage but what a process that died or a disk that lost power leaves:

* the head lags: by one group if the head was not rewritten, by two if it did not reach the disk
  before the next group did;
* behind the intact lines stands a part of the group that was being written, cut off or with sectors
  of zeros, if the head lags by one group besides at most;
* the head is the first part of a new one and the last part of the one that it replaces.

All lines that ever took effect are intact then. Everything else is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import LedgerError

_FORMAT = "dpcvx ledger 2"
_EARLIER = "dpcvx ledger 1"
# Bytes of the head. Within one sector, so that a disk that loses power has the old or the new one.
WIDTH = 160
_SECTOR = 512
_START = hashlib.sha256(_FORMAT.encode()).hexdigest()
# What the line of a value begins with: a part of a line that does not holds nothing of a value.
_VALUE = b'{"data"'
# Under which the first line of a group says how many lines it has.
GROUP = "lines"


@dataclass(frozen=True)
class Chain:
    """An intact ledger file, perhaps of a process that died."""

    lines: list[dict[str, Any]]  # what the intact lines say
    link: str  # hash of the last one
    end: int  # where they end in the file
    tail: bytes  # part of a line that was being written
    head: bytes  # as it stands in the file
    torn: bool  # whether the head says that a part of a value was on disk, and no line says so yet

    @property
    def holds_value(self) -> bool:
        """Return whether the part of a line may be a part of a value."""
        told = self.tail.strip(b"\0")
        return _VALUE in told or b"\0" in told or (told != b"" and not self.tail.startswith(told))


def head(count: int = 0, link: str = _START, torn: bool = False) -> bytes:
    """Return the head for so many lines, the last of them with this hash."""
    marked = {"torn": True} if torn else {}
    text = json.dumps({"format": _FORMAT, "lines": count, "link": link, **marked})
    return text.ljust(WIDTH - 1).encode() + b"\n"


def linked(link: str, line: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the hash and text of the line that follows one with this hash."""
    body = _text(line)
    following = hashlib.sha256(f"{link} {body}".encode()).hexdigest()
    return following, _text({**line, "link": following}).encode() + b"\n"


def read(raw: bytes, name: str) -> Chain:
    """Parse a ledger file.

    Parameters
    ----------
    raw : bytes
        All of it.
    name : str
        Name of the file, for errors.

    Raises
    ------
    LedgerError
        If it is in none of the states that the module describes.
    """
    if not raw:
        raise LedgerError(
            f"'{name}' is empty. A ledger never is, so it was emptied, or it is another file: what "
            "was spent is not known. If these data were never used, delete the file or name one "
            "that does not exist; a new ledger is created there."
        )
    lines: list[dict[str, Any]] = []
    links, end = [_START], WIDTH
    for text in raw[WIDTH:].split(b"\n")[:-1]:
        line = _followed(links[-1], text)
        if line is None:
            break
        links.append(line.pop("link"))
        lines.append(line)
        end += len(text) + 1
    first, tail = raw[:WIDTH], raw[end:]
    ends, begun = _group_ends(lines)
    counted = _counted(first, links, ends)
    stated = None if counted else _stated(first, name)
    # A line of which all is there but the newline: no disk leaves another character in its place.
    whole = not tail.endswith(b"\0") and _followed(links[-1], tail[:-1]) is not None
    # The part may belong to a group of which some lines are intact.
    least = ends[-3:][0] if begun else ends[-2:][0]
    if tail and (whole or not _cut_off(tail, end) or (counted and counted[0] < least)):
        raise LedgerError(
            f"Line {len(lines) + 2} of the ledger '{name}' does not continue the lines before it: "
            "the file was changed. What was spent is not known; restore the file, or count the "
            "data as spent."
        )
    if counted is None:
        raise LedgerError(
            f"The ledger '{name}' has {len(lines)} lines where its first line counts {stated}: "
            "lines were removed or added, so what was spent is not known. Restore the file, or "
            "count the data as spent."
        )
    count, torn = counted
    return Chain(lines, links[-1], end, tail, first, torn and count == len(lines))


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, sort_keys=True, default=float)  # numpy's numbers as plain ones


def _followed(link: str, text: bytes) -> dict[str, Any] | None:
    """Return a line with its hash, if it follows one with the hash `link`."""
    try:
        line = json.loads(text)
        following, again = linked(link, {k: v for k, v in line.items() if k != "link"})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return line if again == text + b"\n" and line["link"] == following else None


def _group_ends(lines: Sequence[Mapping[str, Any]]) -> tuple[list[int], bool]:
    """Return the line counts at the ends of groups, and whether the last group is incomplete.

    If a process died while it wrote a group, the next process's group may follow a part of it.
    """
    ends, whole = [0], 0
    for index, line in enumerate(lines):
        if index == whole or GROUP in line:
            ends.append(index)
            size = line.get(GROUP, 1)
            whole = index + (size if type(size) is int and size > 0 else 1)
    return [*dict.fromkeys((*ends, len(lines)))], whole > len(lines)


def _counted(first: bytes, links: list[str], ends: list[int]) -> tuple[int, bool] | None:
    """Return the number of the lines that a head counts, and whether it marks a torn value."""
    if len(first) < WIDTH:
        return None
    heads = {(n, torn): head(n, links[n], torn) for n in ends[-3:] for torn in (False, True)}
    for result, whole in heads.items():
        if first == whole:
            return result
    for (n, torn), new in heads.items():
        same = next((i for i in range(WIDTH) if first[i] != new[i]), WIDTH)
        for (m, before), old in heads.items():
            # A head follows one of fewer lines, or marks the one of as many.
            if (m < n or (m == n and torn and not before)) and first[same:] == old[same:]:
                return n, False
    return None


def _stated(first: bytes, name: str) -> int:
    """Return the number of lines in a head that does not fit the lines."""
    earlier = False
    try:
        stated = json.loads(first)
        count, written = stated["lines"], stated["format"]
        if len(first) == WIDTH and written == _FORMAT and type(count) is int:
            return count
        earlier = written == _EARLIER
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    if earlier:
        raise LedgerError(
            f"'{name}' was written by an earlier version of dpcvx, which counted several runs on "
            "one ledger by a rule that does not hold for plans chosen after seeing results. Read "
            "it with that version, take what it says as spent, and start a new file."
        )
    raise LedgerError(
        f"'{name}' is not a dpcvx ledger, or its first line was changed. Name another file; a new "
        "one is created where there is none."
    )


def _cut_off(tail: bytes, start: int) -> bool:
    """Return whether a dying process, or a disk that loses power, can have left this of one group.

    A disk leaves zeros in the sectors that did not reach it; what did may hold ends of lines.
    """
    if b"\n" not in tail:
        return True
    gaps = [gap.span() for gap in re.finditer(b"\0+", tail)]
    return bool(gaps) and all(
        (begin == 0 or (start + begin) % _SECTOR == 0)
        and (end == len(tail) or (start + end) % _SECTOR == 0)
        for begin, end in gaps
    )
