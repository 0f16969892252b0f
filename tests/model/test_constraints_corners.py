"""Constraints at unsafe corners: brute force over data and decisions, and how often they hold."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.written_model import put
from dpcvx.model.constraints import at_corner, corner_constraint

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
x = cp.Variable(3, name="x", pos=True)


def data(**kinds):
    kinds = kinds or {"bounds": (0.1, 5.0)}
    inside = np.full(3, np.mean(kinds["bounds"]))
    return dp.Private(inside, name="d", adjacency=dp.Within(0.1), **kinds)


d = data()
free = data(bounds=(-2.0, 2.0))
low = data(bounds=(-3.0, -0.2))
matrix = dp.Private(np.ones((3, 3)), name="M", adjacency=dp.Within(0.1), bounds=(0.2, 3.0))
mirrored = dp.Private(
    np.ones((3, 3)), name="S", adjacency=dp.Within(0.1), bounds=(0.2, 3.0), symmetric=True
)
# Constraints by name; what they need of the data's largest (+) and smallest (-) values.
CORNERS = {
    "posynomial": (2 * (x[0] * x[1] + x[0] * x[2]) <= d[0], "-"),
    "quotients": (d[1] / (x[0] * d[0]) + x[1] * d[2] <= x[2], "+-"),
    "powers": (x[0] ** 0.5 * d[0] ** -1.5 + d[1] ** 2 <= x[1] * d[2] ** 0.5, "+-"),
    "entries of a matrix": ((matrix[0, 1] * x[1] + 0.1) / (matrix[0, 0] * x[0]) <= 0.5, "+-"),
    "a symmetric matrix": (mirrored[0, 1] * x[1] <= mirrored[1, 1] * x[0], "+-"),
    "a product of matrices": (matrix @ x <= cp.multiply(d, x), "+-"),
    "squares": (cp.square(d) <= x, "+"),
    "a square of negative data": (cp.square(low) <= x, "-"),
    "exponentials": (cp.sum(cp.exp(free - x)) + cp.max(free) <= 3, "+"),
    "logarithms": (cp.sum(cp.log(d)) >= cp.norm(x), "-"),
    "rates": (cp.log(1 + cp.multiply(d, x)) >= cp.inv_pos(d), "-"),
    "an inverse": (x[0] / d[0] + cp.inv_pos(d[1]) <= 2, "-"),
    "two private objects": (cp.multiply(cp.sqrt(d), matrix[0, :]) >= x - free, "-"),
    "entropies of relative size": (cp.geo_mean(d) >= cp.log_sum_exp(x - d), "-"),
    "running sums": (cp.cumsum(cp.exp(d)) <= x[::-1], "+"),
    "largest of all": (cp.sum_largest(cp.exp(free), 2) - cp.min(x + free) <= 0, "+-"),
}


@pytest.mark.parametrize("norm", ["entry", 1, 2, "inf"])
def test_corner_of_a_symmetric_matrix_names_the_entries_that_the_constraint_reads(norm):
    """Stored entries off the diagonal may be scaled; their numbers must not be."""
    kinds = {"nonneg": True, "symmetric": True}
    S = dp.Private(shape=(3, 3), name="S", adjacency=dp.Within(0.1, norm), **kinds)
    product = cp.multiply(S[0, 1], S[1, 2]) <= x[0]
    corner = corner_constraint(product, {S: S.spec}, 0, "shop")
    stored = [*zip(*np.triu_indices(3), strict=True)]
    assert [stored[k] for k in corner.above] == [(0, 1), (1, 2)]
    assert not corner.below.size


scale = dp.Private(2.0, name="e", adjacency=dp.Within(0.1), bounds=(1.0, 3.0))


@pytest.mark.parametrize(
    "constraint",
    [
        cp.power(free, 6) <= x,
        cp.power(free, -2) >= x,
        cp.inv_pos(free) <= x,
        cp.xexp(low) <= x,
        cp.cumprod(low) <= x,
        cp.quad_over_lin(x, free[0]) <= 1,
        x[0] / free[0] <= 1,
        cp.pf_eigenvalue(cp.diag(low)) <= x[0],
        cp.power(x, scale) <= 2,
        cp.huber(x, scale) <= 2,
    ],
    ids=str,
)
def test_corners_of_unknown_monotonicity_are_refused(constraint):
    """Some atoms have values outside their domains; exponents and thresholds are no arguments."""
    assert corner_constraint(constraint, specs_of(constraint), 0, "shop") is None


def specs_of(constraint):
    return {p: p.spec for p in constraint.parameters() if isinstance(p, dp.Private)}


@pytest.mark.parametrize("name", CORNERS)
@pytest.mark.parametrize("seed", range(5))
def test_no_data_in_the_box_are_worse_than_the_corner(name, seed):
    """For random decisions, boxes and data: left minus right is largest at the corner."""
    constraint, sides = CORNERS[name]
    specs, r = specs_of(constraint), np.random.default_rng(seed)
    corner = corner_constraint(constraint, specs, 3, "shop")
    assert corner.what == "Constraint 3 of agent 'shop'" and corner.position == 3
    assert ("+" in sides, "-" in sides) == (corner.above.size > 0, corner.below.size > 0)
    ends = []
    for spec in specs.values():
        both = np.sort(r.uniform(*spec.interval, (2, spec.size)), axis=0)
        ends.append((spec.shaped(both[0]), spec.shaped(both[1])))
    at_end = at_corner(constraint, list(specs), [a for a, _ in ends], [b for _, b in ends])
    for _ in range(20):
        point = {id(x): cp.Constant(r.uniform(0.1, 4, 3))}
        worst = excess(at_end, point)
        for _ in range(5):
            weights = [
                spec.shaped(r.choice([0, 1, r.random()], spec.size)) for spec in specs.values()
            ]
            inside = {
                id(p): cp.Constant(a + w * (b - a))
                for p, (a, b), w in zip(specs, ends, weights, strict=True)
            }
            assert np.all(excess(constraint, point | inside) <= worst + 1e-9 * (1 + np.abs(worst)))


def excess(constraint, places):
    copy = put(constraint, places)
    return np.asarray(copy.args[0].value - copy.args[1].value)


@pytest.mark.parametrize("seed", range(5))
def test_only_used_sides_of_entries_matter(seed):
    """Data beyond an unused side of the box break nothing: moving it changes no corner."""
    r = np.random.default_rng(seed)
    for constraint, _ in CORNERS.values():
        specs = specs_of(constraint)
        corner = corner_constraint(constraint, specs, 0, "shop")
        size = sum(spec.size for spec in specs.values())
        lower, upper = np.full(size, 0.5), np.full(size, 1.5)
        if any(p is low for p in specs):
            lower, upper = -upper, -lower
        moved = [lower.copy(), upper.copy()]
        for side, used in zip(moved, (corner.below, corner.above), strict=True):
            unused = np.setdiff1d(np.arange(size), used)
            side[unused] *= r.uniform(0.5, 1.5, unused.size)
        point = {id(x): cp.Constant(r.uniform(0.1, 4, 3))}
        ends = np.cumsum([spec.size for spec in specs.values()])[:-1]

        def at(pair, constraint=constraint, specs=specs, ends=ends, point=point):
            shaped = [
                [
                    spec.shaped(part)
                    for spec, part in zip(specs.values(), np.split(c, ends), strict=True)
                ]
                for c in pair
            ]
            return excess(at_corner(constraint, list(specs), *shaped), point)

        assert at(moved) == pytest.approx(at((lower, upper)))


@pytest.mark.parametrize(
    "constraint",
    [
        x == d,
        cp.square(free) <= x,
        cp.abs(free - x) <= 1,
        cp.entr(d) >= x,
        free @ free <= cp.sum(x),
        x[0] / free[0] <= 1,
        cp.norm(d - x) <= 1,
        cp.SOC(x[0], d),
    ],
    ids=str,
)
def test_what_neither_rises_nor_falls_has_no_corner(constraint):
    assert corner_constraint(constraint, specs_of(constraint), 0, "shop") is None


def box_of_paper(violation, epsilon=1.0, **how):
    h, w, depth = (cp.Variable(pos=True, name=name) for name in "hwd")
    wall = dp.Private(200.0, name="wall", adjacency=dp.Within(2.0), bounds=(1.0, 400.0))
    limits = [2 * (h * w + h * depth) <= wall, w * depth <= 50, h / w <= 2, h / w >= 0.5]
    limits += [depth / w <= 2]
    problem = dp.Problem([dp.Agent(cp.Maximize(h * w * depth), limits, name="shop")])
    method = dp.OneShot(gp=True)
    return problem, problem.plan(
        method, violation_probability=violation, epsilon=epsilon, delta=1e-6, **how
    )


def broken(problem, plan, runs):
    decided = [plan.run(seed=seed).solution for seed in range(runs)]
    return sum(dp.not_private.violation(problem, solution) > 1e-4 for solution in decided)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_geometric_program_keeps_its_constraint_as_often_as_promised(mechanism):
    problem, plan = box_of_paper(0.25, mechanism=mechanism)
    assert "holds for all data within" in str(plan)
    assert "with probability at most 0.25" in " ".join(str(plan.guarantee).split())
    count = broken(problem, plan, 40)
    # One entry on one side: broken in a quarter of the runs. Both ends have a chance of 1 in 1000.
    assert 2 <= count <= 20


def test_truncated_noise_keeps_it_in_every_run():
    problem, plan = box_of_paper(0)
    assert broken(problem, plan, 20) == 0


def test_the_price_of_a_margin_falls_with_epsilon():
    best = [box_of_paper(0.1, epsilon)[1].run(seed=1).solution for epsilon in (1.0, 100.0)]
    volumes = [float(s["h"] * s["w"] * s["d"]) for s in best]
    assert volumes[0] < volumes[1] <= 353.56


def test_functions_of_data_and_linear_rows_share_the_probability():
    """`y >= d * d` has a corner; `sum(y) >= sum(d)` has the margin of a linear row."""
    need = dp.Private([1.0, 2.0], name="need", adjacency=dp.Within(0.02), bounds=(0.0, 5.0))
    y = cp.Variable(2, name="y", nonneg=True)
    limits = [y >= cp.multiply(need, need), cp.sum(y) >= 4 * cp.sum(need)]
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(y)), limits, name="shop")])
    plan = problem.plan(violation_probability=0.3, **BUDGET)
    assert len(plan.program.kept) == len(plan.program.corners) == 1
    text = " ".join(str(plan).split())
    assert "Constraint 0 of agent 'shop': holds for all data within" in text
    assert "Constraint 1 of agent 'shop': margin" in text
    assert 1 <= broken(problem, plan, 40) <= 22


def test_a_price_allows_slack_at_a_corner():
    need = dp.Private([1.0, 2.0], name="need", adjacency=dp.Within(0.02), bounds=(0.0, 5.0))
    y = cp.Variable(2, name="y", nonneg=True)
    limits = [y >= cp.multiply(need, need), y <= 3]
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum(y)), limits, name="shop")])
    firm = problem.plan(violation_probability=0.1, **BUDGET).run(seed=0)
    assert firm.status is dp.Status.INFEASIBLE and "leave no room" in str(firm)
    paid = problem.plan(violation_probability=0.1, slack_penalty=5.0, **BUDGET).run(seed=0)
    (slack,) = paid.constraint_slack.values()
    assert paid.status.solved and slack[1] > 0.9
    assert not dp.not_private.breaks(problem, paid.solution, paid.constraint_slack)
    assert dp.not_private.breaks(problem, paid.solution, {})


def test_margins_are_refused_for_what_no_rule_covers():
    problem, _ = box_of_paper(0.1)
    with pytest.raises(dp.PrivacyError, match="not for Staircase noise"):
        box_of_paper(0.1, mechanism="staircase")
    ratio = dp.Private(2.0, name="ratio", adjacency=dp.Within(0.1), bounds=(0.5, 4.0))
    tree = cp.eye_minus_inv(cp.bmat([[x[0], ratio], [x[1], 0.1]]))[0, 0] <= 2
    problem = dp.Problem([dp.Agent(cp.Minimize(x[0] / x[1] + x[1]), [tree], name="shop")])
    with pytest.raises(dp.PrivacyError, match="rise or fall"):
        problem.plan(dp.OneShot(gp=True), violation_probability=0.1, **BUDGET)
