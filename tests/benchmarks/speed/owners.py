"""What runs between owners cost beside the method: a start, a round, and a coordinator's message.

Owners' ends of connections are in another process, of this module's command.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

import dpcvx as dp
from dpcvx.algorithms.consensus import Broadcast, LocalCopy
from dpcvx.owners import wire
from dpcvx.owners.coordinator import Gone, Late, Remote
from dpcvx.owners.files import CoordinatorLog
from dpcvx.owners.keys import COORDINATOR, PartyIdentity, make_authority, make_request, sign_request
from dpcvx.owners.link import SocketHub, dial
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import AgentReply, Call, Exchange, Hello
from dpcvx.owners.offers import require_reply
from dpcvx.owners.session import Session
from dpcvx.solvers.conic import Outcome

from ...owners.federation import command, free_port, write
from .instances import METHOD, network
from .measure import Effort, Row, shown

# An owner that was killed is to be back within three seconds of its start: with this much of the
# processor's time it is, wherever it has half a core.
_START = 1.5
_ROUND = 2e3
_MESSAGE = 120.0
_SHARED = 30
_ASKED = Broadcast(np.linspace(0.0, 1.0, _SHARED), 2.0)


class _Clocked:
    """A hub of sessions in this process that keeps the processor's time of their calls."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self.seconds: list[float] = []

    def exchange(
        self, frames: Mapping[str, bytes], late: Late | None = None
    ) -> dict[str, bytes | Gone]:
        started = time.process_time()
        found: dict[str, bytes | Gone] = {
            name: self._sessions[name].handle(frame) for name, frame in frames.items()
        }
        self.seconds.append((time.process_time() - started) / len(frames))
        return found

    def gather(self, some: bool = False) -> Sequence[str]:
        return [*self._sessions]

    def again(self, name: str) -> None:
        raise Gone(name)

    def part(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Gone]:
        return {name: self._sessions[name].handle(frame) for name, frame in frames.items()}

    def close(self, farewell: bytes = b"") -> None:
        for session in self._sessions.values():
            session.close()


def owner_start(effort: Effort) -> list[Row]:
    """From the start of an owner's process to its first frame at the coordinator."""
    work: list[float] = []
    wall: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        place = write(Path(folder))
        own = PartyIdentity.of(place / "coordinator" / "keys", COORDINATOR)
        for _ in range(effort.repeats):
            port, before, began = free_port(), _of_children(), time.perf_counter()
            address = f"wss://127.0.0.1:{port}"
            with command("owner", "join", place / "north/owner.toml", "--connect", address) as one:
                try:
                    hub = SocketHub(["north"], "127.0.0.1", port, own, 60.0, lambda _: None)
                    hub.gather()
                    wall.append(time.perf_counter() - began)
                finally:
                    one.kill()
                one.communicate()
            hub.close()
            work.append(_of_children() - before)
    note = f"{shown(min(wall))} of the wall at best, {shown(float(np.median(wall)))} as a rule"
    return [Row("owner's start", "", "to its first frame", min(work), _START, "s", note)]


def _of_children() -> float:
    """Seconds of the processor of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def owner_round(effort: Effort) -> list[Row]:
    """A round of an owner next to the same step in one process without a ledger."""
    rounds = 10 if effort.quick else 40
    plan = network(14, None).plan(
        METHOD, mechanism=dp.Gaussian(), rounds=rounds, release="each_step", epsilon=1.0, delta=1e-6
    )
    ours: list[float] = []
    step: list[float] = []
    for _ in range(min(effort.repeats, 3)):
        with tempfile.TemporaryDirectory() as folder:
            policies = policies_of(plan, Path(folder))
            hub = _Clocked({one.agent: Session(one, seed=1) for one in policies})
            executor = Remote(lambda _, hub=hub: hub, lambda: CoordinatorLog(None), lambda: "a run")
            plan.run(executor=executor, verbose=False)
            ours += hub.seconds[1:-1]
        clocked = _Serial()
        plan.run(seed=1, verbose=False, executor=clocked)
        step += clocked.seconds
    beyond = 1e6 * (np.median(ours) - np.median(step))
    link = 1e6 * _link_seconds(200 if effort.quick else 1000)
    size = f"case 14, {_SHARED} numbers over TLS"
    parts = shown(1e-6 * beyond), shown(1e-6 * link)
    note = f"{parts[0]} for checks, frames and ledger, {parts[1]} for the link"
    return [Row("owner's round", "step and fsync", size, float(beyond + link), _ROUND, "us", note)]


class _Serial(dp.Serial):
    """One process, with the processor's time of an agent's turn."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def map(self, method: str, *common: Any, each: Any = None) -> list[Any]:
        started = time.process_time()
        found = super().map(method, *common, each=each)
        if method == "act":
            self.seconds.append((time.process_time() - started) / len(found))
        return found


