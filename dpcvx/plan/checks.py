"""What a plan refuses: requests that contradict themselves, and models that nothing is proved for.

Each check takes what was decided before it and returns nothing, or raises with the name of the
agent and what to write instead. Private data are never read here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import check_argument, choice, count, optional
from ..algorithms.base import Algorithm, Requirements
from ..errors import ModelError, PrivacyError
from ..model.declaration import Declaration
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.rehearsal import rehearse
from ..solvers.conic import ConicProgram, Outcome, bounded_for_slopes
from .agent_terms import AgentTerms, Declared

Array = NDArray[np.float64]
# Releases of different noise that are priced one by one.
_LISTED = 1_000_000
_KEPT = " It takes release='once' where the objective is least squares on records."


def check_request(algorithm: object, rounds: object, release: object) -> None:
    """Refuse arguments that are of another kind than the plan takes; None is left to the plan."""
    check_argument("", "rounds", rounds, optional(count()))
    if algorithm is not None and not isinstance(algorithm, Algorithm):
        raise ModelError(
            f"problem.plan(...) takes an algorithm object first, got {type(algorithm).__name__}. "
            "Write for example problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)."
        )
    check_argument(
        "",
        "release",
        release,
        optional(choice("each step", "once")).because(
            "noise in every local step, or the data once, with noise, and any number of rounds on "
            "that"
        ),
    )


def check_once(release: str, needs: Requirements) -> None:
    """Refuse questions that are idle where the data leave once and before the first round."""
    idle = next((query.once for query in needs.queries if query.once), "")
    if release == "once" and idle:
        raise ModelError(idle)


def check_switched_off(
    problem: Declaration, noisy: bool, epsilon: object | None, delta: object | None
) -> None:
    """Refuse a budget next to a mechanism that is switched off."""
    private = any(agent.private for agent in problem.agents)
    if private and not noisy and (epsilon is not None or delta is not None):
        raise PrivacyError(
            "mechanism=None switches the noise off, so epsilon= and delta= promise nothing. Drop "
            "them, or name a mechanism."
        )


def check_groups(problem: Declaration, asked: Mapping[str, Declared | None]) -> None:
    """Refuse different noise in one group: what its agents lose together is not accounted for."""
    private = {
        name for name, agent in zip(problem.names, problem.agents, strict=True) if agent.private
    }
    for group in problem.group_names:
        if len({asked[name] for name in group if name in private}) > 1:
            members = " and ".join(f"'{name}'" for name in group)
            raise PrivacyError(
                f"Agents {members} form a group, and what a group loses together is known only "
                "if its agents have the same noise. Give them the same mechanism= and epsilon=, or "
                "drop groups=."
            )


def check_coupling(problem: Declaration, algorithm: Algorithm[Any, Any]) -> None:
    """Refuse a coupling that the method does not take, or a method that lacks one."""
    name, coupled = type(algorithm).__name__, algorithm.requirements.coupled
    if problem.coupling and not coupled:
        raise ModelError(
            f"dp.{name} lets agents agree on variables that they share, and takes no coupling= "
            f"constraints. Use {_coupled_method(problem)}, or drop coupling= and write one "
            "variable in all agents that it concerns."
        )
    if coupled and not problem.coupling:
        raise ModelError(
            f"dp.{name} needs the equalities that tie its agents. Write dp.Problem(agents, "
            "coupling=[A @ x + B @ y == c])."
        )


def _coupled_method(problem: Declaration) -> str:
    """The method that takes the coupling of a problem, and what it takes besides."""
    shared = any((count > 1).any() for count in problem.holders().values())
    public = sum(not agent.private for agent in problem.agents)
    if not shared:
        return "dp.ResourceADMM(), which ties agents that have variables of their own"
    if public == 1:
        return (
            "dp.GradientADMM(), which takes f(x) + g(y) with A x + B y = c, g without private data"
        )
    return (
        "dp.ResourceADMM() after giving each agent variables of its own, with copies tied by "
        "coupling=[x == y]"
    )


def check_affine(agents: Sequence[AgentTerms], method: str, once: bool) -> None:
    """Refuse private data that an exact minimisation would take into the curvature."""
    for agent in agents:
        known = agent.sensitivity
        if known is None or known.constant:
            continue
        raise PrivacyError(
            f"The exact steps of dp.{method} need a gradient J d + h(x) that is affine in the "
            f"private data d, with a constant J; that of agent '{agent.name}' is not: "
            f"{known.obstacle}. Use dp.LinearizedADMM, which needs gradients only."
            f"{_KEPT if once else ''}"
        )


def check_decay(agents: Sequence[AgentTerms], algorithm: Algorithm[Any, Any]) -> None:
    """Refuse noise that falls from round to round where agents have different rounds."""
    fading = any(agent.asked is not None and agent.asked.mechanism.decay < 1 for agent in agents)
    if fading and algorithm.requirements.in_turn:
        raise ModelError(
            f"dp.{type(algorithm).__name__} has one user per round, and with decay= early users "
            "would lose less than late ones, which is not accounted for. Drop decay=."
        )


def check_long(rounds: int, weights: int) -> None:
    """Refuse so many releases of different noise that they cannot be listed."""
    if rounds * weights > _LISTED:
        raise PrivacyError(
            f"rounds={rounds} is too many for noise that differs from release to release, as with "
            "decay= or with several values a round: each release is priced by itself, and at most "
            f"{_LISTED} are. Plan fewer rounds, or constant noise."
        )


def check_queries(agents: Sequence[AgentTerms]) -> None:
    """Refuse questions to agents of which it is not known how far one change moves the answer."""
    for agent in agents:
        for query in agent.facts.queries if agent.sensitivity is not None else ():
            query.check(agent.facts)


def check_start(agent: AgentTerms, once: bool) -> None:
    """Refuse a start without a gradient, and a sensitivity that made-up data contradict there."""
    local, known = agent.program, agent.sensitivity
    public = local.form.at_zero()
    if not np.isfinite(public.gradient(local.start)).all():
        raise ModelError(
            f"The objective of agent '{agent.name}' has no finite gradient at the starting point, "
            "the point of its set closest to 0. Start inside its domain, for example with "
            "dp.Problem(agents, start={x: 1.0})."
        )
    if agent.noise is None or known is None:
        return
    p = agent.noise.mechanism.norm
    level = known.bound(p).value
    if level == math.inf and not once:
        level = known.bound(p, None, local.start).value
        if level == math.inf:
            raise PrivacyError(
                f"No sensitivity can be derived for agent '{agent.name}': {known.obstacle}, and "
                "one change can move the gradient arbitrarily far, even at the starting point. A "
                "term may leave its domain for some admissible data (log or sqrt of a negative "
                "number), or have an infinite slope. Bound the variables, declare signs "
                "(nonneg=True), or write dp.Agent(..., clip=1.0)."
            )
    rehearse(local.form, public, known, p, level, local.start, agent.name)


def check_minimiser(agent: AgentTerms, noisy: bool, once: bool) -> None:
    """Refuse an exact local step that has no minimiser.

    The step is tried once at the start. With noise the linear term can take any multiple of a
    generic slope, so no direction may be left in which the set is unbounded, the objective flat,
    and that slope not.
    """
    local, known = agent.program, agent.sensitivity
    assert local.exact is not None
    D = np.zeros(local.n)
    D[local.shared] = 1.0
    answer = ConicProgram(local.exact).solve(D, np.zeros(local.n), local.start)
    if answer.outcome is Outcome.UNBOUNDED:
        raise ModelError(_unbounded(agent.name, "has no minimiser"))
    if noisy and known is not None:
        slope = _slope(known) if once else np.sin(1.0 + np.arange(local.n))
        if not bounded_for_slopes(local.exact, local.shared, slope):
            raise ModelError(
                _unbounded(agent.name, "has no minimiser for some values of the noise")
            )


def _slope(sensitivity: Sensitivity) -> Array:
    """A generic linear term that noise on the data adds to the local objective."""
    total = np.zeros(sensitivity.extent.lower.size)
    for J in sensitivity.jacobians:
        # Columns of one length, so that none is too small to be seen next to the others.
        lengths = np.sqrt(np.asarray(J.power(2).sum(axis=0)).ravel())
        weights = np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1.0), 0.0)
        total += J @ (weights * np.sin(1.0 + np.arange(J.shape[1])))
    return total


def _unbounded(name: str, what: str) -> str:
    return (
        f"The exact local step of agent '{name}' {what}: its set has a direction without end, "
        "along which its objective does not grow quadratically. Add bounds to its variables, or "
        "use dp.LinearizedADMM, whose steps always have a minimiser."
    )
