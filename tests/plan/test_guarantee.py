"""How a guarantee is stated: its kind, what it rests on, and what is only a paper's claim."""

import math
import re

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx._words import at_most
from dpcvx.plan.guarantee import ALONE, COUNTED, SEEDED
from dpcvx.plan.stated import UNGROUPED
from dpcvx.sensitivity.queries.query import CLAIMED
from dpcvx.sensitivity.queries.solutions import STATED_ACCURACY
from tests.instances import power_line


def means(sensitivity=None, **private):
    """Two agents that pull x towards their data."""
    x = cp.Variable(2, name="x")
    agents = []
    for k, name in enumerate("ab"):
        d = dp.Private(np.ones(2), name=f"load {name}", adjacency=dp.Within(0.01, **private))
        agents.append(
            dp.Agent(
                cp.Minimize(cp.sum_squares(x - d)),
                [cp.abs(x) <= 2],
                name=name,
                sensitivity=sensitivity if k == 0 else None,
            )
        )
    return dp.Problem(agents)


def classical(epsilon, delta):
    return dp.Gaussian(release_epsilon=epsilon, release_delta=delta, calibration="classical")


def flat(text):
    return re.sub(r"\s+", " ", str(text))


def exponent(delta):
    """As texts write it: without Python's zero in 1e-06."""
    return f"{delta:g}".replace("e-0", "e-")


def planned(problem=None, algorithm=None, **arguments):
    settings = {"rounds": 3, "epsilon": 1.0, "delta": 1e-6} | arguments
    if "mechanism" in settings and not isinstance(settings["mechanism"], str):
        del settings["epsilon"]
    algorithm = dp.LinearizedADMM() if algorithm is None else algorithm
    return (means() if problem is None else problem).plan(algorithm, **settings)


# Kinds


def test_a_derived_guarantee_is_worst_case():
    stated = planned().guarantee
    assert (stated.kind, stated.certificate) == ("worst-case", "derived")
    assert {a.certificate for a in stated.agents} == {"derived"}
    assert stated.epsilon == pytest.approx(1.0, rel=1e-9) and stated.epsilon <= 1.0
    assert stated.delta == 1e-6
    assert CLAIMED not in stated.assumptions
    text = flat(stated)
    headline = "(1, 1e-6)-DP for one change in one agent's data, worst case"
    assert text.startswith(f"{headline} unit one change: ")
    assert "one entry changes by at most 0.01 in one of 'load a' and 'load b'" in text
    assert "against the server and all other agents" in text
    assert "even if they collude and see every value that the agent releases" in text
    assert f"exact Gaussian composition; {at_most(stated.rho)}-zCDP" in text
    assert "Gaussian noise" in text and "3 releases per agent" in text
    assert "derived from the model" in text
    assert flat(UNGROUPED) in text
    assert "ASSERTED" not in text and "claim" not in text


def test_the_parameters_of_a_guarantee_agree():
    plan = planned(mechanism=dp.Gaussian(noise_multiplier=4.0), rounds=7)
    stated = plan.guarantee
    assert stated.rho == pytest.approx(7 / 4.0**2 / 2, rel=1e-12)
    assert stated.epsilon == plan.price.epsilon
    assert stated.accountant == plan.price.accountant
    assert stated.epsilon <= stated.rho + 2 * math.sqrt(stated.rho * math.log(1e6))
    assert [a.releases for a in stated.agents] == [7, 7]
    for agent in stated.agents:
        assert agent.sensitivity == pytest.approx(0.02, rel=1e-8)
        assert agent.tight
        assert agent.scale == pytest.approx(4 * 0.02, rel=1e-4)


def test_pure_noise_has_a_pure_guarantee():
    stated = planned(mechanism="laplace", delta=0).guarantee
    assert flat(stated).startswith("(1, 0)-DP for one change in one agent's data, worst case")
    assert stated.accountant == "sum of pure epsilons"
    assert "times the l1 sensitivity" in stated.mechanism


