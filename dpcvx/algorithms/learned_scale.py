r"""The scale of records, learned before the first step: their clip, mean and largest curvature.

Bounds that users declare may be far from the data, and no public number tells. A small part of the
budget does. Its questions are noisy sums over records, and the steps follow from their answers:

* a contribution limit C, v / u times that which about v of the records exceed at the start, by six
  noisy counts, each where the odds of the limit given all counts so far have their middle;
* the mean m and the largest curvature :math:`\lambda` of the sum of losses at the start, each
  record's cut to a limit that one in ten exceeds, which six more counts find;
* then T steps :math:`x_{t+1} = P_W(x_t - \eta_t g_t)` along noisy sums of clipped gradients, with
  :math:`\eta_t = \min(1.5 / \lambda,\, s / (m \sqrt{\max(1, \tau \min(1, 200 p))}))`,
  :math:`\tau = t T_0 / T`; s is the least such that all steps together lead as far as T_0 steps
  whose length only m limits. C follows, by :math:`C e^{h (k - u)}`, the noisy part k of
  the records that exceed it. h is 0.3, or 0.05 over the noise of k where that is less.

p is the noise of one release over the largest sum that records can have, which is public;
:math:`v = \min(14 p, 0.4)`, :math:`u = \min(14 p, \max(0.4, \min(0.25 + 3.5 p, 0.6)))` and
:math:`T_0 = 0.85 / p`, between 5 and 300. A clip that cuts more has less noise and more bias.
The limit of curvatures is too low with odds of one in five, because a low limit lengthens steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from .._arguments import POSITIVE, check_fields, count, number, optional
from ..guard import frameless
from ..model.adjacency import Rows
from ..model.curvature import strong_convexity
from ..model.matrices import spectral_norm
from ..model.normal_form import NormalForm
from ..model.quadratic import quadratic
from ..model.record_curvature import RecordCurvature
from ..privacy.secret_sharing import SecretSum
from .facts import Conditions
from .joint import AtPoint
from .program import LocalProgram, Program, once_per_kind

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# So many counts look for a limit on a grid of half octaves.
_COUNTS, _CELLS = 6, 62
# Parts of what learning may cost: the limit of curvatures, curvatures, and the limit of slopes.
_PARTS = (0.2, 0.4, 0.4)
ROUNDS = 2 * _COUNTS + 1
# Of the records, the part whose curvature is cut.
_CURVED = 0.1
# Their limit is lower with this probability: too low a limit lengthens steps, without a bound.
_LOW = 0.2
# What the count of cut records has of the cost of a step, next to the gradient.
_COUNTED = 2 / 93
# So many standard deviations of a count are taken for noise.
_SURE = 1.5
# Gradients that point back so far, and are so many times as long as their noise, brake by so much.
_BACK, _LOUD, _BRAKE = 0.3, 2.0, 0.7
# Louder noise tells nothing of a scale.
LOUDEST = 0.1
# A clip follows what is counted, down to 1/30 of the first and up to 8 times: longer gradients come
# from steps that lead away, and noise would grow with the clip.
_FOLLOWS, _DOWN, _UP = 0.3, 30.0, 8.0
# Noise of counts moves the logarithm of a clip by no more than this in a round: by more, the clip
# would wander, and with it the length of steps.
_SHAKES = 0.05
# Before any count, a limit is so much less likely by half octave below the declared bounds.
_RARER = 0.1
# A limit is exceeded by all but a part of the records a few half octaves below that which few
# exceed. This holds for most data only, as if by so much noise.
_SPREAD, _DOUBT = 6.0, 0.3
# Steps in a run: enough to be short next to curvature, and few where noise is loud.
_FEWEST_STEPS, _MOST_STEPS = 150, 300

_LEAST = number(lambda v: v >= 0, "of at least 0")
_SHARE = number(lambda v: 0 < v < 1, "between 0 and 1").because(
    "that part of the budget is spent before the first step"
)


@frameless
@dataclass(frozen=True)
class LearnScale:
    """Learn the scale of records before the steps of `dpcvx.FederatedGradient`.

    A part of the budget buys the sizes of records' gradients and the curvature of their losses. The
    guarantee covers these releases, which are the first 13 rounds of the plan.

    Parameters
    ----------
    share : float
        Share of the budget for learning, as a share of the squared inverse noise multipliers.
    noise : float, optional
        Noise of one release over the largest sum that records can have; chosen if omitted.
    most : float, optional
        Largest clip, as a multiple of the agents' clips; unlimited if omitted.
    least : float
        Smallest clip, as a multiple of the agents' clips.
    steps : int, optional
        Number of rounds that take steps; chosen if omitted.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    share: float = 0.05
    noise: float | None = None
    most: float | None = None
    least: float = 0.0
    steps: int | None = None

    def __post_init__(self) -> None:
        check_fields(
            self,
            "dp.LearnScale",
            share=_SHARE,
            noise=optional(POSITIVE),
            most=optional(POSITIVE),
            least=_LEAST,
            steps=optional(count()),
        )

    @property
    def parts(self) -> tuple[float, ...]:
        """Shares of the budget that the first rounds spend, by round."""
        counts, sums, more = (part * self.share for part in _PARTS)
        return (*[counts / _COUNTS] * _COUNTS, sums, *[more / _COUNTS] * _COUNTS)

    @property
    def sought(self) -> float:
        """Share v of the records whose gradients the first clip cuts."""
        assert self.noise is not None
        return min(14 * self.noise, 0.4)

    @property
    def cut(self) -> float:
        """Share u of the records whose gradients are cut, which the clip follows."""
        assert self.noise is not None
        return min(14 * self.noise, max(0.4, min(0.25 + 3.5 * self.noise, 0.6)))

    @property
    def reach(self) -> int:
        """T_0, the number of free steps that lead to the answer."""
        assert self.noise is not None
        return int(np.clip(round(0.85 / max(self.noise, 1e-9)), 5, 300))

    @property
    def rounds(self) -> int:
        """Rounds of a run, including those that learn the scale; the fewest while p is unknown."""
        steps = _FEWEST_STEPS if self.noise is None else self.reach
        return ROUNDS + int(np.clip(steps, _FEWEST_STEPS, _MOST_STEPS))

    def resolved(self, conditions: Conditions, program: Program) -> LearnScale:
        """Return the rule with the numbers of a plan.

        Parameters
        ----------
        conditions : Conditions
            Conditions of steps with noise.
        program : Program
            Program with clips of all agents with records.
        """
        steps, noise = conditions.rounds - ROUNDS, self.noise
        if noise is None:
            once = math.sqrt((1 - self.share) / max(1, steps))
            largest = sum(records_of(a) * (a.clip or 0.0) for a in program.agents)
            whole = once * math.sqrt(program.agents[0].n) * math.hypot(*conditions.noise)
            noise = whole / largest if largest > 0 else math.inf
        return replace(self, noise=noise, steps=steps)


