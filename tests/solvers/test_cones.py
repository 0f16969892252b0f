"""Projections onto cones, by Moreau's theorem: they are their own duals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcvx.model.canonical import Cones
from dpcvx.solvers.cones import ConeProjection, ConeTest


@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    nonneg=st.integers(0, 3),
    soc=st.lists(st.integers(1, 4), max_size=3),
    psd=st.lists(st.integers(1, 4), max_size=3),
)
def test_a_point_is_a_slack_less_a_dual_one_that_is_orthogonal(seed, scale, nonneg, soc, psd):
    cones = Cones(nonneg=nonneg, soc=tuple(soc), psd=tuple(psd))
    s = scale * np.random.default_rng(seed).normal(size=sum(rows for _, rows in cones.blocks()))
    kept, violation = ConeProjection(cones)(s), ConeTest(cones)
    assert violation(kept) <= 1e-14 * scale * (1 + s.size)
    assert violation(kept - s) <= 1e-14 * scale * (1 + s.size)
    assert abs(kept @ (kept - s)) <= 1e-14 * scale**2 * (1 + s.size)


@pytest.mark.parametrize(
    ("cones", "s", "outside"),
    [
        (Cones(zero=2), [0.5, -3.0], 3.0),
        (Cones(nonneg=2), [0.5, -3.0], 3.0),
        (Cones(soc=(2, 3)), [2.0, 1.0, 1.0, 3.0, 4.0], 4.0),
        (Cones(psd=(2,)), [1.0, 2 * np.sqrt(2.0), 1.0], 1.0),
    ],
    ids=str,
)
def test_violations_are_those_of_the_worst_cone(cones, s, outside):
    assert ConeTest(cones)(np.array(s)) == pytest.approx(outside)
    assert ConeTest(cones)(np.zeros(len(s))) == 0.0


def test_exponential_cones_have_no_simple_test():
    assert ConeTest(Cones(exp=1))(np.zeros(3)) is None
