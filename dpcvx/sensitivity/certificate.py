r"""Certified gradient sensitivity, derived from the normal form.

Terms whose gradient is affine in the private data, with a Jacobian that depends on neither the data
nor the point,

.. math:: \nabla f(x; d) = h(x) + \sum_k J_k d_k ,

are bounded exactly: for neighbours that differ in private parameter k the change is
:math:`J_k (d_k - d_k')`, and the sensitivity is a norm of :math:`J_k` over the adjacency ball.
Other terms are covered where the data are records: see `dpcvx.sensitivity.records`. Whatever is not
covered is refused with the atom that stands in the way, unless the agent clips the contributions of
its records or asserts a bound of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist

from .._arguments import show
from ..errors import PrivacyError
from ..model.curvature import Term, bilinear, cross, terms
from ..model.normal_form import Clip, NormalForm
from ..model.private import Asserted, PrivateSpec, Rows, Within
from ..solvers.projector import Extent
from .private_weights import LARGEST, Weights, weighs, weights
from .records import Contributions, Unbounded

Array = NDArray[np.float64]

# Sign patterns are enumerated up to this many free signs per connected block of the Jacobian.
_ENUMERATE = 14
# Differences of all pairs of columns are tried up to this many.
_CORNERS = 300
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
        Of the terms with a constant Jacobian.
    terms : tuple of str
        Atoms of those terms, for the derivation.
    weights : Weights or None
        Of the terms that are linear in the data, with a Jacobian that depends on the point.
    records : tuple of Contributions
        Of the other terms, one per kind of record.
    extent : Extent
        Where the points lie: the agent's set, as far as closed forms know.
    clips : tuple of Clip
        How the contributions of `records` are scaled down, one each; empty if they are not.
    asserted : Asserted or None
        Replaces everything that was derived.
    independent : tuple of str
        Private objects that no term of the objective holds together with a variable: the gradient
        does not depend on them.
    """

    private: tuple[PrivateSpec, ...]
    jacobians: tuple[sp.csr_array, ...]
    terms: tuple[str, ...]
    weights: Weights | None
    records: tuple[Contributions, ...]
    extent: Extent
    clips: tuple[Clip, ...] = ()
    asserted: Asserted | None = None
    independent: tuple[str, ...] = ()

    @property
    def constant(self) -> bool:
        """Whether the gradient is affine in the data with a constant Jacobian."""
        return not self.records and self.weights is None and self.asserted is None

    @property
    def splits(self) -> bool:
        """Whether the private part of the gradient leaves by itself."""
        return self.constant and any(J.nnz for J in self.jacobians)

    @property
    def obstacle(self) -> str:
        """What keeps the gradient from being affine in the data with a constant Jacobian."""
        if self.asserted is not None:
            return "its sensitivity was asserted instead of derived"
        met: dict[str, None] = {}
        members: set[int] = set()
        if self.weights is not None:
            met |= dict.fromkeys(self.weights.names)
            members |= self.weights.members
        for task in self.records:
            met |= dict.fromkeys(term.atom.rule.name for term in task.terms)
            members |= set(task.members)
        names = ", ".join(f"'{self.private[k].name}'" for k in sorted(members))
        atoms = ", ".join(f"'{name}'" for name in met)
        return f"private {names} and variables meet in {atoms}"

    def clips_keep_convexity(self, form: NormalForm) -> bool:
        """Whether clipped gradients belong to convex functions, no less smooth.

        Those of a convex loss of one score per record do: the slope in the score is monotone, and
        stays so when it is cut off. Those of several scores may not.
        """

        def one_score(clip: Clip) -> bool:
            shape = form.atoms[clip.atom].shape
            return len(shape) < 2 or shape[0 if clip.turned else 1] == 1

        return all(one_score(clip) for clip in self.clips)

    @property
    def varies(self) -> bool:
        """Whether the bound depends on where the points lie."""
        moving = self.weights is not None or (bool(self.records) and not self.clips)
        return moving and self.asserted is None

    @property
    def certificate(self) -> Literal["derived", "asserted"]:
        """Where the bound comes from."""
        return "derived" if self.asserted is None else "asserted"

    def bound(self, p: int, scale: Array | None = None, x: Array | None = None) -> Bound:
        """Bound of ``||scale * (g - g')||_p`` over neighbours.

        Parameters
        ----------
        p : {1, 2}
        scale : ndarray, shape (n,), optional
            Weights of the components; ones if omitted.
        x : ndarray, shape (n,), optional
            The point of the gradient; all points of the agent's set if omitted. The bound is
            infinite if neither limits the contribution of a record.
        """
        if p not in (1, 2):
            raise PrivacyError(f"p={show(p)} is not a norm of a mechanism; write 1 or 2.")
        if scale is None and x is None:
            return self._l1 if p == 1 else self._l2
        return self._bound(p, scale, x)

    def near(self, p: int, x: Array, scale: Array | None = None) -> float:
        """The bound over the agent's set; at the point x, if x left it or that is infinite."""
        if not self.varies or self.extent.contains(x):
            value = self.bound(p).value
            if scale is not None and np.ptp(scale) == 0:
                value *= float(scale[0])
            elif scale is not None and value < math.inf:
                value = self.bound(p, scale).value
            if value < math.inf:
                return value
        return self.bound(p, scale, x).value

    @cached_property
    def _l1(self) -> Bound:
        return self._bound(1, None, None)

    @cached_property
    def _l2(self) -> Bound:
        return self._bound(2, None, None)

    def _bound(self, p: int, scale: Array | None, x: Array | None) -> Bound:
        n = self.extent.lower.size
        if self.asserted is not None:
            return Bound(self.asserted.bound(p, np.ones(n) if scale is None else scale), False)
        if self.weights is not None and x is None:
            return Bound(math.inf, False)
        found = self._over_changes(p, self.jacobians_at(x, scale), scale, x)
        if p == 1 and scale is not None:
            # Few entries that count cannot change by more than these allow.
            other = math.sqrt(np.count_nonzero(scale)) * self._bound(2, scale, x).value
            found = min(found, Bound(other * _UP, False), key=lambda bound: bound.value)
        return found

    def _over_changes(
        self, p: int, jacobians: Sequence[sp.csr_array], scale: Array | None, x: Array | None
    ) -> Bound:
        """Over all single changes, given what the constant part does to each component."""
        worst = Bound(0.0, True)
        for spec, J in zip(self.private, jacobians, strict=True):
            if not np.isfinite(J.data).all():
                return Bound(math.inf, False)
            if isinstance(spec.adjacency, Within):
                found = ball_norm(J, spec.adjacency.norm, p)
                if found.value * spec.adjacency.radius > worst.value:
                    worst = Bound(found.value * spec.adjacency.radius, found.exact)
        for share in self._record_shares(p, jacobians, scale, x).values():
            if not share.value <= worst.value:
                worst = share
        return Bound(worst.value * _UP, worst.exact)

    def mapped(self, K: Array, p: int) -> float:
        """Bound of ``||K (g - g')||_p`` over neighbours, at every point.

        Parameters
        ----------
        K : ndarray, shape (n, n), for gradients with a constant Jacobian, or (1, 1)
            A number stands for a multiple of the identity.
        p : {1, 2}
        """
        if K.size == 1:
            return abs(K.item()) * self.bound(p).value
        assert self.constant
        images = [sp.csr_array(K @ J.toarray()) for J in self.jacobians]
        return self._over_changes(p, images, None, None).value

    @property
    def changes(self) -> float:
        """So many changes lead from any data to zeros; infinite if no number does."""
        if self.asserted is not None or self.clips:  # what is clipped at zeros is not known here
            return math.inf
        counts: dict[str, float] = {}
        for spec in self.private:
            if not isinstance(spec.adjacency, Rows):
                return math.inf
            counts[spec.adjacency.label] = spec.shape[0]
        return sum(counts.values())

    def slope(self, data: Sequence[Array]) -> Array:
        """``J d``, for gradients with a constant Jacobian."""
        total = np.zeros(self.extent.lower.size)
        for J, d in zip(self.jacobians, data, strict=True):
            total += J @ d
        return total

    def jacobians_at(self, x: Array | None, scale: Array | None = None) -> list[sp.csr_array]:
        """The constant Jacobians plus those of weights at x, with weighted rows."""
        jacobians = list(self.jacobians)
        if self.weights is not None and x is not None:
            pairs = zip(jacobians, self.weights.jacobians(x), strict=True)
            jacobians = [sp.csr_array(J + K) for J, K in pairs]
        if scale is None:
            return jacobians
        return [_with_rows(J, scale) for J in jacobians]

    def _record_shares(
        self, p: int, jacobians: Sequence[sp.csr_array], scale: Array | None, x: Array | None
    ) -> dict[str, Bound]:
        """Per kind of record, the bound of one record's change."""
        total: dict[str, Array] = {}
        parts: dict[str, int] = {}
        for spec, J in zip(self.private, jacobians, strict=True):
            if isinstance(spec.adjacency, Rows) and J.nnz:
                label = spec.adjacency.label
                share = row_norms(J, spec, p)
                total[label] = total.get(label, 0.0) + share
                parts[label] = parts.get(label, 0) + 1
        exact = dict.fromkeys(total, True)
        for spec in self.private:  # a sign keeps a row from its opposite
            if isinstance(spec.adjacency, Rows) and spec.sign and spec.size > spec.shape[0]:
                exact[spec.adjacency.label] = False
        for task in self.records:
            adjacency = self.private[task.members[0]].adjacency
            assert isinstance(adjacency, Rows)
            label = adjacency.label
            total[label] = total.get(label, 0.0) + self._contribution(task, adjacency, p, scale, x)
            exact[label] = False
        return {
            label: Bound(_largest(value), exact[label] and parts.get(label, 0) <= 1)
            for label, value in total.items()
        }

    def _contribution(
        self, task: Contributions, adjacency: Rows, p: int, scale: Array | None, x: Array | None
    ) -> Array:
        if self.clips:
            peak = 1.0 if scale is None else float(scale.max())
            spread = 1.0 if p == 2 else math.sqrt(self.extent.lower.size)
            clip = self.clips[self.records.index(task)]
            other = clip.bound if adjacency.change == "replace" else clip.absent
            return np.full(task.count, (clip.bound + other) * peak * spread)
        extent = self.extent if x is None else Extent.at(x)
        try:
            if adjacency.change == "replace":
                return task.replaced(p, extent, scale)
            return task.bound(p, extent, scale) + task.bound(p, extent, scale, absent=True)
        except Unbounded:  # at a point outside the set; over the set it was tried before
            return np.full(task.count, math.inf)

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
        if self.asserted is not None:
            return "asserted by the user, not derived: the guarantee is as good as that claim"
        parts = []
        if self.terms:
            parts.append(
                f"private data and variables meet in {', '.join(self.terms)} of affine arguments, "
                "so grad f(x; d) = h(x) + J d with J free of data and of x, and the gradients of "
                "neighbours differ by J (d - d')"
            )
        if self.weights is not None:
            parts.append(
                f"private data weigh public functions of x in {', '.join(self.weights.names)}, so "
                "their part of the gradient is J(x) d, and that of neighbours differs by "
                "J(x) (d - d'), with J at the point of each step"
            )
        for task in self.records:
            adjacency = self.private[task.members[0]].adjacency
            assert isinstance(adjacency, Rows)
            names = ", ".join(dict.fromkeys(t.atom.rule.name for t in task.terms))
            times = "twice" if adjacency.change == "replace" else "once"
            how = (
                "its largest contribution to the gradient, which is bounded by intervals through "
                "the objective"
                if not self.clips
                else f"{self.clips[0].bound:.6g}, the l2 norm to which its contribution is clipped"
            )
            parts.append(
                f"each {adjacency.label} enters {names} by itself, so one change moves the "
                f"gradient by at most {times} {how}"
            )
        if self.independent:
            names = " or ".join(f"'{name}'" for name in self.independent)
            parts.append(
                f"the gradient does not depend on {names}: no term of the objective holds it "
                "together with a variable"
            )
        return "; ".join(parts) or "the objective holds nothing private"

    @property
    def figures(self) -> str:
        """The bounds for each private object, in words."""
        if self.asserted is not None:
            return f"claimed: {self.asserted}"
        lines = []
        for spec, J in zip(self.private, self.jacobians, strict=True):
            if J.nnz == 0:
                continue
            words = f"'{spec.name}', {spec.adjacency}: J is {J.shape[0]} x {J.shape[1]} with "
            if isinstance(spec.adjacency, Rows):
                l1, l2 = (float(row_norms(J, spec, p).max()) for p in (1, 2))
                lines.append(
                    f"{words}{J.nnz} non-zeros, its norm over the change of one row is at most "
                    f"{l1:.6g} in l1 and {l2:.6g} in l2"
                )
                continue
            l1, l2 = (ball_norm(J, spec.adjacency.norm, p) for p in (1, 2))
            r = spec.adjacency.radius
            lines.append(
                f"{words}{J.nnz} non-zeros, {_norm_in_words(spec.adjacency)} is "
                f"{l1.value * r:.6g} in l1"
                f"{'' if l1.exact else ' (upper bound)'} and {l2.value * r:.6g} in l2"
                f"{'' if l2.exact else ' (upper bound)'}"
            )
        for task in self.records:
            names = ", ".join(f"'{self.private[k].name}'" for k in task.members)
            adjacency = self.private[task.members[0]].adjacency
            assert isinstance(adjacency, Rows)
            values = [
                float(self._contribution(task, adjacency, p, None, None).max()) for p in (1, 2)
            ]
            where = "over the agent's set" if np.isfinite(values).all() else "over the whole set"
            lines.append(
                f"{names}, {adjacency}: {task.count} records, at most {values[0]:.6g} in l1 and "
                f"{values[1]:.6g} in l2 {where}"
            )
        return "; ".join(lines)

    @property
    def derivation(self) -> str:
        """Argument and figures."""
        return f"{self.argument}. {self.figures}."


