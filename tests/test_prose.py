"""The check of sentences: what it marks, where it looks, and that rates do not rise."""

import json

import pytest

from tests.prose import (
    LAST_RATES,
    descriptions,
    descriptions_of,
    higher,
    marks,
    of_module,
    of_page,
    rates,
    rates_of,
    texts,
    unclear_parameters_of,
)
from tests.rooms import PACKAGE


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The plan chooses the noise.", []),
        ("What leaves is noisy.", ["clause first"]),
        ("What does the plan choose?", []),
        ("Whether it converges is public.", ["clause first"]),
        ("Whatever it costs, it is paid.", ["clause first"]),
        ("Of the gradient and of the set.", ["clause first"]),
        ("It has agents, of which two are public.", ["relative clause"]),
        ("It was minimised by a neighbour.", ["spelling"]),
        ("The analysis of optimism and realism holds.", []),
        ("A fleet no longer runs.", ["coined word", "history"]),
    ],
)
def test_marks_are_those_of_the_rules(sentence, expected):
    assert marks(sentence) == expected


def test_pages_are_read_without_code_tables_and_headings():
    page = """# What a heading is

A plan has `rounds=` and $x^2$. It is public,
and [linked](page.md#what).

* Whether an item counts. It does.

| What a table has | no |

```python
What = code
```
"""
    assert of_page(page) == [
        "A plan has X and X.",
        "It is public, and linked.",
        "Whether an item counts.",
    ]


def test_docstrings_are_read_without_parameters():
    module = '''"""What a module does.

Its text goes on.
"""


def f(x: int) -> int:
    """Return a number of that size.

    .. math:: x

    Parameters
    ----------
    x : int
        Whether parameters are read.
    """
'''
    assert of_module(module) == [
        "What a module does.",
        "Its text goes on.",
        "Return a number of that size.",
    ]


def test_descriptions_that_begin_with_a_preposition_are_fragments():
    module = '''
def size(x, y):
    """Return a size.

    Parameters
    ----------
    x : int
        Of the
        first thing.
    y : int
        Number of things.

    Returns
    -------
    int
        Of both.
    """
'''
    assert descriptions_of(module) == ["Of the first thing.", "Number of things."]
    described = [(None, part) for part in descriptions_of(module)]
    assert rates_of({}, described) == {"descriptions": {"fragment": 500.0}}


def test_rates_are_of_1000_sentences_and_may_not_rise():
    found = [(None, "What leaves is noisy."), *[(None, "A plan is public.")] * 3]
    now = {"docs": rates(found)}
    assert now["docs"]["marks"] == now["docs"]["clause first"] == 250.0
    assert higher(now, now) == []
    better = {"docs": {**now["docs"], "marks": 249.0}}
    assert higher(better, now) == []
    assert higher(now, better) == ["marks in docs: 250.0 of 1000 sentences, 249.0 before"]


def test_texts_of_this_tree_are_not_worse_than_the_last_ones():
    now = rates_of(texts(), descriptions())
    assert higher(now, json.loads(LAST_RATES.read_text("utf-8"))) == []


def test_names_of_parameters_say_what_they_hold():
    assert unclear_parameters_of("f = lambda one, x: x\ndef g(*, at=one): ...") == ["at", "one"]
    unclear = {
        path: unclear_parameters_of(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")
    }
    assert not {path: names for path, names in unclear.items() if names}
