"""Queries for results of local optimization: minimizers, exact or perturbed, and single steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..._words import at_least
from ...errors import PrivacyError, package_fault
from ...model.adjacency import Rows, Within
from ...model.curvature import record_smoothness, smoothness, strong_convexity
from ...privacy.linear_term import LinearTerm, Magnitudes, linear_term
from ...solvers.projector import Projector
from ...solvers.steps import CertifiedSearch, Minimization, ProximalStep
from .query import (
    CLAIMED,
    ROUNDING,
    Facts,
    Known,
    Objective,
    Query,
    finite_gradient,
    gradient_level,
    require_uniform,
    rounding_floor,
)

Array = NDArray[np.float64]

# Relative bound of the rounding errors of eigenvalues and bounds.
_ROUNDED = 1e-9
# Residual at the end of a search without noise, relative to the gradient at its start.
_EXACT = 1e-11
# Largest condition number: a search surely ends after about 100 times its square root of steps.
_WORST = 1e10
# Limit on the data's part of a gradient for data of any size, relative to the sensitivity.
_LARGEST = 2.0**20

# An assumption of guarantees that rest on a user's claim.
STATED_ACCURACY = (
    "Local solves on private data succeed and reach the solver's accuracy. If one does not, its "
    "result may move farther than the asserted sensitivity."
)


@dataclass(frozen=True, eq=False)
class Minimizer(Query):
    """Query for the result of a search for ``argmin_{x in W} f(x) + D/2 ||x - v||^2``.

    W is the agent's feasible set, and f is its objective.

    Attributes
    ----------
    v : ndarray, shape (n,)
        Center of the quadratic, which may be an unreleased vector of the agent.
    search : Minimization
        The search, with the weight D.
    """

    v: Array
    search: Minimization

    released = "local minimizer"
    charged = (
        "the sensitivity of the local minimizer, which is at most the gradient's divided by 1/step "
        "plus the modulus of strong convexity"
    )
    smooth = True

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse agents without a sensitivity bound at all points, since a search visits many."""
        require_uniform(facts, "exact=True takes", "leave exact= out")

    def bound(self, public_state: Known) -> float:
        """Return the sensitivity of the approximate minimizer that the search finds.

        The bound follows from `Minimization.stretch`, or in l1 also from `stretch_in_l1`.
        """
        change, search = public_state.change, self.search
        bound = change * search.stretch * public_state.spread(self.v.size)
        smoothness = public_state.facts.smoothness
        curvature = None if smoothness is None else smoothness.curvature
        if (
            public_state.norm == 2
            or not change
            or curvature is None
            or not public_state.projector().separable
        ):
            return bound
        stretch = search.stretch_in_l1(curvature.center, curvature.spread) * (1 + 1e-9)
        return min(bound, public_state.sensitivity.bound(1).value * stretch)

    def floor(self, public_state: Known) -> float:
        """Return the noise's least grid width, for the rounding of all steps of the search."""
        projector = public_state.projector()
        start = projector.nearest(self.v)
        slope = self.search.stretch * public_state.public_gradient(start)
        floor = rounding_floor(self.v) + rounding_floor(start) + rounding_floor(slope)
        return (floor + rounding_floor(projector.centers())) * self.search.repeats

    def evaluate(self, objective: Objective) -> Array:
        """Return the approximate minimizer that the search finds along exact gradients."""
        return self.search(self.v, objective.gradient, objective.projector().nearest)


