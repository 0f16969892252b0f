"""Errors of files, certificates and connections as sentences: one place for `check` and `join`.

No sentence quotes a folder or a content. An error that no rule below knows is named by its kind.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
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

# Said of a connection that ended without a word, as that of a killed process.
BROKE = "the connection broke"
# With this code of the protocol a party is turned away; the reason beside it is a code of REASONS.
TURNED_AWAY = 1008
_TOO_LARGE, _NO_PONG = 1009, 1011
# What to do where the operating system refuses a file; any other number stands for itself.
_REMEDIES = {
    errno.ENOSPC: "Free space on that disk, and start again",
    errno.EDQUOT: "Free space, or have the quota raised, and start again",
    errno.EROFS: "Make the file system writable, or move the folder to one that is",
    errno.EACCES: "Give the user of this process access to it, or start as its owner",
    errno.EPERM: "Give the user of this process access to it, or start as its owner",
    errno.ENOENT: "Put it there, or correct the name",
    errno.ENOTDIR: "A folder in its path is a file: correct the name",
    errno.EISDIR: "It is a folder, and a file is needed",
    errno.ELOOP: "Its links lead in a circle: put the file itself there",
    errno.EMFILE: "Close other programs, or raise the limit of open files (ulimit -n)",
    errno.ENFILE: "Close other programs, or raise the limit of open files (ulimit -n)",
    errno.EIO: "The disk fails: save the folder, and look at the disk",
}
# Faults of a certificate as OpenSSL numbers them, and as alerts name them to the other side.
_EXPIRED, _EARLY, _REVOKED, _FOREIGN = 10, 9, 23, (2, 7, 18, 19, 20, 21)
_BY_NUMBER = {_EXPIRED: "expired", _EARLY: "early", _REVOKED: "revoked"}
_BY_NUMBER |= dict.fromkeys(_FOREIGN, "foreign")
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
    """Code and text of an error, and whether it lasts.

    Attributes
    ----------
    code : str
        Code of `REASONS`.
    said : str
        Without a full stop, if it is one sentence.
    lasting : bool
        Whether trying again cannot mend it.
    """

    code: str
    said: str
    lasting: bool = False


def file_words(error: OSError, path: Path | str | None, done: str) -> str:
    """Return what the operating system said of a file, and what to do.

    Parameters
    ----------
    error : OSError
    path : Path, str or None
        The file; that of the error if None.
    done : str
        Action that failed, such as "read" or "written".
    """
    name = path if path is not None else error.filename
    file = f"'{Path(os.fsdecode(name)).name}'" if isinstance(name, (str, bytes, Path)) else "A file"
    why = error.strerror or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "")
    return f"{file} cannot be {done}: {why[0].lower()}{why[1:]}.{f' {remedy}.' if remedy else ''}"


def fault_of(error: BaseException, *, server: bool = False) -> Fault:
    """Return what ended a connection, or kept it from coming about.

    Parameters
    ----------
    error : BaseException
        Error with the errors that led to it.
    server : bool
        Whether this side waits for others to dial in, and the other end is therefore unknown.
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
    """Return the reason of a close, by the code that either side sent."""
    if not isinstance(error, ConnectionClosed):
        return None
    received = error.rcvd
    if received is not None and received.code == TURNED_AWAY and received.reason in REASONS:
        return Fault(received.reason, "", lasting=True)
    codes = {closing.code for closing in (error.rcvd, error.sent) if closing is not None}
    if _TOO_LARGE in codes:
        who = "this side" if received is None or received.code != _TOO_LARGE else "the other side"
        return Fault("large", f"{who} takes no frame of that size", lasting=True)
    if error.rcvd is None and _NO_PONG in codes:
        return Fault(
            "away",
            "no sign of life came for 20 s: the network is cut, or the other side is stopped",
        )
    return None


def _certificate(error: BaseException, server: bool) -> Fault | None:
    """Return what either side has against the certificate of the other."""
    if not isinstance(error, ssl.SSLError):
        return None
    theirs = "the certificate of whoever dials in" if server else "the other side's certificate"
    ours = "this side's certificate is not accepted: it"
    if isinstance(error, ssl.SSLCertVerificationError):
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
    """Return machine and port of the proxy that the environment names for a coordinator, or "".

    Parameters
    ----------
    host : str
    port : int
    """
    if urllib.request.proxy_bypass(f"{host}:{port}"):
        return ""
    proxies = urllib.request.getproxies()
    address = next(
        (proxies[kind] for kind in ("wss", "socks", "https", "http") if proxies.get(kind)), ""
    )
    return address.rpartition("@")[2].rpartition("//")[2].rstrip("/")  # it may have a password


def _proxy(error: BaseException, server: bool) -> Fault | None:
    """Return what is wrong with a proxy that the environment names."""
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
        return Fault("away", "the other side ended the connection without an answer")
    if isinstance(error, InvalidHandshake):
        return Fault("unreadable", f"{_OTHER} ({_by_kind(error)})")
    return None


def _ended(error: BaseException) -> bool:
    """Return whether a connection just ended, and nothing that is no answer was received."""
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
    """Return the fault of a connection that was closed as it should be: none that has words."""
    return Fault("away", "") if isinstance(error, ConnectionClosed) else None


def _plain(reason: str) -> str:
    return re.sub(r"^(SSLV3|TLSV1|TLSV13)_ALERT_", "", reason).replace("_", " ").lower()


def _by_kind(error: BaseException) -> str:
    """Return the name of an error as words: its text may quote what was received."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