def derive(
    form: NormalForm,
    owner: str,
    extent: Callable[[], Extent],
    *,
    clip: float | None = None,
    asserted: Asserted | None = None,
) -> Sensitivity:
    """Certify the gradient sensitivity of an agent's objective.

    Parameters
    ----------
    form : NormalForm
    owner : str
        Name of the agent, for messages.
    extent : callable
        Returns the extent of its set; called if it is needed.
    clip : float, optional
        Contributions of single records are clipped to this l2 norm.
    asserted : Asserted, optional
        Taken instead of a derivation.

    Raises
    ------
    PrivacyError
        If no bound can be derived.
    """
    _check_records(form, owner)
    names: list[str] = []
    jacobians = [sp.csr_array((form.n, spec.size)) for spec in form.private]
    tasks: dict[str, list[tuple[Term, frozenset[int]]]] = {}
    weighing: list[tuple[Term, frozenset[int]]] = []
    met: set[int] = set()  # private parameters that stand next to variables
    affine: dict[int, list[str]] = {}  # and of those, the ones with a constant Jacobian
    for term in terms(form) if asserted is None else ():
        on_x, on_d = form.reach(term.atom)
        if not on_x or not on_d:
            continue
        met |= on_d
        parts = bilinear(form, term)
        if parts is None and weighs(form, term):
            weighing.append((term, on_d))
            continue
        if parts is None:
            label = _record_label(form, term, on_d, owner)
            tasks.setdefault(label, []).append((term, on_d))
            continue
        names.append(parts.name)
        for k in sorted(on_d):
            affine.setdefault(k, []).append(parts.name)
            jacobians[k] = sp.csr_array(jacobians[k] + cross(form, parts, k))
    kept = tuple(_without_zeros(J) for J in jacobians)
    for k, atoms in affine.items():
        if kept[k].nnz == 0:
            raise _vanished(owner, [form.private[k].name], atoms)
    records = tuple(_contributions(form, label, found) for label, found in tasks.items())
    if clip is not None and asserted is not None:
        raise PrivacyError(
            f"Agent '{owner}' has both clip= and sensitivity=: contributions that are clipped have "
            "a proved bound, which an asserted one would replace. Keep one of the two."
        )
    if clip is not None and not records:
        raise PrivacyError(
            f"Agent '{owner}' has clip={clip:g}, but no losses of records whose contributions "
            "could be clipped: its gradient is bounded without. Drop clip=."
        )
    free = np.full(form.n, np.inf)
    where = extent() if records and clip is None else Extent(-free, free)
    try:
        clips = () if clip is None else tuple(task.clipping(clip) for task in records)
        for task in records if clip is None else ():
            if not task.bound(2, where).any():
                members = {k for term in task.terms for k in form.reach(term.atom)[1]}
                raise _vanished(
                    owner,
                    [form.private[k].name for k in sorted(members)],
                    [term.atom.rule.name for term in task.terms],
                )
            task.bound(2, where, absent=True)
    except Unbounded as reason:
        found_in = ", ".join(f"'{spec.name}'" for spec in form.private)
        raise PrivacyError(
            f"No sensitivity can be derived for agent '{owner}': records of {found_in} meet "
            f"variables in the atom {reason.atom}, which {reason.why}. Covered are sums of losses "
            "of each record's scores X @ w (logistic, log_sum_exp, pos, huber, abs, square and "
            "other convex or concave functions of one argument), such as cp.sum_squares(X @ w - y) "
            f"or cp.norm1(X @ w - y). {_WAYS_OUT if clip is None else _ASSERT}"
        ) from None
    weighed = weights(form, weighing) if weighing else None
    if weighed is not None:
        _require_few(weighed, owner)
    return Sensitivity(
        form.private,
        kept,
        tuple(dict.fromkeys(names)),
        weighed,
        records,
        where,
        clips,
        asserted,
        tuple(
            spec.name for k, spec in enumerate(form.private) if k not in met and asserted is None
        ),
    )


