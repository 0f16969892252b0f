"""The compiled problem with facts that proposals need: responses to noise, and public optima.

`Selection` is a request while defaults are chosen for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..algorithms.joint import coupling_rows, joint_set, picked, places_of, size_of, square_sum
from ..algorithms.program import AsWritten, LocalProgram, Program
from ..algorithms.weighted_sums import SlopeNoise
from ..model.declaration import Declaration
from ..model.matrices import blas, without_zeros
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
# Largest number of multiplications for exact responses; beyond it, each agent is approximated
# alone. Choices need no exact responses.
_WORK = 1e8


def responses(program: Program, optimum: AtStandIns = NOTHING) -> tuple[Response, ...]:
    """Return, for each agent in order, how noise in its data changes solution and objective.

    The responses use only parts of the agents' sets that are known without solves: equalities and
    bounds.

    Parameters
    ----------
    program : Program
    optimum : AtStandIns, optional
        Optimum for public proxy data, where second derivatives are taken. If it is unknown, they
        are taken at the initial point.
    """
    n, places = size_of(program), places_of(program)
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    rows = [sp.csr_array((0, n)) if program.coupling is None else coupling_rows(program)]
    for local, columns in zip(program.agents, places, strict=True):
        data = local.constraints
        if data.cones.zero:
            equalities = data.A.tocsr()[: data.cones.zero]
            # Rows with auxiliary columns are no equalities of x.
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
    # Approximation: components of other agents stay fixed, and equalities with other agents'
    # components do not restrict this agent.
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
    """Return the rows of a matrix whose nonzero entries all belong to these columns."""
    inside, entries = sp.csr_array(rows[:, columns]), np.diff(rows.indptr)
    return inside[np.flatnonzero((np.diff(inside.indptr) == entries) & (entries > 0))]


def published(
    program: Program,
    agents: Agents,
    around: Sequence[Response],
    stakes: Mapping[int, Sequence[Stake]] | None = None,
) -> Agents:
    """Return the agents with the statistic that each releases once.

    Parameters
    ----------
    program : Program
    agents : tuple of AgentPlan
    around : sequence of Response
        Response of the problem to noise from each agent.
    stakes : mapping of int to sequence of Stake, optional
        Stakes of an agent's constraints with private data, by the agent's position.
    """
    # Searches for shapes call BLAS on small matrices, for which one thread is fastest.
    with blas().limit(limits=1):
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
    """Return the statistic proposed for agent k; for the other parameters see `published`."""
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
        # Truncated noise is planned for the data themselves, with as many components.
        stakes=() if noise.truncation is not None else stakes,
    )


def toward_proxy(
    agents: Agents, around: Sequence[Response], proxies: Mapping[str, Sequence[Array | None]]
) -> Agents:
    """Return the agents with shrinkage of their one-time releases towards public proxy data.

    The estimates are functions of the released values and of public numbers.

    Parameters
    ----------
    agents : tuple of AgentPlan
        Agents with the statistics that they release once.
    around : sequence of Response
        Response of the problem to noise from each agent.
    proxies : mapping of str to sequence of (ndarray or None)
        Proxy data of each private object, by the agent's name.
    """
    pairs = zip(agents, around, strict=True)
    return tuple(_toward(agent, response, proxies[agent.name]) for agent, response in pairs)


def _toward(agent: AgentPlan, response: Response, values: Sequence[Array | None]) -> AgentPlan:
    """Return an agent whose released data are shrunk towards its proxy data, if possible.

    Constraints with private data need the data as they were released.
    """
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
    """Return the expected suboptimality of the problem due to noise in one agent's release.

    It is in units of the objective, to second order, and infinite if it is unbounded. It is nan
    for second moments and private weights, since their effect depends on the optimum.
    """
    covariance = None
    if isinstance(statistic, Publication):
        variance = noise.variance(statistic.sensitivity)
        covariance = statistic.slope_covariance(variance, diagonal=response.by_component)
    return math.nan if covariance is None else response.gap(covariance)


def slope_noise(program: Program, agents: Agents, around: Sequence[Response]) -> SlopeNoise | None:
    """Return the noise that all one-time releases together add to the linear coefficient.

    It is None with priors, if noise enters more than the linear coefficient, if noise acts in a
    direction without curvature (there, shrinking does not move a vertex of a linear program), and
    for problems that are too large for exact responses.

    Parameters
    ----------
    program : Program
    agents : tuple of AgentPlan
        Agents with the statistics that they release once.
    around : sequence of Response
        Response of the problem to noise from each agent.
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
    # The noise must be limited by curvature alone, without the widths of the set.
    endless = np.where(response.widths > 0, np.inf, 0.0)
    if math.isinf(replace(response, widths=endless, forces=None).gap(covariance)):
        return None
    whole = joint_set(program)
    start = Projector(whole.data, "all agents")(whole.start, np.ones(size)).x
    if influence is None or start is None:
        return None
    return SlopeNoise(start, influence, float(covariance.multiply(influence).sum()))


def _together(around: Sequence[Response]) -> bool:
    """Return whether the responses to noise are exact: all are of the joint problem."""
    return all(response.hessian is around[0].hessian for response in around)


@dataclass(frozen=True, kw_only=True)
class Selection(Request):
    """A request with the settings that defaults have chosen so far, and the reasons."""

    choices: tuple[Choice, ...] = ()
    forecast: Remark = field(default=Remark())  # prediction for noisy steps
    quiet: Agents = ()  # agents with noise and statistics, if these were chosen together

    @staticmethod
    def of(request: Request) -> Selection:
        """Return a request as a `Selection` without any setting chosen by defaults."""
        return Selection(**{field.name: getattr(request, field.name) for field in fields(Request)})

    def chosen(self, what: str, why: str) -> Selection:
        """Return the request with one more choice: the setting `what`, and the reason `why`."""
        return replace(self, choices=(*self.choices, Choice(what, why)))


@dataclass(frozen=True, eq=False)
class Study(Compiled):
    """A compiled problem, the effect of noise on its solution, and its optimum for proxy data."""

    @staticmethod
    def of(compiled: Compiled) -> Study:
        """Return a compiled problem as a `Study`, which adds facts for defaults."""
        if isinstance(compiled, Study):
            return compiled
        return Study(
            compiled.problem, compiled.program, compiled.sensitivities, compiled.parameters
        )

    @cached_property
    def responses(self) -> tuple[Response, ...]:
        """Return, for each agent, how noise in its data changes the solution and the objective."""
        return responses(self.program, self.at_stand_ins)

    @cached_property
    def at_stand_ins(self) -> AtStandIns:
        """Return the optimum for public proxy data, with the prices of private constraints."""
        return at_stand_ins(self.problem, self.program, self.sensitivities)


def study(problem: Declaration, as_written: AsWritten | None = None) -> Study:
    """Return the compiled problem with facts for defaults; see `compiled` for arguments."""
    return Study.of(compiled(problem, as_written))
