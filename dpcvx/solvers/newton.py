"""Projections onto polyhedra and second-order cones by Newton's method on the active ones.

Every inequality and every cone is one convex function with one multiplier. From the projection onto
the equalities, steps solve the conditions of optimality of the functions that seem active, with one
factor of a fixed pattern each. If these do not end, augmented Lagrangians with growing
penalties follow. They are convex, so a line search leads to their minimizers from any point.
Without a certified answer, the interior point takes over (`dpcvx.solvers.conic`).
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

# What takes the steps. The answers of the two differ in their last digits.
PLAIN, COMPILED = "numpy", "numba"
# Predicted microseconds, as measured: of an interior point, and for every row and column of its
# matrix; of a step of each kernel, and for every entry and product of a layout.
_INTERIOR = (100.0, 1.7)
_STEP = {PLAIN: (50.0, 0.014), COMPILED: (1.0, 0.004)}
# Three steps, which most answers take, may last this share of an interior point; all that are
# tried before it is asked, three and this share.
_WORTH = 0.6
_LOST = 0.15
# From near a set, where answers are seldom missed, steps of numpy may last this share; of numba's,
# enough fit into the other.
_NEAR = 0.75
# Seconds of the processor that compiling takes, once on a machine; and seconds that compiled loops
# save in a projection and for each component of the point: 0.35 ms in zones of 58 components, 0.64
# in zones of 415 and 1.1 in networks of 983.
_COMPILING = 20.0
_SAVED = (2.5e-4, 9e-7)
# Up to this size full matrices are factored faster by compiled loops than by LAPACK.
_LOOPS = 80


class Kernel(Protocol):
    """Minimizes ``1/2 sum_i D_i (x_i - v_i)^2`` over the functions of a layout."""

    def __init__(self, layout: NewtonLayout, budget: int, near: int = 0) -> None: ...

    def weigh(self, D: Array) -> bool:
        """Take new positive weights; whether they have a factor."""
        ...

    def project(self, v: Array) -> Point | None:
        """Return the projection of a point; None if none is certified."""
        ...


def kernel_for(steps: int, sizes: Iterable[int]) -> str:
    """Return the name of the kernel that a new plan takes.

    It is numba if it can be imported and the steps are predicted to save the time that compiling
    takes. The prediction follows from public numbers alone, so that it is the same on all machines
    that have numba, whatever they have compiled before.

    Parameters
    ----------
    steps : int
        Number of steps of each agent in a run.
    sizes : iterable of int
        Number of components of each agent whose set Newton's method projects onto.
    """
    alone, component = _SAVED
    saved = steps * sum(alone + component * size for size in sizes)
    return best_kernel() if saved > _COMPILING else PLAIN


def compile_ahead() -> str:
    """Compile what numba's kernel needs, and return a sentence on what was done.

    Raises
    ------
    SolverError
        If numba is not installed.
    """
    if best_kernel() != COMPILED:
        raise SolverError(
            "Nothing is compiled: numba is not installed here, and numpy takes the local steps. "
            "Install it: pip install 'dpcvx[fast]'."
        )
    A, none = sp.csc_array(-np.eye(2)), sp.csc_array((2, 2))
    layout = layout_of(ConeData(none, np.zeros(2), A, np.zeros(2), Cones(soc=(2,)), 2))
    if layout is None:
        raise package_fault("A cone has no layout.")
    # The projection of this point onto a cone takes all functions.
    started = time.process_time()
    Newton(layout, COMPILED, 45)(np.ones(2), np.array([0.0, 1.0]))
    spent = f"{time.process_time() - started:.1f} s of the processor"
    if import_module(".newton_compiled", __package__).compiled_now():
        return f"Compiled the local steps in {spent}; later runs on this machine load them."
    return f"The local steps were compiled before; loading them took {spent}."


def best_kernel() -> str:
    """Return the name of the fastest kernel: numba where it can be imported."""
    try:
        _compiled()
    except ImportError:  # not installed, or not for this version of numpy
        return PLAIN
    return COMPILED


def _compiled() -> type[Kernel]:
    # Importing what compiles takes half a second, and may be impossible: not before it is needed.
    return import_module(".newton_compiled", __package__).CompiledKernel


def require_kernel(name: str) -> None:
    """Refuse the name of a kernel that cannot be used here.

    Raises
    ------
    SolverError
        Saying what to install.
    """
    if name != PLAIN and best_kernel() != name:
        raise SolverError(
            f"The local steps of this run were computed with {name}, which is not installed here; "
            "without it they end in other last digits. Install it: pip install 'dpcvx[fast]'."
        )


class Newton:
    r"""``argmin_{x in W} 1/2 sum_i D_i (x_i - v_i)^2`` for weights D > 0.

    For multipliers :math:`\lambda \ge 0` and with r what is left of stationarity, no point of W has
    an objective below that of x by more than

    .. math:: \sum_i |\lambda_i \varphi_i(x)| + \tfrac12 \sum_j r_j^2 / D_j

    where j runs over the free columns: H is at least their weights. In the second stage, products
    of multipliers and slacks of rows stand in place of the first terms. An answer leaves with this
    bound, its gap, below 1e-12 of the least weight (1e-13 of the objective, far from W), and with
    no function above 1e-10: relative to the numbers of x, or of the function, where these are below
    1, and to a thousandth of the latter where they are above 1000.

    Answers depend on the arguments alone. Results that follow from the weights are stored for the
    last weights.

    Parameters
    ----------
    layout : NewtonLayout
    kernel : str
        Its name.
    budget, near : int
        Steps after which no more are tried, and for points near the set.
    """

    def __init__(self, layout: NewtonLayout, kernel: str, budget: int, near: int = 0) -> None:
        self._kernel = (_compiled() if kernel == COMPILED else PlainKernel)(layout, budget, near)
        self._weights = b""

    def __call__(self, D: Array, v: Array) -> Point | None:
        """Project v, shape (n,); None if no answer is certified, or not all weights are positive.

        The objective counts from the projection onto the equalities.
        """
        weights = D.tobytes()
        if weights != self._weights:
            self._weights = b""
            if not (D > 0).all() or not self._kernel.weigh(D):
                return None
            self._weights = weights
        return self._kernel.project(v)


def newton_for(layout: NewtonLayout, kernel: str) -> Newton | None:
    """Return Newton's method for a set, or None if predicted to be slower than Clarabel.

    Parameters
    ----------
    layout : NewtonLayout
    kernel : str
        Its name.

    Raises
    ------
    SolverError
        If the kernel is not installed.
    """
    require_kernel(kernel)
    # LAPACK factors large full matrices faster than loops do.
    kernel = PLAIN if layout.dense and layout.size > _LOOPS else kernel
    if layout.long.size:  # borders are full matrices, too
        kernel = PLAIN
    (alone, entry), (solve, node) = _STEP[kernel], _INTERIOR
    step = alone + entry * (layout.block.size + layout.slots.size) + layout.extra
    interior = solve + node * layout.nodes
    if 3 * step > _WORTH * interior:
        return None
    budget, near = (math.floor(share * interior / step) for share in (_LOST, _NEAR))
    return Newton(layout, kernel, 3 + budget, near if kernel == PLAIN else 0)
