"""Frames between owners and a coordinator, over WebSockets with certificates on both sides.

Owners dial out. The only module that opens sockets; it sees frames, and the names on certificates.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidURI, WebSocketException
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect
from websockets.uri import parse_uri

from .._arguments import show
from .._events import event
from .._words import together
from ..errors import ModelError, RefusedError
from . import wire
from .coordinator import GLANCE, Gone, Late
from .faults import BROKE, TURNED_AWAY, Fault, fault_of, proxy_of
from .keys import COORDINATOR, PartyIdentity, of_der, peer_name
from .messages import REASONS, Hello, Refusal, refused

# Seconds between two attempts to reach a coordinator, at first and at most, and for a party to say
# who it is.
_AGAIN, _RARELY = 0.3, 5.0
_GREETING = 10.0
# Connections in a row that the coordinator ends without a message, until an owner gives up.
_RETURNS = 8
# Seconds in which a connection that is alive answers a ping.
_ALIVE = 5.0
# Seconds that farewells may take without a word.
_FAREWELL = 1.0
# Seconds between two looks at who is back, for a farewell.
_BACK = 0.05
# Seconds by which clocks may differ.
_CLOCKS = 300.0
# What errors the library met is said by `fault_of`; its own log would have tracebacks, and frames.
_SILENT = logging.Logger("websockets of dpcvx")
_SILENT.disabled = True
# Frames are their own compression, and compressed lengths tell of what is in them.
_PLAIN = {
    "compression": None,
    "max_size": wire.LARGEST,
    "close_timeout": _FAREWELL,
    "logger": _SILENT,
}
# How either side names itself in the opening of a connection, before any frame.
NAMED = f"dpcvx/{version('dpcvx')} {wire.MAGIC.decode()}"


class SocketHub:
    """A coordinator's end: owners dial in, and are known by their certificates.

    Parameters
    ----------
    names : sequence of str
        Names of the agents to wait for.
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
        self._port = port
        self._line = ""
        self._context = identity.watched(self._tell_once)
        self._loop = asyncio.new_event_loop()
        self._over, self._parting = asyncio.Event(), False
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, args=(host, port, started), name="hub", daemon=True
        )
        self._thread.start()
        started.wait()
        if self._fault is not None:
            self._thread.join()
            raise ModelError(
                f"The coordinator cannot listen on {place(host, port)}: {_why(self._fault)}. Name "
                'an address and a free port of this machine, such as "0.0.0.0:8443" or '
                '"[::]:8443".'
            )
        self._place = place(host, self._port)

    def gather(self, some: bool = False) -> Sequence[str]:
        """See `Hub.gather`; of some, all have the same time to come."""
        names = together(self._names)
        event("listening", {"address": self._place, "agents": names})
        self._tell(f"listening on {self._place}; waiting up to {self._patience:g} s for {names}")
        deadline, here = time.monotonic() + self._patience, []
        for name in self._names:
            try:
                left = max(deadline - time.monotonic(), 0.0) if some else self._patience
                self._await(name, "did not come", left)
            except RefusedError:
                if not some:
                    raise
            else:
                here.append(name)
        return here

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

        answers = asyncio.run_coroutine_threadsafe(all_of_them(), self._loop).result()
        return dict(zip(frames, answers, strict=True))

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

        answers = asyncio.run_coroutine_threadsafe(all_of_them(), self._loop).result()
        return dict(zip(frames, answers, strict=True))

    def close(self, farewell: bytes = b"") -> None:
        """Let all owners go, with a last frame, if there is one, that nobody answers."""

        async def part() -> None:
            if farewell:
                sent = [
                    asyncio.create_task(connection.send(farewell))
                    for connection in self._live.values()
                ]
                with suppress(TimeoutError):
                    async with asyncio.timeout(_FAREWELL):
                        await asyncio.gather(*sent, return_exceptions=True)
            self._over.set()

        asyncio.run_coroutine_threadsafe(part(), self._loop).result()
        self._thread.join()
        # Sockets hold their context unseen by the garbage collector, and it holds `_tell_once`: a
        # hub that held its sockets would stay in memory after every run.
        self._live.clear()
        self._met.clear()

    def _await(self, name: str, what: str, seconds: float | None = None) -> None:
        seconds = self._patience if seconds is None else seconds
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._live, seconds):
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
        except (WebSocketException, OSError, asyncio.CancelledError) as error:
            fault = fault_of(error)
            if fault.code == "large":  # again would be too large again: the run ends
                self._tell(f"{name}: {fault.said}")
                return wire.encode(Refusal("large"))
            # An answer that comes later must not be taken for that to another call. A process that
            # was stopped answers no farewell.
            socket.transport.abort()
            given_up = isinstance(error, asyncio.CancelledError)  # this side waited long enough
            self._dropped(name, socket, "" if given_up else fault.said)
            return Gone(name)
        return said if isinstance(said, bytes) else b""

    def _serve(self, host: str, port: int, started: threading.Event) -> None:
        async def main() -> None:
            try:
                server = await serve(
                    self._greeted, host, port, ssl=self._context, server_header=NAMED, **_PLAIN
                )
                self._port = next(iter(server.sockets)).getsockname()[1]  # where 0 was written
            except OSError as error:
                self._fault = error
                return
            finally:
                started.set()
            async with server:
                await self._over.wait()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(main())

    def _tell_once(self, line: str) -> None:
        """Tell a line, but not again before another one: who is turned away may dial again."""
        if line != self._line:
            self._tell(line)
        self._line = line

    async def _greeted(self, socket: ServerConnection) -> None:
        """Serve one connection, as long as it lasts."""
        name = peer_name(socket.transport.get_extra_info("peercert"))
        named = "" if socket.request is None else socket.request.headers.get("User-Agent", "")
        try:
            async with asyncio.timeout(_GREETING):
                said = await socket.recv()
            hello, code = wire.decode(said if isinstance(said, bytes) else b""), "name"
        except RefusedError as error:
            hello, code = None, error.code
        except TimeoutError:
            hello, code = None, "away"
        except (WebSocketException, OSError) as error:
            self._tell(f"{name} left before it said hello: {_why(error)}")
            return
        if not isinstance(hello, Hello) or hello.agent != name or name not in self._names:
            await self._turned_away(socket, name, code, named)
            return
        before = self._live.get(name)
        if before is not None and await _alive(before):
            await self._turned_away(socket, name, "taken", named)
            return
        with self._changed:
            before, self._live[name] = self._live.get(name), socket
            self._changed.notify_all()
        if before is not None:
            await before.close(TURNED_AWAY, "taken")
        event("came", {"agent": name, "version": _short(named)})
        self._tell(f"{name} is here")
        if named != NAMED:
            self._tell(f"{name} uses {_short(named)}, and this side {NAMED}: install the same")
        await socket.wait_closed()
        self._dropped(name, socket, fault_of(socket.protocol.close_exc).said)

    async def _turned_away(
        self, socket: ServerConnection, name: str, code: str, named: str
    ) -> None:
        """Close a connection with a reason, which both sides read."""
        why = {
            "name": "a stranger to this run: no agent of that name",
            "version": f"it uses {_short(named)}, and this side {NAMED}",
            "taken": "another process of that name is connected, and answers",
            "away": f"it did not say hello within {_GREETING:g} s",
        }.get(code, REASONS[code])
        event("turned away", {"agent": name, "code": code})
        self._tell_once(f"whoever has the certificate of {name!r} was turned away ({code}): {why}")
        await socket.close(TURNED_AWAY, code)

    def _dropped(self, name: str, socket: ServerConnection, why: str) -> None:
        with self._changed:
            lost = self._live.get(name) is socket
            if lost:
                del self._live[name]
        if lost and not self._parting and not self._over.is_set():
            event("left", {"agent": name})
            self._tell(f"{name} left" if why in ("", BROKE) else f"{name} left: {why}")


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
    met: Callable[[str, str, str], None] = lambda address, coordinator, uses: None,
) -> None:
    """Connect an owner, answer its coordinator until the run ends, and reconnect dropped links.

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
    met : callable
        Is told the address, the coordinator's fingerprint and its version, of each connection.

    Raises
    ------
    ModelError
        If the address is none.
    RefusedError
        If the coordinator is a stranger, or cannot be reached in time.
    """
    require_address(address)
    where = parse_uri(address)
    context, deadline = identity.context(server=False), time.monotonic() + timeout
    proxy = proxy_of(where.host, where.port)
    through = f", through the proxy {proxy} that the environment names" if proxy else ""
    whom, told = f"no coordinator at {address}{through}", ""
    returns, pause = 0, _AGAIN
    while not over():
        fault, here, heard = None, False, False
        try:
            with connect(address, ssl=context, user_agent_header=NAMED, **_PLAIN) as socket:
                _check(socket.socket, pinned)
                tell(f"connected to {address}{through}")
                uses = _compare(socket, tell)
                met(address, of_der(socket.socket.getpeercert(binary_form=True)), uses)
                here, whom, pause = True, "the coordinator left", _AGAIN
                socket.send(hello())
                with _noticed(socket, tell) as busy:
                    for frame in socket:
                        busy.set()
                        answer = handle(frame if isinstance(frame, bytes) else b"")
                        busy.clear()
                        heard = True
                        with suppress(ConnectionClosed):  # what was said before is heard still
                            socket.send(answer)
                        deadline = time.monotonic() + timeout
                        if over():
                            break
        except (OSError, EOFError, ImportError, WebSocketException) as error:
            fault = fault_of(error)
            if fault.lasting:
                raise refused(fault.code, _lasting(fault, address)) from None
        if over():
            return
        returns = returns + 1 if here and not heard else 0
        if here:  # whoever is kept waiting for others has not lost the coordinator
            deadline = max(deadline, time.monotonic() + timeout)
        why = "" if fault is None else fault.said
        if (whom, why) != told:  # once, not with every attempt
            event("disconnected", {"agent": identity.name, "address": address})
            looking = f"looking for it for up to {timeout:g} s"
            tell(f"{whom}: {why}; {looking}" if why else f"{whom}; {looking}")
        told, last = (whom, why), f": {why}" if why else ""
        if returns >= _RETURNS:
            raise refused(
                "away",
                f"the coordinator at {address} took {returns} connections in a row and ended each "
                f"without a message{last}. Its own lines say why",
            )
        if time.monotonic() > deadline:
            raise refused("away", f"no coordinator at {address} for {timeout:g} s{last}")
        time.sleep(pause)
        pause = min(2 * pause, _RARELY) if returns else _AGAIN


