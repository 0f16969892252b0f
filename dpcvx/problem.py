"""Problems and plans, with the methods that users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arguments import POSITIVE, check_argument, integer
from ._figure import card
from ._words import plural
from .algorithms.base import Algorithm
from .algorithms.summed import SHARING, SecretSharing, check_sharing
from .defaults import proposal
from .errors import ModelError
from .guard import frameless, without_attribute
from .model.agent import Agent
from .model.declaration import Declaration
from .model.defined import decided
from .model.prior import Prior
from .model.private import Private, seal_all
from .plan.agent_plan import Compiled
from .plan.banner import banner, derivation
from .plan.request import Constraints, Mechanisms, Observer, Release, Request, Scaling
from .plan.terms import Terms
from .privacy.ledger import Ledger
from .run.data import DataSource
from .run.executors.in_process import Executor
from .run.live import run_plan
from .run.replay import replay_plan
from .run.report import busy_line
from .run.result import Result, Status, Transcript
from .tuning.settings import SearchRequest, Way, ways

# The modules of searches are imported when a search begins.
if TYPE_CHECKING:
    from .tuning.forecast import Forecast
    from .tuning.tune import Comparison, Tradeoff, Tuned

# Names of attributes in cvxpy and other packages, and the code to write here instead.
_ASK_A_PLAN = "result = problem.plan(epsilon=1.0, delta=1e-6).run(), then result"
_PROBLEM_HINTS = {
    "run": "problem.plan(epsilon=1.0, delta=1e-6).run()",
    "solution": f"{_ASK_A_PLAN}.solution",
    "result": _ASK_A_PLAN,
    "ledger": f"{_ASK_A_PLAN}.ledger",
    "guarantee": "problem.plan(epsilon=1.0, delta=1e-6).guarantee",
}
_PLAN_HINTS = {
    "solve": "plan.run()",
    "tune": "problem.tune(epsilon=1.0, delta=1e-6)",
    "compare": "problem.compare(epsilon=1.0, delta=1e-6)",
    **{
        name: f"result = plan.run(), then result.{name}"
        for name in ("value", "status", "solution", "ledger", "history", "to_dict")
    },
    "epsilon": "plan.guarantee.epsilon",
    "delta": "plan.guarantee.delta",
    "result": "result = plan.run()",
}


@dataclass
class Told:
    """Stored forecast of a plan; copies and pickles of the plan omit it.

    Attributes
    ----------
    forecast : Forecast or None
        Last forecast; None before the first one.
    seconds : float
        Time limit of the last forecast, in seconds.
    """

    forecast: Forecast | None = None
    seconds: float = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Terms):
    """Method, noise and guarantee of a run, with all numbers; `Problem.plan` returns one.

    Attributes
    ----------
    problem : Problem
    algorithm : Algorithm
        Method with every default replaced by a number.
    rounds : int
    release : {"each_step", "once"}
    observer : {"everyone", "last_iterate", "iterates"}
    program : Program
        The problem as plain arrays.
    agents : tuple of AgentPlan
        Sensitivity, noise, privacy loss and budget of each agent; ``plan.agent("north")`` returns
        the one of that name.
    last : LastIterate or None
        Derivation of the guarantee if the observer does not see all messages; else None.
    guarantee : Guarantee
        Guarantee of a run without a seed.
    fingerprint : str
        Hash of the program, the method, the noise and the number of rounds. Transcripts contain it.
        If local steps need a compiled kernel, it also names the kernel, "numpy" or "numba".
    choices : tuple of Choice
        Choices of the plan for arguments that you omitted, with reasons.
    """

    problem: Problem = field(repr=False)
    _told: Told = field(init=False, repr=False, default_factory=Told)

    if not TYPE_CHECKING:  # a type checker would take every attribute for defined

        def __getattr__(self, name: str) -> Any:
            raise without_attribute(self, name, _PLAN_HINTS)

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_told": Told()}

    @frameless
    def forecast(
        self,
        time_limit: float = 2.0,
        *,
        proxy: Mapping[Private | str, DataSource] | None = None,
    ) -> Forecast:
        """Predict the accuracy of the plan's solutions by runs on copies of public proxy data.

        ``print(plan)`` calls it. The copies differ from the proxy data by an assumed error: the
        standard deviation in ``prior=`` if there is one, else 20 % of each entry. Records are
        instead resampled with replacement. The initial point and the optimum for the proxy data are
        scored on the same copies. The noise has a fixed seed. No private data are read, so the
        forecast costs no privacy.

        Parameters
        ----------
        time_limit : float
            Largest processor time in seconds. A later call with the same or a smaller limit reuses
            the result.
        proxy : mapping of Private or its name to array_like or callable, optional
            Public values in place of private ones; if omitted, ``dp.Private(..., proxy=...)`` or
            else the mean in ``prior=``. They must not be computed from the private data.

        Returns
        -------
        Forecast
            ``print(plan)`` shows its text. Without a proxy, or for nonconvex objectives, it
            predicts no gaps to the optimum, and only compares the noise with the data.

        Raises
        ------
        ModelError
            If `time_limit` is no positive number, or `proxy` is no mapping of private objects.
        DataError
            If a value in `proxy` does not fit its declaration.
        """
        check_argument("plan.forecast", "time_limit", time_limit, POSITIVE)
        from .tuning.forecast import forecast

        told = self._told
        if proxy is not None:
            return forecast(self, time_limit, proxy)
        earlier = told.forecast
        if earlier is None or (earlier.unsimulated and time_limit > told.seconds):
            told.forecast = earlier = forecast(self, time_limit)
            told.seconds = time_limit
        return earlier

    @frameless
    def run(
        self,
        *,
        data: Mapping[Private | str, DataSource] | None = None,
        seed: int | None = None,
        tolerance: float | None = None,
        record: bool = False,
        iterates: bool = False,
        ledger: Ledger | str | Path | None = None,
        executor: Executor | None = None,
        verbose: bool | None = None,
    ) -> Result:
        """Run the plan on private data, which the plan itself has not read.

        Arrays were checked and copied when ``dp.Private(array)`` was declared; a run warns if the
        array has changed since. Functions that fetch data are called here. The plan keeps the
        values of public parameters (``cp.Parameter``) that it was made with.

        Parameters
        ----------
        data : mapping of Private or its name to array_like or callable, optional
            Values for private objects declared by shape, or replacing declared ones.
        seed : int, optional
            Noise seed for reproducible studies on synthetic data. The guarantee then contains "not
            for release", because anyone who knows the seed can subtract the noise.
        tolerance : float, optional
            Stop as soon as primal and dual residual are below this number. Both are computed from
            released values.
        record : bool
            Keep the transcript of all releases in the result (memory grows with the rounds).
        iterates : bool
            Keep the iterates and residuals of every round in the result (memory grows with the
            rounds). They are computed from released values, so the guarantee covers them.
        ledger : Ledger, str or Path, optional
            Privacy ledger of earlier runs on the same data; their privacy loss counts against the
            budget. A path names a ledger file. If it does not exist, it is created, readable for
            you alone. The run writes every charge and release to this file first. If the run is
            interrupted, the same call resumes it, and charges nothing twice. If you pass a `Ledger`
            and the run fails, the ledger contains all that was released (all that was planned, if
            agents are in other processes). Pass a path if two runs may overlap: the second one then
            raises `LedgerError`.
        executor : Executor, optional
            Executor that runs the agents: ``dp.Serial()``, ``dp.Threads()`` or ``dp.Processes()``.
            If omitted, agents compute in this process, in threads if a local update takes longer
            than a millisecond. Results are equal bit for bit.
        verbose : bool, optional
            True prints plan, progress and result, False nothing. If omitted, a terminal shows a
            line of progress during the run.

        Returns
        -------
        Result
            The run also sets ``problem.status``, and ``variable.value`` of the problem's variables
            to ``result.solution``, or to None if there is no solution (see
            ``result.status.solved``).

        Raises
        ------
        ModelError
            If you have changed a public parameter since the plan was made: make the plan again. A
            plan from a pickle has its own copies of the parameters.
        DataError
            If data are missing or do not fit their declaration.
        PrivacyError
            If you request iterates or a transcript, but the observer sees the last iterate only.
        BudgetError
            If the remaining budget does not cover one round.
        LedgerError
            If the ledger's file is not intact, in use by another run, or cannot be written.
        """
        data = seal_all(data)  # first, so that no stack frame of the run holds the data themselves
        result = run_plan(
            self,
            data=data,
            seed=seed,
            tolerance=tolerance,
            record=record,
            iterates=iterates,
            ledger=ledger,
            executor=executor,
            verbose=verbose,
        )
        self.problem._last.status = result.status
        return result

    @frameless
    def replay(self, transcript: Transcript | str | Path) -> Result:
        """Recompute a run from its released values, without data and without privacy cost.

        Parameters
        ----------
        transcript : Transcript, str or Path
            Transcript of a recorded run. Or the path of a ledger file: the last finished run of
            this plan in the file is replayed.

        Raises
        ------
        PrivacyError
            If the transcript does not belong to this plan.
        LedgerError
            If the file is no intact ledger, or holds no finished run of this plan.

        Returns
        -------
        Result
            The replay also sets ``problem.status`` and ``variable.value``, as `run` does.
        """
        result = replay_plan(self, transcript)
        self.problem._last.status = result.status
        return result

    @property
    def derivation(self) -> str:
        """Text that shows how sensitivities follow from the model, agent by agent.

        ``print(plan.derivation)`` reads no private data.
        """
        return derivation(self)

    def __str__(self) -> str:
        forecast_ = self.forecast()
        return banner(self, self.guarantee, str(forecast_), forecast_.prefers_proxy)

    def __repr__(self) -> str:
        what = f"{type(self.algorithm).__name__}, {plural(len(self.program.agents), 'agent')}"
        return f"<Plan: {what}, {plural(self.rounds, 'round')}; {self.guarantee.headline}>"

    def _repr_html_(self) -> str:
        return card(self, [("method", str(self.algorithm)), *self.guarantee.short])


@dataclass
class LastRun:
    """Status of a problem's last run; every run updates it."""

    status: Status | None = None  # None before the first run


