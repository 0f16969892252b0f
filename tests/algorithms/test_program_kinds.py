"""Agents that differ in names only are compiled and bounded once; all others by themselves."""

import math
from dataclasses import asdict, dataclass, replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.algorithms.program import (
    compile_agent,
    compile_problem,
    once_per_kind,
    with_objectives,
)
from dpcvx.model.agent import Model
from dpcvx.model.canonical import public_copy
from dpcvx.model.declaration import Agent
from dpcvx.plan.agent_plan import sensitivities
from dpcvx.solvers.closed_forms import Affine
from dpcvx.solvers.conic import ConicProgram
from dpcvx.solvers.projector import Projector
from tests.forms import form_of

W = cp.Variable(2, name="w")
A = np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]])


@dataclass(frozen=True)
class Written:
    """What an agent of these tests is made of; each field matters to a plan."""

    constant: float = 2.0
    factor: float = 1.0
    radius: float = 0.1
    norm: object = "entry"
    records: bool = True
    change: str = "replace_one"
    longest: float = 1.0
    signed: bool = False
    loss: str = "logistic"
    box: float = 5.0
    clip: float | None = None
    asserted: float | None = None
    own: bool = False
    attribute: bool = False

    def agent(self, name, parameter=None):
        rows = (3, 2) if self.records else 3
        adjacency = (
            dp.Rows(self.longest, relation=self.change)
            if self.records
            else dp.Within(self.radius, self.norm)
        )
        data = dp.Private(
            shape=rows, name=f"data of {name}", adjacency=adjacency, nonneg=self.signed
        )
        constants = A.copy()
        constants[0, 1] = self.constant
        atom = {"logistic": cp.logistic, "huber": cp.huber, "square": cp.square}[self.loss]
        loss = cp.sum(atom(data @ W)) if self.records else cp.sum_squares(constants @ W - data)
        terms = [self.factor * loss, cp.sum_squares(constants @ W)]
        constraints = [cp.abs(W) <= self.box]
        if self.own:
            z = cp.Variable(1, name=f"own of {name}", nonneg=self.attribute)
            terms.append(cp.sum_squares(z - W[0]))
            constraints.append(z <= 7)
        if parameter is not None:
            terms.append(parameter * cp.sum(W))
        return dp.Agent(
            cp.Minimize(sum(terms)),
            constraints,
            name=name,
            clip_norm=self.clip if self.records else None,
            sensitivity=None if self.asserted is None else dp.Asserted(l2=self.asserted),
        )


OTHERS = {
    "one constant": {"constant": math.nextafter(2.0, 3.0)},
    "a factor": {"factor": 1.5},
    "bound of the rows": {"longest": 1.25},
    "what a change is": {"change": "add_or_remove_one"},
    "a sign": {"signed": True},
    "the loss": {"loss": "huber"},
    "the set": {"box": 4.0},
    "a clip": {"clip": 0.5},
    "a claim": {"asserted": 3.0},
    "another adjacency": {"records": False},
    "another radius": {"records": False, "radius": 0.2},
    "another norm": {"records": False, "norm": 2},
    "a variable of its own": {"own": True},
    "an attribute of a variable": {"own": True, "attribute": True},
}
# Clips and claims exclude each other, and claims are no certificates.
DRAWN = st.sampled_from([{}, *(one for key, one in OTHERS.items() if key != "a claim")])


def described(local):
    """All that plans and runs read of an agent, but for names."""
    data = local.constraints
    return (
        local.form.digest(),
        [replace(spec, name="") for spec in local.form.private],
        data.A.toarray().tobytes(),
        data.b.tobytes(),
        asdict(data.cones),
        local.start.tobytes(),
        local.shared.tolist(),
        local.slots.tolist(),
        local.clip,
        local.asserted,
        local.kernel,
        local.set_description,
    )


def alone(problem, k):
    """An agent of a problem, compiled as if there were no others of its kind."""
    slots, size = {}, 0
    for key, count in problem.holders().items():
        slots[key] = np.where(count > 1, size + np.cumsum(count > 1) - 1, -1)
        size += int((count > 1).sum())
    return compile_agent(Model(problem.names[k], problem.agents[k], slots, {}), None)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(DRAWN, DRAWN), min_size=2, max_size=5), st.integers(0, 2**31))
def test_every_agent_of_a_problem_is_what_it_is_by_itself(drawn, seed):
    written = [replace(Written(), **{**one, **other}) for one, other in drawn]
    problem = dp.Problem([one.agent(f"a{k}") for k, one in enumerate(written)])
    program = compile_problem(problem)
    found = sensitivities(program)
    x = np.random.default_rng(seed).uniform(-3, 3, 3)
    for k, local in enumerate(program.agents):
        single = alone(problem, k)
        assert described(local) == described(single)
        known, own = found[local.name], single.sensitivity()
        assert [spec.name for spec in known.private] == [f"data of a{k}"]
        for p in (1, 2):
            assert known.bound(p) == own.bound(p)
            assert known.near(p, x[: local.n]) == own.near(p, x[: local.n])
    kinds = {one.kind for one in program.agents}
    assert len(kinds) == len(set(written))