def records_of(local: LocalProgram) -> int:
    """Return an agent's number of records; all its private objects have as many rows."""
    rows = (spec.shape[0] for spec in local.form.private if isinstance(spec.adjacency, Rows))
    return next(rows, 0)


# What agents may be asked.
QUESTIONS = ("bends", "curvature", "reaches", "gradient")


@dataclass(frozen=True, eq=False)
class ScaleQuestion(AtPoint):
    """Query to agents while the scale is learned, and for gradients in this scale.

    Attributes
    ----------
    what : {"bends", "curvature", "reaches", "gradient"}
        A count of records by curvature, sums of curvatures, a count by contribution, or a gradient.
    limit : float
        Limit of the trace of a record's curvature, or of its contribution as a multiple of the
        clip.
    unit : float
        Unit of sums of curvatures; weight of a record in a count, by itself or beside a gradient.
    sums : SecretSum or None
        Secret sum of the answers; None if the server side adds up.
    """

    what: str
    limit: float
    unit: float
    sums: SecretSum | None = None

    @property
    def answers(self) -> int:
        """Return the number of entries of an agent's answer."""
        return {"curvature": 2, "gradient": self.size + 1}.get(self.what, 1)


@dataclass(frozen=True)
class Units:
    """Units of the answers, so that a sum with distributed noise has one noise for all queries.

    In these units, one change moves the answers to all kinds of queries by equal amounts. Only
    agents with smaller gradients than others move less.

    Attributes
    ----------
    beside : float
        Weight of a record in the count beside a gradient.
    counted : float
        Weight of a record in a count by itself.
    curved : float
        Unit of sums of curvatures.
    """

    beside: float
    counted: float = 1.0
    curved: float = 1.0

    @staticmethod
    def of(program: Program, secret: bool) -> Units:
        """Return the units for a program; `secret`: for sums with distributed noise."""
        changes = [change for change in map(_change, program.agents) if change > 0]
        beside = math.sqrt(_COUNTED) * min(changes, default=0.0)
        moved = [pair for pair in once_per_kind(program.agents, _moved) if pair[1]]
        if not secret or not moved:
            return Units(beside)
        most = max(math.hypot(gradient, beside * records) for gradient, records in moved)
        counted = most / max(records for _, records in moved)
        return Units(beside, counted, counted / math.sqrt(2))

    def moves(self, local: LocalProgram) -> float:
        """Return the largest l2 move of an agent's answer to any query, by one change."""
        gradient, records = _moved(local)
        return max(math.hypot(gradient, self.beside * records), self.counted * records)


