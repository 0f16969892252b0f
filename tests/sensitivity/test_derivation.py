"""Derived bounds where functions end, where they become infinite, and where records are clipped."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.sensitivity.derivation import derive
from dpcvx.solvers.projector import Extent
from tests.forms import form_of

ANGLES = np.linspace(0, 2 * np.pi, 73)
STEP = dp.LinearizedADMM(penalty=1.0, step=0.1)
GAUSS, LAPLACE = dp.Gaussian(noise_multiplier=2.0), dp.Laplace(noise_multiplier=2.0)
mechanisms = pytest.mark.parametrize("mechanism", [GAUSS, LAPLACE], ids=str)
changes = pytest.mark.parametrize("change", ["replace_one", "add_or_remove_one"])


def planned(cost, constraints=(), *, mechanism=GAUSS, rounds=2, start=None, **agent):
    agent = dp.Agent(cp.Minimize(cost), list(constraints), name="north", **agent)
    problem = dp.Problem([agent], start=start or {})
    delta = 1e-6 if mechanism.norm == 2 else None
    return problem.plan(STEP, mechanism=mechanism, rounds=rounds, delta=delta)


def charged(plan, **arguments):
    return [e.sensitivity for e in plan.run(seed=0, **arguments).ledger["north"].entries]


# A function of a record that is not defined for all admissible ones


UNDEFINED = {
    "sqrt": lambda y: cp.sqrt(y),
    "log": lambda y: cp.log(y + 0.9),
    "sqrt, shifted": lambda y: cp.sqrt(y + 0.5),
    "power": lambda y: cp.power(y, 1.5),
    "log1p of a long one": lambda y: cp.log1p(2 * y),
}


@pytest.mark.parametrize("case", UNDEFINED)
@changes
@mechanisms
def test_a_function_that_some_admissible_record_leaves_is_refused_before_data(
    case, change, mechanism
):
    b = cp.Variable(name="b")

    def never():
        raise AssertionError("read")

    y = dp.Private(never, shape=3, adjacency=dp.Rows(1.0, relation=change), name="y")
    with pytest.raises(dp.PrivacyError, match="'north'"):
        planned(cp.sum(cp.logistic(b - UNDEFINED[case](y))), [cp.abs(b) <= 1], mechanism=mechanism)


@pytest.mark.parametrize("case", ["sqrt", "sqrt, shifted", "power", "log1p of a long one"])
def test_with_the_sign_declared_the_same_function_is_covered(case):
    b = cp.Variable(name="b")
    y = dp.Private([0.0, 0.5, 1.0], adjacency=dp.Rows(1.0), name="y", nonneg=True)
    plan = planned(cp.sum(cp.logistic(b - UNDEFINED[case](y))), [cp.abs(b) <= 1])
    for record in ([0.0, 0.5, 0.0], [1.0, 0.5, 1.0], [0.0, 0.0, 1.0]):
        assert dp.check_sensitivity(plan, {"y": record}).passed


def test_so_is_one_that_an_absent_record_leaves():
    b = cp.Variable(name="b")
    y = dp.Private(np.ones(3), adjacency=dp.Rows(1.0), name="y", nonneg=True)
    with pytest.raises(dp.DpcvxError, match="'north'"):
        planned(cp.sum(cp.logistic(b - cp.log(y))), [cp.abs(b) <= 1])


# A record of which a function is infinite, and the contributions of all others with it


PEOPLE = 20
INFINITE = {
    "infinite": lambda b, y, z: cp.sum(cp.logistic(b - cp.log(1 - y))),
    "through a matrix": lambda b, y, z: cp.sum(cp.logistic(b - np.eye(PEOPLE) @ cp.log(1 - y))),
    "difference": lambda b, y, z: cp.sum(cp.logistic(b - cp.log(1 - y) + cp.log(1 - z))),
    "overflow": lambda b, y, z: cp.sum(cp.abs(b + 1 - cp.exp(1e3 * y) + cp.exp(1e3 * z))),
    "product": lambda b, y, z: cp.sum(cp.logistic(b + cp.multiply(y, cp.log(1 - z)))),
    "both": lambda b, y, z: cp.sum(cp.logistic(cp.multiply(y, b + 3) - cp.exp(1e3 * cp.abs(z)))),
}


@pytest.mark.parametrize("case", INFINITE)
@changes
def test_one_record_does_not_take_the_contributions_of_others_with_it(case, change):
    b = cp.Variable(name="b")
    y, z = (
        dp.Private(np.zeros(PEOPLE), adjacency=dp.Rows(1.0, relation=change), name=name)
        for name in "yz"
    )
    f = INFINITE[case](b, y, z)
    try:
        plan = planned(f, [cp.abs(b) <= 1], rounds=1)
    except dp.PrivacyError:
        return
    used = {p.name() for p in f.parameters()}
    for one, two in [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 1.0)]:
        values = {"y": np.eye(PEOPLE)[0] * one, "z": np.eye(PEOPLE)[0] * two}
        if any(values[name].any() for name in used):
            found = dp.check_sensitivity(plan, {name: values[name] for name in used})
            assert not found.faults, str(found)  # some of these records move nothing


def test_nor_does_a_clipped_one():
    w = cp.Variable(2, name="w")
    X = dp.Private(np.tile([1.0, 0.0], (PEOPLE, 1)), adjacency=dp.Rows(1.0), name="X")
    y = dp.Private(np.zeros(PEOPLE), adjacency=dp.Rows(1.0), name="y")
    loss = cp.sum(cp.logistic(X @ w - np.eye(PEOPLE) @ cp.log(1 - y)))
    try:
        plan = planned(loss, clip_norm=0.5)
    except dp.PrivacyError:
        return
    assert dp.check_sensitivity(plan, {"y": np.eye(PEOPLE)[0]}).passed


# A private weight of a function with an infinite slope


def entropy(low, adjacency=None, start=0.5):
    x = cp.Variable(2, name="x")
    d = dp.Private([1.0, 1.0], adjacency=adjacency or dp.Within(0.5), name="d", nonneg=True)
    # The linear term pushes x to its lower bound.
    cost = cp.sum(50 * x) - d @ cp.entr(x)
    return planned(cost, [x >= low, x <= 1], rounds=6, start={x: start})


def test_a_weight_of_an_entropy_has_no_bound_where_its_slope_is_infinite():
    with pytest.raises(dp.PrivacyError, match="has no bound: .*'d'"):
        entropy(0.0).run(seed=0)


@pytest.mark.parametrize("adjacency", [dp.Within(0.5, 2), dp.Rows(2.0)], ids=str)
def test_nor_does_a_check_of_it_pass(adjacency):
    with pytest.raises(dp.PrivacyError, match="has no bound: .*'d'"):
        dp.check_sensitivity(entropy(0.0, adjacency), {"d": [1.0, 0.8]})


def test_a_start_at_which_the_slope_is_infinite_is_refused():
    with pytest.raises((dp.PrivacyError, dp.ModelError), match="start"):
        entropy(0.0, start=0.0)


@pytest.mark.parametrize("neighbor", [[1.5, 1.0], [1.0, 0.5], [1.0, 1.5]], ids=str)
def test_away_from_there_it_has_one_that_neighbors_keep(neighbor):
    plan = entropy(1e-3)
    found = dp.check_sensitivity(plan, {"d": neighbor})
    assert found.passed and found.agents[0].ratio > 0.9
    # |log x + 1| grows towards the lower bound, and the charge with it.
    assert charged(plan)[-1] > 3 * charged(plan)[0]


@pytest.mark.parametrize("offset", [0.0, 1e3, 5e15])
@pytest.mark.parametrize("at", [1.3, 1.45, 1.7])
def test_a_large_public_part_of_a_weight_hides_nothing(offset, at):
    x = cp.Variable(name="x")
    d = dp.Private(1.0, adjacency=dp.Within(1e10), name="d", nonneg=True)
    plan = planned(cp.multiply(offset + d, cp.square(x)), [x >= at, x <= 2])
    found = dp.check_sensitivity(plan, {"d": 1e10})
    assert found.passed and found.agents[0].ratio > 0.99


# Clipped records next to public columns and terms


def rows(count=2, change="replace_one"):
    """Records in the plane, the first of which will be replaced by any other."""
    values = np.tile([1.0, 0.0], (count, 1))
    return dp.Private(values, adjacency=dp.Rows(1.0, relation=change), name="X")


def disk():
    """Records to try: of full length in every direction, of part of it, and none."""
    ring = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
    return np.concatenate([size * ring for size in (1.0, 0.5, 0.1, 0.0)])


def clipped(vectors, C):
    sizes = np.linalg.norm(vectors, axis=1)
    return vectors * np.minimum(1.0, C / np.maximum(sizes, 1e-300))[:, None]


# Slope of the loss of a score, and a public matrix next to the records or none.
CLIPPED = {
    "plain": (cp.abs, np.sign, 0),
    "public column": (cp.abs, np.sign, 1),
    "two public columns": (cp.exp, np.exp, 2),
}


@pytest.mark.parametrize("case", CLIPPED)
@pytest.mark.parametrize("C", [0.05, 0.5, 1.0])
@changes
def test_a_clipped_gradient_is_charged_what_one_record_can_do(case, C, change):
    loss, slope, extra = CLIPPED[case]
    v = cp.Variable(2 + extra, name="v")
    X = rows(change=change)
    wide = cp.hstack([X, np.ones((2, extra))]) if extra else X
    cost = cp.sum(loss(wide @ v)) + cp.sum_squares(v - 1)
    start = np.linspace(0.3, -0.4, 2 + extra)
    plan = planned(cost, clip_norm=C, rounds=1, start={v: start})
    records = np.hstack([disk(), np.ones((len(disk()), extra))])
    given = clipped(records * slope(records @ start)[:, None], C)
    if change == "replace_one":
        moved = np.linalg.norm(given[:, None] - given[None], axis=-1)
    else:  # the last is the absent one
        moved = np.linalg.norm(given - given[-1], axis=-1)
    (charge,) = charged(plan)
    assert moved.max() <= charge
    assert charge <= (2 if change == "replace_one" or extra else 1) * C * (1 + 1e-4)
    if change == "replace_one" and case == "plain":
        # |score| turns at the origin, so that opposite contributions are one and the same.
        assert moved.max() > 1.4 * C


def test_a_clipped_record_next_to_a_public_column_can_do_all_that_is_charged():
    v = cp.Variable(3, name="v")
    cost = cp.sum(cp.exp(cp.hstack([rows(), np.full((2, 1), 1e-3)]) @ v))
    plan = planned(cost, clip_norm=0.1, rounds=1)
    found = dp.check_sensitivity(plan, {"X": np.array([[-1.0, 0.0], [1.0, 0.0]])})
    assert found.passed and found.agents[0].ratio > 0.999
    assert charged(plan)[0] == pytest.approx(0.2, rel=1e-4)


@changes
def test_check_agrees_for_every_record(change):
    v = cp.Variable(3, name="v")
    cost = cp.sum(cp.abs(cp.hstack([rows(change=change), np.ones((2, 1))]) @ v))
    start = {v: np.array([0.5, 0.2, -0.1])}
    plan = planned(cost + cp.sum_squares(v), clip_norm=0.5, rounds=2, start=start)
    ratios = []
    records = disk()[::9] if change == "replace_one" else [np.zeros(2)]
    for record in records:
        if not np.array_equal(record, [1.0, 0.0]):
            found = dp.check_sensitivity(plan, {"X": np.stack([record, [1.0, 0.0]])})
            assert not found.faults
            ratios.append(found.agents[0].ratio)
    assert max(ratios) > 0.5


def test_a_clip_is_not_bypassed_where_products_of_norms_leave_floating_point():
    X = dp.Private(shape=(3, 2), adjacency=dp.Rows(1.0), name="X")
    w = cp.Variable(2, name="w")
    loss = cp.sum(cp.exp(X @ (1e100 * w) + 250))
    agent = dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 1], name="a", clip_norm=1.0)
    plan = dp.Problem([agent]).plan(
        dp.LinearizedADMM(penalty=1.0), rounds=2, epsilon=1.0, delta=1e-6
    )
    for size in (1.5e-162, 1e-200, 1e-30, 5e-324, 1.0):
        rows = np.zeros((3, 2))
        rows[0, 0] = size
        found = dp.check_sensitivity(plan, {"X": np.zeros((3, 2))}, data={"X": rows})
        assert not found.faults
        assert found.passed or size < 1e-30  # what is smaller may move nothing


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_linear_terms_of_a_clipped_product_are_clipped_with_it(relation):
    """A record's exponential and its linear term reach the gradient by one product."""
    rows = dp.Rows(2.0, relation=relation, records="person")
    X = dp.Private(shape=(6, 3), name="X", adjacency=rows)
    w = cp.Variable(3, name="w")
    form = form_of(cp.sum(cp.exp(X @ w) - 5 * (X @ w)))[1]
    known = derive(form, "north", lambda: Extent(-np.ones(3), np.ones(3)), clip=0.7)
    changes = 2 if relation == "replace_one" else 1
    assert known.bound(2).value == pytest.approx(0.7 * changes)
    rng, data = np.random.default_rng(0), np.zeros((6, 3))
    gradients = []
    for row in (rng.normal(size=3), np.zeros(3) if changes == 1 else -rng.normal(size=3)):
        data[2] = 2 * row / max(1.0, np.linalg.norm(row))
        bound = form.bind([data.ravel(order="F")], known.clips, limited=True)
        gradients.append(bound.gradient(np.full(3, -0.5)))
    moved = np.linalg.norm(gradients[0] - gradients[1])
    assert 0.5 * 0.7 * changes < moved <= 0.7 * changes * (1 + 1e-9)


