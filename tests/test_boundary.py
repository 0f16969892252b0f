"""The boundary around private data. Widening a set below is a privacy review."""

import ast
import functools
import inspect
import logging
import pickle
import traceback
import weakref
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.base import Algorithm
from tests.helpers import contains
from tests.instances import power_line

PACKAGE = Path(dp.__file__).parent

# name -> modules (below dpcvx, without suffix) that may import it.
IMPORTERS = {
    "dpcvx.oracle": {
        "worker",
        "run",
        "resume",
        "result",
        "not_private",
        "exposure",
        "check",
        "audit",
    },
    "dpcvx.oracle.PrivateOracle": {"run"},
    "dpcvx.oracle.Exit": {"run", "check"},  # check: its own exit, for made-up data
    "dpcvx.oracle.publish": {"run"},
    "dpcvx.oracle.published": {"run"},
    "dpcvx.oracle.read": {"not_private", "check", "audit"},
    "dpcvx.private.unseal": {"oracle"},
    "dpcvx.private.source_of": {"run", "not_private"},
    "dpcvx.exposure": {"not_private"},  # replays along private gradients
    "dpcvx.not_private": {"__init__", "compare"},  # compare: on stand-in data
    # network: seeded random graphs, which are public.
    "dpcvx.noise": {
        "mechanism",
        "oracle",
        "run",
        "check",
        "audit",
        "network",
        "secret_sharing",
    },
    "dpcvx.check": {"__init__", "audit"},
    "dpcvx.neighbours": {"check"},
    "dpcvx.noise.rounded_normal": {"mechanism"},
    "dpcvx.noise.rounded_laplace": {"mechanism"},
    "dpcvx.noise.source_for": {"run", "check", "audit"},
    "numpy.random": set(),
    "random": set(),
    "secrets": set(),
    "os.urandom": set(),  # reached as an attribute, see below
    "clarabel": {"conic"},
    "daqp": {"active_set"},
    "scs": {"conic"},
    "cvxpy.atoms": {"layout"},
    "cvxpy.reductions": set(),
}
# attribute -> modules that may touch it.
TOUCHERS = {
    "_seal": {"private"},
    # weights: unit data, which are public; neighbours: for check and audit only; rehearsal: made-up
    # data, which it writes itself.
    "bind": {"oracle", "normal_form", "not_private", "weights", "neighbours", "rehearsal"},
    "default_rng": set(),
    "random": {"noise"},
    "Philox": {"noise"},
    "SeedSequence": {"noise"},
    "Generator": set(),
    "urandom": {"noise"},
    "get_problem_data": {"canonical"},
}


@functools.cache
def modules():
    """Their names and syntax trees."""
    return tuple(
        (path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."), ast.parse(text))
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in [path.read_text()]
    )


def imported(name, tree):
    """Absolute dotted names that a module imports."""
    package = ["dpcvx", *name.split(".")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield stem
            yield from (f"{stem}.{alias.name}" for alias in node.names)


@functools.cache
def imports():
    """Every pair of a module and what it imports."""
    return tuple((name, line) for name, tree in modules() for line in imported(name, tree))


@functools.cache
def touched():
    """Every pair of a module and an attribute that it names."""
    return frozenset(
        (name, node.attr)
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    )


@pytest.mark.parametrize("target", IMPORTERS)
def test_only_listed_modules_import(target):
    found = {name for name, line in imports() if line == target or line.startswith(target + ".")}
    assert found == IMPORTERS[target]


@pytest.mark.parametrize("attribute", TOUCHERS)
def test_only_listed_modules_touch(attribute):
    found = {name for name, touches in touched() if touches == attribute}
    assert found == TOUCHERS[attribute]


def test_algorithms_know_neither_data_nor_noise():
    forbidden = (
        "dpcvx.oracle", "dpcvx.private", "dpcvx.mechanism", "dpcvx.noise", "dpcvx.publication",
        "dpcvx.ledger", "numpy.random", "os", "random", "secrets",
    )  # fmt: skip
    for name, tree in modules():
        if name.startswith("algorithms."):
            for line in imported(name, tree):
                assert not line.startswith(forbidden), (name, line)
            touched = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
            assert "random" not in touched, name


releases = pytest.mark.parametrize("release", ["each step", "once"])


def test_an_agents_turn_takes_an_oracle_and_nothing_private():
    assert list(inspect.signature(Algorithm.act).parameters) == [
        "self", "local", "state", "t", "k", "message", "oracle",
    ]  # fmt: skip


def test_no_module_logs_or_prints_on_its_own():
    for name, tree in modules():
        calls = {
            n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and hasattr(n.func, "id")
        }
        assert "print" not in calls, name
        assert "logging" not in set(imported(name, tree)), name


@releases
def test_planning_reads_no_data(release):
    def explode():
        raise AssertionError("read")

    x = cp.Variable(2, name="x")
    secret = dp.Private(explode, shape=2, name="d", adjacency=dp.Within(1.0))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - secret)))])
    plan = problem.plan(rounds=3, epsilon=1.0, delta=1e-6, release=release)
    assert "no data have been read" in str(plan)
    with pytest.raises(dp.DataError, match="raised AssertionError"):
        plan.run()


