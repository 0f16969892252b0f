"""Faults between an owner and a coordinator: the sentences that both sides print."""

import errno
import queue
import re
import select
import shutil
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close
from websockets.sync.client import connect

import dpcvx as dp
from dpcvx.owners import keys, link, wire
from dpcvx.owners.audit_log import AuditLog, read_log
from dpcvx.owners.coordinator import Gone
from dpcvx.owners.faults import fault_of, file_words, proxy_of
from dpcvx.owners.keys import PartyIdentity
from dpcvx.owners.link import NAMED, SocketHub, dial
from dpcvx.owners.messages import Hello, Refusal
from dpcvx.owners.session import Session
from tests.owners.settings import offered, planned

NAMES = ["north", "south"]


@pytest.fixture
def study(tmp_path):
    keys.make_study(tmp_path, NAMES)
    return tmp_path


def identity(place, name):
    return PartyIdentity(
        place / name / "keys", name, (place / f"{name}/keys/{name}.crt").read_text()
    )


@contextmanager
def coordinator(place, names=("north",)):
    """A hub that listens, its address, and the lines that it prints."""
    lines = queue.Queue()
    own = identity(place, "coordinator")
    hub = SocketHub(names, "127.0.0.1", 0, own, 30.0, lines.put)
    with closing(hub):
        yield hub, f"wss://{hub._place}", lines


def joined(place, address, name="north", handle=lambda frame: frame, over=lambda: False, **more):
    """What an owner reads in the end, and the lines that it prints."""
    told = []
    with pytest.raises(dp.RefusedError) as refusal:
        dial(
            address, identity(place, name), "", lambda: wire.encode(Hello(name)), handle, over,
            **{"timeout": 30.0, "tell": told.append, **more},
        )  # fmt: skip
    return refusal.value, told


def until(lines, pattern):
    """The first line with a pattern."""
    while not re.search(pattern, line := lines.get(timeout=30)):
        pass
    return line


def again(place, name, days):
    """Another certificate of the same key, for so many days."""
    request = place / name / "keys" / f"{name}.csr"
    keys.sign_request(place / "authority", request, days=days, renew=True)


def test_an_expired_certificate_is_named_on_both_sides(study):
    again(study, "north", 0)
    with coordinator(study) as (_, address, lines):
        error, _ = joined(study, address)
        line = until(lines, "turned away")
    assert error.code == "certificate" and "this side's certificate is not accepted" in str(error)
    assert "has expired by the clock of the side that refuses" in str(error)
    assert "the certificate of whoever dials in has expired" in line


def test_an_expired_coordinator_is_named_on_both_sides(study):
    again(study, "coordinator", 0)
    with coordinator(study) as (_, address, lines):
        error, _ = joined(study, address)
        line = until(lines, "turned away")
    assert error.code == "certificate" and "the other side's certificate has expired" in str(error)
    assert "this side's certificate is not accepted: it has expired" in line


def test_a_certificate_before_its_time_is_named_on_both_sides(study, monkeypatch):
    class Later(keys.dt.datetime):
        @classmethod
        def now(cls, zone=None):
            return super().now(zone) + keys.dt.timedelta(days=2)

    with monkeypatch.context() as patch:
        patch.setattr(keys.dt, "datetime", Later)
        again(study, "north", 100)
    with coordinator(study) as (_, address, lines):
        error, _ = joined(study, address)
        line = until(lines, "turned away")
    assert error.code == "certificate" and "own line says why" in str(error)
    assert "is not valid yet by the clock of the side that refuses" in line


def test_another_authority_and_a_revoked_certificate_are_named_on_both_sides(study, tmp_path):
    keys.make_study(tmp_path / "other", NAMES)
    gone = keys.revoke(study / "authority", study / "south/keys/south.crt")
    shutil.copy(gone, study / "coordinator/keys/ca.crl")
    foreign = study / "north/keys"
    for kind in ("key", "crt"):
        shutil.copy(tmp_path / f"other/north/keys/north.{kind}", foreign / f"north.{kind}")
    with coordinator(study, NAMES) as (_, address, lines):
        error, _ = joined(study, address)
        assert error.code == "stranger" and "of another authority" in str(error)
        assert "does not vouch for" in until(lines, "turned away")
        error, _ = joined(study, address, "south")
        assert error.code == "certificate" and "it was revoked by the authority" in str(error)
        assert "was revoked" in until(lines, "turned away")


