"""Failures: no variable of a frame, no message and no warning shows private data."""

import copy
import functools
import inspect
import io
import json
import pickle
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from rich import inspect as rich_inspect
from rich.console import Console

import dpcvx as dp
from dpcvx.model.normal_form import Evaluator, NormalForm
from dpcvx.model.private import source_of
from dpcvx.model.sealed import seal
from dpcvx.privacy.ledger_file import Journal
from dpcvx.run import gate, private_oracle, watch
from dpcvx.sensitivity.certificate import Sensitivity
from tests.frames import CANARY, leaks

DATA = np.array([CANARY, -CANARY])


def model(data=None, *, adjacency=None, **attributes):
    """Two agents, of which one has private data."""
    x = cp.Variable(2, name="x")
    adjacency = adjacency or dp.Within(1.0)
    secret = dp.Private(data, shape=2, name="load", adjacency=adjacency, **attributes)
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - secret)), name="north"),
        dp.Agent(cp.Minimize(cp.sum_squares(x)), name="south"),
    ]
    return dp.Problem(agents)


def plan(*, release="each_step", **arguments):
    return model(**arguments).plan(
        dp.LinearizedADMM(), rounds=3, epsilon=1.0, delta=1e-6, release=release
    )


DECLARED = {
    "adjacency": lambda: dp.Private(DATA, adjacency=0.1),
    "signs": lambda: dp.Private(DATA, adjacency=dp.Within(1.0), nonneg=True, nonpos=True),
    "sign": lambda: dp.Private(DATA, adjacency=dp.Within(1.0), nonneg=True),
    "name": lambda: dp.Private(DATA, adjacency=dp.Within(1.0), name=DATA),
    "tuple": lambda: dp.Private(tuple(DATA), adjacency=dp.Within(1.0)),
    "shape": lambda: dp.Private(DATA, adjacency=dp.Within(1.0), shape=3),
    "misplaced": lambda: dp.Private(shape=DATA, adjacency=dp.Within(1.0)),
    "NaN": lambda: dp.Private([CANARY, np.nan], adjacency=dp.Within(1.0)),
    "text": lambda: dp.Private(["31415.9 W"], adjacency=dp.Within(1.0)),
    "rows": lambda: dp.Private(DATA, adjacency=dp.Rows(1.0)),
    "no rows": lambda: dp.Private(DATA[0], adjacency=dp.Rows(1.0)),
    "empty": lambda: dp.Private(np.zeros((0, 3)), adjacency=dp.Within(1.0)),
    "value": lambda: setattr(dp.Private(DATA, adjacency=dp.Within(1.0)), "value", DATA),
    "save": lambda: dp.Private(DATA, adjacency=dp.Within(1.0)).save_value(DATA),
    "mapping": lambda: plan().run(data=DATA),
    "list": lambda: plan().run(data=[DATA]),
    "key": lambda: plan().run(data={3: DATA}),
    "unknown": lambda: plan().run(data={"lead": DATA}),
    "seed": lambda: plan().run(data={"load": DATA}, seed=-1),
    "misplaced seed": lambda: plan().run(data={"load": DATA}, seed=DATA),
    "tolerance": lambda: plan().run(data={"load": DATA}, tolerance=-1.0),
    "ledger": lambda: plan().run(data={"load": DATA}, ledger=3),
    "long": lambda: plan().run(data={"load": np.tile(DATA, 2)}),
    "solve": lambda: model().solve(
        dp.LinearizedADMM(), data={"load": DATA}, epsilon=1.0, delta=1e-6, seed=-1
    ),
    "budget": lambda: model().solve(
        dp.LinearizedADMM(), data={"load": DATA}, epsilon=-1.0, delta=0
    ),
    "partial": lambda: plan().run(data={"load": functools.partial(np.array, [CANARY, np.nan])}),
    "check": lambda: dp.check_sensitivity(plan(), {"load": DATA + 9}, data={"load": DATA}),
    "check shape": lambda: dp.check_sensitivity(plan(), {"load": DATA[:1]}, data={"load": DATA}),
    "audit": lambda: dp.audit(plan(), {"load": DATA}, data={"load": DATA}, runs=20),
    "compare": lambda: model().compare(epsilon=1.0, delta=1e-6, proxy={"lead": DATA}),
    "objective": lambda: dp.not_private.objective(model(), None, {"load": DATA}),
    "central": lambda: dp.not_private.joint_problem(model(), {"load": DATA[:1]}),
    "too long": lambda: dp.not_private.too_long(model(), DATA),
}


