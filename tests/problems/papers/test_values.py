"""The table has the papers' values, and every run as printed has the table's."""

import re
from pathlib import Path

import numpy as np
import pytest

import dpcvx as dp
import examples.chan_xie_zhao_elastic_net as chan
import examples.ou_nonconvex as ou
import examples.ryu_kim_federated_learning as learning
import examples.ryu_kim_power_flow as power
import examples.xiao_ye_devadas_logistic as xiao
import problems.papers
from problems.census import amplifications, methods
from problems.census import printed as census
from problems.elastic_net import setting, study, users
from problems.logistic_regression import settings as images
from problems.logistic_regression.experiment import DELTA, FEMNIST_PENALTY, MNIST_PENALTY
from problems.nonconvex_classification import experiment, records
from problems.nonconvex_classification import methods as nonconvex
from problems.nonconvex_classification.penalty import Penalty
from problems.papers import ENTRIES, Entry, entry
from tests.problems.logistic_regression.instances import blobs

ALL = [(f"{paper}: {name}", own) for paper, table in ENTRIES.items() for name, own in table.items()]
NUMBER = re.compile(r"\d[\d,]*\d(?:\.\d+)?|\d+(?:\.\d+)?")


def numbers_in(words):
    """Numbers of a text; ``10^-6`` is one and ``30%`` is 0.3 and 30."""
    found = {float(match.replace(",", "")) for match in NUMBER.findall(words)}
    for base, power_of in re.findall(r"(\d+)\^(-?\d+)", words):
        found.add(float(base) ** int(power_of))
    found |= {float(match) / 100 for match in re.findall(r"(\d+)%", words)}
    return found


@pytest.mark.parametrize(("name", "own"), ALL, ids=lambda v: v if isinstance(v, str) else "")
def test_values_stand_in_the_papers_words(name, own):
    """Of entries with a quotation, which is short."""
    assert own.where and own.values and own.said
    if own.source != "words":
        return
    assert len(own.said.split()) <= 45
    stated = numbers_in(own.said)
    for symbol, value in own.values.items():
        if isinstance(value, str):
            assert symbol in ("order", "measure", "step") or value in own.said
        elif value is not True:
            each = value if isinstance(value, list) else [value]
            assert all(any(np.isclose(v, s) for s in stated) for v in each), (symbol, value)


def test_numbers_of_a_text_are_read():
    text = "60,000 points, 10^-6, 30%, {0.05, 0.1}, (a) 1.02^k and 5"
    assert numbers_in(text) >= {60000, 1e-6, 30, 0.3, 0.05, 0.1, 1.02, 5}
    assert 6 not in numbers_in("60,000 and 0.6")


def test_an_entry_has_one_source():
    with pytest.raises(ValueError, match="unpack"):
        problems.papers._entry({"where": "here", "x": 1})
    own = Entry("here", "words", "x = 1", {"x": 1, "y": [1.0]})
    assert own.number("x") == own.whole("x") == 1 and own.numbers("y") == (1.0,)
    with pytest.raises(AssertionError):
        own.number("y")
    assert {own.source for _, own in ALL} == {"words", "code", "choice"}


# What runs use, by entry. Numbers stand here once more, as the paper has them: a run that stops to
# read the table, and a table that is changed, both fail.


def test_xiao_ye_devadas():
    assert (methods.D, methods.ZETA, methods.RATE) == (10, 0.5, 1.02)
    assert (xiao.EACH, xiao.ROUNDS) == (100, 100)
    sizes = {name: (agents, edges) for name, agents, edges, _ in xiao.PRINTED}
    assert sizes == {"Figure 2": (10, 20), "Figure B": (100, 200), "Figure C": (10, 40)}
    assert {case.runs for case in xiao.FULL} == {
        entry("xiao_ye_devadas", "records").whole("runs"),
        1,
    }
    neighbors = np.array([2.0, 3.0])
    steps = {own.name: own.step(2, neighbors) for own in sum(census.CURVES.values(), ())}
    assert steps["Algorithm 1"] == pytest.approx([0.1, 0.1])
    assert steps["Fixed weights"] == pytest.approx([0.1, 0.1])
    # D_i = Gamma_i + |N_i| rho_i = 2 times 0.5 times 1.02^k |N_i|.
    growing = entry("xiao_ye_devadas", "growing_penalties")
    both = 2 * growing.number("share") * growing.number("rate") ** 2
    assert steps["Growing penalties"] == pytest.approx(1 / (both * neighbors))
    assert steps["Algorithm 2*"] == pytest.approx([0.93**2] * 2)
    assert steps["Huang et al."] == pytest.approx([0.9**2] * 2)
    secret = census.secret(50, 0).step(1, np.ones(50))
    assert 1 / 12 <= secret.min() < 1 / 11.5 < 1 / 8.5 < secret.max() <= 1 / 8
    ends = amplifications.surface(3)
    assert (amplifications.SHIFT, *ends.omega[[0, -1]], *ends.beta[[0, -1]]) == (
        0.001,
        0.1,
        1,
        2,
        10,
    )
    ratios = {method.name: method.ratio for method in methods.METHODS + methods.NOISELESS}
    assert (ratios["Algorithm 2"], ratios["Algorithm 2, fixed weights"]) == (0.95, 0.95)


