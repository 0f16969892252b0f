"""Every case file is read or refused in words, and solved as a second formulation solves it."""

from types import SimpleNamespace

from tests.campaigns import networks


def test_the_bundled_networks_agree(monkeypatch):
    monkeypatch.setattr(networks, "files", lambda: list(networks.CASES.glob("*.m")))
    tally = networks.campaign(3, seed=0)
    assert tally.counts == {"agrees": 3}
    assert tally.faults == []


def test_folders_of_the_user_are_searched_and_faults_are_found(monkeypatch, tmp_path):
    text = (networks.CASES / "pglib_opf_case3_lmbd.m").read_text()
    (tmp_path / "case3.m").write_text(text)
    (tmp_path / "case3_broken.m").write_text(text.replace("mpc.bus", "mpc.buses"))
    monkeypatch.setenv("DPCVX_NETWORKS", str(tmp_path))
    ours = [path for path in networks.files() if path.parent == tmp_path]
    monkeypatch.setattr(networks, "files", lambda: ours)
    wrong = SimpleNamespace(value=1.0, status="optimal")
    monkeypatch.setattr(networks, "central", lambda case, objective: wrong)
    tally = networks.campaign(5, seed=0)
    assert tally.counts == {"refused": 1, "DIFFERS": 1}
    (fault,) = tally.faults
    assert fault.startswith("case3.m: 1 against 5736")
