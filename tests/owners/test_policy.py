"""Policies in files: what they may say, and what they must."""

import errno
import os
import sys
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.owners import policy as policies
from dpcvx.owners.agreement import agree
from dpcvx.owners.policy import model_plan, read_policy
from dpcvx.run.gate import read
from tests.owners.settings import offered, planned

GOOD = """agent = "north"
ledger = "spent.jsonl"
[budget]
epsilon = 1.0
delta = 1e-6
"""
DATA = '[data."load"]\nfile = "load.csv"\nshape = [2, 3]\nwithin = 0.01\n'


@pytest.fixture
def place(tmp_path):
    def written(text):
        path = tmp_path / "owner.toml"
        path.write_text(text)
        return path

    np.savetxt(tmp_path / "load.csv", np.arange(6.0).reshape(2, 3), delimiter=",")
    return written


def test_what_is_omitted_is_cautious(place, tmp_path):
    policy = read_policy(place(GOOD))
    assert policy.ask and policy.max_colluders is None and policy.keys is None
    assert policy.ledger == tmp_path / "spent.jsonl" and not policy.data
    assert (policy.epsilon, policy.delta, policy.share) == (1.0, 1e-6, 1)


def test_declarations_of_data_are_those_of_private_objects(place):
    path = place(
        GOOD + DATA
        + '[data.X]\nfile = "X.npy"\nshape = [4, 2]\n'
        + 'rows = { max_norm = 2.0, records = "person", clip_rows = true }\n'
        + '[data.v]\nfile = "a:b"\nshape = [3]\nwithin = 1.0\nnorm = 2\nnonneg = true\n'
        + '[data.S]\nfile = "S.npy"\nshape = [2, 2]\nwithin = 1.0\nPSD = true\n'
    )  # fmt: skip
    held = read_policy(path).data
    assert held["load"].spec.adjacency == dp.Within(0.01) and held["load"].spec.shape == (2, 3)
    assert held["X"].spec.adjacency == dp.Rows(2.0, records="person", clip_rows=True)
    assert held["v"].spec.sign == "nonneg" and held["S"].spec.psd


