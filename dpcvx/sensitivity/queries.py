r"""Questions to private data: what is released, what one change does to it, how it is computed.

An agent's turn asks ``oracle.release(query)``. The door charges `Query.bound`, computes
`Query.evaluate` at the exact objective, adds noise, and hands out `Query.finish` of what left.
A question of one's own is one more class like those below.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, PrivacyError
from ..model.quadratic import curved
from ..solvers.projector import Projector
from ..solvers.steps import Contraction, Minimisation, ProximalStep
from .known import ROUNDING, Facts, Known, Objective
from .second_moments import Scaled, moments, more_than_moments
from .stored_vectors import StoredEffects

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Assumptions of guarantees that rest on a user's claim.
CLAIMED = "The sensitivities that the user asserted are true: nothing in the package proves them."
BENT = "The smoothness that the user asserted is true: nothing in the package proves it."
STATED_ACCURACY = (
    "Local solves on private data succeed and reach the solver's accuracy. If one does not, its "
    "result may move farther than the asserted sensitivity."
)


class Query(abc.ABC):
    """One question to one agent's private data. Concrete queries are frozen dataclasses.

    `check`, `noise` and `claims` are asked before any data are read, of the type. `bound`,
    `matters`, `floor`, `scale` and `finish` are computed from public numbers; only `evaluate` sees
    the exact objective.

    Attributes
    ----------
    released : str
        What leaves, in a word, for the ledger.
    charged : str
        What the noise is scaled to, for the guarantee; the sensitivity of what is released if "".
    smooth : bool
        Whether the bound follows from the smoothness of the objective.
    once : str
        Why the question is idle where data leave once and before the first round; "" if it is not.
    """

    released: ClassVar[str]
    charged: ClassVar[str] = ""
    smooth: ClassVar[bool] = False
    once: ClassVar[str] = ""

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse an agent for which no bound is known; any certified one will do by default.

        Raises
        ------
        PrivacyError, ModelError
        """
        return None

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """What the noise is scaled to, for the guarantee.

        Parameters
        ----------
        facts : Facts
        norm : {1, 2}
        times : str
            Such as "scale 2.5 times".
        scale : callable
            The noise's scale for a sensitivity.

        Returns
        -------
        scale : float
            Per component; infinite if it differs from release to release.
        words : str
        """
        if _gradient_level(facts, norm) == math.inf:
            return math.inf, f"{times} the sensitivity at the point of each step"
        return math.inf, f"{times} {cls.charged or f'the sensitivity of the {cls.released}'}"

    @classmethod
    def claims(cls, facts: Facts) -> tuple[str, ...]:
        """What the bound takes from the user without a proof, in words."""
        return ()

    def size(self, n: int) -> int:
        """How many numbers leave an agent whose vector has n."""
        return n

    @abc.abstractmethod
    def bound(self, known: Known) -> float:
        """How far one change of the data moves the answer, times `scale`, in ``known.norm``.

        It has to hold for all data and at the same public numbers. 0 says that the answer does not
        depend on the data, and leaves without noise.
        """

    def matters(self, known: Known) -> bool:
        """Whether the answer depends on the data where `bound` is 0: noise is then refused."""
        return known.change > 0

    def floor(self, known: Known) -> float:
        """Least width of the noise's grid: far above the rounding errors of public numbers."""
        return 0.0

    def scale(self, known: Known | None) -> Array | None:
        """Public weights of the answer's components, for the noise; None for ones."""
        return None

    @abc.abstractmethod
    def evaluate(self, objective: Objective) -> Array:
        """The exact answer, of `size` numbers. Behind the door; nothing of it may be kept."""

    def finish(self, left: Array, public: Callable[[Array], Array] | None) -> Array:
        """What the agent makes of what left.

        Parameters
        ----------
        left : ndarray
        public : callable or None
            The public part of the gradient, where it was computed apart.
        """
        return left

    def hidden(self) -> Query:
        """The question in a run of which the last iterate alone leaves.

        Raises
        ------
        PrivacyError
            If nothing is proved about it.
        """
        raise PrivacyError(
            "observer='last iterate' is proved for steps along gradients, and a "
            f"{type(self).__name__} is none. Plan with observer='everyone'."
        )


