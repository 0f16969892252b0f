"""Runs that leave all bounds end so, whatever the method, noise and executor; and stop early."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx._words import at_most
from dpcvx.algorithms.base import Residuals
from dpcvx.defaults import solvable
from dpcvx.run.worker import Growth, of_residuals
from dpcvx.solvers.conic import ConicAnswer, ConicProgram, Outcome
from tests.run.test_resume import killed, same

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
    # The same run is interrupted, and begun again, more than once.
    pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning"),
]

LONG = {
    "linearized": dp.LinearizedADMM(penalty=1.0, step=10.0),
    "linearized, output": dp.LinearizedADMM(penalty=1.0, step=10.0, perturb="output"),
    "linearized, projected": dp.LinearizedADMM(penalty=1.0, step=10.0, perturb="projected_output"),
    "decentralized ADMM": dp.DecentralizedADMM("ring", step=1 / 0.1, penalty=10.0),
    "decentralized ADMM, exact": dp.DecentralizedADMM(
        "ring", step=1 / 1, penalty=100.0, exact=True
    ),
    "DPP2": dp.DPP2("ring", 3.0, 1.0),
    "gradient tracking": dp.GradientTracking("ring", 3.0),
    "primal-dual": dp.PrimalDual("ring", 3.0),
    "mean gradient": dp.FederatedAveraging(3.0),
    "resource ADMM": dp.ResourceADMM(penalty=1.0, step=1 / 0.1),
    "resource ADMM, exact": dp.ResourceADMM(penalty=1.0, step=1 / 0.1, exact=True),
    "gradient ADMM": dp.GradientADMM(penalty=0.01, step=10.0),
} | {
    f"decentralized gradient, {aggregate}": dp.DecentralizedGradient("complete", 3.0, aggregate)
    for aggregate in ("mixing", "mean", "pair", "range")
}
ROUNDS = 2000


def problem(coupled=False, public=False, sets=lambda x, k: []):
    """Three agents that pull x, or the sum of their own, to different points."""
    shared = cp.Variable(2, name="x")
    own = [cp.Variable(2, name=f"x{k}") if coupled else shared for k in range(3)]
    agents = []
    for k, x in enumerate(own):
        d = dp.Private(np.array([float(k), -1.0]), name=f"d{k}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), sets(x, k), name=f"a{k}"))
    return dp.Problem(agents, coupling=[sum(own) == 1.0] if coupled else [])


def of(name):
    """The problem that a method takes."""
    if name != "gradient ADMM":
        return problem(coupled=name.startswith("resource"))
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    user = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="user")
    other = dp.Agent(cp.Minimize(cp.norm1(y)), name="public")
    return dp.Problem([user, other], coupling=[x == y])


def planned(name, noise, rounds=ROUNDS):
    if noise == "none":
        return of(name).plan(LONG[name], mechanism=None, rounds=rounds)
    return of(name).plan(LONG[name], rounds=rounds, epsilon=1.0, delta=1e-6, release=noise)


@pytest.mark.parametrize("noise", ["none", "each_step", "once"])
@pytest.mark.parametrize("name", LONG)
def test_a_run_that_diverges_says_so_and_stops(name, noise):
    if noise == "once" and name in ("linearized, output", "linearized, projected"):
        with pytest.raises(dp.ModelError, match="no output to perturb"):
            planned(name, noise)
        return
    plan = planned(name, noise)
    result = plan.run(seed=0, record=True)
    assert result.status is dp.Status.DIVERGED
    assert result.rounds < 100
    assert "Take shorter steps" in " ".join(str(result).split())
    assert all(v.value is None for v in plan.problem.variables())
    if noise == "each_step":
        assert 0 < result.ledger.spent() < 0.5 * plan.guarantee.epsilon
    again = plan.replay(result.transcript)
    assert again.status is dp.Status.DIVERGED and again.rounds == result.rounds
    same(again, result)


@pytest.mark.parametrize("name", ["linearized", "gradient tracking"])
def test_executors_and_ledger_files_stop_in_the_same_round(tmp_path, name):
    plan = planned(name, "each_step")
    serial = plan.run(seed=0, executor=dp.Serial(), ledger=tmp_path / "spent.jsonl")
    for executor in (dp.Threads(2), dp.Processes(2)):
        other = plan.run(seed=0, executor=executor)
        assert other.status is serial.status is dp.Status.DIVERGED
        assert other.rounds == serial.rounds
        same(other, serial)
    again = plan.replay(tmp_path / "spent.jsonl")
    assert again.status is dp.Status.DIVERGED and again.rounds == serial.rounds
    same(again, serial)


@pytest.mark.parametrize("name", ["linearized", "resource ADMM"])
def test_two_runs_on_neighbors_stop_in_the_same_round(name):
    assert dp.check_sensitivity(planned(name, "each_step", rounds=60)).passed


def test_values_of_one_agent_alone_are_enough():
    """The shared entry is all right; a local one, which is never sent, goes to infinity."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    one = dp.Agent(cp.Minimize(cp.square(x - 1) + 10 * cp.square(y - 1)), name="one")
    two = dp.Agent(cp.Minimize(cp.square(x - 2)), name="two")
    method = dp.LinearizedADMM(penalty=1.0, step=0.2)
    result = dp.Problem([one, two]).plan(method, mechanism=None, rounds=3000).run(tolerance=1e-300)
    assert result.history.mismatch[-1] < 1.0
    assert result.status is dp.Status.DIVERGED


