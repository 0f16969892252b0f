"""A problem under study: how it gives way to noise, and the request while defaults fill it.

A compiled problem with what proposals follow from: responses to noise, and public optima.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from ..algorithms.joint import coupling_rows, joint_set, picked, places_of, size_of, square_sum
from ..algorithms.program import AsWritten, LocalProgram, Program
from ..algorithms.toward_start import SlopeNoise
from ..model.declaration import Declaration
from ..model.matrices import without_zeros
from ..model.prior import Expectation
from ..model.quadratic import hessian, hessian_at
from ..plan.agent_plan import AgentPlan, Agents, Compiled, compiled
from ..plan.request import Choice, Request
from ..privacy.mechanism import Calibrated
from ..sensitivity.release_once import Publication, Statistic
from ..solvers.projector import Projector
from .data_shape import Stake
from .remarks import Remark
from .response import LARGEST, Response
from .stakes import NOTHING, AtStandIns, at_stand_ins
from .statistics import Proposed, for_model, informed, publication, searched

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Multiplications of full matrices, for all agents together, beyond which each agent is looked at
# alone: what is chosen by these numbers need not be exact.
_WORK = 1e8


def responses(program: Program, optimum: AtStandIns = NOTHING) -> tuple[Response, ...]:
    """Return the response around each agent, in their order; sets count by their closed forms.

    Parameters
    ----------
    program : Program
    optimum : AtStandIns, optional
        The optimum for public proxy data. If that is not known, objectives bend as at the start.
    """
    n, places = size_of(program), places_of(program)
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    rows = [] if program.coupling is None else [coupling_rows(program)]
    for local, columns in zip(program.agents, places, strict=True):
        data = local.constraints
        equalities = data.A.tocsr()[: data.cones.zero]
        # Rows with auxiliary columns bind nothing by themselves.
        plain = np.flatnonzero(abs(equalities[:, data.n :]).sum(axis=1) == 0)
        rows.append(equalities[plain][:, : data.n] @ picked(columns, n))
        extent = local.projector().known_extent()
        lower[columns] = np.maximum(lower[columns], extent.lower)
        upper[columns] = np.minimum(upper[columns], extent.upper)
    widths, A = np.maximum(upper - lower, 0.0), without_zeros(sp.vstack(rows))
    bends = [
        (
            _bend(
                local,
                local.start if optimum.point is None else optimum.point[columns],
                widths[columns],
            ),
            columns,
        )
        for local, columns in zip(program.agents, places, strict=True)
    ]
    H = square_sum(bends, n)
    if n**3 * len(places) <= _WORK:
        return tuple(Response(H, widths, A, columns, optimum.forces) for columns in places)
    # As if all components that are not the agent's stayed where they are; of rows that others take
    # part in, others bear the change.
    by_agent = []
    for columns in places:
        alone, held = (
            _alone(A, columns),
            None if optimum.forces is None else _alone(optimum.forces, columns),
        )
        size = np.arange(columns.size)
        by_agent.append(Response(H[columns][:, columns], widths[columns], alone, size, held))
    return tuple(by_agent)


def _bend(local: LocalProgram, x: Array, widths: Array) -> sp.csr_array:
    if local.n > LARGEST:
        return hessian(local.form)[0]
    scale = np.where(np.isfinite(widths) & (widths > 0), widths, np.abs(x).max(initial=0.0) or 1.0)
    return hessian_at(local.form, x, np.where(x == 0, scale, np.abs(x)))


def _alone(rows: sp.csr_array, columns: Index) -> sp.csr_array:
    """Return the rows of these components alone."""
    inside, entries = sp.csr_array(rows[:, columns]), np.diff(rows.indptr)
    return inside[np.flatnonzero((np.diff(inside.indptr) == entries) & (entries > 0))]


def published(
    program: Program,
    agents: Agents,
    around: Sequence[Response],
    stakes: Mapping[int, Sequence[Stake]] | None = None,
) -> Agents:
    """Return the agents with what each releases once, in place of its data.

    Parameters
    ----------
    program : Program
    agents : tuple of AgentPlan
    around : sequence of Response
        Response around each agent.
    stakes : mapping of int to sequence of Stake, optional
        Stakes of an agent's constraints with private data, by position of the agent.
    """
    # Searches for shapes call BLAS on small matrices: more threads than one only wait for others.
    with ThreadpoolController().select(user_api="blas").limit(limits=1):
        proposals = [
            _proposed(program, k, agent, response, (stakes or {}).get(k, ()))
            for k, (agent, response) in enumerate(zip(agents, around, strict=True))
        ]
        statistics = searched(proposals)
    pairs = zip(agents, statistics, strict=True)
    return tuple(replace(agent, publication=statistic) for agent, statistic in pairs)


def _proposed(
    program: Program, k: int, agent: AgentPlan, response: Response, stakes: Sequence[Stake]
) -> Proposed:
    """Return what agent k may release once; other parameters as of `published`."""
    sensitivity, noise = agent.sensitivity, agent.noise
    if sensitivity is None or noise is None:
        return Proposed(None)
    if agent.program.as_written:
        assert program.model is not None
        by_moments = program.model.agents[k].by_moments
        return Proposed(for_model(agent, sensitivity, noise, by_moments))
    return publication(
        sensitivity,
        noise.mechanism.norm,
        agent.name,
        response,
        noise.variance,
        agent.expected,
        whole=bool(agent.program.limits),
        single=noise.mechanism.single,
        # Noise with a limit is planned for so many components as there are data.
        stakes=() if noise.truncation is not None else stakes,
    )


def toward_proxy(
    agents: Agents, around: Sequence[Response], proxies: Mapping[str, Sequence[Array | None]]
) -> Agents:
    """Return the agents with estimates of their one-time releases, by public proxy data.

    The released values are the same; the estimates are functions of them and of public numbers.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with their publications.
    around : sequence of Response
        Response around each agent.
    proxies : mapping of str to sequence of (ndarray or None)
        Values of each private object, by agent.
    """
    pairs = zip(agents, around, strict=True)
    return tuple(_toward(agent, response, proxies[agent.name]) for agent, response in pairs)


def _toward(agent: AgentPlan, response: Response, values: Sequence[Array | None]) -> AgentPlan:
    """See `toward_proxy`; none where constraints need the data as they were released."""
    statistic, noise = agent.publication, agent.noise
    if not isinstance(statistic, Publication) or noise is None or agent.expects:
        return agent
    if agent.program.limits or all(value is None for value in values):
        return agent
    proxies = [None if given is None else Expectation(given, None, fitted=True) for given in values]
    if statistic.kind != "data" and None in proxies:
        return agent
    variance = noise.variance(statistic.sensitivity)
    if agent.program.as_written:
        estimated = informed(statistic, proxies, None, variance, noise.mechanism.norm)
        return agent if estimated is None else replace(agent, publication=estimated)
    covariance = statistic.slope_covariance(variance, diagonal=response.by_component)
    if covariance is None:
        return agent
    influence = response.influence(covariance)
    estimated = informed(statistic, proxies, influence, variance, noise.mechanism.norm)
    return agent if estimated is None else replace(agent, publication=estimated)


def predicted_gap(statistic: Statistic, noise: Calibrated, response: Response) -> float:
    """Return the expected suboptimality of the problem for noise in one agent's release.

    It is in units of the objective, to second order, and infinite if nothing bounds it. It is nan
    for second moments and private weights, since their effect depends on the optimum.
    """
    covariance = None
    if isinstance(statistic, Publication):
        variance = noise.variance(statistic.sensitivity)
        covariance = statistic.slope_covariance(variance, diagonal=response.by_component)
    return math.nan if covariance is None else response.gap(covariance)


def slope_noise(program: Program, agents: Agents, around: Sequence[Response]) -> SlopeNoise | None:
    """Return the noise that all one-time releases together add to the gradient.

    It is None with priors, if noise is in more than slopes, if it acts in a direction without
    curvature (a vertex of a linear program stays where it is for slopes of all lengths), and for
    problems whose agents are treated one by one.

    Parameters
    ----------
    program : Program
    agents : tuple of AgentPlan
        Agents with their publications.
    around : sequence of Response
        Response around each agent.
    """
    if program.kept or not _together(around):
        return None
    parts = []
    for agent, columns in zip(agents, places_of(program), strict=True):
        statistic, noise = agent.publication, agent.noise
        if statistic is None or noise is None:
            continue
        covariance = None
        if isinstance(statistic, Publication) and not statistic.estimates:
            covariance = statistic.slope_covariance(noise.variance(statistic.sensitivity))
        if covariance is None:
            return None
        parts.append((covariance, columns))
    size = size_of(program)
    covariance = square_sum(parts, size)
    response = replace(around[0], place=np.arange(size))
    influence = response.influence(covariance)
    # Curvature alone: no set ends what noise does.
    endless = np.where(response.widths > 0, np.inf, 0.0)
    if math.isinf(replace(response, widths=endless, forces=None).gap(covariance)):
        return None
    whole = joint_set(program)
    start = Projector(whole.data, "all agents")(whole.start, np.ones(size)).x
    if influence is None or start is None:
        return None
    return SlopeNoise(start, influence, float(covariance.multiply(influence).sum()))


def _together(around: Sequence[Response]) -> bool:
    """Return whether what surrounds each agent is the whole problem."""
    return all(response.hessian is around[0].hessian for response in around)


@dataclass(frozen=True, kw_only=True)
class Selection(Request):
    """A request with the choices that were made so far."""

    choices: tuple[Choice, ...] = ()
    forecast: Remark = field(default=Remark())  # what is predicted of noisy steps
    quiet: Agents = ()  # with noise and what they release once, if these were chosen together

    @staticmethod
    def of(request: Request) -> Selection:
        """Return a request with nothing chosen yet."""
        return Selection(**{field.name: getattr(request, field.name) for field in fields(Request)})

    def chosen(self, what: str, why: str) -> Selection:
        """Return the request with one more choice."""
        return replace(self, choices=(*self.choices, Choice(what, why)))


@dataclass(frozen=True, eq=False)
class Study(Compiled):
    """A compiled problem, and how it responds to noise."""

    @staticmethod
    def of(compiled: Compiled) -> Study:
        """Return a study of a problem that was compiled before."""
        if isinstance(compiled, Study):
            return compiled
        return Study(
            compiled.problem, compiled.program, compiled.sensitivities, compiled.parameters
        )

    @cached_property
    def responses(self) -> tuple[Response, ...]:
        """Return the responses of the problem to noise from each agent."""
        return responses(self.program, self.at_stand_ins)

    @cached_property
    def at_stand_ins(self) -> AtStandIns:
        """Return what private constraints cost, at the optimum for public proxy data."""
        return at_stand_ins(self.problem, self.program, self.sensitivities)


def study(problem: Declaration, as_written: AsWritten | None = None) -> Study:
    """Return the study of what `compiled` returns; its arguments and its errors."""
    return Study.of(compiled(problem, as_written))
