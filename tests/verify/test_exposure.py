"""Ex-post losses of recorded runs, against intervals by hand and against what agents drew."""

import pickle
import traceback
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx import not_private
from dpcvx.algorithms.decentralized_gradient import drawn
from dpcvx.verify import exposure
from dpcvx.verify.ex_post import expected, observed
from tests.algorithms.test_on_networks import study
from tests.algorithms.test_on_networks import weights as weights
from tests.helpers import contains

LAPLACE = dp.Laplace(multiplier=3.0, decay=0.9)
ROUNDS = 5
METHODS = {
    "ADMM": dp.DecentralizedADMM("ring", D=5.0, zeta=0.7),
    "ADMM, narrow and growing": dp.DecentralizedADMM(
        "star", D=5.0, zeta=0.7, randomness=0.4, growth=1.1
    ),
    "range": dp.DecentralizedGradient("ring", 0.1, "range"),
    "range, some entries": dp.DecentralizedGradient("path", 0.1, "range", coordinates=2),
    "pair": dp.DecentralizedGradient("complete", 0.1, "pair"),
}
every = pytest.mark.parametrize("name", METHODS)
kinds = pytest.mark.parametrize("kind", ["observed", "expected"])


def planned(problem, method, mechanism=LAPLACE, **arguments):
    return problem.plan(method, **{"mechanism": mechanism, "rounds": ROUNDS} | arguments)


def recorded(problem, method, mechanism=LAPLACE, data=None, **arguments):
    plan = planned(problem, method, mechanism)
    return plan, plan.run(data=data, seed=1, record=True, verbose=False, **arguments)


def points(plan, result):
    """What every agent sent, from a start at 0: shape (rounds + 1, agents, n)."""
    method, n = plan.algorithm, plan.program.size
    X = np.zeros((result.rounds + 1, len(plan.program.agents), n))
    for own in result.transcript.releases:
        X[own.round :, own.agent, moving(method, own.round, n)] = own.value
    return X


def moving(method, t, n):
    some = getattr(method, "coordinates", None)
    return np.arange(n) if some is None else drawn(t, n, some)


def by_hand(given, plan, X, i):
    """Per round: one end of the interval of agent i, the other one, and alpha."""
    method, net = plan.algorithm, plan.algorithm.graph
    lam, near = np.zeros(X.shape[2]), list(net.neighbours[i])
    for t in range(1, len(X)):
        Y = X[t - 1]
        at = Y[i]
        if isinstance(method, dp.DecentralizedADMM):
            if t > 1:
                lam = lam + method.zeta * (Y[near] - Y[i]).sum(axis=0)
            alpha = 1 / (method.D * method.growth ** (t - 1))
            half = method.randomness / 2
            ends = [w * Y[i] + (1 - w) * Y[near].mean(axis=0) for w in (0.5 - half, 0.5 + half)]
            ends = [end + alpha * lam for end in ends]
        elif method.aggregate == "range":
            alpha, around = 0.1, Y[[i, *near]]
            ends = [around.min(axis=0), around.max(axis=0)]
        else:
            alpha, at = 0.1, Y.mean(axis=0)
            a, b = max(
                ((a, b) for a in range(len(Y)) for b in range(a)),
                key=lambda p: np.abs(Y[p[0]] - Y[p[1]]).sum(),
            )
            ends = [at + (Y[a] - Y[b]) / len(Y), at - (Y[a] - Y[b]) / len(Y)]
        yield t, *(end - alpha * given.gradient(i, at) for end in ends), alpha


@kinds
@every
def test_losses_are_those_of_the_intervals_by_hand(name, kind):
    given = study(public=(1,))
    plan, result = recorded(given.problem, METHODS[name])
    found = dp.not_private.ex_post(plan, result.transcript, kind=kind)
    # Agent b holds nothing private.
    assert list(found) == ["a", "c", "d", "e"]
    X = points(plan, result)
    for i, agent in enumerate("abcde"):
        if agent == "b":
            continue
        values, worst = [], []
        entries = result.ledger[agent].entries
        for (t, one, other, alpha), entry in zip(by_hand(given, plan, X, i), entries, strict=True):
            assert entry.round == t
            only = moving(plan.algorithm, t, X.shape[2])
            low, omega = np.minimum(one, other)[only], np.abs(one - other)[only]
            # One entry of the data changes by at most 0.1.
            reach = 0.1 * np.linalg.norm(given.A[i][:, only], axis=1).max()
            at = {"beta": 1 / (3 * 0.9 ** (t - 1) * entry.sensitivity), "shift": alpha * reach}
            if kind == "observed":
                own = observed(X[t, i, only] - low, omega=omega, **at)
            else:
                own = expected(omega=omega, **at)
            values.append(own.values)
            worst.append(own.worst)
        assert found[agent].kind == kind
        np.testing.assert_allclose(found[agent].values, np.concatenate(values), rtol=1e-7)
        np.testing.assert_allclose(found[agent].worst, np.concatenate(worst), rtol=1e-7)


