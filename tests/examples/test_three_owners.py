"""Three owners of one network: prepared folders, and all of them in one process."""

import runpy
import tempfile

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.owners.agreement import agree
from dpcvx.owners.offers import offers_of
from dpcvx.owners.policy import read_policy
from examples.three_owners import __main__ as example
from tests.examples.printing import printed


@pytest.fixture(scope="module")
def made():
    return runpy.run_path(str(example.MODEL))


def test_the_model_has_no_data(made):
    with pytest.raises(dp.DpcvxError, match="has no data"):
        made["plan"].run()


def test_folders_hold_what_each_party_needs(tmp_path, made):
    commands = example.prepare(tmp_path)
    assert len(commands) == 4 and sum("owner join" in c for c in commands) == 3
    offers = {offer.agent: offer for offer in offers_of(made["plan"], "run")}
    for agent, offer in offers.items():
        owner = dp.Owner(tmp_path / agent / "owner.toml")
        assert "fits its declaration" in owner.check()
        agreed = agree(offer, owner.policy)
        assert agreed.epsilon == pytest.approx(1.0, rel=1e-6)
        assert read_policy(tmp_path / agent / "owner.toml").ask
    assert not list((tmp_path / "coordinator").rglob("*.csv"))


def test_all_in_one_process_which_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with printed() as (lines, _):
        result = example.together()
    assert result.status.solved
    assert sum("values that only its owner has" in line for line in lines) == 3
    assert np.isnan(np.concatenate(result.last.vectors)).any()
    assert not list(tmp_path.iterdir())
