"""Newton's method on the active functions: exact projections, cold, on every kernel."""

import importlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcvx.__main__ import main
from dpcvx.errors import SolverError
from dpcvx.model.canonical import ConeData, Cones
from dpcvx.solvers import newton
from dpcvx.solvers.cones import ConeTest
from dpcvx.solvers.conic import ConicProgram, Outcome
from dpcvx.solvers.libraries import ActiveSet
from dpcvx.solvers.newton import COMPILED, PLAIN, Newton, best_kernel, newton_for
from dpcvx.solvers.newton_layout import layout_of
from tests.kernels import KERNELS


def data_of(A, b, cones):
    A = sp.csc_array(A)
    n = A.shape[1]
    return ConeData(sp.csc_array((n, n)), np.zeros(n), A, np.asarray(b, float), cones, n)


def method(data, kernel):
    """With all steps, also where few or none of them pay."""
    layout = layout_of(data)
    assert layout is not None
    return Newton(layout, kernel, 45)


def cone(n, shift):
    """``x_0 - shift_0 >= |other components - shift|``."""
    return data_of(-np.eye(n), -np.asarray(shift), Cones(soc=(n,)))


def on_cone(v):
    """The projection onto the cone of ``|tail| <= head``, in closed form."""
    head, length = v[0], np.linalg.norm(v[1:])
    if length <= head:
        return v
    if length <= -head:
        return np.zeros_like(v)
    share = (head + length) / 2
    return np.concatenate([[share], share * v[1:] / length])


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-6, 1e-2, 1.0, 1e3, 1e8]),
    n=st.integers(2, 8),
)
def test_projections_onto_a_cone_are_those_of_the_closed_form(kernel, seed, scale, n):
    rng = np.random.default_rng(seed)
    shift, v = scale * rng.normal(size=(2, n)) * 10.0 ** rng.uniform(-1, 1)
    found = method(cone(n, shift), kernel)(np.ones(n), v)
    exact = shift + on_cone(v - shift)
    size = max(np.abs(v).max(), np.abs(shift).max())
    if found is None:  # answers near the tip may be out of reach, and go to another solver
        assert np.linalg.norm(exact - shift) <= 0.5 * np.linalg.norm(v - shift)
        return
    assert np.linalg.norm(found.x - exact) <= 1e-8 * size
    stated = np.sqrt(2 * found.gap)
    assert np.linalg.norm(found.x - exact) <= stated + 1e-9 * size


@pytest.mark.parametrize("kernel", KERNELS)
def test_projections_onto_polyhedra_are_those_of_the_active_set(kernel):
    rng, distances = np.random.default_rng(0), []
    for _ in range(30):
        n, q, m = 12, 3, 20
        A, inside = rng.normal(size=(q + m, n)), rng.normal(size=n)
        room = np.concatenate([np.zeros(q), rng.uniform(0, 0.5, m)])
        data = data_of(A, A @ inside + room, Cones(zero=q, nonneg=m))
        D, v = rng.uniform(1, 10, n), inside + 0.3 * rng.normal(size=n)
        found, exact = method(data, kernel)(D, v), ActiveSet(data)(D, -D * v)
        assert found is not None and exact is not None
        assert ConeTest(data.cones)(data.b - data.A @ found.x) <= 1e-10
        way = np.sqrt(D @ (exact.y - v) ** 2)
        distances.append(np.sqrt(D @ (found.x - exact.y) ** 2) / way)
    assert np.median(distances) <= 1e-9


def network(rng, n=60):
    """A chain of cones over flows that equalities define, as networks have."""
    rows, b, at = [], [], 0
    p = n // 3
    for k in range(p):  # flow k is a difference of its neighbors' voltages
        row = np.zeros(n)
        row[[p + k, k, (k + 1) % p]] = 1.0, -2.0, 1.0
        rows.append(row)
        b.append(0.1 * rng.normal())
    for k in range(p):
        low = np.zeros(n)
        low[k] = -1.0
        rows.append(low)
        b.append(0.1)
    for k in range(p):
        block = np.zeros((3, n))
        block[1, p + k] = block[2, 2 * p + k] = 1.0
        rows += list(block)
        b += [1.0, 0.0, 0.0]
        at += 1
    return data_of(np.array(rows), b, Cones(zero=p, nonneg=p, soc=(3,) * at))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_network_is_projected_onto_as_by_the_interior_point(kernel):
    rng = np.random.default_rng(1)
    data = network(rng)
    ours, interior = ConicProgram(data, kernel), ConicProgram(data, kernel)
    assert ours._newton is not None
    interior._newton = None
    for far in (0.01, 1.0, 30.0):
        v, D = far * rng.normal(size=data.n), rng.uniform(1, 3, data.n)
        one, other = ours.solve(D, None, v), interior.solve(D, None, v)
        assert one.outcome is Outcome.SOLVED and one.error <= 1e-4 * far
        assert one.x == pytest.approx(other.x, abs=1e-5 * max(far, 1))
        assert far >= 1 or ours._newton(D, v) is not None


