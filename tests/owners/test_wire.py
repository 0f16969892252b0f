"""Programs and messages as bytes: what is written is read again, and nothing else is."""

import hashlib
import json
import math
import typing
from collections.abc import Sequence

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dpcvx as dp
from dpcvx.algorithms.consensus import Broadcast, LocalCopy
from dpcvx.algorithms.program import compile_problem
from dpcvx.model.atoms import RULES
from dpcvx.model.matrices import is_blank, zeros
from dpcvx.owners import wire
from dpcvx.owners.records import KINDS, RECORDS, REVISIONS
from dpcvx.owners.records import RULES as DONE_BY
from dpcvx.owners.wellformed import require_well_formed
from dpcvx.solvers.conic import Outcome
from dpcvx.testing import instances
from tests.owners.tampered import HEADER, packed, unpacked

BUILDS = [
    instances.power_line, instances.overlapping_slices, instances.covariance, instances.clinics,
    instances.sensors, instances.laboratories, instances.household_tariff, instances.dispatch,
]  # fmt: skip
x, y = cp.Variable(4, name="x"), cp.Variable((2, 3), name="y")
ATOMS = [
    cp.norm(x), cp.pnorm(x, 3), cp.norm1(y), cp.norm_inf(x), cp.max(y), cp.min(x[:2]) * -1,
    cp.sum(cp.max(y, axis=0)), cp.log_sum_exp(x), cp.sum(cp.log_sum_exp(y, axis=1)),
    cp.sum(cp.huber(x, 0.3)), cp.sum_largest(x, 2), cp.sum(cp.kl_div(x + 3, x + 2)),
    cp.sum(cp.rel_entr(x + 3, x + 2)), cp.sum(cp.exp(x)), -cp.sum(cp.log(x + 2)),
    -cp.sum(cp.log1p(x)), -cp.sum(cp.entr(x + 2)) * -1, cp.sum(cp.xexp(x + 2)),
    np.arange(4.0) @ cp.abs(x),
    cp.sum(cp.maximum(x, 1, 2 * x)), -cp.sum(cp.minimum(x, 0)), cp.sum(cp.logistic(x)),
    cp.quad_form(x, np.eye(4) + 0.1), cp.sum(cp.power(x + 2, 2.5)), cp.sum(cp.inv_pos(x + 2)),
    cp.quad_over_lin(x, 2 + x[0]), cp.sum(cp.square(y)) / (3 + x[1]),
    cp.sum(cp.multiply(x[:2], x[1:3])),
    cp.sum(x[:2] @ y), cp.sum(cp.nlp.tanh(x)),
]  # fmt: skip


def same(frame):
    """What a frame holds is written as the same bytes again."""
    found = wire.decode(frame)
    assert wire.encode(found) == frame
    return found


@pytest.mark.parametrize("build", BUILDS)
def test_programs_come_back_byte_for_byte(build):
    for local in compile_problem(build().problem).agents:
        moved = wire.portable(local)
        found = same(wire.encode(moved))
        require_well_formed(found)
        assert found.form.digest() == local.form.digest()
        assert wire.digest(found) == wire.digest(moved)


def test_every_atom_comes_back_with_its_gradient():
    met = set()
    for cost in ATOMS:
        problem = dp.Problem([dp.Agent(cp.Minimize(cost))])
        local = wire.portable(compile_problem(problem, proximal=False).agents[0])
        found = same(wire.encode(local))
        require_well_formed(found)
        point = np.linspace(0.3, 0.9, local.n)
        one, two = (form.at_zero().gradient(point) for form in (local.form, found.form))
        assert one.tobytes() == two.tobytes()
        met |= {atom.rule.name for atom in local.form.atoms}
    assert met == set(RULES)


def test_the_same_model_built_again_has_the_same_digest():
    # cvxpy numbers variables anew: their numbers are not what travels.
    one, two = (
        [wire.digest(wire.portable(a)) for a in compile_problem(instances.sensors().problem).agents]
        for _ in range(2)
    )
    assert one == two


@given(
    hnp.arrays(
        st.sampled_from(["<f8", "<i8", "<u8"]), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)
    )
)
def test_arrays_come_back_with_their_bytes(array):
    found = same(wire.encode(array))
    assert found.dtype == array.dtype and found.shape == array.shape
    assert found.tobytes() == array.tobytes()


@given(st.tuples(st.floats(), st.integers(-(2**63), 2**63 - 1), st.text(), st.booleans()))
def test_numbers_texts_and_truth_values_come_back(values):
    for value, found in zip(values, same(wire.encode(values)), strict=True):
        assert type(found) is type(value)
        assert found == value or (math.isnan(found) and math.isnan(value))


