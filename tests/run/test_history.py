"""The history of a run: which rounds are kept, and that nothing that went wrong is lost."""

import copy
import functools
import itertools

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.algorithms.base import Residuals
from dpcvx.run.history import History, Round
from dpcvx.solvers.conic import ConicAnswer, ConicProgram, Outcome
from tests.benchmarks.speed.instances import BUDGET, boxes
from tests.benchmarks.speed.memory import held

FIELDS = ("primal", "dual", "mismatch", "penalty")
GOOD, BAD, REDUCED = (
    (Outcome.SOLVED,),
    (Outcome.FAILED, Outcome.INFEASIBLE, Outcome.UNBOUNDED),
    (Outcome.INACCURATE, Outcome.FALLBACK),
)


def residuals(t):
    """Numbers that tell the round and the field."""
    return Residuals(primal=t + 0.1, dual=t + 0.2, mismatch=t + 0.3, penalty=t + 0.4)


def history_of(rounds, limit, outcomes=None):
    history = History(limit)
    for t in range(1, rounds + 1):
        history.append(residuals(t), [] if outcomes is None else outcomes[t - 1])
    return history


def selection(rounds, limit):
    """Every so many rounds and the last: the finest selection by a power of two that fits."""
    strides = (2**k for k in itertools.count())
    every = ({*range(1, rounds + 1, stride), rounds} for stride in strides)
    return sorted(next(kept for kept in every if len(kept) <= max(limit, 2)))


@given(st.integers(1, 300), st.integers(0, 100))
@example(128, 128)
@example(129, 128)
@example(130, 128)
@example(257, 128)
@example(9, 0)
@example(9, 1)
def test_the_finest_even_selection_that_fits_is_kept_and_the_last_round(rounds, limit):
    history = history_of(rounds, limit)
    assert history.rounds == selection(rounds, limit)
    assert len(history) == len(history.rounds) <= max(limit, 2)


@given(st.integers(1, 300), st.integers(2, 100))
def test_a_history_within_its_limit_is_whole_and_a_longer_one_fills_half_of_it(rounds, limit):
    kept = history_of(rounds, limit).rounds
    assert kept[0] == 1 and kept[-1] == rounds
    if rounds <= limit:
        assert kept == list(range(1, rounds + 1))
    else:
        assert len(kept) > limit / 2


@given(st.integers(1, 300))
def test_without_a_limit_every_round_is_kept(rounds):
    assert history_of(rounds, None).rounds == list(range(1, rounds + 1))


def test_the_usual_limit_is_128_rounds():
    history = History()
    for t in range(1, 601):
        history.append(residuals(t), [])
        assert history.rounds == selection(t, 128)


@given(st.integers(1, 300), st.integers(0, 40) | st.none())
def test_the_values_of_kept_rounds_are_those_that_were_added(rounds, limit):
    history = history_of(rounds, limit)
    kept = [residuals(t) for t in history.rounds]
    assert [r.residuals for r in history] == kept
    for name in FIELDS:
        assert getattr(history, name) == [getattr(r, name) for r in kept]


outcomes = st.lists(st.lists(st.sampled_from(Outcome), max_size=3), min_size=1, max_size=50)


@given(outcomes, st.integers(0, 20) | st.none())
def test_a_kept_round_tells_what_went_wrong_in_it(outcomes, limit):
    for kept in history_of(len(outcomes), limit, outcomes):
        assert kept.failed == sum(o in BAD for o in outcomes[kept.t - 1])
        assert kept.inaccurate == sum(o in REDUCED for o in outcomes[kept.t - 1])


@given(outcomes, st.integers(0, 20) | st.none())
def test_totals_are_those_of_all_rounds_whatever_is_left_out(outcomes, limit):
    history = History(limit)
    for t, of_round in enumerate(outcomes, 1):
        history.append(residuals(t), of_round)
        so_far = list(itertools.chain(*outcomes[:t]))
        assert history.failed == sum(o in BAD for o in so_far)
        assert history.inaccurate == sum(o in REDUCED for o in so_far)


