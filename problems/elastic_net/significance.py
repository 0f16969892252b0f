"""The paper's tests, as in its code: two-sample t-tests, with Levene's test for the variances."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


def p_value(first: Floats, second: Floats, levene: float) -> float:
    """Return the two-sided p-value of a t-test, pooling variances if Levene's p is > `levene`."""
    with warnings.catch_warnings():
        # At the initial point, all repetitions are equal, and the tests divide by 0.
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)
        warnings.filterwarnings("ignore", "divide by zero", RuntimeWarning)
        equal = stats.levene(first, second).pvalue > levene
        return float(stats.ttest_ind(first, second, equal_var=equal).pvalue)


def convergence_iterations(gaps: Floats, lag: int = 5) -> int | None:
    """Return the iteration of convergence as in Table 1.

    It is the first iteration whose mean gap does not differ from the mean gap `lag` iterations
    later, by a one-sided test at 0.05. (The authors' code has this test; the text does not name
    it.)

    Parameters
    ----------
    gaps : ndarray, shape (T + 1, R)
        Gaps by iteration and repetition.
    lag : int
        Number of iterations between the compared gaps.

    Returns
    -------
    int or None
        None if all gaps differ.
    """
    for t in range(len(gaps) - lag):
        if p_value(gaps[t], gaps[t + lag], 0.2) / 2 > 0.05:
            return t
    return None


def p_values(last: Sequence[Floats]) -> Floats:
    """Return the p-values of Table 2: equality of mean last gaps, for all pairs of noise levels."""
    return np.array([[p_value(a, b, 0.05) for b in last] for a in last])
