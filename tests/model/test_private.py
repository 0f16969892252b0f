"""Private objects: what is refused, and that values show nowhere."""

import copy
import math
import pickle
import re
import struct
import traceback

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.transforms.suppfunc import SuppFunc

import dpcvx as dp
from dpcvx.model.private import source_of
from dpcvx.model.sealed import unseal
from dpcvx.model.spec import PrivateSpec
from tests.helpers import contains

WITHIN = dp.Within(0.01)
SECRETS = [31415.92653, 27182.81828]
x = cp.Variable(2, name="x")


def load(data=None, **kwargs):
    return dp.Private(data, **{"adjacency": WITHIN, "name": "load", **kwargs})


def shows(thing):
    """Whether text or pickled bytes contain a secret, in decimal or as eight bytes.

    With its point: cvxpy numbers its objects, and reaches whole parts of secrets in long processes.
    """
    raw = b"".join(
        [
            repr(thing).encode(),
            str(thing).encode(),
            f"{thing}".encode(),
            pickle.dumps(thing),
            pickle.dumps(thing, protocol=0),
        ]
    )
    marks = [m for s in SECRETS for m in (b"%.1f" % s, struct.pack("<d", s), struct.pack(">d", s))]
    return any(mark in raw for mark in marks)


def told(error):
    """Everything that a traceback with its whole chain prints, and the arguments."""
    lines = traceback.format_exception(error)
    chain = [error]
    while chain[-1].__cause__ or chain[-1].__context__:
        chain.append(chain[-1].__cause__ or chain[-1].__context__)
    return "".join(lines) + "".join(f"{e}{e.args}" for e in chain)


def test_the_search_finds_secrets():
    assert shows(SECRETS) and shows(np.array(SECRETS)) and shows(cp.Constant(SECRETS))
    assert shows(str(SECRETS)) and not shows([1.0, 2.0])


SECRET = load(SECRETS)
MODELS = {
    "private": SECRET,
    "sum": x + SECRET,
    "square": cp.sum_squares(x - SECRET),
    "product": SECRET @ x,
    "index": SECRET[0] * x,
    "objective": cp.Minimize(cp.sum_squares(x - SECRET)),
    "cvxpy problem": cp.Problem(cp.Minimize(cp.norm(x - SECRET)), [x >= 0]),
    "agent": dp.Agent(cp.Minimize(cp.sum_squares(x - SECRET)), [x >= 0], name="north"),
    "problem": dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - SECRET)))]),
    "spec": SECRET.spec,
}


@pytest.mark.parametrize("case", MODELS)
def test_values_show_in_no_text_and_no_pickle(case):
    assert not shows(MODELS[case])


@pytest.mark.parametrize("case", MODELS)
def test_deep_copies_carry_no_values(case):
    twin = copy.deepcopy(MODELS[case])
    assert not shows(twin)
    objects = [twin] if isinstance(twin, dp.Private) else getattr(twin, "parameters", list)()
    assert all(p.value is None and not p.bound for p in objects)


def test_an_unpickled_private_keeps_its_declaration_and_loses_its_data():
    twin = pickle.loads(pickle.dumps(SECRET))
    assert SECRET.bound and not twin.bound
    assert twin.spec == SECRET.spec and twin.id == SECRET.id
    with pytest.raises(dp.DataError, match=r"'load' has no data.*plan\.run\(data="):
        source_of(twin)


def test_a_function_that_fetches_is_not_pickled():
    held = list(SECRETS)
    private = load(lambda: held, shape=2)
    assert private.bound and not shows(private)
    assert not pickle.loads(pickle.dumps(private)).bound


def test_expressions_have_no_value():
    x.value = np.zeros(2)
    expressions = [SECRET, SECRET + 1, SECRET.T, cp.sum(SECRET), cp.sum_squares(x - SECRET)]
    assert [e.value for e in expressions] == [None] * 5


def test_cvxpy_never_solves_with_private_values():
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x - SECRET)))
    with pytest.raises(cp.error.ParameterError) as caught:
        problem.solve()
    assert not shows(told(caught.value)) and not shows(problem)


