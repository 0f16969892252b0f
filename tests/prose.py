"""Marks in sentences of the docs and of docstrings: ``make prose`` lists their rates.

A mark is a sentence that begins with a clause as its subject, a relative clause behind a
preposition, a coined word, a British spelling, or a remark on how things used to be. Long
sentences are counted beside them. ``tests/prose.json`` keeps the last rates, and ``--check``
refuses a tree in which one of them is higher: texts get better, or stay as they are.
"""

import argparse
import ast
import json
import re
import sys
from collections import Counter
from pathlib import Path

from tests.rooms import PACKAGE

ROOT = Path(__file__).parent.parent
LAST_RATES = ROOT / "tests" / "prose.json"
# A rate may exceed the last one by so much: a sentence less, elsewhere, raises it.
SLACK = 0.3
LONGEST = 25
PREPOSITIONS = "of|to|for|by|in|on|with|from|at|into|behind|beside|next to"
BRITISH = (
    r"\w*(neighbour|colour|behaviour|centred)\w*|"
    r"\w*(optimi|minimi|maximi|normali|lineari|summari|initiali|organi|recogni|reali|analy)"
    r"s(e|ed|er|ers|ing|ation)"
)
RULES = {
    "clause first": re.compile(r"(What|Where|Who\w*|Whatever|Whether|How|Of|By how)\b(?!.*\?$)"),
    "relative clause": re.compile(rf".*\b({PREPOSITIONS}) (which|whom|whose)\b", re.IGNORECASE),
    "coined word": re.compile(
        r".*\b(behind the door|dearer|fleets?|stand-ins?|comes? to rest|in earnest)\b",
        re.IGNORECASE,
    ),
    "spelling": re.compile(rf".*\b({BRITISH})\b", re.IGNORECASE),
    "history": re.compile(r".*\b(no longer|formerly|used to be|until now)\b", re.IGNORECASE),
}
# Descriptions of parameters and attributes begin with a noun or a verb.
FRAGMENT = re.compile(
    r"(Of|As|Where|What|Whom|Whose|Which|How|By|In|On|At|For|From|To|The same|Likewise)\b"
)
# These say nothing about a value.
NO_NAMES = frozenset(("found", "own", "one", "known", "place", "kept", "alike", "at"))
# What stands for code and formulas; it begins sentences, and is one word.
CODE = "X"
DESCRIBED = re.compile(
    r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", re.DOTALL | re.MULTILINE
)
DESCRIPTION = re.compile(r"^\S[^\n]*\n((?:    [^\n]*\n|\n)+)", re.MULTILINE)
SECTION = re.compile(
    r"^(Parameters|Returns|Raises|Attributes|Yields|Examples)\n-+\n.*\Z", re.DOTALL | re.MULTILINE
)


def sentences(text):
    """Of one paragraph, without code.

    Parameters
    ----------
    text : str
    """
    text = re.sub(r"``[^`]+``|:\w+:`[^`]+`|`[^`]+`(_\w*)?", CODE, text)
    text = " ".join(re.sub(r"\*\*|[*_](?=\w)|(?<=\w)[*_]", "", text).split())
    parts = re.split(r"(?<=[.!?:])[\"')]*\s+(?=[\"'(]*[A-Z])", text)
    return [part for part in parts if len(part.split()) > 2]


def marks(sentence):
    """Names of the rules that a sentence breaks.

    Parameters
    ----------
    sentence : str
    """
    return [name for name, rule in RULES.items() if rule.match(sentence)]


def of_page(text):
    """Sentences of a page in Markdown, without code, tables, headings and formulas.

    Parameters
    ----------
    text : str
    """
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$", CODE, text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    found = []
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if not re.match(r"\s*[#|:<(]", line)]
        for item in re.split(r"\n(?=\s*(?:[*+-]|\d+\.) )", "\n".join(lines)):
            found += sentences(re.sub(r"^\s*(?:[*+-]|\d+\.) ", "", item))
    return found


def of_module(text):
    """Sentences of the docstrings of a module, without sections of parameters and examples.

    Parameters
    ----------
    text : str
    """
    found = []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        document = ast.get_docstring(node) if isinstance(node, kinds) else None
        if not document:
            continue
        document = SECTION.sub("", document)
        document = re.sub(
            r"^\.\. math::.*?(?=^\S|\Z)", "", document, flags=re.DOTALL | re.MULTILINE
        )
        for block in re.split(r"\n\s*\n", document):
            for item in re.split(r"\n(?=\s*[*-] )", block):
                found += sentences(re.sub(r"^\s*[*-] ", "", item))
    return found


