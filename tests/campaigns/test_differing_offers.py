"""The short form of the campaign of a coordinator that sends owners different documents."""

import numpy as np
import pytest

from dpcvx.owners.offers import offers_of
from dpcvx.privacy.split_noise import SplitNoise
from tests.campaigns.differing_offers import (
    LIES,
    REPEATS,
    Part,
    campaign,
    judged,
    measured,
    plan_of,
)

# Lies in which every owner is asked for what it accepts: the sums hide as much as ledgers state.
HARMLESS = {"ended_for_one"}
# Lies that come after an honest sum.
LATE = {"longer_plan", "longer_plan_elsewhere"}


def test_no_lie_of_a_coordinator_costs_more_than_ledgers_state():
    # Few repetitions: a false sum is noticed by what follows, and its noise in the full campaign.
    found = campaign(16, 1, repeats=3, fewest=3)
    assert not found.faults, str(found)
    for lie in LIES:
        name = lie.__name__
        (outcome,) = [what for what in found.counts if what.startswith(f"{name}: ")]
        assert ("refused by" in outcome) == (name not in HARMLESS | {"relabeled"}), outcome
        assert ("held" in outcome) == (name in LATE | HARMLESS | {"relabeled"}), outcome
    assert found.counts["honest: held"] == 3


def test_owners_of_whom_some_are_started_again_repeat_a_sum(tmp_path):
    plan = plan_of("summed", 3, rounds=2)
    offers = offers_of(plan, "run")
    parts = [Part(offers, [(1, 1.0)]), Part(offers, [(1, 1.0), (2, -1.0)], again=(1,))]
    (first, again, second), _, releases, code = measured(plan, parts, None, tmp_path / "run", 1)
    assert first == again != second and releases == 2 and not code


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_one_owner_in_place_of_all_is_noticed(seed):
    # Level 1e-6 per case; of eight owners, one is noticed in 98 of 100 cases, of which these are.
    split, rng = SplitNoise(8, 1, 2.0**-20, 1.0), np.random.default_rng(seed)
    one, all_but_one = (s * rng.normal(size=(REPEATS, 1)) / split.width for s in (1, np.sqrt(7)))
    assert judged(split, all_but_one, [1.0], 1) is None
    assert "the ledger states 0.125" in judged(split, one, [1.0], 1)
    # Of two sums with the same noise of all others, and one part each of the first owner's own.
    shared = np.sqrt(6) * rng.normal(size=(REPEATS, 1)) / split.width
    twice = shared + rng.normal(size=(REPEATS, 2)) / split.width
    assert judged(split, twice, [1.0, 1.0], 2) is None
    assert judged(split, twice, [1.0, -1.0], 2)