@pytest.mark.parametrize("held", [np.zeros(2), np.array(SECRETS), None])
def test_truth_value_of_private_data_is_refused(held):
    usage = load(held, **({"shape": 2} if held is None else {}))
    with pytest.raises(dp.PrivacyError, match="has no truth value") as refusal:
        bool(usage)
    assert "is not None" in str(refusal.value)
    assert not shows(told(refusal.value))


def test_dcp_errors_show_no_values():
    problem = cp.Problem(cp.Minimize(cp.sqrt(cp.norm(x - SECRET))))
    with pytest.raises(cp.error.DCPError) as caught:
        problem.get_problem_data(cp.CLARABEL)
    assert "load" in str(caught.value)
    assert not shows(told(caught.value))


def test_cvxpy_rules_see_shape_and_sign_only():
    assert SECRET.is_constant() and SECRET.is_affine() and SECRET.shape == (2,)
    assert load([1.0], nonneg=True).is_nonneg() and load([-1.0], nonpos=True).is_nonpos()
    assert not SECRET.is_nonneg() and not SECRET.is_nonpos()
    assert cp.sum(cp.multiply(load([1.0, 2.0], nonneg=True), cp.square(x))).is_dpp()


def test_value_cannot_be_set():
    with pytest.raises(dp.PrivacyError, match=r"'load' takes no value.*plan\.run\(data="):
        SECRET.value = np.ones(2)
    SECRET.value = None
    assert SECRET.value is None


def test_repr_is_the_declaration():
    assert repr(SECRET) == (
        "Private(shape=(2,), name='load', adjacency=Within(radius=0.01, norm='entry'))"
    )


def test_spec_is_what_is_public():
    spec = load([[1.0, 2.0], [3.0, 4.0]], nonneg=True).spec
    assert spec == PrivateSpec("load", (2, 2), WITHIN, "nonneg")
    assert spec.size == 4 and load([-1.0], nonpos=True).spec.sign == "nonpos"


def test_later_changes_of_the_array_do_not_reach_the_object():
    array = np.ones(2)
    private = load(array)
    array[:] = 7.0
    assert unseal(source_of(private), private.spec).tolist() == [1, 1]


def test_changes_of_the_fetched_array_do_not_reach_the_object():
    private = load([1.0, 1.0])
    with pytest.raises(ValueError, match="read-only"):
        unseal(source_of(private), private.spec)[:] = 7.0
    assert unseal(source_of(private), private.spec).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("data", "flat"),
    [
        ([[1, 2], [3, 4]], [1, 3, 2, 4]),
        (5, [5]),
        (np.arange(6.0).reshape(1, 2, 3), [0, 3, 1, 4, 2, 5]),
        (np.array([1, 2], dtype=np.int8), [1, 2]),
    ],
)
def test_data_are_read_column_major(data, flat):
    private = load(data)
    values = unseal(source_of(private), private.spec)
    assert values.dtype == np.float64 and values.tolist() == flat


def test_functions_are_called_only_when_the_data_are_read():
    calls = []

    def fetch():
        calls.append(1)
        return [1.0, 2.0]

    private = load(fetch, shape=2)
    source = source_of(private)
    assert calls == []
    assert unseal(source, private.spec).tolist() == [1, 2]
    assert calls == [1]


def test_an_override_takes_the_place_of_the_data():
    assert unseal(source_of(SECRET, [1, 2]), SECRET.spec).tolist() == [1, 2]
    assert unseal(source_of(SECRET, lambda: [3, 4]), SECRET.spec).tolist() == [3, 4]
    assert unseal(source_of(load(shape=1), np.zeros(1)), load(shape=1).spec).tolist() == [0]


class Ragged:
    """Not an array, and its text is a secret."""

    def __float__(self):
        raise ValueError(str(SECRETS))

    def __repr__(self):
        return str(SECRETS)


