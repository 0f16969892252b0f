"""Everything that fixes the guarantee, before any data are read."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._arguments import as_python_number, check_flag, countable, listed, one_of, pairs, show
from ..algorithms.base import Algorithm, Requirements
from ..algorithms.program import LocalProgram, Program, compile_problem, require_convex
from ..errors import ModelError, PrivacyError
from ..guard import frameless
from ..model.curvature import curvature, record_smoothness, smoothness
from ..model.declaration import Agent, Declaration
from ..model.normal_form import BoundObjective
from ..privacy.accounting import Composition, Price
from ..privacy.accounts import Account, Budget
from ..privacy.entries import Entry
from ..privacy.last_iterate import LastIterate
from ..privacy.mechanism import Calibrated, Laplace
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.kept_vectors import UNKNOWN, Smoothness
from ..sensitivity.rehearsal import rehearse
from ..sensitivity.release_once import Statistic, publication
from ..solvers.conic import ConicProgram, Outcome, bounded_for_slopes
from ..solvers.projector import Projector
from .calibration import Asked, Declared, budget, calibrate, declared
from .fingerprint import fingerprint_of
from .guarantee import SEEDED, Guarantee, make_guarantee, no_guarantee

T = TypeVar("T")
P = TypeVar("P", bound="Terms")
Array = NDArray[np.float64]
Release = Literal["each step", "once"]
Observer = Literal["everyone", "last iterate"]
# Releases of different noise that are priced one by one.
_LISTED = 1_000_000


@dataclass(frozen=True, eq=False)
class Terms:
    """What a plan consists of; see `dpcvx.Plan`, which has the verbs."""

    problem: Declaration = field(repr=False)
    algorithm: Algorithm[Any, Any]
    calibrated: tuple[Calibrated | None, ...]
    rounds: int
    release: Release
    observer: Observer
    program: Program = field(repr=False)
    sensitivities: tuple[Sensitivity | None, ...] = field(repr=False)
    publications: tuple[Statistic | None, ...] = field(repr=False)
    smoothness: tuple[Smoothness, ...] = field(repr=False)
    last: LastIterate | None = field(repr=False)
    prices: Mapping[str, Price] = field(repr=False)
    budgets: Mapping[str, float] = field(repr=False)
    losses: Mapping[str, Composition] = field(repr=False)
    guarantee: Guarantee = field(repr=False)
    fingerprint: str = field(repr=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Terms:
        # All else is frozen and public.
        return replace(self, problem=copy.deepcopy(self.problem, memo))

    @frameless
    def guarantee_for(self, *, seeded: bool) -> Guarantee:
        """The guarantee of a run with or without a seed."""
        check_flag("seeded", seeded)
        if not seeded or self.guarantee.kind == "none":
            return self.guarantee
        return replace(self.guarantee, assumptions=(SEEDED, *self.guarantee.assumptions))

    @property
    def reported(self) -> str:
        """Which iterate the result reports: the algorithm's choice, or by the noise."""
        noisy = self.noisy and not self.published and not self.hidden
        return self.algorithm.output or ("average" if noisy else "last")

    @property
    def price(self) -> Price | None:
        """Total of the planned releases, of the agent that loses most; None without noise."""
        return max(self.prices.values(), key=lambda price: price.epsilon, default=None)

    @property
    def noisy(self) -> bool:
        """Whether releases are noisy."""
        return any(noise is not None for noise in self.calibrated)

    @property
    def hidden(self) -> bool:
        """Whether nothing but the last iterate leaves."""
        return self.observer == "last iterate"

    @property
    def published(self) -> bool:
        """Whether the data leave their agents once, with noise, and the rounds are public."""
        return self.noisy and self.release == "once"

    @frameless
    def releases(self, rounds: int) -> int:
        """Number of releases of an agent in so many rounds."""
        if not countable(rounds, 0):
            raise ModelError(f"rounds={show(rounds)} must be an int of at least 0.")
        rounds = int(rounds)
        return _releases(self.algorithm, self.release, rounds, self.program)

    @frameless
    def composed(self, rounds: int) -> dict[str, Composition]:
        """What one person is exposed to in so many rounds, by agent that holds their data."""
        needs = self.algorithm.requirements
        found = _composed(self.problem, self.calibrated, self.releases(rounds), needs)
        return {
            local.name: composition
            for local, composition in zip(self.program.agents, found, strict=True)
        }

    def accounts(self) -> list[Account]:
        """Fresh accounts with the plan's budget, one per agent."""
        return [
            Account(
                local.name,
                {s.name: s.adjacency.exact for s in local.form.private},
                None
                if (price := self.prices.get(local.name)) is None
                else Budget(
                    self.budgets[local.name],
                    price.delta,
                    self.losses.get(local.name, Composition()),
                ),
                share=share,
            )
            for local, share in zip(self.program.agents, self.problem.shares(), strict=True)
        ]

    @frameless
    def prepay(self, accounts: Sequence[Account]) -> list[tuple[str, Entry]]:
        """Charge a run whose last iterate alone leaves, before it begins, and list the charges.

        Raises
        ------
        BudgetError
            If an account cannot afford it.
        """
        given = listed(accounts) or ()
        if len(given) != len(self.calibrated) or not all(isinstance(a, Account) for a in given):
            raise ModelError(
                f"plan.prepay({show(accounts)}) takes one account per agent, as plan.accounts() "
                "gives them."
            )
        if self.last is None:
            return []
        size = max(local.n for local in self.program.agents if local.form.private)
        charges = []
        for account, noise in zip(accounts, self.calibrated, strict=True):
            loss = self.losses.get(account.agent, Composition())
            if noise is None or loss == Composition():
                continue
            grid = noise.hidden_grid(self.last.level, size)
            entry = Entry(
                round=0,
                step=1,
                mechanism=str(noise.mechanism),
                multiplier=1 / math.sqrt(loss.mu2) if loss.mu2 > 0 else 0.0,
                sensitivity=grid.sensitivity,
                grid=grid.width,
                certificate="asserted" if self.guarantee.kind == "asserted" else "derived",
                released=f"last iterate of {self.rounds} rounds",
                stated=loss.stated[0] if loss.stated else None,
            )
            account.charge_run(entry, loss)
            charges.append((account.agent, entry))
        return charges


