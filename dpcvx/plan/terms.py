"""Everything that fixes the guarantee, before any data are read."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from .._arguments import FLAG, as_python_number, check_argument, count, one_of, show
from ..algorithms.base import Algorithm, Requirements, SecretSums
from ..algorithms.joint import size_of
from ..algorithms.moment_sums import moment_sum
from ..algorithms.program import (
    Program,
    compile_problem,
    once_per_kind,
    require_convex,
    with_objectives,
)
from ..errors import ModelError
from ..guard import frameless
from ..model.curvature import curvature, record_smoothness, smoothness
from ..model.declaration import Agent, Declaration
from ..model.expected import Expected, expectations
from ..model.private import Private
from ..privacy.accounting import Composition, Price
from ..privacy.accounts import Account
from ..privacy.last_iterate import LastIterate
from ..privacy.mechanism import Calibrated
from ..sensitivity.queries.data import MomentsTerm
from ..sensitivity.stored_vectors import Smoothness
from . import checks, last_iterate, limits
from .agent_terms import Agents, AgentTerms, declared, sensitivities
from .calibration import Mechanisms, asked_of, budgeted, calibrated, conditions, truncated
from .choice import LOUD, SHRUNK, Choice, Release, Request, choose
from .compiled import Compiled
from .fingerprint import Asked, fingerprint_of
from .forecast import DOUBT, bent, of_other_steps, of_releases
from .guarantee import ALONE, COUNTED, SEEDED, Guarantee, make_guarantee, no_guarantee
from .last_iterate import Observer
from .responses import Share, predicted_share, published, responses, slope_noise
from .split import check_secret, split
from .stakes import at_stand_ins, by_agent, by_price, stand_ins_of

P = TypeVar("P", bound="Terms")


@dataclass(frozen=True, eq=False)
class Terms:
    """What a plan consists of; see `dpcvx.Plan`, which has the verbs."""

    problem: Declaration = field(repr=False)
    algorithm: Algorithm[Any, Any]
    rounds: int
    release: Release
    observer: Observer
    program: Program = field(repr=False)
    agents: Agents
    last: LastIterate | None = field(repr=False)
    guarantee: Guarantee = field(repr=False)
    fingerprint: str = field(repr=False)
    choices: tuple[Choice, ...] = ()
    forecast: str = ""
    violation: float | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Terms:
        # All else is frozen and public.
        return replace(self, problem=copy.deepcopy(self.problem, memo))

    @frameless
    def guarantee_for(self, *, seeded: bool, counted: bool = False) -> Guarantee:
        """The guarantee of a run.

        Parameters
        ----------
        seeded : bool
            Whether it has a seed.
        counted : bool
            Whether it has a ledger, which adds up all runs that it is passed to.
        """
        check_argument("", "seeded", seeded, FLAG)
        check_argument("", "counted", counted, FLAG)
        if self.guarantee.kind == "none":
            return self.guarantee
        alone = (
            COUNTED if counted and text == ALONE else text for text in self.guarantee.assumptions
        )
        return replace(self.guarantee, assumptions=(*([SEEDED] if seeded else []), *alone))

    @property
    def reported(self) -> str:
        """Which iterate the result reports: the algorithm's choice, or by the noise."""
        noisy = self.noisy and not self.published and not self.hidden
        return self.algorithm.output or ("average" if noisy else "last")

    @frameless
    def agent(self, name: str) -> AgentTerms:
        """What is fixed for the agent of this name.

        Raises
        ------
        ModelError
            If there is no such agent.
        """
        found = next((agent for agent in self.agents if one_of(name, agent.name)), None)
        if found is None:
            names = ", ".join(f"'{agent.name}'" for agent in self.agents)
            raise ModelError(
                f"plan.agent({show(name)}) names no agent of the plan. The agents are {names}."
            )
        return found

    @property
    def price(self) -> Price | None:
        """Total of the planned releases, of the agent that loses most; None without noise."""
        prices = [agent.price for agent in self.agents if agent.price is not None]
        return max(prices, key=lambda price: price.epsilon, default=None)

    @property
    def doubtful(self) -> bool:
        """Whether the forecast is that an answer says little or nothing about the data."""
        return DOUBT in self.forecast

    @property
    def noisy(self) -> bool:
        """Whether releases are noisy."""
        return any(agent.noise is not None for agent in self.agents)

    @property
    def hidden(self) -> bool:
        """Whether nothing but the last iterate leaves."""
        return self.observer == "last iterate"

    @property
    def prepaid(self) -> bool:
        """Whether a run is charged as a whole, before it begins, instead of by release."""
        return self.last is not None

    @property
    def published(self) -> bool:
        """Whether the data leave their agents once, with noise, and the rounds are public."""
        return self.noisy and self.release == "once"

    @frameless
    def releases(self, rounds: int) -> int:
        """Number of releases of an agent in so many rounds."""
        check_argument("", "rounds", rounds, count(0))
        return _releases(self.algorithm, self.release, int(rounds), self.program)

    @frameless
    def composed(self, rounds: int) -> dict[str, Composition]:
        """What one person is exposed to in so many rounds, by agent that holds their data."""
        return _composed(self.agents, self.releases(rounds), self.algorithm.requirements)

    def accounts(self) -> list[Account]:
        """Fresh accounts with the plan's budget, one per agent."""
        return [agent.account() for agent in self.agents]


