"""The door: the only module that reads private values, and the only source of releases.

An algorithm hands in a point and gets back a noisy answer. The ledger entry is written first,
then the data are touched, then noise is added; nothing else comes back. Everything an algorithm
does with the answer is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import PrivacyError
from .ledger import Account, Entry
from .mechanism import Calibrated
from .normal_form import NormalForm
from .private import PrivateSpec, unseal
from .projection import ProximalStep
from .sensitivity import Sensitivity

Array = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Release:
    """A value that left an agent.

    Attributes
    ----------
    agent : int
    round, step : int
        Counted from 1.
    value : ndarray, shape (n,)
    """

    agent: int
    round: int
    step: int
    value: Array


class PrivateOracle:
    """Answers from private data.

    Parameters
    ----------
    agent : int
        Position of the agent.
    form : NormalForm
    sources : sequence of callables
        One per private parameter; called here, once.
    sensitivity : Sensitivity or None
        None only without noise.
    calibrated : Calibrated or None
        None switches the noise off.
    account : Account
    rng : numpy.random.Generator
    record : bool
        Keep the releases.
    """

    def __init__(
        self,
        agent: int,
        form: NormalForm,
        sources: Sequence[Callable[[], Any]],
        *,
        sensitivity: Sensitivity | None,
        calibrated: Calibrated | None,
        account: Account,
        rng: np.random.Generator,
        record: bool,
    ) -> None:
        self._agent = agent
        data = read(form.private, sources)
        self._objective = _guarded(agent, lambda: form.bind(data))
        self._private = bool(form.private)
        self._sensitivity = sensitivity
        self._noise = calibrated
        self._rng = rng
        self._gradient_bound = _gradient_bound(sensitivity, calibrated)
        if calibrated is not None and self._gradient_bound == 0:
            # The gradient is certified not to depend on the data; neither may its rounding errors.
            self._objective = form.at_zero()
        self._record = record
        self._round = self._step = 0
        self.account = account
        self.releases: list[Release] = []

    def begin(self, t: int) -> None:
        """Start round t: releases are numbered within it."""
        self._round, self._step = t, 0

    def gradient(self, x: Array) -> Array:
        """Gradient at x plus noise scaled to its sensitivity."""
        self._charge(self._gradient_bound, "gradient")
        g = self._exact(x)
        return self._release(g + self._draw(self._gradient_bound, g.size))

    def solution(self, x: Array, step: ProximalStep) -> Array:
        """Local step at the exact gradient plus noise shaped like the step's own geometry.

        The projection is nonexpansive in the D-norm, so ``sqrt(D) x+`` moves by at most
        ``||D^(-1/2) (g - g')||_2`` between neighbours (and by the l1 analogue where W is a product
        of intervals); the solver's stated accuracy is added on both sides. That the solver reaches
        it is an assumption of the guarantee. If it finds no point at all, the anchor takes the
        place of its answer, and nothing shows.
        """
        root = np.sqrt(step.D)
        bound, reach = self._solution_bound(step, root)
        self._charge(bound, "solution of the local step")
        g = self._exact(x)
        # The limit is for the solver's sake; an l2 limit would not keep an l1 bound of a box.
        limited = bound > 0 and not step.projector.exact
        found = _guarded(self._agent, lambda: step.within(g, reach) if limited else step(g))
        y = step.anchor if found.x is None else found.x
        return self._release(y + self._draw(bound, x.size) / root)

    def _exact(self, x: Array) -> Array:
        g = _guarded(self._agent, lambda: self._objective.gradient(x))
        return np.where(np.isfinite(g), g, 0.0)

    def _solution_bound(self, step: ProximalStep, root: Array) -> tuple[float, float]:
        """Sensitivity of the scaled solution, and the reach within which it holds."""
        if self._noise is None or self._sensitivity is None or self._gradient_bound == 0:
            return 0.0, math.inf
        l2 = self._sensitivity.bound(2, 1 / root).value
        spread = math.sqrt(root.size) if self._noise.mechanism.norm == 1 else 1.0
        # Earlier noise can have carried x away from W; the step may have to undo that.
        noise = self._noise.multiplier * spread * l2 * math.sqrt(root.size)
        reach = step.reach + 4.0 * noise
        if self._noise.mechanism.norm == 1 and step.projector.separable:
            return self._sensitivity.bound(1, 1 / root).value, reach
        return spread * (l2 + 2 * step.accuracy(reach)), reach

    def _charge(self, bound: float, released: str) -> None:
        self._step += 1
        if self._noise is None:
            if self._private:
                self.account.expose(
                    Entry(self._round, self._step, "none", 0.0, math.inf, "none", released)
                )
            return
        if bound == 0:
            return
        entry = Entry(
            round=self._round,
            step=self._step,
            mechanism=str(self._noise.mechanism),
            multiplier=self._noise.multiplier,
            sensitivity=bound,
            certificate="derived",
            released=released,
        )
        self.account.charge(entry, self._noise)

    def _draw(self, bound: float, size: int) -> Array | float:
        if self._noise is None or bound == 0:
            return 0.0
        return self._noise.multiplier * bound * self._noise.mechanism.draw(self._rng, size)

    def _release(self, value: Array) -> Array:
        if self._record:
            self.releases.append(Release(self._agent, self._round, self._step, value.copy()))
        return value

    def __repr__(self) -> str:
        return f"PrivateOracle(agent={self._agent})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("An oracle holds private data and is never pickled.")


class ReplayOracle:
    """Answers from a transcript; holds no data, adds no noise, spends nothing."""

    def __init__(self, agent: int, releases: Iterable[Release], account: Account) -> None:
        self._values = {(r.round, r.step): r.value for r in releases if r.agent == agent}
        self._round = self._step = 0
        self.account = account
        self.releases: list[Release] = []

    def begin(self, t: int) -> None:
        """Start round t."""
        self._round, self._step = t, 0

    def gradient(self, x: Array) -> Array:
        """The recorded answer."""
        return self._next(x.shape)

    def solution(self, x: Array, step: ProximalStep) -> Array:
        """The recorded answer."""
        return self._next(x.shape)

    def _next(self, shape: tuple[int, ...]) -> Array:
        self._step += 1
        value = self._values.get((self._round, self._step))
        if value is None or value.shape != shape:
            raise PrivacyError(
                f"The transcript has no release of shape {shape} for round {self._round}, step "
                f"{self._step}: it belongs to another plan, or to a run that stopped earlier."
            )
        return value.copy()


def read(specs: Sequence[PrivateSpec], sources: Sequence[Callable[[], Any]]) -> list[Array]:
    """Fetch and check private values: flat column-major arrays, one per private parameter."""
    return [unseal(source, spec) for spec, source in zip(specs, sources, strict=True)]


def _guarded(agent: int, compute: Callable[[], T]) -> T:
    """Compute on private data without warnings and without messages that could quote them."""
    try:
        with np.errstate(all="ignore"):
            return compute()
    except Exception as error:
        kind = type(error).__name__
    raise PrivacyError(
        f"A computation on the private data of agent {agent} failed with {kind}; the message is "
        "withheld, because it may quote the data."
    )


def _gradient_bound(sensitivity: Sensitivity | None, calibrated: Calibrated | None) -> float:
    if sensitivity is None or calibrated is None:
        return 0.0
    return sensitivity.bound(calibrated.mechanism.norm).value