def parallel(rng, n=4):
    """Three limits of nearly the same flows, each a little different."""
    B, rows, b = rng.normal(size=(2, n)), [], []
    for _ in range(3):
        own = (1 + 0.02 * rng.normal()) * B + 0.02 * rng.normal(size=(2, n))
        rows += [np.zeros((1, n)), own]
        b += [1 + 0.1 * rng.normal(), 0.0, 0.0]
    return data_of(np.vstack(rows), b, Cones(soc=(3,) * 3))


@pytest.mark.parametrize("kernel", KERNELS)
def test_functions_that_stand_in_each_others_way_take_one_step_more(kernel):
    soon = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found = Newton(layout_of(parallel(rng)), kernel, 7)(np.ones(4), 1.5 * rng.normal(size=4))
        soon += found is not None
    assert soon >= 12  # 8 without the step back


@pytest.mark.parametrize("kernel", KERNELS)
def test_answers_depend_on_nothing_but_the_point_and_the_weights(kernel):
    rng = np.random.default_rng(2)
    data = network(rng)
    calls = [
        (rng.uniform(1, 3, data.n) if k % 3 else np.ones(data.n), rng.normal(size=data.n))
        for k in range(12)
    ]
    calls.append((np.ones(data.n), np.full(data.n, 1e200)))  # overflows: no answer
    calls.append((np.zeros(data.n), np.ones(data.n)))
    one, two = method(data, kernel), method(data, kernel)
    first = [one(*call) for call in calls]
    again = [two(*call) for call in calls[::-1]][::-1]
    with ThreadPoolExecutor(2) as pool:
        threads = list(pool.map(lambda call: method(data, kernel)(*call), calls))
    assert sum(found is None for found in first) == 2
    for found, *others in zip(first, again, threads, strict=True):
        for other in others:
            assert (found is None) == (other is None)
            assert found is None or np.array_equal(found.x, other.x)


_ELSEWHERE = """
import hashlib, sys
import numpy as np
from tests.solvers.test_newton import method, network
rng = np.random.default_rng(3)
data = network(rng)
v = rng.normal(size=data.n)
for kernel in sys.argv[1:]:
    found = method(data, kernel)(np.ones(data.n), v)
    print(hashlib.sha256(found.x.tobytes()).hexdigest())
"""


def test_other_processes_give_the_same_bits():
    kernels = dict.fromkeys((PLAIN, best_kernel()))
    asked = [sys.executable, "-c", _ELSEWHERE, *kernels]
    told = [subprocess.run(asked, capture_output=True, text=True, check=True) for _ in range(2)]
    assert told[0].stdout == told[1].stdout
    assert len(told[0].stdout.split()) == len(kernels)