def make_terms(
    kind: type[P],
    problem: Declaration,
    algorithm: Algorithm[Any, Any] | None,
    *,
    mechanism: Mechanisms,
    rounds: int | None,
    epsilon: float | Mapping[Agent | str, float] | None,
    delta: float | None,
    release: Release | None,
    observer: Observer,
    violation: float | None = None,
    slack_price: float | None = None,
    expected: Mapping[Private | str, Expected] | None = None,
    known: Compiled | None = None,
) -> P:
    """A plan of this kind; see `Problem.plan`.

    Parameters
    ----------
    kind : type
    problem, algorithm, mechanism, rounds, epsilon, delta, release, observer, violation, slack_price
    expected
    known : Compiled, optional
        The same problem, compiled before: for plans that differ in other things.
    """
    checks.check_request(algorithm, rounds, release)
    delta, rounds = as_python_number(delta), None if rounds is None else int(rounds)
    noises = mechanism is not None and any(agent.private for agent in problem.agents)
    limits.check_violation(problem, algorithm, release, noises, violation, slack_price, delta)
    violation, slack_price = as_python_number(violation), as_python_number(slack_price)
    asked_for = Request(
        as_python_number(algorithm),
        mechanism,
        rounds,
        release,
        violation,
        expected=expectations(problem, expected),
    )
    request, known = choose(problem, asked_for, epsilon, delta, known)
    algorithm, rounds, release = request.algorithm, request.rounds, request.release
    assert algorithm is not None and rounds is not None and release is not None
    given = algorithm
    needs = algorithm.requirements
    if needs.convex:
        require_convex(problem, type(algorithm).__name__)
    checks.check_once(release, needs)
    asked = asked_of(problem, request.mechanism, epsilon)
    noisy = any(one is not None for one in asked.values())
    once = noisy and release == "once"
    checks.check_expected(request.expected, noisy, once)
    last_iterate.check_observer(observer, problem, algorithm, asked.values(), release)
    checks.check_groups(problem, asked)
    checks.check_switched_off(problem, noisy, epsilon, delta)
    checks.check_coupling(problem, algorithm)
    if known is None:
        program = compile_problem(problem)
        found = sensitivities(program, every=noisy or bool(needs.exact))
    else:
        program, found = known.program, known.sensitivities
    if needs.exact:
        program = with_objectives(problem, program)
    checks.check_terms(program, algorithm)
    agents = declared(problem, program, found, asked, needs, request.expected)
    if needs.exact:
        checks.check_affine(agents, algorithm, noisy, once)
    early = observer == "last iterate" or len(needs.weights) > 1
    if early:
        # The noise follows from the steps here, and nothing in the steps from the noise.
        algorithm = algorithm.resolved(
            program, conditions(program, agents, rounds, noisy_steps=False)
        )
        needs = algorithm.requirements
    steps = _releases(algorithm, release, rounds, program)
    checks.check_decay(agents, algorithm)
    if noisy and not once:
        agents = _smooth(agents, needs)
        checks.check_queries(agents)
    last = None
    if noisy and observer == "last iterate":
        last = last_iterate.constants(algorithm, program, agents, rounds)
    if request.quiet:
        agents = tuple(
            replace(agent, noise=quiet.noise, publication=quiet.publication)
            for agent, quiet in zip(agents, request.quiet, strict=True)
        )
    elif last is None:
        agents = calibrated(agents, needs, rounds, steps, delta, once)
        if violation == 0:
            agents = truncated(agents, delta or 0.0)
    else:
        agents = last_iterate.calibrated(agents, last, delta)
    if noisy and needs.secret is not None:
        agents = _split(agents, needs.secret, program, rounds)
    forecast = request.forecast
    if once:
        if known is None:
            optimum = at_stand_ins(problem, program, found)
            around = responses(program, optimum)
        else:
            optimum, around = known.at_stand_ins, known.responses
        stakes = optimum.stakes
        if not request.quiet:
            agents = published(agents, around, by_agent(program, stakes))
        if program.kept:
            assert violation is not None
            program = limits.with_margins(program, agents, violation, slack_price, stakes)
            if by_price(stakes):
                request = request.chosen(
                    "violation",
                    "violation= is divided over constraints, and noise is shaped, by what margins "
                    "cost for the stand-ins (like=); it holds for all data",
                )
        stand_ins = stand_ins_of(problem)
        # What margins and their constraints cost is not predicted.
        unknown = Share(math.nan, by_data=False)
        share = unknown if program.kept else predicted_share(agents, around, stand_ins)
        forecast = of_releases(agents, stand_ins, share, delta or 0.0)
        if algorithm.weighs_noise:
            program = replace(program, noise=slope_noise(program, agents, around))
            if program.noise is not None and share.left >= LOUD:
                request = request.chosen("shrink", SHRUNK)
    if not early:
        public = conditions(program, agents, rounds, noisy_steps=noisy and not once)
        algorithm = algorithm.resolved(program, public)
        steps_on = MomentsTerm not in needs.queries
        if noisy and not once and not forecast and steps_on:
            forecast = of_other_steps(agents, public, steps, delta or 0.0)
    checks.check_sets(program)
    once_per_kind(agents, lambda agent: checks.check_start(agent, once))
    if needs.exact == "joint":
        checks.check_joint_minimiser(program, agents, noisy, once)
    elif needs.exact:
        once_per_kind(agents, lambda agent: checks.check_minimiser(agent, noisy, once))
    checks.check_bounded(problem, program, agents)
    guarantee = no_guarantee(_why_none(problem))
    if noisy:
        amplification = None
        if last is None:
            agents = _priced(agents, steps, needs, delta or 0.0)
        else:
            agents, amplification = last_iterate.priced(agents, last, delta or 0.0)
        agents = budgeted(agents)
        guarantee = make_guarantee(agents, releases=steps, once=once, groups=problem.group_names)
        if program.kept and violation is not None:
            guarantee = replace(guarantee, kept=limits.promise(violation, slack_price))
        if last is not None and amplification is not None:
            guarantee = last_iterate.guaranteed(guarantee, agents, last, amplification)
    return kind(
        problem=problem,
        algorithm=algorithm,
        rounds=rounds,
        release=release,
        observer=observer,
        program=program,
        agents=agents,
        last=last,
        guarantee=guarantee,
        fingerprint=named(
            fingerprint_of(
                problem,
                program,
                agents,
                Asked(given, rounds, release, observer, delta, violation, slack_price),
                algorithm,
            ),
            program.kernel,
        ),
        choices=request.choices,
        forecast=algorithm.diverges(program) or "; ".join(filter(None, (bent(problem), forecast))),
        violation=violation,
    )


