"""The texts: what they refer to exists, and nothing in them was left for later."""

import ast
import inspect
import re
from operator import attrgetter
from pathlib import Path

import pytest

import dpcvx as dp

ROOT = Path(__file__).parent.parent
TEXTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
TEXTS += sorted((ROOT / "docs").glob("**/*.md")) + sorted((ROOT / "changes").glob("*.md"))
SOURCES = sorted((ROOT / "dpcvx").rglob("*.py"))
# The page of old names is about names that are gone.
CURRENT = [path for path in TEXTS if path.name != "migration.md"]

LINK = re.compile(r"\]\(([^)\s]+)\)")
FOLDERS = "dpcvx|docs|examples|problems|tests"
FILE = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*\w/?")
MODULE = re.compile(rf"python -m ((?:{FOLDERS})(?:\.\w+)+)")
NAME = re.compile(r"(?<![\w.])dp((?:\.[A-Za-z]\w*)+)")
PLACEHOLDER = re.compile(r"\b(?:TODO|TBD|XXX+|FIXME|HACK|(?i:lorem|ipsum))\b|<placeholder>|\?\?\?")


def anchors(text):
    """Anchors of the headings, as a forge makes them."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings}


def broken_links(path):
    for target in LINK.findall(path.read_text("utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        other = path.parent / file if file else path
        if not other.exists() or (anchor and anchor not in anchors(other.read_text("utf-8"))):
            yield target


def code(text):
    """Names and calls in a text, as Python reads them."""
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    for part in [*inline, *re.findall(r"```python\n(.*?)```", text, flags=re.S)]:
        try:
            yield from ast.walk(ast.parse(part))
        except SyntaxError:
            continue  # a formula, a path or a fragment


def thing(name):
    """What a name of the package stands for; some need the packages of dpcvx[owners]."""
    if dp._FILES.get(name.split(".")[0], "").startswith("owners."):
        for package in ("cryptography", "websockets"):
            pytest.importorskip(package, reason=f"dp.{name} needs it: pip install '.[test]'")
    return attrgetter(name)(dp)


def wrong(paths, what):
    """What is wrong with each of these files, by its name."""
    found = {path.relative_to(ROOT).as_posix(): [*what(path)] for path in paths}
    return {name: faults for name, faults in found.items() if faults}


def missing_files(path):
    return (name for name in FILE.findall(path.read_text("utf-8")) if not (ROOT / name).exists())


def missing_modules(path):
    for name in MODULE.findall(path.read_text("utf-8")):
        place = ROOT / name.replace(".", "/")
        if not place.with_suffix(".py").exists() and not (place / "__main__.py").exists():
            yield name


@pytest.mark.parametrize("what", [broken_links, missing_files, missing_modules])
def test_what_texts_refer_to_exists(what):
    assert not wrong(TEXTS, what)


def test_nothing_was_left_for_later():
    assert not wrong([*TEXTS, *SOURCES], lambda path: PLACEHOLDER.findall(path.read_text("utf-8")))


def narrows(test):
    """Whether an assertion tells a type checker what a value is, and nothing about the value."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return all(map(narrows, test.values))
    if isinstance(test, ast.Compare):
        (other, *more), (how, *_) = test.comparators, test.ops
        none = isinstance(other, ast.Constant) and other.value is None
        return isinstance(how, ast.IsNot) and none and not more
    return isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance"


def values_asserted(source):
    """Assertions that check values: ``python -O`` leaves them out."""
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert))
    return [ast.unparse(node.test) for node in found if not narrows(node.test)]


def test_nothing_that_is_checked_vanishes_under_optimization():
    assert not wrong(SOURCES, lambda path: values_asserted(path.read_text("utf-8")))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("assert x is not None", 0), ("assert isinstance(x, int) and y is not None", 0),
        ("assert x", 1), ("assert x is None", 1), ("assert x > 0", 1), ("assert check(x)", 1),
        ("assert x is not None or y", 1), ("assert x is not y", 1), ("assert a < b is not None", 1),
    ],
)  # fmt: skip
def test_assertions_of_values_would_be_found(source, found):
    assert len(values_asserted(source)) == found


@pytest.mark.parametrize(
    "text", ["# TODO: prove", "a TBD b", "xs  # FIXME", "Lorem ipsum", "XXX", "what ???"]
)
def test_placeholders_would_be_found(text):
    assert PLACEHOLDER.search(text)


def test_a_broken_link_or_a_missing_file_would_be_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](page.md#one-two) [b](#one-two) [c](no.md) [d](#three)\n")
    assert list(broken_links(page)) == ["no.md", "#three"]
    page.write_text(
        "`dp.Within(0.1, radios=2)` and `dp.Within(0.1)`; see docs/no.md, docs/index.md"
    )
    assert list(wrong_keywords(page)) == ["dp.Within(0.1, radios=2)"]
    assert list(missing_files(page)) == ["docs/no.md"]
    page.write_text("`python -m dpcvx.no_such` and `python -m tests.golden`, python -m tests.pages")
    assert list(missing_modules(page)) == ["dpcvx.no_such"]
    assert FILE.findall("`dpcvx/no_such.py`, see docs/a.md.") == ["dpcvx/no_such.py", "docs/a.md"]
    assert NAME.findall("`dp.Nothing.at_all(x)`, 2.dp.x") == [".Nothing.at_all"]


def test_names_of_the_package_exist():
    for name in {name for path in CURRENT for name in NAME.findall(path.read_text("utf-8"))}:
        thing(name[1:])  # raises with the name that is missing


def wrong_keywords(path):
    for node in code(path.read_text("utf-8")):
        if isinstance(node, ast.Call) and NAME.fullmatch(ast.unparse(node.func)):
            names = inspect.signature(thing(ast.unparse(node.func)[3:])).parameters
            if not {k.arg for k in node.keywords if k.arg} <= {*names}:
                yield ast.unparse(node)


def test_keywords_of_the_package_exist():
    assert not wrong(CURRENT, wrong_keywords)


@pytest.mark.parametrize("method", ["plan", "solve", "compare", "tune", "tradeoff"])
def test_keywords_of_problems_exist(method):
    known = inspect.signature(getattr(dp.Problem, method)).parameters
    calls = [
        node
        for path in TEXTS
        for node in code(path.read_text("utf-8"))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == method
    ]
    assert calls
    for node in calls:
        assert not [k.arg for k in node.keywords if k.arg and k.arg not in known], ast.unparse(node)


EXPORTED = {
    name: getattr(dp, name)
    for name in dp.__all__
    if not dp._FILES[name].startswith("owners.")  # these need the packages of dpcvx[owners]
    and (inspect.isclass(getattr(dp, name)) or inspect.isfunction(getattr(dp, name)))
}


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_names_have_a_summary(name):
    text = vars(EXPORTED[name]).get("__doc__") or EXPORTED[name].__doc__
    assert text and not text.startswith(f"{name}("), "made by dataclass, or missing"
    summary, *rest = text.strip().splitlines()
    assert len(summary.split()) >= 3 and summary.endswith(".")
    assert not rest or not rest[0].strip()


def test_the_readme_names_what_users_write():
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = {name[1:].split(".")[0] for name in NAME.findall(readme)}
    assert {"Private", "Agent", "Problem", "Within", "Rows", "check_sensitivity", "audit"} <= shown
