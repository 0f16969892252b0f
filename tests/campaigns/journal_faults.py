"""A ledger file whose disk fails, loses power, or is changed.

* In a run one call to the operating system fails: opening, reading, writing (nothing, a part, or
  all of it), cutting, forcing to disk. What an agent lets out is written down outside the ledger.
* The power is lost: the disk keeps any of the sectors that were written since it was last forced
  to keep all, in runs and in repairs of what earlier losses of power left.
* One bit of a file is flipped, or its end is missing.

In all of them, every value that left is in the file bit for bit afterwards, and paid for; or the
file is refused, which happens to changed files and to no others.
"""

import errno
import io
import itertools
import os
import random
import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

import dpcvx as dp
from dpcvx.privacy import ledger_chain as chain
from dpcvx.privacy import ledger_file as journal
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.entries import Entry
from dpcvx.privacy.ledger_file import Journal
from tests.campaigns.runs import EXECUTORS, left, opened, problem, watching
from tests.campaigns.tally import Tally

FULL = 2000
_SECTOR = 512
# Of values.
_SIZES = [1, 20, 90, 200]


def campaign(size: int, seed: int) -> Tally:
    """So many trials: of twenty, twelve of errors, six of power, one each of bits and cuts."""
    tally, draw = Tally(), random.Random(seed)
    kinds = [partial(_error, _plan()), _power] * 6 + [partial(_error, _plan())] * 6 + [_bit, _cut]
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(os, "fsync"):
        for trial in range(size):
            kind = kinds[trial % len(kinds)]
            outcome, fault = kind(Path(folder) / str(trial), random.Random(draw.random()))
            tally.add(outcome, fault and f"trial {trial}: {fault}")
    return tally


# -- errors ----------------------------------------------------------------------------------------


def _plan() -> dp.Plan:
    return problem().plan(dp.LinearizedADMM(penalty=1.0), rounds=3, epsilon=1.0, delta=1e-6)


