r"""What the single outputs of a recorded run revealed. Not a guarantee, not private.

An entry of a point that left lies, but for its Laplace noise, on the interval on which the agent's
secret random weight puts it. The run is replayed twice from its releases, with all random weights
at 0 and at 1, and every step is taken along the exact gradient as well: where these steps end are
the ends of the interval. The releases keep both replays on the path of the run, so that the
interval of a round is the one that its past left open, whatever the method does. What is required
of it is that an entry of the aggregate is affine in one weight of the agent's own. See
`dpcvx.verify.ex_post` for the losses.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from .._arguments import show
from ..algorithms.decentralized_admm import DecentralizedADMM
from ..algorithms.decentralized_gradient import DecentralizedGradient
from ..errors import ModelError
from ..model.normal_form import BoundObjective
from ..plan.terms import Terms
from ..privacy.accounts import Account
from ..privacy.entries import Entry
from ..privacy.mechanism import Laplace
from ..run.loop import drive_silently
from ..run.oracle import Release, ReplayOracle
from ..run.result import Transcript
from ..solvers.steps import Descent
from .ex_post import Kind, Losses, expected, observed

Array = NDArray[np.float64]
_STATED = "what its outputs reveal is in plan.guarantee"


@dataclass(frozen=True, eq=False)
class Step:
    """A step that left, and where it would have ended without noise.

    Attributes
    ----------
    end : ndarray, shape (m,)
        With all random weights at one value; of the entries that moved. Private.
    value : ndarray, shape (m,)
        What left.
    at : ndarray, shape (n,)
        The point of the gradient.
    size : float
        What the gradient was multiplied by.
    moving : ndarray, shape (n,), or None
        1 for the entries that moved, 0 for others; None for all.
    """

    end: Array = field(repr=False)
    value: Array
    at: Array
    size: float
    moving: Array | None


class Probe(ReplayOracle):
    """A replay in which all random weights are equal; it notes the steps. Not private.

    Parameters
    ----------
    agent : int
    releases : iterable of Release
    account : Account
    objective : BoundObjective
        With the private data.
    weight : float
    steps : dict of int to Step
        Filled, by round.
    """

    def __init__(
        self,
        agent: int,
        releases: Iterable[Release],
        account: Account,
        objective: BoundObjective,
        weight: float,
        steps: dict[int, Step],
    ) -> None:
        super().__init__(agent, releases, account)
        self._objective = objective
        self._weight = weight
        self._steps = steps

    def uniform(self, size: int) -> Array:
        """At one end."""
        return np.full(size, self._weight)

    def step(self, x: Array, move: Descent) -> Array:
        """The recorded point."""
        value = super().step(x, move)
        with np.errstate(all="ignore"):  # as in the run
            g = self._objective.gradient(x)
        end = move(np.where(np.isfinite(g), g, 0.0))
        only = slice(None) if move.only is None else move.only
        self._steps[self._round] = Step(end[only], value[only], x, move.size, move.moving)
        return value

    def __repr__(self) -> str:
        return "Probe()"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("A probe holds private data and is never pickled.")


def check(plan: Terms, transcript: Transcript, kind: Kind) -> None:
    """Refuse what has no ex-post losses, or none that are known; nothing is read.

    Raises
    ------
    ModelError
    """
    if kind not in get_args(Kind):
        raise ModelError(f"kind={show(kind)} is unknown: write 'observed' or 'expected'.")
    _check_method(plan)
    if not plan.noisy:
        raise ModelError(
            "The plan has no noise, so its outputs have no finite loss, or nothing is private. "
            "Plan with mechanism='laplace' where something is."
        )
    if plan.published:
        raise ModelError(
            "With release='once' the data leave once, before any step, and random weights hide "
            f"nothing of them: of such a plan, {_STATED}. Plan with release='each step'."
        )
    other = [n.mechanism for n in plan.calibrated if n and not isinstance(n.mechanism, Laplace)]
    if other:
        raise ModelError(
            "Ex-post losses are known for Laplace noise, and the plan's is "
            f"{other[0]}: under it they have no bound that all outputs keep. "
            "Plan with mechanism='laplace'."
        )
    if not isinstance(transcript, Transcript):
        raise ModelError(
            f"transcript= is a {type(transcript).__name__}; write plan.run(record=True), and pass "
            "the transcript of its result."
        )
    if transcript.fingerprint != plan.fingerprint:
        raise ModelError(
            "The transcript was recorded under another plan: problem, algorithm, mechanism and "
            "rounds must be the same, or the intervals would be those of another run. Pass the "
            "plan it came from."
        )


def _check_method(plan: Terms) -> None:
    method = plan.algorithm
    if isinstance(method, DecentralizedADMM):
        if method.exact:
            raise ModelError(
                "Exact steps have their gradient where they end, which bends the intervals: "
                "ex-post losses are known for linearised steps only. Write "
                "dp.DecentralizedADMM(...) without exact=."
            )
        random, was, instead = method.randomness > 0, "randomness=0", "randomness=1"
    elif isinstance(method, DecentralizedGradient):
        random = method.aggregate in ("pair", "range")
        was, instead = f"aggregate={method.aggregate!r}", "aggregate='range'"
    else:
        raise ModelError(
            "Ex-post losses are those of random aggregators: points between the neighbours', drawn "
            f"by an agent in secret. {type(method).__name__} has none: {_STATED}. Write "
            "dp.DecentralizedADMM(...) or dp.DecentralizedGradient(aggregate='range')."
        )
    if not random:
        raise ModelError(
            f"{was} leaves no random weights, which alone lower the loss on an output: of such a "
            f"plan, {_STATED}. Write dp.{type(method).__name__}({instead}) for random ones."
        )


def exposed(
    plan: Terms, transcript: Transcript, objectives: Mapping[int, BoundObjective], kind: Kind
) -> dict[str, Losses]:
    """Losses of all releases with noise, by agent. Not private.

    Parameters
    ----------
    plan : Terms
    transcript : Transcript
        Both as `check` accepts them.
    objectives : mapping of int to BoundObjective
        With the private data, as the run computed their gradients; of agents that have any.
    kind : {"observed", "expected"}
    """
    low, high = (steps(plan, transcript, objectives, weight) for weight in (0.0, 1.0))
    found = {}
    for k in objectives:
        account = transcript.ledger[plan.program.agents[k].name]
        sensitivity = plan.sensitivities[k]
        assert sensitivity is not None
        # A ledger may begin with earlier runs, whose rounds have the same numbers.
        entries = {entry.round: entry for entry in account.entries}
        losses = []
        for t, step in low[k].items():
            # B, no more than the l2 bound of the run.
            reach = sensitivity.near(2, step.at, step.moving)
            if reach > 0:  # what cannot tell anything leaves without noise
                losses.append(_losses(step, high[k][t], entries[t], reach, kind))
        if losses:
            found[account.agent] = reduce(operator.add, losses)
    return found


def steps(
    plan: Terms, transcript: Transcript, objectives: Mapping[int, BoundObjective], weight: float
) -> dict[int, dict[int, Step]]:
    """Per agent and round, the steps with all random weights at one value. Not private."""
    found: dict[int, dict[int, Step]] = {k: {} for k in objectives}
    oracles = []
    for k, local in enumerate(plan.program.agents):
        recorded = k, transcript.releases, transcript.ledger[local.name]
        if k in objectives:
            oracles.append(partial(Probe, *recorded, objectives[k], weight, found[k]))
        else:
            oracles.append(partial(ReplayOracle, *recorded))
    drive_silently(plan, oracles, transcript.rounds)
    return found


def _losses(low: Step, high: Step, entry: Entry, reach: float, kind: Kind) -> Losses:
    """Of one round."""
    omega, beta = np.abs(high.end - low.end), 1 / (entry.multiplier * entry.sensitivity)
    # The l1 bound that the noise was scaled to is one of every entry, too.
    shift = min(low.size * reach, entry.sensitivity)
    if kind == "expected":
        return expected(omega=omega, beta=beta, shift=shift)
    start = np.minimum(low.end, high.end)
    return observed(low.value - start, omega=omega, beta=beta, shift=shift)
