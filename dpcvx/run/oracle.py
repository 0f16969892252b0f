"""The door: the only module that reads private values, and the only source of releases.

An algorithm hands in a point and gets back a noisy answer. The ledger entry is written first,
then the data are touched, then noise is added; nothing else comes back. Everything an algorithm
does with the answer is post-processing.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..guard import guarded
from ..model.normal_form import BoundObjective, NormalForm
from ..model.private import PrivateSpec, unseal
from ..privacy.accounts import Account
from ..privacy.entries import Entry
from ..privacy.ledger_file import Journal
from ..privacy.mechanism import Calibrated
from ..privacy.noise import Grid, Source, uniform
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.kept_vectors import UNKNOWN, LinearCombination, SecretState, Smoothness
from ..sensitivity.reach import Shift, fixed_shift, varying_shift
from ..sensitivity.release_once import Statistic
from ..solvers.projector import Projector
from ..solvers.steps import Contraction, Descent, Minimisation, ProximalStep

Array = NDArray[np.float64]
# Least width of the grid of a point, relative to its largest component.
_ROUNDING = 2.0**-44
# Bounds are scaled by this to tell 0 from what is below the least of numbers.
_FAR_UP = 2.0**200
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Release:
    """A value that left an agent.

    Attributes
    ----------
    agent : int
    round, step : int
        Counted from 1.
    value : ndarray, shape (n,)
    """

    agent: int
    round: int
    step: int
    value: Array


class ReleaseGate:
    """The only way out for values computed from private data: charge, compute, add noise, keep.

    Parameters
    ----------
    agent : int
        Position of the agent.
    calibrated : Calibrated or None
        None switches the noise off.
    account : Account
    source : Source
        Of the noise.
    record : bool
        Keep the releases.
    past : iterable of Release
        What already left in an interrupted run: given out again, at no charge.
    paid : collection of (round, step)
        Releases that the interrupted run was charged for and did not make.
    journal : Journal or None
        Where charges and values are written before they take effect.
    prepaid : bool
        Whether the whole run was charged before it began. What it computes stays hidden, and is
        not kept.
    """

    def __init__(
        self,
        agent: int,
        calibrated: Calibrated | None,
        account: Account,
        source: Source,
        *,
        record: bool,
        past: Iterable[Release] = (),
        paid: Collection[tuple[int, int]] = (),
        journal: Journal | None = None,
        prepaid: bool = False,
    ) -> None:
        self.agent = agent
        self.calibrated = calibrated
        self.account = account
        self.releases: list[Release] = []
        self._source = source
        self._record = record
        self._past = {(r.round, r.step): r.value for r in past if r.agent == agent}
        self._paid = paid
        self._journal = None if prepaid else journal
        self._prepaid = prepaid

    def __call__(
        self,
        place: tuple[int, int],
        what: Entry | None,
        compute: Callable[[], Array],
        grid: Grid | None,
        scale: Array | None = None,
    ) -> Array:
        """Release ``compute()``.

        Parameters
        ----------
        place : (int, int)
            Round and step.
        what : Entry or None
            For the ledger; None for values that do not depend on private data.
        compute : callable
            Called after the ledger was written.
        grid : Grid or None
            Grid and noise of the (scaled) value; None for no noise.
        scale : ndarray, shape (n,), optional
            Public; divided out again.
        """
        value = self._past.get(place)
        if value is None:
            if what is not None and place not in self._paid:
                self._charge(what)
            noise = None if grid is None else self.calibrated
            if noise is None or grid is None:
                value = _guarded(self.agent, compute)
            else:
                value = _guarded(
                    self.agent, lambda: self._noised(noise, place, compute, grid, scale)
                )
                if self._journal is not None:
                    self._journal.release(self.account.agent, place, value)
        if self._record:
            self.releases.append(Release(self.agent, *place, value.copy()))
        return value

    def _noised(
        self,
        noise: Calibrated,
        place: tuple[int, int],
        compute: Callable[[], Array],
        grid: Grid,
        scale: Array | None,
    ) -> Array:
        value = compute() if scale is None else scale * compute()
        value = noise.release(value, grid, self._source.at(*place))
        return value if scale is None else value / scale

    def uniform(self, t: int, size: int) -> Array:
        """Secret uniform variables of round t; a release that is given out again has its own."""
        return uniform(size, self._source.at(t, 0))

    def made(self, place: tuple[int, int]) -> bool:
        """Whether the release was made before an interruption."""
        return place in self._past

    def _charge(self, entry: Entry) -> None:
        if self._prepaid:
            return
        if self.calibrated is None:
            self.account.expose(entry)
        else:
            self.account.charge(entry, self.calibrated.at(entry.round, entry.step))
        if self._journal is not None:
            self._journal.charge(self.account.agent, entry)


class _Numbered(abc.ABC):
    """Counts an agent's releases, round by round."""

    def __init__(self, account: Account, releases: list[Release]) -> None:
        self.account = account
        self.releases = releases
        self._round = self._step = 0

    def begin(self, t: int) -> None:
        """Start round t: releases are numbered within it."""
        self._round, self._step = t, 0

    def step(self, x: Array, move: Descent) -> Array:
        """The new point for the gradient at x."""
        return move.center - move.size * self.gradient(x, move.through)

    def uniform(self, size: int) -> Array:
        """Not random: the middle."""
        return np.full(size, 0.5)

    def _next(self) -> tuple[int, int]:
        self._step += 1
        return self._round, self._step

    @abc.abstractmethod
    def gradient(self, x: Array, through: Contraction | None = None) -> Array:
        """See the subclasses."""


