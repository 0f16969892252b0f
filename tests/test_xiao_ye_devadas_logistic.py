"""The reproduction of Xiao, Ye and Devadas' experiments: what it runs, prints and draws."""

import re

import numpy as np
import pytest

from examples import xiao_ye_devadas_logistic as example
from examples.xiao_ye_devadas_logistic import Case, Scope
from problems.census.methods import METHODS, NOISELESS

SCOPE = Scope(4, (Case(3, 3, 10, 2), Case(3, 3, None, 1)))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder, printed text and results of a small run."""
    folder = tmp_path_factory.mktemp("xiao") / "out"
    lines = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("builtins.print", lambda *words: lines.append(" ".join(map(str, words))))
        patched.setattr(example, "SHORT", SCOPE)
        found = example.main(["--plot", str(folder)])
    return folder, "\n".join(lines), found


def test_every_network_has_all_methods_at_one_total(made):
    _, text, found = made
    assert [case for case, _, _ in found.cases] == list(SCOPE.cases)
    for case, budget, traces in found.cases:
        methods = NOISELESS if case.epsilon is None else METHODS
        assert [own.method for own in traces] == list(methods)
        for own in traces:
            assert len(own.runs) == case.runs and own.distances.shape == (case.runs, 5)
            assert own.runs[0].distance.shape == (5, case.agents)
            if budget is None:
                assert own.guarantee.kind == "none"
            else:
                assert own.guarantee.epsilon == pytest.approx(case.epsilon, rel=1e-4)
    rows = re.findall(r"^   (?:Alg|App|Hua).* (\(\d+, 1e-06\)|none)$", text, flags=re.M)
    assert rows == ["(10, 1e-06)"] * 6 + ["none"] * 4
    assert "not private" in text and "total, worst case" in text


def test_ex_post_figures_are_labelled_and_kept_apart(made):
    _, text, _ = made
    start = text.index("Ex-post (depends on outputs and data: NO GUARANTEE)")
    part = text[start : text.index("Figure 1", start)]
    assert len(re.findall(r"noise for 10 +Algorithm", part)) == 3
    assert "DP" not in part and "worst" not in part and "1e-06" not in part
    assert "Ex-post" not in text[:start] and "gamma" not in text[:start]
    for value in re.findall(r"\d\.\d{3}", part):
        assert 0 < float(value) <= 1


def test_claims_of_figure_1_stand_beside_the_exact_values(made):
    _, text, found = made
    assert f"{found.surface.exact[0, 0]:.4f} ({found.surface.claimed[0, 0]:.4f})*" in text
    assert "too small at 91% of the points" in text


def test_what_the_paper_prints_is_computed(made):
    _, text, found = made
    # Labels 0 and 1: everyone is predicted to have a high income.
    assert found.printed_labels < 0.4 < 0.6 < found.best
    total = 14 * 0.01 / 10 * np.sum(1.02 ** np.arange(1, 101))
    assert f"sums to {total:.3g};" in text and "at most 0.0748" in text
    assert "epsilon 2.38" in text
    powers = [np.sum((1.02 * r) ** np.arange(1, 101)) for r in (0.93, 0.9)]
    assert f"{powers[0] / powers[1]:.2f} (the paper: 0.3" in text
    assert found.length < 0.3 < 0.73 == pytest.approx(np.sqrt(28) / 1.02**100, rel=1e-2)


def test_the_figures_are_written(made):
    folder, text, _ = made
    for name in ("comparison", "ex_post", "figure_1", "figure_d"):
        path = folder / f"{name}.png"
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
        assert f"wrote {path}" in text


def test_the_full_mode_has_the_papers_sizes():
    sizes = {(case.agents, case.edges, case.runs) for case in example.FULL.cases if case.epsilon}
    assert sizes == {(10, 20, 10), (100, 200, 10)} and example.FULL.rounds == 100
    assert (example.EACH, example.D) == (100, 10)


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
    monkeypatch.setattr(example, "SHORT", Scope(2, (Case(2, 1, 10, 1),)))
    monkeypatch.setattr(example, "METHODS", METHODS[:1])
    found = example.main(["--adult", str(tmp_path / "adult.data")])
    assert found.size == 14 and "N = 2, 1 edges" in capsys.readouterr().out