def test_zeros_take_no_bytes():
    frame = wire.encode(zeros(10**6))
    assert len(frame) < 100 and is_blank(wire.decode(frame))


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2**32))
def test_sparse_matrices_come_back(m, n, seed):
    made = np.random.default_rng(seed)
    M = sp.random_array((m, n), density=0.4, random_state=made)
    for matrix in (sp.csr_array(M), sp.csc_array(M)):
        found = same(wire.encode(matrix))
        assert found.format == matrix.format and (found != matrix).nnz == 0


def test_messages_are_small():
    w = np.arange(30.0)
    assert HEADER.size <= 64
    assert len(wire.encode(Broadcast(w, 10.0))) <= 8 * 30 + 110
    assert len(wire.encode(LocalCopy(w, w))) <= 2 * 8 * 30 + 120


def test_what_is_not_in_the_table_is_not_written():
    for foreign in ({"a": 1}, object(), np.array(["a"]), np.array([1j]), 1j, b"bytes", 2**63, len):
        with pytest.raises(dp.RefusedError) as refusal:
            wire.encode((foreign,))
        assert refusal.value.code == "unreadable"


@pytest.mark.parametrize(
    "tree",
    [
        {}, [], [1], "\ud800", ["unknown"], ["broadcast"], ["broadcast", 1.0, 1.0],
        ["rule", "none"],
        ["outcome", "FINE"], ["rule", ["x"]], ["#", "<f8", [1], "C"], ["#", "<f4", [0], "C"],
        ["#", "<f8", [-1], "C"], ["#", "<f8", [0], "K"], ["#", "O", [0], "C"], ["0", [0]],
        ["0", 5], ["float", "1.0"], ["float", 1], ["slice", 0.5, None, None],
        ["csr", [1, 1], ["#", "<f8", [0], "C"]], 2**63, ["within", -1.0, "entry"],
        ["within", 1.0, "most"], ["within", True, "entry"],
    ["rows", 1.0, 3, "replace_one", 0, None],
        ["gaussian", None, None, "analytic", 0.0, 1.0]
    ],
)  # fmt: skip
def test_trees_that_say_nothing_are_refused(tree):
    with pytest.raises(dp.RefusedError) as refusal:
        wire.decode(packed(tree, b""))
    assert refusal.value.code == "unreadable"


@pytest.mark.parametrize(
    "tree",
    [
        ["0", [2**40]], ["0", [2**16, 2**16]], ["#", "<f8", [2**40], "C"],
        ["csr", [0, 2**40], ["#", "<f8", [0], "C"], ["#", "<i4", [0], "C"], ["#", "<i4", [1], "C"]],
        ["csc", [2**40, 0], ["#", "<f8", [0], "C"], ["#", "<i4", [0], "C"], ["#", "<i4", [1], "C"]],
    ],
)  # fmt: skip
def test_decode_shapes_beyond_all_limits_are_called_large(tree):
    with pytest.raises(dp.RefusedError) as refusal:
        wire.decode(packed(tree, bytes(4)))
    assert refusal.value.code == "large"


def test_encode_sparse_matrix_counts_what_is_stored():
    # Their sides multiply to more than any array may have entries.
    for M in (sp.eye_array(10**5, format="csr"), sp.csc_array((10**6, 10**6))):
        found = same(wire.encode(M))
        assert found.shape == M.shape and (found != M).nnz == 0


def test_encode_frames_beyond_a_limit_are_called_large():
    frame = wire.encode(np.ones(100))
    for read in (lambda: wire.encode(np.ones(100), 500), lambda: wire.decode(frame, 500)):
        with pytest.raises(dp.RefusedError) as refusal:
            read()
        assert refusal.value.code == "large"
    for unwritten in (np.broadcast_to(0.0, (2**16, 2**16)), sp.csr_array((1, 2**31))):
        with pytest.raises(dp.RefusedError) as refusal:
            wire.encode(unwritten)
        assert refusal.value.code == "large"


@pytest.mark.parametrize("end", [b"", b"dpx1", wire.encode(np.ones(3))[:-1]], ids=len)
def test_frames_of_a_file_come_with_their_places(tmp_path, end):
    raw = b"".join(wire.encode(np.full(3, float(k))) for k in range(20))
    (tmp_path / "log").write_bytes(raw + end)
    with (tmp_path / "log").open("rb") as file:
        frames = list(wire.frames_in(file))
    assert [wire.decode(frame)[0] for _, frame in frames] == [*range(20)]
    assert all(raw[at : at + len(frame)] == frame for at, frame in frames)


