"""Everything that fixes the guarantee, before any data are read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from . import display
from .accounting import Composition, Price, check_delta
from .algorithms.base import Algorithm
from .arguments import whole
from .conic import ConicProgram, Outcome, bounded_for_all_slopes
from .errors import ModelError, PrivacyError
from .guarantee import (
    ASSUMPTIONS,
    OBSERVER,
    SEEDED,
    STATED_ACCURACY,
    AgentGuarantee,
    Guarantee,
)
from .ledger import Account, Budget, Ledger
from .mechanism import Calibrated, Gaussian, Laplace, Mechanism
from .model import Problem
from .private import Private
from .program import LocalProgram, Program, compile_problem, require_convex
from .sensitivity import Sensitivity, derive

if TYPE_CHECKING:
    from .executors.base import Executor
    from .result import Result, Transcript
    from .run import DataSource


@dataclass(frozen=True, eq=False)
class Plan:
    """A problem, an algorithm and a mechanism with all their numbers; made by `Problem.plan`.

    Attributes
    ----------
    problem : Problem
    algorithm : Algorithm
        With every default replaced by a number.
    calibrated : Calibrated or None
        The mechanism with its multiplier; None without noise.
    rounds : int
    program : Program
        The problem as plain arrays.
    sensitivities : tuple of (Sensitivity or None)
        Per agent; None where nothing had to be derived.
    price : Price or None
        Total of the planned releases; None without noise.
    guarantee : Guarantee
        Of a run without a seed.
    fingerprint : str
        Hash of the program, the algorithm, the mechanism and the rounds: transcripts carry it.
    """

    problem: Problem = field(repr=False)
    algorithm: Algorithm[Any, Any]
    calibrated: Calibrated | None
    rounds: int
    program: Program = field(repr=False)
    sensitivities: tuple[Sensitivity | None, ...] = field(repr=False)
    price: Price | None
    guarantee: Guarantee = field(repr=False)
    fingerprint: str = field(repr=False)

    def run(
        self,
        *,
        data: Mapping[Private | str, DataSource] | None = None,
        seed: int | None = None,
        tolerance: float | None = None,
        record: bool = False,
        ledger: Ledger | None = None,
        executor: Executor | None = None,
        verbose: bool | None = None,
    ) -> Result:
        """Run the plan on private data, which are read here for the first time.

        Parameters
        ----------
        data : mapping of Private or its name to array_like or callable, optional
            Values for private objects declared by shape, or replacing declared ones.
        seed : int, optional
            For reproducible studies; the guarantee then says "not for release".
        tolerance : float, optional
            Stop once primal and dual residual, both computed from released values, are below it.
        record : bool
            Keep the transcript of all releases in the result (memory grows with the rounds).
        ledger : Ledger, optional
            Of an earlier run on the same data: its spending counts against the budget.
        executor : Executor, optional
            Where agents live; in this process if omitted.
        verbose : bool, optional
            Print banner, progress and result; by default only on a terminal.

        Returns
        -------
        Result
            Also sets ``variable.value`` of the problem's variables.

        Raises
        ------
        DataError
            If data are missing or do not fit their declaration.
        BudgetError
            If the ledger leaves no room for one round.
        """
        from .run import run_plan

        return run_plan(
            self,
            data=data or {},
            seed=seed,
            tolerance=tolerance,
            record=record,
            ledger=ledger,
            executor=executor,
            verbose=verbose,
        )

    def replay(self, transcript: Transcript) -> Result:
        """Recompute a run from its releases, without data and without spending.

        Raises
        ------
        PrivacyError
            If the transcript does not belong to this plan.
        """
        from .run import replay_plan

        return replay_plan(self, transcript)

    def guarantee_for(self, seed: int | None) -> Guarantee:
        """The guarantee of a run with or without a seed."""
        if seed is None or self.guarantee.kind == "none":
            return self.guarantee
        return replace(self.guarantee, assumptions=(SEEDED, *self.guarantee.assumptions))

    @property
    def reported(self) -> str:
        """Which iterate the result reports: the algorithm's choice, or by the noise."""
        return self.algorithm.output or ("last" if self.calibrated is None else "average")

    def accounts(self) -> list[Account]:
        """Fresh accounts with the plan's budget, one per agent."""
        budget = None
        if self.price is not None and self.calibrated is not None:
            budget = Budget(self.price.epsilon, self.price.delta, self._planned(self.calibrated))
        return [
            Account(local.name, {s.name: str(s.adjacency) for s in local.form.private}, budget)
            for local in self.program.agents
        ]

    def _planned(self, calibrated: Calibrated) -> Composition:
        steps = self.rounds * self.algorithm.requirements.releases
        return calibrated.mechanism.compose(Composition(), calibrated.multiplier, steps)

    def __str__(self) -> str:
        return display.banner(self)


