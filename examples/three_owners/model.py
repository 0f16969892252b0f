"""The coordinator's model: the 14-bus network in three zones, whose loads are known by shape."""

import sys
from pathlib import Path

import cvxpy as cp

import dpcvx as dp

sys.path.append(str(Path(__file__).parents[2]))  # for problems/, which the command does not find

from problems.power_flow.case import read_case
from problems.power_flow.model import variables, zone_model
from problems.power_flow.models import flat_start
from problems.power_flow.zones import read_zones

case = read_case(14)
zones = read_zones(None, case)
declared = variables(case, zones, "voltage")
agents = []
for z, label in enumerate(zones.names):
    load = dp.Private(
        shape=(len(zones.buses[z]), 2), name=f"load of zone {label}", adjacency=dp.Within(0.01)
    )
    cost, constraints = zone_model(case, zones, declared, z, load, "shed")
    agents.append(dp.Agent(cp.Minimize(cost), constraints, name=f"zone {label}"))
problem = dp.Problem(agents, start=flat_start(case, zones, declared))
plan = problem.plan(
    dp.LinearizedADMM(penalty=100.0), rounds=50, epsilon=1.0, delta=1e-6, release="each_step"
)
