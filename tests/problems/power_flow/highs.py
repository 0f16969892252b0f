"""Linear programs of power flow written by hand as matrices, and solved by HiGHS.

A second formulation that shares no code with the package's models: it reads the tables of a file,
not `Case`, has injections and transfer factors in place of angles, and no cvxpy.
"""

import numpy as np
from scipy.optimize import linprog

# Columns of MATPOWER's tables.
BUS, PD, QD, GS, BS, VMAX, VMIN = 0, 2, 3, 4, 5, 11, 12
GEN_BUS, QMAX, QMIN, STATUS, PMAX, PMIN = 0, 3, 4, 7, 8, 9
FROM, TO, R, X, B, RATE, TAP, SHIFT, ON, ANGMIN, ANGMAX = 0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12


class Program:
    """Blocks of variables with costs and bounds, and rows over them."""

    def __init__(self):
        self.cost, self.bounds, self.rows = [], [], {"ub": [], "eq": []}

    def add(self, cost, low, high):
        """New variables; returns their positions."""
        low, high, cost = np.broadcast_arrays(low, high, cost)
        first = len(self.cost)
        self.cost += cost.ravel().tolist()
        self.bounds += list(zip(low.ravel().tolist(), high.ravel().tolist(), strict=True))
        return first + np.arange(low.size).reshape(low.shape)

    def row(self, kind, terms, right):
        """A row: pairs of positions and coefficients, and the right side."""
        self.rows[kind].append((terms, right))

    def solve(self):
        """The least cost."""
        arguments = {}
        for kind, rows in self.rows.items():
            matrix = np.zeros((len(rows), len(self.cost)))
            for at, (terms, _) in enumerate(rows):
                for where, value in terms:
                    np.add.at(matrix[at], np.ravel(where), value)
            if rows:
                arguments |= {f"A_{kind}": matrix, f"b_{kind}": [right for _, right in rows]}
        found = linprog(self.cost, bounds=self.bounds, method="highs", **arguments)
        assert found.status == 0, found.message
        return found.fun


def dc_optimum(tables, factors, stores=(), ramps=None, flexible=(), outages=(), emergency=1.0):
    """Least cost of a day in the direct-current approximation, for linear costs.

    `factors` has the shape (hours,); stores are (bus, power, energy, efficiency, start), flexible
    loads (bus, power, price or None), outages positions among the branches in service.
    """
    bus, base = np.array(tables.bus), tables.base_mva
    gen = np.array(tables.gen)
    on = gen[:, STATUS] > 0
    prices = np.array(tables.gencost)[on][:, -2]
    gen = gen[on]
    branch = np.array(tables.branch)
    branch = branch[branch[:, ON] != 0]
    at = {number: k for k, number in enumerate(bus[:, BUS])}
    count, lines = len(bus), len(branch)
    ends = np.zeros((lines, count))
    ends[np.arange(lines), [at[k] for k in branch[:, FROM]]] = 1
    ends[np.arange(lines), [at[k] for k in branch[:, TO]]] -= 1
    tap = np.where(branch[:, TAP] == 0, 1, branch[:, TAP])
    weight = 1 / (branch[:, X] * tap)
    shift = np.radians(branch[:, SHIFT])

    def transfers(kept):
        """Flow for injections, and for shifts, of the lines that are kept."""
        laplacian = ends[kept].T @ (weight[kept, None] * ends[kept])
        inverse = np.linalg.pinv(laplacian)
        flow = weight[kept, None] * (ends[kept] @ inverse)
        constant = flow @ (ends[kept].T @ (weight * shift)[kept]) - (weight * shift)[kept]
        return flow, constant

    rate = np.where(branch[:, RATE] == 0, np.inf, branch[:, RATE] / base)
    everything = np.arange(lines)
    cases = [(everything, 1.0)] + [(np.delete(everything, k), emergency) for k in outages]
    program, hours = Program(), len(factors)
    power = program.add(
        np.repeat(prices[:, None] * base, hours, 1),
        np.repeat(gen[:, PMIN, None] / base, hours, 1),
        np.repeat(gen[:, PMAX, None] / base, hours, 1),
    )
    injecting = [(at[row[GEN_BUS]], power[k], 1.0) for k, row in enumerate(gen)]
    for where, most, energy, share, start in stores:
        takes, gives = (program.add(0.0, np.zeros(hours), most / base) for _ in range(2))
        held = program.add(0.0, np.zeros(hours), energy / base)
        for t in range(hours):
            terms = [(held[t], 1.0), (takes[t], -share), (gives[t], 1 / share)]
            before = start * energy / base if t == 0 else 0.0
            program.row("eq", terms + ([(held[t - 1], -1.0)] if t else []), before)
        program.row("ub", [(held[-1], -1.0)], -start * energy / base)
        injecting += [(at[where], gives, 1.0), (at[where], takes, -1.0)]
    for where, most, price in flexible:
        low = -most / base if price is None else 0.0
        less = program.add((price or 0.0) * base, np.full(hours, low), most / base)
        if price is None:
            program.row("eq", [(less, 1.0)], 0.0)
        injecting.append((at[where], less, 1.0))
    load = bus[:, PD] / base
    for t, factor in enumerate(factors):
        fixed = factor * load + bus[:, GS] / base
        program.row("eq", [(x[t], sign) for _, x, sign in injecting], fixed.sum())
        for kept, share in cases:
            flow, constant = transfers(kept)
            for line in np.flatnonzero(np.isfinite(rate[kept])):
                terms = [(x[t], sign * flow[line, k]) for k, x, sign in injecting]
                there = flow[line] @ fixed - constant[line]
                most = share * rate[kept][line]
                program.row("ub", terms, most + there)
                program.row("ub", [(x, -value) for x, value in terms], most - there)
        if ramps is not None and t:
            for k, row in enumerate(gen):
                for sign in (1.0, -1.0):
                    terms = [(power[k, t], sign), (power[k, t - 1], -sign)]
                    program.row("ub", terms, ramps * row[PMAX] / base)
    return program.solve()