def test_large_numbers_are_no_divergence():
    """A solution at 1e40 that short steps take a thousand rounds to reach."""
    x = cp.Variable(2, name="x")
    agents = [dp.Agent(cp.Minimize(cp.sum_squares(x - 1e40)), name=name) for name in "ab"]
    short, longer = dp.LinearizedADMM(penalty=1.0, step=1e-3), dp.DPP2("complete", 1e-2, 1e-3)
    for method, status in ((short, dp.Status.UNSETTLED), (longer, dp.Status.COMPLETED)):
        result = dp.Problem(agents).plan(method, mechanism=None, rounds=2000).run()
        assert result.status is status  # short steps leave a fiftieth of the way
        assert result.solution[x] == pytest.approx(1e40, rel=0.2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.01e100])
def test_what_is_no_ordinary_number_has_diverged_in_any_round(bad):
    assert Growth().after(1, np.array([0.0, bad])).diverged
    assert (
        Growth().after(1, np.array([3.0])).after(2, np.zeros(0)).after(9, np.array([bad])).diverged
    )


def test_growth_is_measured_by_the_first_two_rounds():
    start = Growth().after(1, np.zeros(2)).after(2, np.array([-1e20]))
    assert start == Growth(1e20, False)
    assert not start.after(3, np.array([0.9e32])).diverged
    assert start.after(3, np.array([1.1e32])).diverged
    assert start.after(3, np.array([1.1e32])).after(4, np.zeros(1)).diverged


def test_residuals_are_unknown_in_round_one_alone():
    ordinary = Residuals(primal=1.0, dual=np.nan, mismatch=1.0, penalty=0.0)
    assert not of_residuals(Growth(), 1, ordinary).diverged
    assert of_residuals(Growth(), 2, ordinary).diverged
    for field in ("primal", "dual", "mismatch", "penalty"):
        given = dict(primal=1.0, dual=1.0, mismatch=1.0, penalty=1.0) | {field: np.inf}
        assert of_residuals(Growth(), 2, Residuals(**given)).diverged


# Runs that cannot agree.

AGREEING = {
    "ADMM": dp.ADMM(penalty=1.0),
    "linearized": dp.LinearizedADMM(penalty=1.0, step=0.1),
    "decentralized ADMM": dp.DecentralizedADMM("ring", step=1 / 20, penalty=1.0),
    "decentralized gradient": dp.DecentralizedGradient("ring", dp.steps.Geometric(0.5, 0.1)),
    "mean": dp.DecentralizedGradient("complete", dp.steps.Geometric(0.5, 0.1), "mean"),
    "primal-dual": dp.PrimalDual("ring", 0.05),
    "mean gradient": dp.FederatedAveraging(dp.steps.Geometric(0.5, 0.1)),
}