@pytest.mark.parametrize("case", DECLARED)
def test_a_refusal_shows_no_data_in_its_frames(case):
    with pytest.raises(dp.DpcvxError) as caught:
        DECLARED[case]()
    assert not leaks(caught.value)


def test_frames_would_show_data():
    def careless(data):
        raise ValueError("no text")

    with pytest.raises(ValueError) as caught:
        careless(DATA)
    assert leaks(caught.value, Path(__file__).parent)


STOPS = [KeyboardInterrupt, MemoryError, OSError]


@pytest.mark.parametrize("release", ["each_step", "once"])
@pytest.mark.parametrize("kind", STOPS)
@pytest.mark.parametrize(
    "where",
    [
        (gate, "unseal"),
        (gate.Calibrated, "release_rows"),
        (NormalForm, "bind"),
        (Evaluator, "gradient"),
        (Journal, "charge"),
        (Journal, "release"),
        (watch, "_below"),
        (watch.Reporter, "round"),
    ],
    ids=lambda pair: pair[1],
)
def test_a_run_that_stops_shows_no_data_in_its_frames(where, kind, release, monkeypatch, tmp_path):
    place, name = where
    made = plan(release=release)

    def stop(*args, **kwargs):
        raise kind

    monkeypatch.setattr(place, name, stop)
    with pytest.raises((kind, dp.DpcvxError)) as caught:
        made.run(data={"load": DATA}, ledger=tmp_path / "spent.jsonl", tolerance=1e-9)
    assert not leaks(caught.value)
    assert isinstance(caught.value, KeyboardInterrupt) == (kind is KeyboardInterrupt)


@pytest.mark.parametrize(
    "kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, dp.DataError]
)
@pytest.mark.parametrize(
    "call",
    [
        lambda source: plan().run(data={"load": source}),
        lambda source: plan(release="once").run(data={"load": source}),
        lambda source: plan().run(data={"load": source}, executor=dp.Threads()),
        lambda source: plan().run(data={"load": source}, executor=dp.Processes()),
        lambda source: model(source).solve(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6),
        lambda source: dp.check_sensitivity(plan(), data={"load": source}),
        lambda source: dp.audit(plan(), data={"load": source}, runs=20),
        lambda source: dp.not_private.joint_problem(model(source)),
        lambda source: dp.not_private.too_long(rows(), source),
        lambda source: dp.Private([Converting(source)], adjacency=dp.Within(1.0)),
    ],
)
def test_whatever_a_source_raises_leaves_without_its_text(call, kind):
    def source():
        values = [CANARY] * 2
        raise kind(f"cannot use {values}")

    with pytest.raises((dp.DpcvxError, KeyboardInterrupt, SystemExit)) as caught:
        call(source)
    assert not leaks(caught.value)
    workers = isinstance(caught.value, dp.PrivacyError)  # processes ignore interrupts
    assert workers or isinstance(caught.value, KeyboardInterrupt) == (kind is KeyboardInterrupt)
    assert workers or isinstance(caught.value, SystemExit) == (kind is SystemExit)


@pytest.mark.parametrize(
    ("code", "left"), [(None, None), (0, 0), (3, 3), (str(CANARY), 1), (31415, 1), (CANARY, 1)]
)
def test_an_exit_keeps_codes_of_processes_and_no_text(code, left):
    with pytest.raises(SystemExit) as caught:
        plan().run(data={"load": lambda: sys.exit(code)})
    assert caught.value.code == left


