"""Plans from complete requests: derived whoever proposed them, and refused beyond their budget."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.defaults.proposal import propose
from dpcvx.plan.draft import make_terms
from dpcvx.plan.request import Request
from dpcvx.plan.terms import Terms
from dpcvx.sensitivity.release_once import Once


def problem():
    """One agent whose data can leave once."""
    x, d = cp.Variable(2, name="x"), dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 2])])


def complete(release="once"):
    """Its problem, and a request with nothing open."""
    made = problem()
    request = Request(
        algorithm=dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=5, release=release
    )
    return made, propose(made, request).request


def asking(request, **changes):
    """The request with something else for its one agent."""
    return replace(request, agents=[replace(request.agents[0], **changes)])


@pytest.mark.parametrize("release", ["once", "each_step"])
def test_a_complete_request_needs_no_defaults(release):
    made, request = complete(release)
    plan = make_terms(Terms, made, request)
    same = made.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=5, release=release)
    assert plan.fingerprint == same.fingerprint
    assert plan.guarantee == same.guarantee and plan.agents[0].noise == same.agents[0].noise


@pytest.mark.parametrize("release", ["once", "each_step"])
def test_a_plan_names_the_request_of_each_agent(release):
    made, request = complete(release)
    plan = make_terms(Terms, made, request)
    for agent, asked in zip(plan.agents, request.agents, strict=True):
        assert agent.request.multiplier == asked.multiplier
        assert agent.request.estimates == asked.estimates
        assert (agent.request.once is None) == (asked.once is None) == (release != "once")
        if asked.once is not None:
            assert agent.request.once.kind == asked.once.kind
    again = make_terms(Terms, made, replace(request, agents=[a.request for a in plan.agents]))
    assert again.fingerprint == plan.fingerprint and again.guarantee == plan.guarantee


def test_less_noise_than_the_budget_allows_is_refused():
    made, request = complete()
    half = [replace(agent, multiplier=agent.multiplier / 2) for agent in request.agents]
    with pytest.raises(dp.PrivacyError, match="more than epsilon=1"):
        make_terms(Terms, made, replace(request, agents=half))


@pytest.mark.parametrize("multiplier", [None, 0.0, -1.0, np.inf, np.nan])
def test_noise_without_a_multiplier_is_refused(multiplier):
    made, request = complete()
    with pytest.raises(dp.PrivacyError, match="noise does not have"):
        make_terms(Terms, made, asking(request, multiplier=multiplier))


@pytest.mark.parametrize(
    "once", [None, Once("second moments", None, None), Once("slope", np.array([1.0, -1.0]), None)]
)
def test_a_statistic_without_a_bound_is_refused(once):
    made, request = complete()
    with pytest.raises(dp.PrivacyError, match="release"):
        make_terms(Terms, made, asking(request, once=once, estimates=()))


def test_the_sensitivity_of_another_statistic_is_derived_anew():
    made, request = complete()
    for weights in (np.array([1.0, 1.0]), np.array([1.0, 5.0])):
        once = Once("slope", weights, None)
        agent = make_terms(Terms, made, asking(request, once=once, estimates=())).agents[0]
        # The slope of |x - d|^2 moves by twice the change of one entry.
        assert agent.publication.sensitivity == pytest.approx(0.2 * weights.max(), rel=1e-6)


def test_a_group_with_different_multipliers_is_refused():
    x, agents = cp.Variable(2, name="x"), []
    for k in range(2):
        d = dp.Private(np.ones(2), name=f"d{k}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 2], name=f"a{k}"))
    made = dp.Problem(agents, groups=[agents])
    asked = Request(
        algorithm=dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=3, release="each_step"
    )
    request = propose(made, asked).request
    first, second = request.agents
    for factor in (0.55, 1.7):
        other = replace(second, multiplier=factor * second.multiplier)
        with pytest.raises(dp.PrivacyError, match="'a0' and 'a1' form a group"):
            make_terms(Terms, made, replace(request, agents=[first, other]))