def _lasting(fault: Fault, address: str) -> str:
    """Return the detail of a refusal, with what to do where the other end is the cause."""
    details = {
        "name": "the coordinator's run has no such agent",
        "taken": "the coordinator has another connection with this certificate, and it answers: "
        "end the other process, or wait until it is done",
        "version": f"the coordinator uses another one than {NAMED}; its own line says which",
    }
    said = fault.said or details.get(fault.code, "the coordinator says so, and its own line more")
    return f"at {address}: {said}"


def _compare(socket: ClientConnection, tell: Callable[[str], None]) -> str:
    """Tell each difference of the coordinator, and return how it names its version."""
    headers = {} if socket.response is None else socket.response.headers
    named, date = headers.get("Server", ""), headers.get("Date", "")
    if named != NAMED:
        tell(f"the coordinator uses {_short(named)}, and this side {NAMED}: install the same")
    with suppress(ValueError, TypeError):
        apart = parsedate_to_datetime(date).timestamp() - time.time()
        if abs(apart) > _CLOCKS:
            side = "behind" if apart > 0 else "ahead of"
            tell(f"this machine's clock is {_span(abs(apart))} {side} the coordinator's")
    return _short(named)


def _span(seconds: float) -> str:
    """Return a time in the largest unit that it has twice."""
    for unit, size in (("days", 86400), ("hours", 3600)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 60:.0f} minutes"