def test_panics_of_a_solver_in_private_steps_are_withheld(monkeypatch):
    class PanicException(BaseException):
        """As raised by extensions written in Rust."""

    def panic(self, x):
        raise PanicException(f"index {CANARY}")

    made = plan()
    monkeypatch.setattr(Evaluator, "gradient", panic)
    monkeypatch.setattr(Sensitivity, "slope", panic)
    with pytest.raises(dp.PrivacyError, match="failed with PanicException") as caught:
        made.run(data={"load": DATA})
    assert not leaks(caught.value)


def test_errors_of_a_source_name_the_line_of_the_users_code():
    def source():
        raise KeyError(CANARY)

    line = source.__code__.co_firstlineno + 1
    calls = (
        lambda: plan().run(data={"load": source}),
        lambda: dp.not_private.too_long(rows(), source),
    )
    for call in calls:
        with pytest.raises(dp.DataError, match=rf"raised KeyError in test_guard.py, line {line}; "):
            call()
    # Installed code has no line of the user's.
    with pytest.raises(dp.DataError, match="raised TypeError; its"):
        plan().run(data={"load": functools.partial(json.loads, None)})


def test_warnings_of_a_source_are_reported_without_their_text():
    def source():
        warnings.warn(f"odd value {CANARY}", RuntimeWarning, stacklevel=1)
        return DATA

    with pytest.warns(UserWarning, match="private 'load' raised RuntimeWarning") as caught:
        plan().run(data={"load": source})
    assert len(caught) == 1 and str(CANARY) not in str(caught[0].message)
    with pytest.raises(
        dp.DataError, match="raised RuntimeWarning"
    ) as raised:  # warnings are errors
        plan().run(data={"load": source})
    assert not leaks(raised.value)