class Failing:
    """The calls to the operating system of which one fails, counted over all threads."""

    def __init__(self, place: int, number: int, part: float) -> None:
        self.left, self.number, self.part = place, number, part
        self.failed = None

    def due(self, name: str) -> bool:
        """Whether this call is the one."""
        self.left -= 1
        if self.left == 0:
            self.failed = name
        return self.left == 0

    def error(self) -> OSError:
        """What the system says."""
        return OSError(self.number, os.strerror(self.number))

    def file(self) -> type:
        """Files of which calls fail."""
        failing = self

        class File(io.FileIO):
            def write(self, text):
                if not failing.due("write"):
                    return super().write(text)
                if failing.part < 0:  # a short write, which is no error
                    return super().write(bytes(text)[: max(1, len(text) // 2)])
                super().write(bytes(text)[: int(len(text) * failing.part)])
                raise failing.error()

            def readall(self):
                if failing.due("read"):
                    raise failing.error()
                return super().readall()

            def seek(self, *where):
                if failing.due("seek"):
                    raise failing.error()
                return super().seek(*where)

            def truncate(self, *size):
                if failing.due("truncate"):
                    raise failing.error()
                return super().truncate(*size)

        return File

    def __getattr__(self, name: str):
        """What the module `os` has; of some functions one call fails."""
        call = getattr(os, name)
        if name not in ("open", "fsync", "link", "stat"):
            return call

        def failing(*arguments, **named):
            if self.due(name):
                raise self.error()
            return call(*arguments, **named)

        return failing


def _error(plan: dp.Plan, path: Path, draw: random.Random) -> tuple[str, str | None]:
    """A run of which one call fails, and the one that goes on from there."""
    seed, name = draw.choice([None, 3]), draw.choice(list(EXECUTORS))
    number = draw.choice([errno.ENOSPC, errno.EIO, errno.EDQUOT])
    failing = Failing(draw.randint(1, 130), number, draw.choice([-1, 0, 0.3, 0.9, 1]))
    log = path.with_suffix(".left")
    report, fault = opened(log), None
    with watching(report):
        with (
            mock.patch.object(journal, "os", failing),
            mock.patch.object(journal, "FileIO", failing.file()),
        ):
            try:
                plan.run(ledger=path, seed=seed, executor=EXECUTORS[name]())
            except Exception as error:
                if not isinstance(error, dp.LedgerError) or str(path.parent) in str(error):
                    fault = f"told by {error!r}"
        said = "no error" if failing.failed is None else f"{failing.failed} fails"
        fault = fault or _missing(path, log)
        try:
            plan.run(ledger=path, seed=seed)
        except dp.BudgetError:
            known = path.read_bytes()
            if b'"torn"' not in known and b'{"end"' not in known:
                fault = fault or "no budget is left for what was paid"
        except dp.LedgerError as error:
            fault = fault or f"refused: {error}"
        fault = fault or _missing(path, log)
    os.close(report)
    where = f"{name}, seed {seed}, {said} with part {failing.part}"
    return said, fault and f"{where}: {fault}"


def _missing(path: Path, log: Path) -> str | None:
    """What of all that left is not in the ledger, or not paid for."""
    known, fault = left(log)
    if fault:
        return fault
    if not path.exists():
        return "the file is gone, and values left" if known else None
    return _covers(path, known)


def _covers(path: Path, known: dict[tuple[str, int, int], str]) -> str | None:
    try:
        past = journal.past_of(path)
    except dp.LedgerError as error:
        return f"refused: {error}"
    runs = [run for run in (past.interrupted,) if run is not None]
    runs += [done.run for done in past.finished.values()]
    kept = {
        (agent, *place): value.tobytes().hex()
        for run in runs
        for agent, values in run.values.items()
        for place, value in values.items()
    }
    for place, value in known.items():
        if kept.get(place) != value:
            return f"{place} left and is not in the file"
        entries = past.ledger[place[0]].entries
        if place[1:] not in [(entry.round, entry.step) for entry in entries]:
            return f"{place} left and is not paid for"
    return None


# -- loss of power ---------------------------------------------------------------------------------


class Disk:
    """What a file's disk has, and what was written since and may or may not be kept."""

    def __init__(self, known: bytes = b"") -> None:
        self.kept, self.pending = known, []

    def states(self, draw: random.Random, count: int):
        """Files after a loss of power: any of the pending sectors, any length on the way."""
        pieces = []
        for at, text in self.pending:
            if text is None:
                pieces.append((at, None))
                continue
            edges = range(at - at % _SECTOR + _SECTOR, at + len(text), _SECTOR)
            for begin, end in itertools.pairwise([at, *edges, at + len(text)]):
                pieces.append((begin, text[begin - at : end - at]))
        for _ in range(count):
            raw = bytearray(self.kept)
            for at, text in pieces:
                if draw.random() < 0.5:
                    continue
                if text is None:
                    del raw[at:]
                else:
                    raw.extend(bytes(max(0, at + len(text) - len(raw))))
                    raw[at : at + len(text)] = text
            longest = max([len(self.kept), *(at + len(t) for at, t in self.pending if t)])
            if draw.random() < 0.3:  # the new length alone
                raw.extend(bytes(longest - len(raw)))
            yield bytes(raw)


class Stop(Exception):
    """The power is gone."""


def _recorded(disk: Disk, calls: int) -> tuple[type, object]:
    """Files whose writes the disk records, until so many calls were made."""
    left = [calls]

    def tick():
        left[0] -= 1
        if left[0] == 0:
            raise Stop

    class File(io.FileIO):
        def write(self, text):
            tick()
            disk.pending.append((self.tell(), bytes(text)))
            return super().write(text)

        def truncate(self, size=None):
            tick()
            disk.pending.append((self.tell() if size is None else size, None))
            return super().truncate(size)

    def fsync(number):
        tick()
        disk.kept, disk.pending = os.pread(number, 1 << 20, 0), []

    return File, fsync


def _power(path: Path, draw: random.Random) -> tuple[str, str | None]:
    """Runs that end in a loss of power, one on top of what the other left."""
    path.unlink(missing_ok=True)
    with Journal(path):
        pass
    acknowledged: dict[tuple[str, int, int], str] = {}
    for loss in range(4):
        disk = Disk(path.read_bytes())
        File, fsync = _recorded(disk, draw.randint(1, 40))
        with (
            mock.patch.object(journal, "FileIO", File),
            mock.patch.object(os, "fsync", fsync),
            mock.patch.object(journal, "_sync_folder"),
        ):
            try:
                _lines(path, draw, acknowledged)
                outcome = "ended"
            except Stop:
                outcome = "lost power"
        *others, state = disk.states(draw, 12)
        for other in [*others, state]:
            path.write_bytes(other)
            fault = _covers(path, acknowledged)
            if fault is None:
                try:
                    with Journal(path):
                        pass
                except dp.LedgerError as error:
                    fault = f"refused when opened: {error}"
            fault = fault or _covers(path, acknowledged)
            if fault:
                return outcome, f"after {loss + 1} losses: {fault}"
        path.write_bytes(state)
    return outcome, None


def _lines(path: Path, draw: random.Random, acknowledged: dict) -> None:
    with Journal(path) as book:
        run = book.interrupted
        if run is None:
            accounts = [Account(a, {}, Budget(9.0, 1e-6, Composition())) for a in "ab"]
            book.begin(f"plan {draw.random()}", seeded=False, accounts=accounts)
        known = {} if run is None else run.values
        past = max((t for of in known.values() for t, _ in of), default=0)
        for t in range(past + 1, past + 9):
            agents = draw.choice(["a", "b", "ab", "ab"])
            values = {
                a: np.array([draw.random() for _ in range(draw.choice(_SIZES))]) for a in agents
            }
            with book.exchange() if draw.random() < 0.8 else nullcontext():
                for agent, value in values.items():
                    mark = Entry(t, 1, "Gaussian", 10.0, 0.3, 2.0**-20, "derived", "gradient")
                    book.charge([agent], mark)
                    book.release([agent], (t, 1), value[np.newaxis])
            acknowledged |= {(a, t, 1): value.tobytes().hex() for a, value in values.items()}


# -- changes ---------------------------------------------------------------------------------------


def _file(path: Path, draw: random.Random) -> bytes:
    path.unlink(missing_ok=True)
    with mock.patch.object(os, "fsync"), Journal(path) as book:
        accounts = [Account(a, {}, Budget(9.0, 1e-6, Composition())) for a in "ab"]
        book.begin("plan", seeded=False, accounts=accounts)
        for t in range(1, draw.randint(2, 3)):
            for agent in "ab":
                mark = Entry(t, 1, "Gaussian", 10.0, 0.3, 2.0**-20, "derived", "gradient")
                book.charge([agent], mark)
                book.release([agent], (t, 1), np.array([[draw.random(), draw.random()]]))
        book.end("completed", t)
    return path.read_bytes()


def _judged(path: Path, changed: bytes, whole: bytes) -> tuple[str, str | None]:
    """A changed file is refused, unless every line of it is there."""
    try:
        found = chain.read(changed, path.name)
    except dp.LedgerError:
        return "refused", None
    if changed[chain.WIDTH :] == whole[chain.WIDTH :] and not found.tail:
        return "harmless", None
    return "taken", f"{len(found.lines)} lines were taken"


def _bit(path: Path, draw: random.Random) -> tuple[str, str | None]:
    """Every bit of a new file.

    The head may become that of a process which died while it replaced the head of one line less,
    or of two, if the hashes differ from there on by this bit alone. Every line is there then.
    """
    whole = _file(path, draw)
    outcome, harmless = "every bit refused", 0
    for k in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[k // 8] ^= 1 << k % 8
        found, fault = _judged(path, bytes(changed), whole)
        harmless += found == "harmless"
        if fault:
            return "taken", f"bit {k}: {fault}"
    if harmless > 2:
        return "taken", f"{harmless} bits without effect"
    return outcome if not harmless else "every bit but for half a head", None


def _cut(path: Path, draw: random.Random) -> tuple[str, str | None]:
    """Every length of a new file."""
    whole = _file(path, draw)
    for size in range(len(whole)):
        found, fault = _judged(path, whole[:size], whole)
        if found != "refused":
            return "taken", f"cut at {size} of {len(whole)}: {fault}"
    return "every cut refused", None
