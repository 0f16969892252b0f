"""What an example prints, and settings that make its run small."""

from contextlib import contextmanager

import pytest


@contextmanager
def printed():
    """Lines that are printed inside, as they come, and a patch that is undone at the end."""
    lines = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("builtins.print", lambda *words: lines.append(" ".join(map(str, words))))
        yield lines, patched
