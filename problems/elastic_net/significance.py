"""The paper's tests, as in its code: two-sample t-tests, with Levene's test for the variances."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


def p_value(first: Floats, second: Floats, levene: float) -> float:
    """Two-sided; variances are taken as equal if Levene's p exceeds `levene`."""
    with warnings.catch_warnings():
        # All repetitions begin at the same point.
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)
        warnings.filterwarnings("ignore", "divide by zero", RuntimeWarning)
        equal = stats.levene(first, second).pvalue > levene
        return float(stats.ttest_ind(first, second, equal_var=equal).pvalue)


def convergence_iterations(gaps: Floats, lag: int = 5) -> int | None:
    """Table 1: first iteration whose mean gap does not differ from that `lag` iterations later.

    Parameters
    ----------
    gaps : ndarray, shape (T + 1, R)
    lag : int

    Returns
    -------
    int or None
        None if all differ. One-sided at 0.05, which is the authors' code; the text names neither.
    """
    for t in range(len(gaps) - lag):
        if p_value(gaps[t], gaps[t + lag], 0.2) / 2 > 0.05:
            return t
    return None


def p_values(last: Sequence[Floats]) -> Floats:
    """Table 2: equality of the mean gaps at the last iteration, for all pairs of noise levels."""
    return np.array([[p_value(a, b, 0.05) for b in last] for a in last])
