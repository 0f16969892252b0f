"""The code of README and pages, and what it prints: ``python -m tests.pages`` writes it anew.

A block of Python on a page runs in the names that the blocks before it left. A block of text right
after it is what it prints. Notebooks are no such pages: they run when the site is built.
"""

import contextlib
import io
import re
import sys
import types
import warnings
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


@dataclass(frozen=True)
class Block:
    """Code on a page; `printed` is None where the page does not show what it prints."""

    code: str
    printed: str | None
    span: tuple[int, int]


def pages():
    """Return the README and all pages with code that is not a notebook's."""
    texts = {path: path.read_text() for path in [README, *sorted(ROOT.glob("docs/**/*.md"))]}
    return [p for p, text in texts.items() if "```python\n" in text and not is_notebook(text)]


def is_notebook(text):
    """Whether the site's build runs a page."""
    return text.startswith("---\n") and "file_format: mystnb" in text.split("---", 2)[1]


def blocks(text):
    """All code of a page, in its order."""
    found = []
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S):
        after = re.match(r"\s*^```text\n(.*?)^```$", text[match.end() :], re.M | re.S)
        start = match.end() + (after.start(1) if after else 0)
        end = match.end() + (after.end(1) if after else 0)
        found.append(Block(match[1], after[1] if after else None, (start, end)))
    return found


def run(path):
    """What each block of a page prints, as a list of texts."""
    page, printed = types.ModuleType("page"), []
    before = sys.modules.get("page")
    sys.modules["page"] = page  # where pickle looks for classes that a page defines
    try:
        for block in blocks(path.read_text()):
            out = io.StringIO()
            with contextlib.redirect_stdout(out), warnings.catch_warnings():
                warnings.simplefilter("error")
                exec(compile(block.code, str(path), "exec"), vars(page))
            printed.append(out.getvalue())
    finally:
        del sys.modules["page"]
        if before is not None:
            sys.modules["page"] = before
    return printed


def written_anew(text, printed):
    """The page with what its code prints now."""
    for block, now in reversed(list(zip(blocks(text), printed, strict=True))):
        if block.printed is not None:
            text = text[: block.span[0]] + now + text[block.span[1] :]
    return text


def main():
    """Write all pages anew, and name those that changed."""
    for path in pages():
        text = path.read_text()
        now = written_anew(text, run(path))
        if now != text:
            path.write_text(now)
            print(f"{path.relative_to(ROOT)}: written anew")


if __name__ == "__main__":
    main()
