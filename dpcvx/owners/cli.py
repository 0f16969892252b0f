"""The command ``dpcvx``: make keys, run as coordinator or as owner, and compile ahead of runs."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .._events import json_lines
from ..errors import BudgetError, DpcvxError, LedgerError, ModelError, RefusedError
from ..run.live import run_plan
from ..solvers.newton import compile_ahead
from .agreement import Agreement, against_ledger, agree, read_offer, said_of_budget
from .audit_log import report
from .coordinator import Remote
from .faults import file_words
from .files import write_whole
from .keys import (
    fingerprint_of_file,
    make_authority,
    make_request,
    make_study,
    revoke,
    sign_request,
)
from .link import require_address
from .messages import refused
from .owner import NO_LISTENING, Owner, RemoteOwners, listening_at
from .policy import model_plan, read_policy, require_model


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code.

    The code is 0 for success, 1 for an error, and 128 plus the signal's number if a signal stopped
    the command: 130 for Ctrl+C, 143 for SIGTERM, 129 for SIGHUP.

    Parameters
    ----------
    arguments : sequence of str, optional
        Arguments of the command line; the process's arguments if omitted.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # the locale may be unable to encode some names
            stream.reconfigure(errors="backslashreplace")
    asked, stopped = _parser().parse_args(arguments), [int(signal.SIGINT)]
    try:
        with _signals_stop(stopped):
            asked.do(asked)
    except RefusedError as error:
        sys.stderr.write(f"{error.code}: {error}\n")
        return 1
    except DpcvxError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{file_words(error, error.filename, 'used')}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("stopped; run the same command again to resume\n")
        return 128 + stopped[-1]
    return 0


@contextmanager
def _signals_stop(stopped: list[int]) -> Iterator[None]:
    """Let SIGTERM and SIGHUP stop a command as Ctrl+C does, and append their numbers to a list.

    Service managers send SIGTERM, and a terminal that closes sends SIGHUP. A signal that the caller
    ignores, as under nohup, stays ignored. Other threads cannot set handlers, so nothing changes
    there.
    """

    def stop(number: int, frame: object) -> None:
        stopped.append(number)
        raise KeyboardInterrupt

    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    main_thread = threading.current_thread() is threading.main_thread()
    earlier = {n: signal.getsignal(n) for n in numbers if n is not None and main_thread}
    earlier = {n: handler for n, handler in earlier.items() if handler == signal.SIG_DFL}
    for number in earlier:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    about = "Make keys, coordinate a run, and take part in one as an owner."
    parser = argparse.ArgumentParser(prog="dpcvx", description=about)
    commands = parser.add_subparsers(required=True, metavar="command")

    keys = commands.add_parser("keys", help="make certificates for owners and coordinator")
    made = keys.add_subparsers(required=True, metavar="command")
    authority = made.add_parser(
        "authority", help="make the certificate authority, once per federation"
    )
    authority.add_argument(
        "folder", type=Path, help="new folder for the authority's key and certificate"
    )
    _signing(
        authority, "replace the authority's own certificate; certificates that it signed stay valid"
    )
    authority.set_defaults(do=_authority)
    study = made.add_parser("study", help="make the keys of a whole study at once, in one place")
    study.add_argument("folder", type=Path, help="new folder for authority, coordinator and owners")
    study.add_argument("names", nargs="+", metavar="name", help="name of an agent")
    _signing(study)
    study.set_defaults(do=_study)
    request = made.add_parser("request", help="make a key and a certificate request")
    request.add_argument("name", help="name of the agent, or coordinator")
    _option(request, "--keys", Path, "keys", "FOLDER", "new folder for the key and NAME.csr")
    request.set_defaults(do=_request)
    sign = made.add_parser("sign", help="sign a certificate request with the authority's key")
    sign.add_argument("folder", type=Path, help="folder of the authority")
    sign.add_argument(
        "request", type=Path, help="request NAME.csr; the command writes the certificate beside it"
    )
    _signing(sign, "replace the earlier certificate of the same name")
    sign.set_defaults(do=_sign)
    gone = made.add_parser("revoke", help="revoke a certificate, by the authority's list ca.crl")
    gone.add_argument("folder", type=Path, help="folder of the authority")
    gone.add_argument("certificate", type=Path, help="certificate NAME.crt")
    gone.set_defaults(do=_revoke)
    print_ = made.add_parser(
        "fingerprint", help="print the fingerprint of a certificate, for owner.toml"
    )
    print_.add_argument("certificate", type=Path, help="certificate, such as coordinator.crt")
    print_.set_defaults(do=_fingerprint)

    coordinate = commands.add_parser("coordinate", help="run a plan with owners that connect")
    coordinate.add_argument(
        "model", type=Path, help="Python file that makes the plan, without data"
    )
    _option(
        coordinate,
        "--listen",
        _listen,
        "0.0.0.0:8443",
        "HOST:PORT",
        "address at which owners connect",
    )
    _option(
        coordinate,
        "--keys",
        Path,
        "keys",
        "FOLDER",
        "folder of coordinator.key, coordinator.crt and ca.crt",
    )
    log = "file of owners' replies, from which a stopped run resumes; name a new one for a new run"
    _log_format(coordinate)
    _option(coordinate, "--log", Path, "run.dpx", "FILE", log)
    _option(
        coordinate,
        "--timeout",
        _seconds,
        "600",
        "SECONDS",
        "time limit for an owner to connect, to reply, or to reconnect",
    )
    early = (
        "end the run in the log early, with the owners who connect, and keep the released values"
    )
    coordinate.add_argument("--close", action="store_true", help=early)
    coordinate.add_argument(
        "--out", type=_output, metavar="FILE.npz", help="file for the shared variables"
    )
    coordinate.set_defaults(do=_coordinate)

    owner = commands.add_parser("owner", help="take part in runs as an owner")
    does = owner.add_subparsers(required=True, metavar="command")
    check = does.add_parser("check", help="check that data and keys fit the policy; sends nothing")
    check.add_argument("policy", type=Path, help="the owner's policy, owner.toml")
    check.set_defaults(do=_check)
    join = does.add_parser("join", help="take part in a run, with the data that the policy names")
    join.add_argument("policy", type=Path, help="the owner's policy, owner.toml")
    where = "the coordinator's address"
    join.add_argument(
        "--connect", type=_address, required=True, metavar="wss://HOST:PORT", help=where
    )
    _option(
        join,
        "--timeout",
        _seconds,
        "600",
        "SECONDS",
        "time limit for reaching the coordinator, at first and after a lost connection",
    )
    _log_format(join)
    seed = "noise seed, for tests on synthetic data only: it voids the guarantee"
    join.add_argument("--seed", type=_seed, help=seed)
    join.add_argument(
        "--out",
        type=_output,
        metavar="FILE.npz",
        help="file for this owner's own variables, for you alone",
    )
    join.set_defaults(do=_join)

    audit = commands.add_parser(
        "audit-log", help="verify an owner's audit log, and print a summary"
    )
    audit.add_argument(
        "log", type=Path, help="audit log, such as spent.jsonl.audit, beside its ledger"
    )
    audit.set_defaults(do=_audit)

    inspect = commands.add_parser(
        "inspect", help="print the requests of an offer, and its privacy cost"
    )
    inspect.add_argument(
        "offer", type=Path, help="offer of a coordinator, such as spent.jsonl.offer.dpx"
    )
    inspect.add_argument(
        "--policy", type=Path, required=True, help="the owner's policy, owner.toml"
    )
    inspect.set_defaults(do=_inspect)

    warm = commands.add_parser(
        "warm", help="compile local steps before the first run, once per machine"
    )
    warm.set_defaults(do=_warm)
    return parser


def _signing(parser: argparse.ArgumentParser, renew: str = "") -> None:
    """Add the options of commands that sign certificates to the parser."""
    _option(parser, "--days", _days, "1825", "DAYS", "days until the certificate expires")
    if renew:
        parser.add_argument("--renew", action="store_true", help=renew)


def _log_format(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses the format of messages on standard error to the parser."""
    said = "format of standard error: sentences, or a JSON object per event (default: text)"
    parser.add_argument("--log-format", choices=["text", "json"], default="text", help=said)


