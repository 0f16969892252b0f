"""Private optimal power flow as published by Dvorkin and others, compared with dpcvx.

The mechanisms of two papers serve as comparators; dpcvx states no guarantee for them:

* Dvorkin, Fioretto, Van Hentenryck, Pinson, Kazempour (IEEE Transactions on Power Systems, 2021):
  a feeder with generators that respond to Gaussian noise by affine policies (`affine_policies`);
* Dvorkin, Van Hentenryck, Kazempour, Pinson (CDC 2020): consensus ADMM with an agent at every bus
  and Laplace noise that is drawn once (`BusAgents`).

::

    python -m problems.power_flow.published --feeder DP_CC_OPF/testcase/feeder15 --seeds 20
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

import dpcvx as dp
from dpcvx.privacy.accounting import (
    classical_gaussian_multiplier,
    gaussian_epsilon,
)

from ..commands import count, in_words
from ..files import content
from .case import Case, read_case
from .errors import CaseError
from .physics import incidence

Floats = NDArray[np.float64]

# Constants of the first paper's code: protected change of a load as a share of it; reactive power
# per active power of a generator; probabilities of violating limits of generation, voltage and
# flow; share of worst costs that CVaR averages.
CHANGE, REACTIVE, BROKEN, WORST = 0.1, 0.5, (0.01, 0.02, 0.10), 0.1
# Polygon with 12 sides inside the circle of apparent power: ``a p + b q <= c s``.
_SIDES = (
    (1.0, 0.2679, 1.0),
    (1.0, 1.0, 1.366),
    (0.2679, 1.0, 1.0),
    (-0.2679, 1.0, 1.0),
    (-1.0, 1.0, 1.366),
    (-1.0, 0.2679, 1.0),
)


# -- the feeder ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Feeder:
    """A radial network with a generator at every bus; row k of an array is bus k + 1.

    Attributes
    ----------
    active, reactive : ndarray, shape (buses,)
        Loads in MW and MVAr; the root has none.
    root : tuple of float
        Price of power at the root, and its largest active and reactive power.
    price, power, most_reactive : ndarray, shape (buses,)
        Generators' prices in $/MWh, and limits in MW and MVAr.
    rating : ndarray, shape (buses,)
        Rating of the line into each bus, in MVA.
    lowest, highest : ndarray, shape (buses,)
        Bounds on squared voltages.
    below : ndarray, shape (buses, buses)
        1 if the line into the first bus feeds the second bus, else 0.
    resistance, reactance : ndarray, shape (buses, buses)
        Resistance and reactance of the path that two buses share.
    """

    active: Floats
    reactive: Floats
    root: tuple[float, float, float]
    price: Floats
    power: Floats
    most_reactive: Floats
    rating: Floats
    lowest: Floats
    highest: Floats
    below: Floats
    resistance: Floats
    reactance: Floats

    @property
    def radius(self) -> Floats:
        """Protected change of each load, in MW."""
        return CHANGE * self.active

    @property
    def cheapest(self) -> float:
        """Cost of the optimum without noise, in $/h."""
        return affine_policies(self, np.zeros(len(self.active))).cost


def read_feeder(folder: str | Path) -> Feeder:
    """Read ``nodes.csv``, ``lines.csv`` and ``generators.csv`` of the authors' repository.

    Parameters
    ----------
    folder : str or Path
        Folder, such as ``testcase/feeder15`` of github.com/wdvorkin/DP_CC_OPF.

    Raises
    ------
    CaseError
        If a file or a column is missing, or the lines do not form a tree.
    """
    nodes = _column_file(folder, "nodes.csv", ("index", "d_P", "d_Q", "v_max", "v_min"))
    lines = _column_file(folder, "lines.csv", ("node_f", "node_t", "r", "x", "s_max"))
    units = _column_file(folder, "generators.csv", ("node", "p_max", "q_max", "cost"))
    buses = len(nodes["index"]) - 1
    order = np.argsort(lines["node_t"])
    parent, reached = lines["node_f"][order].astype(int), lines["node_t"][order].astype(int)
    everyone = np.arange(buses + 1)
    if not (
        np.array_equal(nodes["index"], everyone)
        and np.array_equal(reached, everyone[1:])
        and np.array_equal(np.sort(units["node"]), everyone)
    ):
        raise CaseError(
            "The feeder is not a tree with a generator at every bus. Number the buses from 0, "
            "the root, and give one line into each other bus."
        )
    below = np.eye(buses)
    for bus in range(buses):
        above = parent[bus]
        for _ in range(buses):
            if above == 0:
                break
            below[above - 1, bus], above = 1.0, parent[above - 1]
        else:
            raise CaseError("The lines of the feeder form a loop. Give a line towards the root.")
    units = {name: column[np.argsort(units["node"])] for name, column in units.items()}
    return Feeder(
        nodes["d_P"][1:],
        nodes["d_Q"][1:],
        (float(units["cost"][0]), float(units["p_max"][0]), float(units["q_max"][0])),
        units["cost"][1:],
        units["p_max"][1:],
        units["q_max"][1:],
        lines["s_max"][order],
        nodes["v_min"][1:],
        nodes["v_max"][1:],
        below,
        below.T @ np.diag(lines["r"][order]) @ below,
        below.T @ np.diag(lines["x"][order]) @ below,
    )


def _column_file(folder: str | Path, name: str, needed: tuple[str, ...]) -> dict[str, Floats]:
    """Return the columns of a CSV file, by name."""
    text = content(
        Path(folder) / name, name, CaseError, "Give the folder of a feeder of DP_CC_OPF."
    ).decode("utf-8-sig")
    rows = list(csv.DictReader(text.splitlines()))
    try:
        return {column: np.array([float(row[column]) for row in rows]) for column in needed}
    except (KeyError, TypeError, ValueError):
        raise CaseError(
            f"{name} lacks one of the columns {', '.join(needed)}, or has an entry in them that is "
            "no number. Take the file as the authors publish it."
        ) from None


@dataclass(frozen=True, eq=False)
class Policies:
    """Affine policies: set points as functions of noise, planned before the noise is drawn.

    Attributes
    ----------
    cost, std, worst : float
        Expected cost in $/h, its standard deviation, and the mean of the worst tenth of costs.
    power : ndarray, shape (buses,)
        Expected generation in MW.
    response : ndarray, shape (buses, buses)
        Generation in MW for a unit of each standard normal variable.
    flow : ndarray, shape (buses,)
        Standard deviation of the flow into each bus, in MW.
    """

    cost: float
    std: float
    worst: float
    power: Floats
    response: Floats
    flow: Floats


def affine_policies(feeder: Feeder, noise: Floats, *, averse: bool = False) -> Policies:
    """Return the chance-constrained dispatch of the first paper.

    For each line, generators below the line add a normal variable, and generators above it,
    including the root, subtract it. So the flow of line l has at least the standard deviation
    ``noise[l]``.

    Parameters
    ----------
    feeder : Feeder
    noise : ndarray, shape (buses,)
        Standard deviations in MW; zeros for the optimum without noise.
    averse : bool
        Whether to minimize the mean of the worst tenth of costs, in place of the expected cost.

    Raises
    ------
    dp.SolverError
        If no policies satisfy the limits.
    """
    price, most, _ = feeder.root
    buses = len(noise)
    power, share = cp.Variable(buses, nonneg=True), cp.Variable((buses + 1, buses))
    above = np.vstack([np.ones(buses), feeder.below - np.eye(buses)])
    below = np.vstack([np.zeros(buses), feeder.below.T])
    signed = cp.multiply(above - below, share) @ np.diag(noise)
    response = signed[1:]
    net, missing = feeder.active - power, feeder.reactive - REACTIVE * power
    flow, across = feeder.below @ net, feeder.below @ missing
    turned = -feeder.below @ response
    drop = feeder.resistance + REACTIVE * feeder.reactance
    voltage = 1 - 2 * (feeder.resistance @ net + feeder.reactance @ missing)
    spread = [norm.isf(share) for share in BROKEN]
    moved = spread[0] * cp.norm(response, axis=1)
    swung = spread[1] * cp.norm(2 * drop @ response, axis=1)
    limits = [
        cp.multiply(share, 1 - above - below) == 0,
        cp.sum(cp.multiply(share, above), axis=0) == 1,
        cp.sum(cp.multiply(share, below), axis=0) == 1,
        power >= moved,
        power + moved <= np.minimum(feeder.power, feeder.most_reactive / REACTIVE),
        cp.sum(net) >= spread[0] * cp.norm(signed[0]),
        cp.sum(net) + spread[0] * cp.norm(signed[0]) <= most,
        cp.sum(missing) >= spread[0] * REACTIVE * cp.norm(signed[0]),
        voltage - swung >= feeder.lowest,
        voltage + swung <= feeder.highest,
    ]
    for sign in (1, -1):
        for p, q, side in _SIDES:
            limits.append(
                sign * (p * flow + q * across)
                + spread[2] * cp.norm((p + REACTIVE * q) * turned, axis=1)
                <= side * feeder.rating
            )
    cost = price * cp.sum(net) + feeder.price @ power
    std = cp.norm(np.concatenate(([price], feeder.price)) @ signed)
    worst = cost + std * float(norm.pdf(norm.isf(WORST)) / WORST)
    cp.Problem(cp.Minimize(worst if averse else cost), limits).solve(solver=cp.CLARABEL)
    if power.value is None:
        raise dp.SolverError(
            "No affine policies satisfy the limits of the feeder with this noise. Write a "
            "smaller noise, or a larger epsilon."
        )
    return Policies(
        _value(cost).item(),
        _value(std).item(),
        _value(worst).item(),
        _value(power),
        _value(response),
        np.linalg.norm(_value(turned), axis=1),
    )


def _value(expression: cp.Expression) -> Floats:
    """Return the value of an expression after a solve."""
    return np.asarray(expression.value, dtype=np.float64)


def private_feeder(feeder: Feeder) -> tuple[dp.Problem, cp.Variable]:
    """State the dispatch of the feeder as a problem with private loads.

    One change moves the load of one bus by at most its `Feeder.radius`, as in the paper. Set points
    are public. The root serves what remains, within limits on flows and voltages that are chance
    constraints.

    Parameters
    ----------
    feeder : Feeder

    Returns
    -------
    problem : dp.Problem
        Problem whose objective is the cost less the cost of serving every load from the root.
    power : cp.Variable, shape (buses,)
        Generation in MW.
    """
    buses = len(feeder.active)
    power = cp.Variable(buses, name="power", nonneg=True)
    loads = dp.Private(
        feeder.active / feeder.radius, name="loads by radius", adjacency=dp.Within(1.0)
    )
    net = cp.multiply(feeder.radius, loads) - power
    missing = feeder.reactive - REACTIVE * power
    flow, across = feeder.below @ net, feeder.below @ missing
    voltage = 1 - 2 * (feeder.resistance @ net + feeder.reactance @ missing)
    limits = [
        power <= np.minimum(feeder.power, feeder.most_reactive / REACTIVE),
        cp.sum(missing) >= 0,
        cp.sum(net) >= 0,
        voltage >= feeder.lowest,
        voltage <= feeder.highest,
    ]
    limits += [
        sign * (p * flow + q * across) <= side * feeder.rating
        for sign in (1, -1)
        for p, q, side in _SIDES
    ]
    saved = cp.Minimize((feeder.price - feeder.root[0]) @ power)
    return dp.Problem([dp.Agent(saved, limits, name="operator")]), power


# -- an agent at every bus -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BusAgents:
    """Consensus ADMM of the second paper: each bus has a copy of the angles of its neighbors.

    An agent minimizes ``a y^2 + c y``, less multipliers times angles, plus the penalty, over its
    angles and over y, its generation or the load that it sheds, with ``b @ angles = y - load``.

    Attributes
    ----------
    load : ndarray, shape (buses,)
        Load in MW.
    quadratic, linear : ndarray, shape (buses,)
        Cost of y.
    power : ndarray, shape (buses,)
        Largest generation in MW; 0 at buses that shed load instead.
    neighbors : tuple of ndarray of int
        Buses whose angles each agent has, without the reference bus.
    coefficients : tuple of ndarray
        Coefficients b of each agent, in MW per hundredth of a radian.
    penalty : float
        ADMM penalty.
    """

    load: Floats
    quadratic: Floats
    linear: Floats
    power: Floats
    neighbors: tuple[NDArray[np.int64], ...]
    coefficients: tuple[Floats, ...]
    penalty: float = 1000.0

    @property
    def loaded(self) -> NDArray[np.int64]:
        """Buses that have a load."""
        return np.flatnonzero(self.load)

    def stiffness(self, bus: int) -> float:
        """Return the curvature that the penalty gives to the net power of a bus."""
        return self.penalty / float(self.coefficients[bus] @ self.coefficients[bus])

    def update(self, bus: int, target: Floats, load: float, most: float) -> tuple[Floats, float]:
        """Return the updated angles and y of an agent.

        Parameters
        ----------
        bus : int
            Position of the agent's bus.
        target : ndarray
            Consensus angles plus multipliers over the penalty.
        load : float
            Load in MW.
        most : float
            Upper bound of y.
        """
        b, stiffness = self.coefficients[bus], self.stiffness(bus)
        wanted = stiffness * (load + b @ target) - self.linear[bus]
        y = min(max(wanted / (2 * self.quadratic[bus] + stiffness), 0.0), most)
        return target + b * (y - load - b @ target) / (b @ b), y

    def most(self, bus: int, load: float) -> float:
        """Return the upper bound of y: generation, or the whole load."""
        return float(self.power[bus]) or load

    def pair_sensitivity(self, bus: int) -> Floats:
        """Return the change of each angle between two solves: the sensitivity of the paper's code.

        The solves have the whole load and 90 % of it, consensus and multipliers of 0, and no upper
        bound.
        """
        nothing, load = np.zeros(len(self.neighbors[bus])), float(self.load[bus])
        whole, less = (
            self.update(bus, nothing, share * load, math.inf)[0] for share in (1.0, 1.0 - CHANGE)
        )
        return np.abs(whole - less)

    def worst_sensitivity(self, bus: int) -> Floats:
        """Return the change of each angle for a 10 % change of the load, if y is at a bound."""
        b = self.coefficients[bus]
        return CHANGE * self.load[bus] * np.abs(b) / (b @ b)


def bus_agents(case: Case, shedding: float = 10.0) -> BusAgents:
    """Return the agents of a network, with the costs of the paper's code.

    Parameters
    ----------
    case : Case
        Case with at most one generator of positive power at a bus.
    shedding : float
        Cost of shed load in $ per MW squared and hour.
    """
    base, buses = case.base_mva, len(case.bus.id)
    units = np.flatnonzero(case.gen.pmax > 0)
    at = case.gen.bus[units]
    quadratic, linear, power = np.full(buses, shedding), np.zeros(buses), np.zeros(buses)
    linear[at] = case.gen.c1[units] / base
    squares = case.gen.c2[units] / base**2
    quadratic[at] = np.where(squares > 0, squares, 0.01 * linear[at])
    power[at] = base * case.gen.pmax[units]
    branch = case.branch
    starts, ends = incidence(branch.from_bus, buses), incidence(branch.to_bus, buses)
    weights = branch.x / (branch.r**2 + branch.x**2)
    matrix = (starts - ends) @ np.diag(weights) @ (starts - ends).T
    neighbors = tuple(np.flatnonzero(row[1:]) + 1 for row in matrix)
    return BusAgents(
        base * case.bus.pd,
        quadratic,
        linear,
        power,
        neighbors,
        tuple(matrix[bus, free] for bus, free in enumerate(neighbors)),
    )


@dataclass(frozen=True, eq=False)
class Trace:
    """Messages that all agents received in a run of consensus ADMM, and its final values.

    Attributes
    ----------
    targets, released : tuple of ndarray, one per bus, shape (rounds, neighbors)
        Consensus plus scaled multipliers, and the noisy angles that the agent sent.
    y : ndarray, shape (buses,)
        Generation and shed load in MW at the end.
    cost : float
        Cost in $/h.
    residual : float
        Consensus residual, as in the paper's code.
    """

    targets: tuple[Floats, ...]
    released: tuple[Floats, ...]
    y: Floats
    cost: float
    residual: float


def static_noise(
    agents: BusAgents,
    epsilon: float | None,
    *,
    rounds: int = 3000,
    seed: int = 0,
    tolerance: float = 0.01,
) -> Trace:
    """Run the second paper's primal perturbation, whose noise is drawn once and sent every round.

    Parameters
    ----------
    agents : BusAgents
    epsilon : float or None
        Epsilon that scales noise by ``pair_sensitivity / epsilon``; None for no noise.
    rounds : int
        Largest number of rounds.
    seed : int
        Noise seed.
    tolerance : float
        Residual below which the run ends.
    """
    rng, buses = np.random.default_rng(seed), len(agents.load)
    noise = [
        np.zeros(len(free))
        if epsilon is None
        else agents.pair_sensitivity(bus) / epsilon * rng.laplace(size=len(free))
        for bus, free in enumerate(agents.neighbors)
    ]
    multipliers = [np.zeros(len(free)) for free in agents.neighbors]
    copies = np.maximum(np.bincount(np.concatenate(agents.neighbors), minlength=buses), 1)
    consensus, y, residual = np.zeros(buses), np.zeros(buses), math.inf
    targets: list[list[Floats]] = [[] for _ in range(buses)]
    released: list[list[Floats]] = [[] for _ in range(buses)]
    for _ in range(rounds):
        total = np.zeros(buses)
        for bus, free in enumerate(agents.neighbors):
            target = consensus[free] + multipliers[bus] / agents.penalty
            load = float(agents.load[bus])
            exact, y[bus] = agents.update(bus, target, load, agents.most(bus, load))
            targets[bus].append(target)
            released[bus].append(exact + noise[bus])
            total[free] += released[bus][-1]
        consensus, residual = total / copies, 0.0
        for bus, free in enumerate(agents.neighbors):
            apart = consensus[free] - released[bus][-1]
            multipliers[bus] = multipliers[bus] + agents.penalty * apart
            residual += float(np.abs(apart).sum())
        if residual <= tolerance:
            break
    cost = float(agents.quadratic @ y**2 + agents.linear @ y)
    return Trace(
        tuple(np.array(rows) for rows in targets),
        tuple(np.array(rows) for rows in released),
        y,
        cost,
        residual,
    )


def read_load(agents: BusAgents, trace: Trace, bus: int) -> float | None:
    """Compute a load from a trace exactly, for any value of its noise.

    Noise that is equal in all rounds cancels in differences of rounds. Between two rounds with y
    within its bounds, the difference does not depend on the load. With y at a bound it does: the
    bound is public for a generator, and for shed load it leaves a net power of 0.

    Parameters
    ----------
    agents : BusAgents
        Agents, for the public costs, bounds of generators and coefficients.
    trace : Trace
    bus : int

    Returns
    -------
    float or None
        Load in MW; None if y was never at its upper bound, or never between its bounds.
    """
    b, stiffness = agents.coefficients[bus], agents.stiffness(bus)
    net, pulled = trace.released[bus] @ b, trace.targets[bus] @ b
    bend = 2 * agents.quadratic[bus] + stiffness
    moved, pulls = np.diff(net), np.diff(pulled)
    clear = np.abs(pulls) > 1e-6
    bounded = np.flatnonzero(clear & (pulls > 0) & (np.abs(moved) < 1e-9))
    between = np.flatnonzero(clear & (np.abs(moved - stiffness * pulls / bend) < 1e-9))
    if not len(bounded) or not len(between):
        return None
    gap = net[between[0]] - net[bounded[0]]  # y there less the bound
    offset = stiffness * pulled[between[0]] - agents.linear[bus]
    if agents.power[bus]:
        y = gap + agents.power[bus]
        return float((bend * y - offset) / stiffness)
    # At the bound y is the load, so gap = y - load and bend y = stiffness load + offset.
    return float((bend * gap - offset) / (stiffness - bend))


# -- tables ----------------------------------------------------------------------------------------


def feeder_table(feeder: Feeder, epsilon: float, delta: float, seeds: int) -> str:
    """Return the costs of the first paper's mechanism and of released loads, as text.

    Parameters
    ----------
    feeder : Feeder
    epsilon, delta : float
        Budget of one release.
    seeds : int
    """
    multiplier = classical_gaussian_multiplier(epsilon, delta)
    best, noise = feeder.cheapest, multiplier * feeder.radius
    rows = [("no noise", best, 0.0)]
    for name, averse in (("affine policies", False), ("the same, CVaR", True)):
        planned = affine_policies(feeder, noise, averse=averse)
        rows.append((name, planned.cost, planned.std))
    problem, power = private_feeder(feeder)
    plan = problem.plan(epsilon=epsilon, delta=delta, violation_probability=0.1)
    costs = []
    for seed in range(seeds):
        if plan.run(seed=seed).status.name == "INFEASIBLE":
            continue
        chosen = _value(power)
        costs.append(feeder.root[0] * np.sum(feeder.active - chosen) + feeder.price @ chosen)
    if costs:
        rows.append(("released loads", float(np.mean(costs)), float(np.std(costs))))
    exact = gaussian_epsilon(1 / multiplier, delta)
    lines = [f"{'feeder':<18}{'$/h':>9}{'std':>9}{'above':>9}"]
    lines += [
        f"{name:<18}{cost:>9.4f}{std:>9.4f}{100 * (cost / best - 1):>8.2f} %"
        for name, cost, std in rows
    ]
    return "\n".join(
        [
            *lines,
            f"noise per load: {multiplier:.3g} radii in the paper, which is ({exact:.2g}, "
            f"{delta:.3g})-DP for one load that is released",
            f"{len(costs)} of {seeds} runs on released loads find a solution",
        ]
    )


def bus_table(agents: BusAgents, epsilon: float, seeds: int) -> str:
    """Return a table of the second paper's mechanism: costs, and the number of revealed loads.

    Parameters
    ----------
    agents : BusAgents
    epsilon : float
        Epsilon of one angle in one round.
    seeds : int
    """
    exact = static_noise(agents, None)
    lines = [
        f"{'bus agents':<18}{'rounds':>8}{'$/h':>9}{'imbalance':>11}{'loads read':>12}",
        _traced("no noise", agents, exact),
    ]
    lines += [
        _traced(f"noise, seed {seed}", agents, static_noise(agents, epsilon, seed=seed))
        for seed in range(seeds)
    ]
    total = {bus: message_epsilon(agents, int(bus), epsilon) for bus in agents.loaded}
    worst = max(total, key=total.__getitem__)
    lines.append(
        f"one message of the agent at bus {worst + 1}: epsilon {total[worst]:.3g}, with "
        f"{len(agents.neighbors[worst])} angles at {epsilon:g} each by the pair of solves"
    )
    return "\n".join(lines)


def message_epsilon(agents: BusAgents, bus: int, epsilon: float) -> float:
    """Return the privacy loss (epsilon) of one message of the second paper, if y is at a bound.

    Parameters
    ----------
    agents : BusAgents
    bus : int
        Position of the bus.
    epsilon : float
        Epsilon that scales the noise of each angle.
    """
    return epsilon * float(np.sum(agents.worst_sensitivity(bus) / agents.pair_sensitivity(bus)))


def _traced(name: str, agents: BusAgents, trace: Trace) -> str:
    """Return a row of `bus_table`."""
    read = 0
    for bus in agents.loaded:
        load = read_load(agents, trace, int(bus))
        read += load is not None and abs(load - agents.load[bus]) < 1e-6
    away = float(trace.y.sum() - agents.load.sum())
    return (
        f"{name:<18}{len(trace.released[0]):>8}{trace.cost:>9.0f}{away:>8.1f} MW"
        f"{read:>6} of {len(agents.loaded)}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Published private power flow.")
    parser.add_argument("--feeder", help="folder of the feeder in the first paper's repository")
    parser.add_argument("--seeds", type=count(), default=3, help="runs (3)")
    arguments = parser.parse_args(argv)
    if arguments.feeder is not None:
        with in_words(parser):
            table = feeder_table(read_feeder(arguments.feeder), 1.0, 1 / 14, arguments.seeds)
        print(table, end="\n\n")
    print(bus_table(bus_agents(read_case(14)), 1.0, arguments.seeds))


if __name__ == "__main__":
    main()
