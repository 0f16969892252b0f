"""The gate refuses what would leave otherwise than it was charged."""

from types import SimpleNamespace

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.accounts import Account
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.privacy.randomness import source_for, together
from dpcvx.privacy.split_noise import SplitNoise
from dpcvx.run.gate import Charge, PrivacyGate, Release, charge_for, entry_for
from tests.helpers import Words
from tests.spies import gate_of_one, release
from tests.steps import AMPLE, GAUSS


def test_release_charged_as_noisy_without_a_grid_is_refused_before_it_is_computed():
    noise, account = Calibrated(GAUSS, 2.0), Account("bob", {}, AMPLE)
    gate = gate_of_one(noise, account, Words(), record=True)
    grid, entry = entry_for(noise, (1, 1), 0.5, 2, "gradient")
    with pytest.raises(dp.DataError, match="has no noise"):
        release(gate, (1, 1), entry, lambda: pytest.fail("computed"), None)
    assert not gate.releases and not account.entries
    assert release(gate, (1, 1), entry, lambda: np.zeros(2), grid).shape == (2,)


def charge_of(noise, rows, bound):
    grid, entry = entry_for(noise, (1, 1), bound, 2, "gradient")
    return Charge(np.array(rows), entry, grid)


def test_batch_whose_first_charge_is_replayed_draws_noise_for_the_others_alone():
    """What the oracle computes may be a view that nobody may write to."""
    noise = Calibrated(GAUSS, 2.0)
    exact = np.arange(6.0).reshape(3, 2)
    charges = [charge_of(noise, [0], 0.5), charge_of(noise, [1, 2], 4.0)]

    def gate(past=()):
        accounts = [Account(f"a{k}", {}, AMPLE) for k in range(3)]
        sources = together([source_for(3, (k,)) for k in range(3)])
        return PrivacyGate(range(3), noise, accounts, sources, past=past)

    whole = gate().release((1, 1), charges, lambda: np.broadcast_to(exact, (3, 2)))
    resumed = gate([Release(0, 1, 1, whole[0])])
    values = resumed.release((1, 1), charges, lambda: np.broadcast_to(exact, (3, 2)))
    assert np.array_equal(values, whole) and not np.array_equal(values[1:], exact[1:])
    assert [len(account.entries) for account in resumed.accounts()] == [0, 1, 1]
    assert np.array_equal(exact, np.arange(6.0).reshape(3, 2))


def test_values_without_noise_are_not_scaled_on_their_way():
    """Scaled and divided again they would have other bits."""
    gate = gate_of_one(Calibrated(GAUSS, 2.0), Account("bob", {}, AMPLE), Words())
    value, scale = np.array([[0.1, 0.7]]), np.array([3.0, 1e-3])
    assert not np.array_equal(scale * value / scale, value)
    charge = Charge(gate.everyone, None, None)
    assert np.array_equal(gate.release((1, 1), [charge], lambda: value, scale), value)


def test_noise_is_drawn_on_scaled_values_and_the_scale_divided_out():
    """Little noise, and more of it where values were scaled down."""
    noise, account = Calibrated(GAUSS, 1e-3), Account("bob", {}, AMPLE)
    gate = gate_of_one(noise, account, source_for(1, (0,)))
    value, scale = np.array([[0.1, 0.7]]), np.array([64.0, 2.0**-6])
    charge = charge_of(noise, gate.everyone, 0.5)
    released = gate.release((1, 1), [charge], lambda: value, scale)
    noises = np.abs(released - value)[0] * scale
    assert (noises > 0).all() and (noises < 5e-3).all()


class Lines:
    """What a journal is given."""

    def __init__(self):
        self.charged, self.released = [], []

    def charge(self, names, entry):
        self.charged.append((*names, entry.released))

    def release(self, names, place, values):
        self.released.append((*names, *values.tolist()))


def test_agents_without_a_charge_are_in_no_ledger_and_keep_their_exact_values():
    """Of four agents: one with noise, one public, one whose charge was paid, one replayed."""
    noise, lines = Calibrated(GAUSS, 2.0), Lines()
    accounts = [Account(f"a{k}", {}, AMPLE) for k in range(4)]
    sources = together([source_for(3, (k,)) for k in range(4)])
    past = [Release(3, 1, 1, np.array([7.0, 8.0]))]
    paid = [(), (), {(1, 1)}, ()]
    gate = PrivacyGate(range(4), noise, accounts, sources, past=past, paid=paid, journal=lines)
    charges = [
        charge_of(noise, [0], 0.5),
        Charge(np.array([1]), None, None),
        charge_of(noise, [2], 0.5),
        charge_of(noise, [3], 0.5),
    ]
    exact = np.arange(8.0).reshape(4, 2)
    values = gate.release((1, 1), charges, lambda: exact)
    assert [len(account.entries) for account in gate.accounts()] == [1, 0, 0, 0]
    assert (values[[0, 2]] != exact[[0, 2]]).all()
    assert values[1].tolist() == [2.0, 3.0] and values[3].tolist() == [7.0, 8.0]
    assert lines.charged == [("a0", "gradient")]
    assert [line[0] for line in lines.released] == ["a0", "a2"]
    assert lines.released == [("a0", values[0].tolist()), ("a2", values[2].tolist())]


def test_an_answer_that_one_change_cannot_move_is_public_unless_rounding_says_so():
    facts, public = SimpleNamespace(name="bob"), object()
    split = Calibrated(GAUSS, 2.0, split=SplitNoise(5, 1, 2.0**-12, 1.0))
    for noise, expected in ((Calibrated(GAUSS, 2.0), None), (split, split.grid(0.0, 2))):
        for state, bound, matters in ((None, 1.0, True), (public, 0.0, False)):
            query = SimpleNamespace(released="gradient", matters=lambda _, answer=matters: answer)
            found = charge_for(facts, (1, 1), query, 2, noise, state, bound)
            assert found == (expected, None)
        package = type("Query", (SimpleNamespace,), {"__module__": "dpcvx.sensitivity"})
        query = package(released="gradient", matters=lambda state: state is public)
        with pytest.raises(dp.PrivacyError, match="too small for a floating-point number"):
            charge_for(facts, (1, 1), query, 2, noise, public, 0.0)