def test_without_noise_there_is_no_guarantee():
    stated = planned(mechanism=None, epsilon=None, delta=None).guarantee
    assert stated.kind == stated.certificate == "none"
    assert stated.epsilon == stated.rho == math.inf
    assert stated.agents == () and stated.claimed_by_paper is None
    assert str(stated) == "no guarantee: noise is off"


def test_without_private_data_there_is_nothing_to_guarantee():
    x = cp.Variable(name="x")
    stated = (
        dp.Problem([dp.Agent(cp.Minimize(cp.square(x - 1)))])
        .plan(dp.LinearizedADMM(), rounds=1)
        .guarantee
    )
    assert str(stated) == "no guarantee: the model declares nothing private"


def test_one_asserted_sensitivity_makes_the_guarantee_asserted():
    plan = planned(means(dp.Asserted(l2=0.5)))
    stated = plan.guarantee
    assert (stated.kind, stated.certificate) == ("asserted", "asserted")
    assert {a.agent: a.certificate for a in stated.agents} == {"a": "asserted", "b": "derived"}
    assert stated.assumptions[0] == CLAIMED
    text = flat(stated)
    assert "ASSERTED, not proved" in text and "worst case" not in text
    assert "asserted by the user, at least in part" in text
    assert flat(CLAIMED) in text
    ledger = plan.run(seed=0).ledger
    assert {e.certificate for e in ledger["a"].entries} == {"asserted"}
    assert {e.certificate for e in ledger["b"].entries} == {"derived"}


# Noise on the output


OUTPUT = [
    dp.LinearizedADMM(penalty=1.0, perturb=kind, output_sensitivity=0.005)
    for kind in ("output", "projected_output")
]
outputs = pytest.mark.parametrize("algorithm", OUTPUT, ids=lambda a: a.perturb)


@outputs
def test_an_output_sensitivity_is_marked_as_asserted_in_guarantee_and_ledger(algorithm):
    plan = planned(algorithm=algorithm, mechanism=dp.Gaussian(noise_multiplier=3.0))
    assert (plan.guarantee.kind, plan.guarantee.certificate) == ("asserted", "asserted")
    assert CLAIMED in plan.guarantee.assumptions
    assert STATED_ACCURACY in plan.guarantee.assumptions
    assert "ASSERTED, not proved" in flat(plan)
    result = plan.run(seed=0)
    assert result.guarantee.kind == "asserted"
    for agent in "ab":
        entries = result.ledger[agent].entries
        assert len(entries) == 3
        for entry in entries:
            assert (entry.certificate, entry.released) == ("asserted", "solution of the local step")
            assert entry.sensitivity == pytest.approx(0.005, rel=1e-4)


@pytest.mark.parametrize("kind", ["output", "projected_output"])
def test_without_it_the_output_is_derived_and_no_solver_is_relied_on(kind):
    plan = planned(algorithm=dp.LinearizedADMM(penalty=1.0, perturb=kind))
    assert plan.guarantee.kind == "worst-case"
    assert STATED_ACCURACY not in plan.guarantee.assumptions
    assert STATED_ACCURACY not in planned().guarantee.assumptions
    ledger = plan.run(seed=0).ledger
    assert {e.certificate for e in ledger["a"].entries} == {"derived"}


def test_an_asserted_output_sensitivity_sets_the_noise():
    moved = []
    for asserted in (1e-6, 10.0):
        plan = planned(
            algorithm=dp.LinearizedADMM(penalty=1.0, perturb="output", output_sensitivity=asserted),
            mechanism=dp.Gaussian(noise_multiplier=3.0),
            rounds=1,
        )
        one, two = (plan.run(seed=s, record=True).transcript.releases for s in (0, 1))
        moved.append(np.linalg.norm(one[0].value - two[0].value))
    assert 0 < moved[0] < 1e-4
    assert moved[1] > 1


