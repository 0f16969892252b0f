"""Promises of every method, each as a function that raises an error if the promise is broken."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike

from .._arguments import show
from ..algorithms.base import Algorithm
from ..defaults.proposal import planned
from ..errors import DpcvxError
from ..model.private import seal_all
from ..plan.request import Asked, Request
from ..plan.terms import Terms
from ..run.executors.in_process import Executor, Serial, Threads
from ..run.live import run_plan
from ..run.part import parts_of
from ..run.replay import replay_plan
from ..run.result import Result, Status
from ..run.resume import begin, is_batch
from .check import check_sensitivity as compared
from .instances import Instance
from .not_private import joint_problem, objective

# Rounds of private runs: several for every agent, also if one agent is updated per round.
_ROUNDS = 6
_EPSILON, _DELTA = 2.0, 1e-6
# Tolerance at which a run without noise stops, and largest allowed consensus residual, relative
# error and absolute error of the objective then.
_TOLERANCE, _AGREED, _RELATIVE, _ABSOLUTE = 1e-7, 1e-5, 1e-4, 1e-5


class Trial:
    """A method on one test problem, with the plans and runs that several checks share."""

    def __init__(
        self,
        method: Algorithm[Any, Any],
        exact: Algorithm[Any, Any],
        rounds: int | None,
        release: Literal["each_step", "once"],
        build: Callable[[], Instance],
    ) -> None:
        self.method, self.exact, self.rounds = method, exact, rounds
        self._release: Literal["each_step", "once"] = release
        self._build = build

    @property
    def noise(self) -> Asked:
        """Mechanism for the method: Gaussian, or Laplace for objective perturbation."""
        return "gaussian" if self.method.requirements.perturbed is None else "laplace"

    @cached_property
    def instance(self) -> Instance:
        """Test problem of this trial, and its synthetic data."""
        return self._build()

    def plan(self, method: Algorithm[Any, Any], mechanism: Asked, rounds: int = _ROUNDS) -> Terms:
        """Return a plan of a method; without a mechanism it has no noise.

        The plan has `rounds` rounds, and in addition the rounds that learn a scale, if any.
        """
        asked = Request(
            algorithm=method,
            mechanism=mechanism,
            rounds=method.fixed_rounds or rounds + len(method.requirements.first),
            epsilon=None if mechanism is None else _EPSILON,
            delta=None if mechanism is None else _DELTA,
            release=self._release,
        )
        return planned(Terms, self.instance.problem, asked)

    @cached_property
    def noisy(self) -> Terms:
        """Plan with noise: Gaussian, or Laplace for objective perturbation."""
        return self.plan(self.method, self.noise)

    @cached_property
    def result(self) -> Result:
        """Result of a run of the plan with noise, with seed 3."""
        return ran(self.noisy, seed=3)

    @cached_property
    def found(self) -> Any:
        """Outcome of `dp.check_sensitivity` for the plan with noise."""
        return compared(self.noisy)


def ran(
    plan: Terms,
    *,
    data: Mapping[Any, ArrayLike] | None = None,
    seed: int | None = None,
    tolerance: float | None = None,
    executor: Executor | None = None,
) -> Result:
    """Run a plan on synthetic data without printed output, and return the recorded result."""
    return run_plan(
        plan,
        data=seal_all(data),
        seed=seed,
        tolerance=tolerance,
        record=True,
        iterates=False,
        ledger=None,
        executor=executor,
        verbose=False,
        made_up=True,
    )


def is_reproduced(trial: Trial) -> None:
    """Check that a replay of the releases, without the data, computes the results of the run."""
    runs = [(trial.noisy, trial.result)]
    needs = trial.method.requirements
    if needs.secret is None and not needs.first:  # these methods support Gaussian noise only
        laplace = trial.plan(trial.method, "laplace")
        runs.append((laplace, ran(laplace, seed=3)))
    for plan, result in runs:
        assert result.transcript is not None
        again = replay_plan(copy.deepcopy(plan), result.transcript)
        _require_same(result, again, "a replay of the releases, without the data,")


def is_repeated(trial: Trial) -> None:
    """Check that runs with one seed are equal, and that another seed changes the run."""
    _require_same(trial.result, ran(trial.noisy, seed=3), "a second run with the same seed")
    _require_other(trial.result, ran(trial.noisy, seed=4), "a run with another seed")


def is_fresh(trial: Trial) -> None:
    """Check that runs without a seed draw new noise."""
    _require_other(ran(trial.noisy), ran(trial.noisy), "a second run without a seed")


def converges(trial: Trial) -> None:
    """Check that agents without noise end at the optimum of the joint problem."""
    problem = trial.instance.problem
    assert trial.rounds is not None
    result = ran(trial.plan(trial.exact, None, trial.rounds), tolerance=_TOLERANCE)
    whole = joint_problem(problem)
    whole.solve(cp.CLARABEL)
    best = float(np.asarray(whole.value))
    value = objective(problem, result.raw)
    apart = result.consensus_residual
    where = (
        f"after {result.rounds} rounds without noise the agents are {apart:.3g} apart, at an "
        f"objective of {value:.9g}; the optimum is {best:.9g}"
    )
    _require(
        abs(value - best) <= max(_RELATIVE * abs(best), _ABSOLUTE),
        f"{where}. A run that agrees on a wrong point often has multipliers that server and agents "
        "update by different rules",
    )
    _require(
        result.status is Status.CONVERGED and apart < _AGREED,
        f"{where}. It ended {result.status.name}: allow more rounds=, or look for residuals that "
        "do not measure how far agents are from agreeing",
    )


def is_charged(trial: Trial) -> None:
    """Check that the ledger holds the releases in order, and the planned total privacy loss."""
    plan, result = trial.noisy, trial.result
    assert result.transcript is not None
    most = 0
    for k, local in enumerate(plan.program.agents):
        entries = result.ledger[local.name].entries
        places = [(e.round, e.step) for e in entries]
        released = [(r.round, r.step) for r in result.transcript.releases if r.agent == k]
        _require(
            places == sorted(set(places)) and set(places) <= set(released),
            f"the ledger of agent '{local.name}' is out of order, or charges what it kept",
        )
        _require(
            bool(local.form.private) or not places,
            f"agent '{local.name}' has no private data and was charged",
        )
        most = max(most, len(places))
    planned = plan.releases(plan.rounds)
    _require(
        0 < most <= planned,
        f"an agent was charged for {most} releases where {planned} were planned: `releases` counts "
        "what `act` asks the oracle for",
    )
    spent = result.ledger.spent()
    _require(
        math.isclose(spent, plan.guarantee.epsilon, rel_tol=1e-9),
        f"the run spent epsilon = {spent:.9g} where {plan.guarantee.epsilon:.9g} was planned",
    )


def stays_in_bounds(trial: Trial) -> None:
    """Check that neighboring data change unreleased values only, within the charge."""
    _require(not trial.found.faults, "; ".join(trial.found.faults))


def differs_somewhere(trials: Sequence[Trial]) -> None:
    """Check that neighboring data change an unreleased value on at least one instance."""
    _require(
        any(trial.found.status != "vacuous" for trial in trials),
        "nothing that leaves an agent depends on its data, so that comparing neighbors tests "
        "nothing: does `act` use what the oracle answers?",
    )


def tells_nothing(trial: Trial) -> None:
    """Check that no printed text and no pickle of a run's objects shows private values."""
    plan, result = trial.noisy, trial.result
    things = (plan.problem, plan, result, result.ledger, result.history, result.transcript)
    for thing in things:
        for name, values in trial.instance.data.items():
            _require(
                not contains(thing, values),
                f"the {type(thing).__name__} contains values of private '{name}'",
            )


