"""Tables show the units of the field, keyed by bus, and say which columns are not private."""

import csv
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpcvx.errors import ModelError
from problems.power_flow.case import Case, read_case
from problems.power_flow.measured import together
from problems.power_flow.report import imbalance, thermal_loading
from problems.power_flow.solution import State, central
from problems.power_flow.study import power_flow
from problems.power_flow.tables import (
    Column,
    Table,
    result_tables,
    study_tables,
    voltage_angles,
    write_tables,
)
from tests.problems.power_flow.networks import AWKWARD
from tests.problems.power_flow.test_report import voltage_state


@pytest.fixture
def case(tmp_path: Path) -> Case:
    path = tmp_path / "awkward.m"
    path.write_text(AWKWARD)
    return read_case(path)


@pytest.fixture
def state(case: Case) -> State:
    return voltage_state(case, np.exp(1j * np.radians([5.0, 2.0, -3.0, 4.0])))


def test_buses(case: Case, state: State):
    buses, _, _ = result_tables(case, replace(state, w=state.w * 1.21), case.load)
    assert buses["bus"].tolist() == [10, 20, 30, 40]
    np.testing.assert_allclose(buses["Vm"], 1.1)
    np.testing.assert_allclose(buses["V"], [121, 121, 22, 22])
    surplus = imbalance(case, replace(state, w=state.w * 1.21), case.load)
    np.testing.assert_array_equal(buses["P imbalance"], [surplus[bus][0] for bus in surplus])
    np.testing.assert_array_equal(buses["Q imbalance"], [surplus[bus][1] for bus in surplus])


def test_branches(case: Case, state: State):
    _, branches, _ = result_tables(case, state, case.load)
    assert branches["row"].tolist() == [1, 2, 3, 4, 5, 6]
    assert branches["from"].tolist() == [10, 20, 10, 40, 10, 30]
    assert branches["to"].tolist() == [20, 30, 40, 10, 40, 40]
    np.testing.assert_allclose(branches["P from"], 50 * state.pf)
    np.testing.assert_allclose(branches["Q to"], 50 * state.qt)
    assert np.flatnonzero(np.isnan(branches["loading"])).tolist() == [1, 2]
    np.testing.assert_allclose(branches["loading"], thermal_loading(case, state))
    np.testing.assert_allclose(branches["cone slack"], 0, atol=1e-12)


def test_generators(case: Case, state: State):
    _, _, generators = result_tables(case, state, case.load)
    assert generators["bus"].tolist() == [10, 30]
    np.testing.assert_allclose(generators["P"], [25, 20])
    np.testing.assert_allclose(generators["Pmax"], [100, 40])
    assert generators["Qmax"].tolist() == [np.inf, 20]
    # 0.02 p^2 + 4 p + 1 and 3 p + 5 on megawatts.
    np.testing.assert_allclose(generators["cost"], [0.02 * 625 + 100 + 1, 65])
    assert len(generators) == 2
    with pytest.raises(ModelError, match="no column 'Pd'; it has 'bus', 'row', 'P'"):
        generators["Pd"]


def test_costs_of_a_central_solve_add_up_to_the_optimum():
    case = read_case(118)
    result = central(case, "cost")
    _, _, generators = result_tables(case, result.state, case.load, private=False)
    np.testing.assert_allclose(generators["cost"].sum(), result.value, rtol=1e-6)


def test_headers_state_units_and_reservations(case: Case, state: State):
    private = result_tables(case, state, case.load)
    marked = [c.header for table in private for c in table.columns if "[not private]" in c.header]
    assert marked == ["P imbalance (MW) [not private]", "Q imbalance (MVAr) [not private]"]
    exposed = result_tables(case, state, case.load, private=False)
    clean = [
        c.header for table in exposed for c in table.columns if "[not private]" not in c.header
    ]
    assert clean == [
        "bus", "from", "to", "row", "bus", "row", "Pmin (MW)", "Pmax (MW)", "Qmin (MVAr)",
        "Qmax (MVAr)",
    ]  # fmt: skip