@frameless
@dataclass(frozen=True, eq=False, repr=False)
class Problem(Declaration):
    """Agents that minimize the sum of their objectives and agree on the variables they share.

    Variables (or entries of them) that several agents use are shared. Variables that a single agent
    uses are local, and never sent.

    Parameters
    ----------
    agents : sequence of Agent
    start : mapping of cvxpy.Variable to array_like, optional
        Public initial values; zero if omitted.
    groups : sequence of sequences of Agent or its name, optional
        Agents whose private data may describe the same person, such as hospitals with common
        patients. One change then affects all agents of a group, and the guarantee covers their
        releases together. Data of agents in no common group compose in parallel (losses do not add
        up).
    coupling : sequence of cvxpy constraints, optional
        Public convex constraints between variables of several agents, such as ``[x + y <= c]``.
        Most methods need affine ones. If exactly one agent has no private data, it gets the slack
        variables of inequalities; else an agent "slack of coupling" is added.

    Notes
    -----
    A deep copy shares variables and public parameters, but has no private data: pass them by name,
    ``run(data={...})``.

    Raises
    ------
    ModelError
        If a coupling is not convex in the agents' variables, names repeat, a group names no agent
        or shares one with another, an agent shares nothing with the others, or a start has a wrong
        shape.
    PrivacyError
        If two agents use the same private object, a coupling uses one, or a `records` label is
        given in agents that are not in one group.
    """

    _last: LastRun = field(init=False, default_factory=LastRun)

    if not TYPE_CHECKING:  # a type checker would take every attribute for defined

        def __getattr__(self, name: str) -> Any:
            raise without_attribute(self, name, _PROBLEM_HINTS)

    def __deepcopy__(self, memo: dict[int, Any]) -> Problem:
        twin = super().__deepcopy__(memo)
        assert isinstance(twin, Problem)
        object.__setattr__(twin, "_last", replace(self._last))
        return twin

    @property
    def status(self) -> Status | None:
        """Status of the last run of any of the problem's plans; None before the first run."""
        return self._last.status

    @property
    @frameless
    def value(self) -> float | None:
        """Sum of the agents' objectives (minimized) at ``variable.value``, if all are public.

        It is None before the first run.

        Raises
        ------
        PrivacyError
            If an objective has private data.
        """
        self.require_public_objectives("problem.value")
        values = [agent.cost.value for agent in self.agents]
        present = [float(value) for value in values if value is not None]
        return sum(present) if len(present) == len(values) else None

    @frameless
    def plan(
        self,
        algorithm: Algorithm[Any, Any] | None = None,
        *,
        mechanism: Mechanisms = "auto",
        rounds: int | None = None,
        epsilon: float | Mapping[Agent | str, float] | None = None,
        delta: float | None = None,
        release: Release | None = None,
        observer: Observer = "everyone",
        violation_probability: float | None = None,
        slack_penalty: float | None = None,
        prior: Mapping[Private | str, Prior] | None = None,
        constraints: Constraints = "true",
        scale: Scaling | None = None,
    ) -> Plan:
        """Return a plan: method, noise and guarantee of a run; reads no private data.

        dpcvx chooses the arguments that you omit, from public facts; ``print(plan)`` shows the
        reasons. A method that you name runs as in its paper: Gaussian noise in each of 100 rounds.

        Parameters
        ----------
        algorithm : Algorithm, optional
            Method, such as ``dp.LinearizedADMM()``; chosen if omitted.
        mechanism : Gaussian, Laplace, Staircase, "gaussian", "laplace", "staircase", None, or dict
            Noise; chosen if "auto". None switches noise off, and the run has no guarantee. A dict
            gives each agent its noise: one entry per agent with private data, by the agent or its
            name ("agent 1" for the first agent if it has no name).
        rounds : int, optional
            Message rounds; chosen if omitted, 100 if you name a method.
        epsilon : float or mapping of agent to float, optional
            Total budget of every agent, or of each. Optional if `mechanism` fixes the noise: it
            then limits the total in the ledger, and the guarantee states the plan's own privacy
            loss. Step sizes that depend on the budget use the smallest one.
        delta : float, optional
            Delta of the total budget, for all agents; required with `epsilon`. 0 is pure
            differential privacy. Above 0, it bounds the probability that the guarantee fails.
        release : {"each_step", "once"}, optional
            Add noise in every local step, or release the data once with noise; all rounds after
            that are post-processing. Chosen if omitted, ``"each_step"`` if you name a method.
        observer : {"everyone", "last_iterate", "iterates"}
            Observer that the guarantee covers. "everyone" sees all messages. "last_iterate" sees
            only the result, which lowers epsilon for `dp.GradientADMM`; agents and server must keep
            all else secret. "iterates" sees all iterates, but not which users were drawn
            (``draws="secret"``).
        violation_probability : float, optional
            Largest probability, over the noise, that the solution violates constraints for the true
            private data (chance constraints). ``print(plan)`` shows the margins. 0 excludes
            violations: it truncates the noise, which uses half of `delta`, and the run has to be
            the first one in its ledger.
        slack_penalty : float, optional
            Penalty per unit of violation of these constraints, so that a solution exists if the
            public constraints have one.
        prior : mapping of Private or its name to Prior, optional
            Public expectation of data that are released once. Released data are moved towards it;
            the guarantee holds even if it is wrong. If omitted, they are moved towards
            ``dp.Private(proxy=...)`` as far as noise explains the distance;
            ``dp.OneShot(shrink=False)`` switches this off.
        constraints : {"true", "released"}
            Data for which constraints with private data hold; "true" requires
            `violation_probability`.
        scale : LearnScale or "declared", optional
            Whether the plan learns the scale of records first; see `dp.LearnScale`.

        Returns
        -------
        Plan

        Raises
        ------
        ModelError
            If the problem does not fit the algorithm.
        PrivacyError
            If no guarantee can be derived, if the budget is incomplete, or if you pass a budget or
            a mechanism but no agent has private data.
        """
        request = Request(
            algorithm=algorithm,
            mechanism=mechanism,
            rounds=rounds,
            epsilon=epsilon,
            delta=delta,
            release=release,
            observer=observer,
            violation_probability=violation_probability,
            slack_penalty=slack_penalty,
            prior=prior,
            constraints=constraints,
            scale=scale,
        )
        return _planned_in_sight(self, request)

    @frameless
    def solve(
        self,
        algorithm: Algorithm[Any, Any] | None = None,
        *,
        mechanism: Mechanisms = "auto",
        rounds: int | None = None,
        epsilon: float | Mapping[Agent | str, float] | None = None,
        delta: float | None = None,
        release: Release | None = None,
        observer: Observer = "everyone",
        violation_probability: float | None = None,
        slack_penalty: float | None = None,
        prior: Mapping[Private | str, Prior] | None = None,
        constraints: Constraints = "true",
        scale: Scaling | None = None,
        data: Mapping[Private | str, DataSource] | None = None,
        seed: int | None = None,
        tolerance: float | None = None,
        record: bool = False,
        iterates: bool = False,
        ledger: Ledger | str | Path | None = None,
        executor: Executor | None = None,
        verbose: bool | None = None,
    ) -> Result:
        """Plan and run in one call: ``problem.plan(...).run(...)``.

        Parameters
        ----------
        algorithm, mechanism, rounds, epsilon, delta, release, observer
        violation_probability, slack_penalty, prior, constraints, scale
            Arguments of the plan; see `plan`.
        data, seed, tolerance, record, iterates, ledger, executor, verbose
            Arguments of the run; see `Plan.run`.

        Returns
        -------
        Result

        Raises
        ------
        DpcvxError
            Raised as by `plan` and `Plan.run`.
        """
        data = seal_all(data)
        request = Request(
            algorithm=algorithm,
            mechanism=mechanism,
            rounds=rounds,
            epsilon=epsilon,
            delta=delta,
            release=release,
            observer=observer,
            violation_probability=violation_probability,
            slack_penalty=slack_penalty,
            prior=prior,
            constraints=constraints,
            scale=scale,
        )
        return _planned_in_sight(self, request, verbose).run(
            data=data,
            seed=seed,
            tolerance=tolerance,
            record=record,
            iterates=iterates,
            ledger=ledger,
            executor=executor,
            verbose=verbose,
        )

    @frameless
    def tune(
        self,
        *,
        epsilon: float | Mapping[Agent | str, float],
        delta: float,
        proxy: Mapping[Private | str, DataSource] | None = None,
        time_limit: float = 60.0,
        seed: int = 0,
        verbose: bool | None = None,
        recourse: bool = False,
        prior: Mapping[Private | str, Prior] | None = None,
        violation_probability: float | None = None,
        slack_penalty: float | None = None,
        sharing: SecretSharing | None = None,
        max_colluders: int = 1,
    ) -> Tuned[Plan]:
        """Search for the settings that give the best solution at a total budget.

        The search simulates runs on public proxy data, with different methods, noise, steps,
        penalties, rounds and clips, and drops bad settings early (successive halving). No private
        data are read, so tuning costs no privacy. The settings suit the data if the proxy resembles
        them.

        Parameters
        ----------
        epsilon, delta
            Total budget; as for `plan`.
        proxy : mapping of Private or its name to array_like or callable, optional
            Public values in place of private ones; ``dp.Private(..., proxy=...)`` if omitted. They
            must not be computed from the private data.
        time_limit : float
            Largest processor time in seconds.
        seed : int
            Noise seed, the same for all settings. Results may still differ between calls, because
            the time limit ends the search.
        verbose : bool, optional
            Show a line of progress; by default on a terminal or in a notebook.
        recourse : bool
            Score solutions after recourse of every agent (``result.recourse``). Private data in
            ``recourse=`` then need proxies, too.
        prior : mapping of Private or its name to Prior, optional
            Prior of plans that release the data once; see `plan`. Pass proxies that differ from it
            as much as the data may.
        violation_probability, slack_penalty : float, optional
            Chance constraints of all plans; see `plan`. The table shows violations on the proxy
            data and the promised probability.
        sharing : SecretSharing, optional
            Also try methods with distributed noise under secure aggregation. They meet the budget
            against the server and `max_colluders` agents, if all other agents are honest.
        max_colluders : int
            Collusion threshold with ``sharing=``: agents that may collude with the server.

        Returns
        -------
        Tuned
            Prints as a table. ``tuned.plan()`` returns a plan with the best settings, which are
            the defaults if none did better; the table says whether that may be chance.

        Raises
        ------
        ModelError
            If a private object has no proxy, or one that is exactly its prior mean, or the proxy
            problem has no solution.
        """
        from .tuning.tune import tune

        plans = _budget(epsilon, delta, prior, violation_probability, slack_penalty)
        sealed = seal_all(proxy, "proxy")
        search = SearchRequest("problem.tune", plans, sealed, time_limit, seed, verbose, recourse)
        problem = _decided(self, violation_probability)
        return tune(problem, planned, search, _ways(sharing, max_colluders))

    @frameless
    def tradeoff(
        self,
        epsilons: Sequence[float],
        proxy: Mapping[Private | str, DataSource] | None = None,
        *,
        delta: float,
        runs: int = 10,
        time_limit: float = 60.0,
        seed: int = 0,
        verbose: bool | None = None,
        recourse: bool = False,
        prior: Mapping[Private | str, Prior] | None = None,
        violation_probability: float | None = None,
        slack_penalty: float | None = None,
        algorithm: Algorithm[Any, Any] | None = None,
    ) -> Tradeoff:
        """Return the accuracy of solutions at several epsilons, on public proxy data.

        ``problem.tradeoff([0.1, 1, 10], delta=1e-6).plot()`` draws the error of the default plan
        against epsilon, and the errors without any data and without noise. No private data are
        read.

        Parameters
        ----------
        epsilons : sequence of float
            Total budgets.
        delta : float
            Delta of all budgets.
        runs : int
            Largest number of runs at each epsilon.
        proxy, time_limit, seed, verbose, recourse, prior, violation_probability, slack_penalty
            Arguments of `tune`.
        algorithm : Algorithm, optional
            Method of all plans, such as ``dp.OneShot(sharing=...)``; chosen if omitted.

        Returns
        -------
        Tradeoff

        Raises
        ------
        ModelError
            If a private object has no proxy, or one that is exactly its prior mean, or the proxy
            problem has no solution.
        """
        from .tuning.tune import tradeoff

        # The epsilon 1.0 is a placeholder: every plan gets its own.
        plans = _budget(1.0, delta, prior, violation_probability, slack_penalty)
        sealed = seal_all(proxy, "proxy")
        search = SearchRequest(
            "problem.tradeoff", plans, sealed, time_limit, seed, verbose, recourse
        )
        problem = _decided(self, violation_probability)
        return tradeoff(problem, planned, search, epsilons, runs, algorithm)

    @frameless
    def compare(
        self,
        *,
        epsilon: float | Mapping[Agent | str, float],
        delta: float,
        proxy: Mapping[Private | str, DataSource] | None = None,
        time_limit: float = 60.0,
        runs: int = 10,
        seed: int = 0,
        verbose: bool | None = None,
        recourse: bool = False,
        prior: Mapping[Private | str, Prior] | None = None,
        violation_probability: float | None = None,
        slack_penalty: float | None = None,
        sharing: SecretSharing | None = None,
        max_colluders: int = 1,
    ) -> Comparison[Plan]:
        """Compare the noise mechanisms that the model allows, each with its best settings.

        No private data are read, so the comparison costs no privacy. If the data differ from the
        proxy, another mechanism may be better on them.

        Parameters
        ----------
        epsilon, delta, proxy, time_limit, seed, verbose
            Budget of every candidate, proxies and search; see `tune`.
        runs : int
            Largest number of runs per candidate; four times as many for the default and the best
            one, until one of them is clearly better.
        recourse, prior, violation_probability, slack_penalty, sharing, max_colluders
            Arguments of `tune`.

        Returns
        -------
        Comparison
            Prints as a table with a recommendation.

        Raises
        ------
        ModelError
            If a private object has no proxy, or one that is exactly its prior mean, or the proxy
            problem has no solution.
        """
        from .tuning.tune import compare

        plans = _budget(epsilon, delta, prior, violation_probability, slack_penalty)
        sealed = seal_all(proxy, "proxy")
        search = SearchRequest(
            "problem.compare", plans, sealed, time_limit, seed, verbose, recourse
        )
        problem = _decided(self, violation_probability)
        return compare(problem, planned, search, _ways(sharing, max_colluders), runs)


