"""Small problems with stand-ins, and ways to spend a budget on them, for tests of searches."""

import itertools
from dataclasses import fields, replace

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.model.private import seal_all
from dpcvx.plan.request import Request
from dpcvx.tuning.settings import SearchRequest, ways

LOADS = (np.array([0.2, 0.4]), np.array([0.6, 0.1]))
PROXY = {"load 0": LOADS[0], "load 1": LOADS[1]}


def forbidden():
    raise AssertionError("private data were read")


def network(source=forbidden, constraints=lambda x, k: [cp.abs(x) <= 2], likes=(None, None)):
    """Two agents that pull x towards their loads."""
    x = cp.Variable(2, name="x")
    agents = []
    for k, like in enumerate(likes):
        load = dp.Private(source, shape=2, name=f"load {k}", adjacency=dp.Within(0.01), proxy=like)
        cost = cp.sum_squares(x - load)
        agents.append(dp.Agent(cp.Minimize(cost), constraints(x, k), name=f"a{k}"))
    return dp.Problem(agents)


def balance():
    """Two agents with variables of their own, tied by an equality."""
    agents, own = [], []
    for k in range(2):
        x = cp.Variable(name=f"x{k}", bounds=[0, 2])
        load = dp.Private(forbidden, shape=(), name=f"load {k}", adjacency=dp.Within(0.01))
        agents.append(dp.Agent(cp.Minimize(cp.square(x - load)), name=f"a{k}"))
        own.append(x)
    return dp.Problem(agents, coupling=[own[0] + own[1] == 1])


def grid(more=(), source=forbidden):
    """Generation and reserve that cover private loads."""
    p, reserve = cp.Variable(2, name="p", nonneg=True), cp.Variable(name="reserve", nonneg=True)
    like = np.array([1.0, 2.0, 0.5])
    load = dp.Private(source, shape=3, name="load", adjacency=dp.Within(0.02), proxy=like)
    cost = np.array([1.0, 2.0]) @ p + 10 * reserve
    limits = [p <= 3, cp.sum(p) + reserve >= cp.sum(load), *(one(p, load) for one in more)]
    return dp.Problem([dp.Agent(cp.Minimize(cost), limits, name="grid")])


def records(clip=None):
    """Squares of residuals that are small where they may be large: clipping costs nothing."""
    w = cp.Variable(2, name="w")
    rows = dict(records="person")
    X = dp.Private(forbidden, shape=(40, 2), name="X", adjacency=dp.Rows(1.0, **rows))
    y = dp.Private(forbidden, shape=40, name="y", adjacency=dp.Rows(30.0, **rows))
    cost = cp.sum_squares(X @ w - y)
    return dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 2], "site", clip)])


def picked(*names):
    """The ways of these names."""
    found = [way for way in ways() if way.name in names]
    assert len(found) == len(names)
    return found


def counting(step):
    """A clock that goes on by a step whenever it is looked at."""
    count = itertools.count()
    return lambda: step * next(count)


def filled(asked, usual):
    """What is asked of a plan, with the usual where it is left open."""
    open_ = [f.name for f in fields(Request) if getattr(asked, f.name) == f.default]
    return replace(asked, **{name: getattr(usual, name) for name in open_})


def request(verb="problem.tune", proxy=PROXY, **given):
    """What a search is asked; its seconds are looks at the clock, of which a round takes one."""
    asked = {field.name for field in fields(Request)}
    plans = {"epsilon": 1.0, "delta": 1e-6} | {k: given.pop(k) for k in asked & set(given)}
    usual = {"time_limit": 300.0, "seed": 0, "verbose": False, "clock": counting(1.0)}
    proxy = seal_all(proxy, "proxy")
    return SearchRequest(verb, Request(**plans), proxy, **usual | given)