@dataclass(frozen=True, eq=False)
class Gradient(Query):
    """The gradient at x, or its image under a public linear map.

    Attributes
    ----------
    x : ndarray, shape (n,)
    through : Contraction or None
    """

    x: Array
    through: Contraction | None = None

    released = "gradient"

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """The same in all releases, where one bound holds at all points and is as low at none."""
        level = _gradient_level(facts, norm)
        if level == math.inf:
            return super().noise(facts, norm, times, scale)
        if _follows(facts, norm):
            return math.inf, (
                f"{times} what one change can do to the gradient near the public point of each "
                f"step, at most {scale(level):.6g} per component"
            )
        return scale(level), f"scale {scale(level):.6g} per component of the gradient"

    def bound(self, known: Known) -> float:
        """The gradient's sensitivity, times the norm of the map."""
        return _mapped_bound(known.gradient_bound(self.x), self.through, known)

    def matters(self, known: Known) -> bool:
        """Whether the map's norm made a small number too small."""
        return known.gradient_bound(self.x) > 0

    def evaluate(self, objective: Objective) -> Array:
        """What the data add to the gradient, mapped."""
        return _mapped(objective.apart(self.x), self.through)

    def finish(self, left: Array, public: Callable[[Array], Array] | None) -> Array:
        """With the public part, mapped too."""
        return left if public is None else _mapped(public(self.x), self.through) + left


@dataclass(frozen=True, eq=False)
class Summand(Gradient):
    """The gradient at x as a part of the vector of all agents, for a sum over them.

    The answer has two rows: what left, with noise in all entries of the whole vector, and what is
    public of the gradient and was not in it.

    Attributes
    ----------
    place : ndarray of int, shape (n,)
        Where the agent's components are in the whole vector.
    whole : int
        The length of that vector.
    """

    place: Index = field(kw_only=True)
    whole: int = field(kw_only=True)

    once = (
        "release='once' lets every agent's data leave by themselves, and sharing= has sums of "
        "gradients to hide them in. Drop one of them."
    )

    @classmethod
    def check(cls, facts: Facts) -> None:
        """All agents add the same noise in all rounds, so one bound has to hold at all points."""
        known = facts.sensitivity
        if known is not None and known.l2 == math.inf:
            raise PrivacyError(
                "With sharing= all agents add the same noise, which is fixed before the first "
                f"round. What one change of the data of agent '{facts.name}' does to its gradient "
                f"must be bounded at all points for that, and is not: {known.obstacle}. Bound its "
                "variables, write dp.Agent(..., clip=1.0), or leave sharing= out."
            )

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """That of every agent's part, wherever the point is."""
        part = scale(_gradient_level(facts, norm))
        return part, f"scale {part:.6g} per component of the gradient"

    def size(self, n: int) -> int:
        """Of the whole vector."""
        return self.whole

    def evaluate(self, objective: Objective) -> Array:
        """What the data add to the gradient, among zeros."""
        return self._among_zeros(super().evaluate(objective))

    def finish(self, left: Array, public: Callable[[Array], Array] | None) -> Array:
        """What left, and the public part."""
        apart = np.zeros(self.x.size) if public is None else public(self.x)
        return np.stack([left, self._among_zeros(apart)])

    def _among_zeros(self, own: Array) -> Array:
        out = np.zeros(self.whole)
        out[self.place] = own
        return out


@dataclass(frozen=True)
class MomentsTerm(Query):
    """An agent's term of a sum of second moments of records over all agents.

    Attributes
    ----------
    scaled : Scaled
    """

    scaled: Scaled

    released = "second moments"
    once = (
        "release='once' lets every agent's data leave by themselves, and sharing= has sums of "
        "second moments to hide them in. Drop one of them."
    )

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse an agent whose objective reads more of its records."""
        known = facts.sensitivity
        if known is not None and moments(known, 2) is None:
            raise more_than_moments(facts.name)

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """That of every agent's part."""
        part = scale(0.0)
        return part, f"scale {part:.6g} per entry of the second moments, in units of the sum"

    def size(self, n: int) -> int:
        """The triangle, whatever the agent's vector is."""
        return self.scaled.size

    def bound(self, known: Known) -> float:
        """What one change of a record does to the term, in l2: such noise is Gaussian."""
        self.check(known.facts)
        return self.scaled.moved(known.facts.form.private)

    def evaluate(self, objective: Objective) -> Array:
        """The term; zeros where there are no records."""
        return self.scaled.statistic(objective.data())


