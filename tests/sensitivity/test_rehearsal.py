"""Sensitivities that made-up data contradict are refused, and no others."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
import dpcvx.model.quadratic
from dpcvx.model.normal_form import Clip
from dpcvx.sensitivity.certificate import Sensitivity
from tests import spies

GAUSS = dp.Gaussian()


def planned(objective, *, mechanism=GAUSS, **agent):
    agent = dp.Agent(cp.Minimize(objective), [cp.norm(x, np.inf) <= 1], name="north", **agent)
    return dp.Problem([agent]).plan(
        dp.LinearizedADMM(), mechanism=mechanism, epsilon=1.0, delta=1e-6, rounds=2
    )


x = cp.Variable(3, name="x")


def usage():
    return dp.Private(np.ones(3), adjacency=dp.Within(0.1), name="usage")


def people(change="replace_one"):
    return dp.Private(np.eye(3), adjacency=dp.Rows(1.0, relation=change), name="people")


MODELS = {
    "affine": lambda: cp.sum_squares(x - usage()),
    "records": lambda: cp.sum(cp.logistic(people() @ x)),
    "both": lambda: (
        cp.sum(cp.logistic(people("add_or_remove_one") @ x)) + cp.sum_squares(x - usage())
    ),
}
models = pytest.mark.parametrize("name", MODELS)
noise = pytest.mark.parametrize("mechanism", [GAUSS, dp.Laplace()])


@models
@noise
def test_right_sensitivities_pass(name, mechanism):
    assert planned(MODELS[name](), mechanism=mechanism).agents[0].sensitivity.l2 > 0


@noise
@pytest.mark.parametrize("name", ["affine", "both"])
def test_a_wrong_jacobian_is_refused(name, mechanism, monkeypatch):
    """One of three columns is lost."""
    cross = dpcvx.model.quadratic.cross

    def lossy(form, parts, k):
        return sp.csr_array(cross(form, parts, k) @ np.diag([1.0, 1.0, 0.0]))

    monkeypatch.setattr("dpcvx.sensitivity.derivation.cross", lossy)
    with pytest.raises(dp.PrivacyError, match="Internal error: the sensitivity .* 'usage'"):
        planned(MODELS[name](), mechanism=mechanism)


@noise
@pytest.mark.parametrize("name", ["records", "both"])
def test_a_bound_of_records_that_is_too_small_is_refused(name, mechanism, monkeypatch):
    def fifty_times_smaller(bound):
        return lambda *arguments, **named: bound(*arguments, **named) / 50

    for bound in ("record_change", "largest_change"):
        monkeypatch.setattr(Sensitivity, bound, fifty_times_smaller(getattr(Sensitivity, bound)))
    with pytest.raises(dp.PrivacyError, match="wrong. On made-up data its gradient moves by"):
        planned(MODELS[name](), mechanism=mechanism)


def emptied(M, finite):
    """Positive and negative entries, without zeros in the matrix's own index arrays."""
    own = [np.maximum(M.data, 0.0), np.minimum(M.data, 0.0)]
    parts = [sp.csr_array((values, M.indices, M.indptr), shape=M.shape) for values in own]
    for part in parts:
        part.eliminate_zeros()
    return parts


@pytest.mark.parametrize("name", ["records", "both"])
def test_a_derivation_that_empties_the_model_is_refused(name, monkeypatch):
    """As one did with a scipy before 1.16, whose parts of one sign share index arrays."""
    spies.change(monkeypatch, "intervals by sign", emptied)
    with pytest.raises(dp.PrivacyError, match=r"derived sensitivity is 0|Internal error"):
        planned(MODELS[name]())


def test_claims_are_not_rehearsed():
    small = dp.Asserted(l2=1e-9)
    assert planned(MODELS["both"](), sensitivity=small).guarantee.kind == "asserted"


def test_clipped_records_with_public_columns_pass():
    """Records of zeros contribute as well there, and are clipped on both sides."""
    features = cp.hstack([people(), np.full((3, 1), 5.0)])
    w = cp.Variable(4)
    agent = dp.Agent(
        cp.Minimize(cp.sum(cp.logistic(features @ w))), [cp.abs(w) <= 1], clip_norm=0.1
    )
    plan = dp.Problem([agent]).plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=2)
    assert plan.agents[0].sensitivity.l2 == pytest.approx(0.2)


@noise
def test_clips_that_shorten_too_little_are_refused(mechanism, monkeypatch):
    """However long the clip is next to what made-up records contribute where plans start."""
    scaled = Clip.scaled
    monkeypatch.setattr(Clip, "scaled", lambda clip, lengths, g: scaled(clip, lengths / 9, g))
    with pytest.raises(dp.PrivacyError, match="wrong. On made-up data its gradient moves by"):
        planned(MODELS["records"](), mechanism=mechanism, clip_norm=2.0)


def test_terms_without_a_gradient_away_from_the_start_pass():
    """The point that is tried first lies outside the logarithm's domain."""
    t = cp.Variable(name="t")
    d = dp.Private(1.0, adjacency=dp.Within(0.1), name="d")
    agent = dp.Agent(cp.Minimize(cp.square(t - d) - cp.log(0.5 - t)), [t <= 0.4], name="north")
    assert dp.Problem([agent]).plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=2).noisy


@pytest.mark.parametrize("offset", [1e9, 1e17])
def test_large_public_numbers_are_no_contradiction(offset):
    objective = cp.sum_squares(x - usage() - offset) + 2 * offset * cp.sum(x)
    assert planned(objective).agents[0].sensitivity.l2 == pytest.approx(0.2)
