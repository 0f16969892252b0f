"""What travels to workers: arrays bit for bit, and programs without what follows from little."""

import io
import pickle
from functools import partial

import cvxpy as cp
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import dpcvx as dp
from dpcvx.privacy.ledger_lines import Notes
from dpcvx.run.data import sources_of
from dpcvx.run.executors.host import packed, thinned
from dpcvx.run.part import parts_of
from dpcvx.run.resume import begin
from tests.spies import worker_of_one

pytest.importorskip("cloudpickle")
KINDS = st.sampled_from(["f8", "f4", "i8", "i4", "u1", "?"])


def traveled(thing):
    """Array and bytes, there and back."""
    kind = type("Pickler", (pickle.Pickler,), {"dispatch_table": {np.ndarray: thinned}})
    kind(file := io.BytesIO(), protocol=pickle.HIGHEST_PROTOCOL).dump(thing)
    return pickle.loads(file.getvalue()), len(file.getvalue())


def alike(one, other):
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@given(KINDS.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(max_dims=3, max_side=12))))
def test_arrays_arrive_bit_for_bit(array):
    for one in (array, array.T, np.broadcast_to(array, (3, *array.shape)), array[..., ::-1]):
        assert alike(traveled(one)[0], one)


@given(st.integers(-(2**40), 2**40), st.integers(-(2**20), 2**20), st.integers(64, 500))
def test_progressions_and_constants_take_no_room(first, step, size):
    numbers = first + step * np.arange(size)
    for one in (numbers, np.full((size, 2), 0.1 * first), np.broadcast_to(np.float64(step), size)):
        back, length = traveled(one)
        assert alike(back, one) and length < 300
        assert any(one.strides) == any(back.strides)


@pytest.mark.parametrize("odd", [-0.0, np.nan, 1.0])
def test_one_other_entry_is_not_lost(odd):
    for place in (0, 31, 99):
        one = np.zeros(100)
        one[place] = odd
        assert alike(traveled(one)[0], one)
    steps = np.arange(100)
    steps[50] += 1
    assert alike(traveled(steps)[0], steps)


def test_a_program_on_records_takes_few_bytes_a_record():
    sizes = [len(sent(records)) for records in (1000, 6000)]
    assert sizes[1] - sizes[0] <= 4 * 5000


def sent(records):
    """What a worker makes an agent from whose records are fetched there."""
    person = {"adjacency": dp.Rows(1.0, records="person", relation="replace_one")}
    w = cp.Variable(10, name="w")
    X = dp.Private(partial(np.ones, (records, 10)), shape=(records, 10), name="X", **person)
    y = dp.Private(partial(np.ones, records), shape=records, name="y", **person)
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ w))) / records
    agent = dp.Agent(cp.Minimize(loss + cp.sum_squares(w)), [cp.abs(w) <= 5], name="a")
    plan = dp.Problem([agent]).plan(dp.LinearizedADMM(), rounds=3, epsilon=1.0, delta=1e-6)
    (part,), sources = parts_of(plan), sources_of(plan.problem, {})
    start = begin([part], None, False)
    return packed([worker_of_one(part, sources[0], start.agents[0])], [0], Notes(), "dask")
