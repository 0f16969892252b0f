"""What methods choose their numbers by."""

import math

import numpy as np
import pytest

from dpcvx.defaults.conditions import conditions
from tests.plan.test_request import BUDGETS, planned
from tests.plan.test_terms_groups import ROUNDS


def test_methods_are_told_rounds_noise_and_what_one_change_does():
    plan = planned({"north": "laplace", "south": "gaussian", "east": "gaussian"}, BUDGETS)
    found = conditions(plan.program, plan.agents, ROUNDS, noisy_steps=True)
    assert found.rounds == ROUNDS
    scales = [agent.scale for agent in plan.guarantee.agents]
    # Scales include the width of a grid; that of Laplace noise is no standard deviation.
    np.testing.assert_allclose(found.noise, np.array(scales) * [math.sqrt(2), 1, 1], rtol=1e-4)
    # Thirty changes of an entry, or of all entries together.
    for agent, slope in zip(plan.agents, found.slope, strict=True):
        (spec,) = agent.program.form.private
        entries = spec.size if spec.adjacency.norm in ("entry", "inf") else 1
        assert slope == pytest.approx(30 * math.sqrt(entries) * agent.sensitivity.l2)
    assert found.release_epsilon == min(agent.noise.release_epsilon for agent in plan.agents)


def test_steps_are_not_noisy_where_data_leave_once_or_without_noise():
    plan = planned(epsilon=BUDGETS)
    found = conditions(plan.program, plan.agents, ROUNDS, noisy_steps=False)
    assert found.noise == (0.0, 0.0, 0.0)
    assert found.release_epsilon == math.inf
    silent = planned(None, delta=None)
    assert conditions(silent.program, silent.agents, ROUNDS, noisy_steps=False).slope == (
        0.0,
        0.0,
        0.0,
    )
