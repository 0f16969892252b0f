"""Gaps with a learned scale, by declared bounds, and by an oracle, on the same data.

``python -m tests.benchmarks.learned_scale`` prints a table: per model the medians of the gap to the
optimum by both plans and by an oracle, and ratios of these. Each model has several sets of data,
drawn from its name and a seed, and runs for each. ``--short`` takes a few minutes: one budget, two
sets of data, two runs. Names of models select some; "default" is the plan with nothing declared.

The oracle tries clips, step sizes, numbers of rounds and averages on the true data, and spends the
whole budget on one of them: no plan can.
"""

import argparse
import itertools
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.privacy.accounting import gaussian_multiplier

DELTA = 1e-6


@dataclass(frozen=True)
class Loss:
    """Loss of scores and labels, record by record: in cvxpy, its value and its slope by a score."""

    written: Callable
    value: Callable
    slope: Callable

    def __call__(self, scores, labels):
        return self.written(scores, labels)


@dataclass(frozen=True)
class Study:
    """Records of several agents, with a loss of their scores and labels.

    Attributes
    ----------
    agents, records, features : int
        Records of each agent.
    loss : Loss
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
    secret : bool
        Whether gradients are added up in secret, with the noise of one agent.
    apart : float
        By this factor the second half of the features is smaller.
    intercept : float
        Added to all true scores; if it is not 0, the model has an intercept.
    """

    agents: int
    records: int
    features: int
    loss: Loss
    labels: object
    reach: float
    bound: float = 1.0
    spread: float = 1.0
    penalty: float = 0.0
    box: float = 10.0
    sign: bool = False
    public: bool = False
    apart: float = 1.0
    secret: bool = False
    intercept: float = 0.0

    def draw(self, name, seed):
        """Data of every agent: features and labels."""
        rng, n = np.random.default_rng([zlib.crc32(name.encode()), seed]), self.features
        size = self.spread * np.where(np.arange(n) < n / 2, 1.0, 1 / self.apart)
        truth, data = rng.normal(size=n) / self.spread, []
        for _ in range(self.agents):
            X = rng.normal(size=(self.records, n)) * size
            X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True) / self.reach)
            data.append((X, self.labels(X @ truth + self.intercept, rng)))
        return data

    def problem(self, data):
        """The problem with these data."""
        w, b, agents = cp.Variable(self.features, name="w"), cp.Variable(name="b"), []
        for k, (X, y) in enumerate(data):
            rows = {"records": f"person of {k}"}
            scores = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(self.reach, **rows)) @ w
            if self.intercept:
                scores = scores + b
            if not self.public:
                adjacency = dp.Rows(self.bound, **rows)
                y = dp.Private(y, name=f"y{k}", adjacency=adjacency, nonneg=self.sign)
            cost = cp.sum(self.loss(scores, y)) / self.records
            if self.penalty:
                cost += self.penalty * cp.sum_squares(w)
            limits = [cp.abs(each) <= self.box for each in ([w, b] if self.intercept else [w])]
            agents.append(dp.Agent(cp.Minimize(cost), limits, name=f"a{k}"))
        return dp.Problem(agents)

    def plan(self, problem, epsilon, scale):
        """Plan by default, or in secret sums; `scale` as in a plan."""
        method = None
        if self.secret:
            method = dp.FederatedGradient(sharing=dp.SecretSharing(limit=10.0))
        return problem.plan(method, epsilon=epsilon, delta=DELTA, scale=scale)

    def tuned(self, data, optimum, epsilon, runs):
        """Least median gap of clipped noisy descent, over settings that see the true data."""
        X = np.vstack([features for features, _ in data])
        if self.intercept:
            X = np.hstack([X, np.ones((len(X), 1))])
        y = np.concatenate([labels for _, labels in data])[:, None]
        sizes, at_zero = np.linalg.norm(X, axis=1)[:, None], np.zeros((len(X), 1))
        first = np.median(np.abs(self.loss.slope(at_zero, y)) * sizes)
        bends = (self.loss.slope(at_zero + 1e-4, y) - self.loss.slope(at_zero - 1e-4, y)) / 2e-4
        H = (X * bends).T @ X / self.records
        pull = 2 * self.agents * self.penalty
        middle = np.trace(H) / len(H) + pull
        top = np.linalg.eigvalsh(H)[-1] + pull
        summed = math.sqrt(self.agents / max(1, self.agents - 1) if self.secret else self.agents)
        once = gaussian_multiplier(1, epsilon, DELTA) * 2 * summed / self.records
        best = math.inf
        for clip, rounds, step in itertools.product(
            first * 2.0 ** np.arange(-3, 3), (10, 30, 100), 2.0 ** np.arange(-4, 3) / middle
        ):
            if step * top > 2:
                continue
            for falls, weight in ((0.0, 1.0), (0.5, 1.0), (0.0, math.inf)):
                rng, w = np.random.default_rng(0), np.zeros((X.shape[1], runs))
                mean, total = 0.0, rounds * (rounds + 1) / 2
                for t in range(1, rounds + 1):
                    slope = self.loss.slope(X @ w, y)
                    cut = np.minimum(1, clip / np.maximum(np.abs(slope) * sizes, 1e-300))
                    gradient = X.T @ (slope * cut) / self.records + pull * w
                    noise = clip * once * math.sqrt(rounds) * rng.normal(size=w.shape)
                    w = np.clip(w - step / t**falls * (gradient + noise), -self.box, self.box)
                    mean = mean + t * w / total
                w = w if math.isinf(weight) else mean
                losses = self.loss.value(X @ w, y).sum(0) / self.records
                objective = losses + pull / 2 * (w**2).sum(0)
                best = min(best, float(np.median(objective)) - optimum)
        return max(best, 1e-12)