class PrivateOracle(_Numbered):
    """Answers from private data, each with noise of its own.

    Parameters
    ----------
    form : NormalForm
    sources : sequence of callables
        One per private parameter; called here, once.
    sensitivity : Sensitivity or None
        None only without noise.
    exit : ReleaseGate
    level : float, optional
        Sensitivity of every `step`, at least this agent's own. Its results stay hidden but for the
        last one, so they are rounded to a grid that does not depend on where they are.
    smoothness : Smoothness
        Of the objective, for methods that keep vectors to themselves.
    """

    def __init__(
        self,
        form: NormalForm,
        sources: Sequence[Callable[[], Any]],
        sensitivity: Sensitivity | None,
        exit: ReleaseGate,
        level: float | None = None,
        smoothness: Smoothness = UNKNOWN,
    ) -> None:
        super().__init__(exit.account, exit.releases)
        self._exit = exit
        self._level = level
        # Never in a variable of a frame: those show in tracebacks.
        self._data = read(form.private, sources)
        clips = () if sensitivity is None else sensitivity.clips
        noisy = exit.calibrated is not None
        self._objective = _guarded(exit.agent, lambda: form.bind(self._data, clips, limited=noisy))
        self._private = bool(form.private)
        self._secret = self._private and (sensitivity is None or sensitivity.bound(2).value > 0)
        self._sensitivity = sensitivity
        self._noisy = sensitivity is not None and noisy
        # h(x) + J d: the private part is computed by itself, so that the rounding of large public
        # numbers, which could differ between neighbours, stays outside.
        self._splits = sensitivity is not None and noisy and sensitivity.splits
        self._slope: Array | None = None
        if not self._splits:
            self._data = []
        self._public, self._form_size = form.at_zero(), form.n
        # What is kept is nobody's to see: the bound has to hold at all points.
        self._change = sensitivity.bound(2).value if self._noisy and sensitivity else 0.0
        self._claimed, self._curvature = smoothness.asserted, smoothness.curvature
        self._kept = SecretState(
            lambda x: self._exact(x, self._change, False),
            (lambda x: public_part(self._public, x)) if self._change > 0 else None,
            _shift(sensitivity, smoothness) if sensitivity and self._change > 0 else None,
        )

    def gradient(self, x: Array, through: Contraction | None = None) -> Array:
        """Gradient at x, mapped if asked, plus noise scaled to its sensitivity."""
        place = self._next()
        noise = self._noise
        bound = 0.0 if noise is None else self._bound(x, noise.mechanism.norm)
        mapped_bound = bound
        if through is not None and noise is not None:
            mapped_bound *= through.norm1 if noise.mechanism.norm == 1 else through.norm2
        grid, entry = self._entry(place, mapped_bound, x.size, "gradient", secret=bound > 0)
        apart = self._splits and bound > 0

        def mapped() -> Array:
            g = self._exact(x, bound, apart)
            return _guarded(self._exit.agent, lambda: _mapped(g, through))

        released = self._exit(place, entry, mapped, grid)
        return _mapped(public_part(self._public, x), through) + released if apart else released

    def step(self, x: Array, move: Descent) -> Array:
        """The new point for the gradient at x, plus noise."""
        if not move.whole and (self._level is None or self._exit.calibrated is None):
            return super().step(x, move)
        place = self._next()
        noise = self._noise
        bound = 0.0 if noise is None else self._bound(x, noise.mechanism.norm, move.moving)
        apart = self._splits and bound > 0
        # For the private part to be added to, and for the rounding of points that leave.
        asked = apart or (bound > 0 and self._level is None)
        public = public_part(self._public, x) if asked else np.zeros_like(x)
        if self._level is not None and noise is not None:
            grid = noise.hidden_grid(self._level, x.size)
            entry = _entry(noise, place, grid, "iterate", "derived")
        else:
            size = _chosen(move, x).size
            floor = _floor(move.center) + _floor(move.size * public)
            grid, entry = self._entry(
                place, move.size * bound, size, "iterate", floor=floor, secret=bound > 0
            )

        def moved() -> Array:
            g = self._exact(x, bound, apart)
            g = public + g if apart else g
            return _guarded(self._exit.agent, lambda: _chosen(move, move(g)))

        return _put(move, self._exit(place, entry, moved, grid))

    def minimiser(self, v: Array, search: Minimisation, projector: Projector) -> Array:
        """The end of the search at the exact objective, plus noise."""
        place = self._next()
        noise, bound = self._noise, 0.0
        if noise is not None:
            bound = self._minimiser_bound(noise, search, projector)
        secret, floor = self._change > 0 and noise is not None, 0.0
        if secret:
            start = projector.nearest(v)
            slope = public_part(self._public, start)
            floor = _floor(v) + _floor(start) + _floor(search.stretch * slope)
            floor = (floor + _floor(projector.centers())) * search.repeats
        grid, entry = self._entry(
            place, bound, v.size, "local minimiser", floor=floor, secret=secret
        )

        def found() -> Array:
            return _guarded(
                self._exit.agent,
                lambda: search(v, lambda x: self._exact(x, self._change, False), projector.nearest),
            )

        return self._exit(place, entry, found, grid)

    def _minimiser_bound(
        self, noise: Calibrated, search: Minimisation, projector: Projector
    ) -> float:
        bound = self._change * search.stretch * _spread(noise, self._form_size)
        sensitivity, known = self._sensitivity, self._curvature
        if noise.mechanism.norm == 2 or not projector.separable or not self._change:
            return bound
        if sensitivity is None or known is None:
            return bound
        one = search.stretch_in_l1(known.center, known.spread) * (1 + 1e-9)
        return min(bound, sensitivity.bound(1).value * one)

    def keep(self, name: str, recipe: LinearCombination) -> None:
        """Make a vector that stays here."""
        _guarded(self._exit.agent, lambda: self._kept.keep(name, recipe))

    def vector(self, name: str) -> Array:
        """A kept vector plus noise."""
        kept = self._kept
        return self._shown(
            lambda p: kept.reach(name, p), lambda: kept.vector(name).copy(), "point",
            kept.size(name), kept.secret(name),
        )  # fmt: skip

    def slope(self, name: str) -> Array:
        """The gradient at a kept vector plus noise."""
        kept = self._kept
        return self._shown(
            lambda p: kept.slope_reach(name, p), lambda: kept.slope(name),
            "gradient at that point", kept.slope_size(name), True,
        )  # fmt: skip

    def _shown(
        self,
        reach: Callable[[int], float],
        compute: Callable[[], Array],
        released: str,
        size: float,
        secret: bool,
    ) -> Array:
        place = self._next()
        noise, n = self._noise, self._form_size
        private = noise is not None and self._change > 0
        bound = reach(noise.mechanism.norm) if noise is not None and private else 0.0
        grid, entry = self._entry(
            place, bound, n, released, self._claimed, _ROUNDING * size, private and secret
        )
        return self._exit(place, entry, lambda: _guarded(self._exit.agent, compute), grid)

    def uniform(self, size: int) -> Array:
        """From the agent's own source, before the noise of the round.

        An agent with nothing to hide needs no secrets, and its points are then known from messages.
        """
        return self._exit.uniform(self._round, size) if self._secret else super().uniform(size)

    def solution(self, x: Array, step: ProximalStep) -> Array:
        """Local step at the exact gradient plus noise shaped like the step's own geometry.

        The projection is nonexpansive in the D-norm, so ``sqrt(D) x+`` moves by at most
        ``||D^(-1/2) (g - g')||_2`` between neighbours (and by the l1 analogue where W is a product
        of intervals). Where W has no closed form, a fixed number of steps takes its place, which
        move by at most 3 % more, however close to the projection they end: no solver is asked.

        With an asserted sensitivity the solver is asked. If it finds no point, the anchor takes
        the place of its answer, and nothing shows.
        """
        place = self._next()
        root = np.sqrt(step.D)
        bound, reach = self._solution_bound(x, step, root)
        if step.asserted is not None and bound > 0:
            root = np.ones_like(root)
        secret = self._noise is not None and (bound > 0 or self._matters(x))
        floor = 0.0
        if secret:
            public = public_part(self._public, x) / step.D
            centers = step.projector.centers()
            floor = max(_floor(root * p) for p in (step.center, public, step.anchor, centers))
        grid, entry = self._entry(
            place, bound, x.size, "solution of the local step", step.asserted is not None,
            floor, secret,
        )  # fmt: skip
        # Closed forms need no limit; an l2 limit would not keep an l1 bound of a box.
        limited = bound > 0 and not step.projector.closed_form

        def local(g: Array) -> Array | None:
            if limited and step.asserted is None:
                return step.steady(g, reach)
            return (step.within(g, reach) if limited else step(g)).x

        def solved() -> Array:
            g = self._exact(x, bound, False)
            found = _guarded(self._exit.agent, lambda: local(g))
            return step.anchor if found is None else found

        return self._exit(place, entry, solved, grid, root)

    def _exact(self, x: Array, bound: float, apart: bool) -> Array:
        """The gradient, or its private part alone."""
        # Where the gradient is certified not to depend on the data, its rounding may not either.
        noisy = self._exit.calibrated is not None
        objective = self._public if noisy and bound == 0 else self._objective
        if self._splits and bound > 0:
            slope = self._private_part()
            return slope if apart else public_part(self._public, x) + slope
        g = _guarded(self._exit.agent, lambda: objective.gradient(x))
        return np.where(np.isfinite(g), g, 0.0)

    def _private_part(self) -> Array:
        # Kept from the first release on, which was charged before.
        sensitivity = self._sensitivity
        if self._slope is None and sensitivity is not None:
            self._slope = _guarded(self._exit.agent, lambda: sensitivity.slope(self._data))
        assert self._slope is not None
        return self._slope

    def _bound(self, x: Array, p: int, scale: Array | None = None) -> float:
        """Sensitivity of the gradient in lp: over the agent's set, or at a point x that left it."""
        sensitivity = self._sensitivity
        if sensitivity is None or not self._noisy:
            return 0.0
        value = sensitivity.near(p, x, scale)
        if value == math.inf:
            raise PrivacyError(
                f"Agent '{self._exit.account.agent}' reached a point at which the effect of one "
                f"change on the gradient is not bounded: {sensitivity.obstacle}, and a term leaves "
                "its domain or has an infinite slope there for some admissible data. Keep its "
                "variables away from there by constraints, or write dp.Agent(..., clip=1.0)."
            )
        return value

    def _matters(self, x: Array) -> bool:
        """Whether the data matter to the gradient at x, if only by less than a number holds."""
        return self._change > 0 and self._bound(x, 2, np.full(x.size, _FAR_UP)) > 0

    def _solution_bound(self, x: Array, step: ProximalStep, root: Array) -> tuple[float, float]:
        """Sensitivity of the scaled solution, and the reach within which it holds."""
        noise = self._noise
        if noise is None or self._sensitivity is None or self._sensitivity.bound(2).value == 0:
            return 0.0, math.inf
        l2 = self._bound(x, 2, 1 / root)
        if l2 == 0 and not self._matters(x):
            return 0.0, math.inf
        spread = _spread(noise, root.size)
        # Earlier noise can have carried x away from W; the step may have to undo that.
        drawn = noise.multiplier * spread * l2 * math.sqrt(root.size)
        reach = step.reach + 4.0 * drawn
        if step.asserted is not None:
            return step.asserted, reach
        if noise.mechanism.norm == 1 and step.projector.separable:
            return self._bound(x, 1, 1 / root), reach
        return spread * (step.projector.stretch * l2 + 2 * step.rounding(reach)), reach

    def _entry(
        self,
        place: tuple[int, int],
        bound: float,
        size: int,
        released: str,
        asserted: bool = False,
        floor: float = 0.0,
        secret: bool = False,
    ) -> tuple[Grid | None, Entry | None]:
        if self._noise is None:
            exposed = Entry(*place, "none", 0.0, math.inf, 0.0, "none", released)
            return None, exposed if self._private else None
        if secret and bound == 0:
            raise PrivacyError(
                f"What one change does to the {released} of agent '{self._exit.account.agent}' is "
                "too small for a number, so that no noise can be scaled to it. Scale the problem "
                "up, or take larger steps."
            )
        if bound == 0:
            return None, None
        certificate = "derived" if self._sensitivity is None else self._sensitivity.certificate
        certificate = "asserted" if asserted else certificate
        return entry_for(self._noise, place, bound, size, released, certificate, floor)

    @property
    def _noise(self) -> Calibrated | None:
        """The mechanism, with the multiplier of this release."""
        return self._exit.calibrated and self._exit.calibrated.at(self._round, self._step)

    def __repr__(self) -> str:
        exit = getattr(self, "_exit", None)  # None while it is being made
        return f"PrivateOracle(agent={'?' if exit is None else exit.agent})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("An oracle holds private data and is never pickled.")


