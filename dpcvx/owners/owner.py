"""Classes for users on either side: `RemoteOwners` at the coordinator, `Owner` at an owner.

An owner also sees the progress of a run.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from threadpoolctl import ThreadpoolController

from .._arguments import FLAG, PATH, POSITIVE, TEXT, check_argument, integer, optional, show
from .._words import number, plural
from ..errors import DataError, DpcvxError, ModelError, RefusedError
from ..guard import frameless
from ..run.gate import require_fit
from ..run.report import share_line
from .agreement import Agreement
from .audit_log import AuditLog
from .coordinator import Remote
from .files import CoordinatorLog, OwnerFiles, OwnResult
from .keys import COORDINATOR, PartyIdentity
from .link import SocketHub, dial
from .messages import going_on
from .policy import Held, Policy, read_policy
from .session import Session


class RemoteOwners(Remote):
    """Owners on machines of their own, which dial in: ``plan.run(executor=dp.RemoteOwners(...))``.

    The model needs no data here: declare private objects by shape, ``dp.Private(shape=...)``. Every
    agent is asked by a document what it would take part in, and its owner decides. Owners keep
    data, noise, ledgers and local variables; the result has nan in place of these.

    An owner that leaves is waited for. After that the run ends, nothing is repeated, and the same
    call with the same log resumes it.

    Parameters
    ----------
    listen : str
        Address of the coordinator for owners, such as ``"0.0.0.0:8443"``.
    keys : str or Path
        The folder with the coordinator's key and certificate; see
        docs/guides/owners/administrator.md.
    log : str or Path, optional
        A file for what owners reply, with which an interrupted run goes on. It holds nothing that
        was not released.
    timeout : float
        Seconds to wait for an owner to come, to answer, and to come back.
    verbose : bool
        Write a line to standard error when an owner comes or leaves, and whom the run waits for.
    close : bool
        End the run in the log early, after its last round, and keep what was released. Owners who
        come within `timeout` seconds end it as well; the others are left out.

    Raises
    ------
    ModelError
        If an argument is none of these, or a key is missing.
    """

    @frameless
    def __init__(
        self,
        listen: str,
        *,
        keys: str | Path,
        log: str | Path | None = None,
        timeout: float = 600.0,
        verbose: bool = True,
        close: bool = False,
    ) -> None:
        check_argument("dp.RemoteOwners", "timeout", timeout, POSITIVE)
        check_argument("dp.RemoteOwners", "close", close, FLAG)
        check_argument("dp.RemoteOwners", "verbose", verbose, FLAG)
        check_argument("dp.RemoteOwners", "keys", keys, PATH)
        check_argument("dp.RemoteOwners", "log", log, optional(PATH))
        check_argument("dp.RemoteOwners", "listen", listen, TEXT)
        if close:
            _require_log(log)
        address = listening_at(listen)
        if address is None:
            raise ModelError(f"dp.RemoteOwners(listen={show(listen)}) {NO_LISTENING}")
        host, port = address
        identity = PartyIdentity.of(Path(keys), COORDINATOR)
        tell = telling(verbose)
        for line in identity.soon():
            tell(line)
        super().__init__(
            lambda names: SocketHub(names, host, port, identity, float(timeout), tell),
            lambda: CoordinatorLog(None if log is None else Path(log)),
            lambda: uuid.uuid4().hex,
            tell,
            close,
        )


class Owner:
    """An owner with its policy: the studies that it joins, and its largest privacy loss.

    Parameters
    ----------
    policy : str or Path
        The file, ``owner.toml``; see docs/reference/owner_toml.md for what it says.

    Attributes
    ----------
    policy : Policy

    Raises
    ------
    ModelError
        If the file cannot be read, or says what no policy says.
    """

    @frameless
    def __init__(self, policy: str | Path) -> None:
        self.policy: Policy = read_policy(policy)

    def __repr__(self) -> str:
        return f"<Owner of {show(self.policy.agent)}>"

    @frameless
    def check(self) -> str:
        """Check this owner's data, ledger and keys before a run, as text; nothing is sent.

        The data are read once, and compared with their declaration. Keys and certificates are
        opened, compared with each other, and used in a connection within this process. The folder
        of the ledger has to take a file.

        Do this before taking part: whether data fit is then nobody else's to learn.

        Returns
        -------
        str
            A line per private object, and lines on ledger and keys; no values.

        Raises
        ------
        DataError
            If data cannot be fetched, or do not fit; with the same lines.
        ModelError
            If ledger or keys cannot be used; with the same lines.
        """
        lines, faults = [f"agent {self.policy.agent}"], list[DpcvxError]()

        def look(what: str, describe: Callable[[], str]) -> None:
            try:
                lines.append(f"  {what}: {describe()}")
            except DpcvxError as error:
                faults.append(error)
                lines.append(f"  {what}: you cannot join yet. {error}")

        def fits(held: Held) -> str:
            require_fit(held.spec, held.source)
            return f"fits its declaration; {held.spec.adjacency}"

        for name, held in self.policy.data.items():
            look(name, partial(fits, held))
        look("ledger", self._looked_at_ledger)
        if self.policy.keys is None:
            lines.append('  keys: the policy names none, and join needs them. Write keys = "keys"')
        else:
            look("keys", self._looked_at_keys)
        if faults:
            kind = (
                DataError if any(isinstance(fault, DataError) for fault in faults) else ModelError
            )
            raise kind("\n".join(lines))
        return "\n".join(lines)

    def _looked_at_ledger(self) -> str:
        OwnerFiles(self.policy.ledger).require_room()
        there = "is intact" if self.policy.ledger.exists() else "is created in the first run"
        return f"'{self.policy.ledger.name}' {there}; its folder can be written"

    def _looked_at_keys(self) -> str:
        identity = _identity(self.policy)
        pinned = "" if self.policy.coordinator else "; any coordinator of the authority is accepted"
        later = "".join(f"; {line}" for line in identity.soon())
        return (
            "the key, its certificate and ca.crt belong together, and connect; valid until "
            f"{identity.until}{later}{pinned}"
        )

    @frameless
    def join(
        self,
        address: str,
        *,
        consent: Callable[[Agreement], bool] | None = None,
        seed: int | None = None,
        timeout: float = 600.0,
        verbose: bool = True,
    ) -> OwnResult:
        """Take part in one run of a coordinator, to its end.

        Parameters
        ----------
        address : str
            Such as ``"wss://coordinator.example:8443"``.
        consent : callable, optional
            Is given what is asked, an object that prints, and says whether to take part; needed
            where the policy says ``ask = true``.
        seed : int, optional
            Noise seed, for studies on made-up data: anyone who knows it can subtract the noise.
        timeout : float
            Seconds to try to reach the coordinator, at first and after a loss.
        verbose : bool
            Write a line to standard error when the connection comes or goes and when all have
            agreed, and show how far the run is, where there is a terminal.

        Returns
        -------
        OwnResult
            With the local variables, for the owner alone. If nobody answers in time and the last
            run in the ledger is over, it is that run's, and its `heard` is False.

        Raises
        ------
        ModelError
            If the policy asks and there is no `consent`, names no keys, or keys or certificates
            cannot be used.
        LedgerError
            If the folder of the ledger cannot be written.
        RefusedError
            If this owner takes no part, the coordinator is a stranger, or it does not come back
            while a run is open, or before the first one.
        """
        check_argument("", "seed", seed, optional(integer(0).otherwise("or None")))
        check_argument("", "timeout", timeout, POSITIVE)
        # One thread of BLAS: its number of threads changes the rounding of its results.
        one_thread = ThreadpoolController().select(user_api="blas").limit(limits=1)
        files = OwnerFiles(self.policy.ledger)
        with Shown(verbose) as shown, one_thread, ExitStack() as open_:
            session, heard = session_of(self.policy, consent, seed, shown.round), True
            assert session.identity is not None
            files.require_room()
            open_.enter_context(files.alone())
            for line in session.identity.soon():
                shown.tell(line)
            try:
                dial(
                    address,
                    session.identity,
                    self.policy.coordinator,
                    session.hello,
                    session.reply,
                    lambda: session.over,
                    timeout=float(timeout),
                    tell=shown.tell,
                    met=session.met,
                )
            except RefusedError as error:
                if error.code != "away":
                    raise
                if not session.settled():
                    raise (going_on(error) if self.policy.ledger.exists() else error) from None
                heard = False
                shown.tell(
                    f"nobody answered for {timeout:g} s; the last run in the ledger is over, and "
                    "nothing is open"
                )
            finally:
                session.close()
            if session.refusal is not None:
                raise session.refusal
        assert session.result is not None
        return replace(session.result, heard=heard)


def session_of(
    policy: Policy,
    consent: Callable[[Agreement], bool] | None = None,
    seed: int | None = None,
    watch: Callable[[Agreement, int, int], None] | None = None,
) -> Session:
    """Return an owner's side of one run between machines.

    Parameters
    ----------
    policy : Policy
    consent : callable, optional
        Needed where the policy says ``ask = true``.
    seed : int, optional
        Noise seed, for studies on made-up data.
    watch : callable, optional
        See `Session`.

    Raises
    ------
    ModelError
        If the policy names no keys, or a person has to be asked and cannot be.
    """
    if policy.ask and consent is None:
        raise ModelError(
            "The policy says ask = true, and nobody is asked. Use dpcvx owner join, pass "
            "consent=function, or write ask = false under [accept]."
        )
    asked, identity = consent if policy.ask else None, _identity(policy)
    audit = AuditLog(OwnerFiles(policy.ledger).path("audit"))
    return Session(policy, asked, seed=seed, identity=identity, watch=watch, audit=audit)


def _identity(policy: Policy) -> PartyIdentity:
    if policy.keys is None:
        raise ModelError('The policy names no keys. Write keys = "keys", the folder with them.')
    return PartyIdentity.of(policy.keys, policy.agent)


# What is said of a text that `listening_at` does not read.
NO_LISTENING = (
    'is no address to listen at. Write host and port, such as "0.0.0.0:8443", and IPv6 in '
    'brackets, such as "[::]:8443".'
)


def listening_at(listen: str) -> tuple[str, int] | None:
    """Return host and port of an address to listen at; None if the text has no such form."""
    host, _, port = listen.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else "" if ":" in host else host
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        return None
    return host, int(port)


def _require_log(log: str | Path | None) -> None:
    """Refuse to close a run that has no log."""
    if log is None:
        raise ModelError(
            "dp.RemoteOwners(close=True) needs log=, the log of the run that is to be closed."
        )
    if not Path(log).exists():
        raise ModelError(
            f"The log '{Path(log).name}' does not exist, so there is no run to close. Name the log "
            "of the run that is to be closed; nothing was created."
        )


def telling(verbose: bool) -> Callable[[str], None]:
    """Return a function that writes a line to standard error, or does nothing.

    A failure to write does not end the run.
    """

    def tell(line: str) -> None:
        if verbose:
            with suppress(OSError, ValueError, AttributeError):  # closed, or there is none
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()

    return tell


class Shown:
    """Says once that all have agreed, and shows how far the run is, where there is a terminal.

    Parameters
    ----------
    verbose : bool
    """

    def __init__(self, verbose: bool) -> None:
        self.tell, self._verbose = telling(verbose), None if verbose else False
        self._tick: Callable[[float], None] | None = None
        self._line = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def round(self, agreed: Agreement, t: int, rounds: int) -> None:
        """Note the beginning of a round.

        Parameters
        ----------
        agreed : Agreement
        t : int
            Round, from 1.
        rounds : int
            That there are.
        """
        many = plural(rounds, "round")
        if self._tick is None:
            costs = f"epsilon {number(agreed.epsilon)} at delta {number(agreed.policy.delta)}"
            self.tell(f"all have agreed: {many}, which cost at most {costs} in all")
            self._tick = self._line.enter_context(share_line(many, self._verbose))
        self._tick((t - 1) / rounds)
