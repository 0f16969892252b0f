"""Federated learning at user level: images of handwritten digits, by who adds the noise.

``python -m tests.benchmarks.federated_digits`` prints the table in docs/benchmarks/accuracy.md.
Clients hold a few images each, and a whole client is protected. The images come with scikit-learn.
Sums are formed without shares, which takes less time and gives the same bits.
"""

import argparse

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.spies import add_up_without_shares

DELTA = 1e-6


def images(clients, each, seed=0):
    """Return pixels and labels of clients, and of test images, as rows of norm 1.

    Parameters
    ----------
    clients, each : int
        Images of each client.
    seed : int
        Of the split.
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    pixels = pixels[order].reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    pixels = pixels / np.linalg.norm(pixels, axis=1, keepdims=True)
    marks, n = np.eye(10)[labels[order]], clients * each
    return pixels[:n], marks[:n], pixels[n:], labels[order][n:]


def loss(pixels, marks, weights):
    """Return the sum of the cross entropies of a linear classifier."""
    scores = pixels @ weights
    return cp.sum(cp.log_sum_exp(scores, axis=1) - cp.sum(cp.multiply(marks, scores), axis=1))


def of_clients(pixels, marks, clients):
    """Return the problem of clients that hold their images, and its weights."""
    weights, agents, each = cp.Variable((16, 10), name="weights"), [], len(pixels) // clients
    for k in range(clients):
        rows, label = slice(k * each, (k + 1) * each), f"images of client {k}"
        whole = {"max_rows_per_person": "all", "records": label}
        x = dp.Private(pixels[rows], name=f"pixels{k}", adjacency=dp.Rows(1.0, **whole))
        y = dp.Private(marks[rows], name=f"marks{k}", adjacency=dp.Rows(1.0, norm=1, **whole))
        penalty = 1e-3 * cp.sum_squares(weights) / clients
        agents.append(dp.Agent(cp.Minimize(loss(x, y, weights) / len(pixels) + penalty)))
    return dp.Problem(agents), weights


def of_server(pixels, marks, clients):
    """Return the problem of a trusted server that holds all images, and its weights."""
    weights, each = cp.Variable((16, 10), name="weights"), len(pixels) // clients
    people = np.repeat(np.arange(clients), each)
    rows = {"max_rows_per_person": each}
    x = dp.Private(dp.ByPerson(pixels, people), name="pixels", adjacency=dp.Rows(1.0, **rows))
    y = dp.Private(dp.ByPerson(marks, people), name="marks", adjacency=dp.Rows(1.0, norm=1, **rows))
    penalty = 1e-3 * cp.sum_squares(weights)
    return dp.Problem([dp.Agent(cp.Minimize(loss(x, y, weights) / len(pixels) + penalty))]), weights


def plans(problem, who, epsilon):
    """Return the default plan of a row of the table."""
    secure = dp.FederatedGradient(sharing=dp.SecretSharing(limit=10.0))
    method = (secure,) if who == "secure sum" else ()
    return problem.plan(*method, epsilon=epsilon, delta=DELTA)


def accuracy(who, clients, each, epsilon, seed=0, runs=1):
    """Return the plan and the share of test images that are recognized, of several runs.

    Parameters
    ----------
    who : {"local noise", "secure sum", "trusted server"}
    clients, each : int
    epsilon : float
    seed : int
        Of the split and of the noise.
    runs : int
    """
    pixels, marks, others, labels = images(clients, each, seed)
    make = of_server if who == "trusted server" else of_clients
    problem, weights = make(pixels, marks, clients)
    plan = plans(problem, who, epsilon)
    found = []
    for run in range(runs):
        result = plan.run(seed=seed + run, verbose=False)
        guess = np.argmax(others @ result.solution[weights], axis=1)
        found.append(float((guess == labels).mean()))
    return plan, found


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--each", type=int, default=14)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 8.0])
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    for epsilon in asked.epsilon:
        for who in ("local noise", "secure sum", "trusted server"):
            with pytest.MonkeyPatch.context() as patch:
                add_up_without_shares(patch)
                plan, found = accuracy(who, asked.clients, asked.each, epsilon, runs=asked.runs)
            print(
                f"epsilon {epsilon:g}  {who:<16}{np.median(found):.2f} "
                f"({min(found):.2f} to {max(found):.2f}); {plan.algorithm}, {plan.rounds} rounds",
                flush=True,
            )


if __name__ == "__main__":
    main()