def coin(scores, rng):
    return np.where(rng.random(scores.shape) < 1 / (1 + np.exp(-2 * scores)), 1.0, -1.0)


logistic = Loss(
    lambda s, y: cp.logistic(-cp.multiply(y, s)),
    lambda s, y: np.logaddexp(0, -y * s),
    lambda s, y: -y / (1 + np.exp(np.clip(y * s, -500, 500))),
)
counted = Loss(
    lambda s, y: cp.exp(s) - cp.multiply(y, s),
    lambda s, y: np.exp(s) - y * s,
    lambda s, y: np.exp(s) - y,
)
hazard = Loss(
    lambda s, y: cp.multiply(y, cp.exp(s)) - s,
    lambda s, y: y * np.exp(s) - s,
    lambda s, y: y * np.exp(s) - 1,
)
squares = Loss(lambda s, y: cp.square(s - y), lambda s, y: (s - y) ** 2, lambda s, y: 2 * (s - y))
hinges = Loss(
    lambda s, y: cp.square(cp.pos(1 - cp.multiply(y, s))),
    lambda s, y: np.maximum(1 - y * s, 0) ** 2,
    lambda s, y: -2 * y * np.maximum(1 - y * s, 0),
)
exponential = Loss(
    lambda s, y: cp.exp(-cp.multiply(y, s)),
    lambda s, y: np.exp(-y * s),
    lambda s, y: -y * np.exp(-y * s),
)


def waits(scores, rng):
    return np.minimum(rng.exponential(size=len(scores)) * np.exp(-0.5 * scores), 10.0)


def counts(scores, rng):
    return np.minimum(rng.poisson(np.exp(np.minimum(0.8 * scores, 4))), 30).astype(float)


def noisy(scores, rng):
    return np.clip(0.3 * scores + 0.3 * rng.normal(size=len(scores)), -1, 1)


def skewed(scores, rng):
    return np.clip(0.3 * scores + 0.25 * (rng.exponential(size=len(scores)) - 1), -1, 1)


