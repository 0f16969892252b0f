"""Insides of the package that tests change, build or watch: each written here alone.

Whoever renames or moves one changes this file, and no test.
"""

from functools import cache

from dpcvx.defaults import certificates
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.randomness import together
from dpcvx.privacy.secret_sharing import Partial, SecretSum, Share
from dpcvx.run.gate import Charge, PrivacyGate
from dpcvx.run.part import gate_of, worker_of

INSIDES = {
    # Sizes from which on something else is computed.
    "largest Kronecker product": "model.collapse._KRON_LIMIT",
    "largest dense eigenvalue problem": "model.matrices._DENSE_ORDER",
    "eigenvalue problems at a time": "model.matrices._BATCH",
    "steps of splitting": "solvers.splitting._STEPS",
    "steps of splitting without a look": "solvers.splitting._SKIPPED",
    "signs that are enumerated": "sensitivity.norms._ENUMERATE",
    "rows from which on norms are taken together": "sensitivity.norms._MANY",
    "records that are many": "sensitivity.records._MANY",
    "records in a block": "sensitivity.records._BLOCK",
    "directions that are few": "sensitivity.records._FEW",
    "nodes of a dense spectrum": "algorithms.mixing._DENSE",
    "nodes of a sparse spectrum": "algorithms.mixing._SPARSE",
    "entries of a landscape that is searched": "defaults.landscape._SEARCHED",
    # Seconds.
    "seconds until a killed process has left its locks": "privacy.ledger_file._FREED",
    # Functions and methods.
    "norm of one row": "sensitivity.norms._row_norm",
    "intervals by sign": "sensitivity.intervals._by_sign",
    "the search for a certificate": "defaults.proposal.certificate_for",
    "a conic solver is built": "solvers.conic.ConicProgram._build",
    "a conic solver is updated": "solvers.conic.ConicProgram._updated",
    "the answer of a conic solver": "solvers.conic.ConicProgram._found",
    "the answer of DAQP": "solvers.libraries.ActiveSet._asked",
    # What a process remembers.
    "data that were seen": "run.repeats._BY_VALUES",
}


def change(patch, what, value):
    """Put a value in the place of an inside, until the patch is undone.

    Parameters
    ----------
    patch : pytest.MonkeyPatch
    what : str
        One of `INSIDES`.
    value : object
    """
    patch.setattr(f"dpcvx.{INSIDES[what]}", value)


def price_once(patch):
    """Have the loss distribution of the same Laplace noise computed once in a process."""
    patch.setattr(Composition, "_loss_distribution", cache(Composition._loss_distribution))


def search_once(patch):
    """Have the rounds of a certificate searched once in a process; plans share constants."""
    search, searched = certificates._chains, {}

    def chains(form, iteration, end, count, sweeps, pair=0.0):
        what = iteration, count, sweeps, pair  # the end follows from the pair
        if what not in searched:
            searched[what] = search(form, iteration, end, count, sweeps, pair)
        return searched[what]

    patch.setattr(certificates, "_chains", chains)


def add_up_without_shares(patch):
    """Have agents broadcast what they would share: the same sums, in less time for many agents."""

    def shares(sums, sender, values, source=None):
        return (Share(sender, sender, sums.round, sums.encoding.encode(values)),)

    def partial(sums, receiver, shares):
        (whole,) = shares
        return Partial(receiver, sums.round, whole.words)

    patch.setattr(SecretSum, "shares", shares)
    patch.setattr(SecretSum, "partial", partial)


def gate_of_one(noise, account, source, *, agent=0, paid=(), kind=PrivacyGate, **settings):
    """Return the gate of one agent; `settings` are those of the gate."""
    return kind([agent], noise, [account], together([source]), paid=[paid], **settings)


def worker_of_one(part, sources, begun, **settings):
    """Return what makes the worker of one agent; `settings` are those of `gate_of`."""
    return worker_of([part], [sources], gate_of([part], [begun], **settings))


def release(gate, place, entry, compute, grid):
    """Release one value of the one agent of a gate."""
    charge = Charge(gate.everyone, entry, grid)
    return gate.release(place, [charge], lambda: compute()[None])[0]


def watch_releases(monkeypatch, watcher):
    """Have ``watcher(gate, place, charges, values)`` called with what every gate releases."""
    honest = PrivacyGate.release

    def watched(self, place, charges, compute, scale=None):
        values = honest(self, place, charges, compute, scale)
        watcher(self, place, charges, values)
        return values

    monkeypatch.setattr(PrivacyGate, "release", watched)


def change_charges(monkeypatch, change):
    """Have gates charge ``change(charge)`` in place of every charge; nothing where it is None."""
    honest = PrivacyGate._charge

    def changed(self, place, charges):
        honest(self, place, [c for c in map(change, charges) if c is not None])

    monkeypatch.setattr(PrivacyGate, "_charge", changed)