WRONG = {
    "shape": (SECRETS * 2, {}, r"shape \(4,\).*declared with shape \(2,\)"),
    "matrix": ([SECRETS], {}, r"shape \(1, 2\).*Give an array of the declared shape"),
    "scalar": (SECRETS[0], {}, r"shape \(\)"),
    "NaN": ([SECRETS[0], np.nan], {}, "NaN or infinite.*clean the data"),
    "None": ([SECRETS[0], None], {}, "NaN or infinite"),
    "infinite": ([SECRETS[0], -np.inf], {}, "NaN or infinite"),
    "sign": ([SECRETS[0], -1.0], {"nonneg": True}, "nonneg=True.*drop non"),
    "other sign": ([-1.0, SECRETS[0]], {"nonpos": True}, "nonpos=True.*drop non"),
    "text": (str(SECRETS[0]) + " W", {}, "are one text.*np.loadtxt"),
    "texts": ([f"{s} W" for s in SECRETS], {}, "are texts.*dtype=float"),
    "bytes": (str(SECRETS).encode(), {}, "are one text"),
    "mapping": ({"a": SECRETS}, {}, "are a mapping.*values"),
    "nested": ([SECRETS, SECRETS[:1]], {}, "rows of different lengths"),
    "complex": ([1j * SECRETS[0], 0], {}, "are complex.*data.real"),
    "object": ([Ragged(), Ragged()], {}, "not an array of real numbers"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("way", ["override", "function"])
def test_wrong_data_are_refused_when_read(case, way):
    data, attributes, message = WRONG[case]
    private = load((lambda: data) if way == "function" else None, shape=2, **attributes)
    source = source_of(private) if way == "function" else source_of(private, data)
    with pytest.raises(dp.DataError, match=message) as caught:
        unseal(source, private.spec)
    assert "'load'" in str(caught.value)
    assert not shows(str(caught.value)) and "31415" not in told(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize("case", WRONG)
def test_wrong_data_are_refused_when_declared(case):
    data, attributes, message = WRONG[case]
    with pytest.raises(dp.DataError, match=message) as caught:
        load(data, shape=2, **attributes)
    assert "'load'" in str(caught.value) and "31415" not in told(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize("kind", [ValueError, KeyError, ZeroDivisionError, AssertionError])
def test_the_message_of_a_failing_function_is_withheld(kind):
    def fetch():
        raise kind(f"line 3: {SECRETS}")

    with pytest.raises(dp.DataError) as caught:
        unseal(fetch, SECRET.spec)
    text = str(caught.value)
    assert "'load'" in text and kind.__name__ in text and "Call the function by itself" in text
    assert "31415" not in told(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


DECLARED = {
    "no shape": ((), {}, r"'load' has no shape.*shape=\(n,\)"),
    "function without shape": ((lambda: [1.0],), {}, r"'load' has no shape.*shape=\(n,\)"),
    "tuple": (((31415.92653, 1.0),), {}, r"'load' was given a tuple.*shape=\(\.\.\.\).*list or"),
    "empty": (([],), {}, r"'load' has shape \(0,\).*nothing to protect"),
    "empty shape": ((), {"shape": (3, 0)}, r"'load' has shape \(3, 0\).*nothing to protect"),
    "shape of words": ((), {"shape": "many"}, r"'load' has shape='many'; write an int or a tuple"),
    "shape list": ((), {"shape": [3]}, r"'load' has shape=<list of length 1>; write an int"),
    "two signs": (([1.0],), {"nonneg": True, "nonpos": True}, "'load' cannot be nonneg and nonpos"),
    "bare number": (([1.0],), {"adjacency": 0.1}, r"'load' has adjacency float.*dp\.Within\(0"),
    "no adjacency": (([1.0],), {"adjacency": None}, r"'load' has no adjacency=.*dp\.Within"),
}  # fmt: skip


@pytest.mark.parametrize("case", DECLARED)
def test_unclear_declarations_are_refused(case):
    args, kwargs, message = DECLARED[case]
    with pytest.raises(dp.ModelError, match=message) as caught:
        load(*args, **kwargs)
    assert "31415" not in told(caught.value)


def test_objects_without_a_name_are_called_unnamed():
    with pytest.raises(dp.ModelError, match="'unnamed'"):
        dp.Private(adjacency=WITHIN)


def test_shapes_are_taken_as_numbers_or_tuples():
    assert [load(shape=s).shape for s in (3, (2, 3), ())] == [(3,), (2, 3), ()]


class Quoting:
    """Conversion fails with a message that quotes the data."""

    shape = (2,)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError(str(SECRETS))


@pytest.mark.parametrize("data", [Quoting(), [10**400, 0]], ids=["quoting", "too large"])
def test_any_failing_conversion_is_withheld(data):
    private = load(shape=2)
    with pytest.raises(dp.DataError) as caught:
        unseal(source_of(private, data), private.spec)
    assert "31415" not in told(caught.value)


@pytest.mark.parametrize("shape", [2.7, -2, "3", (True, 2)], ids=str)
def test_shapes_are_positive_integers(shape):
    with pytest.raises(dp.ModelError, match="'load'"):
        load(shape=shape)


def test_masked_arrays_are_refused():
    with pytest.raises(dp.DataError):
        load(np.ma.array([1.0, 2.0], mask=[False, True]))


def test_cvxpy_cannot_store_a_value():
    private = load(shape=2)
    try:
        private.save_value(np.array(SECRETS))
    except dp.PrivacyError:
        return
    assert not shows(private)


def rows(
    data=None, *, bound=1.0, norm=2, relation="replace_one", clip=False, records="record", **kwargs
):
    adjacency = dp.Rows(bound, norm, relation, clip, records)
    return dp.Private(data, adjacency=adjacency, name="load", **kwargs)


def stored(private):
    return private.spec.shaped(unseal(source_of(private), private.spec))


LENGTHS = pytest.mark.parametrize("norm", [1, 2, math.inf], ids=str)


@LENGTHS
def test_rows_within_the_bound_are_kept_bit_for_bit(norm):
    data = np.random.default_rng(1).normal(size=(500, 3))
    data *= (3.7 / np.linalg.norm(data, norm, axis=1))[:, None]  # at the bound, up to rounding
    data[::7] = 0.0
    data[::11] *= 1e-290
    assert np.array_equal(stored(rows(data, bound=3.7, norm=norm)), data)
    assert np.array_equal(stored(rows(data, bound=3.7, norm=norm, clip=True)), data)


@LENGTHS
@pytest.mark.parametrize("size", [1.001, 3.0, 1e150, 1e300])
def test_clipping_scales_long_rows_to_the_bound_and_keeps_their_direction(norm, size):
    rng = np.random.default_rng(2)
    data = rng.normal(size=(40, 5))
    data /= np.linalg.norm(data, norm, axis=1)[:, None]
    data *= np.where(np.arange(40) % 2, 0.9, size)[:, None]
    found = stored(rows(data, norm=norm, clip=True))
    assert np.array_equal(found[1::2], data[1::2])
    assert np.linalg.norm(found[::2], norm, axis=1) == pytest.approx(np.ones(20), rel=1e-14)
    assert found[::2] * size == pytest.approx(data[::2], rel=1e-12)


@LENGTHS
@pytest.mark.parametrize("bound", [1e-300, 1e-3, 1.0, 1e10, 1e300])
@pytest.mark.parametrize("entry", [5e-324, 1e-300, 1.0, 1e300, 1.7e308])
def test_rows_of_extreme_magnitude_are_clipped_without_overflow(norm, bound, entry):
    found = stored(rows([[entry, -entry], [0.0, 0.0]], bound=bound, norm=norm, clip=True))
    assert np.isfinite(found).all() and not found[1].any()
    assert found[0, 0] == -found[0, 1] > 0
    stretch = {1: 2.0, 2: math.sqrt(2), math.inf: 1.0}[norm]
    assert found[0, 0] == pytest.approx(min(entry, bound / stretch), rel=1e-12)


@LENGTHS
@pytest.mark.parametrize("data", [[31415.92653, 0.1], [[31415.92653, 2.0], [0.0, 0.1]]], ids=str)
@pytest.mark.parametrize("way", ["declared", "override", "function"])
def test_long_rows_are_refused_without_saying_how_long_or_how_many(norm, data, way):
    shape = np.shape(data)
    with pytest.raises(dp.DataError) as caught:
        if way == "declared":
            rows(data, norm=norm)
        elif way == "override":
            unseal(source_of(rows(shape=shape, norm=norm), data), rows(shape=shape, norm=norm).spec)
        else:
            stored(rows(lambda: data, shape=shape, norm=norm))
    several = [[2.0] * 2] * 2 if len(shape) == 2 else [2.0] * 2
    with pytest.raises(dp.DataError) as other:
        rows(several, norm=norm)
    text = str(caught.value)
    assert text == str(other.value)  # one long row or all of them, far off or not
    assert "'load'" in text and "declared bound 1" in text and "clip_rows=True" in text
    assert "31415" not in told(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize("clip", [False, True])
def test_entries_of_a_vector_are_rows(clip):
    assert stored(rows([0.5, -1.0, 0.0], clip=clip)).tolist() == [0.5, -1.0, 0.0]
    assert stored(rows([2.0, -3.0, 0.25], clip=True)).tolist() == [1.0, -1.0, 0.25]
    with pytest.raises(dp.DataError, match="exceeds the declared bound"):
        rows([0.5, -1.5])


def test_rows_of_a_matrix_are_not_its_columns():
    data = [[0.8, 0.6], [0.8, 0.6], [0.8, 0.6]]
    assert stored(rows(data)).tolist() == data
    with pytest.raises(dp.DataError):
        rows(np.transpose(data))
    assert unseal(source_of(rows(data)), rows(data).spec).tolist() == [0.8] * 3 + [0.6] * 3


def test_rows_keep_the_checks_of_values():
    for data, message in [
        ([[np.nan, 0]], "NaN"),
        ([[0.1], [0.1]], "shape"),
        ([[-0.1, 0]], "nonneg"),
    ]:
        with pytest.raises(dp.DataError, match=message):
            rows(data, shape=(1, 2), nonneg=True, clip=True)


def test_clipping_keeps_signs():
    assert stored(rows([[3.0, 4.0]], nonneg=True, clip=True))[0] == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("shape", [(), (2, 2, 2)], ids=str)
def test_only_vectors_and_matrices_have_rows(shape):
    with pytest.raises(dp.ModelError, match=r"'load' has shape .* and no rows: dp\.Rows needs"):
        rows(shape=shape)


def test_rows_show_their_declaration_and_no_data():
    private = rows(0.01 * np.array([SECRETS]) / SECRETS[0], records="patient")
    assert repr(private.adjacency) == (
        "Rows(max_norm=1.0, norm=2, relation='replace_one', clip_rows=False, records='patient', "
        "max_rows_per_person=None)"
    )
    assert repr(private) == (f"Private(shape=(1, 2), name='load', adjacency={private.adjacency!r})")
    assert not contains(private, stored(private))


# Public values of the same kind


def test_public_values_are_declared_with_the_data():
    given = [1.0, 2.0]
    private = load(SECRETS, proxy=given)
    given[0] = 9.0
    assert np.array_equal(private.proxy, [1.0, 2.0]) and load(SECRETS).proxy is None
    with pytest.raises(ValueError, match="read-only"):
        private.proxy[0] = 3.0
    assert repr(private) == repr(SECRET) and private.spec == SECRET.spec and not shows(private)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_public_values_stay_in_copies_and_pickles(copied):
    twin = copied(load(SECRETS, proxy=[[1.0, 2.0], [3.0, 4.0]][0]))
    assert not twin.bound and np.array_equal(twin.proxy, [1.0, 2.0])


def test_the_shape_follows_from_public_values_where_nothing_else_tells():
    matrix = np.arange(6.0).reshape(2, 3)
    assert load(proxy=matrix).shape == (2, 3)
    assert load(lambda: SECRETS, proxy=[1.0, 2.0]).shape == (2,)


def test_functions_are_not_called_for_public_values():
    def forbidden():
        raise AssertionError

    assert load(forbidden, proxy=[1.0, 2.0]).proxy is not None


BAD_LIKES = {
    "shape": (dict(proxy=[1.0]), "proxy= of private 'load' have shape"),
    "text": (dict(proxy="a lot"), "proxy= of private 'load' are not an array of real numbers"),
    "function": (
        dict(proxy=lambda: 0),
        "proxy= of private 'load' are not an array of real numbers",
    ),
    "nan": (dict(proxy=[1.0, math.nan]), "proxy= of private 'load' contain NaN"),
    "sign": (dict(proxy=[1.0, -1.0], nonneg=True), "proxy= of private 'load' have entries that"),
    "long rows": (
        dict(proxy=[1.0, 3.0], adjacency=dp.Rows(2.0)),
        "proxy= of private 'load' have row",
    ),
}


@pytest.mark.parametrize("case", BAD_LIKES)
def test_public_values_that_do_not_fit_are_refused(case):
    given, text = BAD_LIKES[case]
    with pytest.raises(dp.DataError, match=text) as caught:
        load(shape=2, **given)
    assert "3.0" not in str(caught.value)


def test_public_values_too_long_are_clipped_as_data_are():
    assert np.array_equal(
        load(proxy=[1.0, 3.0], adjacency=dp.Rows(2.0, clip_rows=True)).proxy, [1, 2]
    )


def test_data_are_no_public_values():
    data = np.array(SECRETS)
    with pytest.raises(dp.PrivacyError, match="its own data as proxy=") as caught:
        load(data, proxy=data)
    assert not shows(told(caught.value))


# -- tables and functions of numpy -----------------------------------------------------------------


class Kind:
    """A type of a column, as pandas has them beside numpy's."""

    def __init__(self, name, kind="O"):
        self.name, self.kind = name, kind

    def __str__(self):
        return self.name


class Table:
    """A frame: columns with types, which are public, and values, which are not."""

    def __init__(self, **types):
        self.columns, self.dtypes = [*types], [*types.values()]

    def __array__(self, dtype=None, copy=None):
        return np.full((2, len(self.columns)), "secret", dtype=object)


TENTH = dp.Within(0.1)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            Table(age=np.dtype(float), workclass=np.dtype(object), sex=Kind("category")),
            "have columns that are not plain numbers: 'workclass' of type object, 'sex' of type ca",
        ),
        (
            Table(age=np.dtype(float), children=Kind("Int64", "i")),
            "have columns that are not plain numbers: 'children' of type Int64. ",
        ),
        (
            Table(**{f"c{k}": np.dtype(object) for k in range(11)}),
            "have columns that are not plain",
        ),
        (np.array([1.0, 2.0]).astype("datetime64[D]"), "are of type datetime64"),
    ],
)
def test_tables_that_are_no_numbers_are_refused_by_column_and_type(table, words):
    shape = (2, 3) if isinstance(table, Table) else 2
    declared = dp.Private(shape=shape, name="people", adjacency=TENTH)
    x = cp.Variable(declared.shape)
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x - declared)), [cp.abs(x) <= 2])
    plan = dp.Problem([agent]).plan(mechanism=None)
    for refused in (
        lambda: dp.Private(table, name="people", adjacency=TENTH),
        lambda: plan.run(data={"people": table}),
        lambda: plan.run(data={"people": lambda: table}),
    ):
        with pytest.raises(dp.DataError, match=re.escape(f"'people' {words}")) as caught:
            refused()
        said = str(caught.value)
        assert ("and 3 more" in said) == (len(getattr(table, "columns", ())) > 8)
        assert "secret" not in said and "numeric columns only" in said


