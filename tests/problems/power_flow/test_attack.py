"""What the attacks recover, and what they do not."""

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.attack import loads_from_messages, shared_messages
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
    found = dp.reconstruct(plan, plan.run(record=True).transcript)
    assert errors(study, [guess.value for guess in found.guesses]).max() < 1e-9