def test_another_version_is_named_on_both_sides(study, monkeypatch):
    hello = b"dpx0" + wire.encode(Hello("north"))[4:]
    with coordinator(study) as (_, address, lines):
        told = []
        with pytest.raises(dp.RefusedError) as refusal:
            monkeypatch.setattr(link, "NAMED", "dpcvx/0.0.1 dpx0")
            dial(
                address, identity(study, "north"), "", lambda: hello, lambda frame: frame,
                lambda: False, timeout=30.0, tell=told.append,
            )  # fmt: skip
        line = until(lines, "turned away")
    assert refusal.value.code == "version" and "uses another one" in str(refusal.value)
    assert re.search(r"the coordinator uses dpcvx/.* and this side dpcvx/0\.0\.1 dpx0", told[1])
    assert "whoever has the certificate of 'north' was turned away (version)" in line
    assert "it uses dpcvx/0.0.1 dpx0, and this side" in line


def test_a_second_process_of_one_name_is_turned_away(study):
    over = threading.Event()
    with coordinator(study) as (hub, address, lines), ThreadPoolExecutor(1) as pool:
        first = pool.submit(
            dial, address, identity(study, "north"), "", lambda: wire.encode(Hello("north")),
            lambda frame: frame, over.is_set, timeout=30.0, tell=lambda _: None,
        )  # fmt: skip
        hub.gather()
        error, _ = joined(study, address)
        assert error.code == "taken" and "end the other process" in str(error)
        line = until(lines, "turned away")
        assert "another process of that name is connected, and answers" in line
        over.set()
        assert hub.exchange({"north": b"a call"}) == {"north": b"a call"}  # the first one's
        first.result(timeout=30)


def test_a_process_that_does_not_answer_is_replaced(study, monkeypatch):
    monkeypatch.setattr(link, "_ALIVE", 0.2)
    context = identity(study, "north").context(server=False)
    with coordinator(study) as (hub, address, _):
        # A process that was stopped: its machine takes what is sent, and nobody reads it.
        with connect(address, ssl=context, user_agent_header=NAMED) as silent:
            silent.protocol.receive_data = lambda data: None
            silent.send(wire.encode(Hello("north")))
            hub.gather()
            with connect(address, ssl=context, user_agent_header=NAMED) as newer:
                newer.send(wire.encode(Hello("north")))
                with ThreadPoolExecutor(1) as pool:
                    hub.again("north")
                    said = pool.submit(hub.exchange, {"north": b"a call"})
                    while isinstance(said.result(timeout=30)["north"], Gone):
                        hub.again("north")
                        said = pool.submit(hub.exchange, {"north": b"a call"})
                        assert newer.recv(timeout=30) == b"a call"
                        newer.send(b"a word")
                    assert said.result(timeout=30) == {"north": b"a word"}


def test_the_coordinator_says_why_an_owner_left(study, monkeypatch):
    monkeypatch.setattr(link, "_PLAIN", {**link._PLAIN, "ping_interval": 0.1, "ping_timeout": 0.1})
    context = identity(study, "north").context(server=False)
    with coordinator(study) as (_, address, lines):
        with connect(address, ssl=context, user_agent_header=NAMED) as silent:
            silent.protocol.receive_data = lambda data: None
            silent.send(wire.encode(Hello("north")))
            line = until(lines, "north left")
            assert line.startswith("north left: no sign of life came for 20 s")
        with connect(address, ssl=context, user_agent_header=NAMED) as killed:
            killed.send(wire.encode(Hello("north")))
            until(lines, "north is here")
            killed.socket.shutdown(socket.SHUT_RDWR)
            assert until(lines, "north left") == "north left"


