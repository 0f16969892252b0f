"""Numbers that follow from a plan: written down, and taken back where they are the plan's own."""

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.plan import derived as numbers
from dpcvx.plan.derived import begun_with
from tests.instances import power_line

METHODS = {
    "linearised": dp.LinearizedADMM(),
    "networks": dp.DecentralizedGradient("complete"),
    "exact": dp.ADMM(penalty=2.0),
    "once": dp.Central(),
}


def derived(plan):
    return numbers.derived(plan.algorithm, plan.agents)


def planned(method="linearised"):
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


def test_a_run_with_other_numbers_is_not_gone_on_with(tmp_path):
    """As if another version derived another start: what it released counts, and is not reused."""
    plan = power_line().problem.plan(
        dp.LinearizedADMM(),
        rounds=3,
        mechanism=dp.Gaussian(multiplier=50.0),
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
