"""The private case study: convergence without noise, feasibility and guarantees with it."""

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.run.executors.in_process import Serial
from problems.power_flow.model import cost_scale
from problems.power_flow.report import assess
from problems.power_flow.solution import central
from problems.power_flow.study import power_flow

# Optima of case-studies.md: $/h at nominal load, squared per unit at load scale 1.5.
COST = {14: 2175.7046, 118: 96335.8593}
SHED = {14: 3.03068e-2, 118: 0.102231}


class Recording(Serial):
    """Keeps every local iterate of every agent."""

    def __init__(self):
        super().__init__()
        self.iterates = []

    def map(self, method, *common, each=None):
        replies = super().map(method, *common, each=each)
        if method == "act":
            self.iterates.append([agent._state.x.copy() for agent in self._agents])
        return replies


def violation(study, vectors):
    """Largest violation of an agent's own cvxpy constraints at its own vector."""
    worst = 0.0
    for agent, x in zip(study.problem.agents, vectors, strict=True):
        for variable, piece in zip(agent.variables, agent.layout.pieces, strict=True):
            flat = np.zeros(variable.size)
            flat[piece.entries] = x[piece.offset : piece.stop]
            variable.value = flat.reshape(variable.shape, order="F")
        worst = max(worst, *(float(np.max(c.violation())) for c in agent.constraints))
    return worst


@pytest.mark.parametrize("shared", ["voltage", "flow"])
@pytest.mark.parametrize("case", [14, 118])
def test_admm_reaches_the_cost_optimum_within_forty_rounds(case, shared):
    study = power_flow(case, objective="cost", private=None, shared=shared)
    result = study.problem.plan(dp.ADMM(penalty=10.0), mechanism=None, rounds=40).run()
    value = dp.not_private.objective(study.problem, result.last) / cost_scale(study.case)
    assert value == pytest.approx(COST[case], rel=1e-2)
    assert result.history.mismatch[-1] < 1e-2
    assert result.guarantee.kind == "none"


@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [
        (dp.ADMM(penalty=1.0), 300),
        (dp.LinearizedADMM(penalty=10.0, step=dp.steps.Constant()), 3000),
    ],
    ids=["exact", "linearized"],
)
def test_both_methods_reach_the_shed_optimum_of_case_14(algorithm, rounds):
    study = power_flow(14, load_scale=1.5)
    plan = study.problem.plan(algorithm, mechanism=None, rounds=rounds)
    result = plan.run()
    value = dp.not_private.objective(study.problem, result.last)
    assert value == pytest.approx(SHED[14], rel=1e-3)
    assert result.last.mismatch < 1e-4
    if isinstance(algorithm, dp.LinearizedADMM):
        assert plan.algorithm.step.step == pytest.approx(0.1)


def test_the_zones_of_case_14_are_those_of_the_specification():
    plan = power_flow(14).problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=1)
    assert [agent.n for agent in plan.program.agents] == [74, 51, 58]
    assert plan.program.size == 19


@pytest.mark.parametrize("case", [14, 118])
def test_private_iterates_are_feasible_and_plainly_perturbed_outputs_are_not(case):
    study = power_flow(case, load_scale=1.5)
    worst = {}
    for perturb in ("objective", "output"):
        algorithm = dp.LinearizedADMM(penalty=100.0, step=dp.steps.Sqrt(), perturb=perturb)
        plan = study.problem.plan(algorithm, rounds=20, epsilon=1.0, delta=1e-6)
        executor = Recording()
        result = plan.run(seed=1, executor=executor)
        assert len(executor.iterates) == 20
        worst[perturb] = max(violation(study, vectors) for vectors in executor.iterates)
        for account in result.ledger.accounts:
            assert len(account.entries) == 20
        assert result.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-9)
    assert worst["objective"] < 1e-6
    assert worst["output"] > 1e-2


@pytest.mark.parametrize("case", [14, 118])
def test_a_hundred_steps_of_the_papers_noise_cost_11_918(case):
    plan = power_flow(case).problem.plan(
        dp.LinearizedADMM(penalty=100.0, step=dp.steps.Sqrt(), local_updates=5),
        mechanism=dp.Gaussian(release_epsilon=1.0, release_delta=1e-2, calibration="classical"),
        rounds=20,
        delta=1e-2,
    )
    result = plan.run(seed=0)
    for guarantee in (plan.guarantee, result.guarantee):
        assert guarantee.epsilon == pytest.approx(11.918, abs=5e-4)
    assert all(len(account.entries) == 100 for account in result.ledger.accounts)


def test_the_sensitivity_is_that_of_the_busiest_bus():
    plan = power_flow(14, radius=0.01).problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)
    l2 = [agent.sensitivity.l2 for agent in plan.agents]
    # 2 * radius * ||a_i||_2, with a_i in {-1, 0, 1} but for the shunt at bus 9 in zone 3.
    assert l2[:2] == pytest.approx([0.02 * np.sqrt(5), 0.02 * np.sqrt(5)])
    assert l2[2] == pytest.approx(0.02 * np.sqrt(4 + 0.19**2))


@pytest.mark.parametrize("case", [14, 118])
def test_the_zones_together_are_the_network(case):
    study = power_flow(case, load_scale=1.5)
    together = dp.not_private.joint_problem(study.problem)
    together.solve()
    assert together.value == pytest.approx(SHED[case], rel=1e-4)
    assert together.value == pytest.approx(central(study.case, "shed", 1.5).value, rel=1e-4)


def test_cost_and_imbalance_together_are_private_and_near_the_exact_cost():
    study = power_flow(14, objective="both")
    plan = study.problem.plan(mechanism=None)
    plan.run()
    bought = central(study.case, "cost").value
    value = central(study.case, "both").value
    # Imbalance is bought instead of power up to a two-hundredth of a unit at each bus.
    assert 0.99 * bought < value < bought
    outcome = assess(study, plan.run())
    assert outcome.objective == pytest.approx(value, rel=1e-4)
    worst = max(abs(p) for p, _ in outcome.imbalance.values())
    assert worst <= 0.005 * study.case.base_mva * 1.001
    assert [len(agent.private) for agent in study.problem.agents] == [1, 1, 1]


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_load_scale_is_positive_and_finite(scale):
    with pytest.raises(dp.ModelError, match="load_scale="):
        power_flow(14, load_scale=scale)


def test_the_exact_solution_of_thin_sets_stays_where_it_is():
    study = power_flow(14, zones=2, objective="cost", private=None)
    result = study.problem.plan(dp.OneShot(), mechanism=None).run()
    cost = dp.not_private.objective(study.problem, result.solution) / cost_scale(study.case)
    assert cost == pytest.approx(central(study.case, "cost").value, rel=1e-6)
