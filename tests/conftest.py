"""Settings of all tests: hypothesis draws the same examples every time."""

import pytest

try:
    from hypothesis import settings
except ModuleNotFoundError:
    pytest.exit("Tests need packages that are not installed: pip install '.[test]'.", returncode=4)

settings.register_profile("dpcvx", derandomize=True, deadline=None, database=None)
settings.load_profile("dpcvx")