@dataclass(frozen=True, eq=False)
class DataCurvature(Query):
    """The second derivatives that data add to the objective: the upper triangle, row by row.

    Nothing bounds what one change does to them at one point, so they are asked for where they hide
    nothing: where the data left before, with noise, where they do not depend on the data, and in
    runs without noise.
    """

    released = "second derivatives"

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse an agent whose second derivatives depend on its data."""
        if curved(facts.form):
            raise PrivacyError(
                f"The second derivatives of the objective of agent '{facts.name}' depend on its "
                "private data, and no noise is known for them in a step. Release the data once, by "
                "release='once', or use a method that asks for gradients only."
            )

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """That of the gradients next to which they are asked for: they have none of their own."""
        return Gradient.noise(facts, norm, times, scale)

    def size(self, n: int) -> int:
        """Entries of the triangle."""
        return n * (n + 1) // 2

    def bound(self, known: Known) -> float:
        """None: they do not depend on the data."""
        self.check(known.facts)
        return 0.0

    def matters(self, known: Known) -> bool:
        """They do not."""
        return False

    def evaluate(self, objective: Objective) -> Array:
        """The triangle."""
        H = objective.curvature().toarray()
        return H[np.triu_indices(H.shape[0])]


@dataclass(frozen=True)
class ReleasedData(Query):
    """The data themselves, one object after the other, for constraints that contain them.

    Asked for where they left before, with noise, and in runs without noise.

    Attributes
    ----------
    count : int
        Of their entries.
    """

    count: int
    released = "data"

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """That of the gradients next to which they are asked for: they leave in no noisy step."""
        return Gradient.noise(facts, norm, times, scale)

    def size(self, n: int) -> int:
        """Entries of the data."""
        return self.count

    def bound(self, known: Known) -> float:
        """Refused: in a noisy step no noise is known for them."""
        raise PrivacyError(
            f"The data of agent '{known.facts.name}' are asked for in a noisy step. Release them "
            "once, by release='once'."
        )

    def evaluate(self, objective: Objective) -> Array:
        """The data."""
        return objective.data()


@dataclass(frozen=True, eq=False)
class Step(Query):
    """The point ``center - step * gradient(x)``, which leaves as a whole.

    Attributes
    ----------
    x, center : ndarray, shape (n,)
        The center may be the agent's secret.
    step : float
    only : ndarray of int, optional
        The components that move, and leave.
    through : Contraction, optional
        Of the gradient.
    """

    x: Array
    center: Array
    step: float
    only: Index | None = None
    through: Contraction | None = None

    released = "iterate"
    charged = "the sensitivity of the new point, which is the step size times the gradient's"

    def __post_init__(self) -> None:
        if self.only is None:
            return
        inside = ((self.only >= 0) & (self.only < self.center.size)).all()
        if not inside or np.unique(self.only).size < self.only.size:
            raise ModelError(
                "Step(only=...) must name components of the point, each once and counted from 0. "
                "A component that left twice would be charged once."
            )

    @property
    def moving(self) -> Array | None:
        """1 for components that move and 0 for others, shape (n,); None if all do."""
        if self.only is None:
            return None
        out = np.zeros(self.center.size)
        out[self.only] = 1.0
        return out

    def end(self, g: Array) -> Array:
        """The new point for gradient g, shape (n,), as if all components moved."""
        return self.center - self.step * _mapped(g, self.through)

    def size(self, n: int) -> int:
        """How many components move."""
        return n if self.only is None else self.only.size

    def bound(self, known: Known) -> float:
        """The step size times the sensitivity of what moves."""
        if self.through is not None:
            return self.step * _mapped_bound(known.gradient_bound(self.x), self.through, known)
        return self.step * known.gradient_bound(self.x, scale=self.moving)

    def matters(self, known: Known) -> bool:
        """Whether the step made a small number too small."""
        return known.gradient_bound(self.x, scale=self.moving) > 0

    def floor(self, known: Known) -> float:
        """However small the step is next to the point."""
        return rounding_floor(self.center) + rounding_floor(
            self.step * known.public_gradient(self.x)
        )

    def evaluate(self, objective: Objective) -> Array:
        """The components that move."""
        x = self.end(objective.gradient(self.x))
        return x if self.only is None else x[self.only]

    def finish(self, left: Array, public: Callable[[Array], Array] | None) -> Array:
        """The whole point."""
        if self.only is None:
            return left
        x = self.center.copy()
        x[self.only] = left
        return x

    def hidden(self) -> Query:
        """Itself."""
        return self


@dataclass(frozen=True, eq=False)
class GradientStep(Query):
    """The point ``center - step * through(gradient(x))``, of which the mapped gradient leaves.

    Where nothing but the last iterate leaves a run, the noise is put on the point instead.

    Attributes
    ----------
    x, center : ndarray, shape (n,)
        Public.
    step : float
    through : Contraction, optional
    """

    x: Array
    center: Array
    step: float
    through: Contraction | None = None

    released = "gradient"
    charged = "the gradient's sensitivity after the public linear map of the x step"

    @property
    def _gradient(self) -> Gradient:
        return Gradient(self.x, self.through)

    def bound(self, known: Known) -> float:
        """That of the mapped gradient."""
        return self._gradient.bound(known)

    def matters(self, known: Known) -> bool:
        """Whether the gradient does."""
        return self._gradient.matters(known)

    def evaluate(self, objective: Objective) -> Array:
        """The mapped gradient."""
        return self._gradient.evaluate(objective)

    def finish(self, left: Array, public: Callable[[Array], Array] | None) -> Array:
        """The point."""
        return self.center - self.step * self._gradient.finish(left, public)

    def hidden(self) -> Query:
        """The point as a whole."""
        return Step(self.x, self.center, self.step, through=self.through)


@dataclass(frozen=True, eq=False)
class Minimiser(Query):
    """The end of a search for ``argmin_{x in W} f(x) + D/2 ||x - v||^2``.

    Attributes
    ----------
    v : ndarray, shape (n,)
        May be the agent's secret.
    search : Minimisation
    """

    v: Array
    search: Minimisation

    released = "local minimiser"
    charged = (
        "the sensitivity of the local minimiser, which is at most the gradient's divided by 1/step "
        "plus the modulus of strong convexity"
    )
    smooth = True

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Points on the way are seen by nobody, so one bound has to hold at all of them."""
        _require_uniform(facts, "exact=True takes", "leave exact= out")

    def bound(self, known: Known) -> float:
        """By `Minimisation.stretch`; in l1 on products of intervals also by `stretch_in_l1`."""
        change, search = known.change, self.search
        bound = change * search.stretch * known.spread(self.v.size)
        smoothness = known.facts.smoothness
        curvature = None if smoothness is None else smoothness.curvature
        if known.norm == 2 or not change or curvature is None or not known.projector().separable:
            return bound
        one = search.stretch_in_l1(curvature.center, curvature.spread) * (1 + 1e-9)
        return min(bound, known.sensitivity.bound(1).value * one)

    def floor(self, known: Known) -> float:
        """Every step of the search rounds."""
        own = known.projector()
        start = own.nearest(self.v)
        slope = self.search.stretch * known.public_gradient(start)
        floor = rounding_floor(self.v) + rounding_floor(start) + rounding_floor(slope)
        return (floor + rounding_floor(own.centers())) * self.search.repeats

    def evaluate(self, objective: Objective) -> Array:
        """Search along exact gradients."""
        return self.search(self.v, objective.gradient, objective.projector().nearest)