def make_terms(
    kind: type[P],
    problem: Declaration,
    algorithm: Algorithm[Any, Any],
    *,
    mechanism: Asked | Mapping[Agent | str, Asked],
    rounds: int,
    epsilon: float | Mapping[Agent | str, float] | None,
    delta: float | None,
    release: Release,
    observer: Observer,
) -> P:
    """A plan of this kind; see `Problem.plan`."""
    if not countable(rounds, 1):
        raise ModelError(
            f"rounds={show(rounds)} must be an int of at least 1, and one to count to."
        )
    if not isinstance(algorithm, Algorithm):
        raise ModelError(
            f"plan(...) takes an algorithm object first, got {type(algorithm).__name__}; write "
            "for example problem.plan(dp.LinearizedADMM(rho=10), epsilon=1.0, delta=1e-6)."
        )
    algorithm = as_python_number(algorithm)
    delta = as_python_number(delta)
    needs = algorithm.requirements
    if needs.convex:
        require_convex(problem, type(algorithm).__name__)
    if not one_of(release, "each step", "once"):
        raise ModelError(
            f"release={show(release)} is unknown: write 'each step' (noise in every local step) or "
            "'once' (noisy data in place of the data, then any number of rounds)."
        )
    if release == "once" and needs.solves_privately:
        raise ModelError(
            "release='once' puts noise on the data and leaves nothing private to the local steps, "
            "so there is no output to perturb. Drop perturb=, or write release='each step'."
        )
    agents = {n: bool(a.private) for n, a in zip(problem.names, problem.agents, strict=True)}
    private = any(agents.values())
    asked = declared(agents, _by_name(problem, mechanism), _by_name(problem, epsilon))
    noisy = any(one is not None for one in asked)
    _check_observer(observer, problem, algorithm, asked, release)
    _check_alike(problem, asked, observer)
    if private and not noisy and (epsilon is not None or delta is not None):
        raise PrivacyError(
            "mechanism=None switches the noise off, so epsilon= and delta= promise nothing. Drop "
            "them, or name a mechanism."
        )
    _check_coupling(problem, algorithm)
    program = compile_problem(problem, exact=needs.exact)
    certify = noisy or needs.exact
    sensitivities = tuple(
        local.sensitivity() if (certify or local.clip is not None) and local.form.private else None
        for local in program.agents
    )
    once = noisy and release == "once"
    for local, sensitivity in zip(program.agents, sensitivities, strict=True):
        if needs.exact and sensitivity is not None and not sensitivity.constant:
            raise _not_affine(local.name, type(algorithm).__name__, sensitivity, once)
    rounds = int(rounds)
    early = observer == "last iterate" or needs.keeps
    if early:
        # The noise follows from the steps here, and nothing in the steps from the noise.
        algorithm = algorithm.resolved(program, math.inf)
        needs = algorithm.requirements
    steps = _releases(algorithm, release, rounds, program)
    _check_decay(asked, algorithm)
    if (needs.minimises or needs.keeps) and noisy and not once:
        for local, sensitivity in zip(program.agents, sensitivities, strict=True):
            _require_uniform(local, sensitivity, needs)
    if needs.solves_privately and needs.asserted is None and noisy:
        for local, sensitivity in zip(program.agents, sensitivities, strict=True):
            if sensitivity is not None and sensitivity.bound(2).value > 0:
                _require_steady(local)
    constants = tuple(
        _smoothness_of(local, needs)
        if (needs.keeps or needs.minimises) and sensitivity is not None and noisy and not once
        else UNKNOWN
        for local, sensitivity in zip(program.agents, sensitivities, strict=True)
    )
    last = None
    if observer == "last iterate" and noisy:
        last = algorithm.amplification(
            program,
            [0.0 if s is None else s.bound(2).value for s in sensitivities],
            any(
                s is not None and not s.clips_keep_convexity(local.form)
                for local, s in zip(program.agents, sensitivities, strict=True)
            ),
            rounds,
        )
    uneven = len(needs.weights) > 1 and release != "once"

    def fixed(one: Declared, share: int) -> Calibrated:
        """The multiplier of who asked for this, and has a group with so many agents."""
        # One person is exposed to the releases of all agents that may hold data of theirs.
        decay, ratios, exposed = one.mechanism.decay, [1.0], steps * share
        if uneven or (decay < 1 and release != "once"):
            _check_long(rounds, len(needs.weights))
            ratios = [decay**t * w for t in range(rounds) for w in needs.weights][needs.free :]
            exposed = needs.releases // len(needs.weights) * share
        found = calibrate(one, exposed, ratios, delta, last)
        return replace(found, weights=needs.weights, free=needs.free) if uneven else found

    shared = [
        None if one is None else (one, share)
        for one, share in zip(asked, problem.shares(), strict=True)
    ]
    found = {pair: fixed(*pair) for pair in dict.fromkeys(shared) if pair is not None}
    calibrated = tuple(None if pair is None else found[pair] for pair in shared)
    publications: list[Statistic | None] = [None] * len(program.agents)
    for k, (noise, sensitivity) in enumerate(zip(calibrated, sensitivities, strict=True)):
        if once and noise is not None and sensitivity is not None:
            norm, name = noise.mechanism.norm, program.agents[k].name
            publications[k] = publication(sensitivity, norm, name)
    if not early:
        # After a single release the steps see no noise; else rules go by the noisiest agent's.
        levels = [] if once else [one.step_epsilon for one in found.values()]
        algorithm = algorithm.resolved(program, min(levels, default=math.inf))
    for local, noise, sensitivity in zip(program.agents, calibrated, sensitivities, strict=True):
        public = local.form.at_zero()
        _require_finite_start(local, public)
        if noise is not None and sensitivity is not None:
            p = noise.mechanism.norm
            level = sensitivity.bound(p).value
            if level == math.inf and not once:
                level = _bound_at_start(local, sensitivity, p)
            rehearse(local.form, public, sensitivity, p, level, local.start, local.name)
    if needs.exact:
        for local, sensitivity in zip(program.agents, sensitivities, strict=True):
            _require_minimiser(local, _slope(local, sensitivity, once) if noisy else None)
    prices, losses, amplification = {}, {}, None
    if last is not None:
        multiplier = next(noise.multiplier for noise in calibrated if noise is not None)
        stated = last.stated(multiplier, delta or 0.0)
        losses, amplification = stated.losses, stated.amplification
        prices = dict.fromkeys(agents, stated.price)
    elif noisy:
        losses = dict(zip(agents, _composed(problem, calibrated, steps, needs), strict=True))
        priced = {loss: loss.price(delta or 0.0) for loss in dict.fromkeys(losses.values())}
        prices = {name: priced[loss] for name, loss in losses.items()}
    guarantee = no_guarantee("noise is off" if private else "the model declares nothing private")
    if noisy:
        guarantee = make_guarantee(
            program,
            sensitivities,
            publications if once else None,
            calibrated,
            prices,
            releases=steps,
            rho=max(loss.rho for loss in losses.values()),
            groups=problem.group_names,
            needs=needs,
            smoothness=constants,
            last=last,
            amplification=amplification,
        )
    budgets = {
        name: budget(name, one, prices[name]) if agents[name] else prices[name].epsilon
        for name, one in zip(agents, asked, strict=True)
        if name in prices
    }
    what = release if observer == "everyone" else f"{release}, {observer}"
    raised = {name: total for name, total in budgets.items() if total > prices[name].epsilon}
    if raised:  # an interrupted run goes on under the budget that it began with
        what += f", within {raised}"
    fingerprint = fingerprint_of(program, algorithm, calibrated, rounds, what, problem.group_names)
    return kind(
        problem,
        algorithm,
        calibrated,
        rounds,
        release,
        observer,
        program,
        sensitivities,
        tuple(publications),
        constants,
        last,
        prices,
        budgets,
        losses,
        guarantee,
        fingerprint,
    )


