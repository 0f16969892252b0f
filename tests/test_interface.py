"""What users find on the package: its names, copies of its objects, cards in notebooks."""

import ast
import builtins
import collections.abc
import copy
import inspect
import pydoc
import re
import subprocess
import sys
import typing
from html.parser import HTMLParser
from importlib import import_module
from importlib.resources import files

import cvxpy as cp
import numpy as np
import numpy.typing
import pytest

import dpcvx as dp
import dpcvx.extend
import dpcvx.typing

GROUPS = ("networks", "not_private", "penalties", "steps", "testing")


def test_tab_lists_the_public_names_and_nothing_else():
    assert dir(dp) == sorted([*dp.__all__, "__version__"])
    assert len(set(dp.__all__)) == len(dp.__all__)
    # Rooms are attributes once they are imported; everything else of the package is public.
    rooms = {name for name, thing in vars(dp).items() if inspect.ismodule(thing)}
    assert {name for name in vars(dp) if not name.startswith("_")} - rooms <= {*dp.__all__}


def test_each_public_name_is_imported_from_where_types_say():
    # Two lists stand in the file: one for readers of types, one that imports when asked.
    tree = ast.parse(inspect.getsource(dp))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    for node in typed.body:
        if isinstance(node, ast.ImportFrom):
            (alias,) = node.names
            file = dp._FILES[alias.name]
            assert file == (node.module or alias.name) or file == f"{node.module}.{alias.name}"
            assert alias.name == alias.asname  # a name that is public in a typed package
    named = {node.names[0].name for node in typed.body if isinstance(node, ast.ImportFrom)}
    assert named == {*dp.__all__}
    assert {name for name in dp.__all__ if inspect.ismodule(getattr(dp, name))} == {*GROUPS}


def test_names_are_imported_when_they_are_asked_for():
    program = """
import sys
import dpcvx as dp
first = {name for name in sys.modules if name.split(".")[0] in ("cvxpy", "dpcvx", "numpy")}
dp.Problem, dp.Agent, dp.Rows
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("dpcvx.")}
files = {name for name in sys.modules if name.startswith("dpcvx.tuning.")}
print(sorted(first), "cvxpy" in sys.modules, sorted(rooms & {"testing", "owners"}), sorted(files))
"""
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert printed.stdout.decode().split() == [
        "['dpcvx']",
        "True",
        "[]",
        "['dpcvx.tuning.settings']",
    ]


@pytest.mark.parametrize("group", GROUPS)
def test_groups_list_what_users_write(group):
    module = getattr(dp, group)
    assert dir(module) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name).__doc__


def test_every_public_name_says_what_it_is():
    for name in dp.__all__:
        thing = getattr(dp, name)
        assert not name.startswith("_") and (inspect.getdoc(thing) or "").strip(), name


def public_callables():
    """Names and callables: what is public, its public methods, and the members of groups."""
    for name in dp.__all__:
        thing = getattr(dp, name)
        members = thing.__all__ if name in GROUPS else vars(thing) if inspect.isclass(thing) else ()
        inner = {
            f"{name}.{member}": getattr(thing, member) for member in members if member[0] != "_"
        }
        yield from ((what, each) for what, each in {name: thing, **inner}.items() if callable(each))


