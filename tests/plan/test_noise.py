"""Staircase noise in plans: where it is proved, and that all else is refused."""

import pickle
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.sensitivity.release_once import moves_one

DATA = np.array([2.0, 3.0, 4.0, 1.0])


def tracking(adjacency, *, shape=None, limit=False, weights=None, cost="linear", **agent):
    """One owner whose data stand in a cost that is affine in them, or in any other."""
    data = DATA if shape is None else DATA[0]
    load = dp.Private(data, name="load", adjacency=adjacency, nonneg=True, proxy=data * 1.1)
    level = cp.Variable(1 if shape is not None else 4, name="level")
    read = load if weights is None else weights @ load
    term = cp.sum_squares(level - read) if cost == "linear" else cp.sum(cp.kl_div(read, level))
    constraints = [level >= 0.1, level <= 9] + ([cp.sum(level) >= cp.sum(load)] if limit else [])
    return dp.Problem([dp.Agent(cp.Minimize(term), constraints, name="owner", **agent)])


STAIRS = {"mechanism": "staircase", "epsilon": 3.0, "delta": 1e-6}


@pytest.mark.parametrize(
    "problem",
    [
        tracking(dp.Within(0.1)),
        tracking(dp.Within(0.1), cost="any"),
        tracking(dp.Within(0.1, norm=2), shape=()),
        tracking(dp.Within(0.1, norm=1), weights=np.ones((1, 4)), cost="any"),
    ],
    ids=["entries", "any model", "one number", "one sum"],
)
def test_staircase_noise_hides_what_one_change_moves_alone(problem):
    plan = problem.plan(**STAIRS)
    (agent,) = plan.agents
    assert moves_one(agent.publication)
    assert plan.price.accountant == "sum of pure epsilons"
    assert plan.price.epsilon == pytest.approx(3.0) and plan.price.epsilon <= 3.0
    assert "Staircase noise, standard deviation" in str(plan)
    assert dp.check_sensitivity(plan).passed
    result = plan.run(seed=1, record=True)
    (entry,) = result.ledger["owner"].entries
    assert (entry.mechanism, entry.multiplier) == ("Staircase", agent.noise.multiplier)
    assert result.ledger["owner"].spent().epsilon == plan.price.epsilon
    assert plan.replay(result.transcript).solution.vectors[0].tolist() == (
        result.solution.vectors[0].tolist()
    )
    assert pickle.loads(pickle.dumps(plan)).fingerprint == plan.fingerprint


@pytest.mark.parametrize("norm", [1, 2, "inf"])
@pytest.mark.parametrize("cost", ["linear", "any"])
def test_changes_of_several_entries_are_refused(norm, cost):
    with pytest.raises(dp.PrivacyError, match="moves several"):
        tracking(dp.Within(0.1, norm=norm), cost=cost).plan(**STAIRS)


def test_statistics_that_mix_entries_are_refused():
    # One change moves both sums of an entry, by 0.1 in all: each sum has its own epsilon.
    problem = tracking(dp.Within(0.1))
    plan = problem.plan(**STAIRS)
    (agent,) = plan.agents
    mixed = np.array([[1.0, 0, 0, 0], [0.5, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    assert not moves_one(replace(agent.publication, encode=sp.csr_array(mixed)))
    zeros = sp.csr_array((np.r_[np.ones(4), 0.0], (np.r_[:4, 1], np.r_[:4, 0])), shape=(4, 4))
    assert moves_one(replace(agent.publication, encode=zeros))  # a stored zero mixes nothing


def test_records_and_second_moments_are_refused():
    X = dp.Private(np.eye(3), name="X", adjacency=dp.Rows(1.0))
    w = cp.Variable(3, name="w")
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(X @ w - 1) + cp.sum_squares(w)))])
    for release in ("once", "each_step"):
        with pytest.raises(dp.PrivacyError):
            problem.plan(release=release, **STAIRS)


@pytest.mark.parametrize("method", [dp.LinearizedADMM(), dp.ADMM(), dp.FederatedGradient()])
def test_noise_in_every_step_is_refused(method):
    with pytest.raises(dp.PrivacyError, match="released once"):
        tracking(dp.Within(0.1)).plan(method, release="each_step", **STAIRS)


@pytest.mark.parametrize("violation", [0, 0.1])
def test_margins_are_refused(violation):
    with pytest.raises(dp.PrivacyError, match="margins are proved for|Staircase"):
        tracking(dp.Within(0.1), limit=True).plan(violation_probability=violation, **STAIRS)


def test_a_person_in_two_agents_costs_twice():
    d = [dp.Private(DATA[k], name=f"d{k}", adjacency=dp.Within(0.1)) for k in range(2)]
    x = cp.Variable(name="x")
    agents = [dp.Agent(cp.Minimize(cp.square(x - d[k])), name=f"a{k}") for k in range(2)]
    problem = dp.Problem(agents, groups=[["a0", "a1"]])
    plan = problem.plan(**STAIRS)
    assert plan.agents[0].noise.multiplier == pytest.approx(2 / 3.0)
    assert plan.price.epsilon == pytest.approx(3.0)
    spent = plan.run(seed=1).ledger["a0"].spent()
    assert spent.epsilon == pytest.approx(3.0)
