"""The reproduction of Ou, Wang, Liu and Lu's experiments: what it runs, prints and draws."""

import re
from dataclasses import replace

import numpy as np
import pytest

from examples import ou_nonconvex as example
from problems.nonconvex_classification import printed as as_printed
from problems.nonconvex_classification.experiment import Size
from problems.nonconvex_classification.methods import METHODS
from problems.nonconvex_classification.tuned import CHOICES
from tests.examples.printing import assert_written, printed

# Two releases in a round, one, and Gaussian noise.
SOME = (METHODS[1], METHODS[4], METHODS[6])
MODE = example.Mode(
    Size(5, 20, 3, None, 0.9),
    Size(6, 20, 3, None, 0.9),
    8,
    8,
    (0.0, 0.5, 0.95),
    (0.0, 1.0, 3.0),
    (1.0, 1e3),
    SOME,
    2,
    3,
    40,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder, printed text and results of a small run."""
    folder = tmp_path_factory.mktemp("ou") / "out"
    with printed() as (lines, patched):
        patched.setattr(example, "SHORT", MODE)
        found = example.main(["--plot", str(folder), "--seeds", "2"])
    return folder, "\n".join(lines), found


def part(text, start, end):
    return text[text.index(start) : text.index(end)]


def test_every_curve_stands_beside_its_total(made):
    _, text, found = made
    for curves, values, start, end in (
        (found.decays, MODE.decays, "Figure 1", "PPDC at"),
        (found.scales, MODE.scales, "Figure 2", "All methods at"),
    ):
        rows = re.findall(r"^   ([\d.]+) +(\S+) +(\S+) +(\S+) +(.*)$", part(text, start, end), re.M)
        assert [float(name) for name, *_ in rows] == list(values)
        for row, (curve, trace) in zip(rows, curves.items(), strict=True):
            assert trace.gap.shape == (9,)
            gaps = [trace.gap[0], trace.gap.max(), trace.gap[7]]
            assert [float(cell) for cell in row[1:4]] == pytest.approx(gaps, rel=5e-3)
            if curve.silent:
                assert row[4].split() == ["none", "no", "guarantee"]
                continue
            arrays = as_printed.drawn(MODE.printed, 0)
            claimed, corrected = as_printed.epsilons(arrays, curve)
            assert trace.epsilon == corrected
            numbers = row[4].split()
            assert float(numbers[0]) == pytest.approx(corrected, rel=1e-3)
            assert float(numbers[1]) == pytest.approx(claimed, rel=1e-3)
            assert ("no protection" in row[4]) == (trace.epsilon >= 50)
    totals = [trace.epsilon for trace in found.decays.values()]
    assert totals[0] == np.inf and totals[1] > 20 * totals[2]


def test_both_noises_of_ppdc_stand_beside_each_other(made):
    _, text, found = made
    rows = part(text, "PPDC at", "Figure 2")
    pairs = re.findall(r"^   ([\d.]+) +(\S+), (\S+) +(\S+), (\S+)$", rows, re.M)
    assert [float(r) for r, *_ in pairs] == list(MODE.decays)
    assert "not Figure 3" in rows
    for name, column in zip(found.primal_dual, (1, 3), strict=True):
        for row, trace in zip(pairs, found.primal_dual[name].values(), strict=True):
            assert float(row[column]) == pytest.approx(trace.gap[7], rel=5e-3)
            total = np.inf if row[column + 1] == "none" else float(row[column + 1])
            assert total == pytest.approx(trace.epsilon, rel=1e-3)


def test_the_figures_share_the_run_where_they_meet(made):
    _, _, found = made
    (one,) = [t for c, t in found.decays.items() if c.decay == 0.95]
    (other,) = [t for c, t in found.scales.items() if c.scale == 1]
    assert one is other
    assert next(iter(found.decays.values())) is next(iter(found.scales.values()))


def test_all_methods_are_compared_at_the_totals_that_are_named(made):
    _, text, found = made
    rows = part(text, "All methods at", "Parameters")
    for method in SOME:
        own = found.contests[method]
        assert list(own) == [1.0, 1e3]
        for epsilon, traces in own.items():
            assert [t.delta for t in traces] == [method.delta] * 2
            assert [t.epsilon for t in traces] == pytest.approx([epsilon] * 2, rel=1e-6)
            assert traces[0].end != traces[1].end  # of other records
        (line,) = re.findall(rf"^   {re.escape(method.name)}  +(.*)$", rows, re.M)
        means = [np.mean([t.end for t in traces]) for traces in own.values()]
        cells = re.findall(r"(\S+) \(\S+ to \S+\)", line)
        assert [float(cell) for cell in cells] == pytest.approx(means, rel=5e-3)
    assert "epsilon is no protection" in rows and "(epsilon, 1e-06)-DP" in rows


def test_the_best_is_named_unless_the_start_is_better(made):
    _, _, found = made
    for epsilon in MODE.epsilons:
        means = {
            m.name: np.mean([t.end for t in own[epsilon]]) for m, own in found.contests.items()
        }
        least = min(means.values())
        assert example.best(replace(found, start=least / 2), epsilon) == "the public start"
        assert means[example.best(replace(found, start=2 * least), epsilon)] == least


def test_parameters_are_those_of_the_search_with_fewer_rounds(made):
    _, text, _ = made
    rows = part(text, "Parameters", "What eta hides")
    for method in SOME:
        (line,) = re.findall(rf"^   {re.escape(method.name)}  +(.*)$", rows, re.M)
        for epsilon in MODE.epsilons:
            choice = CHOICES[method.name, epsilon]
            assert f"{choice.step:g}, {min(choice.rounds, 3)}, {choice.decay:g}" in line


def test_what_is_recovered_and_what_is_damped_is_printed(made):
    _, text, found = made
    rows = re.findall(
        r"^   (\d+) +(\S+) +(\S+) +(\S+) +(\S+)$", part(text, "What eta", "Factor"), re.M
    )
    assert [int(row[0]) for row in rows] == [1, 3, 5, 7]
    for k, x, noise, merged, left in rows:
        own = found.eavesdropping
        expected = [values[int(k)] for values in (own.length, own.noise, own.merged)]
        assert [float(x), float(noise), float(merged)] == pytest.approx(expected, rel=5e-3)
        assert float(left) < 1e-12
    rates = part(text, "Factor", "Conditions")
    assert re.search(r"^   -0\.0005 +1\.0000\d\d +0\.\d+$", rates, re.M)
    assert "against Theorem 2" in rates
    conditions = text[text.index("Conditions of the paper") :]
    for number in ("(25)", "(26)", "(27)"):
        assert number in conditions


def test_the_figures_are_written(made):
    folder, text, _ = made
    names = ("rounds", "decays", "epsilon", "messages", "damping")
    assert_written(folder, text, [f"ou_{name}" for name in names])


def test_the_full_mode_has_the_papers_sizes():
    assert example.FULL.size == Size(50, 200, 10, 255, 0.3)
    assert example.FULL.decays == (0, 0.5, 0.9, 0.95, 0.97, 0.98, 0.99)
    assert example.FULL.scales == (0, 0.1, 0.3, 0.6, 1, 3, 5)
    assert example.FULL.seeds >= 3
    for mode in (example.SHORT, example.FULL):
        assert mode.methods == METHODS
        assert all((method.name, e) in CHOICES for method in METHODS for e in mode.epsilons)
    most = max(choice.rounds for choice in CHOICES.values())
    assert example.FULL.most >= most > example.SHORT.most


def test_processes_find_the_same(made):
    _, _, found = made
    mode = replace(MODE, methods=METHODS[4:5], seeds=1, decays=(0.5,), scales=(3.0,), swings=2)
    again = example.experiment(mode, workers=2)
    for epsilon in mode.epsilons:
        one, two = (own.contests[METHODS[4]][epsilon][0] for own in (found, again))
        assert one.gap.tolist() == two.gap.tolist()


def test_the_search_prints_lines_of_the_table(capsys):
    mode = replace(MODE, methods=METHODS[3:4], epsilons=(10.0,))
    found = example.tune(mode)
    line = capsys.readouterr().out.strip()
    table = eval("{" + line + "\n}", {"Choice": example.Choice})
    assert table == found and list(found) == [("PPDC", 10.0)]


@pytest.mark.parametrize("options", [["--seeds", "0"], ["--workers", "-1"]])
def test_numbers_that_are_not_positive_are_errors_of_usage(options, capsys):
    with pytest.raises(SystemExit):
        example.main(options)
    assert "must be positive" in capsys.readouterr().err
