"""Sensitivity of one agent's gradient: how far neighboring data move it at most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._arguments import show
from ..errors import PrivacyError, package_fault
from ..model.adjacency import Rows, Within
from ..model.matrices import Sparse, without_zeros
from ..model.normal_form import Clip, NormalForm
from ..model.spec import Asserted, PrivateSpec
from ..solvers.projector import Extent
from .intervals import Unbounded
from .norms import Bound, ball_norm, meeting, of_person, row_norms
from .private_weights import Weights
from .records import Contributions, largest_of

Array = NDArray[np.float64]

# Floating-point results are rounded up by this factor before they are called bounds.
_UP = 1 + 1e-9
# Number of balls around 0 per doubling of the radius.
_RUNGS = 4
# Least bound over a ball, relative to the bound over the set: near 0, the effect of one change may
# be smaller than the rounding of public terms that it is added to.
_LEAST = 2.0**-10
# Least positive radius: squares of it, and of rows times it, do not underflow, so kinks count.
_NARROWEST = 1e-60
# Largest radius; points farther out have no ball.
_WIDEST = 2.0**1000
# All positive radii, in ascending order.
_LADDER = np.array(
    [
        2.0 ** (k / _RUNGS)
        for k in range(
            math.ceil(_RUNGS * math.log2(_NARROWEST)), int(_RUNGS * math.log2(_WIDEST)) + 1
        )
    ]
)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Sensitivity of one agent's gradient: a bound of its change between neighboring data.

    Attributes
    ----------
    private : tuple of PrivateSpec
    jacobians : tuple of csr_array or csc_array, each of shape (n, size of the private parameter)
        Jacobians of the terms with a constant Jacobian.
    terms : tuple of str
        Atoms of these terms, as users write them.
    weights : Weights or None
        Terms with private weights, which are linear in the data with a Jacobian that depends on
        the point.
    records : tuple of Contributions
        Contributions of all other terms, one object per label of records.
    extent : Extent
        Bounds, balls and sums that all points satisfy, from the agent's feasible set.
    clips : tuple of Clip
        Clips of the contributions of `records`, one each; empty if they are not clipped.
    asserted : Asserted or None
        User-supplied bound that replaces everything derived.
    independent : tuple of str
        Private objects that occur in no term together with a variable, so the gradient does not
        depend on them.
    """

    private: tuple[PrivateSpec, ...]
    jacobians: tuple[Sparse, ...]
    terms: tuple[str, ...]
    weights: Weights | None
    records: tuple[Contributions, ...]
    extent: Extent
    clips: tuple[Clip, ...] = ()
    asserted: Asserted | None = None
    independent: tuple[str, ...] = ()

    @cached_property
    def jacobian(self) -> sp.csr_array:
        """Jacobian of all linear terms, with the columns of one private object after the other."""
        return without_zeros(sp.hstack(self.jacobians))

    @property
    def constant(self) -> bool:
        """Return whether the gradient is affine in the data with a constant Jacobian."""
        return not self.records and self.weights is None and self.asserted is None

    @property
    def linear(self) -> bool:
        """Return whether the gradient is affine in the data, perhaps with a varying Jacobian."""
        return not self.records and self.asserted is None

    @property
    def splits(self) -> bool:
        """Return whether the gradient's private part J d is released without its public part."""
        return self.constant and any(J.nnz for J in self.jacobians)

    @property
    def obstacle(self) -> str:
        """Return why the gradient is not affine in the data with a constant Jacobian."""
        if self.asserted is not None:
            return "its sensitivity was asserted instead of derived"
        met: dict[str, None] = {}
        members: set[int] = set()
        if self.weights is not None:
            met |= dict.fromkeys(self.weights.names)
            members |= self.weights.members
        for task in self.records:
            met |= dict.fromkeys(task.names)
            members |= set(task.members)
        names = ", ".join(f"'{self.private[k].name}'" for k in sorted(members))
        return f"private {names} and variables meet in {', '.join(met)}"

    @property
    def clips_alone(self) -> bool:
        """Return whether the gradient consists of clipped contributions and public terms only."""
        others = self.weights is not None or any(J.nnz for J in self.jacobians)
        return bool(self.clips) and self.asserted is None and not others

    @property
    def change_by_clips(self) -> float:
        """Bound of the gradient's l2 change by one change of the data, from the clips only.

        A record's contribution has at most the norm of its clip, whatever the loss is, and so has
        the contribution of a record that replaces it.
        """
        pairs = zip(self.records, self.clips, strict=bool(self.clips))
        return _UP * max((self._of_clip(task, clip) for task, clip in pairs), default=0.0)

    def _of_clip(self, task: Contributions, clip: Clip) -> float:
        adjacency = self.adjacency_of(task)
        other = clip.bound if adjacency.relation == "replace_one" else clip.absent
        return of_person(np.array([clip.bound + other]), adjacency, task.count)

    @property
    def moved_records(self) -> int:
        """Largest number of records in the losses of `records` that differ between neighbors."""
        moved = (self.adjacency_of(task).moved_rows(task.count) for task in self.records)
        return max(moved, default=0)

    def clips_keep_convexity(self, form: NormalForm) -> bool:
        """Return whether clipped gradients are gradients of a convex, equally smooth function.

        They are for a convex loss of one score per record, a number such as ``x_i @ w`` that is
        affine in the variables. The loss's derivative in the score is monotone, and clipping keeps
        it monotone. For losses of several scores, they need not be.
        """
        return all(clip.scores(form) == 1 for clip in self.clips)

    def renamed(self, form: NormalForm) -> Sensitivity:
        """Return the sensitivity for data with other names; all bounds are shared.

        Parameters
        ----------
        form : NormalForm
            Normal form of the agent for the new names; see `NormalForm.renamed`.
        """
        names = {a.name: b.name for a, b in zip(self.private, form.private, strict=True)}
        independent = tuple(names[name] for name in self.independent)
        twin = replace(self, private=form.private, independent=independent)
        vars(twin)["bounds"] = self.bounds
        return twin

    @property
    def varies(self) -> bool:
        """Return whether the sensitivity depends on the point of the gradient."""
        moving = self.weights is not None or (bool(self.records) and not self.clips)
        return moving and self.asserted is None

    @property
    def certificate(self) -> Literal["derived", "asserted"]:
        """Origin of the sensitivity: derived, or asserted by the user."""
        return "derived" if self.asserted is None else "asserted"

    def bound(self, p: int, scale: Array | None = None, x: Array | None = None) -> Bound:
        """Return a bound of ``||scale * (g - g')||_p`` over gradients g, g' of neighboring data.

        Parameters
        ----------
        p : {1, 2}
        scale : ndarray, shape (n,), optional
            Weights of the components; ones if omitted.
        x : ndarray, shape (n,), optional
            The point of the gradient; all points of the agent's set if omitted. The bound is
            infinite if neither the point nor the set limits the contribution of a record.
        """
        if p not in (1, 2):
            raise PrivacyError(f"p={show(p)} is not a norm of a mechanism; write 1 or 2.")
        if scale is None and x is None:
            if p not in self.bounds:
                self.bounds[p] = self._bound(p, None, None)
            return self.bounds[p]
        return self._bound(p, scale, x)

    def near(self, p: int, x: Array, scale: Array | None = None) -> float:
        """Return the lowest known sensitivity at the public point x; see `bound` for parameters.

        It is the lower of two bounds. The first holds over the agent's feasible set, if x is in it.
        The second is for losses of records, and holds over a ball around 0 that contains x, because
        most losses are steeper farther from 0. If both are infinite, the bound is computed at x
        itself.
        """
        equal, value = scale is None or np.ptp(scale) == 0, math.inf
        inside = (self.varies or self.flattens) and self.extent.contains(x)
        if not self.varies or inside:
            value = self.bound(p).value
            if scale is not None and not equal and value < math.inf:
                value = self.bound(p, scale).value
        if equal:
            value = min(value, self._around(p, x, inside))
            value *= 1.0 if scale is None else float(scale[0])
        return value if value < math.inf else self.bound(p, scale, x).value

    def alike(self, p: int, points: Array) -> NDArray[np.intp]:
        """Return labels of points: points with equal labels have equal sensitivities.

        Parameters
        ----------
        p : {1, 2}
        points : ndarray, shape (count, n)

        Returns
        -------
        ndarray of int, shape (count,)
        """
        count = len(points)
        if self.bound(p).value == math.inf:
            return np.arange(count)
        radii = _rungs(points) if self.flattens else np.full(count, math.inf)
        places = np.where(self.extent.containing(points), radii, -1 - radii)
        return np.unique(places, return_inverse=True)[1]

    def within(self, p: int, radius: float) -> float:
        """Return the sensitivity over points of the agent's set with an l2 norm up to a radius.

        Parameters
        ----------
        p : {1, 2}
            Norm of the sensitivity.
        radius : float
        """
        if not self.flattens or not radius < math.inf:
            return self.bound(p).value
        return min(self.bound(p).value, self._over_ball(p, radius, True))

    @property
    def flattens(self) -> bool:
        """Return whether the sensitivity may be lower near 0: for nonlinear losses of records."""
        return bool(self.records) and self.weights is None and self.asserted is None

    def _around(self, p: int, x: Array, inside: bool) -> float:
        """Return the gradient's lp sensitivity over points in a ball around 0 that contains x.

        The ball's radius is the smallest number in `_LADDER` that is at least the l2 norm of x. If
        `inside` is true, only those points of the ball count that are in the agent's set.
        """
        radius = float(_rungs(x[np.newaxis])[0]) if self.flattens else math.inf
        if radius == math.inf:
            return math.inf
        inside_ball, over_all = self._over_ball(p, radius, inside), self.bound(p).value
        # A bound of 0 stays 0: data do not matter then, and the gradient is public.
        return (
            max(inside_ball, _LEAST * over_all)
            if 0 < inside_ball and over_all < math.inf
            else inside_ball
        )

    def _over_ball(self, p: int, radius: float, inside: bool) -> float:
        key = p, radius, inside
        if key not in self.bounds:
            self.bounds[key] = self._over_new_ball(*key)
        return self.bounds[key].value

    def _over_new_ball(self, p: int, radius: float, inside: bool) -> Bound:
        n = self.extent.lower.size
        ball = Extent(np.full(n, -radius), np.full(n, radius), ((np.arange(n), radius),))
        within = self.extent.meeting(ball) if inside else ball
        return self._over_changes(p, self.jacobians, None, within)

    @cached_property
    def bounds(self) -> dict[int | tuple[int, float, bool], Bound]:
        """Cache of computed sensitivities: over the feasible set, by norm, and over balls."""
        # A bound takes milliseconds, and runs need few balls. All bounds are public.
        return {}

    def _bound(self, p: int, scale: Array | None, x: Array | None) -> Bound:
        n = self.extent.lower.size
        if self.asserted is not None:
            return Bound(self.asserted.bound(p, np.ones(n) if scale is None else scale), False)
        if self.weights is not None and x is None:
            return Bound(math.inf, False)
        where = None if x is None else Extent.at(x)
        best = self._over_changes(p, self.jacobians_at(x, scale), scale, where)
        if p == 1 and scale is not None:
            # The l1 norm of k entries is at most sqrt(k) times their l2 norm.
            other = math.sqrt(np.count_nonzero(scale)) * self._bound(2, scale, x).value
            best = min(best, Bound(other * _UP, False), key=lambda bound: bound.value)
        return best

    def _over_changes(
        self,
        p: int,
        jacobians: Sequence[Sparse],
        scale: Array | None,
        where: Extent | None,
    ) -> Bound:
        """Return the sensitivity over all single changes of the data.

        `jacobians` are the Jacobians of all linear terms, one per private parameter, and `where` is
        a set that contains the point.
        """
        worst = Bound(0.0, True)
        for spec, J in zip(self.private, jacobians, strict=True):
            if not np.isfinite(J.data).all():
                return Bound(math.inf, False)
            if isinstance(spec.adjacency, Within):
                norm = ball_norm(J, spec.adjacency.norm, p)
                if norm.value * spec.adjacency.radius > worst.value:
                    worst = Bound(norm.value * spec.adjacency.radius, norm.tight)
        for share in self._record_shares(p, jacobians, scale, where).values():
            if not share.value <= worst.value:
                worst = share
        return Bound(worst.value * _UP, worst.tight)

    def _require_constant(self) -> None:
        if not self.constant:
            raise package_fault(
                "Only gradients with a constant Jacobian are bounded behind a linear map."
            )

    def mapped(self, K: Array, p: int) -> float:
        """Return a bound of ``||K (g - g')||_p`` over gradients g, g' of neighbors, at any point.

        Parameters
        ----------
        K : ndarray, shape (n, n), for gradients with a constant Jacobian, or (1, 1)
            The matrix K; a single number stands for a multiple of the identity.
        p : {1, 2}
        """
        if K.size == 1:
            return abs(K.item()) * self.bound(p).value
        self._require_constant()
        return self.moved([sp.csr_array(K @ J.toarray()) for J in self.jacobians], p)

    def moved(self, maps: Sequence[sp.csr_array], p: int) -> float:
        """Return a bound of ``||sum_k M_k (d_k - d_k')||_p`` over neighboring data d, d'.

        Parameters
        ----------
        maps : sequence of csr_array, each of shape (m, size of the private parameter)
            The matrices M_k; the gradient has to have a constant Jacobian.
        p : {1, 2}
        """
        self._require_constant()
        return self._over_changes(p, maps, None, None).value

    @property
    def changes(self) -> float:
        """Number of single changes that suffice to turn any data into zeros, maybe infinite."""
        if self.asserted is not None or self.clips:  # what is clipped at zeros is not known here
            return math.inf
        counts: dict[str, float] = {}
        for spec in self.private:
            if not isinstance(spec.adjacency, Rows):
                return math.inf
            counts[spec.adjacency.label] = spec.shape[0]
        return sum(counts.values())

    def slope(self, data: Sequence[Array]) -> Array:
        """Return ``J d`` for the data d, where J is the constant Jacobian of the gradient."""
        total = np.zeros(self.extent.lower.size)
        for J, d in zip(self.jacobians, data, strict=True):
            total += J @ d
        return total

    def jacobians_at(self, x: Array | None, scale: Array | None = None) -> list[Sparse]:
        """Return the Jacobians in the data of all linear terms at x, rows multiplied by `scale`."""
        jacobians: list[Sparse] = list(self.jacobians)
        if self.weights is not None and x is not None:
            pairs = zip(jacobians, self.weights.jacobians(x), strict=True)
            jacobians = [sp.csr_array(J + K) for J, K in pairs]
        if scale is None:
            return jacobians
        return [_with_rows(J, scale) for J in jacobians]

    def _record_shares(
        self,
        p: int,
        jacobians: Sequence[Sparse],
        scale: Array | None,
        where: Extent | None,
    ) -> dict[str, Bound]:
        """Return, by label of records, a bound of the gradient's change if one record changes.

        If one change moves all records of a person, the bound is for a person. `jacobians` belong
        to the linear terms, and `where` is a set that contains the point.
        """
        total: dict[str, Array] = {}
        parts: dict[str, list[Sparse]] = {}
        several = self._several
        for spec, J in zip(self.private, jacobians, strict=True):
            if isinstance(spec.adjacency, Rows) and J.nnz:
                label = spec.adjacency.label
                share = row_norms(J, spec, p)
                total[label] = total.get(label, 0.0) + share
                parts.setdefault(label, []).append(J)
        tight = {label: len(parts[label]) == 1 and label not in several for label in total}
        for spec in self.private:  # rows of one sign cannot be opposite to each other
            if isinstance(spec.adjacency, Rows) and spec.sign and spec.size > spec.shape[0]:
                tight[spec.adjacency.label] = False
        for task in self.records:
            label = self.adjacency_of(task).label
            if label in total:
                total[label] = total[label] + self.record_change(task, p, scale, where)
            elif label in several:
                total[label] = self.record_change(task, p, scale, where)
            else:
                total[label] = np.full(1, self.largest_change(task, p, scale, where))
            tight[label], parts[label] = False, []
        by_label: dict[str, Bound] = {}
        for label, value in total.items():
            if label in several:
                adjacency, rows = several[label]
                meet = meeting(parts[label], rows) if p == 2 and parts[label] else None
                by_label[label] = Bound(of_person(value, adjacency, rows, meet), tight[label])
            else:
                by_label[label] = Bound(largest_of(value), tight[label])
        return by_label

    @cached_property
    def _several(self) -> dict[str, tuple[Rows, int]]:
        """Adjacency and number of records, by label, if one change moves several records."""
        return {
            spec.adjacency.label: (spec.adjacency, spec.shape[0])
            for spec in self.private
            if isinstance(spec.adjacency, Rows) and spec.adjacency.moved_rows(spec.shape[0]) > 1
        }

    def adjacency_of(self, task: Contributions) -> Rows:
        """Return the neighboring relation of the records that the terms `task` read."""
        adjacency = self.private[task.members[0]].adjacency
        assert isinstance(adjacency, Rows)
        return adjacency

    def record_change(
        self,
        task: Contributions,
        p: int,
        scale: Array | None = None,
        where: Extent | None = None,
    ) -> Array:
        """Return, for each record, a bound of the gradient's change if this record changes.

        Parameters
        ----------
        task : Contributions
            Terms that read the records.
        p, scale
            Arguments of `bound`.
        where : Extent, optional
            Set that contains the point; the agent's feasible set if omitted.
        """
        removed = self.adjacency_of(task).relation != "replace_one"
        if self.clips:
            return self._change_of_clipped_records(task, p, scale, where, removed)
        try:
            return task.changed(p, where or self.extent, scale, removed=removed)
        except Unbounded:  # outside the set; over the set it was tried before
            return np.full(task.count, math.inf)

    def largest_change(
        self,
        task: Contributions,
        p: int,
        scale: Array | None = None,
        where: Extent | None = None,
    ) -> float:
        """Return the largest bound of the gradient's change by one record.

        See `record_change` for the parameters.
        """
        if self.clips:
            return largest_of(self.record_change(task, p, scale, where))
        removed = self.adjacency_of(task).relation != "replace_one"
        try:
            return task.largest_change(p, where or self.extent, scale, removed=removed)
        except Unbounded:
            return math.inf

    def largest_contribution(self, task: Contributions) -> float:
        """Return the largest l2 norm of a record's gradient contribution, before clipping."""
        try:
            return task.largest(2, self.extent)
        except Unbounded:
            return math.inf

    def _change_of_clipped_records(
        self,
        task: Contributions,
        p: int,
        scale: Array | None,
        where: Extent | None,
        removed: bool,
    ) -> Array:
        """Return, per record, a bound of the gradient's change, for clipped contributions.

        `where` is a set that contains the point.

        `removed` tells whether zeros replace the record, instead of another record.
        """
        peak = 1.0 if scale is None else float(scale.max())
        spread = 1.0 if p == 2 else math.sqrt(self.extent.lower.size)
        clip = self.clips[self.records.index(task)]

        def largest(limit: float, absent: bool) -> Array:
            scaled = np.full(task.count, limit * peak * spread)
            try:
                return np.minimum(scaled, task.bound(p, where or self.extent, scale, absent=absent))
            except Unbounded:
                return scaled

        other = largest(clip.absent, absent=True) if removed else largest(clip.bound, absent=False)
        return largest(clip.bound, absent=False) + other

    @property
    def l1(self) -> float:
        """Bound of the gradient's l1 change between neighboring data."""
        return self.bound(1).value

    @property
    def l2(self) -> float:
        """Bound of the gradient's l2 change between neighboring data."""
        return self.bound(2).value


