r"""Reconstruction attack: estimates of the data by an observer of all releases.

If gradients are affine in the data, ``grad f = h(x) + J d``, and are released at points x that
everybody can compute, an observer subtracts the public part h(x). If points are released after a
step, ``c - eta grad f(x)``, the gradient follows from them. Each release then shows ``J d`` plus
noise, and weighted least squares over all releases gives

.. math:: \hat d = \arg\min_d \sum_t \| (g_t - h(x_t) - J d)_{M_t} \|^2 / s_t^2

where :math:`s_t` is the standard deviation of the noise of release t, and :math:`M_t` are the
released components. Without noise the estimate is d itself, in the entries that J determines. With
noise, its error is proportional to one over the square root of the number of releases, in agreement
with composition. For a one-time release of the data, the estimate follows from this release.

After Dvorkin et al. (2019), who invert the optimality conditions of the agents' problems. Nothing
here opens private data: everything is computed from public facts and from what a run released.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray

from .._figure import card
from .._words import plural
from ..errors import ModelError
from ..guard import frameless
from ..model.declaration import Declaration, matching
from ..model.private import Private
from ..model.spec import PrivateSpec
from ..plan.agent_plan import AgentPlan
from ..plan.banner import WIDTH
from ..plan.terms import Terms, require_plan
from ..run.replay import Seen, seen, transcript_of
from ..run.result import Transcript
from ..run.watch import check_replayable
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.queries.gradients import Gradient, GradientStep, Step
from ..sensitivity.queries.query import Query
from ..sensitivity.release_once import Publication

Array = NDArray[np.float64]
# Queries from whose answers a gradient follows.
_TELLING = (Gradient, GradientStep, Step)
# Tolerance, relative to an entry of the data, with which observations must determine it.
_TOLD = 1e-6


@dataclass(frozen=True, eq=False)
class Guess:
    """Estimate of one private object.

    Attributes
    ----------
    name : str
        Name of the private object.
    agent : str
        Agent that holds it.
    value : ndarray, in the shape of the data
        The estimate, changed where needed to satisfy the declaration of the data, such as signs.
    spread : ndarray, in the shape of the data
        Standard deviation of the estimate's error; infinite for entries that the releases do not
        determine.
    """

    name: str
    agent: str
    value: Array
    spread: Array

    @property
    def said(self) -> str:
        """Text on how many entries are estimated, and how accurately."""
        entries = "1 entry" if self.value.size == 1 else f"{self.value.size} entries"
        finite = self.spread[np.isfinite(self.spread)]
        if finite.size == 0:
            return f"{entries}, no entry is told apart from others"
        hidden = self.spread.size - finite.size
        return f"{entries}, deviation {_ends(finite)}" + (f"; {hidden} not told" if hidden else "")


@dataclass(frozen=True, eq=False, repr=False)
class Reconstruction:
    """Estimates of the data from all releases of a run; index it by a private object's name.

    The estimates are post-processing of released values. Their distances from the data are not
    public.

    Attributes
    ----------
    guesses : tuple of Guess
        Estimates, one per private object, in the order of the agents.
    releases : int
        Number of releases that the estimates use.
    noisy : bool
        Whether these releases had noise.
    """

    guesses: tuple[Guess, ...]
    releases: int
    noisy: bool
    problem: Declaration = field(repr=False)

    @frameless
    def __getitem__(self, private: Private | str) -> Array:
        """Return the estimate of a private object's data; pass the object or its name.

        Raises
        ------
        ModelError
            If no private object, or more than one, has that name.
        """
        return self._guess(private).value

    @frameless
    def spread(self, private: Private | str) -> Array:
        """Return the standard deviations of the errors of an estimate, in the shape of the data.

        Parameters
        ----------
        private : Private or str
            The private object, or its name.

        Raises
        ------
        ModelError
            If no private object, or more than one, has that name.
        """
        return self._guess(private).spread

    def _guess(self, private: Private | str) -> Guess:
        ((target, _),) = matching(self.problem, {private: None}, "dp.reconstruct(...)[...]: data")
        objects = [private for agent in self.problem.agents for private in agent.private]
        return self.guesses[next(k for k, candidate in enumerate(objects) if candidate is target)]

    def __str__(self) -> str:
        noise = "with noise" if self.noisy else "without noise"
        head = (
            f"An observer of {plural(self.releases, 'release')} {noise} estimates the data. "
            "Deviations say how far estimates are from the truth, as a rule."
        )
        lines = [textwrap.fill(head, WIDTH)]
        lines += [f"  '{guess.name}' of '{guess.agent}': {guess.said}" for guess in self.guesses]
        return "\n".join(lines)

    def __repr__(self) -> str:
        objects = plural(len(self.guesses), "private object")
        return f"<Reconstruction: {objects} from {plural(self.releases, 'release')}>"

    def _repr_html_(self) -> str:
        return card(self, [(guess.name, guess.said) for guess in self.guesses])


def _ends(values: Array) -> str:
    low, high = f"{values.min():.2g}", f"{values.max():.2g}"
    return low if low == high else f"{low} to {high}"


@frameless
def reconstruct(plan: Terms, transcript: Transcript | str | Path) -> Reconstruction:
    """Reconstruct the private data from a transcript, as the strongest observer could.

    It works for plans with ``release="once"``, and for methods that release gradients or points
    after a gradient step, with noise or without (``mechanism=None``). Gradients must be affine in
    the data. Other plans are refused, because their releases do not reveal a gradient: the local
    step may end at a constraint, or start at an unreleased iterate. ``dp.audit`` attacks every
    plan.

    Parameters
    ----------
    plan : Plan
    transcript : Transcript, str or Path
        Transcript of a run of this plan with ``record=True``, or the path of a ledger file that
        contains a run of this plan.

    Returns
    -------
    Reconstruction

    Raises
    ------
    ModelError
        If the releases show neither the data nor gradients that are affine in the data.
    PrivacyError
        If the transcript does not belong to this plan.
    LedgerError
        If the file is no intact ledger, or holds no finished run of this plan.

    Examples
    --------
    >>> plan = problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=1)
    >>> dp.reconstruct(plan, plan.run(record=True).transcript)["load"]
    """
    require_plan(plan, "dp.reconstruct")
    check_replayable(plan)
    if plan.published:
        _, recorded = transcript_of(plan, transcript)
        left = {release.agent: release.value for release in recorded.releases}
        owners = [(k, agent) for k, agent in enumerate(plan.agents) if agent.program.form.private]
        guesses = [guess for k, agent in owners for guess in _once(agent, left.get(k))]
        return Reconstruction(tuple(guesses), len(left), plan.noisy, plan.problem)
    facts = {agent.name: _affine(agent) for agent in plan.agents if agent.program.form.private}
    heard = [item for item in seen(plan, transcript) if isinstance(item.query, _TELLING)]
    told = [item for item in heard if plan.agents[item.agent].name in facts]
    guesses = [
        guess
        for k, agent in enumerate(plan.agents)
        if agent.name in facts
        for guess in _each(agent, facts[agent.name], [item for item in told if item.agent == k])
    ]
    return Reconstruction(tuple(guesses), len(told), plan.noisy, plan.problem)


def _affine(agent: AgentPlan) -> Sensitivity:
    """Return the sensitivity of an agent's gradient; refuse it if not affine or not released."""
    sensitivity = agent.sensitivity or agent.program.sensitivity()
    if not sensitivity.constant:
        raise ModelError(
            "dp.reconstruct reads gradients that are affine in the data, and the gradient of "
            f"agent '{agent.name}' is not: {sensitivity.obstacle}. dp.audit(plan) attacks every "
            "plan."
        )
    if not any(issubclass(query, _TELLING) for query in agent.queries):
        asked = " and ".join(query.released for query in agent.queries)
        raise ModelError(
            f"dp.reconstruct reads gradients, and agent '{agent.name}' releases the {asked}, "
            "which does not determine the gradient, because the agent's constraints may have "
            "projected it. Plan with dp.LinearizedADMM(), dp.ADMM() or release='once'; "
            "dp.audit(plan) attacks every plan."
        )
    return sensitivity