@kinds
@every
def test_losses_are_below_the_worst_case(name, kind):
    plan, result = recorded(study().problem, METHODS[name])
    for losses in dp.not_private.ex_post(plan, result.transcript, kind=kind).values():
        size = losses.values.size // ROUNDS
        assert (losses.values > 0).all() and (losses.values <= losses.worst).all()
        # All start at one point: there is nothing to average in round 1.
        np.testing.assert_allclose(losses.values[:size], losses.worst[:size])
        assert losses.values[size:].sum() < losses.worst[size:].sum()
        assert "not a guarantee" in str(losses.total())
    # Nothing is spent, and the run stays as it was.
    again = plan.replay(result.transcript)
    assert again.ledger.spent() == result.ledger.spent()


def clipped():
    """Logistic losses of records, clipped in norm and contribution, in the unit box."""
    rng = np.random.default_rng(3)
    x = cp.Variable(3, name="x")
    agents = []
    for k in range(4):
        Z = dp.Private(rng.normal(size=(6, 3)), name=f"Z{k}", adjacency=dp.Rows(1.0, clip=True))
        cost = cp.sum(cp.logistic(Z @ x)) + cp.sum_squares(x - k)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 1], clip=0.1))
    return dp.Problem(agents)


SETS = {
    "free": lambda: study().problem,
    "with sets": lambda: study(sets=lambda k, x: [cp.norm(x) <= 0.1 * (k + 1)]).problem,
    "clipped": clipped,
}


@pytest.mark.parametrize("sets", SETS)
@every
def test_steps_with_little_noise_are_where_the_drawn_weights_put_them(
    name, sets, weights, monkeypatch
):
    """Sets, clips and projections included: no formula of the methods here either."""
    method = METHODS[name]
    plan, result = recorded(SETS[sets](), method, dp.Laplace(multiplier=1e-7))
    kept = []
    monkeypatch.setattr(not_private, "exposed", lambda *given: kept.extend(given[:3]) or {})
    dp.not_private.ex_post(plan, result.transcript)
    low, high = (exposure.steps(*kept, weight) for weight in (0.0, 1.0))
    lengths = []
    for k, rounds in low.items():
        for t, step in rounds.items():
            w = weights[k, t][moving(method, t, 3)]
            between = (1 - w) * step.end + w * high[k][t].end
            np.testing.assert_allclose(step.value, between, atol=2e-6)
            lengths.append(np.abs(step.end - high[k][t].end).max())
    assert len(lengths) == ROUNDS * len(plan.program.agents) and max(lengths) > 1e-3


def test_bounds_at_points_are_those_of_the_run_and_rounds_without_noise_have_no_loss():
    x = cp.Variable(2, name="x")
    agents = []
    for k in range(3):
        d = dp.Private([1.0 + k, 2.0], name=f"d{k}", nonneg=True, adjacency=dp.Within(0.1))
        cost = d @ cp.square(x) + cp.sum_squares(x - 1 - k) / 2
        agents.append(dp.Agent(cp.Minimize(cost), name=f"{k}"))
    plan, result = recorded(dp.Problem(agents), dp.DecentralizedGradient("path", 0.05, "range"))
    found = dp.not_private.ex_post(plan, result.transcript)
    for name, losses in found.items():
        # The private weights do not count at 0, the start.
        assert [e.round for e in result.ledger[name].entries] == list(range(2, ROUNDS + 1))
        assert losses.values.size == 2 * (ROUNDS - 1)
        assert (losses.values <= losses.worst).all()
        # One entry changes by 0.1, and with it one of the gradient: l1, l2 and linf agree, but for
        # the grid.
        limits = np.repeat([1 / e.multiplier for e in result.ledger[name].entries], 2)
        np.testing.assert_allclose(losses.worst, limits, rtol=1e-4)


