"""Figures are drawn and labeled; ex-post losses and worst cases are kept apart."""

import numpy as np
import pytest

from problems.census import figures
from problems.census.amplifications import surface
from problems.census.experiment import Trace, Traces
from problems.census.exposure import Exposure
from problems.census.methods import METHODS, NOISELESS, Budget
from problems.census.study import census

ROUNDS = 6
BUDGET = Budget.of(1.0, ROUNDS)
FALLING = Budget.of(1.0, ROUNDS, "Gaussian", 0.9)


def made(methods, budget):
    rng = np.random.default_rng(0)
    study, found = census(3, 5, 14), []
    for method in methods:
        guarantee = method.plan(study, 3, 0, ROUNDS, budget).guarantee
        runs = []
        for _ in range(3):
            values = rng.uniform(0.1, 1, size=(ROUNDS + 1, 3))
            shown = None
            if budget is not None and method.measured:
                some = rng.uniform(0.3, 1, size=ROUNDS)
                shown = Exposure(some, np.array([1, 6]), some[[0, -1]])
            runs.append(Trace(guarantee, values, values[:, 0], 0.5, shown))
        found.append(Traces(method, tuple(runs)))
    return found


@pytest.fixture(scope="module")
def noisy():
    return made(METHODS, BUDGET)


def texts(figure):
    parts = [figure.get_suptitle()]
    for axes in figure.axes:
        parts += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        parts += [] if legend is None else [text.get_text() for text in legend.get_texts()]
    return " ".join(parts)


def test_every_curve_stands_beside_its_total(noisy, tmp_path):
    figure = figures.comparison({"one": noisy}, "made up")
    assert len(figure.axes) == 2
    shown = texts(figure)
    for part in ("made up", "not private", "every curve: (1, 1e-06)-DP in total"):
        assert part in shown
    for method in METHODS:
        assert method.name in shown
    assert "post" not in shown and "gamma" not in shown
    figure.savefig(tmp_path / "figure.png")


def test_bands_hold_all_runs(noisy):
    top = figures.comparison({"one": noisy}, "made up").axes[0]
    assert len(top.lines) == len(top.collections) == len(METHODS)
    np.testing.assert_allclose(top.lines[0].get_ydata(), noisy[0].distances.mean(axis=0))
    box = top.collections[0].get_paths()[0].vertices[:, 1]
    assert box.min() == pytest.approx(noisy[0].distances.min())
    assert box.max() == pytest.approx(noisy[0].distances.max())


def test_runs_without_noise_stand_beside_those_with_it(noisy):
    silent = made(NOISELESS[:1], None)[0]
    name = silent.method.name
    figure = figures.comparison({"one": noisy}, "made up", {"one": silent})
    for axes, values in zip(figure.axes, (silent.distances, silent.gaps), strict=True):
        (line,) = [line for line in axes.lines if line.get_label() == f"{name}, no noise"]
        np.testing.assert_allclose(line.get_ydata(), values.mean(axis=0))
    figure = figures.noises([(BUDGET, noisy)], "made up", silent)
    for axes, values in zip(figure.axes, (silent.gaps[:, -1], silent.averages), strict=True):
        (line,) = [line for line in axes.lines if line.get_label() == f"no noise: {name}"]
        np.testing.assert_allclose(line.get_xdata(), values.mean())


def test_kinds_of_noise_stand_beside_each_other_at_one_total(noisy, tmp_path):
    other = made(METHODS, FALLING)
    figure = figures.noises([(BUDGET, noisy), (FALLING, other)], "made up")
    left, right = figure.axes
    shown = texts(figure)
    for part in ("Laplace, constant", "Gaussian, falling by 1.11", "(1, 1e-06)-DP", "not private"):
        assert part in shown
    names = [label.get_text() for label in left.get_yticklabels()]
    assert names == [method.name for method in METHODS]
    for axes, of in ((left, lambda t: t.gaps[:, -1]), (right, lambda t: t.averages)):
        for box, found in zip(axes.containers, (noisy, other), strict=True):
            points, _, bars = box
            np.testing.assert_allclose(points.get_xdata(), [of(t).mean() for t in found])
            ends = np.array([line[:, 0] for line in bars[0].get_segments()])
            np.testing.assert_allclose(ends, [[of(t).min(), of(t).max()] for t in found])
    # No method's points reach into the next one's row.
    offsets = [box[0].get_ydata() - np.arange(len(METHODS)) for box in left.containers]
    assert np.abs(offsets).max() < 0.5 and (offsets[0] < offsets[1]).all()
    figure.savefig(tmp_path / "figure.png")


def test_every_method_of_a_figure_looks_different(noisy):
    silent = made(NOISELESS, None)
    admm = [own for own in noisy if own.method.rule == "admm"]
    others = [own for own in noisy if own.method.rule != "admm"]
    for drawn in (
        figures.comparison({"one": admm}, ""),
        figures.comparison({"one": others}, ""),
        figures.noiseless({"one": silent}, ""),
    ):
        lines = drawn.axes[0].lines
        looks = {(line.get_color(), line.get_linestyle()) for line in lines}
        assert len(looks) == len(lines) == len({line.get_label() for line in lines})


def test_ex_post_losses_have_a_figure_that_says_what_they_are_not(noisy, tmp_path):
    figure = figures.exposures({"one": noisy}, "made up")
    shown = texts(figure)
    assert "NO GUARANTEE" in shown and "worst" not in shown and "DP" not in shown
    assert "Algorithm 2*, expected" in shown
    for name in ("fixed weights", "exact", "Appendix J"):
        assert name not in shown
    figure.savefig(tmp_path / "figure.png")


def test_figure_1_marks_where_the_claim_is_too_small(tmp_path):
    found = surface(8)
    assert found.exact.shape == (8, 8)
    # Small where intervals are long and noise is weak; there alone the claim is not too small.
    assert found.exact[0, 0] == found.exact.max() and found.exact[-1, -1] == found.exact.min()
    assert 0.5 < found.short.mean() < 1 and found.short[0, 0] and not found.short[-1, -1]
    figure = figures.surfaces(found)
    for part in (
        "exact gamma",
        "what the paper's (11) claims",
        "too small",
        "claim smaller",
        "NO GUARANTEE",
    ):
        assert part in texts(figure)
    figure.savefig(tmp_path / "figure.png")


def test_figure_d_has_no_guarantee(tmp_path):
    figure = figures.noiseless({"one": made(NOISELESS, None)}, "made up")
    assert "no guarantee" in texts(figure) and len(figure.axes[0].lines) == len(NOISELESS)
    figure.savefig(tmp_path / "figure.png")
