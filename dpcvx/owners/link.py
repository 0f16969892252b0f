"""Frames between owners and a coordinator, over WebSockets with certificates on both sides.

Owners dial out. The only module that opens sockets; it sees frames, and the names on certificates.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidURI, WebSocketException
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect
from websockets.uri import parse_uri

from .._arguments import show
from .._words import together
from ..errors import ModelError, RefusedError
from . import wire
from .coordinator import GLANCE, Gone, Late
from .keys import COORDINATOR, PartyIdentity, of_der, peer_name, unvouched
from .messages import Hello, refused

# Seconds between two attempts to reach a coordinator, and for a party to say who it is.
_AGAIN = 0.3
_GREETING = 10.0
# With this code of the protocol a coordinator turns away whom it does not know.
_STRANGER = 1008
# Seconds that farewells may take without a word.
_FAREWELL = 1.0
# Seconds between two looks at who is back, for a farewell.
_BACK = 0.05
# Why no connection came about, in other words than those of sockets.
_WHY = {
    "gaierror": "this machine knows no other of that name",
    "ConnectionRefusedError": "nobody listens there",
    "TimeoutError": "nothing answers there",
}
# Frames are their own compression, and compressed lengths tell of what is in them.
_PLAIN = {"compression": None, "max_size": wire.LARGEST, "close_timeout": _FAREWELL}


class SocketHub:
    """A coordinator's end: owners dial in, and are known by their certificates.

    Parameters
    ----------
    names : sequence of str
        Of the agents that are waited for.
    host, port : str, int
    identity : PartyIdentity
        The coordinator's.
    timeout : float
        Seconds to wait for an owner to come, to answer, and to come back.
    tell : callable
        Is told, in a line each, who came and who left.

    Raises
    ------
    ModelError
        If this machine has no such place to listen.
    """

    def __init__(
        self,
        names: Sequence[str],
        host: str,
        port: int,
        identity: PartyIdentity,
        timeout: float,
        tell: Callable[[str], None],
    ) -> None:
        self._names, self._patience, self._tell = tuple(names), timeout, tell
        self._live: dict[str, ServerConnection] = {}
        # Of owners that were waited for: one that came back unnoticed may know nothing of the run.
        self._met: dict[str, ServerConnection] = {}
        self._changed = threading.Condition()
        self._fault: OSError | None = None
        self._loop = asyncio.new_event_loop()
        self._over, self._parting = asyncio.Event(), False
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, args=(host, port, identity, started), name="hub", daemon=True
        )
        self._thread.start()
        started.wait()
        if self._fault is not None:
            self._thread.join()
            raise ModelError(
                f"dp.RemoteOwners cannot listen on {host}:{port}: {self._fault.strerror}. Name a "
                "free port of this machine."
            )
        self._place = f"{host}:{port}"

    def gather(self) -> None:
        """See `Hub.gather`."""
        names = together(self._names)
        self._tell(f"listening on {self._place}; waiting up to {self._patience:g} s for {names}")
        for name in self._names:
            self._await(name, "did not come")

    def exchange(
        self, frames: Mapping[str, bytes], late: Late | None = None
    ) -> dict[str, bytes | Gone]:
        """See `Hub.exchange`; all are asked at the same time."""

        async def all_of_them() -> list[bytes | Gone]:
            calls = {n: asyncio.create_task(self._one(n, f)) for n, f in frames.items()}
            due, until = {*calls.values()}, self._loop.time() + self._patience
            # One clock for all of them.
            while due and (left := until - self._loop.time()) > 0:
                _, due = await asyncio.wait(due, timeout=min(left, GLANCE) if late else left)
                if late and due:
                    done = {n: call.result() for n, call in calls.items() if call not in due}
                    late({n: said for n, said in done.items() if isinstance(said, bytes)})
            for name, call in calls.items():
                if call.cancel():
                    self._tell(f"{name} is here, and gave no answer for {self._patience:g} s")
            return await asyncio.gather(*calls.values())

        found = asyncio.run_coroutine_threadsafe(all_of_them(), self._loop).result()
        return dict(zip(frames, found, strict=True))

    def again(self, name: str) -> None:
        """Wait for an owner that left to come back.

        Raises
        ------
        RefusedError
            If it does not.
        """
        self._tell(f"waiting up to {self._patience:g} s for {name} to come back")
        self._await(name, "did not come back")

    def part(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Gone]:
        """See `Hub.part`."""
        seconds, self._parting = min(seconds, self._patience), True

        async def all_of_them() -> list[bytes | Gone]:
            until = self._loop.time() + seconds
            calls = {n: asyncio.create_task(self._last(n, f, until)) for n, f in frames.items()}
            await asyncio.wait(calls.values(), timeout=_FAREWELL)
            late = [name for name, call in calls.items() if not call.done()]
            if late:
                who = together(late)
                self._tell(f"waiting up to {seconds:g} s for {who} to hear that the run is over")
            return await asyncio.gather(*calls.values())

        found = asyncio.run_coroutine_threadsafe(all_of_them(), self._loop).result()
        return dict(zip(frames, found, strict=True))

    def close(self, farewell: bytes = b"") -> None:
        """Let all owners go, with a last frame, if there is one, that nobody answers."""

        async def part() -> None:
            if farewell:
                sent = [asyncio.create_task(one.send(farewell)) for one in self._live.values()]
                with suppress(TimeoutError):
                    async with asyncio.timeout(_FAREWELL):
                        await asyncio.gather(*sent, return_exceptions=True)
            self._over.set()

        asyncio.run_coroutine_threadsafe(part(), self._loop).result()
        self._thread.join()

    def _await(self, name: str, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._live, self._patience):
                raise refused("away", f"agent '{name}' {what} within {self._patience:g} s")
            self._met[name] = self._live[name]

    async def _one(self, name: str, frame: bytes) -> bytes | Gone:
        socket = self._live.get(name)
        if socket is None or socket is not self._met.get(name):
            return Gone(name)
        return await self._asked(name, socket, frame)

    async def _last(self, name: str, frame: bytes, until: float) -> bytes | Gone:
        """Return an owner's answer to a frame that needs no repeated calls, if it comes in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self._loop.time() < until:
                    socket = self._live.get(name)
                    said = None if socket is None else await self._asked(name, socket, frame)
                    if isinstance(said, bytes):
                        return said
                    await asyncio.sleep(_BACK)
        return Gone(name)

    async def _asked(self, name: str, socket: ServerConnection, frame: bytes) -> bytes | Gone:
        try:
            await socket.send(frame)
            said = await socket.recv()
        except (WebSocketException, OSError, asyncio.CancelledError):
            # An answer that comes later must not be taken for that to another call. A process that
            # was stopped answers no farewell.
            socket.transport.abort()
            self._dropped(name, socket)
            return Gone(name)
        return said if isinstance(said, bytes) else b""

    def _serve(
        self, host: str, port: int, identity: PartyIdentity, started: threading.Event
    ) -> None:
        async def main() -> None:
            try:
                server = await serve(
                    self._greeted, host, port, ssl=identity.context(server=True), **_PLAIN
                )
            except OSError as error:
                self._fault = error
                return
            finally:
                started.set()
            async with server:
                await self._over.wait()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(main())

    async def _greeted(self, socket: ServerConnection) -> None:
        """Serve one connection, as long as it lasts."""
        name = peer_name(socket.transport.get_extra_info("peercert"))
        try:
            async with asyncio.timeout(_GREETING):
                said = await socket.recv()
            hello = wire.decode(said if isinstance(said, bytes) else b"")
        except (WebSocketException, OSError, TimeoutError, RefusedError):
            return
        if not isinstance(hello, Hello) or hello.agent != name or name not in self._names:
            self._tell(f"a stranger with the certificate of {name!r} was turned away")
            await socket.close(_STRANGER, "stranger")
            return
        with self._changed:
            before, self._live[name] = self._live.get(name), socket
            self._changed.notify_all()
        if before is not None:
            await before.close()
        self._tell(f"{name} is here")
        await socket.wait_closed()
        self._dropped(name, socket)

    def _dropped(self, name: str, socket: ServerConnection) -> None:
        with self._changed:
            lost = self._live.get(name) is socket
            if lost:
                del self._live[name]
        if lost and not self._parting and not self._over.is_set():
            self._tell(f"{name} left")


