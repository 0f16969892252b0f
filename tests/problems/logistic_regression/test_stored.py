"""The stored run of MNIST's size: where it comes from, its trends, and the page that shows it."""

import json
import re
from pathlib import Path

import pytest

from problems.logistic_regression.as_printed import from_json
from problems.logistic_regression.printed import Curve

ROOT = Path(__file__).parents[3]
STORED = json.loads((ROOT / "docs" / "papers" / "as_printed.json").read_text())
FOUND = from_json(STORED)
OBJ, OUT, EXACT = Curve("ObjG", 1.0, 1), Curve("OutG", 1.0, 1), Curve("ObjG", None, 1)


def test_it_says_where_it_comes_from():
    assert re.fullmatch(r"[0-9a-f]{40}", STORED["commit"])
    assert STORED["command"].startswith("python -m problems.logistic_regression.as_printed --data ")
    assert STORED["records"]["count"] == 60_000 and STORED["records"]["agents"] == 10
    assert set(STORED["versions"]) >= {"python", "numpy", "dpcvx"}


def test_its_trends_are_those_of_the_figure():
    assert set(FOUND) == {OBJ, OUT, EXACT}
    for trace in FOUND.values():
        late = trace.cost[trace.rounds >= 25]
        assert (late[1:] < late[:-1]).all()
    assert FOUND[OBJ].cost[-1] < FOUND[OUT].cost[-1]
    assert FOUND[OBJ].error[-1] < FOUND[OUT].error[-1]
    # At epsilon = 1 the noise costs next to nothing on 60,000 records.
    assert FOUND[OBJ].cost[-1] == pytest.approx(FOUND[EXACT].cost[-1], rel=0.01)
    assert (FOUND[OBJ].magnitude > 1000 * FOUND[OUT].magnitude).all()
    for own in STORED["curves"][:2]:
        totals = Curve(own["noise"], own["epsilon"], own["updates"]).totals(own["rounds"][-1])
        assert own["totals"] == pytest.approx(totals, rel=1e-6)


def test_the_page_shows_it():
    text = (ROOT / "docs" / "papers" / "ryu_kim.md").read_text()
    rounds = int(FOUND[OBJ].rounds[-1])
    claimed, composed = OBJ.totals(rounds)
    assert f"T = {rounds}" in text and STORED["commit"][:9] in text
    assert f"claimed {claimed:.1f}, composed {composed:.1f}" in text
    for name, curve in (("ObjG", OBJ), ("OutG", OUT), ("no noise", EXACT)):
        trace = FOUND[curve]
        assert f"| {name} | {trace.error[-1]:.3f} | {trace.cost[-1]:.2f} |" in text