async def _alive(socket: ServerConnection) -> bool:
    """Return whether the other end of a connection answers."""
    with suppress(WebSocketException, OSError, TimeoutError):
        async with asyncio.timeout(_ALIVE):
            await (await socket.ping())
            return True
    return False


def place(host: str, port: int) -> str:
    """Return host and port as an address has them: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _short(named: str) -> str:
    """Return how another side names itself, for a line: printable, and not long."""
    return "".join(c for c in named if c.isprintable())[:60] or "an unnamed program"


def _why(error: BaseException) -> str:
    return fault_of(error).said or "it closed the connection"


@contextmanager
def _noticed(socket: ClientConnection, tell: Callable[[str], None]) -> Iterator[threading.Event]:
    """Tell a person prompted here if the coordinator disconnects in the meantime."""
    busy, done = threading.Event(), threading.Event()

    def watch() -> None:
        while not done.wait(GLANCE):
            if busy.is_set() and socket.protocol.state is State.CLOSED:
                tell("the coordinator left; it is looked for once this request is answered")
                return

    watching = threading.Thread(target=watch, name="watch", daemon=True)
    watching.start()
    try:
        yield busy
    finally:
        done.set()
        watching.join()


def require_address(address: str) -> None:
    """Refuse what is no address of a coordinator, or has no port.

    Raises
    ------
    ModelError
    """
    try:
        secure = parse_uri(address).secure
        port = urlsplit(address).port
    except (InvalidURI, ValueError):
        secure, port = False, None
    if not secure:
        raise ModelError(
            f"The address {show(address)} is no coordinator's address. Write wss://, its machine "
            'and its port, such as "wss://coordinator.example:8443".'
        )
    if not port:  # an owner would look for the coordinator at 443, where nobody listens
        raise ModelError(
            f"The address {show(address)} has no port. Append the one that the coordinator prints "
            'when it starts, such as "wss://coordinator.example:8443": there is no default.'
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
