r"""Learning of the scale of records before the first step: clipping limit and curvatures.

Bounds that users declare may be far from the data, and no public number shows how far. A small part
of the budget is spent on noisy sums over records, and the steps follow from these sums:

* Six noisy counts find the norm that the gradients of about a share v of the records exceed at the
  initial point. Each count is made at the median of the limit's distribution given all counts so
  far. The first clip C is v / u times this norm.
* One noisy sum yields the mean m and the largest curvature :math:`\lambda` of the sum of losses at
  the initial point. Each record's curvature is cut to a limit that one in ten records exceeds,
  which six earlier counts find.
* Then T steps :math:`x_{t+1} = P_W(x_t - \eta_t g_t)` follow noisy sums of clipped gradients, with
  :math:`\eta_t = \min(1.5 / \lambda,\, s / (m \sqrt{\max(1, \tau \min(1, 200 p))}))`,
  :math:`\tau = t T_0 / T`. The factor s is the least one that makes all step sizes add up to the
  sum of T_0 step sizes that only m limits. After a step, C becomes :math:`C e^{h (k - u)}`, where k
  is the noisy share of records that exceed C. h is 0.3, or 0.05 divided by the noise of k if that
  is less.

p is the noise of one release divided by the largest sum that clipped records can have, both public;
:math:`v = \min(14 p, 0.4)`, :math:`u = \min(14 p, \max(0.4, \min(0.25 + 3.5 p, 0.6)))` and
:math:`T_0 = 0.85 / p`, between 5 and 300. A smaller clip has less noise and more bias. The limit
for curvatures is chosen so that it is too low with probability 1/5 only: a low limit lengthens
steps.
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
from ..model.record_rows import RecordCurvature
from ..privacy.secret_sharing import SecretSum
from .facts import Conditions
from .joint import AtPoint
from .program import LocalProgram, Program, once_per_kind

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Number of counts that search for a limit, and number of cells of its grid, in half octaves.
_COUNTS, _CELLS = 6, 62
# Shares of the learning budget: limit of curvatures, sums of curvatures, limit of gradients.
_PARTS = (0.2, 0.4, 0.4)
ROUNDS = 2 * _COUNTS + 1
# Share of the records whose curvature is cut to the limit.
_CURVED = 0.1
# Probability that the chosen limit is too low, which lengthens steps, without a bound.
_LOW = 0.2
# Privacy loss (in zCDP) of the count of clipped records, relative to the gradient beside it.
_COUNTED = 2 / 93
# Number of standard deviations of a count that are attributed to noise.
_SURE = 1.5
# Steps become shorter by _BRAKE if a gradient's cosine with the previous one is below -_BACK, and
# both are longer than _LOUD times their noise.
_BACK, _LOUD, _BRAKE = 0.3, 2.0, 0.7
# Largest p with which a scale can be learned.
LOUDEST = 0.1
# Largest h, and the range of the clip: from 1/30 to 8 times the first clip. Longer gradients come
# from diverging steps, and noise would grow with the clip.
_FOLLOWS, _DOWN, _UP = 0.3, 30.0, 8.0
# Largest move of the clip's logarithm in a round that is due to noise of the count. With a larger
# one, the clip and the step lengths would drift.
_SHAKES = 0.05
# Decrease of the prior log-probability of a limit per half octave below the declared bounds.
_RARER = 0.1
# In most data, nearly all records exceed a limit a few (_SPREAD) half octaves below the limit that
# few exceed. This assumption has the weight of a count with noise _DOUBT.
_SPREAD, _DOUBT = 6.0, 0.3
# Range of the number of steps: enough for steps that are short relative to the curvature, and few
# if noise is large.
_FEWEST_STEPS, _MOST_STEPS = 150, 300

_LEAST = number(lambda v: v >= 0, "of at least 0")
_SHARE = number(lambda v: 0 < v < 1, "between 0 and 1").because(
    "that part of the budget is spent before the first step"
)


@frameless
@dataclass(frozen=True)
class LearnScale:
    """Learn the scale of records before the first step of `dpcvx.FederatedGradient`.

    A part of the budget is spent on noisy sums: on the norms of the records' gradients, and on the
    curvature of the records' losses. These are the first 13 rounds of the plan, and the guarantee
    covers them.

    Parameters
    ----------
    share : float
        Share of the budget for learning, measured in squared inverse noise multipliers.
    noise : float, optional
        Noise p: the noise of one release, divided by the largest sum that clipped records can have;
        computed from the plan if omitted.
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
        """Share v of records: the counts find the norm that this share of gradients exceeds."""
        assert self.noise is not None
        return min(14 * self.noise, 0.4)

    @property
    def cut(self) -> float:
        """Share u of the records whose gradients the clip aims to shorten."""
        assert self.noise is not None
        return min(14 * self.noise, max(0.4, min(0.25 + 3.5 * self.noise, 0.6)))

    @property
    def reach(self) -> int:
        """Number T_0 of steps to the solution if only the mean curvature limited step sizes."""
        assert self.noise is not None
        return int(np.clip(round(0.85 / max(self.noise, 1e-9)), 5, 300))

    @property
    def rounds(self) -> int:
        """Number of rounds, including 13 that learn the scale; the least possible for unknown p."""
        steps = _FEWEST_STEPS if self.noise is None else self.reach
        return ROUNDS + int(np.clip(steps, _FEWEST_STEPS, _MOST_STEPS))

    def resolved(self, conditions: Conditions, program: Program) -> LearnScale:
        """Return the rule with `noise` and `steps` computed from a plan, if omitted.

        Parameters
        ----------
        conditions : Conditions
            Rounds and noise of the run.
        program : Program
            Program in which every agent with records has a clip.
        """
        steps, noise = conditions.rounds - ROUNDS, self.noise
        if noise is None:
            once = math.sqrt((1 - self.share) / max(1, steps))
            largest = sum(records_of(a) * (a.clip or 0.0) for a in program.agents)
            whole = once * math.sqrt(program.agents[0].n) * math.hypot(*conditions.noise)
            noise = whole / largest if largest > 0 else math.inf
        return replace(self, noise=noise, steps=steps)


