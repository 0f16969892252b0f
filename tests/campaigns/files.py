"""Malformed files and options: each ends in a clear error, or is read as what it says.

A trial makes a file of a network (with the numbers that it means by an evaluator of its own), a
file of a data set (likewise), or the options of a command. It ends as

* ``refused``: an error of the package in words, or exit code 2 with a sentence;
* ``worked``: the numbers read are those that the file means, and what was run on them is finite;
* a fault: RAW (any other exception or a warning), HANG, or NONSENSE (numbers that are not those of
  the file, accepted although no meaning is known, quoted records, or results that are not finite).
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import importlib
import io
import json
import math
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dpcvx as dp
from problems.census.adult import read_adult
from problems.census.columns import COLUMNS as PEOPLE
from problems.census.columns import normalized
from problems.logistic_regression.sources import read_dataset
from problems.power_flow.case import read_case
from problems.power_flow.cli import main as power_flow_command
from problems.power_flow.errors import CaseWarning
from problems.power_flow.matpower import parse
from problems.power_flow.solution import central, network_state
from problems.power_flow.sources import BUNDLED, CASES, tables
from problems.power_flow.study import power_flow
from problems.power_flow.zones import read_zones
from tests.campaigns.tally import Tally

# Of 14 trials, 8 are networks, 4 or 5 other files and 1 or 2 options.
FULL = 1500
SECONDS = 30.0
# Stands in files where a message must not show it.
SECRET = "73519"

Tables = dict[str, Any]  # the numbers of a network: matrices as lists of rows, and baseMVA


class Nonsense(Exception):
    """What was accepted is not what the file means."""


class Hang(BaseException):
    """Took too long; no `except Exception` may swallow it."""


def campaign(size: int, seed: int) -> Tally:
    """Make `size` malformed inputs and look how each ends."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        for trial in range(size):
            rng = np.random.default_rng((seed, trial))
            kind = KINDS[trial % len(KINDS)]
            own = Path(folder) / str(trial)
            own.mkdir()
            label = kind.__name__
            outcome, detail = _ending(kind, rng, own)
            fault = None if outcome in ("refused", "worked") else f"{seed}, {trial}: {detail}"
            tally.add(f"{label} {outcome}", fault and f"{label} {outcome} {fault}")
    return tally


def _ending(
    kind: Callable[[np.random.Generator, Path], None], rng: np.random.Generator, folder: Path
) -> tuple[str, str]:
    try:
        with _limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("error")
            kind(rng, folder)
    except dp.DpcvxError as error:
        if SECRET in str(error):
            return "NONSENSE", f"quotes a value: {error}"
        if len(str(error)) > 1500 or not str(error).rstrip().endswith((".", ")", ";")):
            return "NONSENSE", f"no sentence: {str(error)[:200]}"
        return "refused", ""
    except Nonsense as error:
        return "NONSENSE", str(error)
    except Hang:
        return "HANG", ""
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "RAW", repr(error)[:300]
    return "worked", ""


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise Hang after so long; without a limit in other threads, which get no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Networks


def network(rng: np.random.Generator, folder: Path) -> None:
    """A changed case file: read, solved with all loads, and run in private for a round."""
    number = int(rng.choice([3, 5, 14]))
    meant: Tables | None = _bundled(number)
    changes = (_cell, _cell, _row, _statement, _statement, _statement, _token, _cut)
    change = changes[rng.integers(len(changes))]
    text, meant, valid = change(rng, meant)
    if change is not _cut:
        text = _disguised(rng, text)
    path = folder / "network.m"
    path.write_bytes(text.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaseWarning)
        _check_network(path, meant, valid, change.__name__)


