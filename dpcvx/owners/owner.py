"""Classes for users: `RemoteOwners` for the coordinator, and `Owner` for an owner.

The module also shows an owner the progress of a run.
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
    """Owners on their own machines, which connect to ``plan.run(executor=dp.RemoteOwners(...))``.

    The model needs no data here: declare private objects by shape, ``dp.Private(shape=...)``. Every
    owner receives a request, a public document that describes the run, and accepts or refuses it.
    Owners keep their data, noise, ledgers and local variables; local variables are nan in the
    result.

    The coordinator waits `timeout` seconds for an owner that disconnects. Then the run ends, and
    the same call with the same log resumes it without repeating a release.

    Parameters
    ----------
    listen : str
        Address of the coordinator for owners, such as ``"0.0.0.0:8443"``.
    keys : str or Path
        Folder with the coordinator's key and certificate; see
        docs/guides/owners/administrator.md.
    log : str or Path, optional
        File for the owners' replies; a run that was interrupted resumes from it. It holds only
        released values.
    timeout : float
        Number of seconds to wait until an owner connects, answers, or reconnects.
    verbose : bool
        Write a line to standard error when an owner connects or disconnects, and when the run
        waits for owners.
    close : bool
        End the run in the log early, after its last complete round, and keep the released values.
        Owners that connect within `timeout` seconds end it as well; the others are left out.

    Raises
    ------
    ModelError
        If an argument is invalid, or a key is missing.
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
        File ``owner.toml``; see docs/reference/owner_toml.md for its keys.

    Attributes
    ----------
    policy : Policy
        Contents of the file.

    Raises
    ------
    ModelError
        If the file cannot be read, or is no valid policy.
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
        opened, compared with each other, and used in a connection within this process. A trial file
        is written to the ledger's folder, and removed.

        Call this before you join a run: you then find faults in your data before others can notice
        them.

        Returns
        -------
        str
            A line per private object, and lines on ledger and keys; no values.

        Raises
        ------
        DataError
            If data cannot be fetched, or do not fit their declaration; the error's text has all
            lines.
        ModelError
            If ledger or keys cannot be used; the error's text has all lines.
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
            Address of the coordinator, such as ``"wss://coordinator.example:8443"``.
        consent : callable, optional
            Function that returns whether to take part. Its argument is the requested run: print it
            to see the terms. Required if the policy contains ``ask = true``.
        seed : int, optional
            Noise seed, for studies on synthetic data: anyone who knows it can subtract the noise.
        timeout : float
            Number of seconds to try to connect to the coordinator, at first and after a lost
            connection.
        verbose : bool
            Write a line to standard error when the connection opens or is lost, and when all owners
            have agreed. In a terminal, also show the run's progress.

        Returns
        -------
        OwnResult
            Result with the local variables, for the owner alone. If no coordinator answers in time
            and the last run in the ledger is complete, the result of that run, with `heard` False.

        Raises
        ------
        ModelError
            If `consent` is missing although the policy contains ``ask = true``, if the policy names
            no keys, or if keys or certificates cannot be used.
        LedgerError
            If the folder of the ledger cannot be written.
        RefusedError
            If this owner refuses the run, if another party answers at the address, or if the
            coordinator does not answer in time (unless the last run in the ledger is complete).
        """
        check_argument("", "seed", seed, optional(integer(0).otherwise("or None")))
        check_argument("", "timeout", timeout, POSITIVE)
        # One BLAS thread, because the number of threads changes the rounding of results.
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
    """Return an owner's session for a run between machines, with its keys and audit log.

    Parameters
    ----------
    policy : Policy
    consent : callable, optional
        Function that prompts a person; needed if the policy says ``ask = true``.
    seed : int, optional
        Noise seed, for studies on synthetic data.
    watch : callable, optional
        See `Session`.

    Raises
    ------
    ModelError
        If the policy names no keys, or says ``ask = true`` and `consent` is missing.
    """
    if policy.ask and consent is None:
        raise ModelError(
            "The policy says ask = true, but nobody can be prompted here. Use dpcvx owner join, "
            "pass consent=function, or write ask = false under [accept]."
        )
    asked, identity = consent if policy.ask else None, _identity(policy)
    audit = AuditLog(OwnerFiles(policy.ledger).path("audit"))
    return Session(policy, asked, seed=seed, identity=identity, watch=watch, audit=audit)


def _identity(policy: Policy) -> PartyIdentity:
    if policy.keys is None:
        raise ModelError(
            'The policy has no keys =. Write keys = "keys", the folder that holds the keys.'
        )
    return PartyIdentity.of(policy.keys, policy.agent)


# End of the error message for a text that `listening_at` cannot parse.
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
    """Refuse to close a run early if its log is not named or does not exist."""
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
            with suppress(OSError, ValueError, AttributeError):  # standard error closed or missing
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()

    return tell


class Shown:
    """Display of a run for its owner: a line when all have agreed, and progress in a terminal.

    Parameters
    ----------
    verbose : bool
        Whether to write anything.
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
        """Show the owner that a round begins, and first of all what the run costs.

        Parameters
        ----------
        agreed : Agreement
            Agreement of the run.
        t : int
            Round, from 1.
        rounds : int
            Number of rounds of the run.
        """
        many = plural(rounds, "round")
        if self._tick is None:
            costs = f"epsilon {number(agreed.epsilon)} at delta {number(agreed.policy.delta)}"
            self.tell(f"all have agreed: {many}, which cost at most {costs} in all")
            self._tick = self._line.enter_context(share_line(many, self._verbose))
        self._tick((t - 1) / rounds)