def test_sparse_data_fit_as_others_do(place, tmp_path, monkeypatch):
    (tmp_path / "visits_of_north.py").write_text(
        "import scipy.sparse as sp\ndef X():\n    return sp.csr_array([[0.0, 2.0], [0.0, 0.0]])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = '[data.X]\nfile = "visits_of_north:X"\nshape = [2, 2]\nrows = {{ max_norm = {} }}\n'
    place(GOOD + text.format(2.0))
    assert "X: fits its declaration" in dp.Owner(tmp_path / "owner.toml").check()
    place(GOOD + text.format(1.0))
    with pytest.raises(dp.DataError, match="rows whose l2 norm exceeds"):
        dp.Owner(tmp_path / "owner.toml").check()


PEOPLE = (
    '[data.X]\nfile = "X.npy"\nshape = [4, 2]\nrows = { max_norm = 2.0, max_rows_per_person = 2 }\n'
)


def test_identifiers_are_read_next_to_the_data(place, tmp_path, monkeypatch):
    np.save(tmp_path / "X.npy", np.ones((4, 2)))
    np.save(tmp_path / "people.npy", np.array([7, 7, 7, 8]))
    (tmp_path / "people.csv").write_text("Ann, Qz\nAnn, Qz\nAnn, Qz\nBob\n")
    (tmp_path / "people_of_north.py").write_text("def people():\n    return [1, 1, 1, 2]\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("people.npy", "people.csv", "people_of_north:people"):
        held = read_policy(place(GOOD + PEOPLE + f'people = "{name}"\n')).data["X"]
        (flat,) = read([held.spec], [held.source])
        assert flat.reshape((4, 2), order="F")[:, 0].tolist() == [1, 1, 0, 1]
        assert "one person (at most 2 rows" in dp.Owner(tmp_path / "owner.toml").check()


def test_another_number_of_identifiers_names_the_file(place, tmp_path):
    np.save(tmp_path / "X.npy", np.ones((4, 2)))
    (tmp_path / "people.csv").write_text("id\nAnn\nAnn\nBob\nBob\n")
    place(GOOD + PEOPLE + 'people = "people.csv"\n')
    said = r"'people\.csv' has 5 identifiers, and the data have 4 rows\. Write one .* header"
    with pytest.raises(dp.DataError, match=said):
        dp.Owner(tmp_path / "owner.toml").check()


def test_people_without_identifiers_are_refused(place, tmp_path):
    np.save(tmp_path / "X.npy", np.ones((4, 2)))
    (tmp_path / "people.csv").write_text("Ann Qz\n\nAnn Qz\nBob Qz\n")
    place(GOOD + PEOPLE)
    with pytest.raises(
        dp.ModelError, match=r'max_rows_per_person, and no people. Write people = "'
    ):
        dp.Owner(tmp_path / "owner.toml")
    place(GOOD + PEOPLE + 'people = "people.csv"\n')
    with pytest.raises(dp.DataError, match="without an identifier") as caught:
        dp.Owner(tmp_path / "owner.toml").check()
    assert "Qz" not in str(caught.value)


def test_data_are_read_when_they_are_asked_for(place, tmp_path):
    policy = read_policy(place(GOOD + DATA))
    (flat,) = read([policy.data["load"].spec], [policy.data["load"].source])
    assert np.array_equal(flat, np.arange(6.0).reshape(2, 3).ravel(order="F"))
    (tmp_path / "load.csv").unlink()
    with pytest.raises(dp.DataError):
        dp.Owner(tmp_path / "owner.toml").check()


@pytest.mark.parametrize(("shape", "given"), [([3], (3, 1)), ([3], (1, 3)), ([], (1, 1))])
def test_vectors_are_columns_or_rows(place, tmp_path, shape, given):
    np.savetxt(tmp_path / "load.csv", np.ones(given), delimiter=",")
    text = GOOD + DATA.replace("[2, 3]", str(shape))
    held = read_policy(place(text)).data["load"]
    (flat,) = read([held.spec], [held.source])
    assert flat.shape == (int(np.prod(shape, dtype=int)),)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.replace("agent", "agents"), "agents is unknown"),
        (lambda t: t.replace('"north"', "3"), "agent is a text in quotes"),
        (lambda t: t.replace("[budget]", "[price]"), "price is unknown"),
        (
            lambda t: t.replace("epsilon = 1.0", ""),
            r"budget.epsilon is missing. Write epsilon = 1\.0",
        ),
        (lambda t: t.replace("1e-6", "1.0"), "budget.delta is below 1, and here 1"),
        (
            lambda t: t.replace("epsilon = 1.0", "epsilon = 0"),
            r"budget.epsilon is above 0, and here 0\. Write epsilon = 1.0",
        ),
        (lambda t: t.replace("agent", "agnet"), r"agnet is unknown. Write agent\."),
        (lambda t: t.replace("[budget]", ""), r"delta belongs below a line \[budget\]"),
        (lambda t: t.replace("1e-6", '"small"'), "budget.delta is a number"),
        (lambda t: t.replace("1e-6", "-1"), "budget.delta is a number"),
        (lambda t: t + '[accept]\nmethods = ["Magic"]\n', "of methods among"),
        (lambda t: t + "[accept]\nmethods = [[2, 2]]\n", "of methods among"),
        (lambda t: "coordinator = 5\n" + t, "coordinator is a text in quotes, and here 5"),
        (lambda t: t + "[accept]\nask = 1\n", "accept.ask must be true or false, and is 1"),
        (lambda t: t + "[accept]\npartners = -1\n", "accept.partners is a whole number"),
        (lambda t: t + '[accept]\nmodel = "none.py"\n', "model 'none.py' does not exist"),
        (lambda t: t + DATA.replace("within = 0.01\n", ""), "one of two lines: within"),
        (lambda t: t + DATA + "rows = { max_norm = 1.0 }\n", "one of two lines: within"),
        (
            lambda t: t + DATA.replace("0.01", "-1"),
            r"declaration of data. within = -1 must .*[^.]\.$",
        ),
        (lambda t: t + DATA.replace("within = 0.01", "rows = 1"), "rows is no table"),
        (lambda t: t + DATA.replace("within = 0.01", "rows = {}"), "rows.max_norm is missing"),
        (lambda t: t + DATA + 'people = "p.csv"\n', "has people, and rows without a limit"),
        (lambda t: t + DATA.replace(".csv", ".xls"), "end in .csv or .npy"),
        (lambda t: t + DATA.replace("[2, 3]", "[0]"), "list of whole numbers from 1"),
        (lambda t: t + "]", "is not in TOML"),
        (lambda t: t.replace('"north"', '"north "'), "agent has blanks at its ends"),
        (
            lambda t: t.replace('"north"', "\u201cnorth\u201d"),
            "has typographic quotes: write",
        ),
        (lambda t: t.replace("agent = ", "agent =\u00a0"), "has a blank that does not break"),
        (lambda t: t.replace('"north"', "north"), "Write texts in quotes"),
        (lambda t: t.replace("1.0", ".5"), "with a digit before the point, such as 0.5"),
        (lambda t: t.replace("1.0", "1,0"), "with a decimal point, such as 0.5"),
        (lambda t: t + "[accept]\nask = False\n", "Write true and false in small letters"),
        (lambda t: t.replace("spent", "C:\\data\\spent"), "in single quotes, or with / in place"),
        (lambda t: t + f"x = {'[' * 5000}{']' * 5000}\n", "its lists are nested too deeply"),
        (lambda t: t + "[accept]\nmethods = []\n", "is empty, which refuses every run"),
        (lambda t: t.replace('"spent', '"~/spent'), "ledger begins with '~', which only a shell"),
        (lambda t: f'keys = "$HOME/k"\n{t}', r"keys begins with '\$HOME', which only a shell"),
        (lambda t: t + DATA.replace("load.csv", "%DATA%/l.csv"), "file begins with '%DATA%'"),
        (lambda t: t + DATA.replace("load.csv", "a\\u0000.csv"), "file has a character that no"),
        (lambda t: t + DATA + 'keys = "keys"\n', "keys stands below a line in brackets"),
        (lambda t: t + DATA.replace('."load"', ""), r'no table. Write a line \[data\."NAME"\]'),
        (
            lambda t: t + DATA + "norm = 3\n",
            "norm = 3 is unknown. Write norm = 'entry'",
        ),
        (lambda t: t + DATA + 'nonneg = "yes"\n', "nonneg = 'yes' must be true or false"),
        (
            lambda t: t + DATA + "simplex = true\n",
            r"simplex = true .* as in within = 0\.02 and norm = 1\.$",
        ),
        (lambda t: t + DATA + "boolean = true\n", r"boolean = true .* Write within = 1\.$"),
    ],
)
def test_what_no_policy_says_is_refused_by_name(place, change, said):
    with pytest.raises(dp.ModelError, match=said):
        read_policy(place(change(GOOD)))


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_policy_in_another_encoding_is_refused(tmp_path, encoding):
    path = tmp_path / "owner.toml"
    path.write_bytes(GOOD.replace("north", "n\u00f6rth").encode(encoding))
    with pytest.raises(dp.ModelError, match=r"'owner\.toml' is not text in UTF-8"):
        read_policy(path)