class PublicOracle(_Numbered):
    """Exact answers from a public objective: all private data were released once, with noise."""

    def __init__(
        self, objective: BoundObjective, account: Account, releases: list[Release]
    ) -> None:
        super().__init__(account, releases)
        self._objective = objective
        self._kept = SecretState(objective.gradient, None, None)

    def gradient(self, x: Array, through: Contraction | None = None) -> Array:
        """Gradient of the public objective at x."""
        return _mapped(self._objective.gradient(x), through)

    def step(self, x: Array, move: Descent) -> Array:
        """The new point."""
        return _put(move, _chosen(move, super().step(x, move)))

    def keep(self, name: str, recipe: LinearCombination) -> None:
        """Make a vector."""
        self._kept.keep(name, recipe)

    def vector(self, name: str) -> Array:
        """A vector that was made."""
        return self._kept.vector(name).copy()

    def slope(self, name: str) -> Array:
        """The gradient of the objective there."""
        return self._kept.slope(name)

    def minimiser(self, v: Array, search: Minimisation, projector: Projector) -> Array:
        """The end of the search at that objective."""
        return search(v, self._objective.gradient, projector.nearest)

    def solution(self, x: Array, step: ProximalStep) -> Array:
        """The local step at that gradient."""
        found = step(self._objective.gradient(x))
        return step.anchor if found.x is None else found.x


