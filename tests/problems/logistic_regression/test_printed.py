"""Figures 5 and 6 as printed: the iterations are the package's, the noise is what is stated."""

import json
import math
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import dpcvx as dp
from problems.logistic_regression import as_printed as command
from problems.logistic_regression.as_printed import as_json, curves, from_json, setting
from problems.logistic_regression.errors import DatasetError
from problems.logistic_regression.experiment import DELTA
from problems.logistic_regression.figures import as_printed
from problems.logistic_regression.kept import digest, traced
from problems.logistic_regression.made_up import main as make
from problems.logistic_regression.partition import Partition
from problems.logistic_regression.printed import Curve, Setting, measured, run, shares
from problems.logistic_regression.sensitivity import over_the_data, worst_case
from problems.logistic_regression.sources import read_dataset
from problems.logistic_regression.study import logistic_regression
from problems.provenance import commit
from tests.problems.logistic_regression.instances import blobs

BLOBS = blobs()
RULE = dp.penalties.Growing(0.5, 0.2, 3)


def small(seed=0, dataset=BLOBS):
    return Setting(dataset, Partition("iid", 3).of(dataset), 0.5, RULE, seed)


@pytest.mark.parametrize("curve", [Curve("ObjG", None, 3), Curve("OutG", None, 2)], ids=str)
def test_without_noise_the_iterations_are_the_packages(curve):
    own = small()
    study = logistic_regression(BLOBS, own.parts, box=0.5)
    exact, n = curve.noise == "ObjG", study.W.size
    method = dp.LinearizedADMM(
        penalty=dp.penalties.Growing(0.5, 0.2, 3, 1.0),
        step=dp.steps.Sqrt() if exact else dp.steps.Constant(1 / n),
        local_updates=curve.updates,
        perturb="objective" if exact else "output",
        returned="last",
    )
    plan = study.problem.plan(method, mechanism=None, rounds=8)
    result = plan.run(iterates=True, verbose=False)
    for iterate, state in zip(result.iterates, run(own, curve, 8), strict=True):
        for agent, last in zip(iterate.last.vectors, state.last, strict=True):
            np.testing.assert_allclose(agent, last.ravel(order="F"), atol=1e-12)


def test_the_scale_of_the_noise_is_measured_on_the_records():
    own = small()
    rng = np.random.default_rng(0)
    for share in shares(own):
        W, records = rng.normal(size=(6, 3)), share.records
        gradient, change = measured(share, W, own.total)
        hot = BLOBS.one_hot(records.labels)
        assert change == pytest.approx(over_the_data(records, hot, W, own.total + 1))
        # Which is less than one record can do.
        assert change < worst_case(BLOBS, own.total, 2)
        step = 1e-6 * rng.normal(size=W.shape)

        def cost(at, X=records.features, Y=hot):
            scores = X @ at
            return (np.log(np.exp(scores).sum(axis=1)) - (Y * scores).sum(axis=1)).sum()

        slope = (cost(W + step) - cost(W - step)) / 2 / own.total
        assert slope == pytest.approx((gradient * step).sum(), rel=1e-6)


@pytest.mark.parametrize("noise", ["ObjG", "OutG"])
def test_noise_has_the_size_that_is_printed(noise):
    """Magnitude (32) of first rounds, 400 seeds of 18 entries each: within 5 % of its mean."""
    own, curve = small(), Curve(noise, 0.5, 1)
    changes = [measured(share, np.zeros((6, 3)), own.total)[1] for share in shares(own)]
    expected = math.sqrt(2 / math.pi) * curve.multiplier * sum(changes)
    if noise == "OutG":
        expected *= 2 / (0.5 + 0.2 / 0.5 + 18)
    found = [next(run(small(seed), curve, 1)).magnitude for seed in range(400)]
    assert np.mean(found) == pytest.approx(expected, rel=0.05)
    assert curve.multiplier == pytest.approx(math.sqrt(2 * math.log(1.25 / DELTA)) / 0.5)


