"""The stored run of MNIST's size: where it comes from, its trends, and the page that shows it."""

import json
import re
from pathlib import Path

import pytest

from problems.logistic_regression.as_printed import from_json, main
from problems.logistic_regression.printed import Curve

ROOT = Path(__file__).parents[3]
PAPERS = ROOT / "docs" / "papers"
FILES = PAPERS / "as_printed.json", PAPERS / "as_printed_small_budget.json"
STORED, SMALL = (json.loads(file.read_text()) for file in FILES)
FOUND = from_json(STORED)
OBJ, OUT, EXACT = Curve("ObjG", 1.0, 1), Curve("OutG", 1.0, 1), Curve("ObjG", None, 1)


@pytest.mark.parametrize("stored", [STORED, SMALL], ids=["E = 1", "E = 10"])
def test_it_says_where_it_comes_from(stored):
    assert re.fullmatch(r"[0-9a-f]{40}", stored["commit"])
    assert stored["command"].startswith("python -m problems.logistic_regression.as_printed --data ")
    assert stored["records"] == STORED["records"]
    assert stored["records"]["count"] == 60_000 and stored["records"]["agents"] == 10
    assert set(stored["versions"]) >= {"python", "numpy", "dpcvx"}


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


def test_a_small_budget_with_ten_local_updates_ranks_the_comparators():
    found = from_json(SMALL)
    obj, text, code = (Curve(noise, 0.05, 10) for noise in ("ObjG", "OutG, text", "OutG"))
    exact = Curve("ObjG", None, 10)
    assert set(found) == {obj, text, code, exact}
    costs = {curve: trace.cost[-1] for curve, trace in found.items()}
    assert costs[exact] < costs[obj] == pytest.approx(costs[text], rel=0.01)
    assert costs[text] < costs[code]
    assert found[obj].magnitude.min() > 50 * found[text].magnitude.max()
    page = (PAPERS / "ryu_kim.md").read_text()
    claimed, composed = obj.totals(500)
    assert f"claimed {claimed:.2f}, composed {composed:.2f}" in page
    assert SMALL["commit"][:9] in page
    names = {obj: "ObjG", text: "OutG of the text", code: "OutG of the code", exact: "no noise"}
    for curve, name in names.items():
        assert f"| {name} | {found[curve].error[-1]:.3f} | {costs[curve]:.2f} |" in page


def test_the_figure_is_redrawn_from_the_files(tmp_path):
    files = [str(file) for file in FILES]
    found = main(["--redraw", *files, "--plot", str(tmp_path)])
    assert {curve.updates for curve in found} == {1, 10} and len(found) == 7
    (drawn,) = tmp_path.iterdir()
    assert drawn.suffix == ".png" and drawn.stat().st_size > 10_000


def test_the_page_shows_it():
    text = (PAPERS / "ryu_kim.md").read_text()
    rounds = int(FOUND[OBJ].rounds[-1])
    claimed, composed = OBJ.totals(rounds)
    assert f"T = {rounds}" in text and STORED["commit"][:9] in text
    assert f"claimed {claimed:.1f}, composed {composed:.1f}" in text
    for name, curve in (("ObjG", OBJ), ("OutG", OUT), ("no noise", EXACT)):
        trace = FOUND[curve]
        assert f"| {name} | {trace.error[-1]:.3f} | {trace.cost[-1]:.2f} |" in text