@dataclass(frozen=True, eq=False)
class LocalSolution(Query):
    r"""The result of a local step, ``argmin_{x in W} <g, x> + 1/2 ||x - center||_D^2``.

    g is the exact gradient at x. The noise has the shape of the step's own geometry: projections
    do not expand in the D-norm, so that ``sqrt(D) x+`` moves by at most ``||D^(-1/2) (g - g')||_2``
    between neighbours (and by the l1 analogue where W is a product of intervals). Where W has no
    closed form, a fixed number of steps takes its place, which move by at most 3 % more, however
    close to the projection they end: no solver is asked.

    With a claimed sensitivity the solver is asked. If it finds no point, the anchor takes the place
    of its answer, and nothing shows.

    Attributes
    ----------
    x, center : ndarray, shape (n,)
        Public.
    D : ndarray, shape (n,)
        Positive weights, public.
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
        "there is no output to perturb. Drop perturb=, or write release='each step'."
    )

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Steps that are not known to move little with the data are refused."""
        if facts.claimed is not None or not _gradient_level(facts, 2) > 0:
            return
        obstacle = facts.projector().obstacle
        if obstacle is not None:
            raise PrivacyError(
                f"Noise on the output of agent '{facts.name}' protects only if its local steps "
                f"provably move little with its data. Its constraints have {obstacle}, for which "
                "no such steps are known: a solver's last digits could tell its data. Write "
                "perturb='objective', which works with any constraints, or state "
                "output_sensitivity= yourself."
            )

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """As claimed, or by the step's weights."""
        if facts.claimed is None:
            return super().noise(facts, norm, times, scale)
        found = scale(facts.claimed)
        return found, f"asserted sensitivity {facts.claimed:g} of every result, scale {found:.6g}"

    @classmethod
    def claims(cls, facts: Facts) -> tuple[str, ...]:
        """The stated sensitivity, and what it needs of solvers."""
        return () if facts.claimed is None else (CLAIMED, STATED_ACCURACY)

    def bound(self, known: Known) -> float:
        """In the geometry of the step."""
        if known.change == 0:
            return 0.0
        l2 = self._l2(known)
        if l2 == 0 and not known.matters(self.x):
            return 0.0
        if known.facts.claimed is not None:
            return known.facts.claimed
        if known.norm == 1 and known.projector().separable:
            return known.gradient_bound(self.x, p=1, scale=1 / self._root)
        step = self._on(known.projector())
        rounding = 2 * step.rounding(self._reach(known, l2))
        return known.spread(self.x.size) * (step.projector.stretch * l2 + rounding)

    def matters(self, known: Known) -> bool:
        """At x, if only by less than a number can hold."""
        return known.matters(self.x)

    def floor(self, known: Known) -> float:
        """Relative to all points that enter the step."""
        root, public = self.scale(known), known.public_gradient(self.x) / self.D
        points = (self.center, public, self.anchor, known.projector().centers())
        return max(rounding_floor(p if root is None else root * p) for p in points)

    def scale(self, known: Known | None) -> Array | None:
        """The geometry of the step; ones where the user claims a sensitivity."""
        claimed = known is not None and known.facts.claimed is not None
        return None if claimed else self._root

    def evaluate(self, objective: Objective) -> Array:
        """Solve the step. Closed forms need no limit, and an l2 limit would break an l1 bound."""
        step, g, known = (
            self._on(objective.projector()),
            objective.gradient(self.x),
            objective.known,
        )
        if known is None or step.projector.closed_form:
            found = step(g).x
        else:
            reach = self._reach(known, self._l2(known))
            limited = known.facts.claimed is not None
            found = step.within(g, reach).x if limited else step.steady(g, reach)
        return self.anchor if found is None else found

    @property
    def _root(self) -> Array:
        return np.sqrt(self.D)

    def _on(self, projector: Projector) -> ProximalStep:
        return ProximalStep(projector, self.center, self.D, self.anchor)

    def _l2(self, known: Known) -> float:
        return known.gradient_bound(self.x, p=2, scale=1 / self._root)

    def _reach(self, known: Known, l2: float) -> float:
        """How far the step may go: earlier noise can have carried x away from W."""
        n = self.x.size
        drawn = known.multiplier * known.spread(n) * l2 * math.sqrt(n)
        return self._on(known.projector()).reach + 4.0 * drawn