REFERENCES = {
    "too_long": lambda source: dp.not_private.too_long(rows(), source),
    "central": lambda source: dp.not_private.joint_problem(model(), {"load": source}),
    "objective": lambda source: dp.not_private.objective(
        model(), plan().run(data={"load": np.zeros(2)}).solution, {"load": source}
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_warnings_of_a_source_are_reported_by_references_without_their_text(name):
    def source():
        warnings.warn(f"odd value {CANARY}", RuntimeWarning, stacklevel=1)
        return DATA

    with pytest.raises(dp.DataError, match="raised RuntimeWarning") as caught:
        REFERENCES[name](source)
    assert not leaks(caught.value)


class Converting:
    """A number whose conversion calls a function."""

    def __init__(self, source):
        self.source = source

    def __float__(self):
        return self.source()


def rows():
    return dp.Private(shape=(2, 1), adjacency=dp.Rows(1.0))


PARTIAL = functools.partial(np.array, DATA)
HOLDERS = {
    "array": lambda: dp.Private(DATA, adjacency=dp.Within(1.0)),
    "function": lambda: dp.Private(lambda: DATA, shape=2, adjacency=dp.Within(1.0)),
    "partial": lambda: dp.Private(
        functools.partial(np.array, DATA), shape=2, adjacency=dp.Within(1)
    ),
    "sealed": lambda: seal(DATA),
    "source": lambda: source_of(dp.Private(DATA, adjacency=dp.Within(1.0))),
    "override": lambda: source_of(dp.Private(shape=2, adjacency=dp.Within(1.0)), DATA),
}


@pytest.mark.parametrize("case", HOLDERS)
def test_tools_that_look_into_objects_find_no_data(case):
    holder = HOLDERS[case]()
    screen = Console(file=io.StringIO(), width=200)
    rich_inspect(holder, console=screen, all=True)
    members = {}
    for name in dir(holder):
        members[name] = getattr(holder, name, None)
    parts = [screen.file.getvalue(), repr(members), repr(getattr(holder, "__dict__", None))]
    sealed = getattr(holder, "_seal", holder)
    parts += [repr(inspect.getmembers(sealed)), repr(sealed), str(sealed)]
    assert str(CANARY) not in "".join(parts)
    assert not hasattr(sealed, "__dict__")
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="never copied or pickled"):
            attempt(sealed)
    for attempt in (lambda: sealed.__getstate__(), lambda: sealed.__reduce__()):
        with pytest.raises(TypeError, match="never copied or pickled"):
            attempt()
    with pytest.raises(TypeError) as caught:
        json.dumps(holder, default=vars)
    assert str(CANARY) not in str(caught.value)


@functools.cache
def finished():
    return plan().run(data={"load": DATA})


QUESTIONS = {
    "ledger[...]": lambda given: finished().ledger[given],
    "ledger.get": lambda given: finished().ledger.get(given),
    "ledger.spent": lambda given: finished().ledger.spent(given),
    "ledger.prices": lambda given: finished().ledger.prices(given),
    "account.spent": lambda given: finished().ledger["north"].spent(given),
    "plan.releases": lambda given: plan().releases(given),
    "plan.composed": lambda given: plan().composed(given),
    "plan.guarantee_for": lambda given: plan().guarantee_for(seeded=given),
    "plan.guarantee_for(counted)": lambda given: plan().guarantee_for(seeded=True, counted=given),
}


@pytest.mark.parametrize(
    "given", [DATA, list(DATA), {CANARY: CANARY}], ids=["array", "list", "dict"]
)
@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_with_misplaced_data_are_refused_without_them(question, given):
    with pytest.raises(dp.DpcvxError) as caught:
        QUESTIONS[question](given)
    assert not leaks(caught.value)
    inside = traceback.walk_tb(caught.value.__traceback__)
    assert not any("given" in f.f_locals for f, _ in inside if f.f_code.co_filename != __file__)


def test_objects_whose_making_was_refused_have_a_text():
    half = dp.Private.__new__(dp.Private)
    assert repr(half) == "Private(not declared)"
    half = private_oracle.PrivateOracle.__new__(private_oracle.PrivateOracle)
    assert repr(half) == "PrivateOracle(agents=?)"


def test_refusals_of_calls_with_wrong_arguments_are_pythons():
    for call in (dp.Within, lambda: dp.check_sensitivity(), lambda: plan().run(date={})):
        with pytest.raises(TypeError, match="argument"):
            call()


def test_wrapped_functions_keep_their_signature_and_their_text():
    for thing in (dp.Within, dp.Plan.run, dp.check_sensitivity, dp.not_private.objective):
        assert "args" not in str(inspect.signature(thing)) and thing.__doc__
    assert list(inspect.signature(dp.Within).parameters) == ["radius", "norm"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: dp.ADMM(rho=1.0), r"ADMM\(\.\.\.\) takes no argument rho=\. It takes penalty="),
        (lambda: dp.Gaussian(sigma=2.0), r"takes no argument sigma=\. It takes release_epsilon="),
        (
            lambda: plan().problem.plan(eps=1.0),
            r"takes no argument eps=\. Write epsilon=\. It takes",
        ),
    ],
)
def test_arguments_by_wrong_names_are_told_the_right_ones(call, text):
    with pytest.raises(TypeError, match=text) as caught:
        call()
    assert caught.value.__cause__ is None and caught.value.__context__ is None