def _by_name(problem: Declaration, given: T | Mapping[Agent | str, T]) -> T | Mapping[str, T]:
    """A mapping with names of agents in place of agents."""
    if not isinstance(given, Mapping):
        return given
    names = {id(agent): name for name, agent in zip(problem.names, problem.agents, strict=True)}
    values = pairs(given)
    if values is None:
        raise ModelError(
            f"mechanism= or epsilon= is {show(given)}, which cannot be read. Write a dict, such as "
            "epsilon={'north': 1.0}."
        )
    found: dict[str, T] = {}
    for key, value in values:
        name = names.get(id(key), key)
        if not isinstance(name, str):
            raise ModelError(
                "mechanism= and epsilon= are values for all agents, or mappings by agents of the "
                f"problem or their names, and one has a key of type {type(key).__name__} that is "
                "none of these."
            )
        if name in found:
            raise ModelError(
                f"mechanism= or epsilon= has two values for agent {show(name)}, by itself and by "
                "its name. Keep one."
            )
        found[name] = value
    return found


def _check_observer(
    observer: str,
    problem: Declaration,
    algorithm: Algorithm[Any, Any],
    asked: Sequence[Declared | None],
    release: Release,
) -> None:
    """Refuse combinations for which nothing is proved."""
    if not one_of(observer, "everyone", "last iterate"):
        raise ModelError(
            f"observer={show(observer)} is unknown: write 'everyone' (who sees every released "
            "value) "
            "or 'last iterate' (who sees the result and nothing else of the run)."
        )
    if observer == "everyone":
        if algorithm.needs_last_iterate:
            raise PrivacyError(
                f"{algorithm} has a guarantee for who sees the last iterate only: whoever sees "
                "all of them knows whose turn it was. Write plan(..., observer='last iterate')."
            )
        return
    if any(one is not None and isinstance(one.mechanism, Laplace) for one in asked):
        raise PrivacyError(
            "Amplification by iteration is proved for Gaussian noise. Drop mechanism=, or write "
            "observer='everyone'."
        )
    if release == "once":
        raise PrivacyError(
            "With release='once' everything after the release is public, so there is nothing to "
            "hide from an observer. Drop observer=."
        )
    if problem.group_names:
        raise PrivacyError(
            "groups= spread one person's data over several users, and amplification by iteration "
            "is proved for a change of one user's data. Drop groups=, or write "
            "observer='everyone'."
        )
    if algorithm.output == "average":
        raise PrivacyError(
            "output='average' reports a mean over iterates of which only the last may be seen. "
            "Drop output=, or write observer='everyone'."
        )


