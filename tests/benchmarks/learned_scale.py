"""Gaps with a scale that is learned, over gaps by declared bounds, on the same data.

``python -m tests.benchmarks.learned_scale`` prints a table: per model the medians of the gap to the
optimum by both plans, and their ratio. Each model has several sets of data and runs for each.
"""

import argparse
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

import dpcvx as dp

DELTA = 1e-6


@dataclass(frozen=True)
class Study:
    """Records of several agents, with a loss of their scores and labels.

    Attributes
    ----------
    agents, records, features : int
        Records of each agent.
    loss : callable
        Of scores and labels, record by record.
    labels : callable
        Of true scores and a generator.
    reach, bound : float
        Declared norms of features and labels.
    spread : float
        Standard deviation of a feature.
    penalty : float
        Of squares of the weights, for each agent.
    box : float
        Bound of the weights.
    sign : bool
        Whether labels are declared nonnegative.
    public : bool
        Whether labels are public.
    apart : float
        By this factor the second half of the features is smaller.
    """

    agents: int
    records: int
    features: int
    loss: object
    labels: object
    reach: float
    bound: float = 1.0
    spread: float = 1.0
    penalty: float = 0.0
    box: float = 10.0
    sign: bool = False
    public: bool = False
    apart: float = 1.0

    def problem(self, seed):
        """The problem with its data, and its optimum."""
        rng, n = np.random.default_rng(seed), self.features
        size = self.spread * np.where(np.arange(n) < n / 2, 1.0, 1 / self.apart)
        truth, w = rng.normal(size=n) / self.spread, cp.Variable(n, name="w")
        agents = []
        for k in range(self.agents):
            X = rng.normal(size=(self.records, n)) * size
            X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True) / self.reach)
            y = self.labels(X @ truth, rng)
            rows = {"records": f"person of {k}"}
            scores = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(self.reach, **rows)) @ w
            if not self.public:
                adjacency = dp.Rows(self.bound, **rows)
                y = dp.Private(y, name=f"y{k}", adjacency=adjacency, nonneg=self.sign)
            cost = cp.sum(self.loss(scores, y)) / self.records
            if self.penalty:
                cost += self.penalty * cp.sum_squares(w)
            agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(w) <= self.box], name=f"a{k}"))
        problem = dp.Problem(agents)
        return problem, dp.not_private.joint_problem(problem).solve(cp.CLARABEL)


def coin(scores, rng):
    return np.where(rng.random(scores.shape) < 1 / (1 + np.exp(-2 * scores)), 1.0, -1.0)


def logistic(scores, labels):
    return cp.logistic(-cp.multiply(labels, scores))


def counted(scores, labels):
    return cp.exp(scores) - cp.multiply(labels, scores)


def hazard(scores, labels):
    return cp.multiply(labels, cp.exp(scores)) - scores


def squares(scores, labels):
    return cp.square(scores - labels)


def waits(scores, rng):
    return np.minimum(rng.exponential(size=len(scores)) * np.exp(-0.5 * scores), 10.0)


def counts(scores, rng):
    return np.minimum(rng.poisson(np.exp(np.minimum(0.8 * scores, 4))), 30).astype(float)


def noisy(scores, rng):
    return np.clip(0.3 * scores + 0.3 * rng.normal(size=len(scores)), -1, 1)


PUBLIC = {"loss": logistic, "labels": coin, "public": True}
STUDIES = {
    "logistic, 10 x 200": Study(10, 200, 5, reach=2.0, penalty=0.01, **PUBLIC),
    "logistic, d 8": Study(4, 1500, 8, reach=2.0, penalty=1e-3, **PUBLIC),
    "logistic, d 15": Study(2, 3000, 15, reach=3.0, penalty=1e-3, **PUBLIC),
    "logistic, columns 50 x apart": Study(4, 600, 6, reach=2.5, apart=50.0, **PUBLIC),
    "survival": Study(
        4, 500, 4, hazard, waits, reach=2.0, bound=10.0, sign=True, box=3.0
    ),
    "Poisson": Study(
        2, 1500, 5, counted, counts, reach=1.0, bound=30.0, spread=0.5, sign=True, box=3.0
    ),
    "squared hinge": Study(
        2, 2000, 5, lambda s, y: cp.square(cp.pos(1 - cp.multiply(y, s))), coin, reach=2.0,
        penalty=0.01, public=True,
    ),
    "exponential": Study(
        2, 2000, 4, lambda s, y: cp.exp(-cp.multiply(y, s)), coin, reach=1.0, spread=0.5,
        public=True, box=2.0,
    ),
    "squares, labels 100 x too wide": Study(
        2, 1000, 5, squares, noisy, reach=2.0, bound=100.0, spread=0.8
    ),
    "squares, all 10 x too wide": Study(
        2, 1000, 5, squares, noisy, reach=20.0, bound=10.0, spread=0.8
    ),
    "squares, bounds that fit": Study(2, 10_000, 5, squares, noisy, reach=2.0, spread=0.8),
    "ridge, d 40": Study(2, 3000, 40, squares, noisy, reach=2.0, spread=0.3, penalty=0.01),
    "one agent, logistic": Study(1, 40_000, 5, reach=2.0, penalty=0.01, **PUBLIC),
    "one agent, Poisson": Study(
        1, 40_000, 5, counted, counts, reach=1.0, bound=30.0, spread=0.5, sign=True, box=3.0
    ),
}  # fmt: skip


def gaps(study, epsilon, data, runs):
    """Gaps by a learned scale and by declared bounds: per plan, those of all data and runs."""
    found = {"learned": [], "declared": []}
    for seed in range(data):
        problem, optimum = study.problem(100 + seed)
        for name, scale in (("learned", None), ("declared", "declared")):
            plan = problem.plan(epsilon=epsilon, delta=DELTA, scale=scale)
            for run in range(runs):
                solution = plan.run(seed=run, verbose=False).solution
                gap = dp.not_private.objective(problem, solution) - optimum
                found[name].append(max(gap, 1e-12))
    return found


def ratio(study, epsilon, data, runs):
    """The median gap by a learned scale, over that by declared bounds; and both."""
    found = gaps(study, epsilon, data, runs)
    learned, declared = (float(np.median(found[name])) for name in ("learned", "declared"))
    return learned / declared, learned, declared


def main(arguments=None):
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.learned_scale")
    parser.add_argument("names", nargs="*", choices=[*STUDIES, []], help="all if omitted")
    parser.add_argument("--epsilon", type=float, nargs="*", default=[0.3, 1.0, 3.0])
    parser.add_argument("--data", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args(arguments)
    for epsilon in asked.epsilon:
        ratios = []
        for name in asked.names or STUDIES:
            found, learned, declared = ratio(STUDIES[name], epsilon, asked.data, asked.runs)
            ratios.append(found)
            print(
                f"epsilon {epsilon:<4g} {name:32s} learned {learned:9.3g}  declared "
                f"{declared:9.3g}  ratio {found:8.3g}", flush=True,
            )  # fmt: skip
        mean = np.exp(np.mean(np.log(ratios)))
        print(f"epsilon {epsilon:<4g} geometric mean of the ratios {mean:.3g}", flush=True)


if __name__ == "__main__":
    main()