def _moved(local: LocalProgram) -> tuple[float, int]:
    """Return the l2 move of an agent's clipped gradient, and the records that one change moves."""
    if not records_of(local) or local.clip is None:
        return 0.0, 0
    sensitivity = local.sensitivity()
    return sensitivity.change_by_clips, sensitivity.moved_records


@dataclass(frozen=True, eq=False)
class Scale:
    """Scale that is learned so far, from released values alone.

    Attributes
    ----------
    rule : LearnScale
        Rule with all its numbers.
    n : int
        Entries of the common point.
    records : int
        Number of records of all agents.
    bends : tuple of float
        Public number that the curvature of an agent's records hardly exceeds, by agent.
    units : Units
        Units of the answers.
    public : (float, float)
        Mean and largest curvature of public terms.
    odds : ndarray, shape (63,)
        Probability that the limit is there, by half octave below the declared bounds.
    limit : float
        Limit of curvatures, as a multiple of `bends`.
    mean, largest : float
        Curvatures of the sum of all losses.
    first, multiple : float
        The clip, as a multiple of the agents' clips: at the start, and now.
    exceeded : float
        Part of the records that exceeded it last.
    whole : float
        The largest sum of the records' contributions, each at its agent's clip.
    brake : float
        Factor by which steps are shorter than planned.
    last : ndarray or None
        The sum of gradients of the round before.
    moved : float
        Move of a clipped gradient by one change, in clips: 2 where records are replaced, 1 where
        they come or go.
    """

    rule: LearnScale
    n: int
    records: int
    bends: tuple[float, ...]
    units: Units
    public: tuple[float, float]
    odds: Array = field(default_factory=lambda: _before())
    limit: float = math.nan
    mean: float = math.nan
    largest: float = math.nan
    first: float = math.nan
    multiple: float = math.nan
    exceeded: float = math.nan
    whole: float = 0.0
    brake: float = 1.0
    last: Array | None = None
    moved: float = 2.0

    @staticmethod
    def of(rule: LearnScale, program: Program, secret: bool = False) -> Scale:
        """Return the scale before anything is learned.

        Parameters
        ----------
        rule : LearnScale
        program : Program
        secret : bool
            Whether answers are added up in secret, with distributed noise.
        """
        agents = program.agents
        terms = once_per_kind(agents, lambda local: _public(local.form))
        clipped = [local for local in agents if _change(local) > 0]
        return Scale(
            rule,
            agents[0].n,
            sum(records_of(local) for local in agents),
            tuple(once_per_kind(agents, _bends)),
            Units.of(program, secret),
            (sum(mean for mean, _ in terms), sum(most for _, most in terms)),
            whole=sum(records_of(local) * (local.clip or 0.0) for local in agents),
            moved=min(once_per_kind(clipped, _changes), default=2.0),
        )

    def asked(self, t: int) -> tuple[str, float]:
        """Return a round's kind of query, and its limit as a multiple of the agents' numbers."""
        if t == _COUNTS + 1:
            return "curvature", self.limit
        if t > ROUNDS:
            return "gradient", self.multiple
        return "bends" if t <= _COUNTS else "reaches", 2.0 ** (-_quantile(self.odds) / 2)

    def question(
        self, t: int, agent: int, point: Array, columns: Index, size: int
    ) -> ScaleQuestion:
        """Return the query to an agent in a round."""
        what, limit = self.asked(t)
        unit = self.units.counted
        if what in ("bends", "curvature"):
            limit *= self.bends[agent]
        if what == "curvature":
            unit = self.units.curved * self.bends[agent] / max(self.bends)
        if what == "gradient":
            unit = self.units.beside
        return ScaleQuestion(point, columns, size, what, limit, unit)

    def learned(self, t: int, total: Array) -> Scale:
        """Return the scale after a round that learns it, from the noisy sum of all answers."""
        if t == _COUNTS + 1:
            return self._with_curvature(total / self.units.curved)
        counted = float(total[0]) / self.units.counted
        odds = self._counted(t, counted / max(1, self.records))
        if t % (_COUNTS + 1) < _COUNTS:
            return replace(self, odds=odds)
        done = replace(self, odds=_before())
        if t <= _COUNTS:
            return replace(done, limit=_limit(odds, _LOW))
        # Counts that are this loud hardly move the clip from here to where it cuts u.
        first = self._within(_limit(odds, 0.5) * self.rule.sought / self.rule.cut)
        return replace(done, first=first, multiple=first)

    def _counted(self, t: int, above: float) -> Array:
        """Return the odds after a count: that part of the records, with noise, is above the limit.

        If the limit that is looked for is just above q half octaves below the bounds, at most the
        wanted part is above larger limits, and more is above all others.
        """
        budget = self.rule.parts[0] if t <= _COUNTS else self.rule.parts[-1]
        wanted = _CURVED if t <= _COUNTS else self.rule.sought
        # Too low a limit cuts off more, and too high a one has noise that nothing makes up for.
        noise = self._noise(budget)
        part = max(wanted, min(0.5, _SURE * noise))
        below = np.maximum(0.0, 1.0 + _quantile(self.odds) - np.arange(_CELLS + 1.0))
        least = np.where(below > 0, part, 0.0)
        missed = np.maximum(least - above, above - np.where(below > 0, 1.0, part))
        usual = np.where(below > 0, 1 - (1 - part) * np.exp(-below / _SPREAD), 0.0)
        log = np.log(self.odds) - np.maximum(missed, 0.0) ** 2 / (2 * noise**2)
        log -= np.maximum(usual - above, 0.0) ** 2 / (2 * (noise**2 + _DOUBT**2))
        odds = np.maximum(np.exp(log - log.max()), np.finfo(float).tiny)
        return odds / odds.sum()

    def _noise(self, budget: float) -> float:
        """Return the noise of a count for a part of the budget, as a part of all records."""
        assert self.rule.noise is not None
        return self.rule.noise / (self.moved * math.sqrt(self.n * budget))

    @property
    def _follows(self) -> float:
        """Return how far a clip follows a count: less far where noise of the count is loud."""
        assert self.rule.steps is not None
        noise = self._noise(_COUNTED * (1 - self.rule.share) / self.rule.steps)
        return min(_FOLLOWS, _SHAKES / max(noise, 1e-9))

    def _with_curvature(self, total: Array) -> Scale:
        limit = self.limit * max(self.bends)
        # One tells a scale, where noise hides all else.
        most = max(1, self.records) * limit
        mean, largest = (float(v) * limit for v in total)
        noise = math.sqrt(2) * self._noise(self.rule.parts[_COUNTS])
        least = max(0.02, min(1.0, _SURE * noise)) * most / self.n
        mean = float(np.clip(mean / self.n, least, most)) + self.public[0]
        largest = float(np.clip(largest + self.public[1], mean, most + self.public[1]))
        return replace(self, mean=mean, largest=largest)

    def stepped(self, total: Array) -> tuple[Array, Scale]:
        """Return the sum of all gradients, and the clip of the next one."""
        exceeded = float(total[-1]) / (self.units.beside * self.records)
        turn = float(np.clip(exceeded - self.rule.cut, -1, 1))
        multiple = self.multiple * math.exp(self._follows * turn)
        multiple = float(np.clip(multiple, self.first / _DOWN, self.first * _UP))
        gradient, brake = self.multiple * total[:-1], self.brake
        if self._turned(gradient):
            brake *= _BRAKE
        now = replace(self, exceeded=exceeded, brake=brake, last=gradient)
        return gradient, replace(now, multiple=self._within(multiple))

    def _turned(self, gradient: Array) -> bool:
        """Return whether a gradient points back, and noise cannot be why: steps are too long.

        Losses may bend more on the way than at the start, as exponentials do.
        """
        if self.last is None:
            return False
        assert self.rule.noise is not None and self.rule.steps is not None
        once = self.rule.noise * math.sqrt(self.rule.steps / (1 - self.rule.share))
        noise = _LOUD * once * self.whole * self.multiple
        size, before = float(np.linalg.norm(gradient)), float(np.linalg.norm(self.last))
        return min(size, before) > noise and float(gradient @ self.last) < -_BACK * size * before

    def _within(self, multiple: float) -> float:
        """Return a multiple in its range."""
        most = math.inf if self.rule.most is None else self.rule.most
        return max(min(multiple, most), self.rule.least)

    def step(self, t: int) -> float:
        """Return the step size of a round; see the equations above."""
        assert self.rule.noise is not None and self.rule.steps is not None
        T, T0, falls = self.rule.steps, self.rule.reach, min(1.0, 200 * self.rule.noise)

        def free(tau: Array) -> Array:
            return 1 / (self.mean * np.sqrt(np.maximum(1.0, tau * falls)))

        far, most = free(np.arange(1.0, T0 + 1)).sum(), 1.5 / self.largest
        base, s = free(np.arange(1.0, T + 1) * T0 / T) * T0 / T, 1.0
        eta = np.minimum(most, s * base)
        while eta.sum() < far * (1 - 1e-9) and eta.min() < most:
            s *= 1.25
            eta = np.minimum(most, s * base)
        return float(eta[t - ROUNDS - 1]) * self.brake

    def said(self) -> str:
        """Return a text on the learned scale, for the result."""
        tighter = ", so that tighter bounds would do" if self.multiple < 0.5 else ""
        return (
            f"learned scale: a gradient's clip ended at {self.multiple:.2g} times what declared "
            f"bounds allow a record at the start{tighter}; losses bend by {self.mean:.3g} on "
            f"average and by {self.largest:.3g} at most"
        )