@dataclass(frozen=True, eq=False)
class PerturbedMinimizer(Query):
    r"""Query for the minimizer of the objective plus a random linear term.

    See `dpcvx.privacy.linear_term` for the theorem.

    The search ends with a certified distance from the minimizer. The noise that is added to its
    result is scaled to this distance alone.

    Attributes
    ----------
    search : CertifiedSearch
        Search with the quadratic that the plan adds.
    """

    search: CertifiedSearch

    released = "minimizer of the perturbed objective"
    charged = "the distance of the minimizer from the exact one"
    once = (
        "release='once' cannot be combined with dp.ObjectivePerturbation. Drop one of them. The "
        "first adds noise to the data, the second to the objective."
    )

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse agents without a proof of every condition of the theorem in `linear_term`."""
        if gradient_level(facts, 2) > 0:
            why = obstacle_to_perturbation(facts)
            if why:
                raise PrivacyError(
                    f"dp.ObjectivePerturbation cannot be used for agent '{facts.name}': {why}. "
                    "Write dp.FederatedGradient(), which takes noisy steps, or leave the method "
                    "out."
                )

    def bound(self, public_state: Known) -> float:
        """Return twice the largest distance of the search's result from the exact minimizer."""
        if public_state.change == 0:
            return 0.0
        term = public_state.linear
        if term is None or term.regularization != self.search.weight:
            raise package_fault("A minimizer is asked for with another quadratic than planned.")
        return public_state.spread(self.search.center.size) * 2 * term.distance

    def floor(self, public_state: Known) -> float:
        """Return the noise's least grid width, in proportion to the minimizer's largest norm."""
        return 0.0 if public_state.linear is None else ROUNDING * public_state.linear.reach

    def evaluate(self, objective: Objective) -> Array:
        """Return the objective's exact minimizer, up to rounding, for runs without noise."""
        return self.minimizer(objective.gradient, np.zeros(self.search.center.size), None)

    def minimizer(
        self, gradient: Callable[[Array], Array], b: Array, linear: LinearTerm | None
    ) -> Array:
        """Return the minimizer of the objective plus a linear term, up to a small residual.

        Parameters
        ----------
        gradient : callable
            Exact gradient of the objective.
        b : ndarray, shape (n,)
            Coefficient of the random linear term.
        linear : LinearTerm or None
            Law of the linear term; None without noise.
        """
        if linear is not None:
            residual = linear.residual
        else:
            residual = _EXACT * float(np.linalg.norm(gradient(self.search.center)))
        x = self.search(gradient, b, residual)
        if x is None:
            raise package_fault("The search for a minimizer ended without a certificate.")
        return x


def obstacle_to_perturbation(facts: Facts) -> str:
    """Return why `PerturbedMinimizer` refuses an agent with private data; "" if it accepts."""
    sensitivity, form = facts.sensitivity, facts.form
    assert sensitivity is not None
    if sensitivity.asserted is not None or sensitivity.weights is not None:
        return "its sensitivity is asserted, or private data multiply functions of the variables"
    if sensitivity.l2 == math.inf:
        return f"nothing bounds what one change does to its gradient: {sensitivity.obstacle}"
    if smoothness(form) is None or record_smoothness(form) is None:
        return "the curvature of its losses has no bound"
    if not sensitivity.splits and _is_open(facts):
        return "nothing bounds how large data with dp.Within are, and so how exact a minimizer is"
    if not facts.proximal().batched:
        return (
            f"its set and penalties together have no closed form ({facts.proximal()}), so that a "
            "solver would have to be trusted"
        )
    return "" if sensitivity.clips_keep_convexity(form) and _scores(facts) is not None else _SCORES


def _is_open(facts: Facts) -> bool:
    """Return whether private data of any size are admissible for the agent."""
    return any(isinstance(spec.adjacency, Within) for spec in facts.form.private)


_SCORES = "its records do not enter by smooth losses of their scores, such as X @ w"


def _scores(facts: Facts) -> int | None:
    """Return the number of records' scores (such as ``x_i @ w``) that one change moves, or None."""
    sensitivity = facts.sensitivity
    assert sensitivity is not None
    most = 0
    for records in sensitivity.records:
        scores = records.scores
        if scores is None or (scores > 1 and not records.smooth):
            return None
        most = max(most, scores * sensitivity.adjacency_of(records).moved_rows(records.count))
    return most


