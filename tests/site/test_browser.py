"""The first page and a lesson in a browser: ``make look`` takes the pictures, in out/look."""

import shutil
import subprocess

import numpy as np
import pytest
from matplotlib.image import imread

from . import html

pytestmark = pytest.mark.browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCREEN = (1280, 900)


def picture(path, size=SCREEN):
    """A picture of a page, as an array (height, width, 3) of numbers from 0 to 1."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"A browser is needed, one of: {', '.join(BROWSERS)}"
    folder = html.SITE.parent / "look"
    folder.mkdir(exist_ok=True)
    name = folder / (path.replace("/", "_").removesuffix(".html") + ".png")
    name.unlink(missing_ok=True)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    flags += ["--virtual-time-budget=5000", f"--window-size={size[0]},{size[1]}"]
    command = [found, *flags, f"--screenshot={name}", (html.SITE / path).as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return imread(name)[..., :3]


def drawn(image):
    """Where a strong colour is, as in figures and hardly in text."""
    return image.max(axis=2) - image.min(axis=2) > 0.35


def test_the_first_page_has_problem_output_and_picture_on_one_screen():
    image = picture("index.html")
    assert image.shape == (SCREEN[1], SCREEN[0], 3)
    code, output = image[200:620, 100:730], image[200:620, 740:1220]
    assert np.mean(code.max(axis=2) < 0.6) > 0.02  # letters
    assert drawn(output)[100:].sum() > 300  # the curve, below the printed lines
    assert np.mean(output.min(axis=2) > 0.85) > 0.5  # on a light ground


def test_a_lesson_shows_its_pictures_and_cards():
    image = picture("lessons/1_epsilon.html", (1280, 6000))
    rows = np.flatnonzero(drawn(image)[:, 400:1200].sum(axis=1) > 30)
    # Three pictures or more, apart from each other.
    assert np.sum(np.diff(rows) > 150) >= 2
