"""Malformed files and options: each ends in words, or is read as what it says."""

import time

import numpy as np
import pytest

import dpcvx as dp
from tests.campaigns import files


def test_none_of_many_malformed_inputs_ends_otherwise():
    found = files.campaign(90, seed=3)
    assert found.counts.total() == 90
    assert found.faults == []
    # Every kind of input was refused, and read, at least once; options are always refused.
    for kind in set(files.KINDS):
        assert found.counts[f"{kind.__name__} refused"], kind
        assert found.counts[f"{kind.__name__} worked"] or kind is files.options, kind


def ends(message):
    def trial(rng, folder):
        raise dp.ModelError(message)

    return trial


def slow(rng, folder):
    time.sleep(5)


def raw(rng, folder):
    raise ValueError("oops")


def warns(rng, folder):
    np.float64(1e308) * 10


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (ends("A sentence."), "refused"),
        (ends(f"A load of {files.SECRET}."), "NONSENSE"),
        (ends("no sentence"), "NONSENSE"),
        (raw, "RAW"),
        (warns, "RAW"),
        (slow, "HANG"),
    ],
)
def test_every_fault_is_found(tmp_path, monkeypatch, kind, outcome):
    monkeypatch.setattr(files, "SECONDS", 0.05)
    assert files._ending(kind, np.random.default_rng(0), tmp_path)[0] == outcome


def test_a_reader_that_skips_statements_is_caught(monkeypatch):
    meant = files._bundled(5)
    monkeypatch.setattr(files, "KINDS", (files.network,))
    monkeypatch.setattr(files, "tables", lambda path: files.parse(files._text(meant), "same"))
    assert files.campaign(20, seed=0).faults
