"""Texts for errors of files, certificates and connections, for an owner's `check` and `join`.

No text quotes a folder or a file's contents. An error without a rule here is named by its type.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
import stat
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidProxy,
    InvalidProxyMessage,
    InvalidProxyStatus,
    InvalidStatus,
    ProxyError,
)

from .messages import REASONS

# Text for a connection that ended without a reason, such as after a process was killed.
BROKE = "the connection broke"
# Text for a connection that the other side ended before it said anything.
SILENT = "the other side ended the connection without an answer"
# WebSocket close code that turns a party away; the close reason is then a key of REASONS.
TURNED_AWAY = 1008
_TOO_LARGE, _NO_PONG = 1009, 1011
# Close codes of a side that received frames that break the rules of WebSockets.
_BAD_FRAMES = (1002, 1007)
_NO_LOCKS = (
    "Its file system takes no locks, so two processes could use it at once: move the folder to a "
    "disk of this machine"
)
# Fixes for errors of files, by error number; other errors get no fix.
_REMEDIES = {
    errno.ENOSPC: "Free space on that disk, and start again",
    errno.EDQUOT: "Free space, or have the quota raised, and start again",
    errno.EROFS: "Make the file system writable, or move the folder to one that is",
    errno.EACCES: "Give the user of this process access to it, or start as its owner",
    errno.EPERM: "Give the user of this process access to it, or start as its owner",
    errno.ENOENT: "Put it there, or correct the name",
    errno.ENOTDIR: "A folder in its path is a file: correct the name",
    errno.EISDIR: "It is a folder, and a file is needed",
    errno.ENXIO: "Put a regular file there",
    errno.ELOOP: "Its links lead in a circle: put the file itself there",
    errno.EMFILE: "Close other programs, or raise the limit of open files (ulimit -n)",
    errno.ENFILE: "Close other programs, or raise the limit of open files (ulimit -n)",
    errno.ENOLCK: _NO_LOCKS,
    errno.EOPNOTSUPP: _NO_LOCKS,
    errno.ENOTSUP: _NO_LOCKS,
    errno.ENOSYS: _NO_LOCKS,
    errno.ESTALE: "Its server has replaced it: mount the file system again",
    errno.EIO: "The disk fails: save the folder, and look at the disk",
}
_CLOCKS_ALONE = "Set the clock if it is wrong, or get the newest list from the authority"
# Faults of certificates: OpenSSL's numbers for this side, names of TLS alerts for the other side.
_EXPIRED, _EARLY, _REVOKED, _FOREIGN = 10, 9, 23, (2, 7, 18, 19, 20, 21)
_BY_NUMBER = {_EXPIRED: "expired", _EARLY: "early", _REVOKED: "revoked"}
_BY_NUMBER |= dict.fromkeys(_FOREIGN, "foreign")
# Faults of the list of revoked certificates, by OpenSSL's numbers.
_LISTS = {
    3: "is of another authority than the certificate",
    11: f"is not valid yet by this machine's clock. {_CLOCKS_ALONE}",
    12: f"has expired by this machine's clock. {_CLOCKS_ALONE}",
}
_BY_ALERT = {
    "CERTIFICATE_EXPIRED": "expired",
    "CERTIFICATE_REVOKED": "revoked",
    "UNKNOWN_CA": "foreign",
    "DECRYPT_ERROR": "foreign",  # an authority of the same name, with another key
    "CERTIFICATE_REQUIRED": "missing",
}
_CLOCKS = "Compare the clocks of both machines, and have the certificate renewed if it is over"
_WHAT = {
    "expired": f"has expired by the clock of the side that refuses. {_CLOCKS}",
    "early": f"is not valid yet by the clock of the side that refuses. {_CLOCKS}",
    "revoked": "was revoked by the authority. Have a new one made",
    "foreign": "is of another authority. Both sides need certificates and ca.crt of the same one",
    "missing": "was not sent. Something in between ends TLS, or a program other than dpcvx dials",
}


@dataclass(frozen=True)
class Fault:
    """Fault of a connection: its code, its text, and whether it is permanent.

    Attributes
    ----------
    code : str
        Key of `REASONS`.
    said : str
        Text of the fault; a single sentence has no full stop.
    lasting : bool
        Whether a new attempt to connect cannot succeed.
    """

    code: str
    said: str
    lasting: bool = False


def file_words(error: OSError, path: Path | str | None, done: str) -> str:
    """Return the operating system's message on a file, with a fix if there is one.

    Parameters
    ----------
    error : OSError
    path : Path, str or None
        File; the file that the error names if None.
    done : str
        Action that failed, such as "read" or "written".
    """
    name = path if path is not None else error.filename
    file = f"'{Path(os.fsdecode(name)).name}'" if isinstance(name, (str, bytes, Path)) else "A file"
    why = error.strerror or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "")
    return f"{file} cannot be {done}: {why[0].lower()}{why[1:]}.{f' {remedy}.' if remedy else ''}"


def read_whole(path: Path) -> bytes:
    """Return the bytes of a regular file; reading a pipe could wait without end.

    Raises
    ------
    OSError
        If the file cannot be read, or is a pipe, a socket or a device.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.ENXIO, "it is a pipe, a socket or a device", str(path))
    return path.read_bytes()


