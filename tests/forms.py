"""Objectives in normal form, and finite differences to hold their gradients against."""

import numpy as np

import dpcvx as dp
from dpcvx.model.collapse import normal_form
from dpcvx.model.layout import layout_of


def form_of(expression, owner="north"):
    """Layout and normal form of a scalar cvxpy expression."""
    layout = layout_of([expression])
    private = [p for p in expression.parameters() if isinstance(p, dp.Private)]
    return layout, normal_form(expression, layout, private, owner)


def assign(expression, layout, x):
    """Give the variables of an expression the values of the vector x, zero where not held."""
    for variable in expression.variables():
        piece = layout[variable.id]
        full = np.zeros(variable.size)
        full[piece.entries] = x[piece.offset : piece.stop]
        variable.value = full.reshape(variable.shape, order="F")


def difference_quotients(f, x, h=1e-5):
    """Central differences of a function of a vector, one per component (last axis)."""
    steps = h * np.eye(x.size)
    return np.stack([(f(x + s) - f(x - s)) / (2 * h) for s in steps], axis=-1)
