"""The reproduction of Xiao, Ye and Devadas' experiments: what it runs, prints and draws."""

import re

import numpy as np
import pytest

from examples import xiao_ye_devadas_logistic as example
from examples.xiao_ye_devadas_logistic import Case
from problems.census.methods import METHODS, NOISELESS, named
from tests.examples.printing import assert_written, printed

CASES = (
    Case(3, 3, 10, 2, rounds=4),
    Case(3, 3, 10, 2, decay=0.8, rounds=4, methods=named("Algorithm 1", "Appendix J")),
    Case(3, 3, 10, 2, "Gaussian", rounds=4, methods=METHODS[::7]),
    Case(3, 3, None, 1, rounds=4, methods=NOISELESS),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder, printed text, results and figures of a small run."""
    folder, drawn = tmp_path_factory.mktemp("xiao") / "out", {}
    with printed() as (lines, patched):
        patched.setattr(example, "SHORT", CASES)
        patched.setattr(
            example, "draw", lambda f, draw=example.draw: drawn.update(draw(f)) or drawn
        )
        found = example.main(["--plot", str(folder)])
    return folder, "\n".join(lines), found, drawn


def test_every_network_has_its_methods_at_one_total(made):
    _, text, found, _ = made
    assert [case for case, _, _ in found.cases] == list(CASES)
    for case, budget, traces in found.cases:
        assert [own.method for own in traces] == list(case.methods)
        for own in traces:
            assert len(own.runs) == case.runs and own.distances.shape == (case.runs, 5)
            assert own.runs[0].distance.shape == (5, case.agents)
            if budget is None:
                assert own.guarantee.kind == "none"
            else:
                assert own.guarantee.epsilon == pytest.approx(case.epsilon, rel=1e-4)
                assert (budget.noise, budget.decay) == (case.noise, case.decay)
    rows = re.findall(r"^   \w.* (\(\d+, 1e-06\)|none)$", text, flags=re.M)
    assert rows == ["(10, 1e-06)"] * (10 + 2) + ["none"] * 6 + ["(10, 1e-06)"]
    assert "not private" in text and "total, worst case" in text


def test_exact_perturbations_stand_beside_those_that_ran(made):
    """Of a case whose methods are no perturbations: the exact ones, and DP-ADMM."""
    _, text, found, _ = made
    case, rows = found.perturbed
    assert case == CASES[2] and [row.gaps.shape for row in rows] == [(2, 5)] * 4
    part = text[text.index("exact steps beside first-order ones") :]
    for row in rows:
        assert 9.9 < row.epsilon <= 10 * (1 + 1e-5)
        last = re.search(rf"^   {row.name} +(\S+)", part, flags=re.M)
        assert float(last[1]) == pytest.approx(row.gaps[:, -1].mean(), rel=5e-3)


def test_kinds_of_noise_are_compared_for_the_methods_that_all_have(made):
    """One table for the last round, one for the mean: Laplace, falling, ratio, Gaussian."""
    _, text, found, _ = made
    assert text.count("-DP in total, 4 rounds, 2 runs: gap by the noise") == 1
    part = text[text.index("gap by the noise") : text.index("Ex-post")]
    rows = re.findall(r"^   (Alg\w+ \d|Appendix J) +(\S+) +(\S+) +(\S+) +(\S+)$", part, re.M)
    assert [name for name, *_ in rows] == ["Algorithm 1", "Appendix J"] * 2
    kinds = [dict((t.method.name, t) for t in traces) for _, _, traces in found.cases[:3]]
    for k, (name, *cells) in enumerate(rows):
        steady, falling, other = (
            (own[name].gaps[:, -1] if k < 2 else own[name].averages).mean() for own in kinds
        )
        expected = [steady, falling, falling / steady, other]
        # Three digits, or two decimals.
        assert [float(cell) for cell in cells] == pytest.approx(expected, rel=5e-3, abs=5e-3)
    # sqrt(2) times the scale of Laplace noise, and the standard deviation of Gaussian noise.
    first, falling, gaussian = (budget.multiplier for _, budget, _ in found.cases[:3])
    change = 2 / 100
    for kind, value, last in (
        ("Laplace", np.sqrt(28) * first, 1),
        ("Laplace falling by 1.25", np.sqrt(28) * falling, 0.8**3),
        ("Gaussian", gaussian, 1),
    ):
        expected = f"{value * change:.3g} to {value * last * change:.3g}"
        assert re.search(rf"^ +{kind} +{expected}$", part, flags=re.M), expected


def test_ex_post_figures_are_labeled_and_kept_apart(made):
    _, text, _, _ = made
    start = text.index("Ex-post (depends on outputs and data: NO GUARANTEE)")
    part = text[start : text.index("Figure 1", start)]
    # Three with constant noise, and one with falling noise; none is known for Gaussian noise.
    assert len(re.findall(r"Laplace, noise for 10 +Algorithm", part)) == 3
    assert len(re.findall(r"falling by \S+, noise for 10 +Algorithm", part)) == 1
    assert "Gaussian" not in part
    assert "DP" not in part and "worst" not in part and "1e-06" not in part
    assert "Ex-post" not in text[:start] and "gamma" not in text[:start]
    for value in re.findall(r"\d\.\d{3}", part):
        assert 0 < float(value) <= 1


def test_claims_of_figure_1_stand_beside_the_exact_values(made):
    _, text, found, _ = made
    assert f"{found.surface.exact[0, 0]:.4f} ({found.surface.claimed[0, 0]:.4f})*" in text
    assert "too small at 91% of the points" in text


def test_what_the_paper_prints_is_computed(made):
    _, text, found, _ = made
    # Labels 0 and 1: everyone is predicted to have a high income.
    assert found.printed_labels < 0.4 < 0.6 < found.best
    total = 14 * 0.01 / 10 * np.sum(1.02 ** np.arange(1, 101))
    assert f"sums to {total:.3g};" in text and "at most 0.0748" in text
    assert "epsilon 2.38" in text
    powers = [np.sum((1.02 * r) ** np.arange(1, 101)) for r in (0.93, 0.9)]
    assert f"in the worst case {powers[0] / powers[1]:.2f}" in text
    assert "(the paper: 0.3)" in text and "(the paper: 0.7)" in text and "as printed" not in text
    assert found.length < 0.3 < 0.73 == pytest.approx(np.sqrt(28) / 1.02**100, rel=1e-2)


def test_curves_with_the_printed_noise_have_the_papers_sizes_and_totals(made):
    _, text, found, _ = made
    assert list(found.printed) == [
        "Figure 2: N = 10, 20 edges", "Figure B: N = 100, 200 edges", "Figure C: N = 10, 40 edges",
    ]  # fmt: skip
    powers = np.sum(1.02 ** np.arange(1, 101))
    for curves in found.printed.values():
        own = curves["Algorithm 1"][0]
        assert own.distance.shape[0] == 101
        assert own.claimed == pytest.approx(14 * powers / (10 * 100))
        assert own.spent == pytest.approx(2 * np.sqrt(14) * powers / (10 * 100))
        row = f"{own.claimed:>8.3g}{np.mean([t.realized for t in curves['Algorithm 1']]):>8.3g}"
        assert f"{row}{own.spent:>8.3g}" in text


def test_the_figures_are_written(made):
    folder, text, _, _ = made
    names = (
        "admm",
        "gradients",
        "noise_3",
        "ex_post",
        "figure_1",
        "figure_d",
        "printed_noise",
        "perturbations",
        "rates",
    )
    assert_written(folder, text, [f"xiao_ye_devadas_{name}" for name in names])


def test_the_full_mode_has_the_papers_sizes():
    sizes = {(case.agents, case.edges, case.runs) for case in example.FULL if case.epsilon}
    assert sizes == {(10, 20, 10), (100, 200, 10)}
    assert {case.rounds for case in example.FULL} == {100}
    assert any(case.decay == 1 / 1.02 and case.noise == "Laplace" for case in example.FULL)
    assert (example.EACH, example.D) == (100, 10)


def test_the_short_mode_has_noise_that_falls():
    assert any(case.decay == 1 / 1.02 for case in example.SHORT)
    assert example.SHORT[0].methods == METHODS
    silent = [case for case in example.SHORT if case.epsilon is None]
    assert silent[0].methods == NOISELESS
    # Every network with noise has one without, which figures draw beside it.
    assert {case.network for case in silent} == {case.network for case in example.SHORT}


def test_figures_show_the_same_network_without_noise(made):
    _, _, _, drawn = made
    for name, label in (
        ("admm", "Algorithm 1, no noise"),
        ("gradients", "Algorithm 2, no noise"),
        ("noise_3", "no noise: Algorithm 1"),
    ):
        (legend,) = drawn[name].legends
        assert label in [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize("options", [["--rounds", "-1"], ["--runs", "-2"]])
def test_runs_without_rounds_are_errors_of_usage(options, capsys):
    with pytest.raises(SystemExit):
        example.main(options)
    assert "must be positive" in capsys.readouterr().err


def test_a_file_with_too_few_people_is_an_error_of_usage(tmp_path, capsys):
    path = tmp_path / "adult.data"
    path.write_text(
        "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, "
        "Male, 2174, 0, 40, United-States, <=50K\n"
    )
    with pytest.raises(SystemExit):
        example.main(["--adult", str(path)])
    assert "1 records are too few" in capsys.readouterr().err


def test_a_file_is_used_in_place_of_made_records(tmp_path, monkeypatch, capsys):
    line = (
        "{}, Private, 77516, Bachelors, {}, Never-married, Sales, Husband, White, Male, 0, 0, 40, "
        "United-States, {}"
    )
    rng = np.random.default_rng(0)
    lines = [
        line.format(rng.integers(20, 70), rng.integers(5, 16), rng.choice(["<=50K", ">50K"]))
        for _ in range(230)
    ]
    (tmp_path / "adult.data").write_text("\n".join(lines))
    monkeypatch.setattr(example, "SHORT", (Case(2, 1, 10, 1, rounds=2, methods=METHODS[:1]),))
    found = example.main(["--adult", str(tmp_path / "adult.data")])
    assert found.size == 14 and "N = 2, 1 edges" in capsys.readouterr().out
