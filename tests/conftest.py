"""Settings of all tests: hypothesis draws the same examples every time; no test recalls another."""

import pytest

try:
    from hypothesis import settings
except ModuleNotFoundError:
    pytest.exit("Tests need packages that are not installed: pip install '.[test]'.", returncode=4)

from dpcvx.run import repeats

settings.register_profile("dpcvx", derandomize=True, deadline=None, database=None)
settings.load_profile("dpcvx")


@pytest.fixture(autouse=True)
def _no_past(monkeypatch):
    """Tests use equal numbers for data of different people."""
    monkeypatch.setattr(repeats, "_BY_VALUES", {})