def _decided(problem: Declaration, violation: float | None) -> Declaration:
    """Return the problem that plans with this violation probability compile; see `decided`."""
    return decided(problem, violation)[0]


def _budget(
    epsilon: float | Mapping[Agent | str, float],
    delta: float,
    prior: Mapping[Private | str, Prior] | None,
    violation_probability: float | None,
    slack_penalty: float | None,
) -> Request:
    """Return an incomplete request with the arguments that all plans of a search share."""
    return Request(
        epsilon=epsilon,
        delta=delta,
        prior=prior,
        violation_probability=violation_probability,
        slack_penalty=slack_penalty,
    )


def _ways(sharing: SecretSharing | None, colluders: int) -> list[Way]:
    check_argument("", "sharing", sharing, SHARING)
    check_argument("", "max_colluders", colluders, integer(1))
    check_sharing(sharing, colluders)
    return ways(sharing, colluders)


def _planned_in_sight(problem: Declaration, request: Request, verbose: bool | None = None) -> Plan:
    """Return a plan, and show a line of progress to the user who waits for it."""
    with busy_line(f"planning {plural(len(problem.agents), 'agent')}", verbose):
        return planned(problem, request)


def planned(problem: Declaration, request: Request, earlier: Compiled | None = None) -> Plan:
    """Return the plan for a request; `earlier` is an earlier plan's compiled problem."""
    try:
        return proposal.planned(Plan, problem, request, earlier)
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        kind = type(error).__name__
    raise ModelError(
        f"The plan needs numbers that are too large or too small to compute with ({kind}). "
        "Scale the problem, its adjacency or its budget."
    )
