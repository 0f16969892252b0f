"""Runs of the study, with measurements. Only the guarantees are private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx.algorithms.on_networks import NetworkState

from ..labeled import data_of
from ..papers import entry
from .measures import Measures
from .methods import Algorithm, Choice, Method
from .networks import geometric_network, matrix_of
from .quadratics import quadratics
from .records import made_shares
from .study import Classification, classification, gradients
from .theory import Parameters, Schedule, claimed_epsilon, disagreement_rate, violations
from .theory import epsilon as corrected_epsilon
from .tuning import SEEDS, Arrays, tuned

Floats = NDArray[np.float64]

_PAPER = "ou_wang_liu_lu"
# Parameters of DPP2 in the paper.
ALPHA, BETA, RHO = (entry(_PAPER, "DPP2").number(name) for name in ("alpha", "beta", "rho"))
PARAMETERS = Parameters(ALPHA, BETA, RHO)


@dataclass(frozen=True)
class Scales:
    """DPP2's step size alpha in a figure of the paper, and its noise scales in round 0 at u = 1."""

    alpha: float
    u_w: float
    u_e: float


FIGURE_1 = Scales(ALPHA, 1.0, 1.0)
FIGURE_3 = Scales(
    *(entry(_PAPER, "figure_3_DPP2").number(name) for name in ("alpha", "u_w", "u_e"))
)
# How much agents differ, from 0 to 1: the paper does not say.
HETEROGENEITY = entry(_PAPER, "records").number("heterogeneity")
# The paper's decay r in Figure 2, whose curves differ in the scale u.
DECAY = entry(_PAPER, "figure_2").number("r")
_SIZES, _NETWORK = entry(_PAPER, "sizes"), entry(_PAPER, "network")


@dataclass(frozen=True)
class Size:
    """The size of the problem.

    Attributes
    ----------
    agents, each, size : int
        Number of agents N, of records per agent m, and of entries of x, d.
    edges : int or None
        Number of edges of the network; None for any number.
    radius : float
        Distance below which agents, points in the unit square, are neighbors.
    """

    agents: int = _SIZES.whole("N")
    each: int = _SIZES.whole("m")
    size: int = _SIZES.whole("d")
    edges: int | None = _NETWORK.whole("edges")
    radius: float = _NETWORK.number("radius")


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem with records that were drawn with one seed.

    Attributes
    ----------
    study : Classification
        The problem.
    network : dp.networks.Network
        Network of the agents.
    measures : Measures
        The records, with functions that measure points on them.
    """

    study: Classification
    network: dp.networks.Network
    measures: Measures


@lru_cache(maxsize=8)
def setting(size: Size, seed: int) -> Setting:
    """Draw a setting; the seed changes the records, but not the network."""
    shares = made_shares(size.agents, size.each, size.size, heterogeneity=HETEROGENEITY, seed=seed)
    study = classification(size.agents, size.each, size.size, bound=shares.bound)
    network = geometric_network(size.agents, size.radius, edges=size.edges)
    return Setting(study, network, Measures.of(study, shares.parts))


@dataclass(frozen=True, eq=False)
class Trace:
    """The measurements of one run. The gaps are not private.

    Attributes
    ----------
    epsilon, delta : float
        Total for all values that an agent releases in the run; epsilon is infinite without noise.
    gap : ndarray, shape (K + 2,)
        Gap (31) at the start, and at the points that agents report after every round.
    """

    epsilon: float
    delta: float
    gap: Floats

    @property
    def end(self) -> float:
        """The last gap."""
        return float(self.gap[-1])


def _run(
    own: Setting, algorithm: Algorithm, mechanism: dp.Laplace | dp.Gaussian | None, delta: float,
    rounds: int, seed: int,
) -> Trace:  # fmt: skip
    plan = own.study.problem.plan(
        algorithm, mechanism=mechanism, rounds=rounds, delta=delta if delta > 0 else None
    )
    result = plan.run(
        data=data_of(own.measures.parts), seed=seed, iterates=True, executor=dp.Serial(),
        verbose=False,
    )  # fmt: skip
    shown = [one.last if algorithm.returned == "last" else one.average for one in result.iterates]
    X = np.array([one.vectors for one in shown])
    X = np.concatenate([np.zeros_like(X[:1]), X])
    guarantee = result.guarantee
    return Trace(
        np.inf if guarantee.kind == "none" else guarantee.epsilon,
        0.0 if guarantee.kind == "none" else guarantee.delta,
        own.measures.gap(X),
    )


# Figures 1 and 2 ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A run of DPP2 with the paper's parameters.

    Attributes
    ----------
    decay, scale : float
        Factor r of the noise from round to round, and its scale u; if one is 0 there is no noise.
    rounds : int
        Number of rounds, K + 1.
    """

    decay: float
    scale: float
    rounds: int

    @property
    def silent(self) -> bool:
        """Return whether there is no noise."""
        return self.decay == 0 or self.scale == 0

    def mechanism(self, study: Classification) -> dp.Laplace | None:
        """Return noise proportional to the sensitivity, which grows to its limit in some rounds."""
        if self.silent:
            return None
        limit = np.sqrt(study.x.size) * study.sensitivity / (1 - ALPHA * study.smoothness)
        return dp.Laplace(noise_multiplier=self.scale / limit, decay=self.decay)

    def run(self, size: Size, seed: int) -> Trace:
        """Run it once."""
        own = setting(size, seed)
        algorithm = paper_method(own.network)
        return _run(own, algorithm, self.mechanism(own.study), 0.0, self.rounds, seed)

    def epsilons(
        self, study: Classification, smoothness: float | None = None, scales: Scales = FIGURE_1
    ) -> tuple[float, float]:
        """Return the total epsilons of noise u r^k by Theorem 3, and corrected; infinite if silent.

        Parameters
        ----------
        study : Classification
            The problem.
        smoothness : float, optional
            Smoothness constant M; the bound for all data if omitted.
        scales : Scales
            Noise scales of the figure.
        """
        if self.silent:
            return np.inf, np.inf
        own = self.schedule(study, smoothness, scales)
        return claimed_epsilon(own), corrected_epsilon(own)

    def schedule(
        self, study: Classification, smoothness: float | None = None, scales: Scales = FIGURE_1
    ) -> Schedule:
        """Return the messages and noise scales that `epsilons` prices; it has these arguments."""
        return Schedule(
            self.rounds, study.x.size, scales.alpha,
            study.smoothness if smoothness is None else smoothness,
            study.sensitivity, self.decay, self.scale * scales.u_w, self.scale * scales.u_e,
        )  # fmt: skip


