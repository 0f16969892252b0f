"""Iterations of the four papers in plain arrays, written from their texts alone.

Tests compare the package's runs as printed with them, entry by entry: nothing here imports it.
"""

import math

import numpy as np

__all__ = ["chan_xie_zhao", "ou_wang_liu_lu", "ryu_kim", "xiao_ye_devadas"]


def xiao_ye_devadas(gradients, neighbors, start, constants, zeta, fractions, noise):
    """Run Algorithm 1 on a graph, with (6) and the multipliers' sign that converges.

    The paper writes it for a complete graph; its Appendix E has neighbors for all other agents.
    `constants` are the agents' own D_i, `fractions` Gamma_i / D_i and `noise` Delta_i, all
    by agent, the last two of shape (rounds, agents, entries).
    """
    x, lam, points = start.copy(), np.zeros_like(start), []
    for gamma, delta in zip(fractions, noise, strict=True):
        new = np.empty_like(x)
        for i, near in enumerate(neighbors):
            others = np.mean([x[j] for j in near], axis=0)
            mixed = gamma[i] * x[i] + (1 - gamma[i]) * others
            new[i] = mixed - gradients[i](x[i]) / constants[i]
            new[i] += lam[i] / constants[i] + delta[i]
        for i, near in enumerate(neighbors):
            lam[i] += zeta * sum(new[j] - new[i] for j in near)
        x = new
        points.append(x.copy())
    return np.array(points)


def ou_wang_liu_lu(gradients, P, start, alpha, beta, rho, eta, w_noise, e_noise):
    """Run Algorithm 1 (DPP2), lines 4 to 11; `eta` is a sequence, noise has shape (K, N, d)."""
    x, points = start.copy(), []
    d, q = np.zeros_like(x), np.zeros_like(x)
    for share, w, e in zip(eta, w_noise, e_noise, strict=True):
        y = x + (1 - share) * d + w
        mixed = rho * P @ y
        g = np.array([g(point) for g, point in zip(gradients, x, strict=True)])
        z = g + share * q + mixed + e
        x = x + w - alpha * (z - e) + beta * P @ z
        d = share * d + y
        q = share * q + mixed
        points.append(x.copy())
    return np.array(points)


def ryu_kim(parts, classes, start, limit, penalties, steps, updates, budget, normal, where):
    """Run Algorithm 1 with (10), or its comparator (12), on (30) with W_p = [-limit, limit]^n.

    `parts` are the agents' features and labels, `budget` the epsilon and delta of a local update,
    and `normal` a function of round, update and agent that draws standard normal noise. The noise
    of a gradient has the variance of Lemma 2.3 with (31) over the agent's own records.
    `where` is "objective", or "output", whose noise has 2 / (rho + 1 / eta) times that scale.
    """
    total = sum(len(labels) for _, labels in parts)
    epsilon, delta = budget
    spread = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    z = [start.copy() for _ in parts]
    lam, last = [np.zeros_like(start) for _ in parts], [start.copy() for _ in parts]
    sent = []
    for t, (rho, eta) in enumerate(zip(penalties, steps, strict=True), 1):
        w = sum(own - dual / rho for own, dual in zip(z, lam, strict=True)) / len(parts)  # line 5
        for p, (features, labels) in enumerate(parts):
            outputs = []
            for e in range(updates):
                gradient, largest = np.zeros_like(start), 0.0
                for row, label in zip(features, labels, strict=True):
                    odds = np.exp(row @ last[p])
                    apart = odds / odds.sum() - np.eye(classes)[label]
                    gradient += np.outer(row, apart) / total
                    largest = max(largest, np.linalg.norm(np.outer(row, apart)) / (total + 1))
                noise = spread * largest * normal(t, e, p)
                inside = noise if where == "objective" else 0.0
                # stationarity of (10): f' + (z - last) / eta - rho (w - z) - lam + xi = 0
                free = last[p] / eta + rho * w + lam[p] - inside - gradient
                new = np.clip(free / (1 / eta + rho), -limit, limit)
                if where == "output":
                    new = new + 2 / (rho + 1 / eta) * noise
                last[p] = new
                outputs.append(new)
            z[p] = sum(outputs) / updates  # line 20
            lam[p] = lam[p] + rho * (w - z[p])  # line 22
        sent.append(np.array(z))
    return np.array(sent)


def chan_xie_zhao(gradients, start, prox, beta, eta, noise):
    """Run Algorithm 1 for the constraint x - y = 0 of section 10: A = I, B = -I and c = 0.

    `gradients` are those of f_1 to f_T in turn, and `prox(v)` minimizes g(y) + beta |y - v|^2 / 2.
    Returns all x, y and multipliers.
    """
    x, lam, out = start.copy(), np.zeros_like(start), []
    for gradient, draw in zip(gradients, noise, strict=True):
        y = prox(x - lam / beta)  # line 1: g(y) - lam'(x - y) + beta |x - y|^2 / 2
        lam = lam - beta * (x - y)  # line 2
        step = gradient(x) + beta * (-y) - lam  # line 3, Lemma 2.2
        x = (x - eta * step) / (1 + eta * beta) + draw
        out.append((x, y, lam))
    return tuple(np.array(column) for column in zip(*out, strict=True))
