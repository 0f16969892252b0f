r"""Certified gradient sensitivity, derived from the normal form.

Covered: objectives whose gradient is affine in the private data with a Jacobian that depends on
neither the data nor the point,

.. math:: \nabla f(x; d) = h(x) + \sum_k J_k d_k .

Then :math:`\nabla f(x; d) - \nabla f(x; d') = J_k (d_k - d_k')` for neighbours that differ in
private parameter k, and the sensitivity is a norm of :math:`J_k` over the adjacency ball. Whatever
is not covered is refused with the atom that stands in the way.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from .curvature import bilinear, cross, terms
from .errors import PrivacyError
from .normal_form import NormalForm
from .private import PrivateSpec

Array = NDArray[np.float64]

# Sign patterns are enumerated up to this many free signs per connected block of the Jacobian.
_ENUMERATE = 14
# Floating-point results are rounded up by this factor before they are called bounds.
_UP = 1 + 1e-9


@dataclass(frozen=True)
class Bound:
    """A norm of the gradient's change.

    Attributes
    ----------
    value : float
        Upper bound over all neighbouring data and all points.
    exact : bool
        Whether some neighbouring pair attains it.
    """

    value: float
    exact: bool


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """How far the gradient of one agent can move between neighbouring data.

    Attributes
    ----------
    private : tuple of PrivateSpec
    jacobians : tuple of csr_array, each of shape (n, size of the private parameter)
    terms : tuple of str
        Atoms that link data and variables, for the derivation.
    """

    private: tuple[PrivateSpec, ...]
    jacobians: tuple[sp.csr_array, ...]
    terms: tuple[str, ...]

    def bound(self, p: int, scale: Array | None = None) -> Bound:
        """Bound of ``||scale * (g - g')||_p`` over neighbours that differ in one private parameter.

        Parameters
        ----------
        p : {1, 2}
        scale : ndarray, shape (n,), optional
            Weights of the components; ones if omitted.
        """
        if p not in (1, 2):
            raise PrivacyError(f"p={p!r} is not a norm of a mechanism; write 1 or 2.")
        worst = Bound(0.0, True)
        for spec, J in zip(self.private, self.jacobians, strict=True):
            scaled = J if scale is None else sp.csr_array(sp.diags_array(scale) @ J)
            found = ball_norm(scaled, spec.adjacency.norm, p)
            if found.value * spec.adjacency.radius > worst.value:
                worst = Bound(found.value * spec.adjacency.radius, found.exact)
        return Bound(worst.value * _UP, worst.exact)

    @property
    def l1(self) -> float:
        """Bound of the gradient's change in l1."""
        return self.bound(1).value

    @property
    def l2(self) -> float:
        """Bound of the gradient's change in l2."""
        return self.bound(2).value

    @property
    def argument(self) -> str:
        """Why the gradient's change is bounded, in words."""
        if not self.terms:
            return "private data and variables meet in no term, so the gradient does not change"
        return (
            f"private data and variables meet in {', '.join(self.terms)} of affine arguments only, "
            "so grad f(x; d) = h(x) + J d with J free of data and of x, and the gradients of "
            "neighbours differ by J (d - d')"
        )

    @property
    def figures(self) -> str:
        """The bounds for each private object, in words."""
        lines = []
        for spec, J in zip(self.private, self.jacobians, strict=True):
            l1, l2 = (ball_norm(J, spec.adjacency.norm, p) for p in (1, 2))
            r = spec.adjacency.radius
            lines.append(
                f"'{spec.name}', {spec.adjacency}: J is {J.shape[0]} x {J.shape[1]} with {J.nnz} "
                f"non-zeros, {_norm_in_words(spec)} is {l1.value * r:.6g} in l1"
                f"{'' if l1.exact else ' (upper bound)'} and {l2.value * r:.6g} in l2"
                f"{'' if l2.exact else ' (upper bound)'}"
            )
        return "; ".join(lines)

    @property
    def derivation(self) -> str:
        """Argument and figures."""
        return f"{self.argument}. {self.figures}."


def derive(form: NormalForm, owner: str) -> Sensitivity:
    """Certify the gradient sensitivity of an agent's objective.

    Parameters
    ----------
    form : NormalForm
    owner : str
        Name of the agent, for messages.

    Raises
    ------
    PrivacyError
        If private data and variables meet in a term that is not quadratic in affine arguments.
    """
    names: list[str] = []
    jacobians = [sp.csr_array((form.n, spec.size)) for spec in form.private]
    for term in terms(form):
        on_x, on_d = form.reach(term.atom)
        if not on_x or not on_d:
            continue
        parts = bilinear(form, term)
        if parts is None:
            inside = ", ".join(f"'{form.private[k].name}'" for k in sorted(on_d))
            raise PrivacyError(
                f"No sensitivity can be derived for agent '{owner}': private {inside} and "
                f"variables meet in the atom '{term.atom.rule.name}', whose gradient is not an "
                "affine function of the data with a constant Jacobian, so the effect of one "
                "change is not bounded by this certificate. Covered are sum_squares, square, "
                "quad_form and products of affine expressions; write for example "
                "cp.sum_squares(A @ x - data) or data @ x (and cp.sum_squares(u) for "
                "cp.norm(u) ** 2)."
            )
        names.append(parts.name)
        for k in sorted(on_d):
            jacobians[k] = sp.csr_array(jacobians[k] + cross(form, parts, k))
    kept = tuple(_without_zeros(J) for J in jacobians)
    return Sensitivity(form.private, kept, tuple(dict.fromkeys(names)))


def ball_norm(J: sp.csr_array, norm: str | float, p: int) -> Bound:
    """The largest ``||J delta||_p`` over the unit ball of `norm`.

    One entry and l1: the largest column norm (the ball's corners). l2 with p = 2: the largest
    singular value. The other combinations are sign problems, NP-hard in general: they are solved
    exactly where the signs of J can be aligned or a connected block of J has few signs, else
    bounded from above.
    """
    J = _without_zeros(sp.csr_array(J))
    if J.nnz == 0:
        return Bound(0.0, True)
    # Squares stay inside floating point if the largest entry is one.
    peak = float(np.max(np.abs(J.data)))
    if not math.isfinite(peak):
        raise PrivacyError(
            "The derivative of a gradient with respect to private data is not finite, so it bounds "
            "nothing. Rescale the model's constants."
        )
    unit = _unit_ball_norm(sp.csr_array(J / peak), norm, p)
    return Bound(peak * unit.value, unit.exact)


def _unit_ball_norm(J: sp.csr_array, norm: str | float, p: int) -> Bound:
    if norm in ("entry", 1):
        powered = np.abs(J) if p == 1 else J.power(2)
        largest = float(powered.sum(axis=0).max())
        return Bound(largest if p == 1 else math.sqrt(largest), True)
    blocks = _blocks(J)
    if norm == 2 and p == 2:
        return Bound(max(float(np.linalg.norm(block, 2)) for block in blocks), True)
    if norm == 2:  # max over ||delta||_2 <= 1 of ||J delta||_1 = max over signs s of ||J's||_2
        found = [_inf_to_2(block.T) for block in blocks]
    elif p == 2:
        found = [_inf_to_2(block) for block in blocks]
    else:
        found = [_inf_to_1(block) for block in blocks]
    values = [f.value for f in found]
    total = math.fsum(values) if (norm, p) == (math.inf, 1) else math.hypot(*values)
    return Bound(total, all(f.exact for f in found))


def _blocks(J: sp.csr_array) -> list[Array]:
    """Dense blocks of the connected components of the bipartite graph of J."""
    m, n = J.shape
    graph = sp.block_array([[sp.csr_array((m, m)), J], [J.T, sp.csr_array((n, n))]])
    _, label = connected_components(graph != 0, directed=False)
    blocks = []
    for c in np.unique(label):
        rows, columns = np.flatnonzero(label[:m] == c), np.flatnonzero(label[m:] == c)
        if rows.size and columns.size:
            blocks.append(J[rows][:, columns].toarray())
    return blocks


def _aligned(J: Array) -> bool:
    """Whether signs of rows and columns can be flipped so that J becomes nonnegative."""
    rows = np.zeros(J.shape[0])
    columns = np.zeros(J.shape[1])
    rows[0] = 1.0
    queue: list[tuple[str, int]] = [("row", 0)]
    while queue:
        side, i = queue.pop()
        line, known = (J[i], columns) if side == "row" else (J[:, i], rows)
        sign = rows[i] if side == "row" else columns[i]
        for j in np.flatnonzero(line):
            wanted = np.sign(line[j]) * sign
            if known[j] == 0:
                known[j] = wanted
                queue.append(("column" if side == "row" else "row", int(j)))
            elif known[j] != wanted:
                return False
    return True


def _signs(count: int) -> Array:
    # The first sign is fixed: flipping all signs changes no norm.
    rest = np.array(list(itertools.product((1.0, -1.0), repeat=count - 1))).reshape(-1, count - 1)
    return np.hstack([np.ones((rest.shape[0], 1)), rest])


def _inf_to_2(J: Array) -> Bound:
    """Largest ``||J s||_2`` over s with entries in [-1, 1]."""
    if _aligned(J):
        return Bound(float(np.linalg.norm(np.abs(J).sum(axis=1))), True)
    if J.shape[1] <= _ENUMERATE:
        return Bound(float(np.linalg.norm(_signs(J.shape[1]) @ J.T, axis=1).max()), True)
    spectral = math.sqrt(J.shape[1]) * float(np.linalg.norm(J, 2))
    return Bound(min(float(np.linalg.norm(np.abs(J).sum(axis=1))), spectral), False)


def _inf_to_1(J: Array) -> Bound:
    """Largest ``||J s||_1`` over s with entries in [-1, 1]."""
    if _aligned(J):
        return Bound(float(np.abs(J).sum()), True)
    short = J if J.shape[1] <= J.shape[0] else J.T  # ||J s||_1 = max over t of t'J s
    if short.shape[1] <= _ENUMERATE:
        return Bound(float(np.abs(_signs(short.shape[1]) @ short.T).sum(axis=1).max()), True)
    spectral = math.sqrt(J.size) * float(np.linalg.norm(J, 2))
    return Bound(min(float(np.abs(J).sum()), spectral), False)


def _without_zeros(J: sp.csr_array) -> sp.csr_array:
    J = J.copy()
    J.sum_duplicates()
    J.eliminate_zeros()
    return J


def _norm_in_words(spec: PrivateSpec) -> str:
    if spec.adjacency.norm in ("entry", 1):
        return "its largest column norm times the radius"
    if spec.adjacency.norm == 2:
        return "its norm over the l2 ball times the radius"
    return "its norm over the box of worst signs times the radius"
