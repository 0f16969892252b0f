"""Networks and plans from options of the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

import dpcvx as dp
from dpcvx.algorithms.steps import StepRule

from .case import read_case
from .expected import expected_loads
from .model import Objective
from .options import DELTA, EPSILON, PERTURB, STEP_DELTA
from .private import PrivateData
from .study import PowerFlow, power_flow

# Methods by their names on the command line, with the names of their settings.
_METHODS: dict[str, tuple[Callable[..., dp.Algorithm], tuple[str, ...]]] = {
    "linearized": (dp.LinearizedADMM, ("penalty", "step", "local_updates", "perturb")),
    "admm": (dp.ADMM, ("penalty",)),
    "central": (dp.OneShot, ()),
}


def objective_of(options: argparse.Namespace) -> Objective:
    """Return the objective: the named one, or the default of the model."""
    return options.objective or ("shed" if options.model == "soc" else "cost")


def private_of(options: argparse.Namespace) -> PrivateData | None:
    """Return the kind of private data.

    By default loads are private. With ``--model soc --objective cost``, no data are private unless
    ``--violation-probability`` is given, which states how surely loads are covered.
    """
    if options.private is not None:
        return None if options.private == "nothing" else options.private
    exact = options.model == "soc" and objective_of(options) == "cost"
    return None if exact and options.violation_probability is None else "loads"


def study_of(options: argparse.Namespace) -> PowerFlow:
    """Return the network and the problem that the options describe.

    Parameters
    ----------
    options : argparse.Namespace
        Parsed arguments of `options.parser`.
    """
    proxy, objective, private = None, objective_of(options), private_of(options)
    if options.prior is not None and objective == "cost":
        network = read_case(options.case, equivalents=options.equivalents)
        proxy = expected_loads(options.prior, network, options.load_scale).loads
    numbered = re.fullmatch("[0-9]{1,9}", options.zones or "")
    covered = options.violation_probability is not None and private in ("loads", "profiles")
    return power_flow(
        options.case,
        model=options.model,
        zones=int(options.zones) if numbered else options.zones,
        objective=objective,
        private=private,
        balance="covered" if covered else "exact",
        horizon=options.horizon,
        profiles=options.profiles,
        storage=options.storage,
        ramps=options.ramps,
        flexible=options.flexible,
        contingencies=options.contingencies,
        emergency=options.emergency,
        form=options.form,
        monitored=options.monitored,
        load_scale=options.load_scale,
        radius=options.radius,
        hidden=options.hide,
        shared=options.shared,
        cuts=options.cuts,
        equivalents=options.equivalents,
        proxy=proxy,
    )


def plan_of(study: PowerFlow, options: argparse.Namespace) -> dp.Plan:
    """Return the plan that the options describe; omitted options are chosen by `Problem.plan`.

    Parameters
    ----------
    study : PowerFlow
    options : argparse.Namespace
        Parsed arguments of `options.parser`.
    """
    mechanism, epsilon, delta = _privacy(options)
    if not any(agent.private for agent in study.problem.agents):
        mechanism = epsilon = delta = None
    expected = None
    if options.prior is not None and study.objective != "cost":
        known = expected_loads(options.prior, study.case, options.load_scale)
        expected = known.by_zone(study.zones)
    return study.problem.plan(
        _algorithm(options),
        mechanism=mechanism,
        rounds=options.rounds,
        epsilon=epsilon,
        delta=delta,
        release={None: None, "none": None, "once": "once"}.get(options.perturb, "each_step"),
        violation_probability=options.violation_probability,
        constraints="released" if released(study, options) else "true",
        prior=expected,
    )


def released(study: PowerFlow, options: argparse.Namespace) -> bool:
    """Return whether constraints with private data hold for the released data."""
    constrained = study.private == "capacities" or (
        study.private in ("loads", "profiles") and study.objective == "cost"
    )
    return constrained and options.violation_probability is None


def _algorithm(options: argparse.Namespace) -> dp.Algorithm | None:
    """Return the named method, or the one that other options belong to; None if it is open."""
    given: dict[str, Any] = _given(
        penalty=options.penalty,
        step=None if options.step is None else _step(options.step),
        local_updates=options.local_updates,
        perturb=PERTURB.get(options.perturb),
    )
    if options.algorithm is None and options.release_epsilon is None and not given:
        return None
    name = options.algorithm or "linearized"
    method, takes = _METHODS[name]
    for extra in (setting for setting in given if setting not in takes):
        flag = f"--{extra.replace('_', '-')} {getattr(options, extra)}"
        raise dp.ModelError(
            f"{flag} is no setting of --algorithm {name}, so it would change nothing; drop one of "
            "the two."
        )
    return method(**given)


def _given(**values: object) -> dict[str, object]:
    """Return the settings that are not None; the method has defaults for all others."""
    return {name: value for name, value in values.items() if value is not None}


def _privacy(
    options: argparse.Namespace,
) -> tuple[dp.Gaussian | dp.Laplace | str | None, float | None, float | None]:
    """Return mechanism, epsilon and delta from the options."""
    if options.perturb == "none":
        if (options.epsilon, options.delta, options.release_epsilon) != (None, None, None):
            raise dp.PrivacyError(
                "--perturb none switches the noise off, so there is no epsilon to state. Drop the "
                "privacy options, or --perturb none."
            )
        return None, None, None
    if options.release_epsilon is None:
        if options.release_delta is not None:
            raise dp.PrivacyError("--release-delta needs --release-epsilon: give both or neither.")
        epsilon = EPSILON if options.epsilon is None else options.epsilon
        return options.mechanism, epsilon, DELTA if options.delta is None else options.delta
    if options.epsilon is not None:
        raise dp.PrivacyError(
            "--epsilon states the total and --release-epsilon the level of one local update: they "
            "would fix the noise twice. Drop one; the total is printed either way."
        )
    release_delta = STEP_DELTA if options.release_delta is None else options.release_delta
    if options.mechanism == "laplace":
        level: dp.Gaussian | dp.Laplace = dp.Laplace(release_epsilon=options.release_epsilon)
    else:
        level = dp.Gaussian(
            release_epsilon=options.release_epsilon,
            release_delta=release_delta,
            calibration="classical",
        )
    return level, None, release_delta if options.delta is None else options.delta


def _step(text: str) -> StepRule | float:
    if text == "sqrt":
        return dp.steps.Sqrt()
    if text == "smooth":
        return dp.steps.Smooth()
    if text == "1/L":
        return dp.steps.Constant()
    try:
        return float(text)
    except ValueError:
        raise dp.ModelError(
            f"--step {text} is unknown; write sqrt, smooth, 1/L or a number."
        ) from None
