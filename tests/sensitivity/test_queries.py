"""A question and a method of an author's own, in one file: the package knows neither."""

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.base import Requirements
from dpcvx.algorithms.on_networks import shared
from dpcvx.extend import rounding_floor
from dpcvx.sensitivity.queries.gradients import Gradient, Step
from dpcvx.sensitivity.queries.query import UNPROVED, Query


@dataclass(frozen=True, eq=False)
class Slope(Query):
    """How fast the objective falls along a public direction: one number.

    Attributes
    ----------
    x, direction : ndarray, shape (n,)
    """

    x: np.ndarray
    direction: np.ndarray

    released = "slope"

    def size(self, n):
        return 1

    def bound(self, known):
        return float(np.linalg.norm(self.direction)) * known.gradient_bound(self.x, p=2)

    def floor(self, known):
        return rounding_floor(known.public_gradient(self.x))

    def evaluate(self, objective):
        return np.array([objective.gradient(self.x) @ self.direction])


@dataclass(frozen=True, eq=False)
class Doubtful(Slope):
    """The same with a bound that is too small, which `dp.check_sensitivity` has to find."""

    def bound(self, known):
        return 0.02 * super().bound(known)


@dataclass(frozen=True, eq=False)
class Doubled(Gradient):
    """A gradient whose answer a user changed, next to the bound of the package."""

    released = "doubled gradient"

    def evaluate(self, objective):
        return 2 * super().evaluate(objective)


@dataclass(frozen=True, eq=False)
class Constant(Slope):
    """A query whose bound denies that its answer depends on the data."""

    def bound(self, known):
        return 0.0


@dataclass(frozen=True)
class DirectionalDescent(dp.DecentralizedGradient):
    """Steps along one public direction per round, by the slope of the objective there."""

    query: type = Slope

    @property
    def requirements(self):
        return Requirements(convex=True, exact=False, releases=1, queries=(self.query,))

    def act(self, local, state, t, k, message, oracle):
        direction = np.zeros(state.x.size)
        direction[(t - 1) % direction.size] = 1.0
        (slope,) = oracle.release(self.query(state.x, direction))
        mean = np.vstack([message.values, shared(state.x, local.program)]).mean(axis=0)
        v = state.x.copy()
        v[local.program.shared] = mean[local.program.slots]
        found = local.projector(v - self.step.eta(t) * slope * direction, np.ones(v.size))
        n = state.turns + 1
        after = replace(
            state, x=found.x, average=state.average + (found.x - state.average) / n, turns=n
        )
        return after, shared(after.x, local.program)


METHOD = DirectionalDescent("complete", dp.steps.Constant(0.02))
GAUSS, LAPLACE = dp.Gaussian(noise_multiplier=20.0), dp.Laplace(release_epsilon=0.05)
mechanisms = pytest.mark.parametrize("mechanism", [GAUSS, LAPLACE], ids=str)


def problem():
    """Three agents estimate a vector from readings, each of which may change by 0.01."""
    x = cp.Variable(2, name="x")
    A = np.array([[1.0, 0.4], [0.0, 1.0], [-0.7, 0.2]])
    agents = []
    for k in range(3):
        d = dp.Private(
            np.sin(1.0 + k + np.arange(3)), name=f"readings {k}", adjacency=dp.Within(0.01)
        )
        cost = cp.sum_squares(A @ x - d) + 0.1 * cp.sum_squares(x)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 2], name=f"sensor {k}"))
    return dp.Problem(agents)


def planned(method=METHOD, mechanism=GAUSS, rounds=8, **arguments):
    delta = None if mechanism is None else 1e-6
    return problem().plan(method, mechanism=mechanism, rounds=rounds, delta=delta, **arguments)


def vectors(result):
    return [*result.last.vectors, *result.average.vectors]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(vectors(one), vectors(other), strict=True))


@mechanisms
def test_its_answers_are_charged_by_its_own_bound_and_named_by_it(mechanism):
    plan = planned(mechanism=mechanism)
    result = plan.run(seed=1, record=True)
    assert "times the sensitivity of the slope" in plan.guarantee.agents[0].noise
    for agent, account in zip(plan.agents, result.ledger.values(), strict=True):
        assert [e.released for e in account.entries] == ["slope"] * 8
        assert {e.certificate for e in account.entries} == {"asserted"}
        l2 = agent.sensitivity.l2
        assert all(l2 <= e.sensitivity <= l2 + e.grid for e in account.entries)
    assert {r.value.shape for r in result.transcript.releases} == {(1,)}
    assert result.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-9)


@pytest.mark.parametrize("query, named", [(Slope, "Slope"), (Doubled, "Doubled"), (Gradient, "")])
def test_a_guarantee_names_the_query_whose_bound_the_package_does_not_prove(query, named):
    guarantee = planned(replace(METHOD, query=query)).guarantee
    kinds = {agent.certificate for agent in guarantee.agents}
    assert (guarantee.kind, kinds) == (
        ("asserted", {"asserted"}) if named else ("worst-case", {"derived"})
    )
    claims = [text for text in guarantee.assumptions if "nothing in the package proves it" in text]
    assert claims == ([UNPROVED.format(named)] if named else [])


