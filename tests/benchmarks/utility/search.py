"""``python -m tests.benchmarks.utility --search``: settings that hands would find, for `by_hand`.

Judged on the true data, so none of it is private. Losses of records: a grid over kind of noise,
rounds, clip, step size and penalty, simulated; the best on fresh seeds stay. Everything else: noise
once, with the exact optimum of what was released or a few steps towards it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx.algorithms.program import compile_problem
from dpcvx.algorithms.steps import smooth_constant
from dpcvx.privacy.accounting import gaussian_multiplier, laplace_multiplier
from dpcvx.sensitivity.certificate import Sensitivity

from .by_hand import Setting, clipped, quartiles
from .judge import Judge, held
from .models import MODELS, Model
from .simulation import ABSOLUTE, HINGE, LOGISTIC, SQUARE, Batch, Records, simulate

Floats = NDArray[np.float64]
Parts = tuple[tuple[Floats, Floats], ...]

KINDS = ("laplace", "gaussian")
ROUNDS = (1, 2, 4, 10, 30, 100, 300)
# Over the step size with which noise alone moves the answer as far as the optimum is away.
STEPS = (0.01, 0.03, 0.1, 0.2, 0.4, 1.0, 3.0, 10.0)
# Times the step size.
PENALTIES = (0.1, 0.3, 1.0, 3.0)
# Over the largest contribution of a record that the model allows.
CLIPS = (1.0, 0.7, 0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)
# Seeds of the grid, and the fresh ones of the best.
FEW, MANY = 4, 60
KEPT = 12


@dataclass(frozen=True)
class Found:
    """A setting with its simulated median gap."""

    gap: float
    setting: Setting


def records_of(name: str, model: Model) -> Records | None:
    """The model as losses of records; None if it is of another kind."""
    make = RECORDS.get(name)
    if make is None:
        return None
    return make(_parts(model))


def _parts(model: Model) -> Parts:
    found = []
    for values in held(model):
        own = list(values.values())
        features = next((v for v in own if v.ndim == 2), None)
        labels = next((v for v in own if v.ndim == 1), np.zeros(0))
        found.append((np.ones((labels.size, 1)) if features is None else features, labels))
    return tuple(found)


def _ridge(weight: float, free: int = 0) -> dict[str, Callable[[Floats], Floats]]:
    """Of all entries but the last ones."""

    def counted(x: Floats) -> Floats:
        return np.where(np.arange(x.shape[-1]) < x.shape[-1] - free, x, 0.0)

    return {
        "value": lambda x: weight * counted(x) ** 2,
        "slope": lambda x: 2 * weight * counted(x),
    }


def _levelling(weight: float) -> dict[str, Callable[[Floats], Floats]]:
    return {
        "value": lambda x: weight * x**2 / (1 + x**2),
        "slope": lambda x: 2 * weight * x / (1 + x**2) ** 2,
    }


def _with_intercept(parts: Parts) -> Parts:
    return tuple((np.column_stack([A, np.ones(len(A))]), b) for A, b in parts)


def _street_distances(parts: Parts) -> Parts:
    """Both coordinates, one after the other."""
    return tuple((np.repeat(np.eye(2), len(A), axis=0), A.ravel(order="F")) for A, _ in parts)


RECORDS: dict[str, Callable[[Parts], Records]] = {
    "census logistic": lambda parts: Records(LOGISTIC, parts, **_ridge(0.5)),
    "nonconvex": lambda parts: Records(LOGISTIC, parts, **_levelling(1e-3)),
    "ridge": lambda parts: Records(SQUARE, parts, **_ridge(0.1), box=(-10, 10)),
    "clinics logistic": lambda parts: Records(LOGISTIC, parts, **_ridge(0.01)),
    "facility": lambda parts: Records(ABSOLUTE, _street_distances(parts), box=(-50, 50), terms=2),
    "SVM": lambda parts: Records(HINGE, _with_intercept(parts), **_ridge(0.05, free=1)),
    "median (thousand)": lambda parts: Records(ABSOLUTE, parts, box=(0, 200)),
    "median (euros)": lambda parts: Records(ABSOLUTE, parts, box=(0, 200_000)),
}
# A record's contribution has no length to clip, or only one.
_UNCLIPPED = ("facility", "median (thousand)", "median (euros)")


# Losses of records --------------------------------------------------------------------------------


def search_records(
    name: str, model: Model, judge: Judge, epsilon: float, delta: float
) -> list[Found]:
    """The best settings of the grid, on fresh seeds, best first; with clips and without."""
    records = records_of(name, model)
    assert records is not None
    tried = []
    for batch, clip in _batches(name, model, records, judge.distance, epsilon, delta):
        of_each = _gaps(records, batch.times(FEW), judge.optimum, 1)
        # After one round all are the same.
        for iterate, gaps in [*of_each.items()][: 1 if batch.rounds == 1 else None]:
            medians = np.median(gaps.reshape(-1, FEW), axis=1)
            order = np.argsort(medians)[:KEPT]
            tried += [(float(medians[k]), iterate, k, batch, clip) for k in order]
    tried.sort(key=lambda each: each[0])
    found = []
    for each in _some(tried):
        _, iterate, k, batch, clip = each
        one = replace(batch, steps=batch.steps[k : k + 1], penalties=batch.penalties[k : k + 1])
        gaps = _gaps(records, one.times(MANY), judge.optimum, 2)[iterate]
        found.append(Found(quartiles(gaps)[1], _setting(one, iterate, clip)))
    return sorted(found, key=lambda each: each.gap)


def _some(tried: Sequence[tuple]) -> list[tuple]:
    without = [each for each in tried[KEPT:] if each[-1] is None]
    return [*tried[:KEPT], *without[: KEPT // 2]]


def _batches(
    name: str, model: Model, records: Records, distance: float, epsilon: float, delta: float
) -> Iterator[tuple[Batch, float | None]]:
    methods = ("summed",) if model.minimizer is not None else ("linearized", "summed")
    clips = (1.0,) if name in _UNCLIPPED else CLIPS
    bounds = {share: _bounds(model, share) for share in clips}
    allowed = [share for share in clips if bounds[share] is not None]
    for rounds, share, laplace in product(ROUNDS, allowed, (False, True)):
        if laplace and rounds > 30:
            continue
        clip, *norms = bounds[share]
        norm = norms[1 if laplace else 0]
        multiplier = laplace_multiplier if laplace else gaussian_multiplier
        scale = multiplier(rounds, epsilon, delta) * norm.level
        noise = scale * math.sqrt(2.0 if laplace else 1.0)
        agents = len(records.parts)
        unit = distance / (noise * math.sqrt(records.size * rounds / agents))
        for method in methods:
            grid = list(product(STEPS, PENALTIES if method == "linearized" else (1.0,)))
            # Along the sum of all gradients, steps are as many times shorter.
            short = agents if method == "summed" else 1
            steps = np.array([[unit * step / short] for step, _ in grid])
            penalties = np.array([[p] for _, p in grid]) / steps
            limit = math.inf if clip is None else clip
            one = Batch(method, rounds, steps, penalties, scale, laplace, limit, norm.ladder)
            yield one, clip
            if method == "summed" and rounds > 2:
                # As long on the whole.
                first = steps * math.sqrt(rounds) / 2
                yield replace(one, steps=first, falling=True), clip


@dataclass(frozen=True, eq=False)
class Norm:
    """A sensitivity, and which part of it is needed so far from 0."""

    level: float
    ladder: tuple[Floats, Floats] | tuple[()]


def _bounds(model: Model, share: float) -> tuple[float | None, Norm, Norm] | None:
    """Clip, and sensitivities in l2 and l1 with it, as the package derives them, if it can."""
    agents = model.problem.plan(dp.FederatedAveraging(1.0), **_ANY).agents
    clip = None if share == 1.0 else share * max(a.bound for a in agents) / 2
    if clip is not None:
        try:
            agents = clipped(model.problem, clip).plan(dp.FederatedAveraging(1.0), **_ANY).agents
        except dp.PrivacyError:
            return None
    known = [a.sensitivity for a in agents if a.sensitivity is not None]
    return (clip, *(_norm(max(known, key=lambda s: s.bound(p).value), p) for p in (2, 1)))


def _norm(known: Sensitivity, p: int) -> Norm:
    level = known.bound(p).value
    if not known.within(p, 0.0) < level:
        return Norm(level, ())
    radii = np.append(0.0, 2.0 ** (np.arange(-24, 25) / 4))
    return Norm(level, (radii, np.array([known.within(p, float(r)) for r in radii]) / level))


_ANY = dict(mechanism=dp.Gaussian(noise_multiplier=1.0), rounds=1, delta=1e-6, release="each_step")


def _gaps(records: Records, batch: Batch, optimum: float, seed: int) -> dict[str, Floats]:
    found = {}
    for iterate, points in simulate(records, batch, seed).items():
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = records.objective(records.projected(points)) - optimum
        found[iterate] = np.where(np.isfinite(gaps), gaps, np.inf)
    return found


def _setting(batch: Batch, iterate: str, clip: float | None) -> Setting:
    step, penalty = (float(f"{v.item():.3g}") for v in (batch.steps, batch.penalties))
    return Setting(
        "laplace" if batch.laplace else "gaussian",
        batch.method,
        step=step,
        penalty=penalty if batch.method == "linearized" else None,
        rounds=batch.rounds,
        clip=None if clip is None else float(f"{clip:.3g}"),
        output=iterate,
        falling=batch.falling,
    )


# Released once ------------------------------------------------------------------------------------


def search_once(model: Model, judge: Judge, epsilon: float, delta: float) -> list[Found]:
    """The exact optimum of what was released, and a few short steps towards it from the start.

    The steps are tried where there is so much noise that they may be worth more.
    """
    seeds = range(10)

    def tried(settings: Iterable[Setting], seeds: range) -> list[Found]:
        gaps = [(one, one.gaps(model, judge, epsilon, delta, seeds)) for one in settings]
        found = [Found(quartiles(own)[1], one) for one, own in gaps if own is not None]
        return sorted(found, key=lambda each: each.gap)

    exact = [Setting(kind, "central", release="once") for kind in KINDS]
    if all(isinstance(p.adjacency, dp.Within) for a in model.problem.agents for p in a.private):
        exact += [Setting(kind, "data", release="once") for kind in KINDS]
    found = tried(exact, seeds)
    if found and found[0].gap > judge.nothing / 3:
        quick = tried(_few_steps(model, found[0].setting.kind), range(2))
        found += tried([each.setting for each in quick[:3]], seeds)
    return found


def _few_steps(model: Model, kind: str) -> Iterator[Setting]:
    method = "resource" if model.problem.coupling else "linearized"
    L = smooth_constant(compile_problem(model.problem)) or 1.0
    for rounds, length in product((1, 3, 10), (0.03, 0.1, 0.3, 1.0)):
        step = float(f"{length / L:.3g}")
        penalty = 0.1 / step if method == "resource" else 1 / step
        yield Setting(kind, method, step, penalty, rounds, release="once")


# Users in turn ------------------------------------------------------------------------------------


def search_turns(model: Model, judge: Judge, epsilon: float, delta: float) -> list[Found]:
    """`dp.GradientADMM` with clips down to where hardly anything is heard of the data."""
    clip = model.problem.agents[0].clip_norm
    assert clip is not None
    settings = [
        Setting("gaussian", "gradient", step, 0.3, rounds, float(f"{share * clip:.3g}"))
        for step, rounds, share in product((0.3, 1.0, 3.0), (30, 100), (1.0, 0.1, 0.01, 0.001))
    ]
    found = [(one, one.gaps(model, judge, epsilon, delta, range(2))) for one in settings]
    judged = [Found(quartiles(gaps)[1], one) for one, gaps in found if gaps is not None]
    return sorted(judged, key=lambda each: each.gap)


def search(name: str, epsilon: float, delta: float) -> list[Found]:
    """Settings of a model, best first."""
    model = MODELS[name]()
    judge = Judge(model)
    found = []
    if records_of(name, model) is not None:
        found += search_records(name, model, judge, epsilon, delta)
    if model.problem.agents[0].clip_norm is not None:
        found += search_turns(model, judge, epsilon, delta)
    found += search_once(model, judge, epsilon, delta)
    return sorted(found, key=lambda each: each.gap)