@dataclass(frozen=True)
class PerturbationBounds:
    """Constants of one agent's objective for the theorem on objective perturbation.

    See `dpcvx.privacy.linear_term`.
    """

    size: int  # number of entries of its vector
    sensitivities: tuple[float, float]  # L, the gradient's sensitivity in l1 and in l2
    scores: int  # q, the number of scores of all records that one change moves
    bend: float  # beta, the `record_smoothness`
    convexity: float  # modulus of strong convexity of the quadratic terms alone
    sizes: Magnitudes

    def searchable(self, regularization: float) -> bool:
        """Return whether the search for a minimizer is proved to end; it may take hours.

        Parameters
        ----------
        regularization : float
            Weight of the quadratic that is added to the objective.
        """
        convexity = self.convexity + regularization
        return self.sizes.smoothness + regularization <= _WORST * convexity

    def term(self, epsilon: float, regularization: float) -> LinearTerm | None:
        """Return the random linear term of the objective for an epsilon, or None.

        The result is None if no term is proved for this epsilon.

        Parameters
        ----------
        epsilon : float
            Epsilon of the release, at delta 0.
        regularization : float
            Weight of the quadratic that is added to the objective.
        """
        convexity = self.convexity + regularization
        if not convexity > 0:
            return None
        price = self.scores * math.log1p(self.bend / convexity)
        return linear_term(
            self.size, epsilon, self.sensitivities, price, convexity, regularization, self.sizes
        )


def perturbation_bounds(facts: Facts) -> PerturbationBounds:
    """Return the constants of an agent that `PerturbedMinimizer.check` accepts."""
    sensitivity, form = facts.sensitivity, facts.form
    assert sensitivity is not None
    scores, bend = _scores(facts), record_smoothness(form)
    assert scores is not None and bend is not None
    sensitivities = sensitivity.bound(1).value, sensitivity.bound(2).value
    convexity = strong_convexity(form) * (1 - _ROUNDED)
    bend *= 1 + _ROUNDED
    return PerturbationBounds(form.n, sensitivities, scores, bend, convexity, _magnitudes(facts))


def _magnitudes(facts: Facts) -> Magnitudes:
    sensitivity, start, form = facts.sensitivity, facts.start, facts.form
    bend = smoothness(form)
    assert sensitivity is not None and bend is not None
    rows = {
        spec.adjacency.label: spec.shape[0]
        for spec in form.private
        if isinstance(spec.adjacency, Rows)
    }
    # As many changes as there are records lead from any data to zeros.
    public = float(np.linalg.norm(finite_gradient(form.at_zero(), start)))
    extent = facts.projector().known_extent()
    across = np.linalg.norm(np.maximum(extent.upper - start, start - extent.lower))
    slope = public + 2 * sensitivity.l2 * sum(rows.values())
    limit = _LARGEST * sensitivity.l2 if _is_open(facts) else math.inf
    return Magnitudes(bend, slope, float(np.linalg.norm(start)), float(across), limit)