def test_a_bound_of_zero_for_an_answer_that_matters_is_refused_by_name():
    plan = planned(replace(METHOD, query=Constant))
    with pytest.raises(dp.PrivacyError, match=r"Constant\.bound returned 0 for agent .*`matters`"):
        plan.run(seed=1)


@mechanisms
def test_its_runs_are_replayed_and_resumed(mechanism, tmp_path):
    plan = planned(mechanism=mechanism)
    result = plan.run(seed=2, record=True)
    assert same(result, plan.replay(result.transcript))
    kept = plan.run(seed=2, ledger=tmp_path / "ledger")
    assert same(result, kept) and same(result, plan.replay(tmp_path / "ledger"))
    assert not same(result, plan.run(seed=3))


@mechanisms
def test_its_bound_is_checked_on_neighbors_and_by_attack(mechanism):
    found = dp.check_sensitivity(planned(mechanism=mechanism))
    assert found.passed and all(0.05 < agent.ratio <= 1 for agent in found.agents)
    assert dp.audit(planned(mechanism=mechanism, rounds=2), runs=20).passed


def test_a_bound_that_is_too_small_is_found():
    found = dp.check_sensitivity(planned(replace(METHOD, query=Doubtful)))
    assert any("the ledger was charged a sensitivity" in fault for fault in found.faults)


def test_it_needs_no_noise_and_takes_public_data():
    exact = planned(mechanism=None).run(record=True)
    assert same(exact, planned(mechanism=None).replay(exact.transcript))
    once = planned(release="once", mechanism=dp.Gaussian(noise_multiplier=1e-6)).run(seed=1)
    for one, other in zip(exact.last.vectors, once.last.vectors, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


@dataclass(frozen=True)
class Undeclared(DirectionalDescent):
    """Asks what the plan did not check."""

    @property
    def requirements(self):
        return replace(super().requirements, queries=(Doubtful,))


def test_what_its_requirements_do_not_name_is_not_answered():
    with pytest.raises(dp.PrivacyError, match=r"received a Slope.*Requirements\(queries=\.\.\.\)"):
        planned(Undeclared("complete", dp.steps.Constant(0.02))).run(seed=1)


@dataclass(frozen=True, eq=False)
class Talkative(Slope):
    """Its error quotes the exact gradient."""

    error: ClassVar[type] = ValueError

    def evaluate(self, objective):
        raise self.error(f"the gradient is {objective.gradient(self.x)}")


@pytest.mark.parametrize("error", [ValueError, dp.ModelError, dp.PrivacyError, dp.DataError])
def test_what_its_errors_say_stays_inside(error):
    own = type("Own", (Talkative,), {"error": error})
    with pytest.raises(dp.PrivacyError, match=f"failed with {error.__name__}") as caught:
        planned(replace(METHOD, query=own)).run(seed=1)
    assert "gradient is" not in str(caught.value)


@dataclass(frozen=True, eq=False)
class Warner(Slope):
    """Its warning quotes the exact gradient."""

    def evaluate(self, objective):
        warnings.warn(f"the gradient is {objective.gradient(self.x)}", stacklevel=1)
        return super().evaluate(objective)


def test_what_it_warns_of_stays_inside(recwarn):
    warnings.simplefilter("always")
    planned(replace(METHOD, query=Warner)).run(seed=1)
    assert not recwarn.list


@dataclass(frozen=True)
class Restarting(DirectionalDescent):
    """Begins a round again, for the same noise on another answer."""

    def act(self, local, state, t, k, message, oracle):
        answer = super().act(local, state, t, k, message, oracle)
        oracle.begin(t)
        return answer


def test_a_method_cannot_draw_the_noise_of_a_round_twice():
    with pytest.raises(dp.PrivacyError, match="may not be drawn twice"):
        planned(Restarting("complete", dp.steps.Constant(0.02))).run(seed=1)


@dataclass(frozen=True, eq=False)
class InPlace(Gradient):
    """Computes on what it was given."""

    def evaluate(self, objective):
        g = objective.apart(self.x)
        g *= 2
        return g


@dataclass(frozen=True)
class InPlaceDescent(DirectionalDescent):
    """Asks for it."""

    def act(self, local, state, t, k, message, oracle):
        oracle.release(self.query(state.x))
        return state, shared(state.x, local.program)


def test_the_private_part_of_a_gradient_cannot_be_changed_in_place():
    with pytest.raises(dp.PrivacyError, match="failed with ValueError"):
        planned(InPlaceDescent("complete", dp.steps.Constant(0.02), query=InPlace)).run(seed=1)


@pytest.mark.parametrize("only", [[0, 0], [0, -2], [2], [-1]])
def test_a_component_leaves_once(only):
    with pytest.raises(dp.ModelError, match=r"Step\(only=\.\.\.\) must name components"):
        Step(np.zeros(2), np.zeros(2), 0.1, np.array(only))
    assert Step(np.zeros(2), np.zeros(2), 0.1, np.array([1, 0])).size(2) == 2


def test_a_query_without_a_word_for_its_answer_is_refused():
    with pytest.raises(TypeError, match="Query Mute needs released = '...'"):
        type("Mute", (Query,), {"evaluate": lambda self, objective: objective.gradient(0)})