@pytest.mark.parametrize("name", AGREEING)
def test_agents_whose_sets_do_not_meet_never_converge(name, monkeypatch):
    """x = -1, 0 and 1: the mean does not move and is 0, where each residual might vanish."""
    monkeypatch.setattr(solvable, "_TOGETHER", 0)  # as for models too large to be looked at whole
    apart = problem(sets=lambda x, k: [x == k - 1.0])
    plan = apart.plan(AGREEING[name], mechanism=None, rounds=60)
    result = plan.run(tolerance=0.1, record=True)
    assert result.status is dp.Status.INFEASIBLE
    # Extrapolated points of dp.ADMM are a little off the mean.
    off = 1e-3 if name == "ADMM" else 1e-6
    assert result.consensus_residual == pytest.approx(1.0, abs=off)
    assert result.history.mismatch[-1] >= 0.99
    assert result.history.rounds[-1] == 60
    assert all(v.value is None for v in apart.variables())
    text = " ".join(str(result).split())
    assert "the constraints of agents 'a1' and 'a2' do not meet" in text
    assert "every variable's value is None" in text
    again = plan.replay(result.transcript)
    assert again.status is dp.Status.INFEASIBLE


def test_the_mean_alone_tells_nothing_of_agreement():
    method = dp.FederatedAveraging(0.1, sharing=dp.SecretSharing(limit=100.0))
    plan = problem().plan(method, mechanism=None, rounds=3)
    with pytest.raises(dp.ModelError, match="cannot be used with secure aggregation"):
        plan.run(tolerance=1e-3)
    assert np.isfinite(plan.run().history.primal).all()


# The coupling, by the values that are returned.


@pytest.mark.parametrize("release", ["none", "each_step"])
def test_a_violated_coupling_is_reported(release):
    arguments = {"mechanism": None}
    if release != "none":
        arguments = {"epsilon": 1.0, "delta": 1e-6, "release": release}
    for name in ("resource ADMM", "gradient ADMM"):
        method = {
            "resource ADMM": dp.ResourceADMM(penalty=0.01),
            "gradient ADMM": dp.GradientADMM(step=0.01, penalty=1.0),
        }
        plan = of(name).plan(method[name], rounds=3, **arguments)
        result = plan.run(seed=0, record=True)
        for solution in (result.last, result.average):
            for variable in plan.problem.variables():
                variable.save_value(solution[variable])
            true = max(
                np.abs(c.args[0].value - c.args[1].value).max() for c in plan.problem.coupling
            )
            assert true > 1e-3
            assert solution.coupling_residual == pytest.approx(true, rel=1e-12)
            assert solution.mismatch == solution.coupling_residual
        assert result.consensus_residual == result.coupling_residual > 0
        text = " ".join(str(result).split())
        assert f"violate an equality by at most {at_most(result.coupling_residual, 2)}" in text
        assert "copies differ" not in str(result)
        assert plan.replay(result.transcript).coupling_residual == result.coupling_residual


def test_without_a_coupling_none_is_shown():
    result = problem().plan(dp.ADMM(), mechanism=None, rounds=3).run()
    assert result.coupling_residual == 0
    assert "equalit" not in str(result)


@pytest.mark.parametrize("seed", [0, None], ids=["seed", "no seed"])
@pytest.mark.parametrize("name", ["linearized", "resource ADMM"])
def test_an_interrupted_run_that_diverges_goes_on_to_the_same_end(tmp_path, name, seed):
    plan = planned(name, "each_step")
    path = tmp_path / "spent.jsonl"
    killed(plan, path, lines=8, seed=seed)
    middle = path.read_bytes()
    result = plan.run(ledger=path, seed=seed)
    assert result.status is dp.Status.DIVERGED and result.rounds > 4
    assert all(v.value is None for v in plan.problem.variables())
    again = plan.replay(path)
    assert again.status is dp.Status.DIVERGED and again.rounds == result.rounds
    same(again, result)
    if seed is not None:
        whole = plan.run(seed=seed)
        assert (whole.status, whole.rounds) == (result.status, result.rounds)
        same(result, whole)
    # Interrupted once more, before its last line: what left decides the same.
    path.write_bytes(middle)
    assert plan.run(ledger=path, seed=seed).status is dp.Status.DIVERGED


# Problems without a solution.


def pulled(cost, sets=()):
    """Agent a has private data about the first entry of x and y, b the cost and the sets."""
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y", pos=True)
    d = dp.Private(np.array([3.0, 5.0]), name="d", adjacency=dp.Within(0.1))
    a = dp.Agent(cp.Minimize(cp.sum_squares(x[0] - d) + cp.square(y)), name="a")
    return dp.Problem(
        [a, dp.Agent(cp.Minimize(cost(x, y)), list(sets and sets(x, y)), name="b")],
        start={y: 1.0},
    )