def records_of(local: LocalProgram) -> int:
    """Return an agent's number of records: the rows of each of its private objects, or 0."""
    rows = (spec.shape[0] for spec in local.form.private if isinstance(spec.adjacency, Rows))
    return next(rows, 0)


# Kinds of queries to agents.
QUESTIONS = ("bends", "curvature", "reaches", "gradient")


@dataclass(frozen=True, eq=False)
class ScaleQuestion(AtPoint):
    """Query to an agent: for a count or for curvatures (to learn the scale), or a gradient.

    Attributes
    ----------
    what : {"bends", "curvature", "reaches", "gradient"}
        Count of records whose curvature exceeds `limit`, sums of curvatures, count of records whose
        contribution exceeds `limit`, or a gradient with such a count beside it.
    limit : float
        Limit for the trace of a record's curvature, or for its contribution as a multiple of the
        agent's clip.
    unit : float
        Unit of the sums of curvatures, or weight of a record in a count.
    sums : SecretSum or None
        Secure aggregation of the answers; None if the server side adds up.
    """

    what: str
    limit: float
    unit: float
    sums: SecretSum | None = None

    @property
    def answers(self) -> int:
        """Return the number of entries of an agent's answer to this query."""
        return {"curvature": 2, "gradient": self.size + 1}.get(self.what, 1)


@dataclass(frozen=True)
class Units:
    """Units of the answers, so that all kinds of queries need distributed noise of one size.

    In these units, one change moves the answers to all kinds of queries by equal amounts, except
    for agents with smaller gradients than other agents.

    Attributes
    ----------
    beside : float
        Weight of a record in a count that is released beside a gradient.
    counted : float
        Weight of a record in a count that is released alone.
    curved : float
        Unit of sums of curvatures.
    """

    beside: float
    counted: float = 1.0
    curved: float = 1.0

    @staticmethod
    def of(program: Program, secret: bool) -> Units:
        """Return the units of agents' counts and sums; `secret` means that noise is distributed."""
        changes = [change for change in map(_change, program.agents) if change > 0]
        beside = math.sqrt(_COUNTED) * min(changes, default=0.0)
        moved = [pair for pair in once_per_kind(program.agents, _moved) if pair[1]]
        if not secret or not moved:
            return Units(beside)
        most = max(math.hypot(gradient, beside * records) for gradient, records in moved)
        counted = most / max(records for _, records in moved)
        return Units(beside, counted, counted / math.sqrt(2))

    def moves(self, local: LocalProgram) -> float:
        """Return the l2 sensitivity of an agent's answer, the largest over the kinds of queries."""
        gradient, records = _moved(local)
        return max(math.hypot(gradient, self.beside * records), self.counted * records)