@pytest.mark.parametrize("changed", OTHERS.values(), ids=OTHERS)
def test_agents_that_differ_in_anything_share_nothing(changed):
    base = replace(Written(), records=changed.get("records", True), own=changed.get("own", False))
    if changed in ({"records": False}, {"own": True}):
        base = Written()
    one, other = base.agent("one"), replace(base, **changed).agent("other")
    first, second, third = compile_problem(dp.Problem([one, other, base.agent("two")])).agents
    assert first.kind == third.kind != second.kind
    assert first.form.derived is third.form.derived is not second.form.derived


def test_values_of_public_parameters_and_starts_tell_agents_apart():
    parameters = [cp.Parameter(value=value) for value in (1.0, 1.0, 2.0)]
    agents = [Written().agent(f"a{k}", p) for k, p in enumerate(parameters)]
    one, two, three = compile_problem(dp.Problem(agents)).agents
    assert one.kind == two.kind != three.kind
    agents = [replace(Written(), own=True).agent(f"a{k}") for k in range(3)]
    z = agents[2].variables[-1]
    one, two, three = compile_problem(dp.Problem(agents, start={z: [3.0]})).agents
    assert one.kind == two.kind != three.kind
    assert three.start[-1] == pytest.approx(3.0) and one.start[-1] == pytest.approx(0.0)


def test_a_mask_is_not_the_indices_with_its_numbers():
    """What one change does to three entries, and three times to one: sqrt(3) times as much."""
    v = cp.Variable(3, name="v")

    def agent(name, key):
        data = dp.Private(shape=3, name=f"data of {name}", adjacency=dp.Within(1.0))
        return dp.Agent(cp.Minimize(cp.sum_squares(v - data[key])), [cp.abs(v) <= 5], name=name)

    keys = np.ones(3, dtype=bool), np.ones(3, dtype=int)
    problem = dp.Problem([agent("one", keys[0]), agent("other", keys[1])])
    one, other = compile_problem(problem).agents
    assert one.kind != other.kind
    assert one.sensitivity().bound(2).value == pytest.approx(2.0)
    assert other.sensitivity().bound(2).value == pytest.approx(2 * math.sqrt(3))


def test_sharing_what_others_do_not_tells_agents_apart():
    z = cp.Variable(name="z")
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(W) + cp.square(v)), name=f"a{k}")
        for k, v in enumerate([z, z, cp.Variable(name="z of a2")])
    ]
    one, two, three = compile_problem(dp.Problem(agents)).agents
    assert one.kind == two.kind != three.kind
    assert three.shared.tolist() == [0, 1] and one.shared.tolist() == [0, 1, 2]


def test_a_model_that_is_not_a_number_is_refused_whoever_else_is_like_it():
    def agent(name, number):
        data = dp.Private(shape=2, name=f"data of {name}", adjacency=dp.Within(1.0))
        return dp.Agent(cp.Minimize(cp.sum_squares(number * W - data)), name=name)

    with pytest.raises(dp.ModelError):
        compile_problem(dp.Problem([agent("one", 1.0), agent("other", math.nan)]))


def test_what_is_derived_once_is_not_kept_by_forms_of_other_data():
    data = dp.Private(shape=(3, 2), name="data", adjacency=dp.Rows(1.0))
    _, form = form_of(cp.sum(cp.logistic(data @ W)))
    (spec,) = form.private
    twin = form.renamed([replace(spec, name="other")])
    assert twin.derived is form.derived and twin.private[0].name == "other"
    with pytest.raises(dp.DataError, match="fault of the package"):
        form.renamed([replace(spec, adjacency=dp.Rows(2.0))])
    assert replace(form, private=twin.private).derived is not form.derived


def test_plans_with_many_agents_of_a_kind_name_each_agents_own_data():
    agents = [Written().agent(f"a{k}") for k in range(4)]
    plan = dp.Problem(agents).plan(dp.LinearizedADMM(), rounds=3, epsilon=1.0, delta=1e-6)
    for k, stated in enumerate(plan.guarantee.agents):
        assert list(stated.adjacency) == [f"data of a{k}"]
        assert list(plan.accounts()[k].adjacency) == [f"data of a{k}"]


def test_plans_ask_once_per_kind():
    agents = compile_problem(dp.Problem([Written().agent(f"a{k}") for k in range(6)])).agents
    asked = []
    found = once_per_kind(agents, lambda local: asked.append(local.name) or local.name)
    assert asked == ["a0"] and found == ["a0"] * 6


