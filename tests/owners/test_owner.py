"""What an owner sees of its part in a run: that all have agreed, and how far it is."""

import errno
import io
import os
import sys

import pytest

import dpcvx as dp
from dpcvx.owners import keys
from dpcvx.owners.agreement import Agreement
from dpcvx.owners.audit_log import AuditLog
from dpcvx.owners.faults import file_words
from dpcvx.owners.files import CoordinatorLog, OwnerFiles
from dpcvx.owners.messages import AgentReply
from dpcvx.owners.owner import Shown
from dpcvx.owners.session import Session
from dpcvx.privacy import ledger_file
from tests.owners.federation import write
from tests.owners.settings import answer, offered, planned
from tests.owners.test_session import call


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_folder_that_takes_no_locks_is_named_by_check_and_before_a_run(
    tmp_path, monkeypatch, number
):
    def fails(*arguments):
        raise OSError(number, os.strerror(number))

    owner = dp.Owner(write(tmp_path) / "north" / "owner.toml")
    monkeypatch.setattr(ledger_file.fcntl, "flock", fails)
    said = "'spent.jsonl.trial' cannot be locked: .* takes no locks.* a disk of this machine"
    with pytest.raises(dp.ModelError, match=f"ledger: you cannot join yet. {said}"):
        owner.check()
    with pytest.raises(dp.LedgerError, match=said):
        owner.join("wss://127.0.0.1:1", timeout=0.1)
    with pytest.raises(dp.LedgerError, match="'spent.jsonl.lock' cannot be locked"):
        with OwnerFiles(owner.policy.ledger).alone():
            pass
    with pytest.raises(dp.LedgerError, match="'run.dpx' cannot be locked"):
        CoordinatorLog(tmp_path / "run.dpx")
    assert not (tmp_path / "north/spent.jsonl.trial").exists()


