"""Links lead somewhere, a newcomer finds the way, and pages show what they ran."""

import re
import runpy

import nbformat
import pytest

import dpcvx as dp
from tests.pages import ROOT

from . import html

pytestmark = pytest.mark.site

# What a newcomer wants -> the page that answers it, and what stands there.
TASKS = {
    "install": ("install.html", "pip install"),
    "first model": ("tutorial.html", "dp.Problem([north, south])"),
    "change epsilon": ("tutorial.html", "shows the utility of a solution at each epsilon"),
    "own data": ("tutorial.html", 'plan.run(data={"load": values})'),
    "read an error": ("faq.html", "How do I read an error?"),
    "compare": ("guides/choosing_noise.html", "problem.compare("),
    "plot": ("tutorial.html", ".plot()"),
    "ledger": ("guides/budgets.html", "ledger=first.ledger"),
    "notebook": ("lessons/index.html", "notebook"),
    "cite": ("cite.html", "@software{dpcvx"),
}


# The field's terms -> a page that a search for them finds.
TERMS = {
    "neighbor": "privacy/threat_model.html",
    "minimize": "guides/recourse.html",
    "post-processing": "privacy/proofs.html",
    "secure aggregation": "guides/secure_aggregation.html",
    "chance constraint": "guides/private_constraints.html",
    "reconstruction": "reference/glossary.html",
    "Lipschitz": "reference/glossary.html",
    "load shedding": "guides/power_flow.html",
    "group privacy": "guides/privacy_unit.html",
    "input perturbation": "guides/choosing_noise.html",
}
BAR = ("Tutorial", "Guides", "Lessons", "Privacy", "Reference", "Benchmarks")


@pytest.mark.parametrize("term", TERMS)
def test_a_search_for_the_fields_terms_finds_a_page(term):
    assert term.lower() in html.page(TERMS[term]).text.lower()


def test_the_top_bar_has_the_six_parts():
    text = (html.SITE / "index.html").read_text()
    bar = re.search(r'<ul class="bd-navbar-elements.*?</ul>', text, flags=re.S)[0]
    assert tuple(re.findall(r">\s*(\w+)\s*</a>", bar)) == BAR


@pytest.mark.parametrize("task", TASKS)
def test_a_newcomers_task_is_answered_within_two_clicks(task):
    path, words = TASKS[task]
    assert html.clicks()[path] <= 2
    assert words in html.page(path).text


def test_every_page_is_linked():
    """From the first page, however far."""
    alone = {*html.pages()} - {*html.clicks(most=6)} - {"search.html", "genindex.html"}
    assert not {path for path in alone if "py-modindex" not in path}


def test_links_within_the_site_lead_somewhere():
    broken = []
    for path in html.pages():
        for link in html.page(path).links:
            end = html.target(path, link)
            if end is None:
                continue
            place, anchor = end
            if not (html.SITE / place).exists():
                broken.append((path, link))
            elif anchor and place.endswith(".html") and anchor not in html.page(place).anchors:
                broken.append((path, link))
        for image in html.page(path).images:
            end = html.target(path, image)
            if end is not None and not image.startswith("data:"):
                assert (html.SITE / end[0]).exists(), (path, image)
    assert not broken


def test_pages_need_nothing_from_elsewhere():
    """Neither scripts nor styles, fonts or images: the site can be read without a network."""
    for path in html.pages():
        page = html.page(path)
        assert page.needs
        for need in (*page.needs, *page.images):
            end = None if need.startswith("data:") else html.target(path, need)
            assert need.startswith("data:") or end is not None, (path, need)
            assert end is None or (html.SITE / end[0].split("?")[0]).exists(), (path, need)


def test_a_published_site_offers_other_versions(monkeypatch):
    plain = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    assert "switcher" not in plain["html_theme_options"]
    assert plain["html_title"] == f"dpcvx {dp.__version__}"
    address = "https://example.org/versions.json"
    monkeypatch.setenv("DOCS_VERSIONS", address)
    options = runpy.run_path(str(ROOT / "docs" / "conf.py"))["html_theme_options"]
    assert options["switcher"] == {"json_url": address, "version_match": dp.__version__}
    assert "version-switcher" in options["navbar_end"]


def test_no_page_has_an_empty_navigation_at_its_side():
    for path in html.pages():
        text = (html.SITE / path).read_text()
        found = re.search(r'<nav class="bd-docs-nav.*?</nav>', text, flags=re.S)
        assert found is None or "<a " in found[0], path


def test_links_to_the_source_of_pages_are_none():
    """Links between pages that GitHub shows as well, but which no builder rewrote."""
    for path in html.pages():
        assert not [link for link in html.page(path).links if re.fullmatch(r"[\w/.]+\.md", link)]


def test_the_first_page_shows_what_its_code_gives():
    first = html.page("index.html")
    assert "differential privacy" in first.text.lower()
    assert "(1, 1e-6)-DP for one change in one agent's data, worst case" in first.text
    assert re.search(r"flow -?\d\.\d\d, gen \[", first.text)
    assert "Use something else if" in first.text
    assert len([image for image in first.images if "_images/front_" in image]) == 3


def test_notebooks_show_pictures_and_no_objects():
    lessons = [path for path in html.pages() if re.match(r"lessons/\d", path)]
    assert lessons
    for path in [*lessons, "index.html", "tutorial.html"]:
        text = html.page(path).text
        assert not re.search(r"<(Figure|matplotlib)|Traceback|\[Text\(", text), path
    for path in lessons:
        assert len(html.page(path).images) >= 2, path
        assert "Exercises" in html.page(path).text and "hide-cell" not in html.page(path).text


def tags(cell):
    return cell.metadata.get("tags", [])


@pytest.mark.parametrize("number", range(11))
def test_a_lesson_has_a_caption_under_every_picture_and_a_screen_of_code_between_two(number):
    (path,) = (html.SITE / "lessons").glob(f"{number}_*.ipynb")
    cells = [c for c in nbformat.read(path, as_version=4).cells if "remove-cell" not in tags(c)]
    lines, pictures = 0, 0
    for k, cell in enumerate(cells):
        if cell.cell_type == "markdown" or "hide-cell" in tags(cell):
            continue
        lines += sum(bool(line.strip()) for line in cell.source.splitlines())
        assert lines <= 40
        if any("image/png" in output.get("data", {}) for output in cell.outputs):
            lines, pictures = 0, pictures + 1
            below = next(c.source for c in cells[k + 1 :] if c.cell_type == "markdown")
            assert below.startswith("**")  # the lesson, in a sentence
    assert pictures >= 2
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert 45 <= int(re.search(r"^\*(\d+) minutes with exercises", text, re.M)[1]) <= 60
    solved, graded = text[text.index("## Exercises") :].split("## For grading")
    asked, last = (
        re.findall(r"^(\d)\. ", solved, re.M),
        [c for c in cells if c.cell_type == "code"][-1],
    )
    assert asked and re.findall(r"^# (\d)\. ", last.source, re.M) == asked
    assert "hide-cell" in tags(last) and len(re.findall(r"^\d\. ", graded, re.M)) >= 2


def test_lessons_are_offered_as_executed_notebooks():
    pages = [path for path in html.pages() if re.match(r"lessons/\d", path)]
    for path in pages:
        notebook = nbformat.read((html.SITE / path).with_suffix(".ipynb"), as_version=4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert any(cell.outputs for cell in cells)
        assert not [o for cell in cells for o in cell.outputs if o.output_type == "error"]
