"""Optimal power flow in branch currents (Farivar and Low), from the text of a case file.

A second formulation of what `problems.power_flow` solves in voltage products: another reader, other
variables, and DC lines, storage, and costs written out. It shares no code with the package. The two
relaxations have the same optimum: where z = r + jx and S, l, v are the power into the series
impedance, its squared current, and the squared voltage before it, ``|v - conj(z) S|^2`` is
``v v_to - |z|^2 (l v - |S|^2)``.
"""

import re
import warnings
from itertools import pairwise
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

_FIELDS = "bus gen branch gencost dcline dclinecost storage switch branch_currents".split()
_ATTEMPTS = ({}, {"equilibrate_max_iter": 30}, {"max_step_fraction": 0.95})


def optimum(text: str) -> tuple[float | None, str]:
    """The least cost in $/h, None if the solver finds none; and the solver's status."""
    case = _read(text)
    model = SimpleNamespace(objective=[], constraints=[])
    bus = case.bus[case.bus[:, 1] != 4]
    place = {number: at for at, number in enumerate(bus[:, 0])}
    w = cp.Variable(len(bus))
    injected = [-bus[:, 2] / case.base - cp.multiply(bus[:, 4] / case.base, w)]
    reactive = [-bus[:, 3] / case.base + cp.multiply(bus[:, 5] / case.base, w)]
    model.constraints += [w >= np.maximum(bus[:, 12], 0) ** 2]
    bounded = np.isfinite(bus[:, 11])
    model.constraints += [w[bounded] <= bus[bounded, 11] ** 2]
    _generators(case, place, model, injected, reactive)
    _dc_lines(case, place, model, injected, reactive)
    _storage(case, place, w, model, injected, reactive)
    _switches(case, place, w, model, injected, reactive)
    _branches(case, place, w, model, injected, reactive)
    model.constraints += [sum(injected) == 0, sum(reactive) == 0]
    total = cp.sum(cp.hstack([cp.reshape(cost, (1,), order="C") for cost in model.objective]))
    scale = max(1.0, np.abs(case.gencost[:, 4:]).max()) if len(case.gencost) else 1.0
    problem = cp.Problem(cp.Minimize(total / scale), model.constraints)
    status = "failed"
    for settings in _ATTEMPTS:
        try:
            with warnings.catch_warnings():
                # The caller gets the status instead.
                warnings.filterwarnings("ignore", message="Solution may be inaccurate")
                problem.solve(cp.CLARABEL, **settings)
        except cp.SolverError:
            continue
        status = str(problem.status)
        if status == cp.OPTIMAL:
            break
    return (scale * float(problem.value) if status.startswith("optimal") else None), status


def _read(text: str) -> SimpleNamespace:
    """Matrices by a crude reader, and the two conversions of units that feeders have."""
    code = "\n".join(line.partition("%")[0] for line in text.splitlines())
    code = code.replace("sqrt(3)", repr(3**0.5))
    code = re.sub(r"([\d.]+)/([\d.]+)", lambda parts: repr(float(parts[1]) / float(parts[2])), code)
    case = SimpleNamespace(base=float(re.search(r"\.baseMVA\s*=\s*([\d.e+]+)", code)[1]))
    for field in _FIELDS:
        found = re.search(rf"\.{field}\s*=\s*\[(.*?)\]", code, re.DOTALL)
        rows = re.sub(r"\.\.\.\s*\n", " ", found[1]).replace(";", "\n") if found else ""
        rows = rows.replace(",", " ").replace("Inf", "inf").replace("NaN", "nan")
        listed = [[float(x) for x in row.split()] for row in rows.splitlines() if row.strip()]
        setattr(case, field, np.array(listed))
    if re.search(r"PD, QD\]\)\s*/\s*1e3", code):
        case.bus[:, 2:4] /= 1e3
    if "(Vbase^2 / Sbase)" in code:
        case.branch[:, 2:4] /= (case.bus[0, 9] * 1e3) ** 2 / (case.base * 1e6)
    if "acos(pf)" in code:
        apparent = case.bus[:, 2].copy()
        case.bus[:, 3], case.bus[:, 2] = apparent * np.sqrt(1 - 0.85**2), apparent * 0.85
    hours = re.search(r"time_elapsed\s*=\s*([\d.]+)", code)
    case.hours = float(hours[1]) if hours else 1.0
    return case