def make_plan(
    problem: Problem,
    algorithm: Algorithm[Any, Any],
    *,
    mechanism: Mechanism | str | None,
    rounds: int,
    epsilon: float | None,
    delta: float | None,
) -> Plan:
    """See `Problem.plan`."""
    if not whole(rounds, 1):
        raise ModelError(f"rounds={rounds!r} must be an int of at least 1.")
    if not isinstance(algorithm, Algorithm):
        raise ModelError(
            f"plan(...) takes an algorithm object first, got {type(algorithm).__name__}; write "
            "for example problem.plan(dp.LinearizedADMM(rho=10), epsilon=1.0, delta=1e-6)."
        )
    needs = algorithm.requirements
    if needs.convex:
        require_convex(problem, type(algorithm).__name__)
    chosen = _mechanism(mechanism)
    private = any(agent.private for agent in problem.agents)
    if not private:
        chosen = None
    elif chosen is None and (epsilon is not None or delta is not None):
        raise PrivacyError(
            "mechanism=None switches the noise off, so epsilon= and delta= promise nothing. Drop "
            "them, or name a mechanism."
        )
    program = compile_problem(problem, exact=needs.exact)
    certify = chosen is not None or needs.exact
    sensitivities = tuple(
        derive(local.form, local.name) if certify and local.form.private else None
        for local in program.agents
    )
    rounds = int(rounds)
    steps = rounds * needs.releases
    calibrated = None if chosen is None else _calibrate(chosen, steps, epsilon, delta)
    step_epsilon = math.inf if calibrated is None else calibrated.step_epsilon
    resolved = algorithm.resolved(program, step_epsilon)
    for local in program.agents:
        _require_finite_start(local)
    if needs.exact:
        for local in program.agents:
            _require_minimiser(local, noisy=calibrated is not None and bool(local.form.private))
    price = None
    if calibrated is not None:
        composition = calibrated.mechanism.compose(Composition(), calibrated.multiplier, steps)
        price = composition.price(0.0 if delta is None else delta)
    guarantee = _guarantee(
        program, sensitivities, calibrated, price, steps, private, needs.solves_privately
    )
    fingerprint = _fingerprint(program, resolved, calibrated, rounds)
    return Plan(
        problem,
        resolved,
        calibrated,
        rounds,
        program,
        sensitivities,
        price,
        guarantee,
        fingerprint,
    )


def _fingerprint(
    program: Program,
    algorithm: Algorithm[Any, Any],
    calibrated: Calibrated | None,
    rounds: int,
) -> str:
    digest = hashlib.sha256(f"{algorithm!r} {calibrated!r} {rounds}".encode())
    for local in program.agents:
        # Not the names of private objects: cvxpy numbers those that have none.
        private = [(s.shape, s.adjacency, s.sign) for s in local.form.private]
        digest.update(f"{local.name} {local.n} {private}".encode())
        pieces = [(p.shape, p.entries.tolist(), p.offset) for p in local.layout.pieces]
        digest.update(f"{pieces} {local.constraints.cones} {local.constraints.A.shape}".encode())
        A = local.constraints.A
        for array in (local.shared, local.slots, local.start, local.constraints.b):
            digest.update(np.ascontiguousarray(array).tobytes())
        for array in (A.data, A.indices, A.indptr):
            digest.update(np.ascontiguousarray(array).tobytes())
        points = local.start, local.start + 1.0, local.start + np.sin(np.arange(local.n))
        digest.update(local.form.probe(points).tobytes())
    return digest.hexdigest()


def _mechanism(mechanism: Mechanism | str | None) -> Mechanism | None:
    # Not isinstance: a subclass could draw other noise than the guarantee is computed for.
    if mechanism is None or type(mechanism) in (Gaussian, Laplace):
        return cast("Mechanism | None", mechanism)
    named = {"gaussian": Gaussian(), "laplace": Laplace()}
    if isinstance(mechanism, str) and mechanism in named:
        return named[mechanism]
    raise PrivacyError(
        f"mechanism={mechanism!r} is unknown. Write dp.Gaussian(), dp.Laplace(), or None for a "
        "run without noise and without guarantee."
    )