def test_a_policy_of_another_system_is_read(tmp_path):
    path = tmp_path / "owner.toml"
    for text in (GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD, GOOD.replace(" = ", "\t=\t")):
        path.write_bytes(text.encode())
        assert read_policy(path).agent == "north"


def test_a_pipe_is_no_policy(tmp_path):
    os.mkfifo(tmp_path / "owner.toml")
    with pytest.raises(dp.ModelError, match=r"'owner\.toml' cannot be read: it is a pipe"):
        read_policy(tmp_path / "owner.toml")


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(dp.ModelError, match=r"policy 'owner\.toml' does not exist"):
        dp.Owner(tmp_path / "owner.toml")


def test_owners_that_ask_need_somebody_to_ask(place, tmp_path):
    owner = dp.Owner(place(GOOD))
    with pytest.raises(dp.ModelError, match="has no keys ="):
        owner.join("wss://localhost:1", consent=lambda agreed: True)
    owner = dp.Owner(place(GOOD.replace("[budget]", 'keys = "keys"\n[budget]')))
    with pytest.raises(dp.ModelError, match="nobody can be prompted"):
        owner.join("wss://localhost:1")


COLUMNS = DATA + 'columns = ["age", "bp", "chol"]\n'


def test_columns_of_a_header_are_put_in_order(place, tmp_path):
    (tmp_path / "load.csv").write_text("bp,chol,age\n1,2,0\n4,5,3\n")
    held = read_policy(place(GOOD + COLUMNS)).data["load"]
    (flat,) = read([held.spec], [held.source])
    assert flat.reshape((2, 3), order="F").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert held.spec.columns == ("age", "bp", "chol")
    for wrong in (
        '["age", "bp"]',
        '["age", "age", "bp"]',
        '["a", "b", 3]',
        '"age"',
        '["a","b",""]',
    ):
        with pytest.raises(dp.ModelError, match="list one text for each of its 3 columns"):
            read_policy(place(GOOD + DATA + f"columns = {wrong}\n"))


