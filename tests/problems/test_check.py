"""Record and replay on the case studies."""

import pytest

import dpcvx as dp
from problems.power_flow.study import power_flow

METHODS = {
    "gradients": (
        dp.LinearizedADMM(penalty=100.0, step=dp.steps.Sqrt(), local_updates=2),
        "each_step",
    ),
    "output": (
        dp.LinearizedADMM(penalty=100.0, step=dp.steps.Sqrt(), perturb="output"),
        "each_step",
    ),
    "once": (dp.ADMM(penalty=10.0), "once"),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shared", ["voltage", "flow"])
def test_power_flow_keeps_its_boundary_and_its_sensitivity(name, shared):
    algorithm, release = METHODS[name]
    problem = power_flow(14, load_scale=1.5, shared=shared).problem
    plan = problem.plan(algorithm, rounds=3, epsilon=1.0, delta=1e-6, release=release)
    found = dp.check_sensitivity(plan)
    assert found.passed, str(found)
    assert [agent.agent for agent in found.agents] == list(problem.names)
    if name == "gradients":
        assert min(agent.ratio for agent in found.agents) > 0.99


def test_the_papers_sensitivity_of_outputs_is_not_one():
    algorithm = dp.LinearizedADMM(
        penalty=100.0, step=dp.steps.Sqrt(), perturb="output", output_sensitivity=0.01
    )
    problem = power_flow(14, load_scale=1.5, radius=0.01).problem
    found = dp.check_sensitivity(problem.plan(algorithm, rounds=1, epsilon=1.0, delta=1e-6))
    assert not found.passed
    assert max(agent.ratio for agent in found.agents) > 1.5
