"""Projections onto polyhedra and second-order cones by Newton's method on active constraints.

Every inequality and every cone is one convex function with one multiplier. In the first stage,
which starts at the projection onto the equalities, each step solves the optimality conditions of
the functions that seem active; it factors one matrix of fixed pattern. If this does not converge,
the second stage minimizes augmented Lagrangians with growing penalties. They are convex, so a line
search leads to their minimizers from any point. If no stage certifies an answer, an interior point
solves the projection (`dpcvx.solvers.conic`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from importlib import import_module
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import SolverError, package_fault
from ..model.canonical import ConeData, Cones
from .newton_layout import NewtonLayout, Point, layout_of
from .newton_plain import PlainKernel

Array = NDArray[np.float64]

# Names of the kernels. Their answers differ in the last digits.
PLAIN, COMPILED = "numpy", "numba"
# Predicted time in microseconds, from measurements. An interior point: constant, and per row and
# column of its matrix. A step of each kernel: constant, and per entry and product of a layout.
_INTERIOR = (100.0, 1.7)
_STEP = {PLAIN: (50.0, 0.014), COMPILED: (1.0, 0.004)}
# The method is used if three steps, enough for most answers, take at most this share of an interior
# point's time. Beyond three steps, further steps may take the second share.
_WORTH = 0.6
_LOST = 0.15
# For points near the set, where the method seldom fails, steps of numpy may take this share of the
# time. Steps of numba are fast enough for the share above.
_NEAR = 0.75
# Processor seconds to compile once on a machine. Seconds that compiled loops save per projection:
# constant, and per component (measured: 0.35 ms for 58 components, 0.64 for 415, 1.1 for 983).
_COMPILING = 20.0
_SAVED = (2.5e-4, 9e-7)
# Largest size of dense matrices that compiled loops factor faster than LAPACK.
_LOOPS = 80


class Kernel(Protocol):
    """Solver of ``minimize 1/2 sum_i D_i (x_i - v_i)^2`` under a `NewtonLayout`'s constraints."""

    def __init__(self, layout: NewtonLayout, budget: int, near: int = 0) -> None: ...

    def weigh(self, D: Array) -> bool:
        """Set positive weights D; return whether the objective's matrix H could be factored."""
        ...

    def project(self, v: Array) -> Point | None:
        """Return the projection of a point v; None if no answer is certified."""
        ...


def kernel_for(steps: int, sizes: Iterable[int]) -> str:
    """Return the name of the kernel, an implementation of Newton's method, for a new plan.

    It is numba if numba can be imported and the run is predicted to save more time than compiling
    takes. The prediction uses public numbers only. So all machines with numba choose the same
    kernel, whether or not they have compiled it before.

    Parameters
    ----------
    steps : int
        Number of local steps of each agent in a run.
    sizes : iterable of int
        Numbers of components of the agents for whose sets Newton's method is used.
    """
    alone, component = _SAVED
    saved = steps * sum(alone + component * size for size in sizes)
    return best_kernel() if saved > _COMPILING else PLAIN


def compile_ahead() -> str:
    """Compile all functions of numba's kernel, and return a sentence on the time it took.

    Raises
    ------
    SolverError
        If numba is not installed.
    """
    if best_kernel() != COMPILED:
        raise SolverError(
            "Nothing was compiled: numba is not installed here, so numpy computes the local "
            "steps. Install it: pip install 'dpcvx[fast]'."
        )
    A, none = sp.csc_array(-np.eye(2)), sp.csc_array((2, 2))
    layout = layout_of(ConeData(none, np.zeros(2), A, np.zeros(2), Cones(soc=(2,)), 2))
    if layout is None:
        raise package_fault("A cone has no layout.")
    # The projection of this point onto a cone calls all functions of the kernel.
    started = time.process_time()
    Newton(layout, COMPILED, 45)(np.ones(2), np.array([0.0, 1.0]))
    spent = f"{time.process_time() - started:.1f} s of the processor"
    if import_module(".newton_compiled", __package__).compiled_now():
        return f"Compiled the local steps in {spent}; later runs on this machine load them."
    return f"The local steps were compiled before; loading them took {spent}."