def _once(agent: AgentPlan, left: Array | None) -> list[Guess]:
    """Return estimates from `left`, a one-time release; zeros if it ignores the data."""
    specs = agent.program.form.private
    if agent.publication is None or left is None:
        return _nothing(agent, specs)
    if not isinstance(agent.publication, Publication):
        raise ModelError(
            f"Agent '{agent.name}' releases second moments of records, and dp.reconstruct reads "
            "no record from them. dp.audit(plan) attacks every plan."
        )
    assert agent.noise is not None
    variance = agent.noise.variance(agent.publication.sensitivity)
    spread = _spread(sp.csr_array(agent.publication.encode), variance)
    return _guesses(agent, specs, agent.publication.restore(left), spread)


def _each(agent: AgentPlan, sensitivity: Sensitivity, heard: Sequence[Seen]) -> list[Guess]:
    """Return estimates from released gradients `heard`, after removal of their public parts.

    The rest of each gradient is ``J d`` plus noise.
    """
    specs = agent.program.form.private
    J = sp.csr_array(sp.hstack(sensitivity.jacobians))
    if J.nnz == 0 or not heard:
        return _nothing(agent, specs)
    public = agent.program.form.at_zero().gradient
    weight, image = np.zeros(J.shape[0]), np.zeros(J.shape[0])  # weighted sums by component
    variance = 0.0
    for item in heard:
        gradient, x = _gradient(agent, item)
        variance, moved = _variance(agent, sensitivity, item), _moved(item.query)
        weight_of = (1.0 if moved is None else moved) / (variance or 1.0)
        weight += weight_of
        image += weight_of * (gradient - public(x))
    root = np.sqrt(weight[weight > 0])
    J = sp.csr_array(sp.diags_array(root) @ J[weight > 0])
    estimate = sla.lsqr(J, image[weight > 0] / root, atol=1e-14, btol=1e-14)[0]
    noise = 1.0 if variance else 0.0
    ends = np.cumsum([spec.size for spec in specs])[:-1]
    flat = [
        spec.admissible(part) for spec, part in zip(specs, np.split(estimate, ends), strict=True)
    ]
    return _guesses(agent, specs, flat, _spread(J, noise))