def paper_method(network: dp.networks.Network, damping: float = 0.0, eta: float = 0.5) -> dp.DPP2:
    """Return DPP2 with the parameters of the paper's Figures 1 and 2."""
    return dp.DPP2(network, ALPHA, BETA, RHO, eta, damping, returned="last")


def violated(own: Setting) -> list[str]:
    """Return the conditions that the paper's parameters violate on a network, as sentences."""
    return violations(matrix_of(own.network), own.study.smoothness, PARAMETERS)


# One total for all methods ----------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """A method with its parameters for a total guarantee.

    Attributes
    ----------
    method : Method
        The method.
    choice : Choice
        Its tuned parameters.
    epsilon : float
        Total epsilon at the method's delta.
    """

    method: Method
    choice: Choice
    epsilon: float

    def run(self, size: Size, seed: int) -> Trace:
        """Run it once."""
        own = setting(size, seed)
        return _run(
            own, self.method.algorithm(own.network, self.choice),
            self.method.mechanism(self.choice, self.epsilon), self.method.delta,
            self.choice.rounds, seed,
        )  # fmt: skip


def chosen(method: Method, epsilon: float, size: Size) -> tuple[Choice, float]:
    """Return the best parameters on records that are drawn with `SEEDS`, and their mean gap."""
    problems = [
        Arrays.of(own.study, own.measures.parts, own.network)
        for own in (setting(size, seed) for seed in SEEDS)
    ]
    return tuned(method, epsilon, problems)


def run_one(job: tuple[Curve | Contest, Size, int]) -> Trace:
    """Run a curve or contest for a size and seed; a pool of processes can call this function."""
    what, size, seed = job
    return what.run(size, seed)


# What eta hides -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Overheard(dp.DPP2):
    """DPP2 that keeps the first messages of all agents in every round."""

    heard: list[Floats] = field(default_factory=list, compare=False, repr=False)

    def points(self, server: NetworkState, sent: Floats, t: int) -> Floats:
        self.heard.append(sent.copy())
        return super().points(server, sent, t)


@dataclass(frozen=True, eq=False)
class Eavesdropping:
    """Root mean squares over agents and entries by round, each of shape (K + 1,).

    Agents send y, which merges the noisy point x + w with earlier ones by a factor eta.

    Attributes
    ----------
    merged : ndarray
        Root mean square of y - (x + w), the change by merging.
    recovered : ndarray
        Root mean square of the error of an eavesdropper's x + w.
    noise : ndarray
        Root mean square of w, the only protection of x.
    length : ndarray
        Root mean square of x.
    """

    merged: Floats
    recovered: Floats
    noise: Floats
    length: Floats


def eavesdrop(curve: Curve, size: Size, seed: int, eta: float = 0.5) -> Eavesdropping:
    """Recover x + w from y alone, as ``y_k - y_(k-1)`` plus eta times the x + w before."""
    own = setting(size, seed)
    method = _Overheard(own.network, ALPHA, BETA, RHO, eta, returned="last")
    plan = own.study.problem.plan(method, mechanism=curve.mechanism(own.study), rounds=curve.rounds)
    result = plan.run(
        data=data_of(own.measures.parts), seed=seed, record=True, executor=dp.Serial(),
        verbose=False,
    )  # fmt: skip
    assert result.transcript is not None  # recorded
    shape = (curve.rounds, size.agents, 2, size.size)
    sent = np.zeros(shape)  # x + w, and the gradient with its noise
    for release in result.transcript.releases:
        sent[release.round - 1, release.agent, release.step - 1] = release.value
    Y, X = np.array(method.heard), sent[:, :, 0]
    guess = [Y[0]]
    for now, before in zip(Y[1:], Y[:-1], strict=True):
        guess.append(now - before + eta * guess[-1])
    secret = _secret_points(own, sent)
    return Eavesdropping(
        *(np.sqrt((A**2).mean(axis=(1, 2))) for A in (Y - X, guess - X, X - secret, secret))
    )


def _secret_points(own: Setting, sent: Floats) -> Floats:
    """Recompute the agents' secret points x of every round from messages and records."""
    P = matrix_of(own.network)
    x = np.zeros_like(sent[0, :, 0])
    q, found = x, []
    for shown, slope in zip(sent[:, :, 0], sent[:, :, 1], strict=True):
        found.append(x)
        q = q + RHO * P @ shown
        exact = gradients(own.study, own.measures.parts, x)
        x = shown - ALPHA * (exact + q) + BETA * P @ (slope + q)
    return np.array(found)


