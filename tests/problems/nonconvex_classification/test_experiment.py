"""Runs of the study: their totals, what is recovered from messages, what damping does."""

import numpy as np
import pytest

from problems.nonconvex_classification.experiment import (
    ALPHA,
    Contest,
    Curve,
    Size,
    Trace,
    damping_of,
    eavesdrop,
    run_one,
    setting,
    spread,
    violated,
)
from problems.nonconvex_classification.methods import METHODS, Choice

SIZE = Size(5, 20, 3, None, 0.9)


def test_the_network_is_the_same_for_all_seeds_and_the_records_are_not():
    one, other = setting(SIZE, 0), setting(SIZE, 1)
    assert one.network.edges == other.network.edges
    assert one.study.bound == pytest.approx(other.study.bound)
    first, second = (own.measures.parts[0].features for own in (one, other))
    assert not np.array_equal(first, second)
    assert len(setting(Size(), 0).network.edges) == 255


def test_curves_have_the_total_of_the_papers_scales_but_for_the_first_rounds():
    """In each round the losses of a vector are at least those of scales u r^k, and alike later."""
    study = setting(SIZE, 0).study
    for curve in (Curve(0.9, 1.0, 20), Curve(0.5, 3.0, 20)):
        trace = curve.run(SIZE, 0)
        claimed, corrected = curve.epsilons(study)
        assert trace.delta == 0 and corrected <= trace.epsilon < 1.05 * corrected
        # Every release at the price of the last one, but for the public point.
        unit = np.sqrt(3) * study.sensitivity / (1 - ALPHA * study.smoothness) / curve.scale
        powers = curve.decay ** -np.arange(20.0)
        assert trace.epsilon == pytest.approx(unit * (powers.sum() + ALPHA * powers[1:].sum()))
        # What is left out and what is dropped are about as much here.
        assert claimed != corrected and claimed == pytest.approx(corrected, rel=0.1)


def test_no_noise_has_no_total():
    for curve in (Curve(0.0, 1.0, 3), Curve(0.9, 0.0, 3)):
        trace = curve.run(SIZE, 0)
        assert curve.silent and trace.epsilon == np.inf == curve.epsilons(setting(SIZE, 0).study)[1]
        assert curve.mechanism(setting(SIZE, 0).study) is None


def test_gaps_are_those_of_the_start_and_of_every_round():
    own = setting(SIZE, 0)
    trace = run_one((Curve(0.0, 0.0, 80), SIZE, 0))
    assert trace.gap.shape == (81,) and trace.end == trace.gap[-1]
    assert trace.gap[0] == pytest.approx(own.measures.gap(np.zeros((5, 3))))
    assert trace.gap[1] == pytest.approx(trace.gap[0])  # the first point is the start
    assert trace.end < 0.1 * trace.gap[0]


def test_more_noise_leaves_a_larger_gap():
    ends = [Curve(0.8, scale, 40).run(SIZE, 0).end for scale in (0.0, 1.0, 5.0)]
    assert ends == sorted(ends) and ends[2] > 1.5 * ends[0]


@pytest.mark.parametrize("report", ["last", "average"])
def test_contests_report_what_the_choice_says(report):
    method, epsilon = METHODS[4], 1e9  # so that the noise, which depends on the plan, is small
    trace = Contest(method, Choice(0.05, 6, 0.9, report=report), epsilon).run(SIZE, 2)
    assert trace.epsilon == pytest.approx(epsilon) and trace.delta == 0
    other = Contest(method, Choice(0.05, 6, 0.9), epsilon).run(SIZE, 2)
    # After the first round the mean is the last one.
    assert trace.gap[1] == pytest.approx(other.gap[1], rel=1e-4)
    assert (trace.end == pytest.approx(other.end, rel=1e-4)) == (report == "last")


@pytest.mark.parametrize("eta", [0.2, 0.8])
def test_x_and_its_noise_follow_from_messages_whatever_eta(eta):
    curve = Curve(0.5, 1.0, 30)
    found = eavesdrop(curve, SIZE, 0, eta)
    assert found.recovered.max() < 1e-11 * found.merged.max()
    # Merging adds (1 - eta) times the sum of all points; the first one is public.
    assert found.merged[0] == 0 and (found.merged[2:] > 0.01).all()
    # Laplace noise on 15 entries; that of later rounds is no larger than the grid.
    k = np.arange(2, 20)
    ratios = found.noise[2:20] / (np.sqrt(2) * 0.5**k)
    assert found.noise[0] == 0 and (0.2 < ratios).all() and (ratios < 5).all()
    assert np.exp(np.log(ratios).mean()) == pytest.approx(1, abs=0.3)
    # So x itself is known in the end.
    assert found.noise[-1] < 1e-5 * found.length[-1]


def test_disagreement_is_not_damped_without_curvature_but_with_damping():
    found = damping_of(SIZE, 250)
    curvatures = sorted({h for h, _ in found.rates})
    assert curvatures[:2] == [-0.0005, 0.0] and curvatures[2] == pytest.approx(5.03)
    assert found.rates[0.0, 0.0] >= 1 - 1e-12 and found.rates[-0.0005, 0.0] > 1
    assert found.rates[curvatures[2], 0.0] < 1
    assert all(found.rates[h, 5.0] < 1 for h in curvatures)
    printed, damped = found.gaps
    assert printed.shape == (251,)
    assert printed[-1] > 10 * printed[0] and damped[-1] < 1e-4 * damped[0]


def test_the_papers_parameters_violate_its_conditions():
    words = " ".join(violated(setting(Size(), 0)))
    for condition in ("(25)", "(26)", "(27)"):
        assert condition in words
    # That there is one at all needs P = I - W: a Laplacian would have no positive definite G.
    assert "(15)" not in words


def test_bars_hold_all_runs():
    traces = [Trace(1.0, 0.0, np.array([9.0, end])) for end in (1.0, 2.0, 6.0)]
    assert spread(traces) == (3.0, 1.0, 6.0)
