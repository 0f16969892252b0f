"""Rows of nights, and the page that shows them over time."""

import json
from pathlib import Path

import pytest

from tests import nightly
from tests.campaigns.__main__ import NAMES
from tests.campaigns.__main__ import main as campaigns


def test_a_page_shows_all_rows_over_time(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    for k, night in enumerate(("2026-11-27", "2026-11-28", "2026-11-29")):
        nightly.keep(rows, "bench", [("conic <step>", 0.1 + k, "x", k < 2)], night)
        nightly.keep(rows, "campaigns", [("files", 1500.0, "trials", True)], night)
    nightly.keep(rows, "bench", [("unseen", float("inf"), "s", True)], "2026-11-29")
    (tmp_path / "tonight" / "bench").mkdir(parents=True)
    first, *later = rows.read_text().splitlines(keepends=True)
    rows.write_text(first)
    (tmp_path / "tonight" / "bench" / "rows.jsonl").write_text("".join(later))
    out = str(tmp_path / "out" / "page.html")
    assert nightly.main(["page", str(tmp_path / "tonight"), str(rows), "--out", out]) == 0
    page = (tmp_path / "out" / "page.html").read_text()
    assert "3 nights, the last one 2026-11-29: bench: conic &lt;step&gt;" in page
    assert page.index("<h2>bench") < page.index("<h2>campaigns") and "Infinity" not in page
    assert page.count("<svg") == 3 and page.count("#c00") == 1
    assert "<td class=figure>2 of 3</td>" in page and "<td class=figure>3 of 3</td>" in page
    assert '<polyline points="3.0,25.0 80.0,14.0 157.0,3.0"/>' in page


def test_a_night_that_ran_twice_counts_once(tmp_path):
    rows = tmp_path / "rows.jsonl"
    for held in (False, True):
        nightly.keep(rows, "bench", [("a", 1.0, "x", held)], "2026-11-29")
    ((_, kept),) = nightly.series(rows).items()
    assert len(kept) == 1 and kept[0]["held"]
    rows.write_text(rows.read_text() + '{"night": 1}\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 3 is no row of a night"):
        nightly.series(rows)


def test_every_campaign_can_be_run_in_full():
    for name in NAMES:
        source = Path(campaigns.__code__.co_filename).with_name(f"{name}.py").read_text()
        assert "\nFULL = " in source and "\ndef campaign(size" in source, name


def test_campaigns_and_commands_keep_rows(tmp_path):
    rows = tmp_path / "new" / "rows.jsonl"
    assert campaigns(["endings", "--size", "1", "--rows", str(rows)]) == 0
    assert nightly.main(["run", "--rows", str(rows), "machine-x", "false"]) == 1
    kept = [json.loads(line) for line in rows.read_text().splitlines()]
    said = [(row["target"], row["name"], row["value"], row["held"]) for row in kept]
    assert said == [
        ("campaigns", "endings", 1.0, True), ("machine-x", "exit code", 1.0, False)
    ]  # fmt: skip
    nightly.keep(None, "bench", [("a", 1.0, "x", True)])
