"""What a plan chooses where its user leaves a choice, from what is public, and why."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..algorithms.admm import ADMM
from ..algorithms.base import Algorithm
from ..algorithms.central import Central
from ..algorithms.gradient_admm import GradientADMM
from ..algorithms.linearized_admm import LinearizedADMM
from ..algorithms.mean_gradient import MeanGradient
from ..algorithms.program import Program, compile_problem
from ..algorithms.resource_admm import ResourceADMM
from ..errors import PrivacyError
from ..guard import understood
from ..model.declaration import Agent, Declaration
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.landscape import Landscape
from ..sensitivity.release_once import releasable
from .agent_terms import AgentTerms, declared, sensitivities
from .calibration import Asked, asked_of, calibrated
from .landscapes import landscapes, predicted_gap, publication

Release = Literal["each step", "once"]
Mechanisms = Asked | Mapping[Agent | str, Asked]
# Rounds of a method that has no number of its own.
ROUNDS = 100
AUTO = "auto"


@dataclass(frozen=True)
class Choice:
    """One argument that was left to the plan.

    Attributes
    ----------
    what : str
        The argument.
    why : str
        What was chosen, and the reason, in one sentence.
    """

    what: str
    why: str


@dataclass(frozen=True)
class Request:
    """What is asked of a plan; None, and "auto" for the mechanism, where it is left to the plan.

    Attributes
    ----------
    algorithm : Algorithm or None
    mechanism : Gaussian, Laplace, "auto", "gaussian", "laplace", None, or mapping of agent to one
        None for no noise.
    rounds : int or None
    release : {"each step", "once", None}
    choices : tuple of Choice
        What was chosen so far.
    """

    algorithm: Algorithm[Any, Any] | None
    mechanism: Mechanisms
    rounds: int | None = None
    release: Release | None = None
    choices: tuple[Choice, ...] = ()

    @property
    def chooses_noise(self) -> bool:
        """Whether the kind of noise is left to the plan."""
        return isinstance(self.mechanism, str) and self.mechanism == AUTO

    def chosen(self, what: str, why: str) -> Request:
        """With one more choice."""
        return replace(self, choices=(*self.choices, Choice(what, why)))


@dataclass(frozen=True, eq=False)
class Compiled:
    """A problem as plain arrays, without compiled objectives, and its sensitivities.

    Attributes
    ----------
    program : Program
    sensitivities : dict of str to (Sensitivity or None)
        By agent; None where nothing is private, or nothing had to be derived.
    """

    program: Program
    sensitivities: dict[str, Sensitivity | None]

    @property
    def constant(self) -> bool:
        """Whether all gradients are affine in the data."""
        return all(s is None or s.constant for s in self.sensitivities.values())

    @property
    def linear(self) -> bool:
        """Whether they are, with Jacobians that may depend on the point."""
        return all(s is None or s.linear for s in self.sensitivities.values())

    @property
    def releasable(self) -> bool:
        """Whether all data can leave once."""
        return all(s is None or releasable(s) for s in self.sensitivities.values())


def compiled(problem: Declaration) -> Compiled:
    """Compile a problem and derive its sensitivities.

    Raises
    ------
    ModelError
        If the problem cannot be compiled.
    PrivacyError
        If no sensitivity can be derived.
    """
    program = compile_problem(problem, exact=False)
    return Compiled(program, sensitivities(program))


def settled(
    problem: Declaration, request: Request, known: Compiled | None = None
) -> tuple[Request, Compiled | None]:
    """Choose the method, its rounds, and when the data leave; the noise is chosen afterwards.

    A method that is named runs as its paper has it, with noise in each step, unless
    ``release="once"`` is asked for.

    Returns
    -------
    request : Request
        With nothing open but the kind of noise.
    compiled : Compiled or None
        If it was needed.
    """
    if request.algorithm is not None:
        return _filled(request), known
    silent = request.mechanism is None or not any(agent.private for agent in problem.agents)
    try:
        known = known or compiled(problem)
    except PrivacyError:
        if not silent:
            raise
        return _filled(_stepwise(problem, request)), None
    convex = all(
        understood(agent.is_dcp, name)
        for name, agent in zip(problem.names, problem.agents, strict=True)
    )
    if convex and (known.constant or (not silent and known.releasable)):
        return _filled(_exact(request, known, silent)), known
    return _filled(_stepwise(problem, request)), known


def _filled(request: Request) -> Request:
    assert request.algorithm is not None
    rounds = request.algorithm.fixed_rounds or request.rounds or ROUNDS
    return replace(request, rounds=rounds, release=request.release or "each step")


def _exact(request: Request, known: Compiled, silent: bool) -> Request:
    """Where the data can leave once, or their part of the gradient can."""
    if request.release is None and not silent:
        why = (
            "gradients depend linearly on the private data"
            if known.linear
            else "the objective reads its records through their second moments only"
        )
        request = replace(request, release="once").chosen(
            "release", f"release once, before the first round: {why}, so all that follows is public"
        )
    if request.rounds is not None:
        return replace(request, algorithm=ADMM())
    return replace(request, algorithm=Central()).chosen(
        "algorithm", "one round: the server solves the whole problem for the data as they left"
    )


def _stepwise(problem: Declaration, request: Request) -> Request:
    """Where every step asks the data again."""
    public = sum(not agent.private for agent in problem.agents)
    shared = any((count > 1).any() for count in problem.holders().values())
    method: Algorithm[Any, Any] = LinearizedADMM()
    if problem.coupling and not shared:
        method = ResourceADMM()
    elif problem.coupling and public == 1:
        method = GradientADMM()
    elif not problem.is_dcp():
        method = MeanGradient()
    return replace(request, algorithm=method)


def quieter(
    problem: Declaration,
    known: Compiled,
    request: Request,
    epsilon: float | Mapping[Agent | str, float] | None,
    delta: float | None,
) -> Request:
    """Choose the kind of noise: the one with the smaller expected error.

    Parameters
    ----------
    problem : Declaration
    known : Compiled
    request : Request
        With all else settled.
    epsilon, delta
        The budget.

    Raises
    ------
    PrivacyError
        If the budget is incomplete.
    """
    if epsilon is None or not any(known.sensitivities.values()):
        return replace(request, mechanism="gaussian")
    if not delta:
        return replace(request, mechanism="laplace").chosen(
            "mechanism", "Laplace noise, which needs no delta="
        )
    assert request.algorithm is not None and request.rounds is not None
    once, needs = request.release == "once", request.algorithm.requirements
    steps = 1 if once else request.algorithm.releases(request.rounds, known.program)
    around = landscapes(known.program) if once else [None] * len(known.program.agents)
    errors: list[list[Error | None]] = []
    for kind in ("gaussian", "laplace"):
        asked = asked_of(problem, kind, epsilon)
        agents = declared(problem, known.program, known.sensitivities, asked, needs)
        quiet = calibrated(agents, needs, request.rounds, steps, delta, once)
        errors.append([_error(*pair) for pair in zip(quiet, around, strict=True)])
    pairs = zip(*errors, strict=True)
    ratio = _ratio([(a, b) for a, b in pairs if a is not None and b is not None])
    best, other = ("laplace", "gaussian") if ratio > 1 else ("gaussian", "laplace")
    less = max(ratio, 1 / ratio)
    return replace(request, mechanism=best).chosen(
        "mechanism",
        f"{best.capitalize()} noise: {other.capitalize()} noise of the same guarantee has "
        f"{less:.3g} times the expected error",
    )


@dataclass(frozen=True)
class Error:
    """What an agent's noise is expected to do.

    Attributes
    ----------
    gap : float
        To the optimum, in units of the objective; nan or infinite where that is not known.
    variance : float
        Of the noise, summed over its components.
    """

    gap: float
    variance: float


def _ratio(pairs: Sequence[tuple[Error, Error]]) -> float:
    """How many times more the first of two kinds of noise does; 1 if none does anything."""
    one, two = (sum(pair[k].gap for pair in pairs) for k in (0, 1))
    if math.isfinite(one + two):
        return one / two if min(one, two) > 0 else 1.0
    # Variances of different agents may have different units: no sums of them.
    return math.exp(statistics.fmean(math.log(a.variance / b.variance) for a, b in pairs))


def _error(agent: AgentTerms, landscape: Landscape | None) -> Error | None:
    """Of the noise in an agent's gradients, or in what it releases once; None if nothing is noisy.

    Parameters
    ----------
    agent : AgentTerms
    landscape : Landscape or None
        Around the agent, if its data leave once.
    """
    known, noise = agent.sensitivity, agent.noise
    if known is None or noise is None:
        return None
    if landscape is None:
        change = known.bound(noise.mechanism.norm).value
        if not 0 < change < math.inf:
            return None
        return Error(math.nan, agent.program.n * noise.variance(change))
    found = publication(known, noise, agent.name, landscape)
    if found is None:
        return None
    variance = found.size * noise.variance(found.sensitivity)
    return Error(predicted_gap(found, noise, landscape), variance)