class _OfStored(Query):
    """About a vector that the agent stored."""

    smooth = True

    @classmethod
    def check(cls, facts: Facts) -> None:
        """One bound has to hold at points that nobody sees, and bend with the smoothness."""
        _require_uniform(facts, "Its local steps take", "use dp.DecentralizedGradient")
        if facts.smoothness is None:
            raise ModelError(
                f"No smoothness constant can be derived for the objective of agent '{facts.name}'. "
                "How far one change of the data moves the vectors that it stores follows from it. "
                "Give the algorithm smoothness=... with a bound for all admissible data; the "
                "guarantee will call it asserted."
            )

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Follows from what was stored."""
        M = facts.smoothness
        assert M is not None  # checked
        return math.inf, (
            "each round's scale follows from how far one change can have moved the secret point, "
            f"and the gradient there (smoothness {M.value:.6g}, "
            f"{'asserted' if M.asserted else 'derived'})"
        )

    @classmethod
    def claims(cls, facts: Facts) -> tuple[str, ...]:
        """The smoothness, unless it is derived."""
        return (BENT,) if facts.smoothness is not None and facts.smoothness.asserted else ()


@dataclass(frozen=True, eq=False)
class Stored(_OfStored):
    """A vector that the agent stored.

    Attributes
    ----------
    name : str
    """

    name: str

    released = "point"

    def bound(self, known: Known) -> float:
        """How far one change moves it, while everything that left stays the same."""
        return _effects(known).reach(self.name, known.norm) if known.change > 0 else 0.0

    def matters(self, known: Known) -> bool:
        """Whether gradients went into it."""
        return known.change > 0 and _effects(known).secret(self.name)

    def floor(self, known: Known) -> float:
        """Of the public numbers that it is made of."""
        return ROUNDING * _effects(known).size(self.name)

    def evaluate(self, objective: Objective) -> Array:
        """The vector."""
        return objective.stored.vector(self.name)


@dataclass(frozen=True, eq=False)
class StoredGradient(_OfStored):
    """The gradient at a vector that the agent stored.

    Attributes
    ----------
    name : str
    """

    name: str

    released = "gradient at that point"

    def bound(self, known: Known) -> float:
        """The gradient's own change, and what follows from that of the vector."""
        return _effects(known).gradient_reach(self.name, known.norm) if known.change > 0 else 0.0

    def floor(self, known: Known) -> float:
        """Of the gradient where the vector would be without data."""
        return ROUNDING * _effects(known).gradient_size(self.name)

    def evaluate(self, objective: Objective) -> Array:
        """The gradient there."""
        return objective.stored.gradient(self.name)