def documented_parameters(text):
    """Names in the section Parameters of a docstring."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", text, re.M | re.S)
    heads = re.findall(r"^(\w[\w, ]*?)(?: : .*)?$", section[1], re.M) if section else []
    return {name.strip() for head in heads for name in head.split(",")}


def test_documented_parameters_are_those_of_the_signature():
    seen = set()
    for name, thing in public_callables():
        documented = documented_parameters(inspect.getdoc(thing) or "")
        seen |= documented
        if documented:
            assert documented <= set(inspect.signature(thing).parameters), name
    assert {"max_norm", "clip_norm", "time_limit", "recourse", "std"} <= seen


def signatures():
    """Signatures of what users call; methods of algorithms are for authors (dpcvx.extend)."""
    methods = {
        n
        for n in dp.__all__
        if inspect.isclass(k := getattr(dp, n)) and issubclass(k, dp.Algorithm)
    }
    for name, thing in public_callables():
        owner, _, member = name.partition(".")
        plain = inspect.isclass(thing) and issubclass(thing, BaseException)
        if not (member and owner in methods) and not plain:
            yield name, inspect.signature(thing)
        if inspect.isclass(thing) and name not in methods:
            read = {
                k: v.fget for k, v in vars(thing).items() if isinstance(v, property) and k[0] != "_"
            }
            yield from ((f"{name}.{k}", inspect.signature(v)) for k, v in read.items())


def test_types_that_signatures_show_can_be_imported():
    known = {*dp.__all__, *dir(builtins), *dir(dpcvx.typing), *dir(dpcvx.extend), *dir(typing)}
    known |= {
        *dir(collections.abc),
        *dir(numpy.typing),
        *(n for g in GROUPS for n in dir(getattr(dp, g))),
    }
    known |= {"np", "cp", "nx", "Path", "Figure", "Axes", "P", "S", "A"}  # libraries, variables
    known |= {"Agreement", "OwnResult"}  # with the extra, in dpcvx.owners
    known |= {"Grid", "Integers", "Streams"}  # of noise, which few rooms may import
    seen = set()
    for name, signature in signatures():
        shown = [parameter.annotation for parameter in signature.parameters.values()]
        for text in [*shown, signature.return_annotation]:
            if isinstance(text, str):
                names = {
                    n
                    for n in re.findall(
                        r"(?<![\w.\"'])[A-Za-z]\w*", re.sub(r"'[^']*'|\"[^\"]*\"", "", text)
                    )
                }
                assert names <= known, (name, names - known)
                seen |= names
    assert {"Terms", "Declaration", "DataSource", "Output"} <= seen
    assert {*dpcvx.typing.__all__} <= {*seen, "AgentPlan"}, {*dpcvx.typing.__all__} - seen


def test_help_is_a_few_pages():
    """Characters of ``help(...)``: some three screens for what is declared, ten for all verbs."""
    sizes = {}
    for name in dp.__all__:
        thing = getattr(dp, name)
        if inspect.isclass(thing):
            sizes[name] = len(pydoc.render_doc(thing, renderer=pydoc.plaintext))
    assert max(sizes.values()) <= 17_500
    declared = ("Agent", "Gaussian", "Laplace", "Prior", "Staircase", "Private", "Rows", "Within")
    assert max(sizes[name] for name in declared) <= 6_000


def test_help_on_private_data_shows_no_parts_of_cvxpy():
    text = pydoc.render_doc(dp.Private, renderer=pydoc.plaintext)
    assert "adjacency : Within or Rows" in text and "proxy" in dir(dp.Private)
    assert "is_convex" not in text and "is_convex" not in dir(dp.Private)
    # Objects keep everything, as Tab shows.
    assert "is_convex" in dir(dp.Private(1.0, adjacency=dp.Within(1.0)))


@pytest.mark.parametrize("name", ["audit"])
def test_functions_hide_no_modules_of_their_name(name):
    module = import_module(f"dpcvx.testing.{name}")
    assert inspect.ismodule(module) and getattr(module, name) is getattr(dp, name)
    assert callable(getattr(dp, name))


def test_the_package_is_marked_as_typed():
    assert files("dpcvx").joinpath("py.typed").is_file()


@pytest.fixture(scope="module")
def made():
    """One of everything that users hold, with names that HTML would read as tags."""
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y<b>")
    d = dp.Private(np.array([12345.5, 1.0]), name="d<i>", adjacency=dp.Within(0.1))
    north = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 2], name="<b>north</b>")
    south = dp.Agent(cp.Minimize(cp.sum_squares(x) + cp.square(y)), name="south & co")
    problem = dp.Problem([north, south])
    plan = problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=3)
    result = plan.run(seed=0, record=True, iterates=True)
    budget = {"delta": 1e-6, "proxy": {"d<i>": np.ones(2)}, "time_limit": 1e-3}
    tuned = problem.tune(epsilon=1.0, **budget)
    comparison = problem.compare(epsilon=1.0, **budget)
    return {
        "problem": problem,
        "plan": plan,
        "guarantee": plan.guarantee,
        "result": result,
        "ledger": result.ledger,
        "comparison": comparison,
        "tuned": tuned,
        "tradeoff": problem.tradeoff([1.0], **budget),
        "attack": dp.reconstruct(plan, result.transcript),
        "agent": north,
        "private": d,
        "rows": dp.Rows(1.0),
        "history": result.history,
        "solution": result.solution,
        "transcript": result.transcript,
        "check": dp.check_sensitivity(plan),
        "method": plan.algorithm,
        "step": dp.steps.Geometric(0.9),
        "penalty": dp.penalties.Growing(1, 2, 3),
        "noise": dp.Laplace(decay=0.9),
        "network": dp.networks.build("ring", list("abc")),
        "executor": dp.Processes(),
        "sharing": dp.SecretSharing(1.0),
    }


class Tags(HTMLParser):
    """The tags of a text, each closed in its turn, and what stands between them."""

    def __init__(self, text):
        super().__init__()
        self.seen, self.text, self._open = [], "", []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


CARDS = (
    "problem",
    "plan",
    "guarantee",
    "result",
    "ledger",
    "comparison",
    "tuned",
    "tradeoff",
    "attack",
)


@pytest.mark.parametrize("name", CARDS)
def test_a_notebook_shows_a_card(made, name):
    card = Tags(made[name]._repr_html_())
    table = {"table", "tr", "td"}
    assert {*card.seen} <= {"div", "b", "br", "details", "summary", "pre", *table}
    assert card.seen.count("b") == 1  # names that look like tags are text
    first = card.text.split("in full")[0]
    assert first.startswith(type(made[name]).__name__) and len(first) < 1200
    # No more than a prompt and print show: here the data would be seen by their digits.
    assert "12345" not in card.text
    if type(made[name]).__str__ is not object.__str__:
        assert card.text.endswith(str(made[name]))


@pytest.mark.parametrize("name", ["plan", "guarantee", "result"])
def test_a_card_says_what_is_hidden_from_whom_and_how_well(made, name):
    seen = made[name]._repr_html_().split("<details>")[0]
    assert "(1, 1e-6)-DP" in seen
    assert "one entry changes by at most 0.1 in &#x27;d&lt;i&gt;&#x27;" in seen  # escaped
    assert "the server and all other agents, even if they collude" in seen


def test_a_card_of_what_was_spent(made):
    for name in ("result", "ledger"):
        seen = made[name]._repr_html_().split("<details>")[0]
        assert "spent epsilon 1 of 1 at delta 1e-6 in 3 releases" in seen


def test_a_card_of_many_agents_lists_some_and_names_the_most():
    x, agents = cp.Variable(name="x"), []
    for k in range(8):
        d = dp.Private(1.0, name=f"d{k}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cp.square(x - d)), [cp.abs(x) <= 2], name=f"a{k}"))
    budgets = {f"a{k}": 0.5 + k for k in range(8)}
    ledger = dp.Problem(agents).solve(epsilon=budgets, delta=1e-6, seed=0).ledger
    rows = ledger.short
    assert [name for name, _ in rows] == [f"a{k}" for k in range(6)] + ["..."]
    assert rows[0][1].startswith("spent epsilon 0.5 of 0.5")
    assert rows[-1][1] == "and 2 more lines, none above epsilon 7.5"


def test_a_card_without_a_guarantee_says_so(made):
    plan = made["problem"].plan(dp.LinearizedADMM(), mechanism=None, rounds=1)
    seen = plan._repr_html_().split("<details>")[0]
    assert "no guarantee" in seen and "hidden" not in seen


@pytest.mark.parametrize("name", ["problem", "plan", "result", "ledger", "comparison"])
def test_a_prompt_shows_five_lines_at_most(made, name):
    assert len(repr(made[name]).splitlines()) <= 5


def test_everything_can_be_copied_deeply(made):
    for name, thing in made.items():
        twin = copy.deepcopy(thing)
        assert type(twin) is type(thing), name
        if type(thing).__repr__ is not object.__repr__ and name not in ("agent", "private"):
            assert str(twin) == str(thing), name


def test_a_copied_plan_runs_as_the_plan_does_once_it_has_data(made):
    twin = copy.deepcopy(made["plan"])
    with pytest.raises(dp.DataError, match="copied or unpickled, which drops values"):
        twin.run(seed=0)
    again = twin.run(data={"d<i>": np.array([12345.5, 1.0])}, seed=0)
    for one, other in zip(again.last.vectors, made["result"].last.vectors, strict=True):
        assert np.array_equal(one, other)
