"""Command line of the power-flow study: plan, run, and show what came out."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import dpcvx as dp
from dpcvx.algorithms.step_size import StepRule
from problems.power_flow.report import Outcome, assess, table, violations
from problems.power_flow.solution import central
from problems.power_flow.study import PowerFlow, power_flow

_PERTURB: dict[str, Literal["objective", "output", "projected output"]] = {
    "objective": "objective",
    "output": "output",
    "projected": "projected output",
    "once": "objective",
    "none": "objective",
}
_EPSILON, _DELTA, _STEP_DELTA = 1.0, 1e-6, 1e-2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        _check_outputs(options)
        if options.central:
            return _central(options)
        return _distributed(options)
    except dp.DpcvxError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


def _check_outputs(options: argparse.Namespace) -> None:
    """Refuse places that cannot be written before a run spends privacy."""
    if options.json:
        target = Path(options.json).resolve()
        if target.is_dir() or not target.parent.is_dir():
            raise dp.ModelError(
                f"--json {options.json} is no file in an existing folder; the result could not be "
                "kept."
            )
    if options.plot:
        try:
            Path(options.plot).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise dp.ModelError(
                f"--plot {options.plot} cannot be created ({error.strerror}); name a folder."
            ) from None


def _central(options: argparse.Namespace) -> int:
    study = power_flow(options.case, objective=options.objective, load_scale=options.load_scale)
    started = time.perf_counter()
    solved = central(study.case, options.objective, options.load_scale)
    unit = "$/h" if options.objective == "cost" else "per unit squared"
    if not options.quiet:
        print(f"{study.case.name}: central solve with all loads in one place, no privacy")
        print(f"status {solved.status}, objective {solved.value:.8g} {unit}")
    if options.json:
        _write_json(
            options.json,
            {
                "case": study.case.name,
                "status": solved.status,
                "objective": solved.value,
                "consensus_residual": 0.0,
                "max_violation": max(violations(study.case, solved.state).values()),
                "rounds": 0,
                "seconds": time.perf_counter() - started,
                "guarantee": {"epsilon": None, "delta": None, "kind": "none"},
            },
        )
    return 0


def _distributed(options: argparse.Namespace) -> int:
    study = power_flow(
        options.case,
        zones=int(options.zones) if (options.zones or "").isdigit() else options.zones,
        objective=options.objective,
        load_scale=options.load_scale,
        radius=options.radius,
        shared=options.shared,
    )
    plan = _plan(study, options)
    result = plan.run(seed=options.seed, ledger=options.ledger, verbose=not options.quiet)
    outcome = assess(study, result)
    if not options.quiet:
        print(table(study, outcome))
    if options.json:
        _write_json(options.json, _as_json(study, result, outcome))
    if options.plot:
        from problems.power_flow.figures import write_figures

        for path in write_figures(study, result, outcome, Path(options.plot)):
            if not options.quiet:
                print(f"wrote {path}")
    return 0


def _plan(study: PowerFlow, options: argparse.Namespace) -> dp.Plan:
    mechanism, epsilon, delta = _privacy(options)
    if options.algorithm == "admm":
        if options.perturb not in ("objective", "once", "none"):
            raise dp.ModelError(
                f"--perturb {options.perturb} needs the linearised method; drop --algorithm admm."
            )
        algorithm: dp.Algorithm = dp.ADMM(rho=options.rho)
    else:
        perturb = _PERTURB[options.perturb]
        algorithm = dp.LinearizedADMM(
            rho=options.rho,
            step=_step(options.step),
            local_updates=options.local_updates,
            perturb=perturb,
        )
    return study.problem.plan(
        algorithm,
        mechanism=mechanism,
        rounds=options.rounds,
        epsilon=epsilon,
        delta=delta,
        release="once" if options.perturb == "once" else "each step",
    )


def _privacy(
    options: argparse.Namespace,
) -> tuple[dp.Gaussian | dp.Laplace | None, float | None, float | None]:
    """Mechanism and total budget from the options."""
    if options.perturb == "none":
        if (options.epsilon, options.delta, options.step_epsilon) != (None, None, None):
            raise dp.PrivacyError(
                "--perturb none switches the noise off, so there is no epsilon to state. Drop the "
                "privacy options, or --perturb none."
            )
        return None, None, None
    gaussian = options.mechanism == "gaussian"
    if options.step_epsilon is None:
        if options.step_delta is not None:
            raise dp.PrivacyError("--step-delta needs --step-epsilon: give both or neither.")
        mechanism = dp.Gaussian() if gaussian else dp.Laplace()
        epsilon = _EPSILON if options.epsilon is None else options.epsilon
        return mechanism, epsilon, _DELTA if options.delta is None else options.delta
    if options.epsilon is not None:
        raise dp.PrivacyError(
            "--epsilon states the total and --step-epsilon the level of one local update: they "
            "would fix the noise twice. Drop one; the total is printed either way."
        )
    step_delta = _STEP_DELTA if options.step_delta is None else options.step_delta
    if gaussian:
        level: dp.Gaussian | dp.Laplace = dp.Gaussian(
            step_epsilon=options.step_epsilon, step_delta=step_delta, calibration="classical"
        )
    else:
        level = dp.Laplace(step_epsilon=options.step_epsilon)
    return level, None, step_delta if options.delta is None else options.delta


def _step(text: str) -> StepRule | float:
    if text == "sqrt":
        return dp.SqrtStep()
    if text == "smooth":
        return dp.SmoothStep()
    if text == "1/L":
        return dp.ConstantStep()
    try:
        return float(text)
    except ValueError:
        raise dp.ModelError(
            f"--step {text} is unknown; write sqrt, smooth, 1/L or a number."
        ) from None


def _as_json(study: PowerFlow, result: dp.Result, outcome: Outcome) -> dict[str, object]:
    guarantee = result.guarantee
    finite = math.isfinite(guarantee.epsilon)
    return {
        "case": study.case.name,
        "zones": list(study.zones.names),
        "status": result.status.name.lower(),
        "objective": outcome.objective,
        "consensus_residual": result.consensus_residual,
        "max_violation": result.max_violation,
        "rounds": result.rounds,
        "seconds": result.seconds,
        "guarantee": {
            "epsilon": guarantee.epsilon if finite else None,
            "delta": guarantee.delta,
            "kind": guarantee.kind,
            "mechanism": guarantee.mechanism,
            "accountant": guarantee.accountant,
            "observer": guarantee.observer,
            "assumptions": list(guarantee.assumptions),
        },
        "reported": result.reported,
        "zone_imbalance": {
            zone.name: {"mw": zone.active, "mvar": zone.reactive} for zone in outcome.zones
        },
        "not_private": ["objective", "zone_imbalance"],
    }


def _write_json(path: str, content: dict[str, object]) -> None:
    Path(path).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m problems.power_flow",
        description="Private distributed control of power flow (Ryu and Kim, section 6.1).",
    )
    add = parser.add_argument
    add("--case", default="14", help="number of a bundled case, or a MATPOWER file (default 14)")
    add("--zones", help="number of zones, CSV of bus,zone, 'area' or 'zone' (default: the map)")
    add("--objective", choices=["shed", "cost"], default="shed")
    add("--central", action="store_true", help="one solve with all data, no privacy")
    add("--load-scale", type=float, default=1.0, help="factor on all loads (default 1)")
    add("--radius", type=float, default=0.01, help="adjacency, per unit (default 0.01)")
    add("--shared", choices=["voltage", "flow"], default="voltage", help="consensus set")
    add("--algorithm", choices=["linearized", "admm"], default="linearized")
    add(
        "--perturb",
        choices=list(_PERTURB),
        default="objective",
        help="where the noise goes: every gradient, every result, or once on the loads",
    )
    add("--mechanism", choices=["gaussian", "laplace"], default="gaussian")
    add("--epsilon", type=float, help=f"total budget (default {_EPSILON:g})")
    add("--delta", type=float, help=f"total delta (default {_DELTA:g})")
    add("--step-epsilon", type=float, help="level of one local update, instead of --epsilon")
    add("--step-delta", type=float, help=f"delta of one local update (default {_STEP_DELTA:g})")
    add("--rounds", type=int, default=100)
    add("--local-updates", type=int, default=1)
    add("--rho", type=float, default=100.0)
    add("--step", default="sqrt", help="eta: sqrt (1/sqrt(t)), smooth, 1/L, or a number")
    add("--seed", type=int, help="reproducible noise, not for release")
    add("--ledger", metavar="FILE", help="keep the privacy ledger in this file; resume from it")
    add("--json", metavar="FILE", help="write the result")
    add("--plot", metavar="DIR", help="write figures")
    add("--quiet", action="store_true")
    return parser