def _at(places, count):
    """Matrix that brings one entry per element to the buses."""
    rows = np.array(places, dtype=int)
    return sp.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), (count, len(rows)))


def _price(row, power, model):
    """Add the cost of a row of gencost for power in megawatts."""
    count = int(row[3])
    if row[0] == 1:
        points = row[4 : 4 + 2 * count].reshape(-1, 2)
        cost = cp.Variable()
        for (x, f), (y, g) in pairwise(points):
            if y > x:
                model.constraints.append(cost >= f + (g - f) / (y - x) * (power - x))
        model.constraints.append(
            cost >= points[:, 1].min() if len(set(points[:, 0])) == 1 else True
        )
        model.objective.append(cost)
        return
    c = row[4 : 4 + count][::-1]
    model.objective.append(c[0] + (c[1] * power if count > 1 else 0))
    if count > 2 and c[2]:
        model.objective.append(c[2] * cp.square(power))


def _generators(case, place, model, injected, reactive):
    on = [at for at, row in enumerate(case.gen) if row[7] > 0 and row[0] in place]
    gen = case.gen[on]
    p, q = cp.Variable(len(on)), cp.Variable(len(on))
    for power, column in ((p, 8), (q, 3)):
        for sign, side in ((1, column), (-1, column + 1)):
            limited = np.abs(gen[:, side]) <= 1e7
            if limited.any():
                model.constraints.append(
                    sign * power[limited] <= sign * gen[limited, side] / case.base
                )
    at = _at([place[number] for number in gen[:, 0]], len(place))
    injected.append(at @ p)
    reactive.append(at @ q)
    model.objective.append(cp.Constant(0.0))
    for k, row in enumerate(on if len(case.gencost) else []):
        _price(case.gencost[row], case.base * p[k], model)
        if len(case.gencost) > len(case.gen):
            _price(case.gencost[len(case.gen) + row], case.base * q[k], model)


def _dc_lines(case, place, model, injected, reactive):
    for k, row in enumerate(case.dcline):
        if row[2] <= 0 or row[0] not in place or row[1] not in place:
            continue
        flow, q = cp.Variable(), cp.Variable(2)
        arrives = flow - row[15] / case.base - row[16] * flow
        for limit, sign in ((row[9], 1), (row[10], -1)):
            enters = flow if limit >= 0 else arrives
            model.constraints.append(sign * enters >= sign * limit / case.base)
        model.constraints += [q >= row[[11, 13]] / case.base, q <= row[[12, 14]] / case.base]
        ends = _at([place[row[0]], place[row[1]]], len(place))
        injected.append(ends @ cp.hstack([-flow, arrives]))
        reactive.append(ends @ q)
        if len(case.dclinecost):
            _price(case.dclinecost[k], case.base * flow, model)


def _storage(case, place, w, model, injected, reactive):
    for row in case.storage:
        if row[16] == 0 or row[0] not in place:
            continue
        unit = row / case.base
        takes, gives, current = (cp.Variable(nonneg=True) for _ in range(3))
        p, q = cp.Variable(), cp.Variable()
        energy = unit[3] + case.hours * (row[7] * takes - gives / row[8])
        v = w[place[row[0]]]
        model.constraints += [
            p == takes - gives + unit[14] + row[12] * current,
            cp.SOC(v + current, cp.hstack([2 * p, 2 * q, v - current])),
            cp.norm(cp.hstack([p, q])) <= unit[9],
            energy >= 0, energy <= unit[4], takes <= unit[5], gives <= unit[6],
            q >= unit[10], q <= unit[11], q - unit[15] >= unit[10], q - unit[15] <= unit[11],
        ]  # fmt: skip
        at = _at([place[row[0]]], len(place))
        injected.append(at @ cp.hstack([-p]))
        reactive.append(at @ cp.hstack([-q]))