def stays_inside(trial: Trial) -> None:
    """Check that the last iterates of a private run satisfy the agents' constraints."""
    worst = trial.result.max_iterate_violation
    _require(worst < 1e-6, f"a point lies {worst:.3g} outside its agent's set")


def lives_anywhere(trial: Trial) -> None:
    """Check that serial and threaded executors and copied messages change no result."""
    others = {
        "agents one after the other": Serial(),
        "agents in threads": Threads(2),
        "copies of all messages": CopyingSerial(),
    }
    for what, executor in others.items():
        _require_same(
            trial.result, ran(trial.noisy, seed=3, executor=executor), f"a run with {what}"
        )


def takes_turns_in_a_batch(trial: Trial) -> None:
    """Check that a batch of agents computes bit for bit what agents compute one at a time."""
    for mechanism in ("gaussian", "laplace"):
        plan = trial.plan(trial.method, mechanism)
        _require(
            is_batch(plan, begin(parts_of(plan), None, seeded=True)),
            "batched says that one worker can take the turns of identical agents, and it cannot: "
            "only gradients as they are and steps are answered for many at once, and local steps "
            "have to be in closed form. Leave batched at False",
        )
        batch = ran(plan, seed=3)
        apart = ran(plan, seed=3, executor=Threads(1))
        _require_same(apart, batch, "a run with all agents in a batch")


