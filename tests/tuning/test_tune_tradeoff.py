"""Error against epsilon: runs of default plans on stand-in data, and one figure."""

import math

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.problem import planned
from dpcvx.tuning.tune import tradeoff
from tests.tuning.trials import PROXY, counting, network, request


@pytest.fixture(scope="module")
def found():
    return network().tradeoff(
        [10, 1.0, 1], PROXY, delta=1e-6, runs=4, verbose=False, time_limit=1e6
    )


def test_gaps_are_those_of_the_default_plans_in_order_of_epsilon(found):
    assert found.epsilons == (1.0, 10.0) and [len(gaps) for gaps in found.gaps] == [4, 4]
    assert np.median(found.gaps[1]) < np.median(found.gaps[0]) < found.start
    assert found.noiseless == pytest.approx(0, abs=1e-6)
    assert found.start == pytest.approx(0.445, rel=0.5) and found.optimum == pytest.approx(0.125)
    assert 0 < found.proxy < found.start and found.error == "20 % of each entry"


def test_the_figure_has_a_line_for_no_data_and_one_for_no_noise(found):
    figure = found.plot()
    (axes,) = figure.axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[:3] == ["half of the runs", "median", "no data at all"]
    assert labels[3].startswith("no noise")
    median, nothing, _ = axes.lines
    assert list(median.get_xdata()) == [1.0, 10.0]
    assert list(median.get_ydata()) == pytest.approx([np.median(gaps) for gaps in found.gaps])
    assert set(nothing.get_ydata()) == {found.start}
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_its_text_is_a_table(found):
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    labels = [line[:24].strip() for line in lines]
    k = labels.index("1")
    rivals = ["no noise", "optimum for the proxy", "no data at all"]
    assert labels[k : k + 5] == ["1", "10", *rivals]
    assert lines[0] == "dpcvx tradeoff: 2 budgets at delta 1e-6, default plan"
    assert "better than the optimum for the proxy, which costs no privacy" in " ".join(lines)
    assert any(line.startswith("Assumed error of the proxy: 20 % of each entry") for line in lines)
    start = f"no data at all: {found.start:.3g}>"
    assert repr(found) == f"<Tradeoff: epsilon from 1 to 10, 8 runs; {start}"


def test_what_ended_in_time_is_returned_and_nothing_is_not_drawn():
    none = network().tradeoff([1.0], PROXY, delta=1e-6, time_limit=1e-9)
    assert none.gaps == ((),) and math.isnan(none.noiseless)
    assert "no run ended in time" in str(none)
    with pytest.raises(dp.ModelError, match="nothing to plot: no run ended in time"):
        none.plot()


@pytest.mark.parametrize("epsilons", [[], [0.0], [1.0, math.inf], "1", 1.0, None, [[1.0]]])
def test_budgets_are_positive_numbers(epsilons):
    with pytest.raises(dp.ModelError, match=r"epsilons=.*problem.tradeoff\(\[0.1, 1, 10\], delta"):
        network().tradeoff(epsilons, PROXY, delta=1e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta", 2.0), ("runs", 0), ("runs", 1.5), ("time_limit", -1.0), ("time_limit", math.inf),
        ("seed", -1), ("verbose", "loud"), ("recourse", 1), ("algorithm", "ADMM"),
    ],
)  # fmt: skip
def test_arguments_without_meaning_are_refused_by_name(name, value):
    with pytest.raises(dp.DpcvxError, match=name):
        network().tradeoff([1.0], PROXY, **{"delta": 1e-6} | {name: value})


def test_stand_ins_that_leave_no_point_are_refused_in_words():
    apart = network(constraints=lambda x, k: [x >= 1 if k == 0 else x <= 0])
    with pytest.raises(dp.ModelError, match="No point lies in the sets of all agents, so problem"):
        apart.tradeoff([1.0], PROXY, delta=1e-6)


def test_the_time_is_kept_with_what_ended_until_then():
    given = request(time_limit=400.0, clock=counting(1.0))
    found = tradeoff(network(), planned, given, [1.0, 10.0], 10_000)
    runs = [len(gaps) for gaps in found.gaps]
    assert 1 <= min(runs) and max(runs) < 10_000 and max(runs) - min(runs) <= 1


@pytest.mark.parametrize("moment", [3, 40, 200])
def test_an_interrupt_leaves_everything_as_it_was(moment):
    problem, clock = network(), counting(1.0)
    (x,) = problem.variables()
    x.value = np.array([0.1, 0.2])

    def interrupted():
        if clock() > moment:
            raise KeyboardInterrupt
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        tradeoff(problem, planned, request(clock=interrupted), [1.0], 10_000)
    assert np.array_equal(x.value, [0.1, 0.2]) and problem.status is None


def test_stand_ins_are_needed_and_private_data_are_not_read():
    with pytest.raises(dp.ModelError, match=r"problem.tradeoff\(..., proxy="):
        network().tradeoff([1.0], delta=1e-6)


def test_expectations_count_where_the_budget_is_small():
    problem = network(likes=[PROXY["load 0"], PROXY["load 1"]])
    expected = {name: dp.Prior(load + 0.01, 0.02) for name, load in PROXY.items()}
    given = dict(delta=1e-6, runs=6, time_limit=20.0, verbose=False)
    plain = problem.tradeoff([0.05], **given)
    found = problem.tradeoff([0.05], prior=expected, **given)
    assert np.median(found.gaps[0]) < 0.2 * np.median(plain.gaps[0])


def test_a_method_by_hand_is_that_of_all_plans():
    given = {"delta": 1e-6, "runs": 1, "verbose": False, "time_limit": 1e6}
    found = network().tradeoff([1.0], PROXY, algorithm=dp.OneShot(), **given)
    assert str(found).splitlines()[0].endswith("1e-6, the server solves the whole problem once")
