"""The short form of the campaign of malformed arguments and models, and what it can find."""

import math

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.campaigns import bad_input
from tests.campaigns.bad_input import CALLS, ZOO, arguments_of, campaign, outcome, two_agents
from tests.frames import CANARY


def test_malformed_input_works_or_is_refused_in_words():
    tally = campaign(60, 7)
    assert not tally.faults, str(tally)
    assert tally.counts["refused"] > 20


@pytest.mark.parametrize("name", CALLS)
def test_misplaced_arrays_show_in_no_message_and_in_no_frame(name):
    """Every argument of every public callable."""
    wrong = ["array", "list"] if name in ("Problem.compare", "audit", "check") else ["array"]
    for argument in arguments_of(name):
        for value in wrong:
            text, trial = bad_input.call(name, argument, value)
            kind, said = outcome(trial)
            assert not kind.isupper(), f"{kind} {text}: {said}"


def quoting():
    dp.Agent(CANARY).layout  # noqa: B018


def hanging():
    while True:
        pass


def raw():
    dp.Problem.shares(None)


def nonsense():
    np.array([1j]).astype(float)


def test_the_campaign_sees_what_it_looks_for(monkeypatch):
    monkeypatch.setattr(bad_input, "LIMIT", 0.05)
    assert outcome(hanging)[0] == "HANG"
    assert outcome(raw)[0] == "RAW"
    assert outcome(nonsense)[0] == "NONSENSE"
    assert outcome(lambda: two_agents())[0] == "works"
    assert outcome(lambda: dp.Within(-1))[0] == "refused"
    assert outcome(lambda: dp.Within())[0] == "python"
    assert outcome(lambda: cp.Variable(-1))[0] == "cvxpy"
    monkeypatch.setattr("dpcvx._arguments.show", str)
    assert outcome(lambda: dp.Within(np.full(2, CANARY)))[0] == "LEAK"


# What runs and functions give back, errors, and what needs a job of MPI: nobody calls them.
GIVEN = {
    "Algorithm", "Audit", "Reconstruction", "SensitivityCheck", "Comparison", "Guarantee", "MPI",
    "RecourseSolution",
    "Plan", "Result", "Solution", "Status", "Tradeoff", "Transcript", "Tuned",
}  # fmt: skip
# Their right arguments are folders with keys, files, clusters, or minutes of a method's checks.
UNREADY = {"Plan.replay", "Ledger.load", "Owner", "RemoteOwners", "Dask", "testing.check_method"}


def test_every_public_callable_is_called_with_wrong_values():
    called = {name.split(".")[0].split(" ")[0] for name in CALLS}
    public = {name for name in dp.__all__ if callable(getattr(dp, name))}
    errors = {
        name
        for name in public
        if isinstance(getattr(dp, name), type) and issubclass(getattr(dp, name), Exception)
    }
    plain = {"Serial"}  # takes no argument
    assert public - called == (GIVEN | errors | plain) - called
    assert not (errors | plain) & called


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("reconstruct", "plan"), ("check_sensitivity", "plan"), ("LoopbackOwners", "plan"),
        ("LoopbackOwners", "folder"),
        ("Ledger", "accounts"), ("networks.Network", "agents"), ("networks.Network", "neighbors"),
        ("networks.Network", "rows"), ("networks.Network", "rule"), ("Owner", "policy"),
        ("RemoteOwners", "listen"), ("RemoteOwners", "keys"), ("testing.check_method", "instances"),
    ],
)  # fmt: skip
def test_constructors_and_functions_refuse_every_wrong_value_in_words(
    name, argument, tmp_path, monkeypatch
):
    """Those that let some pass once: each with the whole table of wrong values."""
    monkeypatch.chdir(tmp_path)
    for value in ZOO:
        text, trial = bad_input.call(name, argument, value)
        kind, said = outcome(trial)
        assert kind in ("refused", "works"), f"{kind} {text}: {said}"
    assert not [*tmp_path.iterdir()]


def test_right_arguments_work():
    """A trial whose other arguments are wrong as well would find nothing."""
    needs_more = {"GradientADMM", "ResourceADMM", *UNREADY}
    for name, (function, right, use) in CALLS.items():
        if name not in needs_more:
            kind, text = outcome(lambda f=function, r=right, u=use: u(f(**r())))
            assert kind == "works", f"{name}: {text}"
    assert len(ZOO) > 60 and math.isnan(ZOO["nan"]())


@pytest.mark.parametrize(
    "cost",
    [
        lambda x, d: cp.sum_squares(cp.real((1 + 1j) * x) - d),
        lambda x, d: cp.sum(cp.abs(1j * x - d)),
        lambda x, d: cp.sum_squares(cp.abs(cp.Parameter(2, complex=True, value=[1j, 1]) + x - d)),
        lambda x, d: cp.sum_squares((1 + 1j) * x - d),
    ],
)
def test_complex_numbers_are_refused_by_steps(cost):
    x, d = cp.Variable(2), dp.Private(np.ones(2), adjacency=dp.Within(0.1))
    problem = dp.Problem([dp.Agent(cp.Minimize(cost(x, d)), name="a")])
    with pytest.raises(dp.ModelError, match="Agent 'a' uses complex numbers"):
        problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)
    assert problem.plan(epsilon=1.0, delta=1e-6).algorithm.as_written


@pytest.mark.parametrize("size", [1e151, -1e300])
def test_constants_without_a_square_are_refused(size):
    with pytest.raises(dp.ModelError, match="beyond 1e\\+150"):
        two_agents(lambda x, d: cp.sum_squares(size * x - d)).plan(
            dp.LinearizedADMM(), epsilon=1.0, delta=1e-6
        )


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("audit", "runs", "huge int"),
        ("Problem.compare", "runs", "huge int"),
        ("Problem.plan once", "rounds", "huge int"),
    ],
)
def test_numbers_that_nobody_can_compute_with_are_refused(name, argument, value):
    text, trial = bad_input.call(name, argument, value)
    assert outcome(trial)[0] == "refused", text