def _check_network(path: Path, meant: Tables | None, valid: bool, how: str) -> None:
    found, case = tables(path), read_case(path)
    if meant is None:
        raise Nonsense(f"accepted though it has no meaning by {how}")
    for name in ("bus", "gen", "branch", "gencost"):
        expected = np.array(meant[name], float)
        if not expected.size:
            expected = np.zeros((0, 0))
        if not np.array_equal(getattr(found, name), expected, equal_nan=True):
            raise Nonsense(f"{name} is not what the file means, by {how}")
    if found.base_mva != meant["baseMVA"]:
        raise Nonsense("baseMVA is not what the file means")
    if not valid:
        raise Nonsense(f"accepted though no network has such numbers, by {how}")
    with contextlib.suppress(dp.SolverError):
        if not math.isfinite(central(case, "cost").value):
            raise Nonsense("a cost that is not finite")
    study = power_flow(path, zones=min(2, case.bus.id.size))
    plan = study.problem.plan(
        dp.LinearizedADMM(penalty=100.0, step=dp.steps.Sqrt()), rounds=1, epsilon=1.0, delta=1e-6
    )
    plan.run(seed=0)
    state = network_state(study.case, study.zones, study.variables)
    if not all(np.isfinite(value).all() for value in vars(state).values()):
        raise Nonsense("a run that is not finite")


def _bundled(number: int) -> Tables:
    # Read by the reader itself: that it reads these files is tested elsewhere.
    found = parse((CASES / BUNDLED[number]).read_text(), "bundled")
    matrices = {name: getattr(found, name).tolist() for name in ("bus", "gen", "branch", "gencost")}
    return {"baseMVA": found.base_mva, **matrices}


def _text(meant: Tables, tokens: dict[tuple[str, int, int], str] | None = None) -> str:
    """A case file with these numbers; some cells as the given tokens."""
    lines = ["function mpc = network", "mpc.version = '2';", f"mpc.baseMVA = {meant['baseMVA']!r};"]
    for name in ("bus", "gen", "branch", "gencost"):
        lines.append(f"mpc.{name} = [")
        for at, row in enumerate(meant[name]):
            cells = [
                (tokens or {}).get((name, at, column), _written(value))
                for column, value in enumerate(row)
            ]
            lines.append("\t" + "\t".join(cells) + ";")
        lines.append("];")
    return "\n".join(lines) + "\n"