def dial(
    address: str,
    identity: PartyIdentity,
    pinned: str,
    hello: Callable[[], bytes],
    handle: Callable[[bytes], bytes],
    over: Callable[[], bool],
    *,
    timeout: float,
    tell: Callable[[str], None],
) -> None:
    """Answer frames at an owner until the run is over; reconnect after losses.

    Parameters
    ----------
    address : str
        Such as ``wss://coordinator.example:8443``.
    identity : PartyIdentity
        The owner's.
    pinned : str
        Fingerprint of the coordinator's certificate; empty for any of its name.
    hello, handle, over : callable
        The first frame, the answer to a frame, and whether no more are due: the connection ends
        with the last answer.
    timeout : float
        Seconds to try to reach the coordinator.
    tell : callable
        Is told, in a line each, what happens.

    Raises
    ------
    ModelError
        If the address is none.
    RefusedError
        If the coordinator is a stranger, or cannot be reached in time.
    """
    _check_address(address)
    context, deadline = identity.context(server=False), time.monotonic() + timeout
    whom = f"no coordinator at {address}"
    while not over():
        why, here = "", False
        try:
            with connect(address, ssl=context, **_PLAIN) as socket:
                _check(socket.socket, pinned)
                tell(f"connected to {address}")
                here, whom = True, "the coordinator left"
                socket.send(hello())
                with _noticed(socket, tell) as busy:
                    for frame in socket:
                        busy.set()
                        answer = handle(frame if isinstance(frame, bytes) else b"")
                        busy.clear()
                        with suppress(ConnectionClosed):  # what was said before is heard still
                            socket.send(answer)
                        deadline = time.monotonic() + timeout
                        if over():
                            break
        except (OSError, WebSocketException, TimeoutError) as error:
            if isinstance(error, ConnectionClosed) and error.rcvd and error.rcvd.code == _STRANGER:
                raise refused("name", "the coordinator's run has no such agent") from None
            against = unvouched(error)
            if against:  # looking on would not mend it
                raise refused(
                    "stranger",
                    f"somebody answers at {address}, and ca.crt in your folder of keys does not "
                    f"vouch for the certificate: {against}. Look whether the address is right, and "
                    "whether ca.crt is that of the authority that signed for the coordinator",
                ) from None
            why = "" if here else _WHY.get(type(error).__name__, type(error).__name__)
        if over():
            return
        if here:  # whoever is kept waiting for others has not lost the coordinator
            deadline = max(deadline, time.monotonic() + timeout)
        if whom:  # once, not with every attempt
            looking = f"looking for it for up to {timeout:g} s"
            tell(f"{whom}: {why}; {looking}" if why else f"{whom}; {looking}")
        whom = ""
        if time.monotonic() > deadline:
            last = f": {why}" if why else ""
            raise refused("away", f"no coordinator at {address} for {timeout:g} s{last}")
        time.sleep(_AGAIN)


