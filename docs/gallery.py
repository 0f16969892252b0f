"""Thumbnails of the gallery, from the commands that draw: ``python docs/gallery.py [NAME ...]``.

Each command runs in its short form, a minute or less, and leaves all its pictures in
``out/gallery``; one of them becomes ``docs/gallery/NAME.png``.
"""

import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parent.parent
WIDTH = 560  # pixels
# Name -> which of the pictures of ``python -m examples.NAME`` stands for it.
PICTURES = {
    "demo": "demo.png",
    "privacy_table": "privacy_table.png",
    "ryu_kim_power_flow": "ryu_kim_case_14_derived.png",
    "ryu_kim_federated_learning": "ryu_kim_learning_comparison.png",
    "chan_xie_zhao_elastic_net": "chan_xie_zhao_privacy.png",
    "xiao_ye_devadas_logistic": "xiao_ye_devadas_gradients.png",
    "ou_nonconvex": "ou_epsilon.png",
    "published_mistakes": "published_mistakes.png",
    "power_flow": "network.png",
}
STUDIES = {"power_flow": ["problems.power_flow", "--case", "14", "--load-scale", "1.5"]}


def draw(name):
    """Run a command, and shrink its picture."""
    folder = ROOT / "out" / "gallery" / name
    command = STUDIES.get(name, [f"examples.{name}"])
    subprocess.run([sys.executable, "-m", *command, "--plot", folder], cwd=ROOT, check=True)
    shrink(folder / PICTURES[name], ROOT / "docs" / "gallery" / f"{name}.png")


def shrink(source, target):
    """Write a picture in the width of a card, in few colors."""
    with Image.open(source) as picture:
        size = WIDTH, round(WIDTH * picture.height / picture.width)
        small = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    small.quantize(64).save(target, optimize=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        draw(name)
