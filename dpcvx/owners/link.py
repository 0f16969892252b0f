"""Transport of frames between owners and a coordinator: WebSockets with mutual TLS.

Owners open all connections. Only this module opens sockets. It handles frames and certificates, and
it decodes only greetings.
"""

from __future__ import annotations

import asyncio
import logging
import socket as sockets
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
from .faults import BROKE, SILENT, TURNED_AWAY, Fault, fault_of, proxy_of
from .keys import COORDINATOR, PartyIdentity, of_der, peer_name
from .messages import REASONS, Hello, Refusal, refused

# Least and largest number of seconds between two attempts to reach a coordinator.
_AGAIN, _RARELY = 0.3, 5.0
# Seconds for an owner to send its greeting after it connected.
_GREETING = 10.0
# Number of successive connections without a message after which an owner gives up.
_RETURNS = 8
# Seconds within which a live connection answers a ping.
_ALIVE = 5.0
# Seconds that a farewell may take before the coordinator reports that it waits.
_FAREWELL = 1.0
# Seconds between two checks for reconnected owners, during a farewell.
_BACK = 0.05
# Largest difference of two machines' clocks in seconds that is not reported.
_CLOCKS = 300.0
# `fault_of` reports errors of the library; the library's log would hold tracebacks and frames.
_SILENT = logging.Logger("websockets of dpcvx")
_SILENT.disabled = True
# Frames are compact without compression, and compressed lengths would depend on their contents.
_PLAIN = {
    "compression": None,
    "max_size": wire.LARGEST,
    "close_timeout": _FAREWELL,
    "logger": _SILENT,
}
# Milliseconds for which the other side's machine may take no more of what an owner sends.
_UNSENT = 40_000
# Version that both sides send in the HTTP headers when a connection opens.
NAMED = f"dpcvx/{version('dpcvx')} {wire.MAGIC.decode()}"


class SocketHub:
    """The coordinator's transport (hub): owners connect to it; certificates identify them.

    Parameters
    ----------
    names : sequence of str
        Names of the agents to wait for.
    host, port : str, int
        Address to listen at.
    identity : PartyIdentity
        Identity of the coordinator.
    timeout : float
        Seconds to wait for an owner to connect, to answer, and to reconnect.
    tell : callable
        Called with a line of text when an owner connects or disconnects.

    Raises
    ------
    ModelError
        If this machine cannot listen at that address.
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
        # Connections that the run has used. A restarted owner reconnects without knowledge of the
        # run, so its new connection is not among them.
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
        """Wait for owners as `Hub.gather` does; with `some`, one deadline holds for all."""
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
        """Exchange frames as `Hub.exchange` does; all are sent at the same time."""

        async def all_of_them() -> list[bytes | Gone]:
            calls = {n: asyncio.create_task(self._one(n, f)) for n, f in frames.items()}
            due, until = {*calls.values()}, self._loop.time() + self._patience
            # One deadline for all owners.
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
        """Wait for a disconnected owner to reconnect.

        Raises
        ------
        RefusedError
            If the owner does not reconnect in time.
        """
        self._tell(f"waiting up to {self._patience:g} s for {name} to come back")
        self._await(name, "did not come back")

    def part(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Gone]:
        """Send last frames to owners as `Hub.part` does, and return the answers."""
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
        """Disconnect all owners, after sending a last frame, if any, that they do not answer."""

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
        # A socket holds its TLS context, which holds `_tell_once` and so this hub. The garbage
        # collector does not see that cycle, and would never free a hub that keeps its sockets.
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
        """Return an owner's answer to its last frame before time `until`, or `Gone`."""
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
            if fault.code == "large":  # a second attempt would be too large as well: the run ends
                self._tell(f"{name}: {fault.said}")
                return wire.encode(Refusal("large"))
            # A late answer must not be taken for the answer to a later call. A stopped process
            # would not answer a regular close.
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
                self._port = next(iter(server.sockets)).getsockname()[1]  # differs for port 0
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
        """Report a line unless it repeats the last one, since refused parties may dial again."""
        if line != self._line:
            self._tell(line)
        self._line = line

    async def _greeted(self, socket: ServerConnection) -> None:
        """Serve one owner's connection from its greeting until it ends."""
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
        """Close a connection of `name` with the code of a reason, which both sides report."""
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


