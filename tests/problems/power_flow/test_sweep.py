"""Sweeps run every combination once, go on where they stopped, and store what repeats a run."""

import json
from dataclasses import replace

import numpy as np
import pytest

from problems.power_flow.cli import main
from problems.power_flow.figures import sweep_figure
from problems.power_flow.options import parser
from problems.power_flow.sweep import settings, summary, sweep

OVER = [("case", ("3", "5")), ("epsilon", ("0.5", "5"))]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Cells and the file of a small sweep."""
    path = tmp_path_factory.mktemp("sweep") / "runs.jsonl"
    return sweep(parser(), [], OVER, range(2), path), path


def test_every_combination_has_every_seed(swept):
    cells, path = swept
    assert [cell.setting for cell in cells] == settings(OVER)
    assert len(settings(OVER)) == 4 and all(len(cell.objectives) == 2 for cell in cells)
    assert len(path.read_text().splitlines()) == 8
    assert [cell.epsilon for cell in cells] == pytest.approx([0.5, 5, 0.5, 5], rel=1e-4)
    for cell in cells:
        assert cell.noiseless - cell.optimum < 1e-6 < cell.start - cell.optimum
    for tight, loose in (cells[:2], cells[2:]):
        assert np.median(loose.objectives) < np.median(tight.objectives)


def test_a_sweep_goes_on_where_it_stopped(swept, tmp_path):
    cells, path = swept
    content = path.read_text()
    lines = content.splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(lines[:5]) + lines[5][:40])
    told = []
    again = sweep(parser(), [], OVER, range(2), cut, lambda setting, old: told.append(old))
    assert told == [True, True, False, False]
    assert [cell.objectives for cell in again] == [cell.objectives for cell in cells]
    strip = [json.loads(line) for line in cut.read_text().splitlines()]
    assert strip == [json.loads(line) for line in lines]
    # More seeds add runs to those that are there.
    more = sweep(parser(), ["--case", "3"], OVER[1:], range(3), cut)
    assert [len(cell.objectives) for cell in more] == [3, 3]
    assert len(cut.read_text().splitlines()) == 8 + 2


def test_stored_runs_of_another_setting_do_not_count(swept, tmp_path):
    _, path = swept
    copied = tmp_path / "copied.jsonl"
    copied.write_text(path.read_text())
    told = []
    sweep(
        parser(), ["--radius", "0.02"], OVER[:1], range(1), copied, lambda s, old: told.append(old)
    )
    assert told == [False, False]


@pytest.mark.parametrize("line", ["no json\n", "{}\n", "[1]\n"])
def test_a_file_of_something_else_is_refused(tmp_path, capsys, line):
    path = tmp_path / "other.jsonl"
    path.write_text(line)
    assert main(["--case", "3", "--over", "epsilon=1", "--json", str(path)]) == 2
    assert "line 1 is no result of a sweep" in capsys.readouterr().err
    assert path.read_text() == line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--over", "epsilon"], "not an option with values"),
        (["--over", "epsilon=1,,2"], "not an option with values"),
        (["--over", "json=a,b"], "one value for all runs"),
        (["--over", "speed=1"], "unrecognized arguments: --speed=1"),
        (["--over", "epsilon=x"], "invalid float value"),
    ],
)
def test_what_cannot_be_swept_is_said_before_any_run(capsys, words, message):
    with pytest.raises(SystemExit) as ended:
        main(["--case", "3", *words])
    printed = capsys.readouterr()
    assert ended.value.code == 2 and printed.out == "" and message in printed.err


@pytest.mark.parametrize("other", ["--central", "--ledger=x"])
def test_sweeps_are_for_study(capsys, other):
    assert main(["--case", "3", "--over", "epsilon=1", other]) == 2
    assert "--over repeats runs for study" in capsys.readouterr().err


def test_the_summary_and_the_figure_show_what_noise_costs_beside_no_data(swept):
    cells, _ = swept
    table = summary(cells)
    np.testing.assert_allclose(
        table["gap median"], [np.median(c.objectives) - c.optimum for c in cells]
    )
    assert table["case"].tolist() == ["3", "3", "5", "5"]
    figure = sweep_figure(cells)
    assert [axes.get_title() for axes in figure.axes] == ["case 3", "case 5"]
    (legend,) = figure.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == ["private", "no data", "the same without noise"]
    assert "not private" in figure.get_suptitle()
    (line, *_) = figure.axes[1].lines
    np.testing.assert_allclose(line.get_ydata(), table["gap median"][2:])


def test_the_command_writes_tables_and_figures(swept, tmp_path, capsys):
    _, path = swept
    words = [f"--over={name}={','.join(values)}" for name, values in OVER]
    words += ["--seeds", "2", "--json", str(path), "--tables", str(tmp_path)]
    words += ["--table-format", "csv,tex", "--plot", str(tmp_path), "--format", "svg"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "case 5, epsilon 0.5: stored before" in out and "not private" in out
    names = {"sweep.csv", "sweep.tex", "sweep.svg", "provenance.json"}
    assert {p.name for p in tmp_path.iterdir()} == names


def test_sweeps_of_models_that_balance_released_loads_run(tmp_path, capsys):
    """A point that ignores loads does not balance them, so there is none without data."""
    path = tmp_path / "runs.jsonl"
    command = f"--case 14 --model dc --over epsilon=1,10 --seeds 2 --json {path}"
    assert main(command.split()) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 4 and "error" not in capsys.readouterr().err
    for line in lines:
        assert line["start"] is None
        assert line["noiseless"] == pytest.approx(line["optimum"], rel=1e-5)


def test_gaps_below_zero_are_drawn_as_they_are(swept):
    """Released loads may be served at less cost, which a logarithmic axis does not show."""
    cells, _ = swept
    moved = [replace(cell, optimum=max(cell.objectives) + 1) for cell in cells]
    for drawn, scale in ((cells, "log"), (moved, "linear")):
        for axes in sweep_figure(drawn).axes:
            assert axes.get_yscale() == scale
    (line, *_) = sweep_figure(moved).axes[0].lines
    assert np.all(np.asarray(line.get_ydata()) < -0.9)