@pytest.mark.parametrize("side", ["owner", "coordinator"])
def test_a_frame_too_large_ends_the_run_on_both_sides(study, monkeypatch, side):
    small = {**link._PLAIN, "max_size": 1000}
    large = b"x" * 2000
    with ThreadPoolExecutor(1) as pool:
        if side == "coordinator":
            monkeypatch.setattr(link, "_PLAIN", small)
        with coordinator(study) as (hub, address, lines):
            monkeypatch.setattr(link, "_PLAIN", small if side == "owner" else dict(link._PLAIN))
            reads = {"handle": lambda frame: large if side == "coordinator" else frame}
            owner = pool.submit(joined, study, address, "north", **reads)
            hub.gather()
            said = hub.exchange({"north": b"a call" if side == "coordinator" else large})
            assert wire.decode(said["north"]).code == "large"
            assert "takes no frame of that size" in until(lines, "north: ")
            error, _ = owner.result(timeout=30)
    assert error.code == "large" and "takes no frame of that size" in str(error)


def test_a_party_that_sends_garbage_is_left_after_a_few_connections(study, tmp_path, monkeypatch):
    """It has the coordinator's certificate, and nothing that it sends is a message."""
    monkeypatch.setattr(link, "_AGAIN", 0.01)
    _, policy = offered(planned(), tmp_path)
    session = Session(policy, audit=AuditLog(tmp_path / "audit"))

    async def greeted(self, socket):
        await socket.recv()
        await socket.send(b"no message")
        await socket.recv()

    monkeypatch.setattr(SocketHub, "_greeted", greeted)
    with coordinator(study) as (_, address, _):
        dial(
            address, identity(study, "north"), "", session.hello, session.reply,
            lambda: session.over or session._in_vain > 20, timeout=30.0, tell=lambda line: None,
            met=session.met,
        )  # fmt: skip
    assert session.refusal.code == "unreadable"
    assert "the last 8 connections brought no message that this owner can use" in str(
        session.refusal
    )
    assert read_log(tmp_path / "audit").lines[-1]["code"] == "unreadable"
    assert not policy.ledger.exists()