FALLING = {
    "linear": (lambda x, y: -x[1] + 0 * y, ()),
    "linear in a half-space": (lambda x, y: -cp.sum(x) + y, lambda x, y: [x[1] >= y]),
    "slower than a norm": (lambda x, y: cp.norm(x) - 2 * x[1] + y, ()),
}
LEVEL = {
    "bounded by a set": (lambda x, y: -x[1] + y, lambda x, y: [x[1] <= 5]),
    "bounded by a's set": (lambda x, y: -cp.sum(x) + y, lambda x, y: [x[0] >= x[1]]),
    "a norm": (lambda x, y: cp.norm(x) - 0.9 * x[1] + y, ()),
    "a logarithm": (lambda x, y: cp.exp(x[1]) - x[1] - cp.log(y), ()),
    "a fraction": (lambda x, y: cp.quad_over_lin(x, y) - x[1], ()),
}


@pytest.mark.parametrize("name", FALLING)
def test_objectives_that_fall_without_end_are_refused(name):
    given = pulled(*FALLING[name])
    with pytest.raises(dp.ModelError, match="no lower bound"):
        given.plan(dp.LinearizedADMM(penalty=1.0), rounds=50, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("name", LEVEL)
def test_objectives_with_a_lower_bound_are_not(name):
    pulled(*LEVEL[name]).plan(
        dp.LinearizedADMM(penalty=1.0, step=0.1), rounds=5, epsilon=1.0, delta=1e-6
    )


def test_what_the_data_may_hold_up_is_not_called_falling():
    """d'x with d > 0 on x >= 0 has the optimum 0, whatever -0.1 x would do by itself."""
    x = cp.Variable(2, name="x")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    a = dp.Agent(cp.Minimize(d @ x), [x >= 0], name="a")
    b = dp.Agent(cp.Minimize(-0.1 * cp.sum(x)), name="b")
    method = dp.LinearizedADMM(penalty=1.0, step=0.1)
    dp.Problem([a, b]).plan(method, rounds=5, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("coupled", [False, True])
def test_sets_that_do_not_meet_are_refused_by_name(coupled):
    apart = problem(coupled, sets=lambda x, k: [x[0] <= 0.2] if k else [x[0] >= 0.3, x[1] == 0])
    method = dp.ResourceADMM() if coupled else dp.LinearizedADMM()
    if coupled:  # each has its own: the equalities ask for x[0] + x1[0] + x2[0] = 1
        method = dp.ResourceADMM(penalty=1.0)
        apart = problem(coupled, sets=lambda x, k: [x[0] <= 0.3] if k else [x[0] <= 0.2])
    names = "'a0' and 'a1' and 'a2' and the equalities" if coupled else "'a0' and 'a2' do not"
    with pytest.raises(dp.ModelError, match=names):
        apart.plan(method, rounds=5, epsilon=1.0, delta=1e-6)


def test_a_local_step_without_a_minimizer_ends_as_unbounded(monkeypatch):
    plan = problem().plan(dp.ADMM(penalty=1.0), mechanism=None, rounds=3)
    nothing = ConicAnswer(None, Outcome.UNBOUNDED)
    monkeypatch.setattr(ConicProgram, "solve", lambda *_: nothing)
    result = plan.run()
    assert result.status is dp.Status.UNBOUNDED and not result.status.solved
    assert all(v.value is None for v in plan.problem.variables())
    assert "Bound the variables" in " ".join(str(result).split())


@pytest.mark.parametrize("bad", [None, 2e12, np.nan, np.inf, 1e101])
def test_rows_diverge_as_soon_as_one_of_them_does(bad):
    rng = np.random.default_rng(0)
    together, apart = Growth(), [Growth() for _ in range(4)]
    for t in range(1, 6):
        rows = rng.normal(size=(4, 3)) * [[1], [5], [0.1], [100]]
        if t == 4 and bad is not None:
            rows[2, 1] = bad
        together = together.after(t, rows)
        apart = [one.after(t, row) for one, row in zip(apart, rows, strict=True)]
        assert together.diverged == any(one.diverged for one in apart)
        assert np.array_equal(together.ordinary, [one.ordinary for one in apart])
    assert together.diverged == (bad is not None)