def _calibrate(
    mechanism: Mechanism, steps: int, epsilon: float | None, delta: float | None
) -> Calibrated:
    fixed = mechanism.per_step()
    if delta is not None:
        check_delta(delta)
    if isinstance(mechanism, Gaussian) and not delta:
        raise PrivacyError(
            f"Gaussian noise has no guarantee at delta={delta!r}: its privacy loss is unbounded. "
            "Write plan(..., delta=1e-6), or use mechanism=dp.Laplace() for pure epsilon."
        )
    if fixed is None:
        if epsilon is None:
            raise PrivacyError(
                "The plan has no privacy budget. Write plan(..., epsilon=1.0, delta=1e-6) for a "
                "total budget, give the mechanism a level per release (step_epsilon=...), or pass "
                "mechanism=None for a run without noise and without guarantee."
            )
        return Calibrated(mechanism, mechanism.for_total(steps, epsilon, delta or 0.0))
    if epsilon is not None:
        raise PrivacyError(
            f"{mechanism} noise was given a level of its own and the plan a total epsilon, which "
            "would fix it twice. Drop epsilon= (the total is then computed and printed), or the "
            "mechanism's level."
        )
    return Calibrated(mechanism, fixed)


def _guarantee(
    program: Program,
    sensitivities: tuple[Sensitivity | None, ...],
    calibrated: Calibrated | None,
    price: Price | None,
    steps: int,
    private: bool,
    solves_privately: bool,
) -> Guarantee:
    if calibrated is None or price is None:
        reason = "noise is off" if private else "the model declares nothing private"
        return Guarantee("none", math.inf, 0.0, reason, "none", OBSERVER, "none", (), ())
    agents = []
    for local, sensitivity in zip(program.agents, sensitivities, strict=True):
        if sensitivity is None:
            continue
        bound = sensitivity.bound(calibrated.mechanism.norm)
        agents.append(
            AgentGuarantee(
                agent=local.name,
                adjacency={s.name: str(s.adjacency) for s in sensitivity.private},
                sensitivity=bound.value,
                exact=bound.exact,
                scale=calibrated.multiplier * bound.value,
                releases=steps if bound.value > 0 else 0,
            )
        )
    mechanism = (
        f"{calibrated.mechanism} noise, scale {calibrated.multiplier:.6g} times the "
        f"l{calibrated.mechanism.norm} sensitivity, {steps} releases per agent"
    )
    return Guarantee(
        kind="worst-case",
        epsilon=price.epsilon,
        delta=price.delta,
        mechanism=mechanism,
        accountant=price.accountant,
        observer=OBSERVER,
        certificate="derived",
        agents=tuple(agents),
        assumptions=ASSUMPTIONS if not solves_privately else (*ASSUMPTIONS, STATED_ACCURACY),
    )


def _require_finite_start(local: LocalProgram) -> None:
    """Refuse a start at which the objective has no finite gradient, such as log at 0."""
    if not np.isfinite(local.form.at_zero().gradient(local.start)).all():
        raise ModelError(
            f"The objective of agent '{local.name}' has no finite gradient at the starting point "
            "(the point of its set closest to 0). Give one inside its domain, for example "
            "dp.Problem(agents, start={x: 1.0})."
        )


def _require_minimiser(local: LocalProgram, *, noisy: bool) -> None:
    """Refuse an exact local step that has no minimiser.

    Without noise the step is tried once at the start. With noise the linear term can take any
    value, so no direction may be left in which the set is unbounded and the objective flat.
    """
    assert local.exact is not None
    D = np.zeros(local.n)
    D[local.shared] = 1.0
    if not noisy:
        answer = ConicProgram(local.exact).solve(D, np.zeros(local.n), local.start)
        if answer.outcome is Outcome.UNBOUNDED:
            raise ModelError(_unbounded(local.name, "has no minimiser"))
        return
    if not bounded_for_all_slopes(local.exact, local.shared):
        raise ModelError(_unbounded(local.name, "has no minimiser for some values of the noise"))


def _unbounded(name: str, what: str) -> str:
    return (
        f"The exact local step of agent '{name}' {what}: its set is unbounded in a direction in "
        "which its objective does not grow quadratically. Add bounds to its variables, or use "
        "dp.LinearizedADMM, whose steps always have a minimiser."
    )