@contextmanager
def stalling(port, count, most=1 << 30):
    """A port that passes on what comes, and of the first connection's answers only a part.

    Of the answer of number `count` the last byte is missing, and nothing follows it. Of what goes
    the other way, about `most` bytes are read.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as open_:

        def serve(near, far, passed):
            left, ends, read = count if passed else -1, [near, far], 0
            while ready := select.select(ends, [], [])[0]:
                for one in ready:
                    data = one.recv(1 << 16)
                    read += len(data) if passed and one is near else 0
                    if read > most:
                        ends = [far]
                    if not data and one is far and passed:
                        ends = [near]
                        continue
                    if not data:
                        return
                    if one is far and left >= 0:
                        left -= 1
                        data = data if left > 0 else data[:-1] if left == 0 else b""
                    (near if one is far else far).sendall(data)

        def served(near, first):
            with near, socket.create_connection(("127.0.0.1", port)) as far, suppress(OSError):
                serve(near, far, first)

        def accept():
            first = True
            with suppress(OSError):
                while True:
                    near = open_.enter_context(listening.accept()[0])
                    threading.Thread(target=served, args=(near, first), daemon=True).start()
                    first = False

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_link_that_stops_within_a_record_is_given_up_and_opened_again(study, monkeypatch):
    """The second answer of a coordinator is to the greeting of HTTP.

    The library waited for the rest of the record, whatever its limits of time.
    """
    with coordinator(study) as (hub, _, _):
        monkeypatch.setattr(link, "_PLAIN", {**link._PLAIN, "open_timeout": 0.5})
        told, ended, over = queue.Queue(), queue.Queue(), threading.Event()
        with stalling(hub._port, 2) as port:
            threading.Thread(
                target=lambda: ended.put(dial(
                    f"wss://127.0.0.1:{port}", identity(study, "north"), "",
                    lambda: wire.encode(Hello("north")), lambda frame: frame, over.is_set,
                    timeout=30.0, tell=told.put,
                )), daemon=True,
            ).start()  # fmt: skip
            hub.gather()
            until(told, "a machine answers there, and then nothing comes through")
            over.set()
            assert hub.exchange({"north": b"a call"}) == {"north": b"a call"}
            assert ended.get(timeout=30) is None


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
def test_a_link_that_takes_no_more_of_a_large_frame_is_opened_again(study, monkeypatch):
    """The library sends under a lock that its pings need, so pings notice nothing."""
    monkeypatch.setattr(link, "_UNSENT", 300)
    told, large = [], b"x" * (1 << 24)
    with coordinator(study) as (hub, _, _), stalling(hub._port, 1 << 30, 1 << 14) as port:
        with pytest.raises(dp.RefusedError) as refusal:
            dial(
                f"wss://127.0.0.1:{port}", identity(study, "north"), "", lambda: large, bytes,
                lambda: False, timeout=30.0, tell=told.append,
            )  # fmt: skip
    assert any(line.startswith("the coordinator left") for line in told)
    assert refusal.value.code == "unreadable"  # the second connection carried all of it


def test_frames_that_are_none_are_said_to_be_that(study, monkeypatch):
    monkeypatch.setattr(link, "_RARELY", 0.01)
    monkeypatch.setattr(link, "_AGAIN", 0.01)

    async def greeted(self, socket):
        await socket.recv()
        socket.transport.write(b"\xff" * 100)
        await socket.wait_closed()

    monkeypatch.setattr(SocketHub, "_greeted", greeted)
    with coordinator(study) as (_, address, _):
        error, told = joined(study, address)
    said = "this side receives no frames of a WebSocket"
    assert error.code == "away" and f"ended without a message: {said}" in str(error)
    assert len([line for line in told if said in line]) == 1
    theirs = fault_of(ConnectionClosedError(Close(1002, ""), Close(1002, ""), True))
    assert theirs.said.startswith("the other side receives no frames")


def test_a_coordinator_that_ends_every_connection_is_left(study, monkeypatch):
    monkeypatch.setattr(link, "_RARELY", 0.01)
    monkeypatch.setattr(link, "_AGAIN", 0.01)

    async def greeted(self, socket):
        await socket.recv()

    monkeypatch.setattr(SocketHub, "_greeted", greeted)
    with coordinator(study) as (_, address, _):
        error, told = joined(study, address)
    assert error.code == "away" and "8 connections in a row" in str(error)
    assert len([line for line in told if "the coordinator left" in line]) == 1


@contextmanager
def server(answer, context=None):
    """Something else that listens, and says one thing to whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    one, _ = listening.accept()
                except OSError:
                    return
                with one:
                    try:
                        if context is not None:
                            one = context.wrap_socket(one, server_side=True)
                        one.recv(4096)
                        one.sendall(answer)
                        one.close()
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    ("answer", "secure", "said"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", True, r"something else .* \(HTTP status 404\)"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", True, r"\(HTTP status 200\)"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False, "something else than a coordinator answers there"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "something else than a coordinator"),
        (b"\0\1\2\r\n\r\n", True, "something else than a coordinator"),
    ],
)
def test_something_else_that_answers_is_named(study, answer, secure, said):
    context = identity(study, "coordinator").context(server=True) if secure else None
    with server(answer, context) as port:
        error, (line, *_) = joined(study, f"wss://127.0.0.1:{port}", timeout=0.2)
    assert error.code == "away" and re.search(said, str(error)) and re.search(said, line)
    assert "OpenSSH" not in str(error)


@pytest.mark.parametrize("answer", [b"", b"\r\n" * 200])
def test_a_server_that_ends_each_connection_is_said_once(study, answer):
    context = identity(study, "coordinator").context(server=True)
    with server(answer, context) as port:
        error, told = joined(study, f"wss://127.0.0.1:{port}", timeout=1.0)
    assert error.code == "away" and len(told) == len(set(told))
    assert re.search("without an answer|something else than a coordinator", str(error))


def test_an_assertion_of_the_library_is_another_program(study, monkeypatch):
    @contextmanager
    def failing(*arguments, **options):
        raise AssertionError
        yield

    monkeypatch.setattr(link, "connect", failing)
    error, (line,) = joined(study, "wss://127.0.0.1:1", timeout=0.1)
    assert "something else than a coordinator answers there" in line and error.code == "away"


