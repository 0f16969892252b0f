"""Agents in two variables, for tests of what users write."""

import cvxpy as cp

import dpcvx as dp

WITHIN = dp.Within(0.01)
SECRETS = [31415.92653, 27182.81828]
x = cp.Variable(2, name="x")
y = cp.Variable(3, name="y")


def load(name="load", data=None, shape=2):
    return dp.Private(data, shape=shape, adjacency=WITHIN, name=name)


def agent(name, f=None, constraints=()):
    return dp.Agent(cp.Minimize(cp.sum_squares(x) if f is None else f), constraints, name=name)
