r"""The convergence theorems of Xiao, Ye and Devadas, evaluated beside runs of their methods.

**(42), Theorems 3.1 and 3.2.** For agents coupled by equalities, with fixed penalties rho, in

.. math:: V^k = \sum_i D \|x_i^k - x_i^*\|^2 + \tfrac1\zeta \|\lambda^k - \lambda^*\|^2,
    \qquad V^k \ge (1 + p) V^{k+1},

p is the least of three fractions; the free constant alpha is chosen to maximize p. The paper prints
zeta where the proof has 1 / zeta: with weight zeta the inequality fails. (47), for linearized
steps, uses M for a smoothness constant L and for its square; here M is L where the proof bounds an
objective by a parabola, and L squared elsewhere.

**Theorem 3.3** with (55) and (58) covers steps with noise :math:`\Delta_i`.
It holds for any :math:`0 < h < 1`. Its p has six terms where the p of (47) has five:

.. math:: V^{k+1} \le a \Bigl( V^k + \sum_i \bigl( \tfrac{6 p D^2}{\zeta N \sigma_i^2}
    + \tfrac{D}{h p} \bigr) \|\Delta_i^{k+1}\|^2 \Bigr), \qquad a = \frac1{1 + (1 - h) p}

with the least singular values :math:`\sigma_i`; (55) prints :math:`\delta` for the first p. All
rounds' noise together is the residual of (14).

**Theorem 3.4** bounds the objective gap of Algorithm 2 at the mean of all agents' points over the
rounds, with steps :math:`1 / (c \sqrt k)`, subgradients of norm at most G, and noise with
:math:`E\|\Delta / \eta\|^2 \le V^2`.

Theorems 4.1 and 4.2 are orders without constants: they give no number to compare a run with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Number of candidates for alpha.
_TRIED = 400
# h of Theorem 3.3.
_HALF = 0.5


@dataclass(frozen=True, eq=False)
class Coupled:
    """``minimize sum_i (x_i - t_i)' H_i (x_i - t_i) / 2`` subject to ``sum_i A_i x_i = c``.

    Attributes
    ----------
    H, A : ndarray, shape (N, d, d)
        The matrices H_i, positive definite, and A_i, invertible.
    t : ndarray, shape (N, d)
        The agents' targets t_i.
    c : ndarray, shape (d,)
        Right side of the coupling.
    """

    H: Floats
    A: Floats
    t: Floats
    c: Floats

    @property
    def optimum(self) -> tuple[Floats, Floats]:
        """The optimal points x*, shape (N, d), and the optimal multipliers, shape (d,)."""
        # H_i (x_i - t_i) = A_i' lambda.
        back = np.linalg.solve(self.H, self.A.transpose(0, 2, 1))
        missed = self.c - np.einsum("ijk,ik->j", self.A, self.t)
        lam = np.linalg.solve(np.einsum("ijk,ikl->jl", self.A, back), missed)
        return np.asarray(self.t + back @ lam, dtype=np.float64), np.asarray(lam, dtype=np.float64)

    def distances(
        self,
        method: Method,
        rounds: int,
        *,
        power: int = -1,
        off: float = 0.0,
        noise: Floats | None = None,
    ) -> Floats:
        """Run a method and return the distance V after every round, shape (rounds + 1,).

        Parameters
        ----------
        method : Method
            The method.
        rounds : int
            Number of rounds.
        power : int
            Exponent of zeta, the weight of the multipliers: -1 as proved, 1 as printed.
        off : float
            If not 0, the run starts at the optimum, with this added to each multiplier; else from
            zero.
        noise : ndarray, shape (rounds, N, d), optional
            Noise that is added to the points.
        """
        (best, prices), D = self.optimum, method.D
        x: Floats = np.zeros_like(best)
        lam: Floats = np.zeros_like(prices)
        found: list[float] = []
        if off:
            x, lam = best, prices + off
        for k in range(rounds + 1):
            weighed = ((lam - prices) ** 2).sum() * method.zeta**power
            found.append(float(D * ((x - best) ** 2).sum() + weighed))
            pull = (lam - method.penalty * self._missed(x)) @ self.A
            if method.exact:
                right = (self.H @ self.t[:, :, None])[:, :, 0] + D * x + pull
                bent = self.H + D * np.eye(self.c.size)
                x = np.asarray(np.linalg.solve(bent, right[:, :, None])[:, :, 0], dtype=np.float64)
            else:
                down = (self.H @ (x - self.t)[:, :, None])[:, :, 0]
                x = np.asarray(x + (pull - down) / D, dtype=np.float64)
            if noise is not None and k < rounds:
                x = x + noise[k]
            lam = lam - method.zeta * self._missed(x)
        return np.array(found)

    def promised(self, method: Method, squares: Floats) -> Floats:
        """Bound V after every round of a run from zero by Theorem 3.3, shape (rounds + 1,).

        Parameters
        ----------
        method : Method
            The method, with linearized steps.
        squares : ndarray, shape (rounds, N)
            Squared norms of the noise, or their expectations to bound the expectation of V.
        """
        p = self.rate(method, terms=6)
        low = np.linalg.svd(self.A, compute_uv=False)[:, -1] ** 2
        weights = 6 * p * method.D**2 / (method.zeta * len(self.t) * low) + method.D / (_HALF * p)
        found = [float(self.distances(method, 0)[0])]
        for noisy in squares @ weights:
            found.append((found[-1] + float(noisy)) / (1 + (1 - _HALF) * p))
        return np.array(found)

    def _missed(self, x: Floats) -> Floats:
        return np.einsum("ijk,ik->j", self.A, x) - self.c

    def admissible(self, method: Method) -> list[tuple[str, bool]]:
        """Return the names of conditions (43), or (48) with L for M if steps are linearized.

        Each comes with whether it holds.

        Parameters
        ----------
        method : Method
            The method. Its penalties are fixed: rho^0 is the penalty.
        """
        N, rho, zeta, D = len(self.t), method.penalty, method.zeta, method.D
        curvature = np.linalg.eigvalsh(self.H)
        high = float((np.linalg.svd(self.A, compute_uv=False) ** 2).max())
        most = (2 if method.exact else 1) * float(curvature.min()) / (N * rho**2 * high)
        extra = 0.0 if method.exact else float(curvature.max())
        # The middle of alpha's range, from N / (2 rho - zeta) to its largest value.
        least = N / (2 * rho - zeta) if 2 * rho > zeta else math.inf
        alpha = math.sqrt(least * most) if math.isfinite(least) else math.inf
        name = "(43)" if method.exact else "(48), L for M"
        below = N * high / alpha + extra
        return [
            (f"{name}: alpha = {alpha:.4g} < {most:.4g}, by the curvatures", alpha < most),
            (f"{name}: D = {D:g} > rho sigma^2 = {rho * high:.4g}", rho * high < D),
            (f"{name}: D = {D:g} > N sigma^2 / alpha + L = {below:.4g}"
             if extra else f"{name}: D = {D:g} > N sigma^2 / alpha = {below:.4g}", below < D),
            (f"{name}: rho = {rho:g} > N / (2 alpha) = {N / (2 * alpha):.4g}",
             N / (2 * alpha) < rho),
            (f"{name}: zeta = {zeta:g} < 2 rho - N / alpha = {2 * rho - N / alpha:.4g}",
             zeta < 2 * rho - N / alpha),
        ]  # fmt: skip

    def rate(self, method: Method, *, terms: int = 5) -> float:
        """Return p of (42), or of (47) if steps are linearized; p <= 0 promises no convergence.

        Parameters
        ----------
        method : Method
            The method.
        terms : int
            Number of terms that bound the multipliers: 5, or 6 with noise.
        """
        N, rho, zeta, D = len(self.t), method.penalty, method.zeta, method.D
        curvature = np.linalg.eigvalsh(self.H)
        m, L = curvature[:, 0], curvature[:, -1]
        squares = np.linalg.svd(self.A, compute_uv=False) ** 2
        high, low = squares[:, 0], squares[:, -1]
        # Candidates for alpha; below the first of them, p is negative.
        alpha = np.geomspace(N / (2 * rho), 2 * m.min() / (N * rho**2 * high.max()), _TRIED)[
            :, None
        ]
        own = (2 if method.exact else 1) * m - alpha * N * rho**2 * high
        own = own / ((1 if method.exact else 2) * terms * L**2 / (zeta * N * low) + D)
        extra = np.zeros_like(L) if method.exact else L
        cross = terms * high / zeta * (rho**2 * high / low).sum()
        step = D - N * high / alpha - extra
        step = step / (terms * (D**2 + 2 * extra**2) / (zeta * N * low) + cross)
        dual = 2 * rho / zeta - N / (alpha[:, 0] * zeta) - 1
        dual = dual / (terms * ((rho**2 / zeta**2 + 1 / N) * high / low).sum())
        return float(np.min([own.min(axis=1), step.min(axis=1), dual], axis=0).max())


@dataclass(frozen=True)
class Method:
    """`dpcvx.ResourceADMM` with fixed penalties: rho, zeta, D, and whether steps are exact."""

    penalty: float
    zeta: float
    D: float
    exact: bool


@dataclass(frozen=True)
class Medians:
    """The problem ``minimize sum_i ||x - t_i||_1``, whose optimum is the median, by Algorithm 2.

    Attributes
    ----------
    agents, size : int
        Number of agents N, odd so that the optimum is one point, and number of entries d.
    noise : float
        Scale of the Laplace noise, over the step size.
    c : float
        Factor of the step sizes.
    """

    agents: int = 5
    size: int = 3
    noise: float = 1.0
    c: float = 1.0

    def targets(self, seed: int) -> Floats:
        """Draw the agents' targets t, shape (N, d)."""
        return np.random.default_rng(seed).normal(size=(self.agents, self.size))

    def run(self, rounds: int, seed: int) -> Floats:
        """Return the objective gaps of the mean of points over the first 1, ..., `rounds` rounds.

        Parameters
        ----------
        rounds : int
            Number of rounds.
        seed : int
            Seed of targets, weights and noise.
        """
        t, rng = self.targets(seed), np.random.default_rng(seed)
        best = np.abs(np.median(t, axis=0) - t).sum()
        X: Floats = np.zeros_like(t)
        total, found = np.zeros(self.size), list[float]()
        for k in range(1, rounds + 1):
            mean, eta = X.mean(axis=0), 1 / (self.c * math.sqrt(k))
            total = total + mean
            found.append(float(np.abs(total / k - t).sum() - best))
            apart = np.abs(X[:, None] - X).sum(axis=2)
            a, b = np.unravel_index(int(apart.argmax()), apart.shape)
            w = rng.uniform(size=X.shape)
            drawn = mean + (2 * w - 1) * (X[a] - X[b]) / len(X)  # (7)
            X = drawn + eta * (np.sign(t - mean) + self.noise * rng.laplace(size=X.shape))
        return np.array(found)

    def bound(self, rounds: NDArray[np.int64], seed: int) -> Floats:
        """Bound the expected gap after each of these numbers of rounds by Theorem 3.4.

        Parameters
        ----------
        rounds : ndarray of int
            Numbers of rounds, K.
        seed : int
            Seed of the targets.
        """
        t, N, K = self.targets(seed), self.agents, rounds
        away = N * (np.median(t, axis=0) ** 2).sum()
        # G^2 for subgradients of signs, plus the variance 2 noise^2 of every entry's noise.
        squares = self.size + 2 * self.size * self.noise**2
        return (
            self.c * np.sqrt(K) * away + N / self.c * (np.log(K) + 2) * np.sqrt(K + 1) * squares
        ) / K


def example() -> Coupled:
    """Return a problem of three agents with curvatures from 1 to 2 and two coupling equalities."""
    H = np.array([np.diag([1.0, 2.0]), np.diag([1.5, 1.0]), np.diag([2.0, 1.2])])
    A = np.array([np.eye(2), 0.8 * np.eye(2), np.array([[0.0, 1.0], [-1.0, 0.0]])])
    return Coupled(H, A, np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]]), np.array([3.0, -2.0]))


METHODS = {
    "exact steps": Method(penalty=0.2, zeta=0.1, D=3.0, exact=True),
    "linearized steps": Method(penalty=0.1, zeta=0.05, D=6.0, exact=False),
}