@pytest.mark.skipif(best_kernel() == PLAIN, reason="numba is not installed")
def test_kernels_differ_in_the_last_digits_only():
    rng = np.random.default_rng(4)
    data = network(rng)
    one, other = method(data, PLAIN), method(data, COMPILED)
    for _ in range(10):
        D, v = rng.uniform(1, 3, data.n), rng.normal(size=data.n)
        assert one(D, v).x == pytest.approx(other(D, v).x, abs=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_sets_without_points_are_the_interior_points(kernel):
    data = network(np.random.default_rng(5))
    a = np.zeros((2, data.n))
    a[0, :5], a[1, :5] = 1.0, -1.0
    A, b = sp.vstack([data.A[:20], sp.csc_array(a), data.A[20:]]), data.b
    cones = Cones(20, 22, data.cones.soc)
    empty = data_of(A, [*b[:20], 0.0, -0.5, *b[20:]], cones)
    v = np.ones(data.n)
    assert method(empty, kernel)(v, v) is None
    assert ConicProgram(empty, kernel).solve(v, None, v).outcome is Outcome.INFEASIBLE


@pytest.mark.parametrize("kernel", KERNELS)
def test_bounds_at_infinity_bind_nothing(kernel):
    data = network(np.random.default_rng(6))
    b = data.b.copy()
    b[20:40] = np.inf
    without = data_of(
        sp.vstack([data.A[:20], data.A[40:]]), [*b[:20], *b[40:]], Cones(20, 0, data.cones.soc)
    )
    v = np.full(data.n, -3.0)
    with_them = method(data_of(data.A, b, data.cones), kernel)(np.ones(data.n), v)
    assert with_them.x == pytest.approx(method(without, kernel)(np.ones(data.n), v).x, abs=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_points_that_break_more_functions_than_there_are_columns_are_left_to_it_at_once(kernel):
    data = data_of([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 0.5], Cones(nonneg=3))
    D = np.ones(2)
    away, near = np.array([1.0, 1.0]), np.array([1.0, -0.5])  # break three of them, and one
    for budget, (far, close) in ((44, (True, False)), (3, (True, True)), (45, (False, False))):
        some = Newton(layout_of(data), kernel, budget)
        assert (some(D, away) is None, some(D, near) is None) == (far, close)
    assert some(D, near).x == pytest.approx([0.0, -0.5], abs=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_points_far_beyond_a_function_are_left_to_it_at_once_where_few_steps_pay(kernel):
    data = data_of([[1.0, 0.0], [0.0, 1.0]], [10.0, 10.0], Cones(nonneg=2))
    for budget, far in ((4, True), (7, False)):
        some = Newton(layout_of(data), kernel, budget)
        for v, left in (([11.0, 0.0], False), ([100.0, 0.0], far)):
            found = some(np.ones(2), np.array(v))
            assert (found is None) == left
            assert left or found.x == pytest.approx([10.0, 0.0], abs=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("far", "gained"), [(0.01, True), (0.3, False)])
def test_from_near_a_set_more_steps_are_taken(kernel, far, gained):
    few, more = 0, 0
    for seed in range(40):
        data = parallel(np.random.default_rng(seed))
        v = (1 + far) * np.linalg.lstsq(data.A.toarray()[1:3], [1.0, 0.0])[0]
        few += Newton(layout_of(data), kernel, 4)(np.ones(4), v) is not None
        more += Newton(layout_of(data), kernel, 4, near=45)(np.ones(4), v) is not None
    assert (more >= few + 3) if gained else (more == few)


def test_what_an_interior_point_does_faster_is_left_to_it():
    n = 1500
    whole = data_of(
        np.vstack([np.zeros((1, n)), np.eye(n)]), [1.0, *[0.0] * n], Cones(soc=(n + 1,))
    )
    assert layout_of(whole) is None  # derivatives of one large cone meet in a full matrix
    small = cone(4, np.zeros(4))
    assert newton_for(layout_of(small), PLAIN) is None  # three steps of numpy take as long
    assert newton_for(layout_of(network(np.random.default_rng(0))), PLAIN) is not None
    soc = Cones(soc=(3,))
    with_columns = data_of(np.eye(3), np.zeros(3), soc)
    assert layout_of(ConeData(**{**vars(with_columns), "n": 2})) is None
    assert layout_of(data_of(np.eye(3), np.zeros(3), Cones(exp=1))) is None


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_set_of_many_small_functions_is_projected_onto_however_large_it_is(kernel):
    # A network of ten thousand buses has as many, and took an interior point seconds.
    count = 26_000
    many = data_of(-sp.eye_array(4 * count), np.zeros(4 * count), Cones(soc=(4,) * count))
    v = np.random.default_rng(0).normal(size=(count, 4))
    v[:, 0] = np.where(np.arange(count) % 100, 1.2, 0.8) * np.linalg.norm(v[:, 1:], axis=1)
    found = newton_for(layout_of(many), kernel)(np.ones(v.size), v.ravel())
    nearest = np.array([on_cone(one) for one in v])
    assert found.x.reshape(-1, 4) == pytest.approx(nearest, abs=1e-10)


def test_without_numba_numpy_takes_the_steps(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "dpcvx.solvers.newton_compiled", raising=False)
    assert best_kernel() == PLAIN
    with pytest.raises(SolverError, match=r"numba is not installed.*pip install 'dpcvx\[fast\]'"):
        newton.compile_ahead()
    monkeypatch.setattr(sys, "argv", ["dpcvx", "warm"])
    assert main() == 1


@pytest.mark.skipif(best_kernel() == PLAIN, reason="numba is not installed")
def test_what_is_compiled_ahead_is_told(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dpcvx", "warm"])
    assert main() == 0
    assert "s of the processor" in capsys.readouterr().out
    # Compiled already, at the latest by the call before.
    compiled = importlib.import_module("dpcvx.solvers.newton_compiled")
    monkeypatch.setattr(compiled, "_NOTE", compiled._Note())
    assert newton.compile_ahead().startswith("The local steps were compiled before; loading")
    compiled._NOTE.said = True
    assert newton.compile_ahead().startswith("Compiled the local steps in")


@pytest.mark.skipif(best_kernel() == PLAIN, reason="numba is not installed")
@pytest.mark.parametrize("terminal", [True, False])
def test_one_is_told_once_what_is_compiled_and_for_how_long(monkeypatch, capsys, terminal):
    compiled = importlib.import_module("dpcvx.solvers.newton_compiled")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    note = compiled._Note()
    note.on_start(None)
    note.on_start(None)
    (line,) = capsys.readouterr().err.splitlines()
    assert "compiling local steps" in line and line.endswith("15 to 20 s of the processor ...")
    # Where nothing can be written, steps are compiled none the less.
    monkeypatch.setattr(sys, "stderr", None)
    compiled._Note().on_start(None)
    assert newton.COMPILED == best_kernel()


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_projection_of_a_tip_where_all_terms_vanish_is_the_tip(kernel):
    """Nothing is allowed of what is 0: no warning, and the answer of the other kernels."""
    found = method(cone(3, np.zeros(3)), kernel)(np.ones(3), np.zeros(3))
    assert found is not None
    assert np.array_equal(found.x, np.zeros(3))