def test_earlier_runs_in_the_ledger_do_not_count():
    given, method = study().problem, METHODS["range"]
    before = planned(given, method, dp.Laplace(multiplier=50.0)).run(seed=0, verbose=False)
    plan = planned(given, method, dp.Laplace(multiplier=3.0))
    fresh, later = (
        plan.run(seed=2, record=True, verbose=False, ledger=ledger)
        for ledger in (None, before.ledger)
    )
    # What was spent leaves room for one round less.
    assert later.rounds == ROUNDS - 1 and len(later.ledger["a"].entries) == 2 * ROUNDS - 1
    one, other = (dp.not_private.ex_post(plan, r.transcript)["a"] for r in (fresh, later))
    assert other.values.size == 3 * later.rounds
    np.testing.assert_allclose(other.worst, one.worst[: other.worst.size], rtol=1e-12)


def test_a_run_that_stopped_early_has_the_losses_of_its_rounds():
    plan, result = recorded(study().problem, METHODS["ADMM"], tolerance=1e9)
    assert result.rounds < ROUNDS
    found = dp.not_private.ex_post(plan, result.transcript)
    assert {losses.values.size for losses in found.values()} == {3 * result.rounds}


REFUSED = {
    "Gaussian": (METHODS["ADMM"], {"mechanism": "gaussian", "epsilon": 1, "delta": 1e-6}, "Gauss"),
    "no noise": (METHODS["ADMM"], {"mechanism": None}, "no noise"),
    "once": (METHODS["range"], {"release": "once"}, "release='each step'"),
    "exact": (dp.DecentralizedADMM("ring", exact=True), {}, "without exact="),
    "fixed": (dp.DecentralizedADMM("ring", randomness=0), {}, r"\(randomness=1\)"),
    "mixing": (dp.DecentralizedGradient("ring", 0.1), {}, r"\(aggregate='range'\)"),
    "mean": (dp.DecentralizedGradient("complete", 0.1, "mean"), {}, r"\(aggregate='range'\)"),
    "sums": (dp.MeanGradient(0.1), {}, "MeanGradient has none"),
    "server": (dp.ADMM(), {}, "ADMM has none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_plans_are_refused_before_data_are_read(case):
    method, arguments, message = REFUSED[case]
    plan = planned(study().problem, method, **arguments)
    result = plan.run(seed=1, record=True, verbose=False)

    def explode():
        raise AssertionError("read")

    with pytest.raises(dp.ModelError, match=message) as caught:
        dp.not_private.ex_post(plan, result.transcript, {"da": explode})
    assert not contains(str(caught.value), np.concatenate(study().b))


def test_other_transcripts_and_kinds_are_refused():
    given = study().problem
    plan, result = recorded(given, METHODS["ADMM"])
    other = planned(given, replace(METHODS["ADMM"], zeta=0.5))
    with pytest.raises(dp.ModelError, match="recorded under another plan"):
        dp.not_private.ex_post(other, result.transcript)
    for wrong in (None, result, "file"):
        with pytest.raises(dp.ModelError, match=r"plan.run\(record=True\)"):
            dp.not_private.ex_post(plan, wrong)
    with pytest.raises(dp.ModelError, match="'observed' or 'expected'"):
        dp.not_private.ex_post(plan, result.transcript, kind="worst")


@pytest.mark.parametrize(
    "bad", [np.array([31415.92653, np.nan]), ["31415.92653"], lambda: [][31415]]
)
def test_errors_show_nothing_private(bad):
    plan, result = recorded(study().problem, METHODS["ADMM"])
    with pytest.raises(dp.DataError, match="'da'") as caught:
        dp.not_private.ex_post(plan, result.transcript, {"da": bad})
    assert "31415.9" not in "".join(traceback.format_exception(caught.value)[-1:])
    assert [caught.value.__cause__, caught.value.__context__] == [None, None]


def test_probes_neither_print_nor_pickle_data():
    given = study()
    plan, result = recorded(given.problem, METHODS["ADMM"])
    local = plan.program.agents[0]
    probe = exposure.Probe(
        0, result.transcript.releases, result.ledger["a"], local.form.bind([given.b[0]]), 0.0, {}
    )
    assert not any(f"{v:.6f}" in repr(probe) + str(vars(probe)) for v in given.b[0])
    with pytest.raises(TypeError, match="private data"):
        pickle.dumps(probe)
    losses = dp.not_private.ex_post(plan, result.transcript)["a"]
    assert "values" not in repr(losses)
