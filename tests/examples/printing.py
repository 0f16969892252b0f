"""What an example prints and draws, and settings that make its run small."""

from contextlib import contextmanager

import pytest


@contextmanager
def printed():
    """Lines that are printed inside, as they come, and a patch that is undone at the end."""
    lines = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("builtins.print", lambda *words: lines.append(" ".join(map(str, words))))
        yield lines, patched


def assert_written(folder, text, names):
    """The folder holds these figures and no others, and the text says where they are."""
    assert {path.name for path in folder.iterdir()} == {f"{name}.png" for name in names}
    for path in folder.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
        assert f"wrote {path}" in text
