"""Clarabel: what it asserts of cones."""

import numpy as np
import pytest

from dpcvx.solvers.libraries import _exponents


@pytest.mark.parametrize("seed", range(30))
def test_exponents_add_up_as_the_solver_asserts(seed):
    rng = np.random.default_rng(seed)
    given = rng.dirichlet(np.full(rng.integers(2, 9), 0.5)) * (1 + 1e-9)
    found = _exponents(given.tolist())
    total = 0.0
    for a in found:
        total += a
    assert abs(1 - total) < np.finfo(float).eps * len(found) / 2
    assert found == pytest.approx(given, rel=1e-6, abs=1e-8) and min(found) > 0