@contextmanager
def _logged(log_format: str) -> Iterator[bool]:
    """Write events as JSON lines for the format 'json'; yield whether to write sentences."""
    if log_format == "text":
        yield True
        return
    with json_lines(sys.stderr):
        yield False


def _days(text: str) -> int:
    """Parse a certificate's number of days, from 1 to 36499."""
    days = int(text) if text.isdecimal() else 0
    if not 0 < days < 36500:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no number of days from 1 to 36499. Write one, such as 365"
        )
    return days


def _seconds(text: str) -> float:
    """Parse a positive finite number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no positive number of seconds. Write one, such as 600"
        )
    return seconds


def _seed(text: str) -> int:
    """Parse a noise seed, a whole number of at least 0."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no whole number of at least 0. Write one, such as 1, or omit --seed"
        )
    return int(text)


def _listen(text: str) -> str:
    """Return an address HOST:PORT to listen at, after checking its form."""
    if listening_at(text) is None:
        raise argparse.ArgumentTypeError(f"'{text}' {NO_LISTENING}")
    return text


def _address(text: str) -> str:
    """Return the address of a coordinator, after checking its form."""
    try:
        require_address(text)
    except ModelError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _option(
    parser: argparse.ArgumentParser,
    flag: str,
    kind: Callable[[str], object],
    default: str,
    metavar: str,
    what: str,
) -> None:
    """Add an optional argument to the parser, with its default in the help."""
    said = f"{what} (default: %(default)s)"
    parser.add_argument(flag, type=kind, default=default, metavar=metavar, help=said)


