"""What takes Newton's steps: tests run on every kernel that is installed."""

import importlib.util

import pytest

from dpcvx.solvers.newton import COMPILED, PLAIN

KERNELS = [
    PLAIN,
    pytest.param(
        COMPILED,
        marks=pytest.mark.skipif(
            importlib.util.find_spec("numba") is None, reason="numba is not installed"
        ),
    ),
]