def _moved(local: LocalProgram) -> tuple[float, int]:
    """Return the l2 sensitivity of an agent's clipped gradient, and the records in one change."""
    if not records_of(local) or local.clip is None:
        return 0.0, 0
    sensitivity = local.sensitivity()
    return sensitivity.change_by_clips, sensitivity.moved_records


@dataclass(frozen=True, eq=False)
class Scale:
    """Scale of records' gradients and curvatures learned so far, from released values alone.

    Attributes
    ----------
    rule : LearnScale
        Rule with a number for every parameter.
    n : int
        Number of entries of the common point.
    records : int
        Number of records of all agents.
    bends : tuple of float
        Public estimate of the largest trace of a record's curvature, by agent.
    units : Units
        Units of the answers.
    public : (float, float)
        Mean and largest curvature of public terms.
    odds : ndarray, shape (63,)
        Probability distribution of the searched limit, by half octave below the declared bounds.
    limit : float
        Learned limit of curvatures, as a multiple of `bends`.
    mean, largest : float
        Learned mean and largest curvature of the sum of all losses.
    first, multiple : float
        First and current clip, as multiples of the agents' clips.
    exceeded : float
        Noisy share of the records whose gradients exceeded the clip in the last round.
    whole : float
        Largest sum of contributions: number of records times clip, over all agents.
    brake : float
        Factor by which steps are shorter than planned.
    last : ndarray or None
        Noisy sum of gradients of the previous round.
    moved : float
        Sensitivity of a clipped gradient in units of the clip: 2 if records are replaced, 1 if they
        are added or removed.
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
        """Return the records' estimated scale before any query.

        Parameters
        ----------
        rule : LearnScale
        program : Program
        secret : bool
            Whether secure aggregation adds up the answers, with distributed noise.
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
        """Return the type of round t's query, and its limit in multiples of `bends` or clips."""
        if t == _COUNTS + 1:
            return "curvature", self.limit
        if t > ROUNDS:
            return "gradient", self.multiple
        return "bends" if t <= _COUNTS else "reaches", 2.0 ** (-_quantile(self.odds) / 2)

    def question(
        self, t: int, agent: int, point: Array, columns: Index, size: int
    ) -> ScaleQuestion:
        """Return the query to an agent in round t.

        Parameters
        ----------
        t : int
        agent : int
            Position of the agent.
        point : ndarray
            Agent's components of the common point.
        columns : ndarray of int
            Positions of these components in the joint vector.
        size : int
            Length of the joint vector.
        """
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
        """Return the scale after round t of learning, from the noisy sum of all answers."""
        if t == _COUNTS + 1:
            return self._with_curvature(total / self.units.curved)
        counted = float(total[0]) / self.units.counted
        odds = self._counted(t, counted / max(1, self.records))
        if t % (_COUNTS + 1) < _COUNTS:
            return replace(self, odds=odds)
        done = replace(self, odds=_before())
        if t <= _COUNTS:
            return replace(done, limit=_limit(odds, _LOW))
        # With large noise, later counts hardly move the clip, so it starts where it cuts about u.
        first = self._within(_limit(odds, 0.5) * self.rule.sought / self.rule.cut)
        return replace(done, first=first, multiple=first)

    def _counted(self, t: int, above: float) -> Array:
        """Return the distribution of the limit (clip or curvature) after one more count.

        If the searched limit is just above q half octaves below the bounds, at most the wanted
        share of the records exceeds larger limits, and more records exceed smaller limits.

        Parameters
        ----------
        t : int
        above : float
            Noisy share of the records that exceed the limit of round t.
        """
        budget = self.rule.parts[0] if t <= _COUNTS else self.rule.parts[-1]
        wanted = _CURVED if t <= _COUNTS else self.rule.sought
        # The wanted share is raised with the noise: too high a limit has noise without any benefit.
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
        """Return the standard deviation of a count's noise, as a share of all records.

        The count is released for this share of the budget.
        """
        assert self.rule.noise is not None
        return self.rule.noise / (self.moved * math.sqrt(self.n * budget))

    @property
    def _follows(self) -> float:
        """Return the exponent h of the clip's update, smaller if the noise of counts is large."""
        assert self.rule.steps is not None
        noise = self._noise(_COUNTED * (1 - self.rule.share) / self.rule.steps)
        return min(_FOLLOWS, _SHAKES / max(noise, 1e-9))

    def _with_curvature(self, total: Array) -> Scale:
        limit = self.limit * max(self.bends)
        # Largest possible sum of traces; it gives the scale if noise hides the sums.
        most = max(1, self.records) * limit
        mean, largest = (float(v) * limit for v in total)
        noise = math.sqrt(2) * self._noise(self.rule.parts[_COUNTS])
        least = max(0.02, min(1.0, _SURE * noise)) * most / self.n
        mean = float(np.clip(mean / self.n, least, most)) + self.public[0]
        largest = float(np.clip(largest + self.public[1], mean, most + self.public[1]))
        return replace(self, mean=mean, largest=largest)

    def stepped(self, total: Array) -> tuple[Array, Scale]:
        """Return the sum of gradients in a noisy answer, and the scale with the next clip."""
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
        """Return whether a gradient opposes the last one by more than noise explains.

        Steps are then too long.

        Curvature may grow on the way from the initial point, for example that of exponentials.
        """
        if self.last is None:
            return False
        assert self.rule.noise is not None and self.rule.steps is not None
        once = self.rule.noise * math.sqrt(self.rule.steps / (1 - self.rule.share))
        noise = _LOUD * once * self.whole * self.multiple
        size, before = float(np.linalg.norm(gradient)), float(np.linalg.norm(self.last))
        return min(size, before) > noise and float(gradient @ self.last) < -_BACK * size * before

    def _within(self, multiple: float) -> float:
        """Return a multiple of the agents' clips, limited to the range that `LearnScale` allows."""
        most = math.inf if self.rule.most is None else self.rule.most
        return max(min(multiple, most), self.rule.least)

    def step(self, t: int) -> float:
        """Return the step size eta of round t; see the module."""
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
        """Return a sentence on the learned clip and curvatures, for a note of the result."""
        tighter = ", so that tighter bounds would do" if self.multiple < 0.5 else ""
        return (
            f"learned scale: a gradient's clip ended at {self.multiple:.2g} times what declared "
            f"bounds allow a record at the start{tighter}; losses have a curvature of "
            f"{self.mean:.3g} on average and of {self.largest:.3g} at most"
        )


