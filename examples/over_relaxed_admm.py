r"""A method in one file: over-relaxed consensus ADMM, on a model, and in the conformance suite.

.. math::
    w &\leftarrow \operatorname{mean}_p (z_p - \lambda_p / \rho) \\
    \hat w_p &= \alpha w + (1 - \alpha) z_p \\
    x_p &\leftarrow \operatorname{argmin}_{x \in W_p} f_p(x) - \langle \lambda_p, S_p x \rangle
        + \tfrac{\rho}{2} \| \hat w_p - S_p x \|^2, \qquad z_p \leftarrow S_p x_p \\
    \lambda_p &\leftarrow \lambda_p + \rho (\hat w_p - z_p)

Boyd, Parikh, Chu, Peleato and Eckstein, "Distributed optimization and statistical learning via
ADMM" (2011), section 3.4.3; it converges for every alpha between 0 and 2 (Eckstein and Bertsekas,
1992), and alpha = 1 is ADMM. The server's average is the package's (`ConsensusMethod`). What this
file says is an agent's turn: one private question, the gradient, and public mathematics.

    python -m examples.over_relaxed_admm
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.extend import (
    Array,
    Broadcast,
    ConsensusMethod,
    Gradient,
    Iterates,
    Local,
    LocalCopy,
    Oracle,
    PenaltyRule,
    Requirements,
    as_penalty,
    number,
)


@dataclass(frozen=True, eq=False)
class State(Iterates):
    """An agent's iterates and its multipliers."""

    lam: Array


@dataclass(frozen=True)
class OverRelaxedADMM(ConsensusMethod[State]):
    """ADMM whose agents answer to a point beyond the average.

    Parameters
    ----------
    relaxation : float
        alpha, between 0 and 2; 1.5 to 1.8 are common.
    penalty : float or penalty rule
        rho.
    returned : {"average", "last", None}
        Which iterate the result reports; None takes the average under noise.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    relaxation: float = 1.6
    penalty: float | PenaltyRule = 10.0
    returned: str | None = None

    def __post_init__(self) -> None:
        self.check()
        self.check_fields(relaxation=number(lambda alpha: 0 < alpha < 2, "between 0 and 2"))

    @property
    def requirements(self) -> Requirements:
        """Convex objectives, compiled for exact steps; one gradient per agent and round."""
        return Requirements(convex=True, exact=True, releases=1, queries=(Gradient,))

    def start_agent(self, local: Local) -> State:
        """The public start, zero multipliers."""
        x = local.program.start
        return State(x, np.zeros_like(x), lam=np.zeros(local.program.shared.size))

    def act(
        self, local: Local, state: State, t: int, k: int, message: Broadcast, oracle: Oracle
    ) -> tuple[State, LocalCopy]:
        """One exact step; f_p is its public part plus a linear term that the data are in."""
        assert local.exact is not None
        S, alpha, rho = local.program.shared, self.relaxation, message.rho
        relaxed = alpha * message.w + (1 - alpha) * state.x[S]
        linear = oracle.release(Gradient(state.x)) - local.public_gradient(state.x)
        linear[S] -= state.lam + rho * relaxed
        D = np.zeros_like(state.x)
        D[S] = rho
        found = local.exact.solve(D, linear, state.x)
        state = state.after(found.x, found.outcome)
        z = state.x[S]
        lam = state.lam + rho * (relaxed - z)
        return replace(state, lam=lam), LocalCopy(z, lam)

    def __str__(self) -> str:
        return f"over-relaxed ADMM, alpha = {self.relaxation:g}, {as_penalty(self.penalty)}"


def model() -> dp.Problem:
    """Three farms share two water channels; how much each needs is its own affair."""
    flow = cp.Variable(2, name="flow")
    agents = []
    for name, need in {"north": [3.0, 1.0], "middle": [1.0, 2.5], "south": [0.5, 0.5]}.items():
        pump = cp.Variable(2, name=f"pump {name}", nonneg=True)
        demand = dp.Private(np.array(need), name=f"demand {name}", adjacency=dp.Within(0.1))
        cost = 4 * cp.sum_squares(flow + pump - demand) + cp.sum_squares(pump)
        agents.append(dp.Agent(cp.Minimize(cost), [flow <= 2, pump <= 1], name=name))
    return dp.Problem(agents)


def rounds(problem: dp.Problem, relaxation: float, tolerance: float = 1e-6) -> int:
    """Rounds without noise until the agents agree."""
    method = OverRelaxedADMM(relaxation, penalty=4.0)
    return problem.plan(method, mechanism=None, rounds=500).run(tolerance=tolerance).rounds


def main(arguments: Sequence[str] | None = None) -> None:
    """Rounds by alpha, a private run, and what the conformance suite says."""
    problem = model()
    print("rounds to 1e-6 without noise, by alpha:")
    for relaxation in (0.5, 1.0, 1.3, 1.6, 1.9):
        print(f"  {relaxation:.1f}  {rounds(problem, relaxation):4d}")
    plan = problem.plan(OverRelaxedADMM(penalty=4.0), rounds=30, epsilon=1.0, delta=1e-6)
    print(f"\n{plan.guarantee}\n")
    print(dp.check_sensitivity(plan))
    print()
    print(dp.testing.check_method(OverRelaxedADMM(penalty=2.0), instances=["power line"]).run())


if __name__ == "__main__":
    main()