def _vanished(owner: str, names: Sequence[str], atoms: Sequence[str]) -> PrivacyError:
    """Data that stand next to variables and seem not to matter: a model's mistake, or ours."""
    what = ", ".join(f"'{name}'" for name in names)
    where = ", ".join(f"'{atom}'" for atom in dict.fromkeys(atoms))
    return PrivacyError(
        f"Private {what} of agent '{owner}' and variables meet in {where}, yet the "
        "derived sensitivity is 0, which would release the gradient without noise. Leave the data "
        "out of terms in which they cancel, are multiplied by 0, or can never count on the agent's "
        "set, and give parts that hold data alone a term of their own, such as "
        "cp.sum_squares(x) + cp.sum_squares(data). If the data do count, this is an error of dpcvx."
    )


def _require_few(found: Weights, owner: str) -> None:
    count = sum(found.form.private[k].size for k in found.members)
    if count > LARGEST:
        raise PrivacyError(
            f"Agent '{owner}' has {count} private weights, and the Jacobian of its gradient would "
            f"have to be computed for each of them in every step; at most {LARGEST} are tried. "
            f"Aggregate the weights. {_WAYS_OUT}"
        )


def _record_label(form: NormalForm, term: Term, on_d: frozenset[int], owner: str) -> str:
    labels = {
        spec.adjacency.label if isinstance(spec.adjacency, Rows) else None
        for spec in (form.private[k] for k in on_d)
    }
    label = labels.pop()
    inside = ", ".join(f"'{form.private[k].name}'" for k in sorted(on_d))
    if labels:
        raise PrivacyError(
            f"No sensitivity can be derived for agent '{owner}': private {inside} and variables "
            f"meet in the atom '{term.atom.rule.name}', but are not declared as parts of the same "
            "records, so that several of them could change at once in a loss that allows for one. "
            "Declare each with dp.Rows and the same records= label, and features and target of one "
            "record in rows of one number; or assert a bound that you can prove, "
            "dp.Agent(..., sensitivity=dp.Asserted(l2=...))."
        )
    if label is None:
        raise PrivacyError(
            f"No sensitivity can be derived for agent '{owner}': private {inside} and "
            f"variables meet in the atom '{term.atom.rule.name}', whose gradient is not an "
            "affine function of the data with a constant Jacobian, so the effect of one "
            "change is not bounded by this certificate. Covered are sum_squares, square, "
            "quad_form and products of affine expressions; write for example "
            "cp.sum_squares(A @ x - data) or data @ x (and cp.sum_squares(u) for "
            "cp.norm(u) ** 2). For losses of records, declare them as such: "
            f"dp.Private(X, adjacency=dp.Rows(1.0)). {_WAYS_OUT}"
        )
    return label


