"""Faults of networks, addresses, certificates, clocks and disks, in namespaces of the test's own.

Three owners and a coordinator are processes of the command ``dpcvx`` in network namespaces, and a
wire between them (`wires`) loses, delays and damages what it carries. Disks are file systems in
memory, made full or read-only. A trial injects one fault into a run: both sides have to say what
`FAULTS` has, without a traceback, and the run has to end as it says, at once or after the cause is
mended and the same commands are given again. Values and ledgers are then those of a run in one
process. ``python -m tests.campaigns.namespaces`` prints the sentences of both sides as a table.

Everything happens in namespaces of users, mounts, networks and processes that end with this
program. Where the kernel allows none, nothing is tried.
"""

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dpcvx.owners import keys
from tests.campaigns.owner_kills import differences
from tests.campaigns.tally import Tally
from tests.campaigns.wires import Way, Wire, party, shell, signed
from tests.owners.federation import NAMES, ROOT, expected, plan_of, write

_ROUNDS, _LIMIT, _PORT = 30, 240, 8443
_OWN = ("unshare", "-rmn", "--pid", "--fork", "--kill-child", "--mount-proc")
_ALLOWED = (
    "mount -t tmpfs none /run && mkdir /run/netns && ip netns add a && ip link add v0 type veth "
    "peer name v1 netns a"
)
PARTIES = ("coordinator", *NAMES)
_PATIENT, _SHORT = 120, 12
# Trials beside each other: they wait for most of the time.
_BESIDE = 4
# Processes are forked from one that has imported the package: that takes longest.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.campaigns.namespaces", "dpcvx.owners.cli"])


def ended(process):
    """Exit code of a process that is to end in time."""
    process.join(_LIMIT)
    if process.exitcode is None:
        process.kill()
        process.join()
        return "hung"
    return process.exitcode