@dataclass(frozen=True, eq=False)
class LocalSolution(Query):
    r"""Query for a local step ``x+ = argmin_{y in W} <g, y> + 1/2 ||y - center||_D^2``.

    W is the agent's feasible set, and g is the exact gradient at x. The noise is added to
    ``sqrt(D) x+``: projections are nonexpansive in the D-norm, so this vector moves by at most
    ``||D^(-1/2) (g - g')||_2`` between neighbors (and by the l1 analogue if W is a product of
    intervals). If W has no closed form, a fixed number of steps replaces the projection. They move
    by at most 3 % more, however close to the projection they end, and no solver is called.

    With an asserted sensitivity the solver is called. If it finds no point, the anchor replaces its
    result, and no observer sees that.

    Attributes
    ----------
    x, center : ndarray, shape (n,)
        Public points: the point of the gradient, and the center of the quadratic.
    D : ndarray, shape (n,)
        Positive weights of the quadratic, public.
    anchor : ndarray, shape (n,)
        A public point of W, near which the step is expected.
    """

    x: Array
    center: Array
    D: Array
    anchor: Array

    released = "solution of the local step"
    charged = (
        "the sensitivity of every result, which follows from the gradient's and the step's weights"
    )
    once = (
        "release='once' puts noise on the data and leaves nothing private to the local steps, so "
        "there is no output to perturb. Drop perturb=, or write release='each_step'."
    )

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse agents without a proved bound on how far one change moves their local steps."""
        if facts.claimed is not None or not gradient_level(facts, 2) > 0:
            return
        obstacle = facts.projector().obstacle
        if obstacle is not None:
            raise PrivacyError(
                f"Noise on the output of agent '{facts.name}' protects only if its local steps "
                f"provably move little with its data. Its constraints have {obstacle}, for which "
                "no such steps are known: a solver's last digits could reveal its data. Write "
                "perturb='objective', which works with any constraints, or state "
                "output_sensitivity= yourself."
            )

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Return scale and text of the noise, scaled to an asserted sensitivity if there is one."""
        if facts.claimed is None:
            return super().noise(facts, norm, times, scale)
        scale_of = scale(facts.claimed)
        return (
            scale_of,
            f"asserted sensitivity {facts.claimed:g} of every result, scale {at_least(scale_of)}",
        )

    @classmethod
    def claims(cls, facts: Facts) -> tuple[str, ...]:
        """Return assumptions of an asserted sensitivity: it is true, and solvers are accurate."""
        return () if facts.claimed is None else (CLAIMED, STATED_ACCURACY)

    def bound(self, public_state: Known) -> float:
        """Return the sensitivity of the scaled step ``sqrt(D) x+``, or the asserted one."""
        if public_state.change == 0:
            return 0.0
        l2 = self._l2(public_state)
        if l2 == 0 and not public_state.matters(self.x):
            return 0.0
        if public_state.facts.claimed is not None:
            return public_state.facts.claimed
        if public_state.norm == 1 and public_state.projector().separable:
            return public_state.gradient_bound(self.x, p=1, scale=1 / self._root)
        step = self._on(public_state.projector())
        rounding = 2 * step.rounding(self._reach(public_state, l2))
        return public_state.spread(self.x.size) * (step.projector.stretch * l2 + rounding)

    def matters(self, public_state: Known) -> bool:
        """Return whether the gradient at x depends on data, even by less than a float can hold."""
        return public_state.matters(self.x)

    def floor(self, public_state: Known) -> float:
        """Return the noise's least grid width, for the rounding of the local step's points."""
        root, public = self.scale(public_state), public_state.public_gradient(self.x) / self.D
        points = (self.center, public, self.anchor, public_state.projector().centers())
        return max(rounding_floor(p if root is None else root * p) for p in points)

    def scale(self, public_state: Known | None) -> Array | None:
        """Return the local step's weights ``sqrt(D)``; None for an asserted sensitivity."""
        claimed = public_state is not None and public_state.facts.claimed is not None
        return None if claimed else self._root

    def evaluate(self, objective: Objective) -> Array:
        """Return the point after the local step; its length is limited if W has no closed form.

        A projection with a closed form needs no limit, and an l2 limit would break the l1 bound.
        """
        step, g, bounds = (
            self._on(objective.projector()),
            objective.gradient(self.x),
            objective.known,
        )
        if bounds is None or step.projector.closed_form:
            point = step(g).x
        else:
            reach = self._reach(bounds, self._l2(bounds))
            limited = bounds.facts.claimed is not None
            point = step.within(g, reach).x if limited else step.steady(g, reach)
        return self.anchor if point is None else point

    @property
    def _root(self) -> Array:
        return np.sqrt(self.D)

    def _on(self, projector: Projector) -> ProximalStep:
        return ProximalStep(projector, self.center, self.D, self.anchor)

    def _l2(self, public_state: Known) -> float:
        return public_state.gradient_bound(self.x, p=2, scale=1 / self._root)

    def _reach(self, public_state: Known, l2: float) -> float:
        """Return the largest length of the local step.

        Because of earlier noise, x may lie outside of W.
        """
        n = self.x.size
        drawn = public_state.multiplier * public_state.spread(n) * l2 * math.sqrt(n)
        return self._on(public_state.projector()).reach + 4.0 * drawn