class ReplayOracle(_Numbered):
    """Answers from a transcript; holds no data, adds no noise, spends nothing.

    Parameters
    ----------
    agent : int
    releases : iterable of Release
    account : Account
    public : BoundObjective, optional
        Answers where nothing was recorded, because no answer depended on private data.
    added : BoundObjective, optional
        Its gradient is added to recorded gradients: what left was the private part alone.
    """

    def __init__(
        self,
        agent: int,
        releases: Iterable[Release],
        account: Account,
        public: BoundObjective | None = None,
        added: BoundObjective | None = None,
    ) -> None:
        super().__init__(account, [])
        self._added = added
        self._values = {(r.round, r.step): r.value for r in releases if r.agent == agent}
        self._public = None if public is None else PublicOracle(public, account, [])
        self._shape: tuple[int, ...] = ()

    def gradient(self, x: Array, through: Contraction | None = None) -> Array:
        """The recorded answer."""
        place = self._next()
        if place not in self._values and self._public is not None:
            return self._public.gradient(x, through)
        recorded = self._recorded(place, x.shape)
        if self._added is None:
            return recorded
        return _mapped(public_part(self._added, x), through) + recorded

    def step(self, x: Array, move: Descent) -> Array:
        """The recorded point, or a step along the recorded gradient."""
        if not move.whole:
            return super().step(x, move)
        place = self._next()
        if place not in self._values and self._public is not None:
            return self._public.step(x, move)
        return _put(move, self._recorded(place, _chosen(move, x).shape))

    def keep(self, name: str, recipe: LinearCombination) -> None:
        """What was kept is not known; what is public is made again."""
        self._shape = recipe.center.shape
        if self._public is not None:
            self._public.keep(name, recipe)

    def vector(self, name: str) -> Array:
        """The recorded answer."""
        return self._answer(lambda public: public.vector(name))

    def slope(self, name: str) -> Array:
        """The recorded answer."""
        return self._answer(lambda public: public.slope(name))

    def _answer(self, otherwise: Callable[[PublicOracle], Array]) -> Array:
        place = self._next()
        if place not in self._values and self._public is not None:
            return otherwise(self._public)
        return self._recorded(place, self._shape)

    def minimiser(self, v: Array, search: Minimisation, projector: Projector) -> Array:
        """The recorded end."""
        place = self._next()
        if place not in self._values and self._public is not None:
            return self._public.minimiser(v, search, projector)
        return self._recorded(place, v.shape)

    def solution(self, x: Array, step: ProximalStep) -> Array:
        """The recorded answer."""
        place = self._next()
        if place not in self._values and self._public is not None:
            return self._public.solution(x, step)
        return self._recorded(place, x.shape)

    def _recorded(self, place: tuple[int, int], shape: tuple[int, ...]) -> Array:
        value = self._values.get(place)
        if value is None or value.shape != shape:
            raise PrivacyError(
                f"The transcript has no release of shape {shape} for round {place[0]}, step "
                f"{place[1]}: it belongs to another plan, or to a run that stopped earlier."
            )
        return value.copy()