def test_a_proxy_of_the_environment_is_named(study, monkeypatch):
    for kind in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(kind, raising=False)
    refusing = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
    with server(refusing) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{port}")
        assert proxy_of("a.example", 1) == f"127.0.0.1:{port}"
        error, (line, *_) = joined(study, "wss://a.example:8443", timeout=0.1)
        assert f"through the proxy 127.0.0.1:{port} that the environment names" in line
        assert "status 407" in str(error) and "NO_PROXY" in str(error)
        assert "secret" not in line + str(error)
    monkeypatch.setenv("HTTPS_PROXY", "ftp://127.0.0.1:9")
    error, _ = joined(study, "wss://a.example:8443", timeout=0.1)
    assert "names no usable proxy" in str(error)
    monkeypatch.setenv("NO_PROXY", "a.example")
    assert proxy_of("a.example", 1) == ""


def test_ports_and_addresses_are_said_as_owners_write_them(study):
    with coordinator(study) as (hub, address, lines):
        assert int(address.rpartition(":")[2]) > 0
        with pytest.raises(dp.ModelError, match=r"on 127\.0\.0\.1:\d+: address already"):
            SocketHub(NAMES, "127.0.0.1", hub._port, identity(study, "coordinator"), 1.0, lines.put)
    assert link.place("::1", 8443) == "[::1]:8443"
    with pytest.raises(dp.ModelError, match=r'IPv6 in brackets, such as "\[::\]:8443"'):
        dp.RemoteOwners("::1:8443", keys=study / "coordinator/keys")
    dp.RemoteOwners("[::1]:8443", keys=study / "coordinator/keys")


def test_whoever_is_no_owner_is_said_once(study):
    with coordinator(study) as (hub, _, lines):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", hub._port)) as one:
                one.sendall(b"GET / HTTP/1.1\r\n\r\n")
                one.recv(100)
        line = until(lines, "turned away")
        assert "something that is no owner dials in" in line and lines.empty()


def test_errors_of_the_library_are_sentences():
    class Unknown(Exception):
        pass

    kept = ConnectionClosedError(None, Close(1011, "keepalive ping timeout"), None)
    assert fault_of(kept).said.startswith("no sign of life came for 20 s")
    assert fault_of(ConnectionClosedError(Close(1008, "taken"), None)).lasting
    for error in (
        OSError(errno.EHOSTUNREACH, "x"),
        Unknown("a secret"),
        ssl.SSLError(1, "[SSL: X] secret"),
    ):
        fault = fault_of(error)
        assert fault.said and "secret" not in fault.said and "Error" not in fault.said
    damaged = ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] x")
    damaged.reason = "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
    told = ssl.SSLError(1, "x")
    told.reason = "SSLV3_ALERT_BAD_RECORD_MAC"
    for error in (damaged, told):
        assert fault_of(error).said.startswith("bytes are damaged on the way")
        assert not fault_of(error).lasting
    part = ssl.SSLError(1, "x")
    part.reason = "TLSV1_ALERT_DECODE_ERROR"
    assert fault_of(part, server=True).said == "the connection broke"
    for number, words in ((3, "of another authority"), (11, "not valid yet"), (12, "has expired")):
        old = ssl.SSLCertVerificationError(1, "x")
        old.verify_code, old.verify_message = number, "a list"
        fault = fault_of(old, server=True)
        assert fault.code == "certificate" and fault.lasting
        assert (
            fault.said.startswith("'ca.crl' in this side's folder of keys") and words in fault.said
        )
    assert fault_of(TimeoutError("timed out")).said == "nothing answers there"
    stuck = fault_of(TimeoutError("_ssl.c:999: The handshake operation timed out")).said
    assert stuck.startswith("a machine answers there, and then nothing comes through")
    for error in (ConnectionResetError(), EOFError(), ssl.SSLEOFError(8, "EOF occurred")):
        assert fault_of(error).said == "the connection broke"
    full = OSError(errno.ENOSPC, "No space left on device", "/home/me/spent.jsonl.log")
    said = "'spent.jsonl.log' cannot be written: no space left on device. Free space on that disk"
    assert file_words(full, None, "written").startswith(said)
    assert Refusal("large").code == "large"
