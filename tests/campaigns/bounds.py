"""What one change moves, against what is charged for it: random models, neighbors and methods.

Half of the trials follow random combinations that an agent stores; the others compare full runs
with their forced replay on neighbors' data. No trial may exceed its charge.
"""

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.model.curvature import curvature, record_smoothness, smoothness
from dpcvx.sensitivity.derivation import derive
from dpcvx.sensitivity.stored_vectors import (
    LinearCombination,
    Smoothness,
    StoredEffects,
    StoredVectors,
    shift_of,
)
from dpcvx.solvers.projector import Extent
from tests.campaigns.tally import Tally
from tests.forms import form_of
from tests.replay import compared

FULL = 4000
NORMS = ["entry", 1, 2, np.inf]


def vector(rng, size, name="d"):
    """Private numbers, one entry or a ball of which changes."""
    within = dp.Within(10 ** rng.uniform(-2, 1), NORMS[rng.integers(4)])
    return dp.Private(shape=size, adjacency=within, name=name)


def rows(rng, count, *width, name="X", **arguments):
    """Private records."""
    change = ["replace_one", "add_or_remove_one"][rng.integers(2)]
    settings = {"norm": [1, 2, np.inf][rng.integers(3)], "relation": change} | arguments
    signs = {s: True for s in [settings.pop("sign", None)] if s}
    return dp.Private(shape=(count, *width), adjacency=dp.Rows(1.5, **settings), name=name, **signs)


def squares(rng, x):
    A = rng.normal(size=(4, x.size))
    return cp.sum_squares(A @ x - vector(rng, 4)) / rng.uniform(2, 40)


def falling(rng, x):
    return vector(rng, x.size) @ x - cp.sum_squares(rng.normal(size=(2, x.size)) @ x) / 4


def saddle(rng, x):
    return cp.sum(cp.multiply(rng.normal(size=x.size), cp.square(x - vector(rng, x.size))))


def bent(rng, x):
    B = rng.normal(size=(3, x.size))
    rest = cp.sum(cp.logistic(B @ x)) + cp.sum(cp.huber(x + 1, 0.5)) / 4
    return squares(rng, x) + rest * rng.choice([1.0, -1.0])


def levelling(rng, x):
    return vector(rng, x.size) @ x + cp.sum(1 - cp.inv_pos(1 + cp.square(x))) * rng.uniform(0.1, 2)


def means(rng, x):
    sign = [None, "nonneg", "nonpos"][rng.integers(3)]
    X = rows(rng, 4, x.size, sign=sign)
    return cp.sum_squares(x) / 2 - cp.sum(X @ (rng.normal(size=(x.size, x.size)) @ x)) / 4


def logistic(rng, x):
    sign = [None, "nonneg"][rng.integers(2)]
    X = rows(rng, 5, x.size, relation="replace_one", sign=sign)
    y = rows(rng, 5, name="y", relation="replace_one")
    return cp.sum(cp.logistic(-cp.multiply(y, X @ x))) * 10 ** rng.uniform(-1, 0.5)


def huber(rng, x):
    X = rows(rng, 3, x.size)
    loss = cp.sum(cp.huber(X @ x - rng.normal(size=3), 0.7)) / 3
    return loss + cp.sum_squares(x) * rng.uniform(0, 1)


def mixed(rng, x):
    rest = cp.sum(1 - cp.inv_pos(1 + cp.square(x))) + cp.sum_squares(x) * rng.normal() / 2
    return logistic(rng, x) + rest + vector(rng, x.size, "e") @ x


KINDS = {
    f.__name__: f
    for f in [squares, falling, saddle, bent, levelling, means, logistic, huber, mixed]
}


def row(rng, spec):
    """An admissible record's part."""
    width = spec.size // spec.shape[0]
    found = rng.normal(size=width) * rng.integers(0, 2, width)
    if spec.sign is not None:
        found = np.abs(found) * (1 if spec.sign == "nonneg" else -1)
    size = np.linalg.norm(found, spec.adjacency.norm)
    share = rng.choice([1.0, rng.uniform()])
    return found * (share * spec.adjacency.max_norm / size) if size else found


def drawn(rng, specs):
    """Admissible data, by name."""
    data = {}
    for spec in specs:
        if isinstance(spec.adjacency, dp.Rows):
            found = np.array([row(rng, spec) for _ in range(spec.shape[0])])
            data[spec.name] = found.reshape(spec.shape)
        else:
            data[spec.name] = rng.normal(size=spec.shape) * 10 ** rng.uniform(-1, 2)
    return data