def coordinator_message(effort: Effort) -> list[Row]:
    """What a coordinator spends on an owner's message: to frames, checked, and in the log."""
    count, turns = (100, 5) if effort.quick else (1000, 10)
    with tempfile.TemporaryDirectory() as folder:
        names = [f"owner{k}" for k in range(count)]
        with _hub("all", Path(folder), names) as (hub, _):
            seconds = _message_seconds(hub, names, turns, Path(folder) / "run.dpx")
    size = f"{count} owners, {_SHARED} numbers"
    return [Row("coordinator's message", "nothing", size, 1e6 * seconds, _MESSAGE, "us")]


def _link_seconds(turns: int) -> float:
    """Of an owner's processor, for a frame that comes and one that goes."""
    frame = wire.encode(Call("a run", 1, 0, _ASKED))
    with tempfile.TemporaryDirectory() as folder:
        with _hub("one", Path(folder), ["owner0"]) as (hub, said):
            for _ in range(turns):
                hub.exchange({"owner0": frame})
    return float(said[0])


@contextmanager
def _hub(role: str, folder: Path, names: Sequence[str]) -> Iterator[tuple[SocketHub, list[str]]]:
    """A coordinator's end, and what the process with the other ends says once it is over."""
    make_authority(folder)
    for name in (COORDINATOR, *names):
        sign_request(folder, make_request(folder, name))
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    said: list[str] = []
    arguments = [sys.executable, "-m", __name__, role, str(folder), str(port), str(len(names))]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
        try:
            own = PartyIdentity.of(folder, COORDINATOR)
            hub = SocketHub(names, "127.0.0.1", port, own, 300.0, lambda _: None)
            try:
                hub.gather()
                yield hub, said
            finally:
                hub.close()
            said.append(child.communicate(timeout=120)[0])
        except BaseException:
            child.kill()
            raise


def _message_seconds(hub: SocketHub, names: list[str], turns: int, path: Path) -> float:
    local = network(14, None).plan(METHOD, mechanism=None, rounds=1).program.agents[0]
    found: list[float] = []
    with CoordinatorLog(path) as log:
        for turn in range(1, turns + 1):
            started = time.process_time()
            calls = {name: wire.encode(Call("a run", turn, 0, _ASKED)) for name in names}
            frames = hub.exchange(calls)
            said = {n: wire.decode(f) for n, f in frames.items() if isinstance(f, bytes)}
            assert len(said) == len(names)
            for reply in said.values():
                require_reply(reply, _ASKED, METHOD, local)
            log.add(Exchange(turn, 0, tuple(said.items())))
            found.append((time.process_time() - started) / len(names))
    return float(np.median(found))


def _replied() -> bytes:
    copy = LocalCopy(_ASKED.w, _ASKED.w)
    return wire.encode(AgentReply("a run", 1, 0, copy, Outcome.SOLVED, False))


def _one(folder: Path, address: str) -> float:
    """An owner's link, with answers that are ready; its processor's seconds per frame."""
    times: list[float] = []

    def handle(frame: bytes) -> bytes:
        times.append(time.process_time())
        return reply

    reply, own = _replied(), PartyIdentity.of(folder, "owner0")
    hello = wire.encode(Hello("owner0"))
    try:
        dial(address, own, "", lambda: hello, handle, lambda: False,
             timeout=1.0, tell=lambda _: None)  # fmt: skip
    except dp.RefusedError:  # the other end is over
        pass
    return (times[-1] - times[0]) / (len(times) - 1)


async def _all(folder: Path, address: str, count: int) -> None:
    reply = _replied()

    async def owner(name: str) -> None:
        context = PartyIdentity.of(folder, name).context(server=False)
        async with connect(address, ssl=context, compression=None, open_timeout=120) as link:
            await link.send(wire.encode(Hello(name)))
            async for _ in link:
                await link.send(reply)

    await asyncio.gather(*(owner(f"owner{k}") for k in range(count)))


if __name__ == "__main__":
    _role, _folder, _port, _count = sys.argv[1:]
    _address = f"wss://127.0.0.1:{_port}"
    if _role == "one":
        print(_one(Path(_folder), _address))
    else:
        asyncio.run(_all(Path(_folder), _address, int(_count)))
