"""Figures are drawn and labeled; totals stand beside the curves."""

import numpy as np
import pytest

from problems.nonconvex_classification import figures
from problems.nonconvex_classification.experiment import Damping, Eavesdropping, Trace
from problems.nonconvex_classification.methods import EPSILONS, METHODS

RNG = np.random.default_rng(0)


def trace(epsilon, delta=0.0):
    return Trace(epsilon, delta, RNG.uniform(0.1, 1, size=6))


def texts(figure):
    parts = [figure.get_suptitle()]
    for axes in figure.axes:
        parts += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
        parts += [text.get_text() for text in axes.texts]
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        parts += [] if legend is None else [text.get_text() for text in legend.get_texts()]
    return " ".join(parts)


@pytest.mark.parametrize(
    ("epsilon", "words"),
    [
        (np.inf, "no noise, no guarantee"),
        (1.234, "epsilon = 1.23"),
        (2e13, "epsilon = 2e+13: no protection"),
    ],
)
def test_totals_say_what_they_are_worth(epsilon, words):
    assert figures.total(epsilon) == words


def test_every_curve_has_its_total_in_the_legend(tmp_path):
    curves = {"one": {"r = 0": trace(np.inf), "r = 0.9": trace(0.5)}, "two": {"u = 3": trace(1e6)}}
    figure = figures.rounds(curves, "made up")
    shown = texts(figure)
    for part in (
        "made up", "not private", "r = 0 (no noise, no guarantee)", "r = 0.9 (epsilon = 0.5)",
        "u = 3 (epsilon = 1e+06: no protection)",
    ):  # fmt: skip
        assert part in shown
    for axes, traces in zip(figure.axes, curves.values(), strict=True):
        assert axes.get_yscale() == "log"
        for line, own in zip(axes.lines, traces.values(), strict=True):
            np.testing.assert_array_equal(line.get_ydata(), own.gap)
    figure.savefig(tmp_path / "figure.png")


def test_methods_are_compared_by_epsilon_with_bars_over_the_seeds(tmp_path):
    found = {m: {e: [trace(e, m.delta) for _ in range(3)] for e in EPSILONS} for m in METHODS}
    figure = figures.contests(found, 0.5, 0.01, "made up")
    (axes,) = figure.axes
    shown = texts(figure)
    for part in (
        "not private",
        "no protection",
        "no data: the public start",
        "no noise",
        "(epsilon, 1e-06)-DP",
        "weaker",
    ):
        assert part in shown
    assert axes.get_xscale() == axes.get_yscale() == "log"
    looks = set()
    for box, (method, own) in zip(axes.containers, found.items(), strict=True):
        assert box.get_label() == method.name and method.name in shown
        points, _, bars = box
        ends = [[t.end for t in traces] for traces in own.values()]
        np.testing.assert_allclose(points.get_ydata(), np.mean(ends, axis=1))
        drawn = np.array([line[:, 1] for line in bars[0].get_segments()])
        np.testing.assert_allclose(drawn, [[min(e), max(e)] for e in ends])
        # Beside its epsilon, nearer to it than to any other.
        assert np.abs(np.log10(points.get_xdata() / np.array(EPSILONS))).max() < 0.15
        looks.add((points.get_color(), points.get_linestyle()))
        assert (points.get_markerfacecolor() == "white") == method.gaussian
    assert len(looks) == len(METHODS)
    figure.savefig(tmp_path / "figure.png")


def test_small_totals_have_no_shade():
    found = {METHODS[0]: {0.1: [trace(0.1)], 1.0: [trace(1.0)]}}
    assert "no protection" not in texts(figures.contests(found, 0.5, 0.01, ""))


def test_what_is_recovered_is_drawn_beside_what_was_merged(tmp_path):
    values = RNG.uniform(0.1, 1, size=(3, 8))
    left = np.full(8, 3e-16)
    figure = figures.messages(Eavesdropping(values[0], left, *values[1:]), "made up")
    lines = figure.axes[0].lines
    assert len(lines) == 3 and "made up" in texts(figure)
    np.testing.assert_array_equal(lines[0].get_ydata(), values[0])
    # Nothing is left: said, for a line of it would leave no room for the others.
    assert "at most 3e-16 is left" in texts(figure)
    low, high = figure.axes[0].get_ylim()
    assert high / low < 1e3
    figure.savefig(tmp_path / "figure.png")


def test_damping_is_drawn_beside_the_printed_method(tmp_path):
    gaps = np.array([2.0 ** np.arange(9), 0.5 ** np.arange(9)])
    figure = figures.damping(Damping({}, (0.0, 5.0), gaps))
    shown = texts(figure)
    assert "as printed" in shown and "damping = 5" in shown and "no guarantee" in shown
    for line, own in zip(figure.axes[0].lines, gaps, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), own)
    figure.savefig(tmp_path / "figure.png")
