r"""A method in one file: PG-EXTRA, proximal gradients over a network with an exact limit.

.. math::
    x_i^{1/2} &= \textstyle\sum_j W_{ij} x_j^0 - \alpha \nabla f_i(x_i^0) \\
    x_i^{k+1+1/2} &= \textstyle\sum_j W_{ij} x_j^{k+1} + x_i^{k+1/2}
        - \sum_j \tilde W_{ij} x_j^k
        - \alpha \bigl( \nabla f_i(x_i^{k+1}) - \nabla f_i(x_i^k) \bigr) \\
    x_i^{k+1} &= P_i(x_i^{k+1/2}), \qquad \tilde W = \tfrac12 (I + W)

Shi, Ling, Wu and Yin, "A proximal gradient algorithm for decentralized composite optimization"
(2015), Algorithm 1, with projections onto the agents' sets for proximal steps. Agents hear their
neighbors, and nobody else. Gradient descent over a network stops near the optimum with a constant
step; PG-EXTRA remembers what was left over and goes all the way for
:math:`\alpha < 2 \lambda_{\min}(\tilde W) / L` (Theorem 1).

Each round asks one private question, the gradient at the agent's point. All else is public.

    python -m examples.pg_extra
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.extend import (
    POSITIVE,
    Array,
    Gradient,
    Graph,
    Inbox,
    Iterates,
    Local,
    NetworkMethod,
    Oracle,
    PublicFacts,
    Requirements,
    mixed,
    shared,
)


@dataclass(frozen=True, eq=False)
class State(Iterates):
    """x^k and what the next round needs of the last one.

    Attributes
    ----------
    half : ndarray, shape (n,)
        x^(k-1/2), before the projection.
    before, gradient : ndarray, shape (n,)
        W~ x and the noisy gradient of the last round.
    """

    half: Array
    before: Array
    gradient: Array


@dataclass(frozen=True)
class PGExtra(NetworkMethod[State]):
    """Proximal gradient descent over a network, with an exact limit.

    Parameters
    ----------
    graph : networkx.Graph, Network or {"complete", "ring", "star", "path", "grid"}
        Who talks to whom.
    step : float
        alpha.
    returned : {"average", "last", None}
        Which iterate the result reports; None takes the average under noise.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    graph: Graph = "complete"
    step: float = 0.1
    returned: str | None = None

    def __post_init__(self) -> None:
        self.check_fields(step=POSITIVE)

    @property
    def requirements(self) -> Requirements:
        """Convex objectives; one gradient per agent and round."""
        return Requirements(convex=True, exact=False, releases=1, queries=(Gradient,))

    def propose(self, facts: PublicFacts) -> PGExtra:
        """With the network over the problem's agents."""
        return replace(self, graph=self.network_of(facts.program))

    def start_agent(self, local: Local) -> State:
        """The public start."""
        x = local.program.start
        zero = np.zeros_like(x)
        return State(x, zero, half=zero, before=zero, gradient=zero)

    def act(
        self, local: Local, state: State, t: int, k: int, message: Inbox, oracle: Oracle
    ) -> tuple[State, Array]:
        """One step; all that the first one remembers is zero."""
        x = state.x
        Wx = mixed(local.program, x, message)
        g = oracle.release(Gradient(x))
        half = Wx + state.half - state.before - self.step * (g - state.gradient)
        found = local.projector(half, np.ones_like(half))
        state = replace(state, half=half, before=(x + Wx) / 2, gradient=g)
        state = state.after(found.x, found.outcome)
        return state, shared(state.x, local.program)

    def __str__(self) -> str:
        return f"PG-EXTRA over {self.graph}, alpha = {self.step:g}"


def model() -> dp.Problem:
    """Five stations estimate one field from readings of their own, within bounds."""
    field = cp.Variable(3, name="field")
    agents = []
    for i in range(5):
        angle = np.arange(4)[:, None] * (i + 1) + np.arange(3)
        A, reading = np.cos(angle), np.sin(angle).sum(axis=1)
        b = dp.Private(reading, name=f"reading {i}", adjacency=dp.Within(0.05, norm=2))
        cost = cp.sum_squares(A @ field - b)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(field) <= 0.6], name=f"station {i}"))
    return dp.Problem(agents)


def gap(problem: dp.Problem, result: dp.Result) -> float:
    """Distance of the objective at the agents' own copies from the optimum, as a share.

    Not private. What is returned, `result.solution`, is a common point, and closer.
    """
    central = dp.not_private.joint_problem(problem)
    central.solve(cp.CLARABEL)
    best = float(np.asarray(central.value))
    return abs(dp.not_private.objective(problem, result.raw) - best) / best


def main(arguments: Sequence[str] | None = None) -> None:
    """Gaps without noise and with it, beside gradient descent, and the conformance suite."""
    problem = model()
    methods = {
        "PG-EXTRA": PGExtra("ring", 0.03),
        "gradient descent": dp.DecentralizedGradient("ring", 0.03),
    }
    print("distance from the optimum after 50 and 400 rounds without noise, and with epsilon = 1")
    for name, method in methods.items():
        found = [
            gap(problem, problem.plan(method, mechanism=None, rounds=rounds).run())
            for rounds in (50, 400)
        ]
        private = problem.plan(method, rounds=50, epsilon=1.0, delta=1e-6).run(seed=1)
        print(f"  {name:18s}" + "".join(f"{g:10.1e}" for g in (*found, gap(problem, private))))
    print()
    suite = dp.testing.check_method(PGExtra("ring", 0.05), rounds=3000, instances=["sensors"])
    print(suite.run())


if __name__ == "__main__":
    main()
