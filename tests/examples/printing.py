"""What an example prints and draws, and settings that make its run small."""

import io
from contextlib import contextmanager, redirect_stdout

import pytest


@contextmanager
def printed():
    """Lines that are printed inside, known at the end, and a patch that is undone there.

    ``print`` itself stays: numba asks it for its name when a run imports it.
    """
    lines = []
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(io.StringIO()) as heard:
        yield lines, patched
    lines += heard.getvalue().splitlines()


def assert_written(folder, text, names):
    """The folder holds these figures and no others, and the text says where they are."""
    assert {path.name for path in folder.iterdir()} == {f"{name}.png" for name in names}
    for path in folder.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
        assert f"wrote {path}" in text