def _check_alike(
    problem: Declaration, asked: Sequence[Declared | None], observer: Observer
) -> None:
    """Refuse different noise where it is not accounted for."""
    if len({one for one in asked if one is not None}) < 2:
        return
    private = {
        name: one
        for name, agent, one in zip(problem.names, problem.agents, asked, strict=True)
        if agent.private
    }
    for group in problem.group_names:
        if len({private[name] for name in group if name in private}) > 1:
            raise PrivacyError(
                "groups= spread one person's data over several agents, and what these lose "
                f"together is counted for agents with the same noise. Give {_and(group)} the same "
                "mechanism= and epsilon=, or drop groups=."
            )
    if observer == "last iterate":
        raise PrivacyError(
            "Amplification by iteration is proved for one noise in all turns. Give one mechanism= "
            "and one epsilon= for all agents, or write observer='everyone'."
        )


def _and(names: Sequence[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)


def _check_long(rounds: int, weights: int) -> None:
    """Refuse so many releases of different noise that they cannot be listed."""
    if rounds * weights > _LISTED:
        raise PrivacyError(
            f"rounds={rounds} is too many where noise differs from release to release, as with "
            "decay= or with several values a round: the releases are priced one by one, and at "
            f"most {_LISTED} are tried. Use fewer rounds, or constant noise."
        )


def _check_decay(asked: Sequence[Declared | None], algorithm: Algorithm[Any, Any]) -> None:
    fading = any(one is not None and one.mechanism.decay < 1 for one in asked)
    if fading and algorithm.requirements.in_turn:
        raise ModelError(
            f"dp.{type(algorithm).__name__} has one user per round, and noise that falls from "
            "round to round would charge them differently, which is not accounted for. Drop "
            "decay=."
        )


def _not_affine(agent: str, method: str, sensitivity: Sensitivity, once: bool) -> PrivacyError:
    kept = " release='once' stays possible with it where the data are second moments of records."
    return PrivacyError(
        f"dp.{method} minimises exactly, which is private where the gradient is affine in the "
        f"private data with a constant Jacobian. That of agent '{agent}' is not: "
        f"{sensitivity.obstacle}. Use dp.LinearizedADMM, which needs gradients only."
        f"{kept if once else ''}"
    )


def _require_finite_start(local: LocalProgram, public: BoundObjective) -> None:
    """Refuse a start at which the objective has no finite gradient, such as log at 0."""
    if not np.isfinite(public.gradient(local.start)).all():
        raise ModelError(
            f"The objective of agent '{local.name}' has no finite gradient at the starting point "
            "(the point of its set closest to 0). Give one inside its domain, for example "
            "dp.Problem(agents, start={x: 1.0})."
        )


def _require_uniform(
    local: LocalProgram, sensitivity: Sensitivity | None, needs: Requirements
) -> None:
    """Refuse steps inside an agent that one change may move apart without limit."""
    if sensitivity is None:
        return
    what, remedy = "Its local steps take", "use dp.DecentralizedGradient"
    if needs.minimises:
        what, remedy = "exact=True takes", "leave exact= out"
    if sensitivity.l2 == math.inf:
        raise PrivacyError(
            f"{what} gradients inside agent '{local.name}', at points that nobody sees, and one "
            "bound is needed of what a change of the data does to them at all points. None is "
            f"known: {sensitivity.obstacle}. Bound its variables, choose a loss with bounded "
            f"slopes, or {remedy}."
        )
    if not sensitivity.clips_keep_convexity(local.form):
        raise PrivacyError(
            f"{what} gradients of one function, and clipped ones of records with several scores, "
            f"as in agent '{local.name}', belong to none. Bound the data so that the sensitivity "
            f"is finite without clip=, or {remedy}."
        )


def _require_steady(local: LocalProgram) -> None:
    """Refuse noise on the result of local steps that are not known to move little with the data."""
    obstacle = Projector(local.constraints, local.name).obstacle
    if obstacle is not None:
        raise PrivacyError(
            f"Noise on the output of agent '{local.name}' needs local steps that provably move "
            f"little with its data. Its constraints have {obstacle}, for which no such steps are "
            "known: a solver's last digits could tell its data. Write perturb='objective', which "
            "works with any constraints, or state output_sensitivity= yourself."
        )


def _smoothness_of(local: LocalProgram, needs: Requirements) -> Smoothness:
    """What is derived, or else the user's claim."""
    derived = smoothness(local.form)
    if derived is not None:
        turn = record_smoothness(local.form)
        return Smoothness(derived, False, curvature(local.form), math.inf if turn is None else turn)
    if needs.minimises:  # the method refuses such objectives
        return UNKNOWN
    if needs.smoothness is None:
        raise ModelError(
            f"No smoothness constant can be derived for the objective of agent '{local.name}', and "
            "how far one change moves what it keeps follows from it. Give the algorithm "
            "smoothness=... with a bound for all admissible data, which the guarantee will call "
            "asserted."
        )
    return Smoothness(needs.smoothness, asserted=True)


def _bound_at_start(local: LocalProgram, sensitivity: Sensitivity, p: int) -> float:
    """The bound at the starting point, for want of one over the set; refuse if it is infinite."""
    level = sensitivity.bound(p, None, local.start).value
    if level == math.inf:
        raise PrivacyError(
            f"No sensitivity can be derived for agent '{local.name}': {sensitivity.obstacle}, and "
            "what one change does to the gradient is bounded neither over the agent's set nor at "
            "its starting point. A term may leave its domain for some admissible data (log or sqrt "
            "of a negative number), or have an infinite slope. Bound the variables, declare signs "
            "(nonneg=True), or write dp.Agent(..., clip=1.0)."
        )
    return level


def _releases(
    algorithm: Algorithm[Any, Any], release: Release, rounds: int, program: Program
) -> int:
    return 1 if release == "once" else algorithm.releases(rounds, program)


def _composed(
    problem: Declaration, calibrated: Sequence[Calibrated | None], count: int, needs: Requirements
) -> list[Composition]:
    """The first `count` releases of every agent, as often as one person is exposed to them."""
    pairs = list(zip(calibrated, problem.shares(), strict=True))
    found = {
        (one, share): Composition()
        if one is None
        else one.composed(count, needs.releases).repeated(share)
        for one, share in dict.fromkeys(pairs)
    }
    return [found[pair] for pair in pairs]


def _check_coupling(problem: Declaration, algorithm: Algorithm[Any, Any]) -> None:
    name, coupled = type(algorithm).__name__, algorithm.requirements.coupled
    if problem.coupling and not coupled:
        raise ModelError(
            f"dp.{name} agrees on variables that agents share, and takes no coupling= constraints. "
            "Use the same variable in both agents instead, or dp.GradientADMM for f(x) + g(y) with "
            "A x + B y = c."
        )
    if coupled and not problem.coupling:
        raise ModelError(
            f"dp.{name} needs the equalities that tie its agents. Write dp.Problem(agents, "
            "coupling=[A @ x + B @ y == c])."
        )


def _slope(local: LocalProgram, sensitivity: Sensitivity | None, once: bool) -> Array | None:
    """A generic linear term that noise adds to the local objective; None if it adds none."""
    if sensitivity is None:
        return None
    if not once:
        return np.sin(1.0 + np.arange(local.n))
    total = np.zeros(local.n)
    for J in sensitivity.jacobians:
        # Columns of one length, so that none is too small to be seen next to the others.
        lengths = np.sqrt(np.asarray(J.power(2).sum(axis=0)).ravel())
        weights = np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1.0), 0.0)
        total += J @ (weights * np.sin(1.0 + np.arange(J.shape[1])))
    return total


def _require_minimiser(local: LocalProgram, slope: Array | None) -> None:
    """Refuse an exact local step that has no minimiser.

    The step is tried once at the start. With noise the linear term can take any multiple of a
    generic slope, so no direction may be left in which the set is unbounded, the objective flat,
    and that slope not.
    """
    assert local.exact is not None
    D = np.zeros(local.n)
    D[local.shared] = 1.0
    answer = ConicProgram(local.exact).solve(D, np.zeros(local.n), local.start)
    if answer.outcome is Outcome.UNBOUNDED:
        raise ModelError(_unbounded(local.name, "has no minimiser"))
    if slope is not None and not bounded_for_slopes(local.exact, local.shared, slope):
        raise ModelError(_unbounded(local.name, "has no minimiser for some values of the noise"))


def _unbounded(name: str, what: str) -> str:
    return (
        f"The exact local step of agent '{name}' {what}: its set is unbounded in a direction in "
        "which its objective does not grow quadratically. Add bounds to its variables, or use "
        "dp.LinearizedADMM, whose steps always have a minimiser."
    )