def _before() -> Array:
    """Return the odds of all limits before any count."""
    odds = np.exp(-_RARER * np.arange(_CELLS + 1.0))
    return odds / odds.sum()


def _quantile(odds: Array, part: float = 0.5) -> int:
    """Return the half octaves to the middle of the odds, or to another part of them."""
    return int(np.searchsorted(np.cumsum(odds), part * odds.sum()))


def _limit(odds: Array, part: float) -> float:
    """Return the limit that is exceeded with this part of the odds."""
    return 2.0 ** (-max(_quantile(odds, part) - 0.5, 0.0) / 2)


def _change(local: LocalProgram) -> float:
    """Return the move of a clipped gradient by one change; 0 if no records are clipped."""
    return (local.clip or 0.0) * _changes(local)


def _changes(local: LocalProgram) -> float:
    """Return the same in clips: 2 where records are replaced, 1 where they come or go, else 0."""
    rows = (spec.adjacency for spec in local.form.private if isinstance(spec.adjacency, Rows))
    kinds = {adjacency.relation for adjacency in rows}
    return 2.0 if "replace_one" in kinds else float(bool(kinds))


def _public(form: NormalForm) -> tuple[float, float]:
    """Return the mean and largest curvature of an agent's public terms, about."""
    H = quadratic(form).formed
    return max(float(H.trace()) / form.n, strong_convexity(form)), spectral_norm(H)


def _bends(local: LocalProgram) -> float:
    """Return the largest trace of a second derivative at the start, of records at their bounds.

    Limits are looked for below it, over 31 octaves: it need not be a bound.
    """
    if not records_of(local) or local.clip is None:
        return 0.0
    (clip,) = local.sensitivity().clips
    made_up = (local.form.filled(labels, features=1.0) for labels in (1.0, -1.0, 0.0))
    return (
        max(
            RecordCurvature.at(local.form, data, clip, local.start).greatest
            for data in made_up
            if data is not None
        )
        or 1.0
    )
