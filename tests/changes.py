"""Release notes from the files in ``changes/``: ``python -m tests.changes`` prints them.

A file is called ``NAME.KIND.md``; kinds stand in the order of `KINDS`, privacy first.
"""

import re

from .pages import ROOT

FOLDER = ROOT / "changes"
KINDS = ("privacy", "removed", "changed", "added", "fixed")
NAME = re.compile(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md")


def fragments(folder=FOLDER):
    """Return the files of changes, in the order of the release notes."""
    found = [path for path in folder.glob("*.md") if path.name != "README.md"]
    return sorted(found, key=lambda path: (KINDS.index(kind(path)), path.name))


def kind(path):
    """Return what a file is about, from its name."""
    if not NAME.fullmatch(path.name):
        raise ValueError(
            f"changes/{path.name} is not called NAME.KIND.md, with words and hyphens and one of "
            f"the kinds {', '.join(KINDS)}."
        )
    return path.name.split(".")[1]


def notes(folder=FOLDER):
    """Return the release notes of all files, as Markdown."""
    by_kind = {name: [] for name in KINDS}
    for path in fragments(folder):
        by_kind[kind(path)].append(" ".join(path.read_text().split()))
    parts = [
        "\n".join([f"### {name.capitalize()}", "", *(f"- {text}" for text in texts)])
        for name, texts in by_kind.items()
        if texts
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(notes())
