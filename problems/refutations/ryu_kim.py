"""Ryu and Kim (2022): refutations of statements, with their hypotheses."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.privacy.accounting import Composition, classical_gaussian_multiplier, ryu_kim_claim

from . import Hypothesis, Refutation, close, less

# Adjacency beta and penalty of the power-flow study.
BETA, PENALTY = 0.01, 100.0
# Coefficient a of the objective (a z + d)^2.
SLOPE = 5.0


def theorem_4_9_fails(steps: int = 500, epsilon: float = 1.0, delta: float = 1e-6) -> Refutation:
    """Refute Theorem 4.9, which understates the total epsilon of many Gaussian releases.

    Parameters
    ----------
    steps : int
        Number of releases, T E.
    epsilon, delta : float
        Budget of every release.
    """
    multiplier = classical_gaussian_multiplier(epsilon, delta)
    total = Composition().with_gaussian(multiplier, steps).price(delta).epsilon
    claim = ryu_kim_claim(steps, epsilon, delta)
    log = math.log(1.25 / delta)
    return Refutation(
        f"Theorem 4.9 (T E = {steps} releases at ({epsilon:g}, {delta:g}))",
        (
            Hypothesis(f"epsilon of a release = {epsilon:g} <= 1 (Lemma 2.3)", epsilon <= 1),
            close("variance over Delta^2", multiplier**2, 2 * log / epsilon**2),
            less("(24e): T E epsilon^2 / (2 ln(1.25 / delta))", steps * epsilon**2 / (2 * log),
                 "epsilon'", claim),
        ),
        f"total epsilon at {delta:g} is at most",
        claim,
        f"total epsilon at {delta:g}, exact",
        total,
    )  # fmt: skip


def sensitivity_fails(slope: float = SLOPE, beta: float = BETA) -> Refutation:
    """Refute section 6.1: 2 beta as sensitivity of the gradient of ``(a z + d)^2``.

    Parameters
    ----------
    slope, beta : float
        Coefficient a, and largest change of d.
    """
    x = cp.Variable(name="x")
    load = dp.Private(3.0, name="load", adjacency=dp.Within(beta))
    zone = dp.Agent(cp.Minimize(cp.square(slope * x + load)), [cp.abs(x) <= 1], name="zone")
    plan = dp.Problem([zone]).plan(
        dp.LinearizedADMM(), mechanism=dp.Gaussian(noise_multiplier=1.0), rounds=1, delta=1e-2
    )
    return Refutation(
        f"Section 6.1, sensitivity 2 beta (objective (a z + d)^2, a = {slope:g})",
        (
            close("change of one load, beta", beta, 0.01),
            Hypothesis("the objective is a square of an affine function, as in (28)", slope != 0),
        ),
        "the gradient moves by at most",
        2 * beta,
        "the gradient moves by",
        float(plan.guarantee.agents[0].sensitivity),
        note="2 beta holds where every coefficient of a load's balance is at most 1 in size.",
    )


def output_sensitivity_fails(
    slope: float = SLOPE, beta: float = BETA, eta: float = 1.0
) -> Refutation:
    """Refute section 6.1: beta as sensitivity of a local step's result, for unshared variables.

    Parameters
    ----------
    slope, beta : float
        Coefficient a of the objective, and largest change of a load.
    eta : float
        Step size of round 1.
    """
    ends = [-eta * 2 * slope * load for load in (0.0, beta)]  # from 0, inside its set
    shared = 2 * slope * beta / (1 / eta + PENALTY)
    return Refutation(
        f"Section 6.1, sensitivity beta of the output (a = {slope:g}, a variable not shared)",
        (
            close("beta", beta, 0.01),
            close("eta of round 1", eta, 1.0),
            less("length of the step", max(map(abs, ends)), "half-width of its set", 1.0),
        ),
        "the result moves by at most",
        beta,
        "the result moves by",
        abs(ends[1] - ends[0]),
        note=f"Shared variables move by {shared:.1g} only, at rho = {PENALTY:g}: less than beta.",
    )


def flow_fails() -> Refutation:
    """Refute (71f) to (71i): the plus sign between products of real and imaginary parts."""
    y, start, end = 1 / (0.02 + 0.06j), 1.0 + 0.0j, 0.95 * np.exp(-0.1j)
    product = start * np.conj(end)
    exact = float((start * np.conj(y * (start - end))).real)
    first, across = np.conj(y) * abs(start) ** 2, -np.conj(y)
    plus, minus = (
        float(first.real + across.real * product.real + sign * across.imag * product.imag)
        for sign in (1, -1)
    )
    return Refutation(
        "(71f), the flow at the sending end of a line (voltages 1 and 0.95 at -0.1 rad)",
        (
            Hypothesis("the line has an impedance of 0.02 + 0.06j", bool(abs(y) > 0)),
            close("flow with a minus over flow from voltages", minus / exact, 1.0),
        ),
        "the flow is",
        plus,
        "the flow from voltages and currents is",
        exact,
        above=exact > plus,
        note="One sign is misprinted. The package and our runs have the minus.",
    )


def theorem_5_1_fails(agents: int = 20) -> Refutation:
    """Refute (25b) by ``x^2 / 2`` on [0, 1] for every agent: one step from 1, no noise.

    Parameters
    ----------
    agents : int
        Number of agents, P.
    """
    L, epsilon, width, rho = 1.0, 1.0, 1.0, 1e-6
    eta = 1 / (L + math.sqrt(1) / epsilon)
    w = z = 1.0  # all agents begin at 1 with multipliers 0, so the server's w is 1
    z = (z / eta + rho * w - z) / (1 / eta + rho)
    return Refutation(
        f"Theorem 5.1, (25b) (P = {agents} agents, x^2 / 2 on [0, 1], T = E = 1, gamma = 0)",
        (
            close("smoothness L", L, 1.0),
            close("largest diameter of one agent's set, U_2", width, 1.0),
            close("eta by (25a)", eta, 1 / (L + 1 / epsilon)),
            less("0", 0.0, "rho, constant", rho),
            Hypothesis("z stays in the set", 0 <= z <= width),
        ),
        "F(z) - F(z*) is at most",
        width**2 / (2 * epsilon) + width**2 * (rho + L) / 2,
        "F(z) - F(z*)",
        agents * z**2 / 2,
        note=(
            "The proof stacks all agents' z: with the diameter of the product of all sets, "
            f"{math.sqrt(agents) * width:.3g}, the bound is {agents * width**2:g} and holds. U_3 "
            "is 0, as no data differ."
        ),
    )


def all_of_them() -> tuple[Refutation, ...]:
    """Return the refutations of this paper."""
    return (
        theorem_4_9_fails(),
        sensitivity_fails(),
        output_sensitivity_fails(),
        flow_fails(),
        theorem_5_1_fails(),
    )