def test_masked_arrays_without_masked_entries_and_records_of_numbers_are_taken():
    fields = np.array([(1.0, 2), (3.0, 4)], dtype=[("a", float), ("b", int)])
    assert dp.Private(fields, adjacency=TENTH).shape == (2, 2)
    whole = np.ma.masked_array([1.0, 2.0], [False, False])
    assert dp.Private(whole, adjacency=TENTH).shape == (2,)
    with pytest.raises(dp.DataError, match=r"masked entries.*data.filled"):
        dp.Private(np.ma.masked_array([1.0, 2.0], [True, False]), adjacency=TENTH)
    x = cp.Variable((2, 2))
    d = dp.Private(fields, adjacency=TENTH)
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 9])
    result = dp.Problem([agent]).solve(mechanism=None)
    assert result.solution[x] == pytest.approx(np.array([[1.0, 2.0], [3.0, 4.0]]), abs=1e-6)


@pytest.mark.parametrize("function", [np.mean, np.sum, np.max, np.std, np.linalg.norm, np.sort])
def test_functions_of_numpy_are_told_to_be_cvxpys(function):
    d = dp.Private(np.ones(3), name="load", adjacency=TENTH)
    name = function.__name__
    instead = rf"cp\.{name}\(" if hasattr(cp, name) else "an atom of cvxpy"
    with pytest.raises(dp.ModelError, match=rf"np\.{name}\(.*private 'load'.*Write {instead}"):
        function(d)
    assert (np.shape(d), np.ndim(d), np.size(d)) == ((3,), 1, 3)


