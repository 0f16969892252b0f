"""Many runs along sums of gradients at once, on public stand-ins: to search settings by.

They do what `FederatedGradient` does, with noise in floating point: nothing that they lead to may
be released, and what they find is judged by runs of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..algorithms.federated_gradient import FederatedGradient
from ..algorithms.joint import joint_set
from ..algorithms.steps import as_step
from ..model.declaration import Declaration
from ..model.matrices import as_array
from ..model.normal_form import Evaluator
from ..model.private import Private
from ..model.sealed import Sealed
from ..plan.agent_plan import AgentPlan
from ..plan.terms import Terms
from ..privacy.randomness import Randomness, source_for, uniform
from ..run.data import sources_of
from ..run.gate import read_sparse_too
from ..run.loop import PARTS
from ..sensitivity.known import finite_gradient
from ..solvers.newton import PLAIN
from ..solvers.projector import Projector

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Values = dict[str, Array]

# Points whose norms differ by less than one part in so many share a bound of what data can change.
_RUNGS = 8
_LEAST = 2.0**-500
# Entries of an agent's data, which are arrays here also where they are sparse.
_ENTRIES = 1 << 24


def simulable(plan: Terms) -> bool:
    """Whether runs are steps along sums of gradients."""
    return (
        type(plan.algorithm) is FederatedGradient
        and plan.algorithm.sharing is None
        and plan.algorithm.scale is None
        and plan.noisy
        and not (plan.published or plan.hidden or plan.prepaid or plan.program.kept)
        and all(map(_is_plain, plan.agents))
    )


def _is_plain(agent: AgentPlan) -> bool:
    known, noise = agent.sensitivity, agent.noise
    return (
        agent.program.rest is None
        and known is not None
        and known.bound(2).value < math.inf
        and (noise is None or (noise.split is None and noise.truncation is None))
        and agent.program.form.data_size <= _ENTRIES
    )


class Simulation:
    """Runs of plans of one problem, on values that stand in for its data.

    Parameters
    ----------
    problem : Declaration
    proxy : mapping
        Public values for every private object.
    base : float
        What values of the objective are counted from.
    """

    def __init__(
        self, problem: Declaration, proxy: Mapping[Private | str, Sealed], base: float = 0.0
    ) -> None:
        self._sources, self._base = sources_of(problem, proxy), base

    def __call__(
        self,
        plan: Terms,
        algorithms: Sequence[FederatedGradient],
        runs: int,
        seed: int,
        pause: Callable[[], None],
    ) -> list[Values]:
        """Values of the objective at the ends of runs, by reported iterate.

        Parameters
        ----------
        plan : Terms
            See `simulable`.
        algorithms : sequence of FederatedGradient
            In place of the plan's, with other steps.
        runs : int
            With each of them.
        seed : int
            Of the noise, the same with all of them.
        pause : callable
            Called in every round; may raise to end them.

        Returns
        -------
        list of dict of str to ndarray of shape (runs,)
            One per algorithm; infinite where a run diverged.
        """
        steps = [rule for one in algorithms if (rule := as_step(one.step)) is not None]
        agents, joint = plan.agents, joint_set(plan.program)
        projector = Projector(joint.data, "all agents", kernel=plan.program.kernel or PLAIN)
        pairs = zip(agents, self._sources, strict=True)
        objectives = [_objective(agent, own) for agent, own in pairs]
        sources = [source_for(seed, (k,)) for k in range(len(agents))]
        x = np.tile(_within(projector, joint.start[None]), (len(steps) * runs, 1))
        ends = [plan.rounds * k // PARTS for k in range(1, PARTS)]
        places = np.searchsorted(ends, np.arange(1, plan.rounds + 1))
        sums = np.zeros((PARTS, *x.shape))
        with np.errstate(all="ignore"):  # of runs that diverge
            for t in range(1, plan.rounds + 1):
                pause()
                total = np.zeros_like(x)
                for agent, of, place, source in zip(
                    agents, objectives, joint.places, sources, strict=True
                ):
                    own = x[:, place]
                    total[:, place] += finite_gradient(of, own)
                    spread = _spreads(agent, own, t)
                    if spread is not None:
                        drawn = _noise(agent, (runs, place.size), source.at(t, 1))
                        total[:, place] += spread * np.tile(drawn, (len(steps), 1))
                eta = np.repeat([rule.eta(t) for rule in steps], runs)[:, None]
                x = _within(projector, x - eta * total)
                sums[places[t - 1]] += x
            parts = [*zip(objectives, joint.places, strict=True)]
            found = {
                which: _values(parts, points).reshape(len(steps), runs) - self._base
                for which, points in _iterates(sums, x, plan.rounds).items()
            }
        return [{which: values[k] for which, values in found.items()} for k in range(len(steps))]


def _objective(agent: AgentPlan, sources: Sequence[Sealed]) -> Evaluator:
    """Of one agent, at many points."""
    form, known = agent.program.form, agent.sensitivity
    assert known is not None
    read = read_sparse_too(form.private, sources)
    data = [np.ravel(as_array(values), order="F") for values in read]
    return form.bind(data, known.clips, limited=True)


def _values(parts: Sequence[tuple[Evaluator, Index]], points: Array) -> Array:
    """Of all agents together, infinite where there is no answer."""
    total = sum((of.value(points[:, place]) for of, place in parts), np.zeros(len(points)))
    return np.where(np.isfinite(points).all(axis=1) & np.isfinite(total), total, np.inf)


def _iterates(sums: Array, last: Array, rounds: int) -> Values:
    """What a run may report, from sums over its parts; see `dpcvx.run.loop`."""
    ends = np.array([rounds * k // PARTS for k in range(PARTS + 1)])
    sizes = np.diff(ends)
    # The mean number of a part's rounds.
    weights = (ends[:-1] + ends[1:] + 1) / 2
    late = np.arange(PARTS) >= PARTS // 2
    means = {
        "average": np.ones(PARTS),
        "tail": 1.0 * late if rounds > 1 else np.ones(PARTS),
        "weighted": weights,
    }
    found = {
        which: np.tensordot(weight, sums, 1) / (weight * sizes).sum()
        for which, weight in means.items()
    }
    return {**found, "last": last}


def _spreads(agent: AgentPlan, x: Array, t: int) -> Array | None:
    """Standard deviations of an agent's noise at points x, shape (points, 1); None for no noise."""
    known, noise = agent.sensitivity, agent.noise
    if known is None or noise is None or known.bound(2).value == 0:
        return None
    noise, p = noise.at(t), noise.mechanism.norm
    bounds = np.full(len(x), known.bound(p).value)
    if known.flattens:
        sizes = np.linalg.norm(x, axis=1)
        rungs = np.ceil(_RUNGS * np.log2(np.maximum(sizes, _LEAST)))
        for rung in np.unique(rungs[np.isfinite(rungs)]):
            alike = rungs == rung
            bounds[alike] = known.within(p, 2.0 ** (rung / _RUNGS))
    return np.sqrt(noise.variance(1.0)) * bounds[:, None]


def _noise(agent: AgentPlan, shape: tuple[int, int], stream: Randomness) -> Array:
    """Of the kind of an agent's, with variance 1."""
    u = uniform(shape[0] * shape[1], stream).reshape(shape) + 2.0**-54
    if agent.noise is None or agent.noise.mechanism.norm == 2:
        return ndtri(u)
    away = np.minimum(u, 1 - u)
    return np.sign(u - 0.5) * -np.log(2 * away) * math.sqrt(0.5)


def _within(projector: Projector, points: Array) -> Array:
    """Each of the points in the set; one that cannot be moved there stays out of all sets."""
    if not projector.kinds.keys() - {"free"}:
        return points
    ones, out = np.ones(projector.n), np.full(points.shape, np.inf)
    there = np.flatnonzero(np.isfinite(points).all(axis=1))
    if projector.closed_form:
        out[there] = projector(points[there], ones).x
        return out
    for k in there:
        found = projector(points[k], ones).x
        if found is not None:
            out[k] = found
    return out