class Study:
    """A run, its parties, and the wire between them.

    Attributes
    ----------
    place : Path
        With a folder per party.
    wire : Wire
    timeouts : dict
        Of parties that look for others for a time of their own.
    """

    def __init__(self, place, mark):
        self.place, self.out = place, place / "shared.npz"
        self.wire = Wire(PARTIES, mark)
        self.timeouts, self._live = {}, {}
        self._files = {name: [] for name in PARTIES}
        self._mounted = []

    def write(self):
        """Write all folders."""
        write(self.place, rounds=_ROUNDS, accept="reply_after = 0.2")
        # The reserve of a busy machine: plan and values do not depend on it.
        return self

    def start(self, *names, to="10.0.0.1", port=_PORT, patch=""):
        """Start parties, all if none is named."""
        for name in names or PARTIES:
            folder, wait = self.place / name, self.timeouts.get(name, _PATIENT)
            if name == "coordinator":
                said = (
                    "coordinate", folder / "model.py", "--listen", f"0.0.0.0:{_PORT}", "--keys",
                    folder / "keys", "--log", folder / "run.dpx", "--out", self.out,
                )  # fmt: skip
            else:
                said = (
                    "owner", "join", folder / "owner.toml", "--connect", f"wss://{to}:{port}",
                    "--seed", 1, "--out", folder / "own.npz",
                )  # fmt: skip
            self._live[name] = self.process(name, *said, "--timeout", wait, patch=patch)

    def process(self, name, *arguments, patch=""):
        """A process of a party."""
        files = self._files[name]
        files.append(self.place / f"{name} {len(files)}")
        given = self.wire.space(name), [*map(str, arguments)], str(files[-1]), patch
        process = _FORKS.Process(target=party, args=given)
        process.start()
        return process

    def reach(self, t=4):
        """Wait until owner north has released so many rounds."""
        ledger, deadline = self.place / "north" / "spent.jsonl", time.monotonic() + _LIMIT
        while not ledger.exists() or ledger.read_text().count('"values"') < t:
            if time.monotonic() > deadline:
                raise TimeoutError(f"round {t} was not reached: {self.said('coordinator')}")
            time.sleep(0.05)

    def hear(self, name, pattern):
        """Wait until a party says something."""
        deadline = time.monotonic() + _LIMIT
        while not re.search(pattern, self.said(name)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} did not say {pattern!r}: {self.said(name)}")
            time.sleep(0.05)

    def end(self):
        """Exit codes of those that live, once they have ended."""
        codes = {name: ended(process) for name, process in self._live.items()}
        self._live = {}
        return codes

    def said(self, name):
        """All that the processes of a party wrote."""
        return "".join(path.read_text() for path in self._files[name] if path.exists())

    def signal(self, name, number):
        """Send a signal to a party."""
        os.kill(self._live[name].pid, number)

    def ways(self, **faults):
        """Have both ways of owner north like this; none: as they should be."""
        self.wire.up["north"], self.wire.down["north"] = Way(**faults), Way(**faults)

    def small(self, name, size="400k"):
        """Put a party's folder on a small disk of its own."""
        folder = self.place / name
        folder.mkdir(exist_ok=True)
        shell(f"mount -t tmpfs -o size={size} none {folder}")
        self._mounted.append(folder)

    def fill(self, name):
        """Fill a party's disk."""
        with open(self.place / name / "filler", "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 512):
                    pass
            except OSError:
                pass

    def lock(self, name):
        """Make a party's folder read-only, for all files that are opened from now on."""
        folder = self.place / name
        shell(f"mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}")
        self._mounted.append(folder)

    def unlock(self):
        """Make the last folder writable."""
        shell(f"umount -l {self._mounted.pop()}")

    def close(self):
        """End what is left."""
        for process in self._live.values():
            process.kill()
            process.join()
        for folder in reversed(self._mounted):
            shell(f"umount -l {folder}")
        self.wire.close()


def after(seconds, **faults):
    """A fault of both ways for so long, in the middle of a run; then all is well."""

    def inject(study):
        study.write().start()
        study.reach()
        study.ways(**faults)
        time.sleep(seconds)
        study.ways()
        return study.end()

    return inject


def always(**faults):
    """A fault of both ways, from the beginning to the end."""

    def inject(study):
        study.write().ways(**faults)
        study.start()
        return study.end()

    return inject


def one_way(which, seconds):
    """What one way carries is lost for so long."""

    def inject(study):
        study.write().start()
        study.reach()
        getattr(study.wire, which)["north"] = Way(lost=1.0)
        time.sleep(seconds)
        study.ways()
        return study.end()

    return inject


def everybody(seconds):
    """The coordinator has no network for so long."""

    def inject(study):
        study.write().start()
        study.reach()
        for name in NAMES:
            study.wire.up[name] = study.wire.down[name] = Way(lost=1.0)
        time.sleep(seconds)
        for name in NAMES:
            study.wire.up[name] = study.wire.down[name] = Way()
        return study.end()

    return inject


def interface_down(seconds):
    """The owner's interface is down for so long: its own machine knows of no network."""

    def inject(study):
        study.write().start()
        study.reach()
        there = f"ip -n {study.wire.space('north')} link set {study.wire.inner('north')}"
        shell(f"{there} down")
        # The connection notices nothing by itself; a process that starts does.
        time.sleep(seconds)
        shell(f"{there} up")
        return study.end()

    return inject


def for_good(study):
    """The link of owner north stays down; later all is well, and the same commands go on."""
    study.timeouts |= {name: _SHORT for name in PARTIES}
    study.write().start()
    study.reach()
    study.ways(lost=1.0)
    first = study.end()
    study.ways()
    study.timeouts.clear()
    study.start()
    return study.end() | {"first": first}


def alone(to="10.0.0.1", port=_PORT, **faults):
    """Owner north looks for a coordinator in vain."""

    def inject(study):
        study.write().ways(**faults)
        study.timeouts |= {"north": 5, "coordinator": 20}
        if faults:
            study.start("coordinator")
            study.hear("coordinator", "listening on")
        study.start("north", to=to, port=port)
        return {"first": study.end()}

    return inject


def unroutable(study):
    """The address is one that no route of the machine leads to."""
    return alone(to="192.0.2.1")(study)


def certificate(name, sign):
    """A certificate that is wrong; with the right one, the same commands do."""

    def inject(study):
        study.write()
        folder = study.place / name / "keys"
        shutil.copytree(folder, study.place / "kept")
        study.timeouts |= {party: _SHORT for party in PARTIES}
        sign(study, folder, name)
        study.start("coordinator", "north")
        first = study.end()
        shutil.rmtree(folder)
        shutil.copytree(study.place / "kept", folder)
        (study.place / "coordinator/keys/ca.crl").unlink(missing_ok=True)
        study.timeouts.clear()
        study.start()
        return study.end() | {"first": first}

    return inject


def dated(days):
    """Sign by a clock that is wrong by so many days, for 30 days."""

    def sign(study, folder, name):
        given = study.place / "authority", folder / f"{name}.csr", days
        process = _FORKS.Process(target=signed, args=given)
        process.start()
        if ended(process) != 0:
            raise RuntimeError("the certificate was not signed")

    return sign


def foreign(study, folder, name):
    """Have everything from another authority."""
    other = study.place / "other"
    keys.make_authority(other)
    (folder / f"{name}.crt").unlink()
    keys.sign_request(other, folder / f"{name}.csr")
    shutil.copy(other / "ca.crt", folder)


def swapped(study, folder, name):
    """Take another party's key."""
    shutil.copy(study.place / "south/keys/south.key", folder / f"{name}.key")


def legible(study, folder, name):
    """Let everybody read the key."""
    (folder / f"{name}.key").chmod(0o644)


def revoked(study, folder, name):
    """Revoke the certificate, at the coordinator."""
    gone = keys.revoke(study.place / "authority", folder / f"{name}.crt")
    shutil.copy(gone, study.place / "coordinator/keys/ca.crl")


def patched(line, *others):
    """Owner north is a program that differs by a line, and later the right one."""

    def inject(study):
        study.timeouts |= {party: _SHORT for party in PARTIES}
        study.write().start("coordinator", *others)
        study.start("north", patch=line)
        first = study.end()
        study.timeouts.clear()
        study.start()
        return study.end() | {"first": first}

    return inject


def clock_of_a_machine(study):
    """The owner's clock is a day ahead, which its certificate allows."""
    study.write().start("coordinator", "south", "west")
    study.start("north", patch=LATER)
    return study.end()


def other_clock(name, days):
    """A party's clock is wrong by so many days, which its certificates do not allow."""

    def inject(study):
        study.timeouts |= {party: _SHORT for party in PARTIES}
        study.write()
        for other in ("coordinator", "north"):
            study.start(other, patch=CLOCK.format(days=days) if other == name else "")
        first = study.end()
        study.timeouts.clear()
        study.start()
        return study.end() | {"first": first}

    return inject


def clock_of_the_coordinator(study):
    """The coordinator's clock is a day ahead, which its certificate allows."""
    study.write().start("coordinator", patch=LATER)
    study.start(*NAMES)
    return study.end()


def garbage(study):
    """Whoever has the coordinator's certificate sends bytes that are no message."""
    study.timeouts |= {party: _SHORT for party in PARTIES}
    study.write().start("coordinator", patch=GARBAGE)
    study.start("north")
    first = study.end()
    study.timeouts.clear()
    study.start()
    return study.end() | {"first": first}


def two_coordinators(study):
    """A second coordinator starts in a run, with the same log and another port."""
    study.write().start()
    study.reach()
    folder = study.place / "coordinator"
    second = study.process(
        "coordinator", "coordinate", folder / "model.py", "--listen", "0.0.0.0:8444", "--keys",
        folder / "keys", "--log", folder / "run.dpx",
    )  # fmt: skip
    return study.end() | {"first": {"second": ended(second)}}


def twice(study):
    """A second process of owner north starts in a run, with a copy of its folder."""
    study.write().start()
    study.reach()
    copy = study.place / "copy"
    shutil.copytree(study.place / "north", copy)
    policy = copy / "owner.toml"
    second = study.process("north", "owner", "join", policy, "--connect", f"wss://10.0.0.1:{_PORT}")
    first = {"second": ended(second)}
    return study.end() | {"first": first}


def full(name, at_start=False):
    """A disk is full; with room, the same commands go on."""

    def inject(study):
        study.small(name)
        study.write()
        if at_start:
            study.fill(name)
        study.timeouts |= {party: _SHORT for party in PARTIES}
        study.start()
        if not at_start:
            study.reach()
            study.fill(name)
        first = study.end()
        (study.place / name / "filler").unlink()
        study.timeouts.clear()
        study.start()
        return study.end() | {"first": first}

    return inject


def locked(name, at_start=False):
    """A folder cannot be written; once it can, the same commands go on."""

    def inject(study):
        study.write()
        study.timeouts |= {party: _SHORT for party in PARTIES}
        if at_start:
            study.lock(name)
        study.start()
        if not at_start:
            study.reach()
            study.lock(name)
        first = study.end()
        study.unlock()
        if not any(first.values()):
            return first
        study.timeouts.clear()
        study.start()
        return study.end() | {"first": first}

    return inject


def stopped(seconds):
    """Owner north's process is stopped for so long, as by a machine that sleeps."""

    def inject(study):
        study.write().start()
        study.reach()
        study.signal("north", signal.SIGSTOP)
        time.sleep(seconds)
        study.signal("north", signal.SIGCONT)
        return study.end()

    return inject


OLDER = "from dpcvx.owners import link, wire; wire.MAGIC = b'dpx0'; link.NAMED = 'dpcvx/0.0.1 dpx0'"
SMALLER = "from dpcvx.owners import link; link._PLAIN['max_size'] = 2000"
LOCKLESS = """
import errno, fcntl
def flock(*arguments):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = flock
"""
GARBAGE = """
from dpcvx.owners import link
async def greeted(self, socket):
    await socket.recv()
    await socket.send(b"no message")
    await socket.recv()
link.SocketHub._greeted = greeted
"""
CLOCK = """
from dpcvx.owners import keys
class Wrong(keys.dt.datetime):
    @classmethod
    def now(cls, zone=None):
        return super().now(zone) + keys.dt.timedelta(days={days})
keys.dt.datetime = Wrong
"""
LATER = "import time; now = time.time; time.time = lambda: now() + 86400"


@dataclass(frozen=True)
class Fault:
    """A fault, and what it has to lead to.

    Attributes
    ----------
    says : str
        The fault.
    inject : callable
        Runs a study with it, and returns exit codes; under ``first`` those from before the mend.
    owner, coordinator : str
        Patterns of lines that both sides have to write; empty if they notice nothing.
    """

    says: str
    inject: Callable[[Study], dict]
    owner: str
    coordinator: str


_LOST = r"the coordinator left: (no sign of life came for 20 s|no route|the connection broke)"
_LEFT = "^north left"
_NOT_HERE = "agent 'north' did not come within"
FAULTS = (
    Fault("nobody listens at the port", alone(port=8444), "away.*: nobody listens there", ""),
    Fault("no machine has the address", alone(to="10.0.0.99"), "away.*: no route to host", ""),
    Fault("no route leads to the address", unroutable, "away.*: network is unreachable", ""),
    Fault(
        "packets to the address are lost",
        alone(largest=60),
        "away.*: nothing answers there",
        _NOT_HERE,
    ),
    Fault(
        "no machine has the name",
        alone(to="coordinator.invalid"),
        "away.*: this machine knows no other of that name",
        "",
    ),
    Fault(
        "packets above 1,000 bytes are lost",
        alone(largest=1000),
        "away.*: a machine answers there, and then nothing comes through",
        _NOT_HERE,
    ),
    Fault("the link is down for 5 s", after(5, lost=1.0), "", ""),
    Fault("the link is down for 40 s", after(40, lost=1.0), _LOST, _LEFT),
    Fault("the link is down for good", for_good, _LOST, "'north' did not come back within"),
    Fault("only what the owner sends is lost, for 40 s", one_way("up", 40), _LOST, _LEFT),
    Fault("only what the owner is sent is lost, for 40 s", one_way("down", 40), _LOST, _LEFT),
    Fault("all links are down for 40 s", everybody(40), _LOST, _LEFT),
    Fault("the owner's interface is down for 40 s", interface_down(40), _LOST, _LEFT),
    Fault("one packet in five is lost", always(lost=0.2), "", ""),
    Fault("packets take 0.3 s each way", always(delay=0.3), "", ""),
    Fault("packets come twice and out of order", always(doubled=0.3, spread=0.05), "", ""),
    Fault(
        "bytes are damaged for 10 s",
        after(10, damaged=0.3),
        "the coordinator left: (bytes are damaged on the way|the connection broke)",
        "^north left",
    ),
    Fault("packets above 1,000 bytes are lost for 10 s", after(10, largest=1000), "", ""),
    Fault("the owner's machine sleeps for 60 s", stopped(60), "the coordinator left", _LEFT),
    Fault(
        "the owner's certificate has expired",
        certificate("north", dated(-60)),
        "'north.crt' has expired on .* --renew",
        _NOT_HERE,
    ),
    Fault(
        "the owner's certificate is not valid yet",
        certificate("north", dated(3)),
        "'north.crt' is not valid before .* set the clock",
        _NOT_HERE,
    ),
    Fault(
        "the coordinator's certificate has expired",
        certificate("coordinator", dated(-60)),
        "away.*: nobody listens there",
        "'coordinator.crt' has expired on .* --renew",
    ),
    Fault(
        "the coordinator's certificate is not valid yet",
        certificate("coordinator", dated(3)),
        "away.*: nobody listens there",
        "'coordinator.crt' is not valid before .* set the clock",
    ),
    Fault(
        "another authority signed",
        certificate("north", foreign),
        "stranger: .* does not vouch for",
        "turned away: .* of another authority",
    ),
    Fault(
        "the certificate was revoked",
        certificate("north", revoked),
        "certificate: .* revoked by the authority",
        "turned away: .* was revoked by the authority",
    ),
    Fault(
        "the key is another party's",
        certificate("north", swapped),
        "'north.crt' is not the certificate of the key 'north.key'",
        _NOT_HERE,
    ),
    Fault(
        "everybody can read the key",
        certificate("north", legible),
        "mode 0644.*chmod 600 north.key",
        _NOT_HERE,
    ),
    Fault(
        "the owner's clock is a day ahead",
        clock_of_a_machine,
        "clock is 24 hours ahead of the coordinator's",
        "",
    ),
    Fault(
        "the coordinator's clock is a day ahead",
        clock_of_the_coordinator,
        "clock is 24 hours behind the coordinator's",
        "",
    ),
    Fault(
        "the owner's clock is years ahead",
        other_clock("north", 4000),
        "'north.crt' has expired on .*this machine's clock says .* set the clock",
        _NOT_HERE,
    ),
    Fault(
        "the owner's clock is months behind",
        other_clock("north", -100),
        "'north.crt' is not valid before .*this machine's clock says .* set the clock",
        _NOT_HERE,
    ),
    Fault(
        "the coordinator's clock is years ahead",
        other_clock("coordinator", 4000),
        "away.*: nobody listens there",
        "'coordinator.crt' has expired on .*this machine's clock says .* set the clock",
    ),
    Fault(
        "the coordinator's clock is months behind",
        other_clock("coordinator", -100),
        "away.*: nobody listens there",
        "'coordinator.crt' is not valid before .*this machine's clock says .* set the clock",
    ),
    Fault(
        "the coordinator's certificate is in the hands of a program that sends garbage",
        garbage,
        "unreadable: .* brought no message that this owner can use",
        _NOT_HERE,
    ),
    Fault(
        "a second coordinator has the log",
        two_coordinators,
        "",
        "The log 'run.dpx' is in use by another coordinator",
    ),
    Fault(
        "the owner's file system takes no locks",
        patched(LOCKLESS, "south", "west"),
        "'spent.jsonl.trial' cannot be locked: no locks available. Its file system takes no locks",
        _NOT_HERE,
    ),
    Fault(
        "a second process has the owner's name",
        twice,
        "taken: Another process of this name",
        "turned away .taken.: another process",
    ),
    Fault(
        "another version",
        patched(OLDER),
        "version: .* the coordinator uses another one",
        "turned away .version.: it uses dpcvx/0.0.1 dpx0",
    ),
    Fault(
        "a frame is too large",
        patched(SMALLER, "south", "west"),
        "large: .* this side takes no frame of that size",
        "north: the other side takes no frame of that size",
    ),
    Fault(
        "the owner's disk is full at the start",
        full("north", True),
        "'spent.jsonl.trial' cannot be written: no space left on device. Free space",
        _NOT_HERE,
    ),
    Fault(
        "the owner's disk is full in a run",
        full("north"),
        "'spent.jsonl.*no space left on device",
        "Agent 'north' takes no part .(storage|ledger).",
    ),
    Fault(
        "the coordinator's disk is full at the start",
        full("coordinator", True),
        "nobody listens there",
        "storage: .*'run.dpx' cannot be written: no space left on device. Free space",
    ),
    Fault(
        "the coordinator's disk is full in a run",
        full("coordinator"),
        "ended: .*its reason: storage",
        "storage: .*'run.dpx' cannot be written: no space left on device. Free space",
    ),
    Fault(
        "the owner's folder is read-only at the start",
        locked("north", True),
        "own.npz' is in a folder that you cannot write. Name a file in another folder",
        _NOT_HERE,
    ),
    Fault(
        "the owner's folder is read-only in a run",
        locked("north"),
        "storage: .*'spent.jsonl.audit' cannot be used: read-only file system. Make",
        "Agent 'north' takes no part .storage.",
    ),
    Fault(
        "the coordinator's folder is read-only at the start",
        locked("coordinator", True),
        "nobody listens there",
        "'run.dpx' cannot be opened: read-only file system. Make",
    ),
    Fault("the coordinator's folder is read-only in a run", locked("coordinator"), "", ""),
)
FULL = len(FAULTS)


def trial(k):
    """Inject a fault; what both sides say, and what is wrong, as one row."""
    fault, found = FAULTS[k], []
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder), f"n{k}")
        try:
            codes = fault.inject(study)
            said = {name: study.said(name) for name in ("north", "coordinator")}
            first = codes.pop("first", {})
            ends = (
                "went on by itself" if not any(first.values()) or "second" in first else "stopped"
            )
            if ends == "stopped" and codes:
                ends = "went on with the same commands"
            for name, pattern in (("north", fault.owner), ("coordinator", fault.coordinator)):
                if pattern and not line_of(said[name], pattern):
                    found.append(f"{name} does not say {pattern!r}")
            for name in PARTIES:
                if "Traceback" in study.said(name):
                    found.append(f"{name} prints a traceback")
            if any(codes.values()):
                found.append(f"ended with {codes}")
            elif codes:
                found += differences(
                    study.place, study.out, expected(plan_of(study.place)), _ROUNDS
                )
        except Exception as error:  # one row of many
            said = {name: study.said(name) for name in ("north", "coordinator")}
            found, ends = [f"{type(error).__name__}: {error}"], "stopped"
        finally:
            study.close()
    return {"k": k, "said": said, "found": found, "ends": ends}