@pytest.mark.parametrize("name", ["epsilon", "rounds", "delta", "mechanism"])
def test_runs_cannot_change_what_a_plan_fixes(name):
    x = cp.Variable(3)
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x)))
    with pytest.raises(
        TypeError, match=rf"no argument {name}=\. A plan .*plan\(\.\.\., {name}=\.\."
    ):
        dp.Problem([agent]).plan().run(**{name: 2})


@pytest.mark.parametrize(
    ("kind", "values", "fault"),
    [
        ({"bounds": (0, 1)}, [0.5, 1.5], r"outside bounds=\(0, 1\)"),
        ({"boolean": True}, [0.0, 0.5], "other than 0 and 1"),
        ({"simplex": True}, [0.5, 0.6], "do not sum to 1"),
        ({"simplex": True}, [1.5, -0.5], "negative entries"),
    ],
)
def test_data_are_of_the_declared_kind(kind, values, fault):
    with pytest.raises(dp.DataError, match=fault) as caught:
        dp.Private(values, name="d", adjacency=dp.Within(1.0, norm=1), **kind)
    assert "1.5" not in str(caught.value) and "0.6" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ({"bounds": (1, 0)}, "smaller one first"),
        ({"bounds": 3.0}, "two numbers"),
        ({"bounds": (0, 1), "boolean": True}, "Keep one"),
        ({"simplex": True, "PSD": True}, "Keep one"),
        ({"boolean": 1}, "boolean=1"),
        ({"bounds": (0, 1), "nonpos": True}, "nonneg and nonpos at once"),
        ({"simplex": True}, r"dp\.Within\(2, norm=1\)"),
        ({"PSD": True, "nonneg": True}, "takes symmetric=True"),
    ],
)
def test_kinds_that_contradict_each_other_are_refused(kind, said):
    with pytest.raises(dp.ModelError, match=said):
        dp.Private(shape=(2, 2), name="d", adjacency=dp.Within(1.0), **kind)


