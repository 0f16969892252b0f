"""The boundary around private data. Widening a set below is a privacy review."""

import ast
import inspect
from logging import DEBUG, ERROR, INFO, WARNING
from string import Formatter

import pytest

from dpcvx._events import EVENTS, TEXTS
from dpcvx.algorithms.base import Algorithm
from tests.rooms import ADVICE, imported, imports, modules, rests_on, room_of

# What is guarded -> rooms and files that may import it, each of which does.
IMPORTERS = {
    "dpcvx.run.gate": {"owners", "run", "testing", "tuning.simulation"},
    "dpcvx.run.gate.PrivacyGate": {
        "run.part",
        "run.private_oracle",
        "run.public_oracle",  # publishes data once
        "testing.check",  # its own, for made-up data
    },
    "dpcvx.run.gate.require_fit": {"owners.owner"},  # said to their owner alone
    "dpcvx.run.gate.read": {
        "run.private_oracle",
        "run.public_oracle",
        "run.recourse",  # for an object that stays with its owner
        "testing",
    },
    "dpcvx.run.gate.read_sparse_too": {"testing.not_private", "tuning.simulation"},  # as `read`
    # For answers, and for those who hold all data.
    "dpcvx.run.gate.read_for_gradients": {
        "run.private_oracle",
        "testing.audit",  # what `read` gave them, with sparse matrices as they are
        "testing.check",
        "testing.not_private",
    },
    "dpcvx.run.oracle": {"run", "testing.audit", "testing.check"},
    "dpcvx.run.private_oracle": {"run.part"},
    "dpcvx.model.row_blocks": {"run.private_oracle"},  # binds their data
    "dpcvx.run.public_oracle": {"run.part", "run.replay"},
    "dpcvx.sensitivity.queries.query.Objective": {
        "extend",  # the type, for queries of others
        "run.private_oracle",
        "run.public_oracle",
        "sensitivity.queries",  # computes exact answers, behind the door
    },
    "dpcvx.sensitivity.stored_vectors.StoredVectors": {
        "run.private_oracle",
        "run.public_oracle",
        "sensitivity.queries.query",
    },
    "dpcvx.model.sealed.unseal": {"run.gate"},
    "dpcvx.model.sealed.raw_array": {"run.gate"},
    "dpcvx.model.private.source_of": {"run.data"},
    "dpcvx.model.sealed.handed_over": {"run.executors.host"},  # to workers of the same owner
    "dpcvx.testing": {"", "extend", "testing", "tuning", "typing"},
    # On stand-in data, and on made-up data.
    "dpcvx.testing.not_private": {"", "tuning.copies", "testing.promises"},
    "dpcvx.testing.worst_neighbor": {"testing.check"},
    "dpcvx.privacy.noise": {"privacy", "run.gate", "testing.check"},
    "dpcvx.privacy.noise.normal_rows": {"privacy.mechanism", "privacy.linear_term"},
    "dpcvx.privacy.noise.laplace_rows": {"privacy.mechanism", "privacy.linear_term"},
    "dpcvx.privacy.noise.staircase_rows": {"privacy.mechanism"},
    # algorithms.networks: seeded random graphs, which are public.
    "dpcvx.privacy.randomness": {
        "privacy",
        "run",
        "testing",
        "tuning.copies",
        "tuning.simulation",
        "algorithms.networks",
        "algorithms.written_model",  # what data may be, from a seed that everybody knows
    },
    "dpcvx.privacy.randomness.source_for": {
        "run.live",
        "run.loop",
        "run.part",
        "testing",
        "tuning.copies",
        "tuning.simulation",
        "algorithms.written_model",
    },
    "numpy.random": set(),
    "random": set(),
    "secrets": set(),
    "os.urandom": set(),  # reached as an attribute, see below
    "clarabel": {"solvers.libraries"},
    "daqp": {"solvers.libraries"},
    "numba": {"solvers.newton_compiled"},
    "qdldl": {"solvers.newton_layout", "solvers.newton_plain"},
    "scs": {"solvers.libraries"},
    "cvxpy.atoms": {"model.layout"},
    "cvxpy.reductions": set(),
    "logging": {"_events", "owners.link"},  # which silences the log of websockets
    # Owners on machines of their own; frames are all that the link sees.
    "asyncio": {"owners.link"},
    "websockets": {"owners.link", "owners.faults"},
    "ssl": {"owners.keys", "owners.faults"},
    "socket": {"owners.faults", "owners.link"},  # names of its errors and options
    "cryptography": {"owners.masks", "owners.keys"},
}
# Attribute -> rooms and files that may touch it, each of which does.
TOUCHERS = {
    "_seal": {"model.private"},
    "bind": {
        "model.row_blocks",  # for run.private_oracle alone, see above
        "run.public_oracle",  # what a release restores
        "model.normal_form",
        "testing.not_private",
        "tuning.simulation",  # stand-ins
        "testing.worst_neighbor",  # for check and audit only
        "sensitivity.private_weights",  # unit data, which are public
        "sensitivity.rehearsal",  # made-up data, which it writes itself
    },
    "inserted": {"model.quadratic"},  # data as constants of an objective
    "default_rng": set(),
    "random": {"privacy.randomness"},
    "Philox": {"privacy.randomness"},
    "SeedSequence": {"privacy.randomness"},
    "Generator": set(),
    "urandom": {"privacy.randomness"},
    "get_problem_data": {"model.canonical"},
    # Proposals of methods, and of methods that they derive from.
    "propose": {"defaults.proposal", "algorithms.admm", "algorithms.linearized_admm"},
}
# Room -> what no file in it may import.
FORBIDDEN = {
    "algorithms": (
        "dpcvx.model.private", "dpcvx.model.sealed", "dpcvx.privacy.mechanism",
        "dpcvx.privacy.accounts", "dpcvx.privacy.book", "dpcvx.privacy.ledger",
        "dpcvx.sensitivity.release_once", "os",
    ),
}  # fmt: skip


