"""The problems on which methods are tried, with the verbs of `dp.Problem`."""

from dataclasses import replace

import dpcvx as dp
from dpcvx.testing import instances


def whole(build):
    """The same instance as a problem that plans and solves."""

    def built():
        made = build()
        problem = made.problem
        return replace(made, problem=dp.Problem(problem.agents, coupling=problem.coupling))

    return built


power_line = whole(instances.power_line)
overlapping_slices = whole(instances.overlapping_slices)
covariance = whole(instances.covariance)
clinics = whole(instances.clinics)
household_tariff = whole(instances.household_tariff)
# Gradients are affine in the data.
INSTANCES = {
    "power line": power_line,
    "overlapping slices": overlapping_slices,
    "covariance": covariance,
}