@pytest.mark.parametrize("seed", range(5))
def test_the_admissible_point_is_the_closest(seed):
    """Against cvxpy's projection onto the same set."""
    draws = np.random.default_rng(seed)
    far = draws.normal(size=(3, 4)) * 2
    shape = {
        "bounds": lambda X: [X >= -0.5, X <= 1],
        "simplex": lambda X: [X >= 0, cp.sum(X, axis=1) == 1],
    }
    for name, limits in shape.items():
        kind = {"bounds": (-0.5, 1.0)} if name == "bounds" else {"simplex": True}
        spec = dp.Private(shape=(3, 4), name="d", adjacency=dp.Within(0.1, 2), **kind).spec
        X = cp.Variable((3, 4))
        cp.Problem(cp.Minimize(cp.sum_squares(X - far)), limits(X)).solve(cp.CLARABEL)
        assert spec.shaped(spec.admissible(spec.kept(far))) == pytest.approx(X.value, abs=1e-5)


def test_the_sign_of_bounds_is_known_to_cvxpy():
    bounded = dp.Private(shape=2, name="d", adjacency=dp.Within(0.1), bounds=(0.5, 2))
    assert bounded.is_nonneg() and not bounded.is_nonpos()
    assert (cp.Variable() * cp.sum(bounded)).is_dcp()