def _switches(case, place, w, model, injected, reactive):
    """Closed switches carry any power between buses of one voltage."""
    for row in case.switch:
        if row[4] != 0 and row[6] != 0:
            ends = [place[row[0]], place[row[1]]]
            model.constraints.append(w[ends[0]] == w[ends[1]])
            for balance in (injected, reactive):
                flow = cp.Variable()
                balance.append(_at(ends, len(place)) @ cp.hstack([flow, -flow]))


def _branches(case, place, w, model, injected, reactive):
    on = [
        at
        for at, row in enumerate(case.branch)
        if row[10] != 0 and row[0] in place and row[1] in place
    ]
    if not on:
        return
    branch, count = case.branch[on], len(place)
    start, end = (_at([place[number] for number in branch[:, side]], count) for side in (0, 1))
    r, x, half = branch[:, 2], branch[:, 3], branch[:, 4] / 2
    tap = np.where(branch[:, 8] == 0, 1.0, branch[:, 8])
    shift = np.radians(branch[:, 9])
    p, q, current = (cp.Variable(len(on)) for _ in range(3))
    # Currents of short lines are large: the cone in l |z| and v / |z| has entries of one size.
    size = np.maximum(np.hypot(r, x), 1e-6)
    near = cp.multiply(1 / tap**2, start.T @ w)
    far = end.T @ w
    across = near - 2 * (cp.multiply(r, p) + cp.multiply(x, q)) + cp.multiply(r**2 + x**2, current)
    ends = cp.multiply(size, current), cp.multiply(1 / size, near)
    model.constraints += [
        far == across,
        cp.SOC(ends[0] + ends[1], cp.vstack([2 * p, 2 * q, ends[0] - ends[1]]), axis=0),
    ]
    pf, qf = p, q - cp.multiply(half, near)
    pt = cp.multiply(r, current) - p
    qt = cp.multiply(x, current) - q - cp.multiply(half, far)
    injected.append(-start @ pf - end @ pt)
    reactive.append(-start @ qf - end @ qt)
    rate = branch[:, 5]
    limited = (rate > 0) & (rate <= 1e7)
    most = case.branch_currents[on, 0] if len(case.branch_currents) else np.zeros(len(on))
    for active, other, voltage in ((pf, qf, start.T @ w), (pt, qt, far)):
        if limited.any():
            flow = cp.vstack([active[limited], other[limited]])
            model.constraints.append(cp.norm(flow, 2, axis=0) <= rate[limited] / case.base)
        for at in np.flatnonzero(most):
            flow = cp.hstack([active[at], other[at]])
            model.constraints.append(
                cp.quad_over_lin(flow, voltage[at]) <= (most[at] / case.base) ** 2
            )
    # v_from conj(v_to) is tap e^(j shift) (v - conj(z) S).
    real = near - cp.multiply(r, p) - cp.multiply(x, q)
    imaginary = cp.multiply(x, p) - cp.multiply(r, q)
    wr = cp.multiply(tap * np.cos(shift), real) - cp.multiply(tap * np.sin(shift), imaginary)
    wi = cp.multiply(tap * np.sin(shift), real) + cp.multiply(tap * np.cos(shift), imaginary)
    low, high = np.full(len(on), -60.0), np.full(len(on), 60.0)
    if branch.shape[1] >= 13:
        free = (branch[:, 11] == 0) & (branch[:, 12] == 0)
        low = np.where(free | (branch[:, 11] <= -90), low, branch[:, 11])
        high = np.where(free | (branch[:, 12] >= 90), high, branch[:, 12])
    model.constraints += [
        wi >= cp.multiply(np.tan(np.radians(low)), wr),
        wi <= cp.multiply(np.tan(np.radians(high)), wr),
    ]
    first = {}
    for at, (one, other) in enumerate(branch[:, :2]):
        known, sense = first.setdefault((min(one, other), max(one, other)), (at, one < other))
        if known != at:
            sign = 1 if sense == (one < other) else -1
            model.constraints += [wr[at] == wr[known], wi[at] == sign * wi[known]]