def rounding_floor(point: Array) -> float:
    """A grid's width of which rounding errors of a point are a small part."""
    return ROUNDING * float(np.abs(point).max(initial=0.0))


def _effects(known: Known) -> StoredEffects:
    assert known.stored is not None  # the door stores nothing else
    return known.stored


def _mapped(g: Array, through: Contraction | None) -> Array:
    return g if through is None else through(g)


def _mapped_bound(bound: float, through: Contraction | None, known: Known) -> float:
    if through is None:
        return bound
    return bound * (through.norm1 if known.norm == 1 else through.norm2)


def _gradient_level(facts: Facts, norm: int) -> float:
    """The gradient's sensitivity at all points of the agent's set."""
    return 0.0 if facts.sensitivity is None else facts.sensitivity.bound(norm).value


def _follows(facts: Facts, norm: int) -> bool:
    """Whether the noise is lower near 0."""
    known = facts.sensitivity
    return known is not None and known.within(norm, 0.0) < known.bound(norm).value


def _require_uniform(facts: Facts, what: str, remedy: str) -> None:
    """Refuse steps inside an agent that one change may move apart without limit."""
    sensitivity = facts.sensitivity
    if sensitivity is None:
        return
    if sensitivity.l2 == math.inf:
        raise PrivacyError(
            f"{what} gradients inside agent '{facts.name}', at points that never leave it. What a "
            "change of its data does to them must be bounded at all points, and no such bound is "
            f"known: {sensitivity.obstacle}. Bound its variables, choose a loss with bounded "
            f"slopes, or {remedy}."
        )
    if not sensitivity.clips_keep_convexity(facts.form):
        raise PrivacyError(
            f"{what} gradients that belong to one convex function. Clipped gradients of records "
            f"with several scores, as in agent '{facts.name}', need not belong to any. Bound the "
            f"data so that the sensitivity is finite without clip=, or {remedy}."
        )
