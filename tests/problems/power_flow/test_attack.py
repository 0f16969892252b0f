"""What the attacks recover, and what they do not."""

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.attack import (
    loads_from_messages,
    loads_from_once,
    loads_from_releases,
    shared_messages,
)
from problems.power_flow.study import power_flow

METHOD = dp.LinearizedADMM(penalty=100.0, step=dp.steps.Sqrt())
RADIUS = 0.01


@pytest.fixture(scope="module")
def study():
    return power_flow(14, load_scale=1.5, radius=RADIUS)


def errors(study, estimates):
    true = [1.5 * study.case.load[buses] for buses in study.zones.buses]
    assert [e.shape for e in estimates] == [d.shape for d in true]
    return np.array([np.abs(e - d).max() for e, d in zip(estimates, true, strict=True)])


def test_border_voltages_of_a_run_without_noise_give_the_loads_away(study):
    plan = study.problem.plan(METHOD, mechanism=None, rounds=5)
    messages = shared_messages(plan, plan.run(iterates=True))
    assert len(messages) == 5 and [z.size for z in messages[0]] == [
        local.shared.size for local in plan.program.agents
    ]
    assert errors(study, loads_from_messages(plan, messages)).max() < 1e-5
    # One round is not enough: what a zone sends has fewer components than it has loads.
    assert errors(study, loads_from_messages(plan, messages[:1])).max() > 1e-2


def test_gradients_without_noise_give_the_loads_away_at_once(study):
    plan = study.problem.plan(METHOD, mechanism=None, rounds=1)
    exact = study.problem.plan(METHOD, rounds=1, epsilon=1.0, delta=1e-6)
    result = plan.run(iterates=True, record=True)
    assert errors(study, loads_from_releases(exact, result)).max() < 1e-9


@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_with_noise_the_error_is_what_the_budget_says(study, epsilon):
    plan = study.problem.plan(
        dp.ADMM(penalty=10.0),
        mechanism="gaussian",
        rounds=1,
        epsilon=epsilon,
        delta=1e-6,
        release="once",
    )
    estimates = loads_from_once(plan, plan.run(seed=0, record=True))
    true = [1.5 * study.case.load[buses] for buses in study.zones.buses]
    residual = np.concatenate([(e - d).ravel() for e, d in zip(estimates, true, strict=True)])
    # 28 normal variables: their root mean square is within 40 % but with probability 3e-3.
    level = RADIUS * plan.agents[0].noise.multiplier
    assert np.sqrt(np.mean(residual**2)) == pytest.approx(level, rel=0.4)


def test_noise_in_every_gradient_hides_as_much_as_noise_once(study):
    plan = study.problem.plan(METHOD, rounds=25, epsilon=1.0, delta=1e-6)
    estimates = loads_from_releases(plan, plan.run(seed=0, iterates=True, record=True))
    true = [1.5 * study.case.load[buses] for buses in study.zones.buses]
    residual = np.concatenate([(e - d).ravel() for e, d in zip(estimates, true, strict=True)])
    once = study.problem.plan(
        dp.ADMM(), mechanism="gaussian", rounds=1, epsilon=1.0, delta=1e-6, release="once"
    )
    level = RADIUS * once.agents[0].noise.multiplier
    # The gradient carries a load's noise in several components: never better than half.
    assert 0.5 * level < np.sqrt(np.mean(residual**2)) < 3 * level