def distflow_optimum(tables, factors):
    """Least cost of hours in the linearized DistFlow model, for linear costs, without ratings."""
    bus, base = np.array(tables.bus), tables.base_mva
    gen, branch = np.array(tables.gen), np.array(tables.branch)
    cost = np.array(tables.gencost)[gen[:, STATUS] > 0]
    gen, branch = gen[gen[:, STATUS] > 0], branch[branch[:, ON] != 0]
    at = {number: k for k, number in enumerate(bus[:, BUS])}
    starts, stops = ([at[k] for k in branch[:, column]] for column in (FROM, TO))
    tap = np.where(branch[:, TAP] == 0, 1, branch[:, TAP])
    total = 0.0
    for factor in factors:
        program = Program()
        w = program.add(0.0, bus[:, VMIN] ** 2, bus[:, VMAX] ** 2)
        p, q = (program.add(0.0, np.full(len(branch), -np.inf), np.inf) for _ in range(2))
        pg = program.add(cost[:, -2] * base, gen[:, PMIN] / base, gen[:, PMAX] / base)
        qg = program.add(0.0, gen[:, QMIN] / base, gen[:, QMAX] / base)
        for k, row in enumerate(branch):
            drop = [(w[starts[k]], 1 / tap[k] ** 2), (w[stops[k]], -1.0)]
            program.row("eq", [*drop, (p[k], -2 * row[R]), (q[k], -2 * row[X])], 0.0)
        for k, row in enumerate(bus):
            active, reactive = [(w[k], -row[GS] / base)], [(w[k], row[BS] / base)]
            for line in range(len(branch)):
                half = branch[line, B] / 2
                if starts[line] == k:
                    active.append((p[line], -1.0))
                    reactive += [(q[line], -1.0), (w[k], half / tap[line] ** 2)]
                if stops[line] == k:
                    active.append((p[line], 1.0))
                    reactive += [(q[line], 1.0), (w[k], half)]
            here = [g for g, other in enumerate(gen) if at[other[GEN_BUS]] == k]
            active += [(pg[g], 1.0) for g in here]
            reactive += [(qg[g], 1.0) for g in here]
            program.row("eq", active, factor * row[PD] / base)
            program.row("eq", reactive, factor * row[QD] / base)
        total += program.solve() + cost[:, -1].sum()
    return total