def _before() -> Array:
    """Return the distribution of a searched limit before any count, by half octave."""
    odds = np.exp(-_RARER * np.arange(_CELLS + 1.0))
    return odds / odds.sum()


def _quantile(odds: Array, part: float = 0.5) -> int:
    """Return the position of the quantile `part` of a distribution; the median by default."""
    return int(np.searchsorted(np.cumsum(odds), part * odds.sum()))


def _limit(odds: Array, part: float) -> float:
    """Return the limit that is too low with probability `part`, for the distribution `odds`."""
    return 2.0 ** (-max(_quantile(odds, part) - 0.5, 0.0) / 2)


def _change(local: LocalProgram) -> float:
    """Return the sensitivity of a clipped gradient; 0 if no records are clipped."""
    return (local.clip or 0.0) * _changes(local)


def _changes(local: LocalProgram) -> float:
    """Return the sensitivity of a clipped gradient in units of the clip.

    It is 2 if records are replaced, 1 if they are added or removed, and 0 without records.
    """
    rows = (spec.adjacency for spec in local.form.private if isinstance(spec.adjacency, Rows))
    kinds = {adjacency.relation for adjacency in rows}
    return 2.0 if "replace_one" in kinds else float(bool(kinds))


def _public(form: NormalForm) -> tuple[float, float]:
    """Return approximate mean and largest curvature of an agent's public quadratic terms."""
    H = quadratic(form).formed
    return max(float(H.trace()) / form.n, strong_convexity(form)), spectral_norm(H)


def _bends(local: LocalProgram) -> float:
    """Return the largest trace of a synthetic record's curvature at the initial point.

    The records are at their declared bounds. Limits are searched below this number, over 31
    octaves, so it need not be a bound.
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