def _with_rows(J: Sparse, scale: Array) -> Sparse:
    """Return the matrix J with rows multiplied by `scale`, faster than by a matrix product."""
    by_column = isinstance(J, sp.csc_array)
    weights = scale[J.indices] if by_column else np.repeat(scale, np.diff(J.indptr))
    with np.errstate(all="ignore"):  # infinite derivatives are handled later
        values = np.where(weights == 0, 0.0, J.data * weights)
    scaled = type(J)((values, J.indices, J.indptr), shape=J.shape)
    return scaled if scale.all() else without_zeros(scaled)


def _rungs(points: Array) -> Array:
    """Return, for each point, the smallest radius in `_LADDER` that reaches it; else infinity."""
    peaks = np.abs(points).max(axis=1, initial=0.0)
    with np.errstate(all="ignore"):  # 0 / 0 for points at 0, which are set last
        scaled = points / peaks[:, np.newaxis]
        # Vector by vector, so that sizes are rounded as for a single point.
        sizes = np.maximum(np.sqrt(np.vecdot(scaled, scaled)) * peaks * _UP, _NARROWEST)
    rungs = np.full(peaks.size, math.inf)
    near = np.isfinite(peaks) & (sizes <= _WIDEST)
    rungs[near] = _LADDER[np.searchsorted(_LADDER, sizes[near])]
    rungs[peaks == 0] = 0.0
    return rungs