def descriptions_of(text):
    """Descriptions of parameters and attributes in the docstrings of a module.

    Parameters
    ----------
    text : str
        Source of the module.
    """
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    sections = [s for n in nodes for s in DESCRIBED.findall(ast.get_docstring(n) or "")]
    parts = (part for section in sections for part in DESCRIPTION.findall(f"{section}\n"))
    return [" ".join(part.split()) for part in parts if part.strip()]


def unclear_parameters_of(text):
    """Parameters of a module's functions whose names are participles or pronouns.

    Parameters
    ----------
    text : str
        Source of the module.
    """
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    functions = [node.args for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    names = [part.arg for args in functions for part in ast.walk(args) if isinstance(part, ast.arg)]
    return [name for name in names if name in NO_NAMES]


def descriptions():
    """Descriptions of parameters and attributes in the package, each with its file."""
    modules = sorted(PACKAGE.rglob("*.py"))
    return [(path, part) for path in modules for part in descriptions_of(path.read_text("utf-8"))]


def rates_of(found, described):
    """Rates by kind of text.

    Parameters
    ----------
    found : mapping of str to sequence of (Path, str)
        Sentences by kind, as `texts` returns them.
    described : sequence of (Path, str)
        Descriptions of parameters and attributes.
    """
    broken = sum(FRAGMENT.match(part) is not None for _, part in described)
    share = round(1000 * broken / max(1, len(described)), 1)
    return {kind: rates(own) for kind, own in found.items()} | {"descriptions": {"fragment": share}}


def texts():
    """Sentences by kind of text, each with the file that it stands in."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages = [page for page in pages if "generated" not in page.parts]
    return {
        "docs": [(page, one) for page in pages for one in of_page(page.read_text("utf-8"))],
        "docstrings": _docstrings(PACKAGE),
        "studies": _docstrings(ROOT / "problems"),
    }


def _docstrings(folder):
    modules = sorted(folder.rglob("*.py"))
    return [(path, one) for path in modules for one in of_module(path.read_text("utf-8"))]


def rates(found):
    """Marks by rule and in all, and long sentences, of 1000 sentences each.

    Parameters
    ----------
    found : sequence of (Path, str)
    """
    counts = Counter(name for _, one in found for name in marks(one))
    counts["marks"] = sum(counts.values())
    counts["long"] = sum(len(one.split()) > LONGEST for _, one in found)
    names = ("marks", *RULES, "long")
    return {name: round(1000 * counts[name] / max(1, len(found)), 1) for name in names}


def higher(now, last):
    """What is higher than it was, as sentences.

    Parameters
    ----------
    now, last : mapping of str to mapping of str to float
    """
    return [
        f"{name} in {kind}: {value} of 1000 sentences, {last[kind][name]} before"
        for kind, table in now.items()
        for name, value in table.items()
        if value > last[kind][name] + SLACK
    ]


def main(arguments=None):
    """Print rates, and list marks of some rules."""
    parser = argparse.ArgumentParser(prog="python -m tests.prose")
    parser.add_argument(
        "--list", nargs="*", choices=[*RULES, "long", "fragment"], default=[], metavar="RULE"
    )
    parser.add_argument("--check", action="store_true", help="refuse rates above the last ones")
    parser.add_argument("--write", action="store_true", help="keep the rates of this tree")
    asked = parser.parse_args(arguments)
    found = texts()
    described = descriptions()
    now = rates_of(found, described)
    for kind, table in now.items():
        print(f"{kind}: {len(found.get(kind, described))}; of 1000,", end=" ")
        print(", ".join(f"{value} {name}" for name, value in table.items()))
    for path, part in described:
        if "fragment" in asked.list and FRAGMENT.match(part):
            print(f"{path.relative_to(ROOT)}: fragment: {part}")
    for kind in found.values():
        for path, one in kind:
            broken = [*marks(one), *(["long"] if len(one.split()) > LONGEST else [])]
            for name in broken:
                if name in asked.list:
                    print(f"{path.relative_to(ROOT)}: {name}: {one}")
    if asked.write:
        LAST_RATES.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    worse = higher(now, json.loads(LAST_RATES.read_text("utf-8"))) if asked.check else []
    print("\n".join(worse), end="\n" if worse else "")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
