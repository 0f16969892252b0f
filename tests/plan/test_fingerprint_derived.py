"""Numbers that follow from a plan: written down, and taken back where they are the plan's own."""

from dataclasses import replace

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.plan import fingerprint
from dpcvx.plan.fingerprint import begun_with
from tests.instances import power_line

METHODS = {
    "linearized": dp.LinearizedADMM(),
    "networks": dp.DecentralizedGradient("complete"),
    "exact": dp.ADMM(penalty=2.0),
    "once": dp.OneShot(),
}


def derived(plan):
    return fingerprint.derived(plan.algorithm, plan.agents)


def planned(method="linearized"):
    return power_line().problem.plan(METHODS[method], rounds=None, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_numbers_of_another_machine_take_the_place_of_the_own(method):
    plan = planned(method)
    own = derived(plan)
    other = own * (1 - 1e-12)
    begun = begun_with(plan, other)
    assert begun is not None and begun is not plan
    assert np.array_equal(derived(begun), other)
    assert begun.fingerprint == plan.fingerprint
    assert begun.agents[0].program is begun.program.agents[0]
    fixed = derived(plan)
    assert np.array_equal(fixed, own) and begun_with(plan, own) is plan


def test_numbers_that_are_not_the_plans_are_not_taken():
    plan = planned()
    own = derived(plan)
    for place in range(own.size):
        moved = own.copy()
        moved[place] += 1e-6 * max(1.0, abs(moved[place]))
        assert begun_with(plan, moved) is None
    assert begun_with(plan, own[:-1]) is None
    assert begun_with(plan, np.full(own.size, np.nan)) is None


@pytest.mark.parametrize("own", [np.inf, -np.inf, np.nan])
def test_where_a_plan_has_no_finite_number_none_is_taken(own):
    """No rounding makes it one, and all finite numbers are near to it by its own size."""
    plan = planned()
    place = derived(plan).tolist().index(plan.agents[0].noise.multiplier)
    noise = replace(plan.agents[0].noise, multiplier=own)
    object.__setattr__(plan.agents[0], "noise", noise)
    right = derived(plan)
    assert np.array_equal(right[place], own, equal_nan=True)
    rounded = np.where(np.isfinite(right), right * (1 - 1e-12), right)
    assert begun_with(plan, rounded) is not None
    for other in {0.0, 1.0, -1e300, np.inf, -np.inf, np.nan} - {own}:
        moved = right.copy()
        moved[place] = other
        assert begun_with(plan, moved) is None


def test_starts_that_are_not_finite_agree_with_no_others():
    plan = planned()
    start = plan.agents[0].program.start.copy()
    start[0] = np.inf
    object.__setattr__(plan.agents[0].program, "start", start)
    right = derived(plan)
    assert begun_with(plan, np.where(np.isfinite(right), right * (1 - 1e-12), right)) is not None
    for moved in (np.nan_to_num(right, posinf=1.0), right + 1.0):
        assert begun_with(plan, moved) is None


def test_a_run_with_other_numbers_is_not_gone_on_with(tmp_path):
    """As if another version derived another start: what it released counts, and is not reused."""
    plan = power_line().problem.plan(
        dp.LinearizedADMM(),
        rounds=3,
        mechanism=dp.Gaussian(noise_multiplier=50.0),
        epsilon=1.0,
        delta=1e-6,
    )

    class Stopping(dp.Serial):
        def map(self, method, *common, each=None):
            if method == "act" and common[0] == 3:
                raise KeyboardInterrupt
            return super().map(method, *common, each=each)

    path = tmp_path / "spent.jsonl"
    with pytest.raises(KeyboardInterrupt):
        begun_with(plan, derived(plan) * (1 - 1e-12)).run(ledger=path, executor=Stopping())
    other = plan
    object.__setattr__(other.program.agents[0], "start", other.program.agents[0].start + 1e-3)
    result = other.run(ledger=path)
    assert any("interrupted run of another plan" in note for note in result.notes)
    name = other.agents[0].name
    assert len(result.ledger[name].entries) == 2 + 3