def fault_of(error: BaseException, *, server: bool = False) -> Fault:
    """Return the fault that ended a connection or prevented it.

    Parameters
    ----------
    error : BaseException
        Error of the connection; the errors that caused it are searched too.
    server : bool
        Whether this side is the coordinator, so that the other end is still unknown.
    """
    chain = [*_chain(error)]
    for rule in (_closed, _certificate, _proxy, _other_program, _unreachable, _gone):
        for cause in chain:
            fault = rule(cause, server)
            if fault is not None:
                return fault
    return Fault("away", _by_kind(chain[-1]))


def _chain(error: BaseException) -> Iterator[BaseException]:
    met: list[BaseException] = []
    while error not in met:
        met.append(error)
        yield error
        error = error.__cause__ or error.__context__ or error


def _closed(error: BaseException, server: bool) -> Fault | None:
    """Return the fault of a closed connection by the close codes of both sides, if one says it."""
    if not isinstance(error, ConnectionClosed):
        return None
    received = error.rcvd
    if received is not None and received.code == TURNED_AWAY and received.reason in REASONS:
        return Fault(received.reason, "", lasting=True)
    codes = {closing.code for closing in (error.rcvd, error.sent) if closing is not None}
    if _TOO_LARGE in codes:
        who = "this side" if received is None or received.code != _TOO_LARGE else "the other side"
        return Fault("large", f"{who} takes no frame of that size", lasting=True)
    if codes & {*_BAD_FRAMES}:
        ours = error.sent is not None and error.sent.code in _BAD_FRAMES
        receives = "this side" if ours and not error.rcvd_then_sent else "the other side"
        return Fault(
            "unreadable",
            f"{receives} receives no frames of a WebSocket: a program other than dpcvx sends them, "
            "or a machine in between changes them",
        )
    if error.rcvd is None and _NO_PONG in codes:
        return Fault(
            "away",
            "no sign of life came for 20 s: the network is cut, or the other side is stopped",
        )
    return None


def _certificate(error: BaseException, server: bool) -> Fault | None:
    """Return the fault of a TLS error: a certificate that one side refuses, or no TLS at all."""
    if not isinstance(error, ssl.SSLError):
        return None
    theirs = "the certificate of whoever dials in" if server else "the other side's certificate"
    ours = "this side's certificate is not accepted: it"
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _LISTS:
            said = f"'ca.crl' in this side's folder of keys {_LISTS[error.verify_code]}"
            return Fault("certificate", said, lasting=True)
        kind = _BY_NUMBER.get(error.verify_code, "")
        what = _WHAT.get(kind, f"cannot be used: {error.verify_message}")
        if kind == "foreign":
            what = (
                "is one that ca.crt in this side's folder of keys does not vouch for. Look whether "
                "the address is right, and whether both sides have ca.crt of the same authority"
            )
        return Fault("stranger" if kind == "foreign" else "certificate", f"{theirs} {what}", True)
    reason = getattr(error, "reason", None) or ""
    if "BAD_RECORD_MAC" in reason:
        return Fault("away", _DAMAGED)
    if "ALERT_DECODE_ERROR" in reason:  # the other side received the first part of a record
        return Fault("away", BROKE)
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return Fault("certificate", f"{theirs} {_WHAT['missing']}", lasting=True)
    if "ALERT" in reason:
        kind = next((kind for name, kind in _BY_ALERT.items() if name in reason), "")
        if not kind and "CERTIFICATE" not in reason:
            return Fault("away", f"the other side ended TLS: {_plain(reason)}")
        what = _WHAT.get(
            kind, f"cannot be used there; the other side's own line says why. {_CLOCKS}"
        )
        return Fault("stranger" if kind == "foreign" else "certificate", f"{ours} {what}", True)
    if isinstance(error, ssl.SSLEOFError) or "EOF" in reason.upper():
        return Fault("away", BROKE)
    who = "something that is no owner dials in" if server else _OTHER
    return Fault("unreadable", f"{who} ({_plain(reason) or 'no TLS'})")