# What damps disagreement --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Damping:
    """The effect of damping on disagreement without noise.

    Attributes
    ----------
    rates : dict of (float, float) to float
        Factor of disagreement per round, by curvature and damping.
    dampings : tuple of float
        The two values of the damping in `gaps`.
    gaps : ndarray, shape (2, K + 2)
        Gaps by damping and round for quadratics that are not all convex, but whose sum is strongly
        convex, as Theorem 2 asks for.
    """

    rates: dict[tuple[float, float], float]
    dampings: tuple[float, float]
    gaps: Floats


def damping_of(size: Size, rounds: int, strength: float = 5.0) -> Damping:
    """Compute rates on the study's network, and a counterexample to Theorem 2 with three agents.

    Curvatures are 0, and the least and largest that the study's objectives may have.
    """
    network = geometric_network(size.agents, size.radius, edges=size.edges)
    P = matrix_of(network)
    penalty = setting(size, 0).study.penalty
    dampings = (0.0, strength)
    rates = {
        (h, sigma): disagreement_rate(P, PARAMETERS, h, sigma)
        for h in (-penalty.concavity, 0.0, setting(size, 0).study.smoothness)
        for sigma in dampings
    }
    values = np.array([-1.0, -1.0, 3.0])
    model = quadratics(values[:, None, None] * np.eye(2))
    centers = np.random.default_rng(0).normal(size=(3, 2))
    data: dict[dp.Private | str, Floats] = {f"center {k}": c for k, c in enumerate(centers)}
    gaps = []
    for sigma in dampings:
        method = paper_method(geometric_network(3, 2.0), sigma)
        plan = model.problem.plan(method, mechanism=None, rounds=rounds)
        result = plan.run(data=data, iterates=True, executor=dp.Serial(), verbose=False)
        X = np.array([np.zeros((3, 2)), *(one.last.vectors for one in result.iterates)])
        gaps.append(model.gap(centers, X))
    return Damping(rates, dampings, np.array(gaps))


def spread(traces: Sequence[Trace]) -> tuple[float, float, float]:
    """Return the mean, least and largest of the runs' last gaps."""
    ends = np.array([trace.end for trace in traces])
    return float(ends.mean()), float(ends.min()), float(ends.max())
