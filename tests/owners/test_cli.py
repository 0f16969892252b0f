"""The command: keys, checks and inspections; `test_link` and the campaign of kills run the rest."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.owners import cli, wire
from dpcvx.owners.cli import main
from dpcvx.owners.offers import offers_of
from tests.owners.federation import plan_of, write
from tests.owners.settings import offered, planned
from tests.owners.test_offers import LOADS, tied

ROOT = Path(__file__).parents[2]


def test_the_command_imports_nothing_that_few_plans_need():
    """An owner that was killed is to be back soon, and imports are nearly all of its start."""
    unwanted = "{'dp_accounting', 'matplotlib', 'networkx', 'distributed', 'mpi4py'}"
    code = f"import sys, dpcvx.owners.cli; print({unwanted} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_python_runs_the_package_as_the_command_itself():
    command = [sys.executable, "-m", "dpcvx", "keys", "fingerprint"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and not refused.stdout
    assert refused.stderr.startswith("usage: dpcvx keys fingerprint ")


@pytest.mark.parametrize(
    ("module", "package"), [("dpcvx", "cryptography"), ("examples.three_owners", "websockets")]
)
def test_the_command_without_its_packages_says_what_to_install(module, package, tmp_path):
    """As after ``pip install dpcvx`` without the extra."""
    code = (
        "import importlib.util, runpy, sys\n"
        "find = importlib.util.find_spec\n"
        f"hide = lambda name, *more: None if name == {package!r} else find(name, *more)\n"
        "importlib.util.find_spec = hide\n"
        f"sys.modules[{package!r}] = None\n"
        f"sys.argv = ['dpcvx', '--help']\n"
        f"runpy.run_module({module!r}, run_name='__main__')\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not done.stdout
    (said,) = done.stderr.splitlines()
    assert f"need the package {package}" in said and "pip install 'dpcvx[owners]'" in said


@pytest.fixture
def handled():
    """Signals as in a terminal; in the background and under nohup, some are ignored."""
    usual = {signal.SIGINT: signal.default_int_handler}
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {n: signal.signal(n, usual.get(n, signal.SIG_DFL)) for n in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_signals_stop_a_command_with_a_sentence(name, code, handled, monkeypatch, capsys):
    number = getattr(signal, name)
    before = signal.getsignal(number)
    monkeypatch.setattr(cli, "_fingerprint", lambda asked: os.kill(os.getpid(), number))
    assert main(["keys", "fingerprint", "coordinator.crt"]) == code
    assert capsys.readouterr().err == "stopped; run the same command again to resume\n"
    assert signal.getsignal(number) == before


def test_a_signal_that_the_caller_ignores_stays_ignored(handled, monkeypatch):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    monkeypatch.setattr(cli, "_fingerprint", lambda asked: os.kill(os.getpid(), signal.SIGHUP))
    assert main(["keys", "fingerprint", "coordinator.crt"]) == 0


def test_names_without_their_packages_say_what_to_install():
    code = "import sys, dpcvx as dp\nsys.modules['websockets'] = None\ndp.Owner"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert "ModelError: dp.Owner cannot be used. Runs between owners need" in last


def test_the_installed_command_is_the_module():
    (command,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].values()
    module, _, function = command.partition(":")
    assert module == "dpcvx.__main__" and callable(getattr(import_module(module), function))


@pytest.fixture(scope="module")
def equipped(tmp_path_factory):
    """A folder with an authority, a coordinator's keys and a model."""
    folder = tmp_path_factory.mktemp("equipped")
    (folder / "folder").mkdir()
    (folder / "empty").touch()
    (folder / "model.py").write_text("from tests.owners.test_offers import tied\nplan = tied()\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["keys", "authority", "authority"])
        main(["keys", "request", "coordinator"])
        main(["keys", "sign", "authority", "keys/coordinator.csr"])
        shutil.copy("authority/ca.crt", "keys/ca.crt")
    return folder


def test_a_disk_that_is_full_when_variables_are_saved_keeps_the_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "shared.npz"
    cli._save(path, {"x": np.arange(3.0)})
    before = path.read_bytes()

    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(dp.RefusedError, match="'shared.npz' cannot be written: no space") as full:
        cli._save(path, {"x": np.arange(4.0)})
    assert full.value.code == "storage" and "the same command writes this file" in str(full.value)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("place", ["nowhere", "nowhere/deeper", "folder", "empty", os.devnull])
@pytest.mark.parametrize(
    "command",
    [
        "keys fingerprint PLACE", "keys sign PLACE PLACE", "keys sign authority PLACE",
        "keys authority PLACE/ca.crt", "keys request north --keys empty",
        "coordinate model.py --keys keys --listen 127.0.0.1:0 --timeout 0.1 --log PLACE/log",
        "coordinate model.py --keys keys --listen 127.0.0.1:0 --timeout 0.1 --log PLACE",
        "coordinate PLACE", "inspect PLACE --policy PLACE", "owner check PLACE",
    ],
)  # fmt: skip
def test_commands_on_wrong_files_say_so_in_a_line(
    command, place, equipped, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(shutil.copytree(equipped, tmp_path / "equipped"))
    code = main(command.replace("PLACE", place).split())
    said = capsys.readouterr()
    works = "authority PLACE/ca.crt" in command and place in ("nowhere", "nowhere/deeper", "folder")
    assert code == (0 if works else 1)
    assert works or (said.err and "Traceback" not in said.err)


def test_keys_are_made_asked_for_and_signed(tmp_path, capsys):
    authority, own = tmp_path / "authority", tmp_path / "north"
    assert main(["keys", "authority", str(authority)]) == 0
    assert main(["keys", "request", "north", "--keys", str(own)]) == 0
    assert main(["keys", "sign", str(authority), str(own / "north.csr")]) == 0
    said = capsys.readouterr().out
    assert "the certificate of 'north', sha256:" in said
    assert main(["keys", "fingerprint", str(own / "north.crt")]) == 0
    assert capsys.readouterr().out.strip() in said
    assert (own / "north.key").stat().st_mode & 0o077 == 0
    # Nothing is replaced.
    assert main(["keys", "authority", str(authority)]) == 1
    assert main(["keys", "request", "north", "--keys", str(own)]) == 1
    assert "does not replace it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (
            "coordinate",
            {"listen": "0.0.0.0:8443", "keys": "keys", "log": "run.dpx", "timeout": "600"},
        ),
        ("owner join", {"timeout": "600"}),
        ("keys request", {"keys": "keys"}),
    ],
)
def test_help_says_what_every_option_is_and_what_holds_without_it(capsys, command, options):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    entries = re.split(r"\n  (?=-)", capsys.readouterr().out.split("options:")[1])[1:]
    said = {name.lstrip("-"): " ".join(words) for name, *words in map(str.split, entries)}
    assert all(len(words.split()) > 1 for words in said.values()), said
    for name, default in options.items():
        assert said[name].endswith(f"(default: {default})")


