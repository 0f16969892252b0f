"""What takes Newton's steps: tests run on every kernel that is installed.

``python -m tests.kernels`` compiles what is compiled, and keeps it on disk: processes that begin
beside each other would each compile it by themselves.
"""

import importlib.util

import numpy as np
import pytest
import scipy.sparse as sp

from dpcvx.model.canonical import ConeData, Cones
from dpcvx.solvers.newton import COMPILED, PLAIN, Newton, best_kernel
from dpcvx.solvers.newton_layout import layout_of

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
    """Project a point onto a cone, which takes all functions of the kernel that is installed."""
    A, none = sp.csc_array(-np.eye(2)), sp.csc_array((2, 2))
    layout = layout_of(ConeData(none, np.zeros(2), A, np.zeros(2), Cones(soc=(2,)), 2))
    Newton(layout, best_kernel(), 45)(np.ones(2), np.array([0.0, 1.0]))


if __name__ == "__main__":
    compile_steps()
