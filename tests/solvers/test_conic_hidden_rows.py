"""Violations where auxiliary columns hide them: known without a full matrix of all columns."""

import tracemalloc

import numpy as np
import scipy.sparse as sp

from dpcvx.model.canonical import ConeData, Cones
from dpcvx.solvers.conic import ConicProgram


def test_violation_of_many_auxiliary_columns_takes_no_full_matrix():
    count = 3000  # of each row, two auxiliary columns: a full matrix has 18 million entries
    eye = sp.eye_array(count, format="csc")
    A = sp.csc_array(sp.hstack([eye, eye, -eye]))
    size = 3 * count
    data = ConeData(
        sp.csc_array((size, size)), np.zeros(size), A, np.zeros(count), Cones(zero=count), count
    )
    program = ConicProgram(data)
    tracemalloc.start()
    assert program.violation(np.zeros(count)) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_violation_of_auxiliary_columns_that_equalities_determine_is_known():
    eye = sp.eye_array(3, format="csc")
    A = sp.csc_array(sp.block_array([[eye, -eye], [None, eye]]))  # y = x, y <= 1
    data = ConeData(
        sp.csc_array((6, 6)), np.zeros(6), A, np.repeat([0.0, 1.0], 3), Cones(zero=3, nonneg=3), 3
    )
    assert ConicProgram(data).violation(np.array([0.0, 1.0, 3.0])) == 2.0