def test_requests_that_are_none_are_refused(tmp_path, capsys):
    main(["keys", "authority", str(tmp_path)])
    (tmp_path / "x.csr").write_text("no request")
    assert main(["keys", "sign", str(tmp_path), str(tmp_path / "x.csr")]) == 1
    assert "no request for a certificate" in capsys.readouterr().err
    assert main(["keys", "sign", str(tmp_path), str(tmp_path / "none.csr")]) == 1
    assert "'none.csr' cannot be read: no such file" in capsys.readouterr().err
    assert main(["keys", "request", "a\nb", "--keys", str(tmp_path)]) == 1


def test_owners_check_data_and_inspect_offers(tmp_path, capsys):
    place = write(tmp_path)
    policy = place / "north" / "owner.toml"
    assert main(["owner", "check", str(policy)]) == 0
    said = capsys.readouterr().out
    assert "load of north: fits its declaration" in said and "0.314" not in said
    assert "keys: the key, its certificate and ca.crt belong together, and connect" in said
    assert "ledger: 'spent.jsonl' is created in the first run" in said
    key = place / "north" / "keys" / "north.key"
    key.rename(tmp_path / "away.key")
    assert main(["owner", "check", str(policy)]) == 1
    said = capsys.readouterr().err
    assert "keys: you cannot join yet. The folder of keys has no 'north.key'" in said
    offer = tmp_path / "offer.dpx"
    offer.write_bytes(wire.encode(offers_of(plan_of(place), "a run")[0]))
    assert main(["inspect", str(offer), "--policy", str(policy)]) == 0
    said = capsys.readouterr().out
    assert "agent north with 2 others" in said and "costs      epsilon 1 of 1 at" in said
    text = policy.read_text().replace("epsilon = 1.0", "epsilon = 0.1")
    policy.write_text(text)
    assert main(["inspect", str(offer), "--policy", str(policy)]) == 1
    assert capsys.readouterr().err.startswith("budget: The run costs more than the owner allows")
    (place / "north" / "load.csv").write_text("1\n2\n")
    assert main(["owner", "check", str(policy)]) == 1