def _shift(sensitivity: Sensitivity, smoothness: Smoothness) -> Shift:
    """What one change of the data does to gradients."""
    n, M = sensitivity.extent.lower.size, smoothness.value
    if sensitivity.constant:
        size = sum(spec.size for spec in sensitivity.private)
        return fixed_shift(n, size, sensitivity.mapped, M, smoothness.curvature)
    return varying_shift(n, sensitivity.mapped, M, smoothness.turn, sensitivity.changes)


def _spread(noise: Calibrated, size: int) -> float:
    """What bounds in l2 are multiplied by to become bounds in the mechanism's norm."""
    return math.sqrt(size) if noise.mechanism.norm == 1 else 1.0


def _floor(center: Array) -> float:
    """A grid's width of which rounding errors of the point are a small part.

    However small the step is next to the point.
    """
    return _ROUNDING * float(np.abs(center).max(initial=0.0))


def _chosen(move: Descent, x: Array) -> Array:
    """The components that leave."""
    return x if move.only is None else x[move.only]


def _put(move: Descent, value: Array) -> Array:
    """The new point, of which these components left."""
    if move.only is None:
        return value
    x = move.center.copy()
    x[move.only] = value
    return x


def _mapped(g: Array, through: Contraction | None) -> Array:
    return g if through is None else through(g)


