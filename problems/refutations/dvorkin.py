"""Dvorkin et al. (2020, 2021): refutations of statements on private power flow."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from dpcvx.privacy.accounting import classical_gaussian_multiplier

from ..power_flow.case import read_case
from ..power_flow.published import CHANGE, bus_agents
from . import Hypothesis, Refutation, close, less

Floats = NDArray[np.float64]

# Feeder of three lines: resistances, prices at the buses (first the root), and upper limit of
# squared voltages. Power factors of loads and generators are 1.
RESISTANCE, PRICE, HIGHEST = (0.02, 0.1, 0.01), (20.0, 15.0, 5.5, 5.0), 1.21


def _chain(load: Floats) -> tuple[Floats, Floats]:
    """Return optimal generation and flows of the feeder, by model (1) of the 2021 paper."""
    below = np.triu(np.ones((3, 3)))
    path = below.T @ np.diag(RESISTANCE) @ below
    flow_zero = -np.ones((1, 3))  # the root does not take power
    limits = np.vstack([2 * path, -flow_zero])
    most = np.append(HIGHEST - 1 + 2 * path @ load, load.sum())
    solved = linprog(np.array(PRICE[1:]) - PRICE[0], limits, most, bounds=[(0, 10)] * 3)
    return solved.x, below @ (load - solved.x)


def lemma_2_fails(load: float = 1.02, beta: float = 0.01) -> Refutation:
    """Refute Lemma 2 (2021): no optimal flow changes by more than the changed load.

    Parameters
    ----------
    load : float
        Load of the first bus, in per unit; other buses have no load.
    beta : float
        Change of this load.
    """
    ends = [_chain(np.array([value, 0.0, 0.0])) for value in (load, load + beta)]
    path = np.cumsum(RESISTANCE)
    within = [
        1 + 2 * (np.minimum.outer(path, path) @ (power - [value, 0, 0])).max() <= HIGHEST + 1e-9
        for (power, _), value in zip(ends, (load, load + beta), strict=True)
    ]
    return Refutation(
        "Lemma 2 of 2021 (three lines, generators at all buses, power factor 1)",
        (
            Hypothesis("costs are linear, so (1) is convex", all(np.isfinite(PRICE))),
            close("one load differs by beta", (load + beta) - load, 0.01),
            Hypothesis("both dispatches keep all voltages", all(within)),
        ),
        "the flow on every line moves by at most",
        beta,
        "the flow on line 3 moves by",
        float(abs(ends[0][1][2] - ends[1][1][2])),
        note=(
            "A voltage limit binds. One more unit of load is served by the second bus, and to keep "
            "the voltage the third gives way. The proof takes every generator below a line to rise "
            "with the load."
        ),
    )


def theorem_2_fails(epsilon: float = 1.0, delta: float = 1 / 14, draws: int = 1000) -> Refutation:
    """Refute Theorem 2 (2021) for the whole solution: flows and dispatch reveal every load.

    Parameters
    ----------
    epsilon, delta : float
        Parameters of the paper's guarantee.
    draws : int
        Number of random solutions.
    """
    load = np.array([1.0, 0.5, 0.25])
    beta = CHANGE * load
    noise = classical_gaussian_multiplier(epsilon, delta) * beta
    rng = np.random.default_rng(0)
    told, balanced = 0, True
    for draw in range(draws):
        true = load + beta * [draw % 2, 0, 0]
        power, _ = _chain(true)
        random = noise * rng.normal(size=3)
        # The generator below a line adds its noise, and the generator above it subtracts it.
        power = power + random - np.append(random[1:], 0.0)
        flow = np.triu(np.ones((3, 3))) @ (true - power)
        balanced &= bool(np.allclose(flow - np.append(flow[1:], 0.0), true - power))
        read = flow[0] - flow[1] + power[0]
        told += abs(read - true[0]) < 1e-9
    return Refutation(
        f"Theorem 2 of 2021, for all of the solution ({draws} draws)",
        (
            Hypothesis(f"epsilon = {epsilon:g} <= 1", epsilon <= 1),
            close("standard deviation over beta, line 1", float(noise[0] / beta[0]),
                  math.sqrt(2 * math.log(1.25 / delta)) / epsilon),
            Hypothesis("every draw satisfies the balances (1c)", balanced),
            close("the load of bus 1 differs by its beta", float(beta[0]), CHANGE * load[0]),
        ),
        "an observer's advantage at telling the data sets apart is at most",
        (math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1),
        "advantage of an observer of two flows and a generator",
        told / draws,
        note=(
            "The proof bounds one flow at a time. A load is a flow in, less flows out, plus the "
            "generation of its bus, whatever the noise was."
        ),
    )  # fmt: skip


def pair_fails(bus: int = 14) -> Refutation:
    """Refute the sensitivity in the code of 2020, the change between one pair of solves.

    Parameters
    ----------
    bus : int
        Bus of case 14.
    """
    agents, row = bus_agents(read_case(14)), bus - 1
    load, stated = float(agents.load[row]), agents.pair_sensitivity(row)
    b = agents.coefficients[row]
    target = -(load + 1) * b / (b @ b)  # shed load would raise the cost
    (first, y), (second, z) = (
        agents.update(row, target, share * load, agents.most(row, share * load))
        for share in (1.0, 1.0 - CHANGE)
    )
    return Refutation(
        f"Sensitivity by one pair of solves, code of 2020 (bus {bus} of case 14)",
        (
            close("penalty", agents.penalty, 1e3),
            close("change of the load, alpha", CHANGE, 0.1),
            Hypothesis("shed load is between 0 and the load", 0 <= min(y, z) <= load),
            less("0", 0.0, "load in MW", load),
        ),
        "the angle at the bus moves by at most",
        float(stated[agents.neighbors[row] == row].item()),
        "the angle at the bus moves by",
        float(abs(first - second)[agents.neighbors[row] == row].item()),
        note=(
            "The pair is taken where consensus and multipliers are 0. There, less shed load makes "
            "up for a part of the change; in a round where no load is shed, angles take all of it."
        ),
    )


def all_of_them() -> tuple[Refutation, ...]:
    """Return the refutations of these papers."""
    return (lemma_2_fails(), theorem_2_fails(), pair_fails())
