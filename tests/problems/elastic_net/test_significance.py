"""The paper's tests on made-up gaps."""

import numpy as np
import pytest
from scipy import stats

from problems.elastic_net.significance import convergence_iterations, p_value, p_values


def test_variances_decide_between_students_and_welchs_test():
    rng = np.random.default_rng(0)
    one, wide = rng.normal(size=40), 1 + 2 * rng.normal(size=30)
    levene = stats.levene(one, wide).pvalue
    student = stats.ttest_ind(one, wide, equal_var=True).pvalue
    welch = stats.ttest_ind(one, wide, equal_var=False).pvalue
    assert p_value(one, wide, levene / 2) == pytest.approx(student)
    assert p_value(one, wide, 2 * levene) == pytest.approx(welch)
    assert abs(student / welch - 1) > 0.1


def test_the_first_iteration_without_progress_is_found():
    rng = np.random.default_rng(1)
    means = np.maximum(10.0 - np.arange(40), 0)
    gaps = means[:, None] + 0.01 * rng.normal(size=(40, 50))
    assert convergence_iterations(gaps) in (10, 11)
    gaps = -np.arange(40.0)[:, None] + 0.01 * rng.normal(size=(40, 50))
    assert convergence_iterations(gaps) is None
    # All repetitions start at one point; such columns have no variance, and no warning.
    gaps[:10] = 10 - np.arange(10)[:, None]
    assert convergence_iterations(gaps) is None


def test_the_matrix_of_p_values_is_symmetric():
    rng = np.random.default_rng(2)
    found = p_values([k + rng.normal(size=20) for k in range(3)])
    np.testing.assert_allclose(found, found.T)
    np.testing.assert_allclose(np.diag(found), 1.0)
    assert found[0, 2] < 1e-3
