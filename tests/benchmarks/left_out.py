"""Measure what accounting leaves out because it saves little: joint turns, subsampled records.

``python -m tests.benchmarks.left_out`` prints the figures that docs/privacy/accounting.md states.

**Several turns of one user jointly.** Let a run use the changed function in every turn of one
user. Let another one begin there with the function before the change. The second one moves towards
the run without the change, in pairs of rounds between the turns. With a contraction of a norm by
rho in a round, a turn of size 1, and moves z, the distance w obeys w <- sqrt(rho) w in a round,
w <- w - z before a pair, and w <- w + 1 in a turn. If it ends at 0, the loss is at most kappa times
the sum of squares of the moves. Turns beyond the last pair add their own loss. Quadratic users with
constant Hessians lose a number that no bound can be below.

**Subsampling under secure sums.** Each record takes part in a round with probability q, in secret.
The noise of the sampled mean gradient is that of the sum over q. It is compared with full batches
in as many rounds, at the same total budget, by exact privacy loss distributions.

**Sums of gradients with hidden iterates.** Gradient descent along sums contracts differences of two
runs by a factor c, and every round adds a shift s of the changed agent. The second run moves
towards the first by z in every round. The distance obeys w <- c w + s - z and ends at 0. The least
sum of squares is s^2 (1 + c)/(1 - c) (1 - c^T)/(1 + c^T), and visible sums have s^2 T. Quadratic
losses attain it.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from dpcvx.privacy.accounting import gaussian_multiplier, smallest_multiplier
from dpcvx.privacy.last_iterate import profile
from dpcvx.privacy.two_block import least, local_zcdp
from problems.elastic_net.certified import CASES, certified
from tests.campaigns.secret_draws import Line

SIZES = ((5, 10), (20, 2), (20, 10), (100, 2))


def squares(turns, rounds, rho):
    """Return the sum of squared moves that remove all turns; infinite without a pair at the end.

    Parameters
    ----------
    turns : sequence of int
        Rounds of the user.
    rounds : int
    rho : float
        Contraction of the squared norm in a round.
    """
    pairs = []
    for start, end in zip(turns, [*turns[1:], rounds], strict=True):
        pairs += range(start, end - 1, 2)
    if not pairs or pairs[-1] < turns[-1]:
        return math.inf
    root, last = math.sqrt(rho), pairs[-1]
    gains = root ** (last - np.array(pairs, dtype=float))
    scale = sum(root ** float(last - t) for t in turns) / (gains**2).sum()
    left, now, total, waiting = 0.0, turns[0], 0.0, list(turns)
    for pair, gain in zip(pairs, gains, strict=True):
        left *= root ** float(pair - now)
        now = pair
        while waiting and waiting[0] <= pair:
            left += root ** float(pair - waiting.pop(0))
        move = left if pair == last else min(scale * gain, left)
        total += move * move
        left -= move
    return total


def joint(block, users, passes, position):
    """Return the joint bound of one user, in the unit of `two_block` with sigma = eta Delta = 1."""
    turns, rounds = list(range(position, users * passes, users)), users * passes
    alone = least(block, 1.0, block.eta, np.array([rounds - 1 - turns[-1]]), x_alone=True).item()
    found = math.inf
    for rho, kappa in block.proved.contractions:
        found = min(found, kappa * squares(turns, rounds, rho) / 2)
        if len(turns) > 1:
            found = min(found, kappa * squares(turns[:-1], turns[-1], rho) / 2 + alone)
    return min(found, len(turns) * local_zcdp(block, 1.0, block.eta))


def quadratic(block, users, passes):
    """Return the largest exact loss of quadratic users in one dimension, in the unit of `joint`.

    All turns of a user move the gradient in one direction, or in turn up and down, as adds most.
    """
    largest = 0.0
    for curvature in np.linspace(block.mu, block.nu, 7):
        for convexity in block.mu_g + np.array([0, 0.01, 0.1, 0.3, 1, 3, 10, 1e4]):
            line = Line(curvature, convexity, block.beta, block.eta)
            shifts = line.responses(users * passes)[::-1, 0]
            for user in range(users):
                turns = np.abs(shifts[user::users]).sum() / (1 + block.eta * block.beta)
                largest = max(largest, turns**2 / (shifts**2).sum() / 2)
    return largest


def settings():
    """Yield names, users, passes, and losses over that of the package's bound.

    They are the joint loss of the user who loses most by the package's bound, the least one of any
    user, and the exact loss of quadratic users.
    """
    for name, block in CASES.items():
        for users, passes in SIZES:
            proved = certified(block, users * passes)
            now = profile(proved, 1.0, block.eta, users=users, iterations=users * passes).rho
            bounds = np.array([joint(proved, users, passes, k) for k in range(users)]) / now
            exact = quadratic(block, users, passes) / now.max()
            yield name, users, passes, bounds[now.argmax()], bounds.min(), exact


def sampled_noise(q, rounds, epsilon, delta=1e-6):
    """Return the noise of the sampled mean gradient over that of full batches, at one budget."""
    full = gaussian_multiplier(rounds, epsilon, delta)
    width = min(2e-3, max(1e-4, 0.05 * epsilon / math.sqrt(rounds)))

    def spent(noise):
        one = from_gaussian_mechanism(
            noise, sampling_prob=q, value_discretization_interval=width, use_connect_dots=True
        )
        return one.self_compose(rounds).get_epsilon_for_delta(delta)

    noise = smallest_multiplier(spent, epsilon, max(q * full, 0.4), close=1e-3)
    return noise / (q * full)


def print_sampled():
    """Print the noise with subsampling by budget, rounds and share of the records."""
    shares = (0.5, 0.25, 0.1, 0.05, 0.01)
    print("noise of the mean gradient, sampled over full batches, in as many rounds, delta 1e-6")
    print(f"{'epsilon':>7}{'rounds':>8}" + "".join(f"{f'q = {q:g}':>10}" for q in shares))
    for epsilon in (0.5, 1.0, 4.0):
        for rounds in (10, 30, 100, 300, 1000):
            cells = [f"{sampled_noise(q, rounds, epsilon):>10.3f}" for q in shares]
            print(f"{epsilon:>7g}{rounds:>8}" + "".join(cells), flush=True)


def hidden_sums(c, rounds):
    """Return the noise of sums with hidden iterates over that of visible ones, at one budget."""
    power = c**rounds
    return math.sqrt((1 + c) / (1 - c) * (1 - power) / (1 + power) / rounds)


def print_hidden_sums():
    """Print the noise with hidden iterates by rate of contraction and rounds."""
    print("noise of sums of gradients with hidden iterates, over visible ones")
    print(f"{'step x modulus':>15}" + "".join(f"{f'{k} / it':>10}" for k in (1, 2, 3, 5)))
    for rate in (0.1, 0.01, 0.001):
        cells = [f"{hidden_sums(1 - rate, round(k / rate)):>10.3f}" for k in (1, 2, 3, 5)]
        print(f"{rate:>15g}" + "".join(cells))


def main():
    """Print all figures that the page states."""
    print("loss of all turns over the package's bound of rho; below 1 the joint bound would save")
    print(f"{'users':<24}{'N':>5}{'passes':>8}{'worst user':>12}{'any user':>12}{'exact':>8}")
    for name, users, passes, worst, smallest, exact in settings():
        print(f"{name:<24}{users:>5}{passes:>8}{worst:>12.3f}{smallest:>12.3f}{exact:>8.3f}")
    print()
    print_hidden_sums()
    print()
    print_sampled()


if __name__ == "__main__":
    main()
