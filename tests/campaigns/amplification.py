"""Amplification by iteration against exact losses, by code that takes no formula from the package.

A trial is a random problem with linear gradients and a linear y step, other ones in every round, so
that its iterates are Gaussian and their losses exact. A climb over the maps of single rounds makes
them as large as it can. The package finds a certificate for the constants, and has to claim at
least as much.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpcvx.defaults.certificates import certificate
from dpcvx.privacy.last_iterate import profile
from dpcvx.privacy.two_block import TwoBlock, bounds
from tests.benchmarks.left_out import joint
from tests.campaigns.tally import Tally

# Two in three have a norm that rounds contract: 1,000 of these.
FULL = 1500
# Of the exact losses, relative: they are singular values of products of random matrices.
ROUNDING = 1e-7
AFTER = (0, 1, 2, 3, 5, 9, 14, 30)


def between(rng, n, low, high):
    """Return a random symmetric matrix with eigenvalues from low to high, often at an end."""
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    ends = [
        np.full(n, low),
        np.full(n, high),
        rng.choice([low, high], n),
        rng.uniform(low, high, n),
    ]
    return basis * ends[rng.integers(4)] @ basis.T


class Attack:
    """A random problem of two blocks, and maps of its rounds that a climb may change."""

    def __init__(self, rng, rounds=AFTER[-1] + 1):
        self.rng, n = rng, int(rng.integers(1, 5))
        m = n if rng.random() < 0.5 else int(rng.integers(1, n + 1))
        self.n, self.m = n, m
        left, right = (np.linalg.qr(rng.standard_normal((k, k)))[0] for k in (m, n))
        values = np.geomspace(1, rng.choice([1, 0.5, 0.1]), m) * rng.uniform(0.3, 2)
        self.A = left * values @ right[:, :m].T
        self.B = -np.eye(m)
        if rng.random() < 0.4:
            self.B = rng.standard_normal((m, int(rng.integers(1, 5))))
        self.nu, self.mu = 1.0, float(rng.choice([0, 0.05, 0.3, 1]))
        self.mu_g = float(rng.choice([0, 0, 0.1, 1]))
        self.beta = float(10 ** rng.uniform(-1.5, 0.7))
        self.eta = float(rng.choice([0.2, 1, 1.9, 2.5]))
        self.rounds = [self.maps() for _ in range(rounds)]
        if rng.random() < 0.5:
            self.rounds = [self.rounds[0]] * rounds

    def maps(self):
        """Return a Hessian of a user, and one of g."""
        k = self.B.shape[1]
        high = self.mu_g + self.rng.choice([0, 0.1, 1, 1e5])
        return between(self.rng, self.n, self.mu, self.nu), between(self.rng, k, self.mu_g, high)

    def block(self):
        """Return the constants with a certificate, or None if none was found."""
        block = TwoBlock.of(
            self.A, self.B, nu=self.nu, mu=self.mu, mu_g=self.mu_g, beta=self.beta, eta=self.eta
        )
        found = certificate(block.iteration, len(self.rounds))
        return None if found is None else replace(block, certificate=found)

    def matrix(self, H, G):
        """Return a round without noise on (x, lambda), from the paper's update equations."""
        A, B, beta, eta, n, m = self.A, self.B, self.beta, self.eta, self.n, self.m
        x, lam = np.eye(n, n + m), np.eye(m, n + m, n)
        y = np.linalg.lstsq(G + beta * B.T @ B, B.T @ (lam - beta * A @ x))[0]
        after = lam - beta * (A @ x + B @ y)
        right = x - eta * (H @ x + A.T @ (beta * B @ y - after))
        return np.vstack([np.linalg.solve(np.eye(n) + eta * beta * A.T @ A, right), after])

    def losses(self, rounds, after):
        """Return the exact losses in x, and in (x, lambda), of a turn before that many rounds."""
        n, m = self.n, self.m
        pick = np.eye(n + m, n)
        own = self.eta * np.linalg.inv(np.eye(n) + self.eta * self.beta * self.A.T @ self.A)
        mean, noise = pick @ own, pick
        for maps in rounds[:after]:
            M = self.matrix(*maps)
            mean, noise = M @ mean, np.hstack([M @ noise, pick])
        found = []
        for part in (slice(0, n), slice(0, n + m)):
            # The least sum of squares of shifts of the noises that has the same effect.
            U, s, _ = np.linalg.svd(noise[part], full_matrices=False)
            some = s > 1e-9 * s.max()
            found.append(np.linalg.norm(U[:, some].T @ mean[part] / s[some, None], 2) ** 2 / 2)
        return found

    def of_turns(self, rounds, users):
        """Return losses of all turns of each user if the last x is released: a maximum found.

        Users take turns in a fixed order, and every turn moves the gradient in the direction that
        adds most to what the others do.
        """
        n, left, shifts = self.n, np.eye(self.n, self.n + self.m), []
        for maps in reversed(rounds):
            shifts.append(left[:, :n])
            left = left @ self.matrix(*maps)
        shifts = np.array(shifts[::-1])
        own = self.eta * np.linalg.inv(np.eye(n) + self.eta * self.beta * self.A.T @ self.A)
        noise = np.linalg.cholesky(np.einsum("tij,tkj->ik", shifts, shifts))
        turns = np.linalg.solve(noise, shifts @ own)
        found = []
        for user in range(users):
            mine = turns[user::users]
            total = np.linalg.svd(np.hstack(list(mine)))[0][:, 0]
            for _ in range(30):  # each step makes the sum longer
                sides = np.einsum("tij,i->tj", mine, total)
                sides /= np.maximum(np.linalg.norm(sides, axis=1, keepdims=True), 1e-300)
                total = np.einsum("tij,tj->i", mine, sides)
            found.append(total @ total / 2)
        return np.array(found)

    def climb(self, after, which, steps):
        """Return the largest exact loss met by changing the maps of single rounds."""
        rounds = list(self.rounds)
        best = self.losses(rounds, after)[which]
        for _ in range(steps if after else 0):
            t = int(self.rng.integers(after))
            trial = [*rounds[:t], self.maps(), *rounds[t + 1 :]]
            if self.rng.random() < 0.3:
                trial = [self.maps()] * len(rounds)
            found = self.losses(trial, after)[which]
            if found > best:
                best, rounds = found, trial
        return best