_WAYS_OUT = (
    "Otherwise clip the contribution of each record, dp.Agent(..., clip=1.0), or assert a bound "
    "that you can prove, dp.Agent(..., sensitivity=dp.Asserted(l2=...))."
)
_ASSERT = (
    "What cannot be told apart by records cannot be clipped either: drop clip=, or assert a bound "
    "that you can prove, dp.Agent(..., sensitivity=dp.Asserted(l2=...)) alone."
)


def _contributions(
    form: NormalForm, label: str, found: list[tuple[Term, frozenset[int]]]
) -> Contributions:
    members = tuple(
        k
        for k, spec in enumerate(form.private)
        if isinstance(spec.adjacency, Rows) and spec.adjacency.label == label
    )
    return Contributions(form, tuple(term for term, _ in found), members)


def _check_records(form: NormalForm, owner: str) -> None:
    """Refuse parts of the same records that disagree."""
    known: dict[str, PrivateSpec] = {}
    for spec in form.private:
        if not isinstance(spec.adjacency, Rows):
            continue
        first = known.setdefault(spec.adjacency.label, spec)
        assert isinstance(first.adjacency, Rows)
        if first.shape[0] != spec.shape[0] or first.adjacency.change != spec.adjacency.change:
            raise PrivacyError(
                f"Private '{first.name}' and '{spec.name}' of agent '{owner}' hold parts of the "
                f"same records ('{spec.adjacency.label}'), but differ in their number of rows or "
                "in change=. Make them agree, or give them different records= labels if they "
                "describe different things."
            )