def public_part(public: BoundObjective, x: Array) -> Array:
    """Gradient of the public part of an objective; 0 where it is not finite."""
    g = public.gradient(x)
    return np.where(np.isfinite(g), g, 0.0)


def entry_for(
    calibrated: Calibrated,
    place: tuple[int, int],
    bound: float,
    size: int,
    released: str,
    certificate: Literal["derived", "asserted"] = "derived",
    floor: float = 0.0,
) -> tuple[Grid, Entry]:
    """Grid and ledger entry of a release of `size` components with a sensitivity bound."""
    grid = calibrated.grid(bound, size, floor)
    return grid, _entry(calibrated, place, grid, released, certificate)


def _entry(
    calibrated: Calibrated,
    place: tuple[int, int],
    grid: Grid,
    released: str,
    certificate: Literal["derived", "asserted"],
) -> Entry:
    return Entry(
        round=place[0],
        step=place[1],
        mechanism=str(calibrated.mechanism),
        multiplier=calibrated.multiplier,
        sensitivity=grid.sensitivity,
        grid=grid.width,
        certificate=certificate,
        released=released,
    )


def publish(
    form: NormalForm,
    sources: Sequence[Callable[[], Any]],
    publication: Statistic | None,
    exit: ReleaseGate,
) -> PublicOracle:
    """Release an agent's data once, and answer from the surrogate for ever after.

    Parameters
    ----------
    form : NormalForm
    sources : sequence of callables
        One per private parameter; called here, once.
    publication : Statistic or None
        None where the gradient does not depend on the data: nothing is read then.
    exit : ReleaseGate
        With a calibrated mechanism, where something is released.
    """
    if publication is None:
        return PublicOracle(form.at_zero(), exit.account, exit.releases)
    assert exit.calibrated is not None
    place = (0, 1)
    # Before the charge: data that cannot be used cost nothing.
    compute = _statistic(exit, place, form, sources, publication)
    grid, entry = entry_for(
        exit.calibrated, place, publication.sensitivity, publication.size, publication.kind
    )
    released = exit(place, entry, compute, grid)
    surrogate = form.bind(publication.restore(released))
    return PublicOracle(surrogate, exit.account, exit.releases)