def test_an_output_sensitivity_goes_with_noise_on_the_output():
    with pytest.raises(dp.ModelError, match="perturb='output'"):
        dp.LinearizedADMM(output_sensitivity=1.0)


@pytest.mark.parametrize("asserted", [None, 0.005])
def test_the_scale_of_noise_on_the_output_is_that_of_the_output(asserted):
    algorithm = dp.LinearizedADMM(penalty=1.0, perturb="output", output_sensitivity=asserted)
    plan = planned(algorithm=algorithm, mechanism=dp.Gaussian(noise_multiplier=3.0), rounds=1)
    (stated, _), (entry,) = plan.guarantee.agents, plan.run(seed=0).ledger["a"].entries
    assert "of the gradient" not in stated.noise
    assert stated.certificate == entry.certificate
    # Infinite where it is known at each step only.
    assert stated.scale in (math.inf, pytest.approx(3.0 * entry.sensitivity))


# The paper's claim


# Rounds, step epsilon, delta: the claim, and the truth.
ERRATA = {
    (100, 1.0, 1e-2): (9.7661884686347, 11.918178190327),
    (500, 1.0, 1e-2): (21.837861296942, 41.765113650153),
    (5000, 1.0, 1e-6): (70.146456109945, 151.61811149734),
    (100, 0.05, 1e-2): (0.48830942343173, 0.19242582129761),
}


@pytest.mark.parametrize("case", ERRATA, ids=str)
def test_a_claim_stands_next_to_the_truth_under_its_own_name(case):
    rounds, epsilon, delta = case
    claim, truth = ERRATA[case]
    stated = planned(rounds=rounds, mechanism=classical(epsilon, delta), delta=delta).guarantee
    assert stated.epsilon == pytest.approx(truth, rel=1e-9)
    assert stated.claimed_by_paper.epsilon == pytest.approx(claim, rel=1e-9)
    assert stated.claimed_by_paper.delta == delta
    assert (claim < truth) == (epsilon == 1.0)
    text = flat(stated)
    assert text.startswith(f"({at_most(truth)}, {exponent(delta)})-DP")
    assert (
        f"claim Ryu and Kim, Theorem 4.9 claims ({claim:.6g}, {exponent(delta)}); that is not a "
        "bound (docs/privacy/errata.md)"
    ) in text


def test_the_claim_counts_local_updates_as_the_theorem_does():
    stated = planned(
        algorithm=dp.LinearizedADMM(penalty=1.0, local_updates=5),
        rounds=20,
        mechanism=classical(1.0, 1e-2),
        delta=1e-2,
    ).guarantee
    assert stated.claimed_by_paper.epsilon == pytest.approx(9.7661884686347, rel=1e-9)


@pytest.mark.parametrize(
    "mechanism",
    ["gaussian", "laplace", dp.Gaussian(noise_multiplier=3.0), dp.Laplace(release_epsilon=1.0)],
    ids=str,
)
def test_only_levels_of_a_gaussian_release_are_compared_with_the_claim(mechanism):
    stated = planned(mechanism=mechanism).guarantee
    assert stated.claimed_by_paper is None
    assert "claim " not in flat(stated)


# Seeds


def test_a_seed_makes_a_run_not_for_release():
    plan = planned()
    seeded, earnest = plan.run(seed=5).guarantee, plan.run().guarantee
    assert seeded.assumptions[0] == SEEDED
    assert flat(seeded).startswith(
        "(1, 1e-6)-DP for one change in one agent's data, worst case, if the seed stays secret: "
        "not for release"
    )
    assert "Anyone who knows the seed can subtract the noise" in flat(seeded)
    assert earnest == plan.guarantee
    assert "seed" not in str(earnest) and "not for release" not in str(earnest)
    assert (seeded.epsilon, seeded.kind) == (earnest.epsilon, earnest.kind)


def test_a_seed_is_named_for_asserted_guarantees_too():
    stated = flat(planned(means(dp.Asserted(l2=0.5))).run(seed=0).guarantee)
    assert "ASSERTED, not proved, if the seed stays secret: not for release" in stated