def _gradient(agent: AgentPlan, seen: Seen) -> tuple[Array, Array]:
    """Return the gradient that a release shows, and the point where it was taken."""
    query = seen.query
    assert isinstance(query, _TELLING)
    if not seen.public:
        raise ModelError(
            f"Agent '{agent.name}' uses random numbers that it never sends, so the starting "
            "points of its steps are unknown, and dp.reconstruct reads no gradient from the "
            "steps. dp.audit(plan) attacks every plan."
        )
    if query.through is not None:
        raise ModelError(
            f"Agent '{agent.name}' releases its gradient after a linear map, which "
            "dp.reconstruct does not invert. dp.audit(plan) attacks every plan."
        )
    if isinstance(query, Gradient):
        return seen.answer, query.x
    return (query.center - seen.answer) / query.step, query.x


def _variance(agent: AgentPlan, sensitivity: Sensitivity, seen: Seen) -> float:
    """Return the variance of the noise in one component of a gradient."""
    if agent.noise is None:
        return 0.0
    noise, moved = agent.noise.at(seen.round, seen.step), _moved(seen.query)
    return noise.variance(sensitivity.bound(noise.mechanism.norm, scale=moved).value)


def _moved(query: Query) -> Array | None:
    """Return 1 for released components of a gradient, 0 for others; None if all are released."""
    return query.moving if isinstance(query, Step) else None


def _spread(K: sp.csr_array, variance: float) -> Array:
    """Return standard deviations of least squares from noisy ``K d``; infinite if undetermined."""
    inverse = la.pinv(K.toarray())
    told = np.abs(np.einsum("ij,ji->i", inverse, K.toarray()) - 1) < _TOLD
    deviation = np.sqrt(variance * np.sum(inverse**2, axis=1))
    return np.where(told, deviation, np.inf)


def _guesses(
    agent: AgentPlan, specs: Sequence[PrivateSpec], flat: Sequence[Array], spread: Array
) -> list[Guess]:
    ends = np.cumsum([spec.size for spec in specs])[:-1]
    parts = zip(specs, flat, np.split(spread, ends), strict=True)
    return [
        Guess(spec.name, agent.name, spec.shaped(value), spec.shaped(deviation))
        for spec, value, deviation in parts
    ]


def _nothing(agent: AgentPlan, specs: Sequence[PrivateSpec]) -> list[Guess]:
    """Return estimates of zero with infinite standard deviation, if no release depends on data."""
    flat = [np.zeros(spec.size) for spec in specs]
    return _guesses(agent, specs, flat, np.full(sum(spec.size for spec in specs), np.inf))