def _statistic(
    exit: ReleaseGate,
    place: tuple[int, int],
    form: NormalForm,
    sources: Sequence[Callable[[], Any]],
    publication: Statistic,
) -> Callable[[], Array]:
    """What computes the statistic from data that are read here, unless it has left already."""
    data = [] if exit.made(place) else read(form.private, sources)
    return lambda: _guarded(exit.agent, lambda: publication.statistic(data))


def published(
    agent: int,
    form: NormalForm,
    publication: Statistic | None,
    releases: Iterable[Release],
    account: Account,
) -> PublicOracle:
    """The oracle that `publish` made, from its release."""
    if publication is None:
        return PublicOracle(form.at_zero(), account, [])
    for release in releases:
        if (release.agent, release.round, release.step) == (agent, 0, 1):
            return PublicOracle(form.bind(publication.restore(release.value)), account, [])
    raise PrivacyError("The transcript has no release of the agent's data: it is of another plan.")


def read(specs: Sequence[PrivateSpec], sources: Sequence[Callable[[], Any]]) -> list[Array]:
    """Fetch and check private values: flat column-major arrays, one per private parameter."""
    return [unseal(source, spec) for spec, source in zip(specs, sources, strict=True)]


def _guarded(agent: int, compute: Callable[[], T]) -> T:
    """Compute on private data without warnings and without messages that could quote them."""

    def refusal(kind: str) -> PrivacyError:
        return PrivacyError(
            f"A computation on the private data of agent {agent} failed with {kind}; the message "
            "is withheld, because it may quote the data."
        )

    return guarded(compute, refusal)