def forbidden():
    """Why namespaces cannot be had here; nothing if they can."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "no commands unshare and ip"
    done = subprocess.run([*_OWN, "sh", "-c", _ALLOWED], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"the kernel says: {done.stderr.strip()[-100:]}"


def rows(which):
    """Rows of the faults with these numbers, from a program in namespaces of its own."""
    begin = "import sys; from tests.campaigns.namespaces import inside; inside(sys.argv[1:])"
    inner = [sys.executable, "-c", begin, *map(str, which)]
    with subprocess.Popen([*_OWN, *inner], cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        yield from map(json.loads, program.stdout)


def campaign(size, seed):
    """So many faults, from that of the seed on."""
    tally, why = Tally(), forbidden()
    if why:
        tally.note(f"not tried, for {why}")
        return tally
    for row in rows([(seed + k) % FULL for k in range(min(size, FULL))]):
        fault = FAULTS[row["k"]]
        wrong = "; ".join(row["found"])
        tally.add(row["ends"], f"{fault.says}: {wrong}" if wrong else None)
    return tally


def line_of(said, pattern):
    """The line that a pattern is in."""
    return next((line for line in said.splitlines() if pattern and re.search(pattern, line)), "")


def inside(which):
    """Inject faults in the namespaces of this process, and print a row of each."""
    shell("mount -t tmpfs none /run; mkdir /run/netns")
    with ThreadPoolExecutor(_BESIDE) as pool:
        for row in pool.map(trial, map(int, which)):
            print(json.dumps(row), flush=True)


def main(arguments):
    """Print the table."""
    print("| fault | the owner | the coordinator | the run |\n|---|---|---|---|")
    for row in rows(map(int, arguments) if arguments else range(FULL)):
        fault, said = FAULTS[row["k"]], row["said"]
        owner = line_of(said["north"], fault.owner)
        coordinator = line_of(said["coordinator"], fault.coordinator)
        ends = "; ".join([row["ends"], *row["found"]])
        print(f"| {fault.says} | {owner} | {coordinator} | {ends} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
