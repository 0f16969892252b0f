"""`check_sensitivity` finds the phases at which complex data move what is released most."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model.adjacency import ComplexWithin
from dpcvx.testing.worst_neighbor import _worst_change

KINDS = [(norm, hermitian) for norm in ("entry", 1, 2, "inf") for hermitian in (False, True)]


def declared(norm, hermitian):
    rng = np.random.default_rng(0)
    shape = (2, 2) if hermitian else (2,)
    data = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    kinds = {"hermitian": True} if hermitian else {"complex": True}
    data = (data + data.conj().T) / 2 if hermitian else data
    return dp.Private(data, adjacency=dp.Within(0.1, norm), name="d", **kinds)


def planned(norm, hermitian, mechanism):
    d = declared(norm, hermitian)
    X = cp.Variable(d.shape, name="X", complex=True)
    agent = dp.Agent(cp.Minimize(cp.sum_squares(X - d)), name="north")
    return dp.Problem([agent]).plan(dp.OneShot(), epsilon=50, delta=1e-6, mechanism=mechanism)


@pytest.mark.parametrize(
    ("norm", "hermitian", "mechanism"),
    [("entry", False, "laplace"), ("inf", True, "laplace"), ("inf", False, "gaussian")],
)
def test_neighbors_of_complex_data_reach_the_bound_and_show_a_fault(
    norm, hermitian, mechanism, monkeypatch
):
    (agent,) = dp.check_sensitivity(planned(norm, hermitian, mechanism)).agents
    assert 0.999 < agent.ratio <= 1.0
    reach = ComplexWithin.reach
    monkeypatch.setattr(ComplexWithin, "reach", lambda *a: reach(*a) / 1.5)
    faulty = dp.check_sensitivity(planned(norm, hermitian, mechanism))
    assert faulty.status == "failed" and "sensitivity of" in faulty.faults[0]


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(("norm", "hermitian"), KINDS)
def test_a_worst_change_is_allowed_and_beats_random_ones(norm, hermitian, p):
    rng = np.random.default_rng(1)
    spec = declared(norm, hermitian).spec
    J = rng.normal(size=(5, spec.size))
    change = _worst_change(sp.csr_array(J), spec, p)
    moved = np.linalg.norm(J @ change, p)
    zero = np.zeros(spec.shape)
    assert spec.adjacency.allows(spec.shaped(change), zero)
    for _ in range(200):
        other = rng.normal(size=spec.shape) + 1j * rng.normal(size=spec.shape)
        if norm in ("entry", 1):
            other = other * (np.arange(other.size) == rng.integers(other.size)).reshape(spec.shape)
        other = (other + other.conj().T) / 2 if hermitian else other
        size = np.linalg.norm(np.ravel(other), np.inf if norm == "entry" else float(norm))
        if size > 0:
            assert np.linalg.norm(J @ spec.kept(other * (0.1 / size)), p) <= moved * (1 + 1e-9)