def test_inspect_counts_what_is_spent_and_its_advice_pays_for_the_whole_run(tmp_path, capsys):
    plan = planned(rounds=30)
    plan.run(executor=dp.LoopbackOwners(plan, folder=tmp_path, seed=1), verbose=False)
    offer, _ = offered(plan, tmp_path)
    document = tmp_path / "offer.dpx"
    document.write_bytes(wire.encode(offer))
    (spec,) = offer.program.form.private
    policy = tmp_path / "owner.toml"
    text = (
        f'agent = "{offer.agent}"\nledger = "agent-0.jsonl"\n[budget]\nepsilon = EPSILON\n'
        f'delta = 1e-6\n[data."{spec.name}"]\nfile = "d.csv"\nshape = {list(spec.shape)}\n'
        f"within = {spec.adjacency.radius}\n"
    )

    def inspected(epsilon):
        policy.write_text(text.replace("EPSILON", str(epsilon)))
        code, said = main(["inspect", str(document), "--policy", str(policy)]), capsys.readouterr()
        return code, " ".join(said.out.split()), said.err

    code, said, why = inspected(1.02)
    assert code == 1 and "of 1.02, of which" in said and "is spent already" in said
    advised = float(re.search(r"epsilon = (\S+) under \[budget\]", why).group(1))
    code, said, why = inspected(advised)
    assert (code, why) == (0, "") and "that is left pays for" not in said
    code, said, _ = inspected(round(1 + 0.6 * (advised - 1), 3))
    assert code == 0 and re.search(r"that is left pays for \d+ rounds", said)


def test_a_coordinator_of_agents_that_share_nothing_says_so(tmp_path, capsys):
    model = tmp_path / "model.py"
    model.write_text("from tests.owners.test_offers import tied\nplan = tied()\n")
    cli.lead(model, dp.LoopbackOwners(tied(), data=LOADS, seed=1), tmp_path / "shared.npz")
    said = capsys.readouterr().out
    assert "holds no variables, because the agents share none" in said
    assert np.load(tmp_path / "shared.npz").files == []


def test_what_an_owner_saves_is_for_its_eyes_only(tmp_path):
    path = tmp_path / "own.npz"
    path.write_bytes(b"what stood there, for all to read")
    cli._save(path, {"x": np.arange(3.0)})
    assert path.stat().st_mode & 0o777 == 0o600
    assert np.load(path)["x"].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "command",
    [["coordinate", "model.py"], ["owner", "join", "owner.toml", "--connect", "wss://h:1"]],
)
def test_out_without_folder_is_refused_before_a_run(tmp_path, capsys, command):
    cases = {
        tmp_path / "missing" / "x.npz": "is in a folder that does not exist",
        tmp_path: "is a folder",
    }
    for out, why in cases.items():
        with pytest.raises(SystemExit, match="2"):
            main([*command, "--out", str(out)])
        assert why in " ".join(capsys.readouterr().err.split())


def test_out_in_a_folder_that_nobody_can_write_is_refused_before_a_run(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(cli.os, "access", lambda path, mode: False)
    with pytest.raises(SystemExit, match="2"):
        main(["coordinate", "model.py", "--out", str(tmp_path / "x.npz")])
    assert "is in a folder that you cannot write" in " ".join(capsys.readouterr().err.split())


MISTAKES = {
    "coordinate none.py": "The model 'none.py' does not exist.",
    "coordinate model.py --keys empty": "The folder of keys 'empty' is a file.",
    "coordinate model.py --keys .": "The folder of keys has no 'coordinator.key'. Name",
    "coordinate model.py --close --log mistyped.dpx": "The log 'mistyped.dpx' does not exist",
    "coordinate model.py --listen 99": "argument --listen: '99' is no address to listen at.",
    "coordinate model.py --timeout nan": "argument --timeout: 'nan' is no positive number",
    "owner join owner.toml --connect h:1": "argument --connect: The address 'h:1' is no",
    "owner join owner.toml --connect wss://h:1 --seed -1": "argument --seed: '-1' is no whole",
    "keys authority empty": "'empty' is a file, but a folder is needed.",
    "keys revoke keys keys/coordinator.crt": "The folder 'keys' is no authority",
    "keys sign none keys/coordinator.csr": "The folder 'none' of the authority does not exist.",
    "keys fingerprint keys/coordinator.key": "'coordinator.key' is no certificate",
    "keys authority a --days 0": "argument --days: '0' is no number of days",
    "inspect model.py --policy owner.toml": "The file 'model.py' is no request",
    "inspect none.dpx --policy owner.toml": "The request 'none.dpx' cannot be read",
    "audit-log model.py": "'model.py' is no audit log",
    "audit-log none": "The audit log 'none' cannot be read: no such file",
}


def test_mistakes_are_named_as_they_were_typed(equipped, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(shutil.copytree(equipped, tmp_path / "equipped"))
    Path("owner.toml").write_text(
        'agent = "north"\nledger = "spent.jsonl"\n[budget]\nepsilon = 1.0\ndelta = 1e-6\n'
    )
    before = sorted(Path().rglob("*"))
    for command, said in MISTAKES.items():
        try:
            code = main(command.split())
        except SystemExit as refused:  # of argparse
            code = refused.code
        error = capsys.readouterr().err.splitlines()[-1]
        assert code in (1, 2) and said in error, (command, error)
        assert "dp." not in error and "Errno" not in error, (command, error)
    assert sorted(Path().rglob("*")) == before