def test_trends_and_totals_are_those_of_the_figures(tmp_path):
    """On digits, 100 rounds, one seed: budgets and local updates help, and ObjG beats OutG."""
    own = setting(read_dataset())
    found = {curve: traced(own, curve, 100) for curve in curves([0.05, 1.0], [1, 5])}
    last = {(c.noise, c.epsilon, c.updates): t.cost[-1] for c, t in found.items()}
    for e in (1, 5):
        assert last["ObjG", 1.0, e] < last["ObjG", 0.05, e] < last["OutG", 0.05, e]
        assert last["ObjG", 1.0, e] < last["OutG", 1.0, e]
    for epsilon in (0.05, 1.0):
        for noise in ("ObjG", "OutG"):
            assert last[noise, epsilon, 5] < last[noise, epsilon, 1]
    errors = {(c.noise, c.epsilon, c.updates): t.error[-1] for c, t in found.items()}
    assert errors["ObjG", 1.0, 5] < 0.2
    assert errors["ObjG", 0.05, 5] < 0.5 < errors["OutG", 0.05, 1]
    # "The noise magnitude for ObjG is greater": by (rho + n) / 2.
    loud = {(c.noise, c.updates): t.magnitude for c, t in found.items() if c.epsilon == 0.05}
    assert (loud["ObjG", 1] > 100 * loud["OutG", 1]).all()
    claimed, composed = Curve("ObjG", 1.0, 5).totals(100)
    assert claimed == pytest.approx(math.sqrt(500 * math.log(1e6) / math.log(1.25e6)))
    # Theorem 4.9 understates it.
    assert composed > 1.2 * claimed
    assert Curve("ObjG", None, 5).totals(100) == (math.inf, math.inf)
    as_printed(found, "digits").savefig(tmp_path / "figure.png")
    text = command.table(own, found)
    assert "NO GUARANTEE" in text and f"{composed:.3g}" in text


def same(one, other):
    for name in ("rounds", "magnitude", "cost", "error"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_runs_go_on_where_they_were(tmp_path):
    own, curve = small(), Curve("ObjG", 0.5, 2)
    first = traced(own, curve, 33, tmp_path)
    same(first, traced(own, curve, 33))
    whole = traced(own, curve, 60)
    same(whole, traced(own, curve, 60, tmp_path))
    # What is there already is not run again, nor shown where it was not asked for.
    same(first, traced(own, curve, 33))
    assert whole.rounds.tolist() == [1, 2, 5, 10, 15, 20, 25, 50, 60]
    same(traced(own, curve, 50), traced(own, curve, 50, tmp_path))


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    """Killed as soon as its first file is there, which it writes anew in every 25th round."""
    np.savez(
        tmp_path / "blobs.npz", features=BLOBS.train.features, labels=BLOBS.train.labels,
        classes=3, scale=1,
    )  # fmt: skip
    keep = tmp_path / "kept"
    arguments = ["--data", str(tmp_path / "blobs.npz"), "--epsilon", "0.5", "--updates", "1"]
    module = [sys.executable, "-m", command.__name__, "--rounds", "1000000"]
    killed = subprocess.Popen([*module, *arguments, "--keep", keep])
    try:
        while not (keep / "ObjG_0.5_1.npz").exists():
            assert killed.poll() is None
            time.sleep(0.005)
    finally:
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
    arguments += ["--rounds", "300"]
    found = command.main([*arguments, "--keep", str(keep)])
    whole = command.main(arguments)
    assert list(found) == list(whole) == curves([0.5], [1])
    for curve, trace in whole.items():
        assert trace.rounds[-1] == 300
        same(trace, found[curve])
    stored = json.loads((keep / "as_printed.json").read_text())
    assert stored["command"].startswith(f"python -m {command.__name__} --data ")
    assert stored["commit"] == commit() and stored["versions"]["dpcvx"] == dp.__version__
    for curve, trace in from_json(stored).items():
        np.testing.assert_allclose(trace.cost, whole[curve].cost, atol=1e-6)
        assert trace.rounds.tolist() == whole[curve].rounds.tolist()


def test_files_of_another_run_are_refused(tmp_path):
    curve = Curve("ObjG", 0.5, 1)
    traced(small(), curve, 3, tmp_path)
    other = blobs(seed=1)
    assert digest(small()) != digest(small(dataset=other))
    for own in (small(seed=1), small(dataset=other)):
        with pytest.raises(DatasetError, match="is of a run on other records"):
            traced(own, curve, 5, tmp_path)


def test_totals_are_stored_with_the_curves():
    own = small()
    found = {curve: traced(own, curve, 3) for curve in curves([0.5], [2])}
    noisy, *_, exact = as_json(own, found, "as written")["curves"]
    assert noisy["totals"] == Curve("ObjG", 0.5, 2).totals(3)
    assert exact["totals"] is None and exact["epsilon"] is None


def test_made_up_images_are_read_as_mnist_is(tmp_path, capsys):
    make([str(tmp_path), "--train", "300", "--test", "60"])
    assert "wrote 300 and 60 images" in capsys.readouterr().out
    assert (tmp_path / "train-labels-idx1-ubyte").read_bytes()[:8] == b"\0\0\x08\x01\0\0\x01\x2c"
    dataset = read_dataset(tmp_path)
    assert (dataset.features, dataset.classes, dataset.test.count) == (784, 10, 60)
    assert set(dataset.train.labels) == set(range(10))
    # Ink in the middle, as in MNIST, where a fifth of the pixels has any.
    assert 0.1 < (dataset.train.features > 0.1).mean() < 0.4
    own = setting(dataset)
    assert (own.box, len(own.parts)) == (0.1, 10)
