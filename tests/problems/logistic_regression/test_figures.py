"""Figures are drawn, labeled, and say that they are not private."""

import numpy as np
import pytest

from problems.logistic_regression import figures
from problems.logistic_regression.experiment import Method, run
from problems.logistic_regression.partition import Partition
from problems.logistic_regression.study import logistic_regression
from tests.problems.logistic_regression.instances import blobs


@pytest.fixture(scope="module")
def traces():
    dataset = blobs()
    study = logistic_regression(dataset, Partition("iid", 2).of(dataset))
    methods = [Method(noise, 4, e, 0.5) for noise in ("ObjG", "OutG, paper") for e in (1, 2)]
    return [run(study, method, [0, 1]) for method in [*methods, Method("ObjG", 4, 2)]]


def texts(figure):
    return " ".join(
        [figure.get_suptitle()]
        + [a.get_title() + a.get_xlabel() + a.get_ylabel() for a in figure.axes]
        + [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    )


def test_the_papers_figure(traces, tmp_path):
    figure = figures.comparison({0.5: traces}, "made up")
    assert len(figure.axes) == 3
    spent = traces[1][0].guarantee.epsilon
    for part in ("not private", "made up", f"{spent:.3g} (E = 2)", "OutG, paper, E = 1",
                 "no noise, E = 2", "test error", "cost", "noise (32)"):  # fmt: skip
        assert part in texts(figure)
    # Medians of five methods, with bands between quartiles; no noise line without noise.
    assert [len(axes.lines) for axes in figure.axes] == [4, 5, 5]
    assert [len(axes.collections) for axes in figure.axes] == [0, 5, 5]
    figure.savefig(tmp_path / "figure.png")


def test_divisions(traces, tmp_path):
    figure = figures.divisions({"iid": traces[::2], "dirichlet": traces[::2]}, "made up")
    assert [len(axes.lines) for axes in figure.axes] == [3] * 4
    for part in ("not private", "dirichlet", "no noise"):
        assert part in texts(figure)
    figure.savefig(tmp_path / "figure.png")


def test_alternatives(traces, tmp_path):
    figure = figures.alternatives(traces, traces[-1], 0.9, "made up")
    (axes,) = figure.axes
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert labels == [str(t.method) for t, _ in traces]
    exact, guessing = axes.lines[-2:]
    assert exact.get_xdata()[0] == np.median([t.last.error for t in traces[-1]])
    assert guessing.get_xdata()[0] == 0.9 and "no data" in texts(figure)
    assert "not private" in texts(figure)
    figure.savefig(tmp_path / "figure.png")