@pytest.mark.parametrize("norm", ["entry", 1, 2, "inf"])
def test_a_flip_is_a_change_of_one(norm):
    """Smaller changes hide nothing: rounding to 0 and 1 would undo the noise."""
    with pytest.raises(
        dp.ModelError, match=r"protects no change of an entry. Write dp\.Within\(1\)"
    ):
        dp.Private(shape=3, name="d", adjacency=dp.Within(0.5, norm), boolean=True)
    assert dp.Private(shape=3, name="d", adjacency=dp.Within(1, norm), boolean=True).is_nonneg()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ({"nonneg": True}, [[0, 0.4], [0.4, 3]]),
        ({"bounds": (0, 1)}, [[0, 0.4], [0.4, 1]]),
        ({"boolean": True}, [[0, 0], [0, 1]]),
    ],
)
def test_symmetric_matrices_may_have_a_sign_or_bounds(kind, expected):
    declared = dp.Private(shape=(2, 2), name="W", adjacency=dp.Within(1.0), symmetric=True, **kind)
    spec = declared.spec
    released = np.array([[-0.2, 0.4], [0.4, 3.0]])
    assert spec.shaped(spec.admissible(spec.kept(released))).tolist() == expected
    assert declared.is_symmetric() and declared.is_nonneg()
    with pytest.raises(dp.DataError, match="contradict|outside|other than 0 and 1"):
        dp.Private(released, adjacency=dp.Within(1.0), name="W", symmetric=True, **kind)