def heavy(scores, rng):
    return np.clip(0.1 * scores + 0.05 * rng.standard_t(2, size=len(scores)), -1, 1)


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
    "Poisson, intercept": Study(
        2, 1500, 5, counted, counts, reach=1.0, bound=30.0, spread=0.5, sign=True, box=3.0,
        intercept=0.7,
    ),
    "survival, intercept": Study(
        4, 500, 4, hazard, waits, reach=2.0, bound=10.0, sign=True, box=3.0, intercept=0.5
    ),
    "squared hinge": Study(
        2, 2000, 5, hinges, coin, reach=2.0, penalty=0.01, public=True
    ),
    "exponential": Study(
        2, 2000, 4, exponential, coin, reach=1.0, spread=0.5, public=True, box=2.0
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
    # Few records: one release has noise of 5 to 9 % of the largest sum at epsilon 1.
    "few, squares": Study(1, 210, 5, squares, noisy, reach=2.0, spread=0.8),
    "few, squares, all 10 x too wide": Study(
        1, 210, 5, squares, noisy, reach=20.0, bound=10.0, spread=0.8
    ),
    "few, squares, skewed": Study(1, 210, 5, squares, skewed, reach=2.0, spread=0.8),
    "few, squares, heavy tails": Study(1, 420, 5, squares, heavy, reach=2.0, spread=0.8),
    "few, squared hinge": Study(1, 210, 5, hinges, coin, reach=2.0, penalty=0.01, public=True),
    "few, logistic": Study(1, 210, 5, reach=2.0, penalty=0.01, **PUBLIC),
    "few, logistic, 10 x too wide": Study(1, 420, 5, reach=20.0, penalty=0.01, **PUBLIC),
    "few, Poisson": Study(
        4, 105, 5, counted, counts, reach=1.0, bound=30.0, spread=0.5, sign=True, box=3.0
    ),
    "few, survival": Study(
        4, 190, 4, hazard, waits, reach=2.0, bound=10.0, sign=True, box=3.0
    ),
    "few, logistic, secret sums": Study(10, 30, 5, reach=2.0, penalty=0.01, secret=True, **PUBLIC),
    "logistic, secret sums": Study(4, 1500, 5, reach=2.0, penalty=0.01, secret=True, **PUBLIC),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Median gaps of a model over all data and runs; NaN for an oracle that was not asked for."""

    learned: float
    declared: float
    tuned: float = math.nan

    @property
    def ratio(self):
        """The gap by a learned scale, over that by declared bounds."""
        return self.learned / self.declared


def row(name, epsilon, data, runs, oracle=0, scale=None):
    """Gaps of a model by both plans, and by the oracle with so many runs per setting.

    `scale` is that of the learned plan: the default, or `dp.LearnScale()` where it is not.
    """
    study, gaps = STUDIES[name], {"learned": [], "declared": [], "tuned": []}
    for seed in range(data):
        drawn = study.draw(name, seed)
        problem = study.problem(drawn)
        optimum = dp.not_private.joint_problem(problem).solve(cp.CLARABEL)
        for kind, asked in (("learned", scale), ("declared", "declared")):
            plan = study.plan(problem, epsilon, asked)
            for run in range(runs):
                solution = plan.run(seed=run, verbose=False).solution
                gap = dp.not_private.objective(problem, solution) - optimum
                gaps[kind].append(max(gap, 1e-12))
        if oracle:
            gaps["tuned"].append(study.tuned(drawn, optimum, epsilon, oracle))
    return Row(*(float(np.median(each)) if each else math.nan for each in gaps.values()))


def main(arguments=None):
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.learned_scale")
    parser.add_argument("names", nargs="*", metavar="name", help="all models if omitted")
    parser.add_argument("--epsilon", type=float, nargs="*", default=[0.3, 1.0, 3.0])
    parser.add_argument("--data", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--oracle", type=int, default=12, help="runs per setting; 0 for none")
    parser.add_argument("--loud", action="store_true", help="learn where noise is loud as well")
    parser.add_argument("--short", action="store_true", help="epsilon 1, 2 data sets, no oracle")
    asked = parser.parse_args(arguments)
    unknown = set(asked.names) - set(STUDIES)
    if unknown:
        parser.error(f"unknown models {sorted(unknown)}; write some of {list(STUDIES)}")
    if asked.short:
        asked.epsilon, asked.data, asked.runs, asked.oracle = [1.0], 2, 2, 0
    scale = dp.LearnScale() if asked.loud else None
    for epsilon in asked.epsilon:
        ratios = []
        for name in asked.names or STUDIES:
            row_of = row(name, epsilon, asked.data, asked.runs, asked.oracle, scale)
            ratios.append(
                (row_of.ratio, row_of.learned / row_of.tuned, row_of.declared / row_of.tuned)
            )
            figures = "  ".join(f"{ratio:8.3g}" for ratio in ratios[-1])
            print(
                f"epsilon {epsilon:<4g} {name:32s} learned {row_of.learned:9.3g}  declared "
                f"{row_of.declared:9.3g}  oracle {row_of.tuned:9.3g}  learned/declared, "
                f"learned/oracle, declared/oracle {figures}", flush=True,
            )  # fmt: skip
        means, worst = np.exp(np.mean(np.log(ratios), axis=0)), np.max(ratios, axis=0)
        for what, values in (("geometric mean", means), ("largest", worst)):
            figures = "  ".join(f"{value:8.3g}" for value in values)
            print(f"epsilon {epsilon:<4g} {what} of the ratios {figures}", flush=True)


if __name__ == "__main__":
    main()
