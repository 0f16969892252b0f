"""Random problems of two blocks, with exact losses computed from plain matrices."""

import math

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from dpcvx.privacy.two_block import RULES, TwoBlock, bounds, step_interval

seeds = st.integers(0, 2**32 - 1)
random_instances = settings(deadline=None, max_examples=150, derandomize=True)


def convex(block, sensitivity, sigma, after):
    return bounds(block, sensitivity, sigma, np.array([after]))[1, 0]


def strongly_convex(block, sensitivity, sigma, after):
    return bounds(block, sensitivity, sigma, np.array([after]))[2, 0]


def least(block, sensitivity, sigma, after):
    """The smallest bound of one use, and the rule that gives it."""
    found = bounds(block, sensitivity, sigma, np.array([after]))[:, 0]
    return found.min(), RULES[found.argmin()]


def loguniform(rng, low, high):
    return float(10 ** rng.uniform(low, high))


def quadratic(rng, n, low, high):
    """A symmetric matrix with eigenvalues from low to high, often at the ends."""
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    ends = [rng.uniform(low, high, n), rng.choice([low, high], n), np.full(n, low)]
    return (Q * ends[rng.integers(3)]) @ Q.T


class Instance:
    """A random problem: matrices, Hessians for each iteration, and its certified constants."""

    def __init__(self, seed, strong, iterations=1):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 4))
        m = int(rng.integers(1, n + 1))
        D = rng.standard_normal((m, n - m))
        self.reduced = bool(rng.random() < 0.5)
        self.A = np.hstack([np.eye(m), D]) if self.reduced else rng.standard_normal((m, n))
        k = int(rng.integers(1, 4))
        self.B = rng.standard_normal((m, k)) * loguniform(rng, -2, 1)
        if rng.random() < 0.4:
            self.B, k = -np.eye(m), m
        nu, self.beta = loguniform(rng, -1, 1), loguniform(rng, -2, 2)
        mu = nu * rng.choice([1, rng.uniform(0.05, 1)]) if strong else 0.0
        mu_g = loguniform(rng, -2, 2) if strong else 0.0
        if strong:
            low, high = step_interval(nu, mu, mu_g, self.beta, np.linalg.norm(self.A.T @ self.B, 2))
            self.eta = low + (high - low) * rng.uniform(0.01, 0.99)
        else:
            self.eta = rng.choice([1, 2, rng.uniform(0.01, 2)]) / nu
        self.G = quadratic(rng, k, mu_g, mu_g * rng.choice([1, 30]) if strong else 1.0)
        self.H = [quadratic(rng, n, mu, nu) for _ in range(iterations)]
        if rng.random() < 0.5:
            self.H = [self.H[0]] * iterations
        self.n, self.m, self.rng = n, m, rng
        self.block = TwoBlock.of(
            self.A, self.B, nu=nu, beta=self.beta, eta=self.eta, mu=mu, mu_g=mu_g
        )

    def step(self, x, lam, gradient, y_of=None):
        """One iteration from the paper's equations (5) to (7) with c = 0 and no noise."""
        A, B, beta, eta = self.A, self.B, self.beta, self.eta
        if y_of is None:
            y = np.linalg.lstsq(self.G + beta * B.T @ B, B.T @ (lam - beta * A @ x))[0]
        else:
            y = y_of(lam - beta * A @ x)
        after = lam - beta * (A @ x + B @ y)
        right = x - eta * (gradient(x) + A.T @ (beta * B @ y - after))
        return np.linalg.solve(np.eye(self.n) + eta * beta * A.T @ A, right), after

    def norm2(self, x, lam, R=1.0):
        return R * x @ x + self.eta / self.beta * np.sum((lam - self.beta * self.A @ x) ** 2)

    def matrices(self):
        """One iteration as a matrix on (x, lambda / beta - A x), for each Hessian."""
        start = np.eye(self.n + self.m)
        x, w = start[: self.n], start[self.n :]
        found = []
        for H in self.H:
            after = self.step(x, self.beta * (w + self.A @ x), lambda z, H=H: H @ z)
            found.append(np.vstack([after[0], after[1] / self.beta - self.A @ after[0]]))
        return found

    def loss(self, uses):
        """Exact loss of the final iterate for Delta = sigma = 1, worst direction of the change.

        The smallest noise that explains the shift, squared and halved.
        """
        A, n = self.A, self.n
        shift = np.vstack([np.eye(n), -A])
        own = self.eta * np.linalg.inv(np.eye(n) + self.eta * self.beta * A.T @ A)
        mean, noise = np.zeros((n + self.m, n)), np.zeros((n + self.m, 0))
        for t, M in enumerate(self.matrices()):
            mean, noise = M @ mean, np.hstack([M @ noise, shift])
            if t in uses:
                mean = mean + shift @ own
        explained = np.linalg.lstsq(noise, mean, rcond=1e-13)[0]
        assert np.abs(noise @ explained - mean).max() <= 1e-8 * np.abs(mean).max()
        return np.linalg.norm(explained, 2) ** 2 / 2


def flat(iterations):
    """One row of A and f = 0: in the second coordinate, x adds up noises and shifts."""
    instance = Instance(0, strong=False)
    instance.n, instance.m, instance.A, instance.B = 2, 1, np.array([[1.0, 0.0]]), -np.eye(1)
    instance.G, instance.H = np.eye(1), [np.zeros((2, 2))] * iterations
    instance.eta, instance.beta = 1.0, 1e4
    instance.block = TwoBlock.of(instance.A, instance.B, nu=1.0, beta=1e4, eta=1.0)
    return instance


def table_1(mu, beta):
    low, high = step_interval(2 * mu, 2 * mu, 0.2, beta, 1.0)
    nu = 2 * mu
    return TwoBlock(nu=nu, mu=nu, mu_g=0.2, beta=beta, eta=(low + high) / 2, AB_norm=1.0)


def renyi(mixture, alpha):
    """Bound of the Renyi divergence, by joint convexity of the integral of P^alpha Q^(1-alpha)."""
    return math.log(mixture.weight @ np.exp(alpha * (alpha - 1) * mixture.rho)) / (alpha - 1)