def neighbor(rng, specs, data):
    """The data after one change, as far as allowed."""
    other = {name: values.copy() for name, values in data.items()}
    chosen = specs[rng.integers(len(specs))]
    if not isinstance(chosen.adjacency, dp.Rows):
        step = rng.normal(size=chosen.shape)
        norm = chosen.adjacency.norm
        if norm == "entry" or rng.integers(2):
            step = np.zeros(chosen.size)
            step[rng.integers(chosen.size)] = rng.choice([-1.0, 1.0])
        elif norm == np.inf:
            step = np.sign(step)
        size = np.linalg.norm(step, np.inf if norm == "entry" else norm)
        other[chosen.name] += (step * (chosen.adjacency.radius / size)).reshape(chosen.shape)
        return other
    i = rng.integers(chosen.shape[0])
    for spec in specs:
        if isinstance(spec.adjacency, dp.Rows):
            replaced = chosen.adjacency.relation == "replace_one"
            opposite = -data[spec.name][i] if spec.sign is None and rng.integers(2) else None
            new = row(rng, spec) if opposite is None else opposite
            other[spec.name][i] = np.reshape(new, spec.shape[1:]) if replaced else 0.0
    return other


def followed(rng, kind):
    """Largest distance over its bound, of random combinations and the gradients at them."""
    form = form_of(KINDS[kind](rng, cp.Variable(rng.integers(1, 4))))[1]
    free = np.full(form.n, np.inf)
    sensitivity = derive(form, "north", lambda: Extent(-free, free))
    known = Smoothness(smoothness(form))
    if rng.integers(4):
        turn = record_smoothness(form)
        turn = np.inf if turn is None else turn
        known = Smoothness(known.value, False, curvature(form), turn)
    M = known.value
    moves = StoredEffects(form.at_zero().gradient, shift_of(sensitivity, known))
    data = drawn(rng, form.private)
    made = []
    for values in [data, *(neighbor(rng, form.private, data) for _ in range(6))]:
        flat = [values[spec.name].ravel(order="F") for spec in form.private]
        made.append(StoredVectors(form.bind(flat).gradient))
    names = ["a", "b", "c"]
    far, worst = 10 ** rng.uniform(-2, 1), 0.0

    def store(name, *parts):
        center = far * rng.normal(size=form.n)
        for one in (moves, *made):
            one.store(name, LinearCombination(center, *parts))

    for name in names:
        store(name)
    tracking = rng.integers(2)
    alpha = rng.uniform(0.05, 1.2) / (M or 1.0)
    for t in range(8):
        if tracking:  # x, and the difference of the gradients there and at the point before
            store("c", {"a": 1.0})
            store("a", {}, {"b": 1.0}) if t == 0 else store("a", {"b": -alpha})
            store("b", {}, {"a": 1.0, "c": -1.0})
        else:
            one, two = rng.choice(names, 2, replace=False)
            vectors = {two: rng.normal()} if rng.integers(3) == 0 else {}
            slopes = {one: alpha * rng.choice([-1.0, 1.0])}
            store(names[rng.integers(3)], vectors, slopes | ({two: -alpha} if t % 2 else {}))
        for name in names:
            for p in (1, 2):
                for look in ("vector", "gradient"):
                    values = [getattr(one, look)(name) for one in made]
                    reach = moves.reach if look == "vector" else moves.gradient_reach
                    apart = max(np.linalg.norm(v - values[0], p) for v in values)
                    rounding = 1e-12 * (1 + np.abs(values[0]).sum())
                    bound = reach(name, p)
                    if apart > rounding:
                        worst = max(worst, (apart - rounding) / bound)
    return worst


def method(rng):
    """A method whose agents store vectors."""
    graph = ["ring", "complete"][rng.integers(2)]
    alpha, ratio = 10 ** rng.uniform(-2, 0), 10 ** rng.uniform(-1, 1)
    if rng.integers(2):
        return dp.GradientTracking(graph, alpha, ratio)
    damping = rng.choice([0.0, rng.uniform()])
    return dp.DPP2(graph, alpha, alpha / 10, rng.uniform(0.1, 2), 0.5, damping, ratio)


def replayed(rng, kind):
    """Largest distance over its charge in full runs, and their forced replay on neighbors."""
    x = cp.Variable(rng.integers(1, 4), name="x")
    first = dp.Agent(cp.Minimize(KINDS[kind](rng, x)), name="first")
    others = [dp.Agent(cp.Minimize(cp.sum_squares(x - k)), name=f"other{k}") for k in range(2)]
    noise = [dp.Gaussian, dp.Laplace][rng.integers(2)]
    mechanism = noise(noise_multiplier=10 ** rng.uniform(-1, 2), decay=rng.choice([1.0, 0.9]))
    delta = 1e-6 if noise is dp.Gaussian else 0.0
    plan = dp.Problem([first, *others]).plan(
        method(rng), mechanism=mechanism, rounds=6, delta=delta
    )
    specs = plan.program.agents[0].form.private
    data = drawn(rng, specs)
    around = [neighbor(rng, specs, data) for _ in range(4)]
    return max(found.share for run in compared(plan, data, around) for found in run)


def campaign(size, seed):
    """So many trials, one kind of model after the other."""
    tally = Tally()
    for trial in range(size):
        kind = list(KINDS)[trial % len(KINDS)]
        what = (followed, replayed)[trial // len(KINDS) % 2]
        worst = what(np.random.default_rng([seed, trial]), kind)
        fault = None
        if not worst <= 1:
            fault = f"trial {trial} of seed {seed} ({kind}): {worst:.6g} of the charge"
        tally.add(f"{what.__name__} {'above 0.5' if worst > 0.5 else 'below'}", fault)
    return tally
