"""The commands on the pages for owners run as they are printed."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.owners import wire
from dpcvx.owners.cli import main
from dpcvx.owners.offers import offers_of
from dpcvx.owners.policy import read_policy
from tests.owners.federation import LOADS, NAMES, ROOT, free_port, plan_of, write

PAGES = [*sorted(ROOT.glob("docs/guides/owners/*.md")), ROOT / "docs/reference/owner_toml.md"]
PAGE = "\n".join(path.read_text() for path in PAGES)


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.M | re.S)


def commands(start):
    """Commands of the page that begin like this, without what is said of them."""
    lines = "".join(blocks("bash")).splitlines()
    found = [shlex.split(line, comments=True) for line in lines if line.startswith(start)]
    assert found
    return found


def shell(command, folder, port):
    """A process of a printed command, at another port than on the page; a person says yes."""
    assert command[0] == "dpcvx"
    said = [re.sub(r":8443$", f":{port}", part) for part in command[1:]]
    said = [part.replace("wss://coordinator:", "wss://127.0.0.1:") for part in said]
    process = subprocess.Popen(
        [sys.executable, "-m", "dpcvx", *said],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    process.stdin.write("y\n")
    process.stdin.flush()
    return process


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Folders of three owners who are asked, and of the coordinator."""
    folder = write(tmp_path_factory.mktemp("federation"), rounds=2)
    for name in NAMES:
        policy = folder / name / "owner.toml"
        policy.write_text(policy.read_text().replace("ask = false", "ask = true"))
    return folder


def test_a_run_by_the_pages_commands(federation):
    port, (coordinate,), (join,) = free_port(), commands("dpcvx coord"), commands("dpcvx owner jo")
    as_json = ["--log-format", "json"]
    parties = [shell([*coordinate, *as_json], federation / "coordinator", port)]
    parties += [shell(join, federation / name, port) for name in NAMES[:-1]]
    parties += [shell([*join, *as_json], federation / NAMES[-1], port)]
    try:
        said = [party.communicate(timeout=120)[0] for party in parties]
    finally:
        for party in parties:
            party.kill()
            party.wait()
    assert [party.returncode for party in parties] == [0] * 4, said
    assert all("take part? [y/N]" in one and "the run is over" in one for one in said[1:])
    # Lines of JSON on request: who did what, no value, and no line beside them.
    for text, logger in ((said[0], "coordinator"), (said[-1], "owner")):
        lines = [line for line in text.splitlines() if line.startswith("{")]
        told = [json.loads(line) for line in lines]
        assert {line["logger"] for line in told} == {f"dpcvx.{logger}"}
        events = {line["event"] for line in told}
        assert {"listening", "began", "ended"} <= events or {"connected", "finished"} <= events
        assert not any(f"{value:.4f}" in str(told) for value in np.concatenate([*LOADS.values()]))
    assert "\nconnected to" in f"\n{said[1]}" and "\nconnected to" not in f"\n{said[-1]}"
    with np.load(federation / "coordinator" / "shared.npz") as shared:
        assert np.isfinite(shared["tie"]).all()
    for name in NAMES:
        spent = dp.Ledger.load(federation / name / "spent.jsonl").spent()
        assert spent == pytest.approx(1.0, rel=1e-6)


def test_owners_look_at_data_and_offers_by_the_pages_commands(federation, monkeypatch, capsys):
    monkeypatch.chdir(federation / "north")
    Path("spent.jsonl.offer.dpx").write_bytes(wire.encode(offers_of(plan_of(federation), "r")[0]))
    (check,), (inspect,) = commands("dpcvx owner check"), commands("dpcvx inspect")
    assert main(check[1:]) == 0
    assert "fits its declaration" in capsys.readouterr().out
    Path("spent.jsonl").unlink(missing_ok=True)  # of the run of another test
    assert main(inspect[1:]) == 0
    assert "costs      epsilon 1 of 1" in capsys.readouterr().out


def test_the_authority_works_by_the_pages_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    authority, request, sign = commands("dpcvx keys")
    assert main(authority[1:]) == 0 and main(request[1:]) == 0
    shutil.copy("keys/zone_1.csr", ".")  # handed over
    assert main(sign[1:]) == 0
    assert "the certificate of 'zone 1'" in capsys.readouterr().out
    assert Path("zone_1.crt").exists() and Path("authority/ca.crt").exists()


MODEL = """
import cvxpy as cp, dpcvx as dp
x = cp.Variable((4, 2))
d = dp.Private(shape=(4, 2), name="load of zone 1", adjacency=dp.Within(0.01))
e = dp.Private(shape=(4, 2), name="load of zone 2", adjacency=dp.Within(0.01))
agents = [dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="zone 1"),
          dp.Agent(cp.Minimize(cp.sum_squares(x - e)), name="zone 2")]
plan = dp.Problem(agents).plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)
"""


def test_the_policy_on_the_page_is_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (text,) = blocks("toml")
    np.savetxt("loads.csv", np.ones((4, 2)), delimiter=",")
    Path("model.py").write_text(MODEL)
    text = text.replace("sha256:...", f"sha256:{'0' * 64}")
    Path("owner.toml").write_text(text)
    assert main(["keys", "study", "study", "zone 1"]) == 0
    shutil.copytree("study/zone_1/keys", "keys")
    assert main(["owner", "check", "owner.toml"]) == 0
    policy = read_policy("owner.toml")
    assert policy.ask and policy.max_colluders is None and policy.reply_after == 0.5
    # What stands there as a comment can be written; of within and rows, one.
    text = re.sub(r"^# (max_colluders|nonneg)", r"\1", text, flags=re.M)
    text = re.sub(r"^within.*\n# (rows)", r"\1", text, flags=re.M)
    Path("owner.toml").write_text(text)
    policy = read_policy("owner.toml")
    (held,) = policy.data.values()
    assert policy.max_colluders == 1 and held.spec.sign == "nonneg"
    assert held.spec.adjacency == dp.Rows(
        1.0, relation="replace_one", records="person", clip_rows=True
    )