def test_bounds_of_symmetric_matrices_need_entries_of_one_size():
    for norm in (1, 2):
        with pytest.raises(dp.ModelError, match="an adjacency of single entries"):
            dp.Private(
                shape=(2, 2), adjacency=dp.Within(1, norm=norm), symmetric=True, boolean=True
            )


def _within(x, usage, place):
    """Return agents and a coupling with private data in a support function, which lists none."""
    y, z = cp.Variable(2), cp.Variable(2, name="z")
    ball = SuppFunc(y, [cp.norm(y) <= 1])
    inner = cp.Variable(2)
    hidden = {
        "argument": ball(x - usage),
        "set": SuppFunc(inner, [ball(inner - usage) <= 1])(x),
        "sum": cp.sum_squares(x) + 2 * ball(usage + x),
    }.get(place, ball(x - usage))
    cost = hidden if place in ("argument", "set", "sum") else cp.sum_squares(x)
    constraints = [hidden <= 3] if place == "constraint" else []
    recourse = [ball(z - usage) <= 3] if place == "recourse" else []
    agent = dp.Agent(cp.Minimize(cost), constraints, recourse=recourse, name="north")
    return dp.Problem([agent], coupling=[hidden <= 3])


@pytest.mark.parametrize("place", ["argument", "set", "sum", "constraint", "recourse", "coupling"])
def test_data_within_a_support_function_are_refused_as_cvxpy_does_not_list_them(place):
    usage = dp.Private([0.0, 1.0], name="usage", adjacency=dp.Within(0.1))
    with pytest.raises(dp.ModelError, match="has 'usage' within an atom that does not list it"):
        _within(cp.Variable(2, name="x"), usage, place)