def best_kernel() -> str:
    """Return the name of the fastest kernel: numba if it can be imported, else numpy."""
    try:
        _compiled()
    except ImportError:  # numba is not installed, or does not support this version of numpy
        return PLAIN
    return COMPILED


def _compiled() -> type[Kernel]:
    # Imported at first use, since importing numba takes half a second, and may fail.
    return import_module(".newton_compiled", __package__).CompiledKernel


def require_kernel(name: str) -> None:
    """Refuse a kernel (implementation of Newton's method) that cannot be used on this machine.

    Raises
    ------
    SolverError
        If the kernel cannot be imported; the text names the package to install.
    """
    if name != PLAIN and best_kernel() != name:
        raise SolverError(
            f"The local steps of this run were computed with {name}, which is not installed here. "
            "Without it, the last digits of the steps differ. Install it: pip install "
            "'dpcvx[fast]'."
        )


class Newton:
    r"""Projection ``argmin_{x in W} 1/2 sum_i D_i (x_i - v_i)^2`` for weights D > 0.

    For multipliers :math:`\lambda \ge 0` of constraints :math:`\varphi_i(x) \le 0` and the residual
    r of stationarity, the objective at x exceeds the objective at any point of W by at most the gap

    .. math:: \sum_i |\lambda_i \varphi_i(x)| + \tfrac12 \sum_j r_j^2 / D_j

    where j runs over the free columns: the quadratic's matrix H in them is at least the diagonal
    matrix of their weights. In the
    second stage, products of multipliers and slacks of rows replace the first terms. A certified
    answer has a gap below 1e-12 times the least weight, or 1e-13 times the objective if v is far
    from W. No function is above 1e-10 times its terms if these are below 1, 1e-10 for larger terms,
    and 1e-13 times its terms if these are above 1000.

    Answers depend on the arguments alone. Quantities that depend on D only are kept for the last D.

    Parameters
    ----------
    layout : NewtonLayout
    kernel : str
        Name of the kernel.
    budget, near : int
        Largest numbers of steps: for all points, and for points near the set.
    """

    def __init__(self, layout: NewtonLayout, kernel: str, budget: int, near: int = 0) -> None:
        if kernel == COMPILED and layout.long.size:
            raise package_fault("The compiled kernel takes no long rows.")
        self._kernel = (_compiled() if kernel == COMPILED else PlainKernel)(layout, budget, near)
        self._weights = b""

    def __call__(self, D: Array, v: Array) -> Point | None:
        """Project v, shape (n,); None if no answer is certified, or not all weights are positive.

        In the answer, `value` is the excess of the objective over its value at the projection onto
        the equalities.
        """
        weights = D.tobytes()
        if weights != self._weights:
            self._weights = b""
            if not (D > 0).all() or not self._kernel.weigh(D):
                return None
            self._weights = weights
        return self._kernel.project(v)


def newton_for(layout: NewtonLayout, kernel: str) -> Newton | None:
    """Return the projection onto a set by Newton's method; None if Clarabel should be faster.

    Parameters
    ----------
    layout : NewtonLayout
        Layout of the set.
    kernel : {"numpy", "numba"}
        Implementation of Newton's method; numpy replaces numba on sets where it is faster.

    Raises
    ------
    SolverError
        If the kernel is not installed.
    """
    require_kernel(kernel)
    # LAPACK factors large dense matrices faster than compiled loops do.
    kernel = PLAIN if layout.dense and layout.size > _LOOPS else kernel
    if layout.long.size:  # borders are dense matrices, too
        kernel = PLAIN
    (alone, entry), (solve, node) = _STEP[kernel], _INTERIOR
    step = alone + entry * (layout.block.size + layout.slots.size) + layout.extra
    interior = solve + node * layout.nodes
    if 3 * step > _WORTH * interior:
        return None
    budget, near = (math.floor(share * interior / step) for share in (_LOST, _NEAR))
    return Newton(layout, kernel, 3 + budget, near if kernel == PLAIN else 0)