def _output(text: str) -> Path:
    """Return the path of an output file; refuse it before a run if nothing can be written there."""
    path = Path(text)
    if path.is_dir():
        why = "is a folder. Name a file"
    elif not path.parent.is_dir():
        why = "is in a folder that does not exist. Make the folder, or name another file"
    elif not os.access(path.parent, os.W_OK):
        why = "is in a folder that you cannot write. Name a file in another folder"
    else:
        return path
    raise argparse.ArgumentTypeError(f"'{text}' {why}: the variables could not be saved")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _save(path: Path, arrays: Mapping[str, NDArray[np.float64]]) -> None:
    """Save arrays to a file that only the user can read, since they may hold local variables."""
    content = BytesIO()
    np.savez(content, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        said = file_words(error, path, "written").removesuffix(".")
        raise refused(
            "storage", f"{said}. The run is over: the same command writes this file, and no more"
        ) from None


def _authority(asked: argparse.Namespace) -> None:
    path = make_authority(asked.folder, days=asked.days, renew=asked.renew)
    _say(f"{path}: give this to every owner and to the coordinator; ca.key stays here")


def _request(asked: argparse.Namespace) -> None:
    path = make_request(asked.keys, asked.name)
    _say(f"{path}: send this to the authority; the key stays here")


def _sign(asked: argparse.Namespace) -> None:
    name, path = sign_request(asked.folder, asked.request, days=asked.days, renew=asked.renew)
    _say(f"{path}: the certificate of '{name}', {fingerprint_of_file(path)}")


def _study(asked: argparse.Namespace) -> None:
    first, *others = make_study(asked.folder, asked.names, days=asked.days)
    pinned = fingerprint_of_file(first / "coordinator.crt")
    for path in (first, *others):
        _say(f"{path}: hand this folder to its party alone, over a safe channel")
    _say(f'coordinator = "{pinned}" belongs into every owner.toml; authority stays with you')


def _revoke(asked: argparse.Namespace) -> None:
    path = revoke(asked.folder, asked.certificate)
    _say(f"{path}: give this to every owner and to the coordinator, next to ca.crt")


def _fingerprint(asked: argparse.Namespace) -> None:
    _say(fingerprint_of_file(asked.certificate))


def _coordinate(asked: argparse.Namespace) -> None:
    require_model(asked.model)
    with _logged(asked.log_format) as verbose:
        executor = RemoteOwners(
            asked.listen,
            keys=asked.keys,
            log=asked.log,
            timeout=asked.timeout,
            verbose=verbose,
            close=asked.close,
        )
        lead(asked.model, executor, asked.out)


def lead(model: Path, executor: Remote, out: Path | None) -> None:
    """Run a plan as the coordinator.

    Parameters
    ----------
    model : Path
        Python file that makes a plan; it is executed, so it must be trusted.
    executor : Remote
        Executor whose agents are the owners.
    out : Path or None
        File to save the shared variables in, if any.

    Raises
    ------
    DpcvxError
        If the file makes no plan, or the run ends early.
    """
    plan = model_plan(model)
    result = run_plan(
        plan,
        data={},
        seed=None,
        tolerance=None,
        record=False,
        iterates=False,
        ledger=None,
        executor=executor,
        verbose=True,
    )
    if out is not None:
        shared = {v.name(): result.solution[v] for v in plan.problem.variables()}
        complete = {name: x for name, x in shared.items() if not np.isnan(x).all()}
        _save(out, complete)
        if not complete:
            _say(
                f"{out} holds no variables, because the agents share none. Each owner writes its "
                "own variables on its side: dpcvx owner join --out FILE.npz"
            )


def _check(asked: argparse.Namespace) -> None:
    _say(Owner(asked.policy).check())


def _join(asked: argparse.Namespace) -> None:
    with _logged(asked.log_format) as verbose:
        result = Owner(asked.policy).join(
            asked.connect,
            consent=_consent,
            seed=asked.seed,
            timeout=asked.timeout,
            verbose=verbose,
        )
    if asked.out is not None and result.last:
        _save(asked.out, result.last)
    _say(f"the run is over: {result.status} after {result.rounds} rounds")


def _audit(asked: argparse.Namespace) -> None:
    _say(report(asked.log))


def _warm(asked: argparse.Namespace) -> None:
    _say(compile_ahead())


def _consent(agreement: Agreement) -> bool:
    _say(str(agreement))
    sys.stdout.write("take part? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _inspect(asked: argparse.Namespace) -> None:
    policy = read_policy(asked.policy)
    try:
        offer = read_offer(asked.offer.read_bytes())
    except OSError as error:
        raise LedgerError(f"The request {file_words(error, asked.offer, 'read')}") from None
    except RefusedError as error:
        if error.code != "unreadable":
            raise
        raise LedgerError(
            f"The file '{asked.offer.name}' is no request of a coordinator. Name the one that "
            "dpcvx owner join wrote beside the ledger, such as spent.jsonl.offer.dpx."
        ) from None
    agreed = agree(offer, policy)
    try:
        agreed = against_ledger(agreed, seeded=False)
    except BudgetError as error:
        _say(str(replace(agreed, spent=error.spent)))
        raise refused("spent", said_of_budget(error)) from None
    _say(str(agreed))