def named(digest: str, kernel: str) -> str:
    """A fingerprint: the digest of what was given, and what takes local steps where it matters."""
    return f"{digest}-{kernel}" if kernel else digest


def _why_none(problem: Declaration) -> str:
    """Why a plan without noise has no guarantee."""
    if any(agent.private for agent in problem.agents):
        return "noise is off"
    if any(agent.kept for agent in problem.agents):
        return "none is needed, private data are in own= alone and nothing of them leaves"
    return "the model declares nothing private"


def _smooth(agents: Agents, needs: Requirements) -> Agents:
    """With the smoothness of objectives, where bounds follow from it."""
    if not any(query.smooth for query in needs.queries):
        return agents
    return tuple(
        agent
        if agent.sensitivity is None
        else replace(agent, facts=replace(agent.facts, smoothness=_smoothness(agent, needs)))
        for agent in agents
    )


def _smoothness(agent: AgentTerms, needs: Requirements) -> Smoothness | None:
    """What is derived, or else the user's claim."""
    form, claimed = agent.program.form, needs.smoothness
    derived = smoothness(form)
    if derived is None:
        return None if claimed is None else Smoothness(claimed, asserted=True)
    turn = record_smoothness(form)
    return Smoothness(derived, False, curvature(form), math.inf if turn is None else turn)


def _split(agents: Agents, secret: SecretSums, program: Program, rounds: int) -> Agents:
    """With parts of the noise in sums over all agents, of gradients or of second moments."""
    check_secret(agents, secret)
    moves, size = {agent.name: agent.bound for agent in agents}, size_of(program)
    if any(MomentsTerm in agent.facts.queries for agent in agents):
        found = moment_sum(program)
        size = found.size
        moves = {
            agent.name: term.moved(agent.program.form.private)
            for agent, term in zip(agents, found.terms, strict=True)
        }
    least = min(a.asked.mechanism.decay for a in agents if a.asked is not None) ** (rounds - 1)
    return split(agents, secret, moves, size, least)


def _releases(
    algorithm: Algorithm[Any, Any], release: Release, rounds: int, program: Program
) -> int:
    return 1 if release == "once" else algorithm.releases(rounds, program)


def _composed(agents: Agents, count: int, needs: Requirements) -> dict[str, Composition]:
    """The first `count` releases of every agent, as often as one person is exposed to them."""

    @functools.cache
    def exposed(noise: Calibrated | None, share: int) -> Composition:
        if noise is None:
            return Composition()
        return noise.composed(count, needs.releases).repeated(share)

    return {agent.name: exposed(agent.noise, agent.share) for agent in agents}


def _priced(agents: Agents, steps: int, needs: Requirements, delta: float) -> Agents:
    """What the planned releases cost every agent."""
    losses = _composed(agents, steps, needs)
    # Some prices take seconds, and agents often release alike.
    prices = {loss: loss.price(delta) for loss in dict.fromkeys(losses.values())}
    agents = tuple(replace(a, loss=losses[a.name], price=prices[losses[a.name]]) for a in agents)
    if all(agent.noise is None or agent.noise.split is None for agent in agents):
        return agents
    open_ = tuple(replace(a, noise=a.noise and a.noise.alone) for a in agents)
    alone = _composed(open_, steps, needs)
    return tuple(replace(a, alone=alone[a.name].price(delta)) for a in agents)