@pytest.mark.parametrize("named", [("bp", "age"), ("age", "weight")])
def test_columns_of_a_model_that_are_other_ones_are_refused(tmp_path, named):
    def plan(columns):
        x = cp.Variable(2, name="x")
        d = dp.Private(np.ones((3, 2)), name="d", adjacency=dp.Within(0.1), columns=columns)
        one = dp.Agent(cp.Minimize(cp.sum(d @ x) + cp.sum_squares(x)), [cp.abs(x) <= 1], name="one")
        other = dp.Agent(cp.Minimize(cp.sum_squares(x - 1)), name="two")
        return planned(lambda: SimpleNamespace(problem=dp.Problem([one, other])))

    offer, policy = offered(plan(["age", "bp"]), tmp_path)
    assert agree(offer, policy).agent.name == "one"
    other, _ = offered(plan(list(named)), tmp_path)
    with pytest.raises(dp.RefusedError, match="other columns of 'd', or another order") as caught:
        agree(other, policy)
    assert caught.value.code == "data"
    plain, without = offered(plan(None), tmp_path)
    assert agree(plain, policy).agent.name == "one"  # who names none, asks for none
    with pytest.raises(dp.RefusedError, match="other columns"):
        agree(offer, without)
    assert plan(None).fingerprint == plan(["age", "bp"]).fingerprint


def test_a_function_of_data_that_does_not_exist_is_named(place, tmp_path):
    (tmp_path / "loads_of_east.py").write_text("def load():\n    return [[0.0] * 3] * 2\n")
    (tmp_path / "loads_ending.py").write_text("def load():\n    raise SystemExit(3)\n")
    (tmp_path / "loads_ended.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "loads_broken.py").write_text("def load(:\n")
    for written, said in (
        ("loads_of_none:load", "no module 'loads_of_none'. Put 'loads_of_none.py' beside"),
        ("loads_of_east:laod", "module 'loads_of_east' has no function 'laod'"),
        ("loads_of_none.of:load", "no module 'loads_of_none'. Put 'loads_of_none.py' beside"),
        ("loads_ending:load", "function 'loads_ending:load' ended Python by sys.exit. Return"),
        ("loads_ended:load", "module 'loads_ended' ended Python by sys.exit. Remove"),
        ("loads_broken:load", "is not valid Python: look at line 1 of 'loads_broken.py'"),
        ("C:/data/load.csv", "data file 'load.csv' does not exist"),
        ("load.CSV", "data file 'load.CSV' does not exist"),
    ):
        path = place(GOOD + DATA.replace("load.csv", written))
        with pytest.raises(dp.DataError, match=said):
            dp.Owner(path).check()


MODELS = {
    "x = = 3": "Line 2 is not valid Python: invalid syntax",
    "def f():\n    return 1 / 0\nf()": "Line 3 raises ZeroDivisionError: division by zero",
    "import dpcvx as dp\ndp.Within(-1)": "Line 3 is refused: dp.Within",
    "raise SystemExit(3)": "Line 2 raises SystemExit: 3",
}


def test_a_model_imports_what_is_beside_it(tmp_path):
    (tmp_path / "numbers_of_model.py").write_text("ROUNDS = 3\n")
    path = tmp_path / "model.py"
    path.write_text(
        "from numbers_of_model import ROUNDS\n"
        "from tests.owners.test_offers import tied\n"
        "plan = tied()\nassert ROUNDS == 3\n"
    )
    before = list(sys.path)
    assert isinstance(model_plan(path), dp.Plan) and sys.path == before


@pytest.mark.parametrize("model", MODELS)
def test_an_error_in_a_model_names_its_line(model, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(f"import sys\n{model}\n")
    with pytest.raises(dp.ModelError, match="The model 'model.py' cannot be run. ") as caught:
        model_plan(path)
    assert MODELS[model] in str(caught.value) and caught.value.__context__ is None


def test_a_model_that_cannot_be_read_is_named_without_its_folder(tmp_path, monkeypatch):
    def denied(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / "model.py").write_text("plan = 0\n")
    monkeypatch.setattr(policies, "read_whole", denied)
    said = "^The model 'model.py' cannot be read: permission denied. Give the user"
    with pytest.raises(dp.ModelError, match=said) as caught:
        model_plan(tmp_path / "model.py")
    assert str(tmp_path) not in str(caught.value)