def test_every_outcome_is_either_good_or_reduced_or_a_failure():
    assert {*GOOD, *BAD, *REDUCED} == set(Outcome)
    for outcome in Outcome:
        history = history_of(1, None, [[outcome]])
        assert history.failed == (outcome in BAD)
        assert history.inaccurate == (outcome in REDUCED)


def test_the_round_that_is_handed_back_is_the_one_that_was_added():
    history = History(4)
    for t in range(1, 40):
        failures = [Outcome.FAILED] * (t % 3) + [Outcome.INACCURATE] * (t % 2)
        new = history.append(residuals(t), failures)
        assert new == Round(t, residuals(t), inaccurate=t % 2, failed=t % 3)


@given(st.integers(1, 100), st.integers(2, 20))
def test_a_history_is_a_sequence_of_rounds(rounds, limit):
    history = history_of(rounds, limit)
    kept = list(history)
    assert [r.t for r in kept] == history.rounds
    assert [history[i] for i in range(len(kept))] == kept
    assert history[-1].t == rounds and history[1:] == kept[1:]
    with pytest.raises(IndexError):
        history[len(kept)]


def test_a_new_history_is_empty():
    history = History()
    assert (len(history), history.rounds, history.primal) == (0, [], [])
    assert history.failed == history.inaccurate == 0


def pair():
    """Two agents that share two components."""
    x = cp.Variable(2, name="x")
    agents = []
    for name, value in (("a", 0.3), ("b", 0.6)):
        d = dp.Private(np.full(2, value), name=f"d {name}", adjacency=dp.Within(0.1))
        own = [cp.abs(x) <= 1, cp.norm1(x) <= 1.5]
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), own, name=name))
    return dp.Problem(agents)


@functools.cache
def planned(rounds):
    return pair().plan(dp.LinearizedADMM(), rounds=rounds, epsilon=1.0, delta=1e-6)


def test_a_run_keeps_every_round_on_request_and_a_selection_otherwise():
    plan = planned(150)
    full, usual = plan.run(seed=0, iterates=True).history, plan.run(seed=0).history
    assert full.rounds == list(range(1, 151))
    assert usual.rounds == selection(150, 128) and len(usual) <= 128
    for name in FIELDS:
        every = np.array(getattr(full, name))
        assert np.array_equal(getattr(usual, name), every[np.array(usual.rounds) - 1], True)


def test_failures_of_rounds_that_are_left_out_still_count(monkeypatch):
    solve, calls = ConicProgram.solve, itertools.count()

    def unreliable(self, *given):
        answer, k = solve(self, *given), next(calls)
        if k % 7 == 3:
            return ConicAnswer(None, Outcome.FAILED)
        return ConicAnswer(answer.x, Outcome.INACCURATE) if k % 5 == 0 else answer

    plan = planned(150)
    monkeypatch.setattr(ConicProgram, "solve", unreliable)
    every, usual = [], []
    for found, keep in ((every, True), (usual, False)):
        calls = itertools.count()
        history = plan.run(seed=0, iterates=keep).history
        found += [history.failed, history.inaccurate]
    assert every == usual
    assert min(every) > 20


def test_the_memory_of_a_result_does_not_grow_with_the_rounds():
    sizes = []
    for rounds in (200, 800):  # beyond what a history keeps, which is 100 rounds of either
        plan = boxes(2, 50, 10).plan(
            dp.LinearizedADMM(), mechanism=dp.Gaussian(), rounds=rounds, **BUDGET
        )
        run = functools.partial(plan.run, seed=0, verbose=False)
        run()  # what the first run keeps for later ones is not the result's
        sizes.append(held(run)[0])
    assert sizes[1] <= 1.3 * sizes[0]


def test_the_memory_of_a_history_does_not_grow_with_the_rounds():
    few, many = (held(lambda n=n: history_of(n, 128))[0] for n in (128, 5000))
    assert many <= 1.3 * few
    assert held(lambda: history_of(5000, None))[0] > 10 * few


def test_a_copied_history_goes_on_alone():
    history = history_of(10, 4)
    other = copy.deepcopy(history)
    other.append(residuals(11), [Outcome.FAILED])
    assert (history.rounds[-1], history.failed) == (10, 0)
    assert (other.rounds[-1], other.failed) == (11, 1)