PINBALLS = {
    "maximum": lambda r: cp.maximum(0.8 * r, -0.2 * r),
    "pos and neg": lambda r: 0.8 * cp.pos(r) + 0.2 * cp.neg(r),
    "abs and a linear term": lambda r: 0.5 * cp.abs(r) + 0.3 * r,
    "pos and a linear term": lambda r: cp.pos(r) - 0.2 * r,
}


@pytest.mark.parametrize("clip", [None, 0.7, 1.3, 1.5, 5.0])
@pytest.mark.parametrize("spelling", PINBALLS)
def test_linear_terms_beside_a_loss_count_in_each_record(spelling, clip):
    """A record moves the gradient by 0.8 times its norm, above the 0.5 of the absolute value."""
    w, rows = cp.Variable(3, name="w"), dp.Rows(2.0, records="person")
    X = dp.Private(shape=(4, 3), name="X", adjacency=rows)
    y = dp.Private(shape=4, name="y", adjacency=rows)
    form = form_of(cp.sum(PINBALLS[spelling](y - X @ w)))[1]
    names = [spec.name for spec in form.private]
    known = derive(form, "north", lambda: Extent(-np.ones(3), np.ones(3)), clip=clip)
    largest = min(1.6, clip or 1.6)
    assert known.bound(2).value == pytest.approx(2 * largest)
    assert known.near(2, np.zeros(3)) == pytest.approx(2 * largest)
    gradients = []
    for side in (1.0, -1.0):
        values = {"X": np.zeros((4, 3)), "y": np.zeros(4)}
        values["X"][1, 0], values["y"][1] = 2 * side, 2.0
        data = [values[name].ravel(order="F") for name in names]
        gradients.append(form.bind(data, known.clips, limited=True).gradient(np.zeros(3)))
    assert np.linalg.norm(gradients[0] - gradients[1]) == pytest.approx(2 * largest)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_linear_terms_keep_the_order_of_labels(clip):
    """The linear term of the first label's records precedes the loss of the second's."""
    w, parts = cp.Variable(2, name="w"), {}
    for name, size in (("X", 1.0), ("Z", 3.0)):
        rows = dp.Rows(size, records=name)
        parts[name] = dp.Private(shape=(3, 2), name=name, adjacency=rows)
    cost = cp.sum(parts["Z"] @ w) + cp.sum(cp.pos(parts["X"] @ w)) + cp.sum(cp.pos(parts["Z"] @ w))
    known = derive(form_of(cost)[1], "north", lambda: Extent(-np.ones(2), np.ones(2)), clip=clip)
    by_label = {
        known.adjacency_of(task).label: clip.atom
        for task, clip in zip(known.records, known.clips, strict=bool(known.clips))
    }
    form = known.records[0].form
    for label, atom in by_label.items():
        ((k, _),) = form.atoms[atom].args[0].G
        assert known.private[k].adjacency.label == label
    # Of Z, derivatives go from 1 to 2, and norms to 3.
    assert known.bound(2).value == pytest.approx(2 * min(6.0, clip or 6.0))