def is_copied(trial: Trial) -> None:
    """Check that a deep copy of the plan, with the data passed to it, runs as the plan does."""
    twin = copy.deepcopy(trial.noisy)
    _require_same(trial.result, ran(twin, data=trial.instance.data, seed=3), "a deep copy")


def is_described(trial: Trial) -> None:
    """Check that the method's descriptions are single lines of at most 500 characters."""
    for thing in (trial.method, trial.noisy.algorithm):
        for text in (repr(thing), str(thing)):
            _require(
                0 < len(text) <= 500 and "\n" not in text and " at 0x" not in text,
                f"the method's text is no single line that says what it is: {text[:100]!r}",
            )


def refuses(trial: Trial) -> None:
    """Check that every parameter refuses invalid values, with an error that names the parameter."""
    method = trial.method
    _require(
        dataclasses.is_dataclass(method) and type(method).__dataclass_params__.frozen,  # type: ignore[attr-defined]
        "a method is a frozen dataclass of its parameters",
    )
    for parameter in dataclasses.fields(method):  # type: ignore[arg-type]
        for wrong in (object(), math.nan):
            given = f"{parameter.name}={show(wrong)}"
            try:
                trial.plan(dataclasses.replace(method, **{parameter.name: wrong}), trial.noise)  # type: ignore[type-var]
            except DpcvxError as error:
                _require(
                    parameter.name in str(error),
                    f"the refusal of {given} names it nowhere: {error}",
                )
            except Exception as error:
                raise AssertionError(
                    f"{given} ends in a {type(error).__name__}; refuse it in words, with a "
                    "ModelError, when the method is made"
                ) from error
            else:
                raise AssertionError(f"{given} is accepted")


# Checks by the texts of their promises, in the order in which they are performed.
PROMISES: dict[str, Callable[[Trial], None]] = {
    "without noise it converges to the optimum": converges,
    "releases alone reproduce the run": is_reproduced,
    "a seed repeats the run, and another changes it": is_repeated,
    "noise is fresh without a seed": is_fresh,
    "the ledger holds what was planned": is_charged,
    "neighbors differ by no more than was charged": stays_in_bounds,
    "nothing that comes back contains private values": tells_nothing,
    "points lie in their agents' sets": stays_inside,
    "executors change nothing": lives_anywhere,
    "a deep copy runs as the plan does": is_copied,
    "method and plan describe themselves": is_described,
}


class CopyingSerial(Serial):
    """Serial executor whose agents get copies of all messages, as in other processes."""

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call the agents in order, with a separate copy of each argument; copy the results."""
        arguments = None if each is None else [_copied(argument) for argument in each]
        results = super().map(method, *_copied(common), each=arguments)
        return _copied(results)


def _copied(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def contains(thing: object, values: ArrayLike) -> bool:
    """Return whether an object's texts or pickled bytes contain any of the private values."""
    texts = [repr(thing), str(thing), pickle.dumps(thing).decode("latin-1")]
    for value in np.ravel(values):
        shown = [repr(float(value)), f"{value:.6f}", np.float64(value).tobytes().decode("latin-1")]
        if any(mark in text for mark in shown for text in texts):
            return True
    return False


def _require(holds: bool, broken: str) -> None:
    if not holds:
        raise AssertionError(broken)


def _numbers(result: Result) -> Iterator[Any]:
    yield from (*result.last.vectors, *result.average.vectors)
    history = result.history
    yield from (history.primal, history.dual, history.penalty)


def _differ(first: Result, second: Result) -> bool:
    pairs = zip(_numbers(first), _numbers(second), strict=True)
    return not all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def _require_same(first: Result, second: Result, what: str) -> None:
    _require(not _differ(first, second), f"{what} computes something else, points or residuals")
    _require(first.ledger.to_json() == second.ledger.to_json(), f"{what} has another ledger")


def _require_other(first: Result, second: Result, what: str) -> None:
    _require(_differ(first, second), f"{what} computes the same: where is the noise?")
