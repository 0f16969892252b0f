"""What private constraints cost at which epsilon, next to how often they are broken."""

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.sealed import Sealed
from dpcvx.tuning.copies import Copies, values_kept
from dpcvx.tuning.search import FRESH
from tests.tuning.trials import grid

ASKED = dict(delta=1e-6, verbose=False, time_limit=1e6)


@pytest.fixture(scope="module")
def found():
    return grid().tradeoff([1.0, 10.0], violation_probability=0.3, runs=20, **ASKED)


def test_margins_cost_less_with_more_epsilon(found):
    low, high = (np.median(gaps) for gaps in found.gaps)
    assert low > 3 * high > 0
    assert found.noiseless == pytest.approx(0, abs=1e-6)


def test_broken_constraints_are_those_of_the_runs(found):
    problem = grid()
    (private,) = problem.agents[0].private
    with values_kept(problem):
        copies = Copies(problem, {private: Sealed(private.proxy, private.spec)}, "problem.tradeoff")
        data = [copies(k).proxy for k in range(20)]
    for epsilon, broken in zip(found.epsilons, found.broken, strict=True):
        assert 0 < broken < 15  # 0.3 of 20: as many with probability 5e-5 at most
        plan = problem.plan(epsilon=epsilon, delta=1e-6, violation_probability=0.3)
        short = [
            dp.not_private.violation(problem, plan.run(data=own, seed=s).solution, own) > 1e-6
            for s, own in enumerate(data, FRESH)
        ]
        assert sum(short) == broken


def test_the_table_has_what_was_promised_beside_what_was_broken(found):
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert "promised: at most 0.3 of all" in " ".join(str(found).split())
    rows = [line.split()[-3:] for line in lines if line.split()[:1] in (["1"], ["10"])]
    assert rows == [[str(broken), "of", "20"] for broken in found.broken]
    assert "No data at all: initial point, which breaks a private constraint" in lines


def test_the_figure_shows_both(found):
    axes, below = found.plot().axes
    assert axes.get_ylabel() == "objective above the optimum"
    assert axes.get_yscale() == (
        "log" if min(np.quantile(g, 0.25) for g in found.gaps) > 0 else "linear"
    )
    *drawn, promised = below.lines
    assert set(promised.get_ydata()) == {0.3}
    for (interval, share), broken in zip(
        zip(drawn[::2], drawn[1::2], strict=True), found.broken, strict=True
    ):
        low, high = interval.get_ydata()
        assert list(share.get_ydata()) == [broken / 20] and low < broken / 20 < high


def test_never_is_kept_where_noise_has_a_limit():
    found = grid().tradeoff([10.0], violation_probability=0, runs=20, **ASKED)
    assert found.broken == (0,) and min(found.gaps[0]) > 0
    assert "promised: none." in " ".join(str(found).split())


def test_what_a_decision_pays_counts():
    asked = dict(violation_probability=0.3, runs=5, **ASKED)
    firm, cheap = (grid().tradeoff([1.0], slack_penalty=p, **asked) for p in (None, 1.0))
    # At 1.0 all that is generated at 2.0 is missed instead, and paid for.
    least = np.array(cheap.gaps[0]).min()
    assert cheap.broken[0] <= 5 and least > -1.5
    assert np.median(cheap.gaps[0]) < np.median(firm.gaps[0])


def test_expectations_are_refused_where_constraints_hold_the_data():
    with pytest.raises(dp.PrivacyError, match="Their margins are proved for the data as released"):
        grid().tradeoff(
            [1.0], violation_probability=0.1, prior={"load": dp.Prior(1.0, 0.1)}, **ASKED
        )


def test_a_violation_has_to_be_named():
    with pytest.raises(
        dp.PrivacyError, match=r"Write the largest probability of that.*violation_probability=0\.01"
    ):
        grid([lambda p, load: p[0] <= 9 * load[0]]).tradeoff([1.0], **ASKED)
