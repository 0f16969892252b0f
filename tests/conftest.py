"""Settings of all tests: hypothesis draws the same examples every time."""

from hypothesis import settings

settings.register_profile("dpcvx", derandomize=True, deadline=None, database=None)
settings.load_profile("dpcvx")