def attacked(seed, steps=8, after=AFTER):
    """Return exact over claimed losses, by number of rounds after the turn and by rule.

    Parameters
    ----------
    seed : int
    steps : int
        Of each climb.
    after : sequence of int

    Returns
    -------
    ndarray, shape (len(after), 3), or None
        Round by round for x alone, round by round for (x, lambda), by contraction. None if no
        certificate was found.
    """
    attack = Attack(np.random.default_rng(seed), after[-1] + 1)
    block = attack.block()
    if block is None:
        return None
    found = []
    for k in after:
        x, state = (bounds(block, 1.0, 1.0, np.array([k]), x_alone=a)[3:, 0] for a in (True, False))
        exact = [attack.climb(k, which, steps) / (1 + ROUNDING) for which in (0, 1)]
        found.append([exact[0] / x[1], exact[1] / state[1], exact[1] / state[0]])
    return np.array(found)


def repeated(seed, steps=8):
    """Return exact over claimed losses of all turns of a user, at the worst position.

    Parameters
    ----------
    seed : int
    steps : int
        Of a climb over the maps of the rounds.

    Returns
    -------
    ndarray, shape (2,), or None
        Over what a plan claims, and over the joint bound of `tests.benchmarks.left_out`. None if no
        certificate was found.
    """
    rng = np.random.default_rng(seed)
    attack = Attack(rng)
    block = attack.block()
    if block is None:
        return None
    users = int(rng.integers(1, 8))
    passes = int(rng.integers(2, len(attack.rounds) // users + 1))
    count = users * passes
    claims = np.array(
        [
            profile(block, 1.0, 1.0, users=users, iterations=count).rho,
            # Its unit is that of noise as large as the step.
            [block.eta**2 * joint(block, users, passes, user) for user in range(users)],
        ]
    )
    rounds = attack.rounds[:count]
    largest = (attack.of_turns(rounds, users) / claims).max(axis=1)
    for step in range(steps):
        trial = list(rounds)
        trial[int(rng.integers(count))] = attack.maps()
        if step % 2:
            trial = [attack.maps()] * count
        found = (attack.of_turns(trial, users) / claims).max(axis=1)
        if found[0] > largest[0]:
            rounds = trial
        largest = np.maximum(largest, found)
    return largest / (1 + ROUNDING)


def followed(seed):
    """Return the squared shifts that hide a turn of nonlinear users over what is claimed.

    Two runs with the same noise are computed from the paper's update equations. Users' curvature
    jumps between its bounds, g is an l1 norm, bounds, or both with a square. Shifts follow from the
    certificate's multipliers by algebra of this file, in coordinates that are not scaled.

    Parameters
    ----------
    seed : int

    Returns
    -------
    (float, float) or None
        Share of the claimed bound, and how far apart both runs end, relative to the turn.
    """
    rng = np.random.default_rng(seed)
    attack = Attack(rng, 13)
    m, n, eta, beta = attack.m, attack.n, attack.eta, attack.beta
    attack.B, attack.mu = -np.eye(m), min(attack.mu, 0.3)
    block = attack.block()
    if block is None:
        return None
    scale = float(10 ** rng.uniform(-1, 1))  # of all points
    chain = block.certificate.last[int(rng.integers(len(block.certificate.last)))]
    K = min(int(rng.integers(1, 13)), len(chain.multipliers))
    values = np.linalg.svd(attack.A, compute_uv=False)
    shift = np.vstack([np.eye(n), -attack.A])  # on (x, lambda / beta - A x)
    inverse = np.linalg.inv(np.eye(n) + eta * beta * attack.A.T @ attack.A)

    # Forms on (xi, omega) for all components together, from the end.
    size, gamma = n + m, attack.mu_g / beta
    pick = np.eye(size + n + m)
    xi, om, e, r = (pick[a:b] for a, b in ((0, n), (n, size), (size, size + n), (size + n, None)))
    after = inverse @ (xi - e - eta * beta * attack.A.T @ (2 * r - om))
    after = np.vstack([after, om - r - attack.A @ after])

    def form(a, b):
        return (a.T @ b + b.T @ a) / 2

    F = form(e - eta * attack.mu * xi, eta * attack.nu * xi - e)
    G = form(r, om - (1 + gamma) * r) / values[0] ** 2
    W, forms = np.diag([1.0] * n + [0.0] * m), []
    for users, public in chain.multipliers[:K]:
        H = after.T @ W @ after + users * F + public * G
        P = H[:size, :size] - H[:size, size:] @ np.linalg.solve(H[size:, size:], H[size:, :size])
        gain = np.linalg.solve(np.eye(n) + shift.T @ P @ shift, shift.T @ P)
        W = P - P @ shift @ gain
        forms.append(gain)

    def user():
        basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
        center, width = scale * rng.standard_normal(n), scale * rng.exponential(size=n)
        bend = attack.nu - attack.mu

        def gradient(x):
            z = basis.T @ x
            return basis @ (attack.mu * z + bend * np.clip(z - center, -width, width))

        return gradient

    threshold, low, high = scale * rng.choice([0, 0.4]), -scale * 0.5, scale
    boxed = rng.random() < 0.5

    def public(w):  # argmin g(y) + beta/2 |y - (-w)|^2, with B = -I: -y for w = lambda/beta - A x
        y = np.sign(-w) * np.maximum(np.abs(w) - threshold / beta, 0) / (1 + attack.mu_g / beta)
        return np.clip(y, low, high) if boxed else y

    def step(state, gradient):
        x, w = state[:n], state[n:]
        by = -public(w)
        raised = w + attack.A @ x - attack.A @ x - by  # lambda after, over beta
        x = inverse @ (x - eta * gradient(x) - eta * beta * attack.A.T @ (by - raised))
        return np.concatenate([x, raised - attack.A @ x])

    one = scale * rng.standard_normal(size)
    size_of_change = scale * float(10 ** rng.uniform(-2, 1))
    direction = rng.standard_normal(n)
    direction *= size_of_change / np.linalg.norm(direction)
    mine = user()
    other = step(one, lambda x: mine(x) + direction)
    one, total = step(one, mine), 0.0
    for k in range(K + 1):
        difference = one - other
        v = forms[K - 1 - k] @ difference if k < K else difference[:n]
        total += v @ v
        noise = scale * rng.standard_normal(n)
        one, other = one + shift @ noise, other + shift @ (v + noise)
        if k < K:
            turn = user()
            one, other = step(one, turn), step(other, turn)
    apart = np.linalg.norm((one - other)[:n]) / (eta * size_of_change)
    return total / (chain.losses[K] * (eta * size_of_change) ** 2), apart


def campaign(size, seed):
    """Attack so many problems; a fault is a loss, or a sum of shifts, above what is claimed."""
    tally, largest, nonlinear = Tally(), np.zeros(3), 0.0
    problems, losses, users = np.zeros(3, dtype=int), np.zeros(3, dtype=int), 0
    several, turns = np.zeros(2), 0
    for k in range(size):
        # Certificates of many rounds take longest: one problem in four has them.
        found = attacked(seed * FULL + k, after=AFTER if k % 4 == 0 else AFTER[:6])
        if found is None:
            tally.add("no certificate")
            continue
        largest = np.maximum(largest, found.max(axis=0))
        # A rule that claims nothing has an infinite claim, and a ratio of 0.
        problems += (found > 0).any(axis=0)
        losses += (found > 0).sum(axis=0)
        fault = f"problem {seed * FULL + k}: {found.max(axis=0)}" if found.max() > 1 else None
        tally.add("attacked", fault)
        found = repeated(seed * FULL + k)
        if found is not None:
            turns, several = turns + 1, np.maximum(several, found)
            if found.max() > 1:
                tally.add("several turns", f"problem {seed * FULL + k}: {found}")
        shifts = followed(seed * FULL + k)
        if shifts is None:
            continue
        users, nonlinear = users + 1, max(nonlinear, shifts[0])
        if shifts[0] > 1 + 1e-9 or shifts[1] > 1e-8:
            tally.add("nonlinear", f"problem {seed * FULL + k}: shifts {shifts}")
    for rule, value, *count in zip(
        ("x alone", "(x, lambda)", "contraction"), largest, problems, losses, strict=True
    ):
        counted = "{} losses of {} problems".format(*count[::-1])
        tally.note(f"largest exact over claimed loss, {rule}, {counted}: {value:.6f}")
    for rule, value in zip(("plans", "the joint bound"), several, strict=True):
        counted = f"several turns by {rule}, {turns} problems"
        tally.note(f"largest exact over claimed loss, {counted}: {value:.6f}")
    tally.note(
        f"largest squared shifts over claimed loss, {users} problems with nonlinear users: "
        f"{nonlinear:.6f}"
    )
    return tally
