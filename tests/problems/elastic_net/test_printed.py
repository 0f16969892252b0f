"""The paper's corollaries as printed: which are bounds, and by how much the others fall short."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp

import dpcvx as dp
from dpcvx.privacy.last_iterate import Mixture, permuted
from dpcvx.privacy.two_block import TwoBlock, refusal
from problems.elastic_net.printed import corollary_6_2, corollary_7_3, corollary_8_3, largest_order
from tests.privacy.two_blocks import (
    Instance,
    convex,
    random_instances,
    renyi,
    seeds,
    strongly_convex,
    table_1,
)


def test_golden_values():
    """By hand for Table 1's third row: eta = 20, h = 6, R = 19/90, L = 6/7."""
    block = table_1(0.0225, 0.3)
    assert corollary_6_2(block, 0.1, 0.7, 9) == pytest.approx(2 * 7 / 4 * 400 * 0.01 / (2 * 0.49))
    printed = 180 / 19 * (19 / 90 + 6) * (6 / 7) ** 7 / 4 * 400 * 0.01 / (2 * 0.49)
    assert corollary_7_3(block, 0.1, 0.7, 9) == pytest.approx(printed)


@random_instances
@given(seeds, st.integers(2, 40))
def test_corollary_6_2_is_a_bound(seed, after):
    instance = Instance(seed, strong=False, iterations=after + 1)
    if instance.reduced:
        exact = instance.loss({0}) / (1 + 1e-7)
        assert exact <= corollary_6_2(instance.block, 1.0, 1.0, after)


@random_instances
@given(seeds, st.integers(1, 100))
def test_sharper_than_the_paper_and_than_its_corrected_figure(seed, pairs):
    instance = Instance(seed, strong=True)
    block = replace(instance.block, A_least=1.0, A_norm=1 + instance.rng.exponential())
    assert convex(block, 1.0, 1.0, 2 * pairs) <= corollary_6_2(block, 1.0, 1.0, 2 * pairs)
    if refusal(block) is None:
        L = block.contraction
        missing = pairs * (1 - L**2) / (1 - L ** (2 * pairs))
        assert missing >= 1 - 1e-9
        printed = corollary_7_3(block, 1.0, 1.0, 2 * pairs)
        found = strongly_convex(block, 1.0, 1.0, 2 * pairs)
        assert found <= max(printed * missing, 1e-280) * (1 + 1e-9)


def test_what_theorem_7_2_lacks():
    L = table_1(0.25, 0.9).contraction
    assert 500 * (1 - L**2) / (1 - L**1000) == pytest.approx(51.25, abs=0.01)
    # Theorem 5.2 with the square in place of the contraction, on x <- x / 2 + N(0, 1) twice.
    exact, one = (1 / 4) ** 2 / (2 * (1 + 1 / 4)), (1 / 2) ** 2 / 2
    assert one * (1 / 4) ** (2 - 1) / 2 == 1 / 64 < exact == 1 / 40
    assert exact <= one * (1 / 2) ** (2 - 1) / 2
    assert exact == pytest.approx(one / (1 + 4))


def test_corollary_8_3_refuses_orders_outside_its_condition():
    block = TwoBlock(nu=1.0, beta=10.0, eta=1.0)
    found = permuted(block, 1.0, 1.0, users=10)
    largest = largest_order(found)
    assert largest * (largest - 1) * found.rho.max() == pytest.approx(1)
    assert corollary_8_3(found, [largest * 0.999])
    with pytest.raises(dp.PrivacyError, match=r"alpha <= 2 here.*nothing at alpha = 3, 9\."):
        corollary_8_3(found, [1.5, 3.0, 9.0])


def mixture_renyi(rho, weight, alpha):
    """Divergence of two mixtures of Gaussians whose means differ by sqrt(2 rho)."""
    places, shifts = 0.7 * np.arange(len(rho)), np.sqrt(2 * np.asarray(rho))

    def log_density(x, means):
        return logsumexp(-((x - means) ** 2) / 2, b=weight) - math.log(2 * math.pi) / 2

    def integrand(x):
        p, q = log_density(x, places + shifts), log_density(x, places)
        return math.exp(alpha * p + (1 - alpha) * q)

    return math.log(quad(integrand, -10, 20, limit=200)[0]) / (alpha - 1)


@pytest.mark.parametrize("alpha", [1.5, 3.0, 8.0])
def test_renyi_divergences_of_mixtures(alpha):
    rho, weight = np.array([0.001, 0.004, 0.015]), np.array([0.5, 0.3, 0.2])
    mixture = Mixture(rho, weight, "test")
    known = renyi(mixture, alpha)
    assert mixture_renyi(rho, weight, alpha) <= known
    paper = corollary_8_3(mixture, [alpha])[alpha]
    mean = alpha * (weight @ rho)
    assert mean <= known <= (math.e - 1) * mean < paper == pytest.approx(2 * mean)