def test_depth_is_limited_before_it_ends_the_process():
    deep = "[" * 100_000 + "]" * 100_000
    front = HEADER.pack(wire.MAGIC, len(deep), 0, b"")[:16]
    seal = hashlib.blake2b(front + deep.encode(), digest_size=32).digest()
    nested = ()
    for _ in range(100):
        nested = (nested,)
    for frame in (front + seal + deep.encode(), packed(json.loads("[" * 90 + "]" * 90), b"")):
        with pytest.raises(dp.RefusedError):
            wire.decode(frame)
    with pytest.raises(dp.RefusedError):
        wire.encode(nested)


def test_refusals_tell_other_versions_and_altered_frames():
    frame = wire.encode(Broadcast(np.ones(3), 1.0))
    for changed, code in [
        (b"dpx1" + frame[4:], "version"),
        (frame[:60] + b"!" + frame[61:], "altered"),
        (frame[:-1], "altered"),
        (frame + b"0", "altered"),
        (b"", "unreadable"),
        (b"GET / HTTP/1.1\r\n" * 10, "unreadable"),
    ]:
        with pytest.raises(dp.RefusedError) as refusal:
            wire.decode(changed)
        assert refusal.value.code == code
    tree, raw = unpacked(frame)
    with pytest.raises(dp.RefusedError, match="no field refers to"):
        wire.decode(packed(tree, raw + raw))


def test_sparse_matrices_that_would_end_the_process_are_refused():
    good = sp.csr_array(np.eye(3))
    tree, raw = unpacked(wire.encode(good))
    index = 3 * 8
    for place, value in [(index, 200), (index + 3, 255), (index + 12, 9), (index + 16, 77)]:
        bad = bytearray(raw)
        bad[place] = value
        with pytest.raises(dp.RefusedError):
            wire.decode(packed(tree, bytes(bad)))


def test_numbers_that_a_record_would_store_otherwise_are_refused():
    # Two texts for one record would be two digests.
    within = wire.encode(dp.Within(1.0, norm=np.inf))
    assert wire.decode(within).norm == math.inf
    with pytest.raises(dp.RefusedError, match="would not be written as it was read"):
        wire.decode(packed(["within", 1.0, "inf"], b""))


def test_every_name_stands_for_one_record():
    assert len(KINDS) == len(RECORDS)
    assert {KINDS[cls] for cls in RECORDS.values()} == set(RECORDS)


# What each version of the format says, by a digest. Versions that were released stay here; whoever
# changes what may cross raises `wire.MAGIC`, and adds a line.
FORMATS = {
    b"dpx1": "86107a35cdd9474c7ab46292ee2982ba",
    b"dpx2": "7d1f77b0fcab43b9a97909a7dfa9f6db",
    b"dpx3": "2de14cd6bafb6a568c435cebafca8a2c",
    b"dpx4": "3c52993256ee78a616e8a63b0e6115f9",
    b"dpx5": "dca4abbffd35d2d29a7f69f91b78eac5",
    b"dpx6": "58a49281de054d6dc26c2ca7ddfca130",
    b"dpx7": "19304e311145ecc74018775a8fb53ae4",
    b"dpx8": "0db410a1894c3c098ab72db0c8601632",
    b"dpx9": "647d798e34aefb7a8b3cd67f67478d86",
    b"dpxA": "b6bf6e5b8c447729234224c0da63e44a",
    b"dpxB": "b4f761b7042bd87f385cec96b254e534",
    b"dpxC": "e863a7fc5485d109fd22764139706686",
    b"dpxD": "a5ee98ce35e40c06e5436a2b960a96f4",
}
UNIONS = (typing.Union, type(int | str))


def said(hint):
    """A field's type in words that do not depend on the versions of Python and numpy."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is np.ndarray or hint is np.ndarray:
        return np.dtype(typing.get_args(inside[1])[0]).str
    if origin is typing.Literal:
        return sorted(map(repr, inside))
    done = DONE_BY.get(hint if origin is None else origin)
    if done is not None:
        return sorted(KINDS[one] for one in done)
    if inside:
        kind = "union" if origin in UNIONS else "sequence" if origin is Sequence else str(origin)
        parts = [said(one) for one in inside]
        return [kind, *(sorted(parts, key=repr) if kind == "union" else parts)]
    return KINDS.get(hint) or getattr(hint, "__name__", str(hint))


def test_a_change_of_what_may_cross_is_a_change_of_the_version():
    forms = {
        name: [form.names, [said(hint) for hint in form.hints]]
        for name, form in wire._FORMS.items()
    }
    revisions = {KINDS[method]: number for method, number in REVISIONS.items()}
    whole = [forms, sorted(RULES), [one.name for one in Outcome], revisions]
    text = json.dumps(whole, sort_keys=True)
    assert "0x" not in text  # no addresses: the same in every process
    found = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    assert FORMATS.get(wire.MAGIC) == found, (
        f"what may cross has changed: raise wire.MAGIC, and add its line with {found!r} to FORMATS"
    )