def row_norms(J: sp.csr_array, spec: PrivateSpec, p: int) -> Array:
    """Per row of the data, the largest ``||J delta||_p`` over changes of that row."""
    assert isinstance(spec.adjacency, Rows)
    m = spec.shape[0]
    if len(spec.shape) == 1 or spec.shape[1] == 1:
        # A number of known sign cannot change by more than its bound.
        reach = spec.adjacency.bound if spec.half else spec.adjacency.radius
        peak = float(np.abs(J.data).max(initial=0.0)) or 1.0
        unit = sp.csr_array(J / peak)
        columns = np.asarray((abs(unit) if p == 1 else unit.power(2)).sum(axis=0)).ravel()
        return reach * peak * (columns if p == 1 else np.sqrt(columns))
    by_column = sp.csc_array(J)
    out = np.zeros(m)
    for i in range(m):
        own = by_column[:, np.arange(i, spec.size, m)]
        if own.nnz:
            out[i] = _row_norm(sp.csr_array(own), spec, p)
    return out


def _row_norm(J: sp.csr_array, spec: PrivateSpec, p: int) -> float:
    r"""The largest ``||J (r' - r)||_p`` over two rows.

    For rows of one sign: entries differ by at most the bound in the largest-entry norm. In l2,
    :math:`\|r' - r\|^2 \le \|r'\|^2 + \|r\|^2`, as the inner product is at least 0. In l1, the
    largest value is attained where both are corners of their set, 0 or one entry at the bound.
    """
    adjacency = spec.adjacency
    assert isinstance(adjacency, Rows)
    if spec.half and adjacency.norm == 1 and J.shape[1] <= _CORNERS:
        # Squares stay inside floating point if the largest entry is one.
        peak = float(np.abs(J.data).max())
        corners = np.vstack([np.zeros(J.shape[0]), J.T.toarray() / peak])
        apart = pdist(corners, ("cityblock", "euclidean")[p - 1])
        return adjacency.bound * peak * float(apart.max())
    reach = adjacency.radius
    if spec.half and adjacency.norm != 1:
        reach = adjacency.bound * (1.0 if adjacency.norm == math.inf else math.sqrt(2))
    return reach * ball_norm(J, adjacency.norm, p).value


def _with_rows(J: sp.csr_array, scale: Array) -> sp.csr_array:
    """J with its rows multiplied by the scale, faster than by a product of matrices."""
    weights = np.repeat(scale, np.diff(J.indptr))
    with np.errstate(all="ignore"):  # infinite slopes are judged later
        values = np.where(weights == 0, 0.0, J.data * weights)
    found = sp.csr_array((values, J.indices, J.indptr), shape=J.shape)
    return found if scale.all() else _without_zeros(found)


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
        powered = np.abs(J.data) if p == 1 else J.data**2
        largest = float(np.bincount(J.indices, powered).max())
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


def _largest(values: Array) -> float:
    """The maximum, infinite if one of the values is no number."""
    return math.inf if np.isnan(values).any() else float(np.max(values))


def _norm_in_words(adjacency: Within) -> str:
    if adjacency.norm in ("entry", 1):
        return "its largest column norm times the radius"
    if adjacency.norm == 2:
        return "its norm over the l2 ball times the radius"
    return "its norm over the box of worst signs times the radius"
