"""What takes Newton's steps: tests run on every kernel that is installed.

``python -m tests.kernels`` compiles what is compiled, and keeps it on disk: processes that begin
beside each other would each compile it by themselves.
"""

import importlib.util

import pytest

from dpcvx.solvers.newton import COMPILED, PLAIN, best_kernel, compile_ahead

KERNELS = [
    PLAIN,
    pytest.param(
        COMPILED,
        marks=pytest.mark.skipif(
            importlib.util.find_spec("numba") is None, reason="numba is not installed"
        ),
    ),
]


def compile_steps():
    """Compile what is installed."""
    if best_kernel() == COMPILED:
        compile_ahead()


if __name__ == "__main__":
    compile_steps()