@contextmanager
def _noticed(socket: ClientConnection, tell: Callable[[str], None]) -> Iterator[threading.Event]:
    """Tell a person prompted here if the coordinator disconnects in the meantime."""
    busy, done = threading.Event(), threading.Event()

    def watch() -> None:
        while not done.wait(GLANCE):
            if busy.is_set() and socket.protocol.state is State.CLOSED:
                tell("the coordinator left; once this is answered, it is looked for")
                return

    watching = threading.Thread(target=watch, name="watch", daemon=True)
    watching.start()
    try:
        yield busy
    finally:
        done.set()
        watching.join()


def _check_address(address: str) -> None:
    try:
        secure = parse_uri(address).secure
    except (InvalidURI, ValueError):
        secure = False
    if not secure:
        raise ModelError(
            f"The address {show(address)} is none of a coordinator. Write wss://, its machine and "
            'its port, such as "wss://coordinator.example:8443".'
        )


def _check(socket: Any, pinned: str) -> None:
    """Refuse whoever is not the coordinator: an agent's certificate does not do."""
    name = peer_name(socket.getpeercert())
    if name != COORDINATOR:
        raise refused("stranger", f"that of the coordinator is due, and {name!r} answers")
    if pinned and of_der(socket.getpeercert(binary_form=True)) != pinned:
        raise refused(
            "stranger",
            "the coordinator's is not the one that coordinator = names in owner.toml. If the "
            "coordinator has a new one, ask there for what this prints, and write that: dpcvx keys "
            "fingerprint coordinator.crt",
        )