def test_files_keep_every_digit(case: Case, state: State, tmp_path: Path):
    tables = result_tables(case, state, case.load)
    paths = write_tables(tables, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["buses.csv", "branches.csv", "generators.csv"]
    for table, path in zip(tables, paths, strict=True):
        header, *rows = csv.reader(path.read_text().splitlines())
        assert header == [column.header for column in table.columns]
        for at, column in enumerate(table.columns):
            read = [float(row[at]) if row[at] else np.nan for row in rows]
            np.testing.assert_array_equal(read, column.values)


def test_text(case: Case, state: State):
    text = str(result_tables(case, state, case.load)[1])
    lines = text.splitlines()
    assert lines[0] == "branches"
    assert len({len(line) for line in lines[1:9]}) <= 2
    assert lines[9].split() == ["total", "0.53"]
    note = " ".join(lines[10:])
    assert note.startswith("relaxation: tight; cone slack up to 0 % of w_i w_j (0 of 4 pairs")
    assert "nan" not in text
    assert "(not private: P imbalance, Q imbalance)" in str(
        result_tables(case, state, case.load)[0]
    )


def test_angles_of_true_voltages(case: Case, state: State):
    np.testing.assert_allclose(voltage_angles(case, state), [0, -3, -8, -1], atol=1e-9)


def test_no_angles_beyond_pairs_that_are_not_tight(case: Case, state: State):
    # Bus 20 hangs on pairs 0 (with 10) and 2 (with 30).
    loose = replace(state, wr=state.wr * [0.9, 1, 0.9, 1])
    np.testing.assert_allclose(voltage_angles(case, loose), [0, np.nan, -8, -1], atol=1e-9)
    assert np.isnan(result_tables(case, loose, case.load)[0]["Va"][1])


def test_no_angles_where_a_loop_does_not_close(case: Case, state: State):
    turned = (state.wr + 1j * state.wi) * np.exp(1j * np.radians([0.2, 0, 0, 0]))
    open_loop = replace(state, wr=turned.real, wi=turned.imag)
    assert np.isnan(voltage_angles(case, open_loop)).all()
    buses = result_tables(case, open_loop, case.load)[0]
    assert "Va" not in [column.name for column in buses.columns]


def test_latex_has_a_cell_for_every_column_and_escapes_what_latex_reads(tmp_path):
    network = read_case(14)
    state = central(network, "shed").state
    for table in result_tables(network, state, network.load):
        (path,) = write_tables([table], tmp_path, ["tex"])
        lines = path.read_text().splitlines()
        assert lines[0].startswith("%") and path.name == f"{table.name}.tex"
        rows = [line for line in lines if line.endswith(r"\\")]
        body = [line for line in rows if not re.match(r"\\(multicolumn|caption)", line)]
        count = len(table.columns)
        assert {len(re.split(r"(?<!\\)&", line)) for line in body} == {count}
        # Names and units, sums, and the caption, which has no cells.
        assert len(body) == len(table) + 3
        assert r"\caption{" in path.read_text()
        text = "\n".join(lines[1:])
        # Every environment and brace is closed, and nothing starts a comment or mathematics.
        assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 1
        bare = re.sub(r"\\[%$&#_{}]", "", text)
        assert bare.count("{") == bare.count("}")
        assert not re.search(r"[%$#_^]", bare)
        for rule in ("toprule", "midrule", "bottomrule", "endhead"):
            assert f"\\{rule}" in text
    assert r"\$/h" in (tmp_path / "generators.tex").read_text()
    assert "not private: P imbalance" in (tmp_path / "buses.tex").read_text()


def compiled(folder: Path, names: list[str]) -> str:
    """What an engine writes about a document with these tables; it stops at the first error."""
    found = next(filter(None, map(shutil.which, ("pdflatex", "tectonic"))), None)
    if found is None:
        pytest.skip("no LaTeX here: Debian's texlive-latex-recommended has what tables need")
    inputs = "\n".join(rf"\input{{{name}}}" for name in names)
    paper = folder / "paper.tex"
    paper.write_text(
        "\\documentclass[a4paper]{article}\n\\usepackage[margin=2cm]{geometry}\n"
        "\\usepackage{booktabs,longtable}\n"
        f"\\begin{{document}}\n{inputs}\n\\end{{document}}\n"
    )
    quiet = ["-halt-on-error", "-interaction=nonstopmode"] if "pdflatex" in found else []
    run = subprocess.run(
        [found, *quiet, paper.name], cwd=folder, capture_output=True, timeout=120, check=False
    )
    said = run.stdout.decode(errors="replace")
    assert run.returncode == 0, said[-2000:]
    assert paper.with_suffix(".pdf").stat().st_size > 1000
    return said


def test_latex_compiles(tmp_path: Path):
    network = read_case(14)
    tables = result_tables(network, central(network, "shed").state, network.load)
    names = [path.name for path in write_tables(tables, tmp_path, ["tex"])]
    said = compiled(tmp_path, names)
    assert "Overfull" not in said and "Undefined" not in said


def test_latex_with_every_character_that_it_reads_compiles(tmp_path: Path):
    odd = Table("odd", (Column("a%b$c&d#e_f{g}h^i~j\\k", "$/h", np.array(["\\alpha_1 ~ 50 %"])),))
    write_tables([odd], tmp_path, ["tex"])
    compiled(tmp_path, ["odd.tex"])


def test_every_table_says_that_a_relaxation_is_no_ac_power_flow():
    case = read_case(118)
    state = central(case, "cost").state
    for table in result_tables(case, state, case.load, private=False):
        for text in (str(table), table.latex()):
            assert "relaxation: not an AC power flow; cone slack up to 6.7" in text
    branches = result_tables(case, state, case.load)[1]
    assert np.abs(branches["angle mismatch"]).max() == pytest.approx(7.5, rel=0.01)


def test_numbers_for_people_are_rounded_to_the_accuracy_of_solvers():
    values = np.array([9.6e-18, -3.9e-13, 12.345678, np.nan, np.inf])
    assert Column("P", "MW", values).shown(values) == ["0.00", "0.00", "12.35", "", "inf"]
    assert Column("gap", "p.u.^2", values).shown(values) == ["0", "0", "12.35", "", "inf"]


def test_sums_stand_below_text_and_latex_but_not_in_csv(tmp_path: Path):
    case = read_case(14)
    result = central(case, "cost")
    _, branches, generators = result_tables(case, result.state, case.load, private=False)
    lost = 100 * float(np.sum(result.state.pf + result.state.pt))
    row = next(line for line in str(generators).splitlines() if line.startswith("total"))
    assert row.split() == ["total", "274.68", "92.54", f"{result.value:.2f}"]
    assert f"{lost:.2f}" in next(
        line for line in branches.latex().splitlines() if line.startswith("total")
    )
    about = {"command": "--case 14", "commit": "0123"}
    paths = write_tables([generators], tmp_path, ["csv", "tex"], about)
    assert [path.name for path in paths][-1] == "provenance.json"
    assert "total" not in paths[0].read_text() and len(paths[0].read_text().splitlines()) == 6
    latex = paths[1].read_text()
    assert latex.startswith('% {"command": "--case 14", "commit": "0123"}\n')
    assert r"\label{tab:generators}" in latex and r"\caption{Generators of pglib\_opf" in latex


@pytest.mark.parametrize("model", ["dc", "soc"])
def test_hours_stand_below_each_other(model):
    study = power_flow(5, model=model, horizon=2, objective="cost", private=None, zones=1)
    _, public = together(study)
    states, loads = zip(*((public.state(t), public.net_load(t)) for t in (0, 1)), strict=True)
    price = np.arange(10.0).reshape(5, 2)
    tables = study_tables(public, states, loads, note="no AC power flow", price=price)
    assert [len(table) for table in tables] == [10, 12, 10]
    assert tables[0]["hour"].tolist() == [0] * 5 + [1] * 5
    assert tables[0]["price"].tolist() == price.T.ravel().tolist()
    assert ("Q" in tables[2].names) == ("cone slack" in tables[1].names) == (model == "soc")
    assert "total" not in str(tables[2]) and "no AC power flow" in str(tables[1])
    np.testing.assert_allclose(tables[0]["P imbalance"], 0, atol=1e-4)
