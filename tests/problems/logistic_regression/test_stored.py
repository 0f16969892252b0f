"""The stored run of MNIST's size: where it comes from, its trends, and the page that shows it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from problems.logistic_regression.as_printed import from_json, main
from problems.logistic_regression.printed import Curve

ROOT = Path(__file__).parents[3]
PAPERS = ROOT / "docs" / "papers"
FILES = {
    (1, 1): PAPERS / "as_printed.json",
    (0.05, 1): PAPERS / "as_printed_small_budget_one_update.json",
    (0.05, 10): PAPERS / "as_printed_small_budget.json",
    (1, 10): PAPERS / "as_printed_ten_updates.json",
}
ALL = {pair: json.loads(file.read_text()) for pair, file in FILES.items()}
STORED = ALL[1, 1]
FOUND = from_json(STORED)
OBJ, OUT, EXACT = Curve("ObjG", 1.0, 1), Curve("OutG", 1.0, 1), Curve("ObjG", None, 1)


def of_round(trace, t):
    """Error and cost of a round."""
    (row,) = np.flatnonzero(trace.rounds == t)
    return trace.error[row], trace.cost[row]


@pytest.mark.parametrize("stored", ALL.values(), ids=map(str, ALL))
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


@pytest.mark.parametrize("pair", ALL, ids=str)
def test_page_has_the_file_and_values_of_every_pair(pair):
    found, page = from_json(ALL[pair]), (PAPERS / "ryu_kim.md").read_text()
    claimed, composed = Curve("ObjG", *pair).totals(500)
    cells = [f"{pair[0]:g}, {pair[1]}", f"{claimed:#.3g}", f"{composed:#.3g}".rstrip(".")]
    curves = [Curve(noise, *pair) for noise in ("ObjG", "OutG, text", "OutG")]
    for curve in [*curves, Curve("ObjG", None, pair[1])]:
        values = of_round(found[curve], 500) if curve in found else None
        cells.append("not run" if values is None else "{:.3f}, {:.3f}".format(*values))
    assert f"| {' | '.join(cells)} | `{FILES[pair].name}` |" in page
    assert ALL[pair]["commit"][:9] in page


@pytest.mark.parametrize("epsilon", [0.05, 1])
def test_more_local_updates_lower_costs_as_in_the_figure(epsilon):
    one, ten = (from_json(ALL[epsilon, updates]) for updates in (1, 10))
    for noise in ("ObjG", "OutG"):
        few, many = (
            of_round(found[Curve(noise, epsilon, updates)], 500)
            for found, updates in ((one, 1), (ten, 10))
        )
        assert many[1] < few[1] and many[0] < few[0]


def test_runs_of_two_commits_have_the_same_curves_without_noise():
    for updates in (1, 10):
        first, second = (
            from_json(ALL[epsilon, updates])[Curve("ObjG", None, updates)] for epsilon in (0.05, 1)
        )
        shared = min(first.rounds.size, second.rounds.size)
        assert shared >= 26
        assert first.cost[:shared].tolist() == second.cost[:shared].tolist()
        assert first.error[:shared].tolist() == second.error[:shared].tolist()


def test_at_one_total_rounds_are_worth_more_than_local_updates():
    ten = Curve("ObjG", 1.0, 10)
    assert ten.totals(500) == OBJ.totals(5000)
    cost = from_json(ALL[1, 10])[ten].cost[-1]
    assert FOUND[OBJ].cost[-1] < cost - 0.1
    page = (PAPERS / "ryu_kim.md").read_text()
    assert f"E = 1 reaches cost {FOUND[OBJ].cost[-1]:.2f} after 5000 rounds" in page
    assert re.search(rf"E = 10 reaches\s+{cost:.2f} after 500", page)


@pytest.mark.parametrize("pair", [(0.05, 1), (0.05, 10), (1, 10)], ids=str)
def test_the_comparator_of_the_text_is_as_good_as_noise_in_gradients(pair):
    found = from_json(ALL[pair])
    obj, text, code = (Curve(noise, *pair) for noise in ("ObjG", "OutG, text", "OutG"))
    exact = Curve("ObjG", None, pair[1])
    assert set(found) == {obj, text, code, exact}
    costs = {curve: trace.cost[-1] for curve, trace in found.items()}
    assert costs[obj] == pytest.approx(costs[text], rel=0.01)
    assert costs[exact] < costs[code] > costs[text] + 0.1
    assert found[text].magnitude.min() > 10 * found[code].magnitude.max()
    assert found[obj].magnitude.min() > 3 * found[text].magnitude.max()
    # One per update costs next to nothing on 60,000 records, 0.05 half of the decrease or more.
    assert (costs[obj] > costs[exact] + 0.4) == (pair[0] == 0.05)


def test_the_figure_is_redrawn_from_the_files(tmp_path):
    files = [str(file) for file in FILES.values()]
    found = main(["--redraw", *files, "--plot", str(tmp_path)])
    assert {curve.updates for curve in found} == {1, 10} and len(found) == 13
    # Two files have this curve: the longer one is drawn.
    assert found[EXACT].rounds[-1] == 5000
    (drawn,) = tmp_path.iterdir()
    assert drawn.suffix == ".png" and drawn.stat().st_size > 10_000


def test_the_page_shows_it():
    text = (PAPERS / "ryu_kim.md").read_text()
    rounds = int(FOUND[OBJ].rounds[-1])
    claimed, composed = OBJ.totals(rounds)
    assert f"T = {rounds}" in text and STORED["commit"][:9] in text
    assert f"{claimed:.1f} (claimed) and {composed:.1f} (composed)" in text
    for name, curve in (("ObjG", OBJ), ("OutG", OUT), ("no noise", EXACT)):
        trace = FOUND[curve]
        assert f"| {name} | {trace.error[-1]:.3f} | {trace.cost[-1]:.2f} |" in text
