"""The built pages: their links, what can be linked to, and their text."""

import functools
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urlsplit

from tests.pages import ROOT

SITE = ROOT / "out" / "site"


@dataclass(frozen=True)
class Page:
    """A built page.

    Attributes
    ----------
    links, images, needs : tuple of str
        Where links lead; images; scripts, styles and fonts, without which it looks other.
    anchors : frozenset of str
    formulas : tuple of str
        In LaTeX, as a script of the page finds them.
    text : str
        What readers see.
    """

    links: tuple[str, ...]
    anchors: frozenset[str]
    images: tuple[str, ...]
    needs: tuple[str, ...]
    formulas: tuple[str, ...]
    text: str


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.anchors, self.images, self.text = [], set(), [], []
        self.needs, self.formulas = [], []
        self._hidden, self._formula = 0, False

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if attrs.get("id"):
            self.anchors.add(attrs["id"])
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag == "img" and attrs.get("src"):
            self.images.append(attrs["src"])
        if tag == "script" and attrs.get("src"):
            self.needs.append(attrs["src"])
        if tag == "link" and attrs.get("rel") in ("stylesheet", "preload", "modulepreload", "icon"):
            self.needs.append(attrs["href"])
        self._hidden += tag in ("script", "style")
        self._formula = attrs.get("class", "").split(" ")[0] == "math"
        if self._formula:
            self.formulas.append("")

    def handle_endtag(self, tag):
        self._formula = False
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self._hidden:
            self.text.append(data)
        if self._formula:
            # The parser hands over a formula in pieces where it contains a sign like "<".
            self.formulas[-1] += data


@functools.cache
def page(path):
    """A page of the site, by its path below it."""
    reader = _Reader()
    reader.feed((SITE / path).read_text())
    text = " ".join("".join(reader.text).split())
    return Page(
        links=tuple(reader.links),
        anchors=frozenset(reader.anchors),
        images=tuple(reader.images),
        needs=tuple(reader.needs),
        formulas=tuple(reader.formulas),
        text=text,
    )


def pages():
    """Paths of all pages but those that Sphinx makes of sources and for its search."""
    assert SITE.exists(), "make docs builds the site, and then runs these tests"
    found = (p.relative_to(SITE) for p in SITE.rglob("*.html"))
    return sorted(str(p) for p in found if not {"_static", "_modules"} & {*p.parts})


def target(path, link):
    """Where a link of a page leads: a path below the site and an anchor; None if it leaves it."""
    address, anchor = urldefrag(link)
    if urlsplit(address).scheme or address.startswith("//"):
        return None
    if not address:
        return path, unquote(anchor)
    place = ((SITE / path).parent / unquote(address)).resolve()
    return str(place.relative_to(SITE)), unquote(anchor)


def clicks(start="index.html", most=2):
    """How many clicks lead to each page, up to a number of them."""
    found, last = {start: 0}, [start]
    for count in range(1, most + 1):
        following = []
        for path in last:
            ends = (target(path, link) for link in page(path).links)
            for end in {e[0] for e in ends if e is not None and e[0].endswith(".html")}:
                if end not in found:
                    found[end] = count
                    following.append(end)
        last = following
    return found
