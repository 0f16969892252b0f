"""Whatever tests of owners leave in the folder of temporary files fails them."""

import tempfile

import pytest


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch):
    """An empty folder of temporary files, which has to be empty again after the test."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    left = [path.name for path in folder.iterdir()]
    assert not left, f"left behind: {left}"
