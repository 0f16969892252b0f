"""The first page and a lesson in a browser: ``make look`` takes the pictures, in out/look."""

import shutil
import subprocess
from html import escape

import numpy as np
import pytest
from matplotlib.image import imread

from . import html

pytestmark = pytest.mark.browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCREEN = (1280, 900)


LOOK = html.SITE.parent / "look"


def browse(address, *flags):
    """What a browser says of an address."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"A browser is needed, one of: {', '.join(BROWSERS)}"
    usual = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command = [found, *usual, "--virtual-time-budget=5000", *flags, address]
    return subprocess.run(command, check=True, capture_output=True, timeout=120).stdout.decode()


def picture(path, size=SCREEN):
    """A picture of a page, as an array (height, width, 3) of numbers from 0 to 1."""
    LOOK.mkdir(exist_ok=True)
    name = LOOK / (path.replace("/", "_").removesuffix(".html") + ".png")
    name.unlink(missing_ok=True)
    size = f"--window-size={size[0]},{size[1]}"
    browse((html.SITE / path).as_uri(), size, f"--screenshot={name}")
    return imread(name)[..., :3]


def drawn(image):
    """Where a strong color is, as in figures and hardly in text."""
    return image.max(axis=2) - image.min(axis=2) > 0.35


def test_the_first_page_has_code_output_and_three_pictures():
    image = picture("index.html", (1280, 2000))
    code, output = image[200:620, 100:730], image[200:620, 740:1220]
    assert np.mean(code.max(axis=2) < 0.6) > 0.02  # letters
    assert np.mean(output.min(axis=2) > 0.85) > 0.5  # on a light ground
    colored = drawn(image)[620:1600, 90:1190]
    assert all(third.sum() > 300 for third in np.array_split(colored, 3, axis=1))


def test_a_lesson_shows_its_pictures_and_cards():
    image = picture("lessons/1_epsilon.html", (1280, 6000))
    rows = np.flatnonzero(drawn(image)[:, 400:1200].sum(axis=1) > 30)
    # Three pictures or more, apart from each other.
    assert np.sum(np.diff(rows) > 150) >= 2


def test_every_formula_of_the_site_is_drawn_without_a_network():
    """All of them on one page, with the scripts of the site."""
    formulas = sorted({f for path in html.pages() for f in html.page(path).formulas})
    assert len(formulas) > 10
    scripts = [
        f'<script src="../site/_static/{name}"></script>'
        for name in ("katex.min.js", "auto-render.min.js", "katex_autorenderer.js")
    ]
    lines = [f'<div class="math">{escape(formula)}</div>' for formula in formulas]
    LOOK.mkdir(exist_ok=True)
    page = LOOK / "formulas.html"
    page.write_text("\n".join(["<!doctype html><meta charset=utf-8>", *scripts, *lines]))
    drawn = browse(page.as_uri(), "--dump-dom")
    assert "katex-error" not in drawn
    assert drawn.count("<math ") == len(formulas)
