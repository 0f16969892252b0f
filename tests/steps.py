"""Private local steps: what leaves before the noise, next to what was charged."""

from dataclasses import replace

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.run.private_oracle import PrivateOracle
from dpcvx.sensitivity.queries.solutions import LocalSolution, Minimizer
from tests import sets
from tests.helpers import Words
from tests.spies import gate_of_one

GAUSS = dp.Gaussian(noise_multiplier=2.0)
AMPLE = Budget(1e9, 1e-6, Composition().with_gaussian(2.0, 10**6))


def solution(x, step):
    """The question for the result of a local step."""
    return LocalSolution(x, step.center, step.D, step.anchor)


def answering(agent, *queries):
    """The same agent, planned for queries of these types."""
    return replace(agent, needs=replace(agent.needs, queries=queries))


class Setting:
    """A cost over a set; one change moves an entry of the private d by at most `radius`."""

    def __init__(self, n, constraints, radius, cost=lambda x, d: cp.sum_squares(x - d)):
        x = cp.Variable(n, name="x")
        d = dp.Private(shape=n, name="d", adjacency=dp.Within(radius))
        agent = dp.Agent(cp.Minimize(cost(x, d)), constraints(x), name="bob")
        self.projector = sets.projector(agent)
        plan = dp.Problem([agent]).plan(
            dp.LinearizedADMM(penalty=1.0, step=1.0), mechanism=GAUSS, rounds=1, delta=1e-6
        )
        self.facts = answering(plan.agents[0], LocalSolution, Minimizer)

    def oracle(self, data):
        """An oracle whose noise is 0."""
        account = Account("bob", {}, AMPLE)
        gate = gate_of_one(Calibrated(GAUSS, 2.0), account, Words())
        oracle = PrivateOracle([self.facts], [[lambda: data]], gate)
        oracle.begin(1)
        return oracle

    def ratio(self, query, d, other, root=1.0):
        """How far a change of the data moves what leaves, over what was charged."""
        one, two = self.oracle(d), self.oracle(other)
        moved = np.linalg.norm(root * (one.release(query) - two.release(query)))
        return moved / one.accounts()[0].entries[0].sensitivity