class _OwnerConnection(ClientConnection):
    """Connection of an owner that ends even if the other side stops within a TLS record.

    The library's thread then reads the rest of the record, and the library waits for that thread.
    """

    def close_socket(self) -> None:
        with suppress(OSError):  # it may be closed already
            self.socket.shutdown(sockets.SHUT_RDWR)
        super().close_socket()


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
        Address of the coordinator, such as ``wss://coordinator.example:8443``.
    identity : PartyIdentity
        Identity of the owner.
    pinned : str
        Fingerprint of the coordinator's certificate; empty for any certificate of its name.
    hello : callable
        Returns the first frame of each connection.
    handle : callable
        Returns the answer to a frame.
    over : callable
        Returns whether the run has ended; the connection then ends after the last answer.
    timeout : float
        Seconds to try to reach the coordinator, at first and after a loss.
    tell : callable
        Called with a line of text for each event.
    met : callable
        Called for each connection with address, the coordinator's fingerprint, and its version.

    Raises
    ------
    ModelError
        If the address is no coordinator's address.
    RefusedError
        If another party answers, or the coordinator turns the owner away or is not reached in time.
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
            with connect(
                address,
                ssl=context,
                user_agent_header=NAMED,
                create_connection=_OwnerConnection,
                **_PLAIN,
            ) as socket:
                _check(socket.socket, pinned)
                _limit_sending(socket.socket)
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
                        with suppress(ConnectionClosed):  # frames received earlier are still read
                            socket.send(answer)
                        deadline = time.monotonic() + timeout
                        if over():
                            break
        except (OSError, EOFError, ImportError, WebSocketException, AssertionError) as error:
            if here and isinstance(error, AssertionError):
                raise  # the library asserts in handshakes with programs that do not speak it
            fault = fault_of(error)
            if fault.lasting:
                raise refused(fault.code, _lasting(fault, address)) from None
        if over():
            return
        returns = returns + 1 if here and not heard else 0
        if here:  # an owner that was connected while it waited had not lost the coordinator
            deadline = max(deadline, time.monotonic() + timeout)
        why = "" if fault is None else fault.said or ("" if here else SILENT)
        if (whom, why) != told:  # report a reason once, not at every attempt
            event("disconnected", {"agent": identity.name, "address": address})
            looking = f"looking for it for up to {timeout:g} s"
            tell(f"{whom}: {why}; {looking}" if why else f"{whom}; {looking}")
        told, last = (whom, why), f": {why}" if why else ""
        if returns >= _RETURNS:
            raise refused(
                "away",
                f"{returns} connections in a row to the coordinator at {address} ended without a "
                f"message{last}. Its own lines may say why",
            )
        if time.monotonic() > deadline:
            raise refused("away", f"no coordinator at {address} for {timeout:g} s{last}")
        time.sleep(pause)
        pause = min(2 * pause, _RARELY) if returns else _AGAIN


def _lasting(fault: Fault, address: str) -> str:
    """Return the detail of a refusal for a permanent fault, with a fix if the other end refuses."""
    details = {
        "name": "the coordinator's run has no such agent",
        "taken": "the coordinator has another connection with this certificate, and it answers: "
        "end the other process, or wait until it is done",
        "version": f"the coordinator uses another one than {NAMED}; its own line says which",
    }
    said = fault.said or details.get(fault.code, "the coordinator says so, and its own line more")
    return f"at {address}: {said}"


def _compare(socket: ClientConnection, tell: Callable[[str], None]) -> str:
    """Report a coordinator with another version or clock, and return its version."""
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
    """Return a time span as text, in the largest unit that it holds at least twice."""
    for unit, size in (("days", 86400), ("hours", 3600)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 60:.0f} minutes"


def _limit_sending(socket: sockets.socket) -> None:
    """Have the system end a connection whose other side takes nothing, where it can be told to.

    The library sends under a lock that its pings need, so pings do not notice such a stop.
    """
    option = getattr(sockets, "TCP_USER_TIMEOUT", None)
    if option is not None:
        with suppress(OSError):
            socket.setsockopt(sockets.IPPROTO_TCP, option, _UNSENT)


async def _alive(socket: ServerConnection) -> bool:
    """Return whether the other end of a connection answers."""
    with suppress(WebSocketException, OSError, TimeoutError):
        async with asyncio.timeout(_ALIVE):
            await (await socket.ping())
            return True
    return False


def place(host: str, port: int) -> str:
    """Return host and port as the text of an address, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _short(named: str) -> str:
    """Return another side's version for a message: printable characters, at most 60."""
    return "".join(c for c in named if c.isprintable())[:60] or "an unnamed program"


def _why(error: BaseException) -> str:
    return fault_of(error).said or "it closed the connection"


@contextmanager
def _noticed(socket: ClientConnection, tell: Callable[[str], None]) -> Iterator[threading.Event]:
    """Report if the coordinator disconnects while this side answers, or prompts a person."""
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
    """Refuse a text that is no address of a coordinator with a port.

    Raises
    ------
    ModelError
        If the text is no such address.
    """
    try:
        where, port = parse_uri(address), urlsplit(address).port
        # The names of a host that a domain can have; dialing would raise an error for others.
        secure = where.secure and bool(where.host.encode("idna"))
    except (InvalidURI, ValueError):
        where, secure, port = None, False, None
    if not secure:
        raise ModelError(
            f"The address {show(address)} is no address of a coordinator. Write wss://, the "
            'coordinator\'s machine and its port, such as "wss://coordinator.example:8443".'
        )
    if where is not None and where.user_info is not None:
        raise ModelError(
            "The address of the coordinator has a user name or a password. Remove all up to the "
            '@, as in "wss://coordinator.example:8443": certificates identify both sides, and the '
            "audit log holds the address."
        )
    if not port:  # the default port would be 443, where no coordinator listens
        raise ModelError(
            f"The address {show(address)} has no port. Append the port that the coordinator "
            'prints when it starts, such as "wss://coordinator.example:8443". There is no default '
            "port."
        )


def _check(socket: Any, pinned: str) -> None:
    """Refuse a peer whose certificate is not the coordinator's, such as an agent's."""
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