def covered(found, allowed):
    """Whether the modules are those of the rooms and files, and each of these has one."""
    by = {name: [a for a in allowed if name == a or name.startswith(f"{a}.")] for name in found}
    assert all(by.values()), {name for name, rules in by.items() if not rules}
    unused = allowed - {rule for rules in by.values() for rule in rules}
    assert not unused, f"no longer needed: {unused}"


@pytest.mark.parametrize("target", IMPORTERS)
def test_only_listed_rooms_import(target):
    found = {n for n, line in imports() if line == target or line.startswith(target + ".")}
    inside = target.removeprefix("dpcvx.")
    covered(found - {inside}, IMPORTERS[target])


@pytest.mark.parametrize("attribute", TOUCHERS)
def test_only_listed_rooms_touch(attribute):
    found = {
        name
        for name, (_, tree) in modules().items()
        if any(isinstance(n, ast.Attribute) and n.attr == attribute for n in ast.walk(tree))
    }
    covered(found, TOUCHERS[attribute])


@pytest.mark.parametrize("room", FORBIDDEN)
def test_rooms_that_know_neither_data_nor_noise(room):
    for name, line in imports():
        if name.startswith(f"{room}."):
            assert not any(line == f or line.startswith(f"{f}.") for f in FORBIDDEN[room]), (
                name,
                line,
            )


def test_nothing_that_a_guarantee_rests_on_imports_advice():
    named = rests_on(imports_of=imported)  # imports for types and inside functions count
    assert "plan.draft" in named and "run.gate" in named
    assert [name for name in named if room_of(name) in ADVICE] == []


def test_an_agents_turn_takes_an_oracle_and_nothing_private():
    assert list(inspect.signature(Algorithm.act).parameters) == [
        "self", "local", "state", "t", "k", "message", "oracle",
    ]  # fmt: skip


def test_no_module_prints_and_only_events_are_logged():
    """Loggers may name public facts: see `dpcvx._events`, and tests/test_secrecy.py for a run."""
    logged = {}
    for name, (path, tree) in modules().items():
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and hasattr(n.func, "id")]
        assert "print" not in {call.func.id for call in calls}, name
        # The transport switches the log of websockets off.
        may_log = name in ("_events", "owners.link")
        assert may_log or "logging" not in set(imported(name, path, tree)), name
        for call in calls:
            if call.func.id == "event" and name != "_events":
                (what, _), no_more = call.args, call.keywords
                # Written out, so that a sentence cannot come from elsewhere.
                assert isinstance(what, ast.Constant) and no_more == [], name
                logged.setdefault(what.value, set()).add(name)
    assert logged.keys() == EVENTS.keys()
    room = {"owner": "owners", "coordinator": "owners", "cluster": "run"}
    for what, (logger, level, sentence) in EVENTS.items():
        assert {room_of(name) for name in logged[what]} == {room[logger]}, what
        fields = {field for _, field, _, _ in Formatter().parse(sentence) if field}
        assert fields <= TEXTS | {"round", "rounds", "workers", "members", "call"}, what
        assert level in (DEBUG, INFO, WARNING, ERROR)