def proxy_of(host: str, port: int) -> str:
    """Return the proxy (host and port) that the environment names for a coordinator, or "".

    Parameters
    ----------
    host : str
        Host of the coordinator.
    port : int
        Port of the coordinator.
    """
    if urllib.request.proxy_bypass(f"{host}:{port}"):
        return ""
    proxies = urllib.request.getproxies()
    address = next(
        (proxies[kind] for kind in ("wss", "socks", "https", "http") if proxies.get(kind)), ""
    )
    return address.rpartition("@")[2].rpartition("//")[2].rstrip("/")  # it may have a password


def _proxy(error: BaseException, server: bool) -> Fault | None:
    """Return the fault of the proxy that the environment names, if the error is the proxy's."""
    around = (
        "Correct HTTPS_PROXY in the environment, or exempt the coordinator by NO_PROXY=its machine"
    )
    if isinstance(error, ImportError) and "socks" in str(error).lower():
        return Fault(
            "away",
            "the environment names a SOCKS proxy, and python-socks is not installed. Run pip "
            f"install python-socks. {around}",
            lasting=True,
        )
    if isinstance(error, InvalidProxyStatus):
        status = error.response.status_code
        return Fault("away", f"the proxy of the environment answers with status {status}. {around}")
    if isinstance(error, InvalidProxy):
        return Fault("away", f"the environment names no usable proxy. {around}", lasting=True)
    if isinstance(error, (ProxyError, InvalidProxyMessage)) or "socks" in type(error).__module__:
        return Fault("away", f"the proxy of the environment does not connect. {around}")
    return None


_OTHER = "something else than a coordinator answers there"
_DAMAGED = "bytes are damaged on the way: look at the network between both sides"
_SWALLOWED = (
    "a machine answers there, and then nothing comes through. It is no coordinator, or a stopped "
    "one, or the network between both sides loses large packets (compare the MTU of its parts)"
)


def _other_program(error: BaseException, server: bool) -> Fault | None:
    if isinstance(error, InvalidStatus):
        return Fault("unreadable", f"{_OTHER} (HTTP status {error.response.status_code})")
    if isinstance(error, InvalidMessage) and _ended(error):
        return Fault("away", SILENT)
    if isinstance(error, AssertionError):  # of websockets, for bytes after a failed handshake
        return Fault("unreadable", _OTHER)
    if isinstance(error, InvalidHandshake):
        return Fault("unreadable", f"{_OTHER} ({_by_kind(error)})")
    return None


def _ended(error: BaseException) -> bool:
    """Return whether the connection ended without an answer, so that none could be invalid."""
    return any(isinstance(cause, (EOFError, ConnectionError)) for cause in _chain(error))


def _unreachable(error: BaseException, server: bool) -> Fault | None:
    if isinstance(error, socket.gaierror):
        return Fault("away", "this machine knows no other of that name")
    if isinstance(error, ConnectionRefusedError):
        return Fault("away", "nobody listens there")
    if isinstance(error, (TimeoutError, socket.timeout)) and "handshake" in str(error):
        return Fault("away", _SWALLOWED)
    if isinstance(error, (TimeoutError, socket.timeout)):
        return Fault("away", "nothing answers there")
    if isinstance(error, (ConnectionError, EOFError)):
        return Fault("away", BROKE)
    if isinstance(error, OSError) and error.errno:
        words = os.strerror(error.errno)
        return Fault("away", f"{words[0].lower()}{words[1:]}")
    return None


def _gone(error: BaseException, server: bool) -> Fault | None:
    """Return a fault without text for a connection that was closed in the regular way."""
    return Fault("away", "") if isinstance(error, ConnectionClosed) else None


def _plain(reason: str) -> str:
    return re.sub(r"^(SSLV3|TLSV1|TLSV13)_ALERT_", "", reason).replace("_", " ").lower()


def _by_kind(error: BaseException) -> str:
    """Return the type of an error as words, since its text may quote received bytes."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