def test_planning_looks_at_sets_and_convexity_once_per_kind(monkeypatch):
    looked = []
    for cls, name in ((Agent, "is_dcp"), (Projector, "extent"), (Projector, "known_extent")):
        original = getattr(cls, name)

        def spy(self, original=original, name=name):
            looked.append(name)
            return original(self)

        monkeypatch.setattr(cls, name, spy)
    counts = []
    for count in (2, 9):
        looked.clear()
        agents = [Written().agent(f"a{k}") for k in range(count)]
        dp.Problem(agents).plan(dp.FederatedGradient(), rounds=3, epsilon=1.0, delta=1e-6)
        counts.append(sorted(looked))
    assert counts[0] == counts[1] and "is_dcp" in looked and len(set(looked)) > 1


def test_each_agent_that_is_not_convex_is_named_though_it_is_looked_at_once():
    bent = [
        dp.Agent(cp.Minimize(-cp.sum_squares(W - private)), [cp.abs(W) <= 1], name=private.name())
        for private in (dp.Private(shape=2, name=n, adjacency=dp.Within(0.1)) for n in "abc")
    ]
    agents = [Written().agent("d"), *bent]
    plan = dp.Problem(agents).plan(dp.FederatedAveraging(), rounds=3, epsilon=1.0, delta=1e-6)
    assert "objectives of 'a', 'b' and 'c' are not convex" in plan.remarks


def apart_in_a_matrix(cost, sets):
    """Two agents with other public numbers in their costs, and these sets."""
    rng, agents = np.random.default_rng(0), []
    for k, limits in enumerate(sets):
        d = dp.Private(rng.normal(size=2), name=f"d{k}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cost(rng, d)), limits, name=f"a{k}"))
    return dp.Problem(agents)


def test_equal_sets_of_other_agents_are_compiled_once():
    def cost(rng, d):
        return cp.sum_squares(rng.normal(size=(2, 2)) @ W - d)

    problem = apart_in_a_matrix(cost, [[W >= 0], [W >= 0], [W >= 1]])
    first, second, third = (local.constraints for local in compile_problem(problem).agents)
    assert first is second and first is not third
    assert [third.b.min(), first.b.min()] == [-1.0, 0.0]


@pytest.mark.parametrize("scale", [1.0, np.array([0.5, 3.0])])
def test_separable_squares_are_compiled_as_cvxpy_does(scale):
    def cost(rng, d):
        squares = cp.sum(cp.multiply(scale, cp.square(2 * W + 1 - d)))
        return squares + rng.normal(size=2) @ W

    problem = apart_in_a_matrix(cost, [[W >= -0.3, cp.norm(W) <= 2]] * 2)
    program = with_objectives(problem, compile_problem(problem))
    for local, agent in zip(program.agents, problem.agents, strict=True):
        assert local.exact is not None
        assert local.exact.A.shape[1] == local.constraints.A.shape[1]  # no auxiliary columns
        found = ConicProgram(local.exact).solve(np.zeros(2), np.zeros(2), np.zeros(2)).x
        cost = public_copy(agent.cost, agent.cost.parameters())
        cp.Problem(cp.Minimize(cost), agent.constraints).solve(cp.CLARABEL)
        assert found == pytest.approx(W.value, abs=1e-5)  # Clarabel's default accuracy


@pytest.mark.parametrize(
    "square", [lambda: cp.sum_squares(A @ W), lambda: cp.square(W[0]) + cp.norm1(W)]
)
def test_other_objectives_are_left_to_cvxpy(square):
    problem = apart_in_a_matrix(lambda rng, d: square() + d @ W, [[W >= 0]] * 2)
    program = with_objectives(problem, compile_problem(problem, proximal=False))
    for local in program.agents:
        assert local.exact is not None
        assert local.exact.A.shape[1] > local.constraints.A.shape[1]


def test_agents_with_one_set_share_its_parts_and_no_factors():
    n, rng = 4, np.random.default_rng(0)
    x, rows = cp.Variable(n, name="x"), rng.normal(size=(2, n))
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(rng.normal(size=(n, n)) @ x)), [rows @ x == 1])
        for _ in range(2)
    ]
    first, second = compile_problem(dp.Problem(agents)).agents
    assert first.blocks is second.blocks and first.kind != second.kind
    # Factors of linear equalities belong to the last weights of one projector.
    v, ours, others = rng.normal(size=n), first.projector(), second.projector()
    weights = rng.uniform(1, 2, size=(2, n))
    alone = [first.projector()(v, D).x for D in weights]
    mixed = [ours(v, weights[0]).x, others(v, weights[1]).x, ours(v, weights[0]).x]
    for found, expected in zip(mixed, [*alone, alone[0]], strict=True):
        assert np.array_equal(found, expected)
    forms = [projector._blocks[0][1] for projector in (ours, others)]
    assert isinstance(forms[0], Affine) and forms[0] is not forms[1]