@releases
def test_a_verbose_run_prints_nothing_private(capsys, caplog, release):
    given = power_line()
    plan = given.problem.plan(dp.ADMM(), rounds=5, epsilon=1.0, delta=1e-6, release=release)
    with caplog.at_level(logging.DEBUG):
        plan.run(verbose=True)
    printed = capsys.readouterr()
    text = printed.out + printed.err + caplog.text
    assert "guarantee" in text
    for value in np.concatenate(given.secrets):
        assert f"{value:.6f}" not in text
        assert repr(float(value)) not in text


def test_objects_behind_the_door_neither_print_nor_pickle_data():
    from dpcvx.executors.serial import Serial

    given = power_line()
    plan = given.problem.plan(dp.ADMM(), rounds=1, epsilon=1.0, delta=1e-6)
    kept = []

    class Peek(Serial):
        def close(self):
            kept.extend(self._agents)
            super().close()

    plan.run(executor=Peek())
    for worker in kept:
        for inner in (worker, worker._oracle, worker._oracle._objective):
            shown = repr(inner) + str(inner)
            assert all(f"{v:.6f}" not in shown for s in given.secrets for v in s)
            with pytest.raises(TypeError, match="private data"):
                pickle.dumps(inner)


def test_data_that_were_released_once_are_let_go(monkeypatch):
    from dpcvx import oracle
    from dpcvx.executors.serial import Serial

    given = power_line()
    plan = given.problem.plan(dp.ADMM(), rounds=1, epsilon=1.0, delta=1e-6, release="once")
    unseal, read, left = oracle.unseal, [], []

    def watched(source, spec):
        values = unseal(source, spec).copy()
        read.append(weakref.ref(values))
        return values

    class Peek(Serial):
        def close(self):
            left.extend(ref() for ref in read)
            super().close()

    monkeypatch.setattr(oracle, "unseal", watched)
    plan.run(executor=Peek())
    assert left == [None, None]


@pytest.mark.parametrize(
    "bad",
    [
        np.array([31415.92653, np.nan]),
        np.array([31415.92653, 1.0, 2.0]),
        np.array([-31415.92653, 1.0]),
        ["31415.92653", "secret words"],
        lambda: 1 / (31415.92653 - 31415.92653),
        lambda: [][31415],
    ],
    ids=["nan", "shape", "sign", "text", "raises", "index"],
)
@releases
def test_bad_data_spend_nothing_and_show_nothing(bad, release):
    x = cp.Variable(2, name="x")
    secret = dp.Private(shape=2, name="d", adjacency=dp.Within(1.0), nonneg=True)
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - secret)), name="a")])
    plan = problem.plan(rounds=3, epsilon=1.0, delta=1e-6, release=release)
    with pytest.raises(dp.DataError, match="'d'") as caught:
        plan.run(data={secret: bad})
    trace = "".join(traceback.format_exception(caught.value))
    chain = [caught.value.__cause__, caught.value.__context__]
    assert chain == [None, None]
    assert "31415.9" not in str(caught.value)
    assert "secret words" not in trace


def test_the_check_for_leaks_can_find_one():
    values = np.array([0.123456789])
    assert contains({"leak": 0.123456789}, values)
    assert contains(np.array([0.123456789]), values)
    assert not contains({"leak": 0.5}, values)