def test_ou_wang_liu_lu():
    assert (experiment.ALPHA, experiment.BETA, experiment.RHO) == (0.1, 0.05, 10)
    assert experiment.Scales(0.0994, 0.994, 1.0) == experiment.FIGURE_3
    assert (nonconvex.ETA, nonconvex.GAMMA, nonconvex.OMEGA) == pytest.approx((0.01, 0.65, 0.05))
    assert experiment.Size(50, 200, 10, 255, 0.3) == experiment.Size() == ou.FULL.printed
    assert Penalty(0.001, 1.0) == Penalty() and records.SMOOTHNESS == 5.03
    assert ou.DECAYS == (0, 0.5, 0.9, 0.95, 0.97, 0.98, 0.99) and experiment.DECAY == 0.95
    assert ou.SCALES == (0, 0.1, 0.3, 0.6, 1, 3, 5)
    assert ou.FULL.rounds == entry("ou_wang_liu_lu", "figure_3").whole("K") + 1


def test_ryu_kim():
    assert (power.BETA, power.DELTA, power.RHO, power.ROUNDS) == (0.01, 0.01, 100, 100)
    assert power.EPSILONS == learning.FULL.epsilons == (0.05, 0.1, 0.5, 1)
    assert (DELTA, learning.FULL.agents) == (1e-6, 10)
    assert dp.penalties.Growing(2, 5, 10_000) == MNIST_PENALTY
    assert dp.penalties.Growing(0.005, 0.05, 2000) == FEMNIST_PENALTY
    rule, growth = MNIST_PENALTY.resolved(0.5), entry("ryu_kim", "schedule")
    for t, power_of in ((1, 0), (25_000, 2), (10**7, 1000)):
        printed = 2 * growth.number("base") ** power_of + 5 / 0.5
        limited = min(growth.number("most"), printed)
        assert rule.next(t, None, 0.0, 0.0) == pytest.approx(limited)
    wide = blobs(20, 784, 10)
    assert (images.setting(wide, 10).box, images.setting(blobs(), 3).box) == (0.1, 1.0)
    notes = [method.note for method in learning.penalties(learning.SHORT, FEMNIST_PENALTY)]
    assert notes[:5] == [f"rho = {rho}" for rho in ("0.1", "1", "10", "(73)", "(73) / 100")]


def test_chan_xie_zhao():
    assert setting.PAIRS == ((0.25, 0.9), (0.09, 0.5), (0.0225, 0.3), (0.01, 0.15))
    assert setting.PRINTED[0] == (1.95, 0.95, 26) and setting.PRINTED[3] == (43.3, 0.8, 6)
    assert setting.SIGMAS == (0.05, 0.1, 0.2, 0.5, 0.7)
    assert (setting.C1, setting.C2, study.START) == (0.01, 0.1, 3)
    assert (chan.FULL.users, chan.FULL.iterations, chan.FULL.repetitions) == (1000, 100, 100)
    assert chan.FAINT == 0.01 and setting.Setting(mu=0.25).radius == 3
    made = users.made_users()
    assert (made.count, made.size, made.truth.max(), (made.truth > 0).sum()) == (1000, 64, 3, 12)
    large = np.abs(made.features[:, :12]).mean() / np.abs(made.features[:, 12:]).mean()
    assert large == pytest.approx(50, rel=0.05)  # 12,000 and 52,000 absolute normal variables
    noise = made.targets - made.features @ made.truth
    assert noise.std() == pytest.approx(0.01, rel=0.1)


def test_settings_are_printed_with_their_place_and_words():
    text = problems.papers.settings("ou_wang_liu_lu", "DPP2", "weights")
    assert "alpha = 0.1, beta = 0.05, rho = 10\n" in text
    assert 'section VI, Figures 1 and 2: "selected as alpha = 0.1' in text
    assert "choice: P = I - W" in text
    assert problems.papers.settings("ou_wang_liu_lu").count("section") > 10
    assert (Path(problems.papers.__file__).parent / "values.toml").exists()