# Earlier runs


def test_whether_earlier_runs_are_counted_is_said_as_it_is(tmp_path):
    plan, path = planned(), tmp_path / "spent.jsonl"
    assert ALONE in plan.guarantee.assumptions and COUNTED not in plan.guarantee.assumptions
    assert plan.run(seed=0).guarantee.assumptions == (SEEDED, *plan.guarantee.assumptions)
    for result in (plan.run(seed=0, ledger=path), plan.replay(path)):
        stated = result.guarantee.assumptions
        assert COUNTED in stated and ALONE not in stated and stated[0] == SEEDED
        assert len(stated) == 1 + len(plan.guarantee.assumptions)


# What is released


def test_data_released_once_are_described_as_such():
    stated = planned(release="once", rounds=50).guarantee
    assert "1 release per agent, before round 1" in flat(stated)
    assert [a.releases for a in stated.agents] == [1, 1]
    for agent in stated.agents:
        assert re.fullmatch(r"scale \S+ per entry of 'load \w'", agent.noise)


def test_an_agent_whose_gradient_does_not_depend_on_its_data_needs_no_noise():
    x = cp.Variable(name="x")
    d = dp.Private(1.0, name="d", shape=(), adjacency=dp.Within(1.0))
    agents = [
        dp.Agent(cp.Minimize(cp.square(x - 1) + cp.square(d)), name="idle"),
        dp.Agent(cp.Minimize(cp.square(x)), name="public"),
    ]
    plan = planned(dp.Problem(agents))
    (stated,) = plan.guarantee.agents
    assert plan.guarantee.mechanism.startswith("none needed, no released value depends")
    assert "per agent" not in str(plan) and not plan.run(seed=1).ledger["idle"].entries
    assert (stated.agent, stated.noise, stated.releases) == ("idle", "none needed", 0)
    assert stated.scale == stated.sensitivity == 0


def test_a_sensitivity_without_a_bound_over_the_set_is_stated_at_each_point():
    w = cp.Variable(2, name="w")
    X = dp.Private(np.eye(2), name="X", adjacency=dp.Rows(1.0))
    y = dp.Private(np.ones(2), name="y", adjacency=dp.Rows(1.0))
    plan = planned(dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(X @ w - y)))]))
    (stated,) = plan.guarantee.agents
    assert stated.sensitivity == stated.scale == math.inf
    assert "times the sensitivity at the point of each step" in stated.noise
    assert plan.guarantee.kind == "worst-case"
    entries = plan.run(seed=0).ledger["agent 1"].entries
    assert len({e.sensitivity for e in entries}) > 1
    assert all(0 < e.sensitivity < math.inf for e in entries)


def test_every_text_stays_within_its_width_under_the_banner():
    for plan in (
        planned(mechanism=classical(1.0, 1e-2)),
        planned(means(dp.Asserted(l2=0.5))),
        planned(power_line().problem, release="once"),
    ):
        assert max(len(line) for line in str(plan.guarantee).splitlines()) <= 78
        assert max(len(line) for line in str(plan).splitlines()) <= 80


def test_releases_are_counted_as_they_are_charged():
    """The first point of two that leave in round 1 is public."""
    x = cp.Variable(name="x")
    agents = [
        dp.Agent(
            cp.Minimize(cp.square(x - dp.Private(0.5, name=n, shape=(), adjacency=dp.Within(0.1)))),
            name=f"agent {n}",
        )
        for n in "ab"
    ]
    plan = dp.Problem(agents).plan(
        dp.DPP2("path", 0.2, 0.05, 1.5, 0.1), mechanism="laplace", rounds=20, epsilon=1.0, delta=0.0
    )
    assert "39 releases per agent" in plan.guarantee.mechanism
    result = plan.run(seed=1)
    assert [agent.releases for agent in plan.guarantee.agents] == [39, 39]
    assert [len(account.entries) for account in result.ledger.accounts] == [39, 39]