AGAIN = """
import importlib, sys
import cvxpy as cp, numpy as np
import dpcvx as dp

def model(dp):
    x = cp.Variable(2, name="x")
    d = dp.Private(np.zeros(2), name="d", adjacency=dp.Within(0.1))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 1], name="a")
    return x, d, agent, dp.Problem([agent])

x, d, agent, problem = model(dp)
plan = problem.plan(epsilon=1.0, delta=1e-6)
gaussian, check = dp.Gaussian, dp.check_sensitivity  # names are imported when they are used
names = [name for name in sys.modules if name.partition(".")[0] == "dpcvx"]
if {purged}:  # as Spyder does
    for name in names:
        del sys.modules[name]
    import dpcvx as dp
else:
    for name in names:
        importlib.reload(sys.modules[name])

def told(call):
    try:
        call()
    except Exception as error:
        assert "was imported again" in str(error), error
        assert "Run the cells of the model again" in str(error)
        return
    raise AssertionError("accepted")

told(lambda: dp.check_sensitivity(plan))
told(lambda: dp.audit(plan))
told(lambda: dp.Problem([agent]))
told(lambda: dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a"))
told(lambda: dp.Private(np.zeros(2), adjacency=d.adjacency))
if {purged}:
    new = model(dp)[3]
    told(lambda: new.plan(epsilon=1.0, delta=1e-6, mechanism=gaussian()))
    told(lambda: check(new.plan(epsilon=1.0, delta=1e-6)))
    # The new import by itself is sound, and its refusals say what they said.
    new.plan(epsilon=1.0, delta=1e-6).run(seed=1)
    try:
        dp.check_sensitivity(new)
    except dp.ModelError as error:
        assert "dp.check_sensitivity takes a plan, got Problem" in str(error), error
"""


@pytest.mark.parametrize("purged", [True, False], ids=["purged", "reloaded"])
def test_objects_of_an_earlier_import_are_told_apart(purged):
    done = subprocess.run(
        [sys.executable, "-c", AGAIN.replace("{purged}", str(purged))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# -- what other packages call otherwise


def small():
    x, d = cp.Variable(name="x"), dp.Private(1.0, shape=(), name="d", adjacency=dp.Within(0.1))
    return dp.Problem([dp.Agent(cp.Minimize(cp.square(x - d)), name="a")])


def test_attributes_of_other_packages_lead_to_the_line_to_write():
    problem = small()
    plan = problem.plan(epsilon=1.0, delta=1e-6)
    result = plan.run(seed=0)
    for thing, name, line in (
        (problem, "run", "problem.plan(epsilon=1.0, delta=1e-6).run()"),
        (plan, "value", "result = plan.run(), then result.value"),
        (result, "objective", "result.value"),
        (result, "x", "result['x']"),
    ):
        with pytest.raises(AttributeError, match=re.escape(f"Write {line}.")):
            getattr(thing, name)
        assert not hasattr(thing, "nothing_of_this_name")


def test_positional_arguments_are_refused_with_the_line_to_write():
    problem = small()
    plan = problem.plan(epsilon=1.0, delta=1e-6)
    with pytest.raises(TypeError, match=r"and got 1. Write plan.run\(data=\{"):
        plan.run({"d": 12345.0})
    with pytest.raises(TypeError, match=r"Write problem.plan\(algorithm, epsilon=1.0, delta"):
        problem.plan(None, 1.0, 1e-6)


def test_pickles_say_by_which_version_they_were_made(monkeypatch):
    plan = small().plan(epsilon=1.0, delta=1e-6)
    for thing in (plan, plan.run(seed=0)):
        text = pickle.dumps(thing)
        assert type(pickle.loads(text)) is type(thing)
        with monkeypatch.context() as other:
            other.setattr("dpcvx.guard.version", lambda name: "9.9")
            with pytest.warns(UserWarning, match="is read by dpcvx 9.9"):
                pickle.loads(text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("12345", "one text"), ({"a": 12345}, "a mapping"), ({12345}, "a set"),
        (iter([12345]), "an iterator"), ([[12345], [1, 2]], "different lengths"),
        ([1j], "complex"), (["12345"], "are texts"),
        (np.ma.array([1, 12345], mask=[0, 1]), "masked entries"),
    ],
)  # fmt: skip
def test_each_kind_of_wrong_data_has_a_sentence_without_the_data(values, said):
    with pytest.raises(dp.DataError, match=said) as caught:
        dp.Private(values, name="d", adjacency=dp.Within(0.1))
    assert "12345" not in str(caught.value)
