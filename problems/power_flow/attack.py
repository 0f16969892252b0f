"""Reconstruction of loads from the messages of a run without noise.

The attack follows Dvorkin et al. (2019), who invert the optimality conditions of the agents'
problems. For released gradients and one-time releases, use `dpcvx.reconstruct`, with noise or
without. No function here reads private data: the estimates follow from public facts and the
releases of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, least_squares

import dpcvx as dp
from dpcvx.algorithms.base import Local
from dpcvx.algorithms.consensus import Broadcast, LocalCopy
from dpcvx.privacy.accounts import Account
from dpcvx.run.public_oracle import PublicOracle
from dpcvx.solvers.projector import Projector

Floats = NDArray[np.float64]

RESTARTS = 40
REACH = 0.1
"""Largest distance, in per unit, of a restart's initial loads from the best fit so far."""
EXPLAINED = 1e-6
"""Largest difference between observed and computed messages of a fit that has found the loads."""


def loads_from_messages(plan: dp.Plan, messages: Sequence[Sequence[Floats]]) -> list[Floats]:
    """Estimate every zone's loads from the shared components that a run without noise sent.

    The observer repeats each zone's steps with trial loads, and fits these loads until the computed
    messages equal the observed ones (Gauss-Newton with finite differences). The messages have kinks
    where a bound becomes active, so a fit can stop early. It is then restarted near the best fit so
    far.

    Parameters
    ----------
    plan : dp.Plan
        Plan of the attacked run.
    messages : sequence of sequence of ndarray
        Messages by round and zone.

    Returns
    -------
    list of ndarray, shape (buses, 2)
        Columns P and Q, in per unit.
    """
    heard = _broadcasts(plan, messages)
    estimates = []
    for k, local in enumerate(plan.program.agents):
        (spec,) = local.form.private
        sent = np.concatenate([message[k] for message in messages])
        answers = _answers(plan, k, [broadcast[k] for broadcast in heard])
        rng = np.random.default_rng(0)
        best = _fit(answers, sent, np.zeros(spec.size))
        for _ in range(RESTARTS):
            if np.abs(best.fun).max() < EXPLAINED:
                break
            found = _fit(answers, sent, best.x + rng.uniform(-REACH, REACH, spec.size))
            best = min(best, found, key=lambda fit: fit.cost)
        estimates.append(spec.shaped(best.x))
    return estimates


def shared_messages(plan: dp.Plan, result: dp.Result) -> list[list[Floats]]:
    """Return the shared components that each zone sent, by round and zone.

    The run must have one local update per round.
    """
    return [
        [
            x[local.shared]
            for local, x in zip(plan.program.agents, iterate.last.vectors, strict=True)
        ]
        for iterate in result.iterates
    ]


def _fit(answers: Callable[[Floats], Floats], sent: Floats, start: Floats) -> OptimizeResult:
    """Fit loads, starting from `start`, so that computed messages equal the sent ones."""
    return least_squares(
        lambda d: answers(d) - sent,
        start,
        x_scale=1.0,
        diff_step=1e-3,
        ftol=1e-14,
        xtol=1e-12,
        gtol=1e-14,
        max_nfev=40,
    )


def _broadcasts(plan: dp.Plan, messages: Sequence[Sequence[Floats]]) -> list[list[Broadcast]]:
    """Recompute the server's messages from the messages that it received, by round and zone."""
    server = plan.algorithm.start_server(plan.program)
    heard = []
    for t, message in enumerate(messages, 1):
        server, broadcast = plan.algorithm.send(server, t, 0)
        # Multipliers follow from the broadcasts and the messages.
        moved = zip(server.lam, broadcast, message, strict=True)
        copies = [LocalCopy(z, lam + b.rho * (b.w - z)) for lam, b, z in moved]
        server = plan.algorithm.receive(server, t, 0, copies)
        heard.append(broadcast)
    return heard


def _answers(plan: dp.Plan, k: int, heard: Sequence[Broadcast]) -> Callable[[Floats], Floats]:
    """Return a function of loads d that returns the messages that zone k would have sent."""
    program = plan.program.agents[k]
    projector = Projector(program.constraints, program.name)
    local = Local(program, projector, None, program.form.at_zero().gradient)

    def answers(d: Floats) -> Floats:
        account = Account(program.name, {}, None)
        oracle = PublicOracle(plan.agents[k], program.form.bind([d]), account, [])
        state = plan.algorithm.start_agent(local)
        sent = []
        for t, broadcast in enumerate(heard, 1):
            oracle.begin(t)
            state, copy = plan.algorithm.act(local, state, t, 0, broadcast, oracle)
            sent.append(copy.z)
        return np.concatenate(sent)

    return answers
