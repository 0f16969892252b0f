"""What holds private data, and stays in the process and behind the door."""

from __future__ import annotations

from typing import NoReturn


class BehindTheDoor:
    """Abstract: holds private data, and is neither pickled nor copied."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds private data and is never pickled.")
