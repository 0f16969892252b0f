"""Display of an object in notebooks: a card with its main facts, and its full text folded."""

from __future__ import annotations

from collections.abc import Sequence

_BOX = (
    "display: inline-block; max-width: 60em; padding: 0.5em 1em; border: 1px solid #8888; "
    "border-radius: 6px; text-align: left"
)
_CELL = "padding: 0.15em 1em 0.15em 0; vertical-align: top; text-align: left; border: none"
Rows = Sequence[tuple[str, str]]


def card(thing: object, rows: Rows = ()) -> str:
    """Return the HTML of an object's card: facts in its ``repr``, rows, and its ``str``, escaped.

    Parameters
    ----------
    thing : object
        Object whose ``repr`` has the form ``<Kind: fact, ...; fact, ...>``.
    rows : sequence of (str, str)
        Labels and texts of a table; ``str(thing)`` has this information too.
    """
    import html  # its table of entities is slow to import

    kind, _, facts = repr(thing).removeprefix("<").removesuffix(">").partition(": ")
    lines = [f"<b>{html.escape(kind)}</b>", *(html.escape(fact) for fact in facts.split("; "))]
    text = "" if type(thing).__str__ is object.__str__ else html.escape(str(thing))
    folded = f"<details><summary>in full</summary><pre>{text}</pre></details>" if text else ""
    cells = [
        f'<tr><td style="{_CELL}; opacity: 0.7">{html.escape(label)}</td>'
        f'<td style="{_CELL}">{html.escape(said)}</td></tr>'
        for label, said in rows
    ]
    table = f'<table style="margin: 0.4em 0">{"".join(cells)}</table>' if cells else ""
    return f'<div style="{_BOX}">{"<br>".join(lines)}{table}{folded}</div>'