def _written(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("Inf" if value > 0 else "-Inf")


def _disguised(rng: np.random.Generator, text: str) -> str:
    """The same statements in another dress."""
    dress = rng.integers(7)
    if dress == 1:
        return text.replace("\n", "\r\n")
    if dress == 2:
        return "\ufeff" + text
    if dress == 3:
        return text.replace("mpc.bus = [", "%{\nmpc.baseMVA = 7; ] 'x\n%}\nmpc.bus = [ % it's ] 2")
    if dress == 4:
        return text.replace(";\n", "; % 1 2 3;\n")
    if dress == 5:
        return text.replace("mpc.gen = [", "mpc.bus_name = {'a ] %'; \"it's\"}, mpc.gen = ... x\n[")
    return text + "end\n" if dress == 6 else text


EXTREMES = (
    0.0, -1.0, 1.0, 0.5, -0.5, 2.0, 4.0, 7.0, 1e-9, 1e-300, 1e9, -1e9, 1e16, 1e308, -1e308, 5e-324,
    math.inf, -math.inf, math.nan, 360.0, 1e5,
)  # fmt: skip


def _cell(rng: np.random.Generator, meant: Tables) -> tuple[str, Tables, bool]:
    """Up to three cells of any matrix, or baseMVA, take extreme values."""
    valid = True
    for _ in range(rng.integers(1, 4)):
        name = str(rng.choice(["bus", "gen", "branch", "gencost", "baseMVA"]))
        value = float(rng.choice(EXTREMES))
        if name == "baseMVA":
            meant[name] = value
            continue
        row = rng.integers(len(meant[name]))
        column = rng.integers(len(meant[name][row]))
        if rng.random() < 0.2:
            value = -meant[name][row][column]
        meant[name][row][column] = value
    return _text(meant), meant, valid and _possible(meant)


def _possible(meant: Tables) -> bool:
    """Whether a network can have these numbers, by rules written down a second time."""
    base, bus, gen, branch, cost = (
        np.array(meant[name], float) for name in ("baseMVA", "bus", "gen", "branch", "gencost")
    )
    ids = bus[:, 0].tolist()
    service = gen[:, 7] > 0
    on = (branch[:, 10] != 0) & np.isin(branch[:, 0], ids) & np.isin(branch[:, 1], ids)
    lines = branch[on]
    if not (0 < base < 1e9) or not np.isin(bus[:, 1], (0, 1, 2, 3, 4)).all():
        return False
    if len(set(ids)) < len(ids) or any(not i > 0 or i != int(i) for i in ids if math.isfinite(i)):
        return False
    kept = bus[bus[:, 1] != 4]
    if not np.isfinite(kept[:, [0, 2, 3, 4, 5]]).all() or np.any(np.abs(kept[:, 2:6]) > 1e8):
        return False
    if np.any(kept[:, 12] > kept[:, 11]) or not np.all(np.isfinite(lines[:, [2, 3, 4, 8, 9]])):
        return False
    if np.any(np.hypot(lines[:, 2], lines[:, 3]) < 1e-8) or np.any(lines[:, 2] < -abs(lines[:, 3])):
        return False
    if np.any(gen[service, 9] > gen[service, 8]) or np.any(gen[service, 4] > gen[service, 3]):
        return False
    used = cost[: len(gen)][service]
    return bool(np.all(np.isin(used[:, 0], (1, 2))) and np.all(used[:, 3] >= 1))


def _row(rng: np.random.Generator, meant: Tables) -> tuple[str, Tables | None, bool]:
    """Rows are doubled, dropped, swapped, or lose a cell."""
    name = str(rng.choice(["bus", "gen", "branch", "gencost"]))
    rows = meant[name]
    at = int(rng.integers(len(rows)))
    what = rng.integers(4)
    if what == 0:
        rows.append(list(rows[at]))
        # A branch beside itself is a second circuit; all others are ambiguous.
        return _text(meant), meant, name == "branch"
    if what == 1:
        del rows[at]
        if not rows:
            return _text(meant).replace(f"mpc.{name} = [\n];", ""), None, False
        # Lines may be dropped; a bus is referred to, unless nothing is at it; costs go with rows.
        used = {end for line in meant["branch"] for end in line[:2]} | {g[0] for g in meant["gen"]}
        lost = name == "bus" and not used <= {bus[0] for bus in meant["bus"]}
        return _text(meant), meant, not lost and name not in ("gen", "gencost")
    if what == 2:
        other = int(rng.integers(len(rows)))
        rows[at], rows[other] = rows[other], rows[at]
        return _text(meant), meant, True
    text = _text(meant, {(name, at, len(rows[at]) - 1): ""})
    return text, None if len(rows) > 1 else meant, False


def _token(rng: np.random.Generator, meant: Tables) -> tuple[str, Tables | None, bool]:
    """One cell becomes what is no number, or another spelling of one."""
    name = str(rng.choice(["bus", "gen", "branch", "gencost"]))
    row = int(rng.integers(len(meant[name])))
    column = int(rng.integers(len(meant[name][row])))
    value = meant[name][row][column]
    spelled = (
        _written(value).replace("e", "d"), f"+{abs(value)!r}" if value >= 0 else repr(value),
        f"{value:.17e}",
    )  # fmt: skip
    broken = (
        f"{SECRET}MW", "1e999", "0x1F", "1_0", "1..2", "NA", "[1]", "1'", "1 * 2",
        "1/x", "1i", "'1'", "\u0661", "x", "@sin", "1;2", "1 2", "...", "]", "[", "1,,2", "=",
        "1 - 1", "#", "\0", "!1", "nan(1)", "true",
    )  # fmt: skip
    computed = {
        "--1": 1.0, "(1)": 1.0, "1*2": 2.0, "1/2": 0.5, "pi": math.pi, "1+1": 2.0, "-2^2": -4.0,
        "sqrt(9)/2": 1.5,
    }  # fmt: skip
    kind = rng.random()
    if kind < 0.25:
        return _text(meant, {(name, row, column): str(rng.choice(spelled))}), meant, True
    if kind < 0.4:
        token = str(rng.choice(list(computed)))
        text = _text(meant, {(name, row, column): token})
        meant[name][row][column] = computed[token]
        return text, meant, _possible(meant)
    token = str(rng.choice(broken))
    if token == "..." and column == 0:
        token = "x"  # the row would be a comment, and its absence a meaning
    return _text(meant, {(name, row, column): token}), None, False


def _statement(rng: np.random.Generator, meant: Tables) -> tuple[str, Tables | None, bool]:
    """A statement between two others, at the end of a matrix, or at the end of the file."""
    changed = copy.deepcopy(meant)
    value = float(rng.choice([500.0, 2.0, 0.0, -1.0, 1e308]))
    name = str(rng.choice(["bus", "gen", "branch", "gencost"]))
    row, column = int(rng.integers(len(meant[name]))), int(rng.integers(len(meant[name][0])))
    text = _text(meant)
    # Each with what MATLAB would make of the numbers; None where that is not said here.
    what = int(rng.integers(12))
    if what == 0:
        changed[name][row][column] = value
        added = f"mpc.{name}({row + 1}, {column + 1}) = {value!r};"
    elif what == 1:
        changed[name] = (np.array(meant[name]) + value).tolist()
        added = f"mpc.{name} += {value!r};"
    elif what == 2:
        changed[name][row][column] = value
        added = f"mpc.('{name}')({row + 1},{column + 1}) = {value!r};"
    elif what == 3:
        changed["baseMVA"] = value
        added = f"mpc.baseMVA = {value!r};"
    elif what == 4:
        del changed[name][row]
        added = f"mpc.{name}({row + 1}, :) = [];"
    elif what == 5:
        changed[name] = np.array(meant[name]).T.tolist()
        added = f"mpc.{name} = mpc.{name}';"
    elif what == 6:
        changed[name] = (2 * np.array(meant[name])).tolist()
        end = text.index("];", text.index(f"mpc.{name} = ["))
        suffix = str(rng.choice([" * 2", " .* 2", f" + mpc.{name}", "...\n * 2", "% c\n"]))
        if suffix.startswith("%"):
            return text[: end + 1] + suffix + text[end + 2 :], meant, True
        return text[: end + 1] + suffix + text[end + 1 :], changed, False
    elif what == 7:
        names = ["bus", "gen", "branch", "gencost"]
        added = str(rng.choice([f"mpc.{n} = [{SECRET}];" for n in names]))
        changed = None
    elif what == 8:
        # Knowingly skipped: these name and describe.
        harmless = (
            "mpc.bus_name = {'one'; \"two ] %\"};", "mpc.gentype = {'ST', 'GT'; 'CC', 'HY'};",
            "mpc.areas = [1 5; 2 9];", "mpc.note = 'mpc.bus(1,3) = 500;';", "% mpc.bus = 7;",
            "%{\nmpc.bus(1,3) = 500;\n%}", ";;", "mpc.reserves.zones = [1 1];", "mpc.n = -1e3",
            "define_constants;", "[PQ, PV, REF, NONE] = idx_bus;", "Sbase = mpc.baseMVA * 1e6;",
        )  # fmt: skip
        added = str(rng.choice(harmless))
    elif what == 9:
        changed = None  # unknown functions and control flow
        unknown = (
            "mpc = scale_load(2, mpc);", "for k = 1:3, mpc.bus(k, 3) = 0; end", "x = ones(3, 1);",
            "if 1\n mpc.baseMVA = 1;\nend", "mpc = ext2int(mpc);", "eval('mpc.bus(1,3) = 500;');",
            "load('other.mat');", "[mpc.bus, mpc.gen] = deal(1, 2);", "mpc.bus.x = 3;", "!ls",
            "global x", "x.bus = [1 2];", "mpc.gen_name = f(mpc);", "mpc.userfcn = 'change';",
            "function other = f(mpc)", "mpc.A = [1 2 3];", "return\nmpc.baseMVA = 7;", "mpc", "]",
            "mpc.note = 'open", "%{\nopen", "mpc.x = [1 2", "mpc.x = {1 2];", "clear", "mpc = [];",
            "mpc.version = '1';", "mpc.dcline = [1 2 1];", "mpc.bus = mpc.bus;",
        )  # fmt: skip
        added = str(rng.choice(unknown))
    elif what == 10:
        values = np.array(meant[name])
        values[:, column] *= 2
        changed[name] = values.tolist()
        added = f"mpc.{name}(:, {column + 1}) = 2 * mpc.{name}(:, {column + 1});"
    else:
        changed[name] = [changed[name][row]]
        added = f"mpc.{name} = mpc.{name}({row + 1}, :);"
    place = text.index("mpc.gencost = [") if rng.random() < 0.5 and name != "gencost" else len(text)
    same = changed is not None and _equal(changed, meant)
    carried_out = what in (0, 10) or same
    valid = changed is not None and carried_out and _possible(changed)
    return text[:place] + added + "\n" + text[place:], changed, valid


def _equal(one: Tables, other: Tables) -> bool:
    return all(np.array_equal(np.array(one[n]), np.array(other[n])) for n in one)


def _cut(rng: np.random.Generator, meant: Tables) -> tuple[str, Tables | None, bool]:
    """The file ends early, or characters in it are lost."""
    text = _text(meant)
    at = int(rng.integers(len(text)))
    if rng.random() < 0.6:
        # What is cut after the last bracket means the same; without costs, power costs nothing.
        branches = text.index("];\nmpc.gencost")
        if branches < at <= branches + 3:
            return text[:at], {**meant, "gencost": []}, True
        return text[:at], meant if at > text.rindex("]") else None, True
    end = at + int(rng.integers(1, 400))
    kept = text[:at] + text[end:]
    # A reader that takes lines for rows and blanks for columns, and nothing else.
    return kept, _plainly(kept), True


def _plainly(text: str) -> Tables | None:
    """The numbers of a file in the form of `_text`, or None if it is in another."""
    lines = text.split("\n")
    if lines[0] != "function mpc = network" or lines[-1]:
        return None
    found: Tables = {}
    rows: list[list[float]] | None = None
    for line in lines[1:-1]:
        try:
            if rows is not None:
                if line == "];":
                    rows = None
                else:
                    parts = (part.split() for part in line.split(";"))
                    rows += [[float(cell) for cell in part] for part in parts if part]
            elif line.startswith("mpc.baseMVA = ") and "baseMVA" not in found:
                found["baseMVA"] = float(line[14:].rstrip(";"))
            elif line.startswith("mpc.") and line.endswith(" = [") and line[4:-4] not in found:
                rows = found[line[4:-4]] = []
            elif line != "mpc.version = '2';":
                return None
        except ValueError:
            return None
    found.setdefault("gencost", [])
    return found if len(found) == 5 and rows is None else None


# Data sets


def npz(rng: np.random.Generator, folder: Path) -> None:
    """Arrays of wrong kinds, shapes and values, and damaged archives."""
    count = 8
    features = rng.integers(0, 256, (count, 3)).astype(float)
    labels = np.arange(count) % 3
    arrays: dict[str, Any] = dict(features=features, labels=labels, classes=3, scale=255)
    odd = (
        None, np.array("x" + SECRET), np.array([SECRET] * count), np.zeros(0), np.zeros((0, 3)), -1,
        np.full(count, 0.5), np.full(count, np.nan), np.full((count, 3), np.inf), np.eye(count),
        1e308, np.array([{}] * count, object), np.zeros(count, [("a", "f8")]), np.full(count, 1j),
        3.7, 0, np.arange(count + 1), np.full(count, 2**63, np.uint64), np.ones(count, bool),
        [3, 3],
    )  # fmt: skip
    if rng.random() < 0.6:
        name = str(rng.choice(["features", "labels", "classes", "scale", "writer", "test_labels"]))
        value = odd[rng.integers(len(odd))]
        arrays.pop(name, None)
        if value is not None:
            arrays[name] = value
    path = folder / "data.npz"
    (np.savez if rng.random() < 0.5 else np.savez_compressed)(path, **arrays)
    if rng.random() < 0.5:
        _damage(rng, path)
    found = read_dataset(path, test=0.25)
    rows = np.concatenate([found.train.features, found.test.features]) * float(arrays["scale"])
    seen = np.concatenate([found.train.labels, found.test.labels])
    given = np.asarray(arrays["labels"])
    if not np.array_equal(np.sort(seen), np.sort(given.astype(float))):
        raise Nonsense("labels are not those of the file")
    own = np.asarray(arrays["features"], float).reshape(len(rows), -1)
    if not np.allclose(np.sort(rows, axis=0), np.sort(own, axis=0), rtol=1e-12):
        raise Nonsense("features are not those of the file")


def _damage(rng: np.random.Generator, path: Path) -> None:
    """Cut a file, flip bits of it, or write over parts."""
    raw = bytearray(path.read_bytes())
    what = rng.integers(3)
    if what == 0:
        raw = raw[: rng.integers(len(raw) + 1)]
    elif what == 1:
        for _ in range(rng.integers(1, 4)):
            raw[rng.integers(len(raw))] ^= 1 << rng.integers(8)
    else:
        at = rng.integers(len(raw))
        raw[at : at + 8] = rng.bytes(8)
    path.write_bytes(raw)


def idx(rng: np.random.Generator, folder: Path) -> None:
    """MNIST's four files, one of them damaged or of another shape."""
    arrays = {}
    for part, count in (("train", 6), ("t10k", 3)):
        arrays[part, "images-idx3"] = rng.integers(0, 256, (count, 2, 2))
        arrays[part, "labels-idx1"] = np.arange(count) % 10
    bad = list(arrays)[rng.integers(4)]
    for key, array in arrays.items():
        head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
        raw = head + array.astype(np.uint8).tobytes()
        zipped = rng.random() < 0.5
        if key == bad and rng.random() < 0.5:
            at = int(rng.integers(len(head)))
            raw = raw[:at] + rng.bytes(1) + raw[at + 1 :]
        path = folder / f"{key[0]}-{key[1]}-ubyte{'.gz' if zipped else ''}"
        path.write_bytes(gzip.compress(raw, mtime=0) if zipped else raw)
        if key == bad and rng.random() < 0.6:
            _damage(rng, path)
    found = read_dataset(folder)
    for part, records in (("train", found.train), ("t10k", found.test)):
        count = arrays[part, "labels-idx1"].size
        if records.count != count or records.labels.size != count:
            raise Nonsense("records were lost")
        if records.labels.max() > 9 or not np.isfinite(records.features).all():
            raise Nonsense("labels or pixels out of range")


def leaf(rng: np.random.Generator, folder: Path) -> None:
    """LEAF's JSON with wrong entries, or damaged text."""
    values: tuple[Any, ...] = (
        SECRET, "x" + SECRET, None, True, 1.5, -1, 62, 10**400, [], [1], {}, {"a": 1}, float("nan"),
        float("inf"), 1e308, "", "ann", ["ann"], 2.0,
    )  # fmt: skip
    for part in ("train", "test"):
        users: dict[str, Any] = {
            name: {"x": rng.random((2, 3)).round(3).tolist(), "y": rng.integers(0, 62, 2).tolist()}
            for name in ("ann", "bob")
        }
        document: Any = {"users": list(users), "num_samples": [2, 2], "user_data": users}
        value = values[rng.integers(len(values))]
        place = rng.integers(9)
        if part == "train" and place == 0:
            document[str(rng.choice(list(document)))] = value
        elif part == "train" and place == 1:
            document.pop(str(rng.choice(list(document))))
        elif part == "train" and place == 2:
            users["ann"] = value
        elif part == "train" and place == 3:
            users["ann"][str(rng.choice(["x", "y"]))] = value
        elif part == "train" and place in (4, 5):
            users["ann"]["y"][0] = value
        elif part == "train" and place == 6:
            users["ann"]["x"][0] = value
        elif part == "train" and place == 7:
            users["ann"]["x"][0][1] = value
        (folder / part).mkdir()
        path = folder / part / "a.json"
        path.write_text(json.dumps(document))
        if part == "train" and place == 8:
            _damage(rng, path)
            with contextlib.suppress(ValueError):
                document = json.loads(path.read_text())
        if part == "train":
            meant = document
    found = read_dataset(folder).train
    data = [meant["user_data"][user] for user in meant["users"]]
    if found.labels.tolist() != [label for own in data for label in own["y"]]:
        raise Nonsense("labels are not those of the file")
    if not np.allclose(1 - found.features, [row for own in data for row in own["x"]]):
        raise Nonsense("images are not those of the file")


def adult(rng: np.random.Generator, folder: Path) -> None:
    """Lines of the Adult data with wrong words, or damaged text."""
    rows, lines, labels = [], [], []
    for _ in range(4):
        row = [
            int(rng.integers(len(c.codes))) if c.codes else int(rng.integers(c.low, c.high + 1))
            for c in PEOPLE
        ]
        words = [c.codes[v] if c.codes else str(v) for c, v in zip(PEOPLE, row, strict=True)]
        label = int(rng.choice([-1, 1]))
        rows.append(row)
        labels.append(label)
        lines.append([*words, ">50K" if label > 0 else "<=50K"])
    bad = ("x" + SECRET, "nan", "inf", "1e300", "1_0", "\u0661", "", "?", "-", "0x1", "1,2", "a\0b")
    at, which = int(rng.integers(4)), int(rng.integers(15))
    word = str(rng.choice(bad))
    touched = rng.random() < 0.7
    if touched:
        lines[at][which] = word
    path = folder / "adult.data"
    path.write_text(["\n", "\r\n"][rng.integers(2)].join(", ".join(line) for line in lines))
    if rng.random() < 0.3:
        path.write_bytes(path.read_bytes()[: rng.integers(path.stat().st_size)])
    found = read_adult(path)
    if touched and word != "?":
        # Only a cut may have taken the broken line away, and then at the end of one.
        complete = path.read_bytes().decode().split("\n")
        if any(word in line for line in complete if word):
            raise Nonsense("a broken word was accepted")
    features = normalized(np.array(rows, float))
    for own, label in zip(found.features, found.labels, strict=True):
        same = [k for k in range(4) if np.allclose(features[k], own) and labels[k] == label]
        if not same:
            raise Nonsense("a record that is not in the file")


def zones(rng: np.random.Generator, folder: Path) -> None:
    """Maps of buses to zones with wrong cells, or damaged text."""
    case = read_case(5)
    meant = {bus: str(rng.choice(["a", "b", "2"])) for bus in case.bus.id.tolist()}
    lines = [f"{bus},{zone}" for bus, zone in meant.items()]
    if rng.random() < 0.5:
        lines.insert(0, "bus,zone")
    odd = (
        "6,a", "1,b", "x,a", "1", "", ",", "1,a,b", '"1', "-1,a", "1.0,a", "\u0661,a",
        "9" * 5000 + ",a", "1," + "9" * 200_000, "\0,a", "# 1,b", " 3 , a ", "1;a",
    )  # fmt: skip
    at = int(rng.integers(len(lines) + 1))
    new = str(odd[rng.integers(len(odd))])
    what = rng.integers(4)  # the last one: nothing is wrong
    if what == 0 and at < len(lines):
        lines[at] = new
    elif what == 1:
        lines.insert(at, new)
    path = folder / "map.csv"
    path.write_text("\n".join(lines))
    if what == 2:
        raw = path.read_bytes()
        path.write_bytes(raw[: rng.integers(len(raw))] if at % 2 else raw + rng.bytes(20))
    found = read_zones(path, case)
    for bus, zone in zip(case.bus.id.tolist(), found.of_bus.tolist(), strict=True):
        named = found.names[zone]
        # The last cell may have been cut or grown.
        if named != meant[bus] and not (what == 2 and bus == case.bus.id[-1]):
            if not (what == 0 and new.strip().startswith(str(bus))):
                raise Nonsense("zones are not those of the file")


# Options

EXAMPLES = {
    "chan_xie_zhao_elastic_net": ("--users", "--iterations", "--repetitions", "--plot", "--format"),
    "demo": ("--seeds", "--plot", "--format"),
    "ou_nonconvex": ("--seeds", "--workers", "--plot", "--format"),
    "privacy_table": ("--cases", "--seeds", "--rounds", "--plot", "--format"),
    "published_mistakes": ("--runs", "--plot", "--format"),
    "ryu_kim_federated_learning": ("--data", "--rounds", "--seeds", "--jobs", "--plot", "--format"),
    "ryu_kim_power_flow": (
        "--cases", "--epsilons", "--local-updates", "--seeds", "--rounds", "--plot", "--format",
    ),
    "shared_resources": ("--case",),
    "xiao_ye_devadas_logistic": ("--rounds", "--runs", "--adult", "--plot", "--format"),
    "power_flow": (
        "--case", "--zones", "--objective", "--load-scale", "--shared", "--algorithm", "--rounds",
        "--local-updates", "--penalty", "--step", "--perturb", "--mechanism", "--radius",
        "--epsilon", "--delta", "--release-epsilon", "--release-delta", "--ledger", "--seed",
        "--seeds", "--json", "--plot", "--format", "--tables", "--table-format", "--over", "--hide",
    ),
}  # fmt: skip
# None of these is a good value of any option above, or a path that can be used.
BAD = ("-1", "nan", "1e400", "x\0y", "/dev/null/none", "\u00b2", "-0.5", "--nothing", "9" * 400)
BAD_PATHS = ("x\0y", "/dev/null/none", "/proc/none/none", "9" * 400)
PATHS = (
    "--plot", "--tables", "--json", "--ledger", "--adult", "--data", "--case", "--cases", "--zones",
)  # fmt: skip


def options(rng: np.random.Generator, folder: Path) -> None:
    """A command with a value that no option takes: exit code 2 and a sentence, nothing run."""
    del folder
    name = str(rng.choice([*EXAMPLES, *["power_flow"] * 6]))
    option = str(rng.choice(EXAMPLES[name]))
    values = BAD_PATHS if option in PATHS else BAD
    value = values[rng.integers(len(values))]
    main = (
        power_flow_command
        if name == "power_flow"
        else importlib.import_module(f"examples.{name}").main
    )
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([f"{option}={value}"])
        except SystemExit as ended:
            code = ended.code
    what = f"{name} {option}={value[:20]!r}"
    if code != 2:
        raise Nonsense(f"{what} ended with {str(code)[:50]!r}")
    if out.getvalue() or "Traceback" in err.getvalue() or not err.getvalue().strip():
        raise Nonsense(f"{what} printed {(out.getvalue() + err.getvalue())[:200]!r}")
    raise dp.ModelError("Refused in words.")


KINDS = (
    network, npz, network, idx, network, leaf, network, adult, network, zones, network, options,
    network, network, npz,
)  # fmt: skip