@pytest.mark.parametrize(
    "what", ["audit", "final.dpx", "lock", "log", "own.dpx", "seen", "yes.dpx"]
)
def test_a_file_beside_the_ledger_that_is_anothers_is_named_by_check(tmp_path, monkeypatch, what):
    owner, opens = dp.Owner(write(tmp_path) / "north" / "owner.toml"), os.open
    path = OwnerFiles(owner.policy.ledger).path(what)
    path.touch()

    def denied(place, *arguments, **named):
        if os.fspath(place) == os.fspath(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        return opens(place, *arguments, **named)

    monkeypatch.setattr(os, "open", denied)
    done = "read" if what.endswith("dpx") else "written"
    said = f"'spent.jsonl.{what}' cannot be {done}: permission denied. Give the user"
    with pytest.raises(dp.ModelError, match=f"ledger: you cannot join yet. .*{said}"):
        owner.check()
    with pytest.raises(dp.LedgerError, match=said):
        owner.join("wss://127.0.0.1:1", timeout=0.1)


def test_a_damaged_audit_log_is_named_by_check_and_before_a_run(tmp_path):
    owner = dp.Owner(write(tmp_path) / "north" / "owner.toml")
    log = AuditLog(OwnerFiles(owner.policy.ledger).path("audit"))
    log.add("opened", agent="north")
    assert "'spent.jsonl' is created" in owner.check()
    log.path.write_bytes(log.path.read_bytes().replace(b"north", b"south"))
    said = "'spent.jsonl.audit' is not intact after 0 lines"
    with pytest.raises(dp.ModelError, match=f"ledger: you cannot join yet. .*{said}"):
        owner.check()
    with pytest.raises(dp.LedgerError, match=said):
        owner.join("wss://127.0.0.1:1", timeout=0.1)


@pytest.mark.parametrize("function", ["fsync", "pwrite"])
def test_a_disk_that_is_full_in_a_run_is_said_with_the_file(tmp_path, monkeypatch, function):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files = OwnerFiles(tmp_path / "spent.jsonl")
    files.keep("offer", b"an offer")
    monkeypatch.setattr(os, function, full)
    with pytest.raises(OSError) as error:
        if function == "fsync":
            files.keep("offer", b"another offer")
        else:
            files.lines = 3
    what = "offer.dpx" if function == "fsync" else "seen"
    assert file_words(error.value, None, "used").startswith(f"'spent.jsonl.{what}' cannot be used")
    assert files.known("offer") == b"an offer" and not files.path("offer.dpx.new").exists()


def test_drafts_that_another_user_left_are_replaced(tmp_path):
    owner = dp.Owner(write(tmp_path) / "north" / "owner.toml")
    files = OwnerFiles(owner.policy.ledger)
    for what in ("trial", "offer.dpx.new"):
        files.path(what).symlink_to(tmp_path / "elsewhere")
    owner.check()
    files.keep("offer", b"an offer")
    assert files.known("offer") == b"an offer" and not (tmp_path / "elsewhere").exists()


class Terminal(io.StringIO):
    """Where a person looks."""

    def isatty(self):
        return True


def rounds(shown, place, count=4, plan=None):
    """An owner's first rounds."""
    offer, policy = offered(planned() if plan is None else plan, place)
    session = Session(policy, seed=1, watch=shown.round)
    answer(session, offer)
    for t in range(1, count + 1):
        for _ in range(2):  # asked again, nothing is shown again
            assert isinstance(answer(session, call(t)), AgentReply)
    session.close()


@pytest.mark.parametrize("terminal", [False, True])
def test_that_all_have_agreed_is_said_once_and_progress_on_a_terminal(
    tmp_path, monkeypatch, capsys, terminal
):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with Shown(True) as shown:
        rounds(shown, tmp_path)
    said = capsys.readouterr().err
    assert said == (
        "all have agreed: 4 rounds, which cost at most epsilon 1 at delta 1e-6 in all\n"
    )
    assert ("4 rounds" in stream.getvalue()) == terminal


def test_nothing_is_shown_where_nothing_is_wanted(tmp_path, monkeypatch, capsys):
    plan, stream = planned(), Terminal()  # a plan that takes long shows how far it is
    monkeypatch.setattr(sys, "stdout", stream)
    with Shown(False) as shown:
        rounds(shown, tmp_path, plan=plan)
    assert capsys.readouterr().err == "" == stream.getvalue()


def test_what_cannot_be_written_costs_no_run(tmp_path, monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    with Shown(True) as shown:
        rounds(shown, tmp_path)


def test_an_error_passes_and_the_line_goes(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(KeyboardInterrupt), Shown(True) as shown:
        rounds(shown, tmp_path, 2)
        raise KeyboardInterrupt
    assert sys.stdout.getvalue().endswith("\x1b[?25h")  # the cursor is back


def test_only_rounds_that_are_taken_are_shown(tmp_path):
    seen = []
    offer, policy = offered(planned(), tmp_path)
    session = Session(policy, seed=1, watch=lambda *said: seen.append(said))
    answer(session, offer)
    assert not seen
    for t in (1, 1, 9, 2):  # the ninth is of no round that there is
        answer(session, call(t))
    session.close()
    assert [said[1:] for said in seen] == [(1, 4), (2, 4)]
    assert all(isinstance(said[0], Agreement) for said in seen)


@pytest.fixture
def north(tmp_path):
    return write(tmp_path) / "north"


def no_space(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


def read_only(*arguments):
    raise OSError(errno.EROFS, "Read-only file system")


@pytest.mark.parametrize("fault", [no_space, read_only])
def test_a_disk_that_takes_nothing_is_found_before_a_study(north, monkeypatch, fault):
    monkeypatch.setattr(os, "fsync", fault)
    with pytest.raises(dp.ModelError, match="folder of the ledger cannot be used") as caught:
        dp.Owner(north / "owner.toml").check()
    with pytest.raises(dp.DpcvxError, match="folder of the ledger cannot be used") as joined:
        dp.Owner(north / "owner.toml").join("wss://127.0.0.1:1", timeout=0.1, verbose=False)
    for said in map(str, (caught.value, joined.value)):
        assert ("no space left" if fault is no_space else "read-only file system") in said
        assert str(north) not in said
    assert not list(north.glob("*.trial"))


def test_all_faults_are_told_at_once(north):
    (north / "load.csv").write_text("age,bp\n")
    (north / "spent.jsonl").write_text("")
    (north / "keys/north.key").chmod(0o604)
    with pytest.raises(dp.DataError) as caught:
        dp.Owner(north / "owner.toml").check()
    said = str(caught.value)
    assert "'load.csv', line 1, column 1: no row of numbers: a header?" in said
    assert "ledger: you cannot join yet. 'spent.jsonl' is empty" in said
    assert "keys: you cannot join yet. Others on this machine may read" in said


def test_a_folder_of_the_ledger_that_is_missing_is_named(north):
    policy = north / "owner.toml"
    policy.write_text(policy.read_text().replace('"spent', '"gone/spent'))
    with pytest.raises(dp.ModelError, match=r"folder of the ledger 'spent\.jsonl' does not exist"):
        dp.Owner(policy).check()


def test_a_command_that_is_given_twice_does_no_harm(north):
    owner = dp.Owner(north / "owner.toml")
    with OwnerFiles(owner.policy.ledger).alone():
        with pytest.raises(dp.RefusedError, match="another process here uses the ledger") as caught:
            owner.join("wss://127.0.0.1:1", timeout=0.1, verbose=False)
    assert caught.value.code == "taken"


def test_certificates_that_end_soon_are_announced(tmp_path, capsys):
    place = write(tmp_path)
    for folder, name in (("north", "north"), ("coordinator", "coordinator")):
        request = place / folder / "keys" / f"{name}.csr"
        keys.sign_request(place / "authority", request, days=20, renew=True)
    owner = dp.Owner(place / "north/owner.toml")
    assert "the certificate 'north.crt' expires on" in owner.check()
    with pytest.raises(dp.RefusedError, match="nobody listens there"):
        owner.join("wss://127.0.0.1:1", timeout=0.1)
    assert "the certificate 'north.crt' expires on" in capsys.readouterr().err
    dp.RemoteOwners("127.0.0.1:0", keys=place / "coordinator/keys")
    assert "the certificate 'coordinator.crt' expires on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "make", "said"),
    [
        ("spent.jsonl", lambda path: path.symlink_to(path.name), "Its links lead in a circle"),
        ("spent.jsonl.seen", lambda path: path.write_text("x"), "holds no number of lines"),
    ],
)
def test_a_ledger_that_cannot_be_used_is_named_before_a_run(tmp_path, file, make, said):
    files = OwnerFiles(tmp_path / "spent.jsonl")
    files.require_room()
    make(tmp_path / file)
    with pytest.raises(dp.LedgerError, match=f"'{file}' .*{said}"):
        files.require_room()
