"""What notebooks show of an object: its representation as a small card, its text folded below."""

from __future__ import annotations

import html

_BOX = (
    "display: inline-block; max-width: 60em; padding: 0.5em 1em; border: 1px solid #8888; "
    "border-radius: 6px"
)


def card(thing: object) -> str:
    """HTML of an object, escaped, from ``<Kind: fact, ...; fact, ...>`` and ``str(thing)``.

    Nothing else is read: a card shows no more than a prompt and print do.
    """
    kind, _, facts = repr(thing).removeprefix("<").removesuffix(">").partition(": ")
    lines = [f"<b>{html.escape(kind)}</b>", *(html.escape(fact) for fact in facts.split("; "))]
    text = "" if type(thing).__str__ is object.__str__ else html.escape(str(thing))
    folded = f"<details><summary>in full</summary><pre>{text}</pre></details>" if text else ""
    return f'<div style="{_BOX}">{"<br>".join(lines)}{folded}</div>'
