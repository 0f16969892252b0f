"""The text of a case file becomes the right matrices, or a message that helps."""

import re
import sys

import numpy as np
import pytest

from problems.power_flow.errors import CaseError
from problems.power_flow.matpower import COLUMNS, parse
from tests.problems.power_flow.networks import AWKWARD


def test_comments_strings_separators_and_continuation():
    tables = parse(AWKWARD, "awkward.m")
    assert tables.base_mva == 50
    assert tables.bus.shape == (5, 15)
    assert tables.bus[:, 0].tolist() == [10, 20, 30, 9, 40]
    assert tables.bus[2, :13].tolist() == [30, 2, -6.25, 0, 0, -4, 2, 1, 0, 20, 8, 1.1, 0.9]
    assert tables.bus[4, 11] == np.inf
    assert tables.gen[0, 3:5].tolist() == [np.inf, -np.inf]
    assert tables.branch.shape == (8, 13)
    assert tables.gencost.shape == (4, 7)
    assert tables.dcline.size == 0


def test_fortran_exponents_and_empty_matrices():
    text = AWKWARD.replace("-4e0", "-4D0")
    head, tail = text.split("mpc.gen = [")
    text = head + "mpc.gen = [];\n" + tail[tail.index("mpc.branch") :]
    tables = parse(text, "f.m")
    assert tables.bus[2, 5] == -4
    assert tables.gen.shape == (0, 10)


def same_tables(text: str) -> bool:
    first, second = parse(AWKWARD, "a.m"), parse(text, "b.m")
    return first.base_mva == second.base_mva and all(
        np.array_equal(getattr(first, field), getattr(second, field)) for field in COLUMNS
    )


def test_comments_of_octave_and_arguments_of_functions_change_nothing():
    assert same_tables(AWKWARD.replace("%{", "#{").replace("%}", "#}"))
    assert same_tables(AWKWARD.replace("% MVA", "# MVA = 'x").replace("%", "#"))
    assert same_tables(AWKWARD.replace("mpc = awkward", "mpc = awkward(scale, ~, varargin)"))
    with pytest.raises(CaseError, match="baseMVA is not a positive number"):
        parse(AWKWARD.replace("mpc = awkward", "mpc = awkward(base)").replace("50;", "base;"), "a")


def test_a_call_of_struct_gives_fields_if_it_comes_first():
    begin = AWKWARD.index("mpc.version")
    head, fields = AWKWARD[:begin], AWKWARD[begin:]
    _, bus, gen, branch, cost = re.split(r"mpc\.(?:bus|gen|branch|gencost) = ", fields)
    values = [part.rstrip().removesuffix(";") for part in (bus, gen, branch, cost)]
    names = ("bus", "gen", "branch", "gencost")
    pairs = "".join(f", ...\n '{k}', {v}" for k, v in zip(names, values, strict=True))
    whole = f"{head}mpc = struct('version', '2', 'baseMVA', 50, 'bus_name', {{{{'a, b', 'c'}}}}"
    assert same_tables(f"{whole}{pairs});\n")
    part = AWKWARD.replace("mpc.version = '2';", "mpc = struct('version', '2');")
    assert same_tables(part)
    for empty in ("mpc = struct();", "mpc = struct;"):
        assert same_tables(AWKWARD.replace("mpc.version", f"{empty}\nmpc.version"))
        with pytest.raises(CaseError, match="line 21 is not an assignment"):
            parse(AWKWARD.replace("mpc.branch", f"{empty} mpc.branch"), "late.m")
    for wrong in ("'version')", "'version', '2')(1)", "version, 2)", "'version', '2'"):
        with pytest.raises(CaseError):
            parse(AWKWARD.replace("mpc.version = '2';", f"mpc = struct({wrong};"), "wrong.m")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mpc.version = '2'", "mpc.version = '1'", "version '1'"),
        ("mpc.baseMVA = 50;", "", "no 'mpc.baseMVA"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = -50;", "baseMVA is not a positive number"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = base;", "baseMVA is not a positive number"),
        ("mpc.bus = [\n", "mpc.buses = [\n", "no 'mpc.bus ="),
        ("mpc.gen = [", "mpc.machines = [", "no 'mpc.gen ="),
        ("mpc.branch = [", "mpc.lines = [", "no 'mpc.branch ="),
        ("];\nmpc.gen = [", "mpc.gen = [", "matrix bus is not closed"),
        ("    2 0 0 1 9    0 0;\n];", "    2 0 0 1 9", "matrix gencost is not closed"),
        ("mpc.gen = [", "x = [", "line 15 is not an assignment such as"),
        ("    20 30 0 ", "    20 30 ", "branch row 2 has 12 columns, row 1 has 13"),
        ("mpc.gencost = [", "mpc.gencost = [ 2 0 0;", "gencost row 1 has 3 columns"),
        ("31.25", "31.25MW", "bus row 2, column 3 is not a number"),
        ("31.25", "3_1", "bus row 2, column 3 is not a number"),
        ("mpc.gencost = [", "mpc.bus(2, 3) = x;\nmpc.gencost = [", "changes entries of bus"),
        ("mpc.gencost = [", "mpc.baseMVA = 100;\nmpc.gencost = [", "baseMVA is assigned twice"),
    ],
)
def test_broken_text_is_named(old: str, new: str, message: str):
    assert old in AWKWARD
    with pytest.raises(CaseError, match=message) as caught:
        parse(AWKWARD.replace(old, new, 1), "broken.m")
    assert str(caught.value).startswith("broken.m: ")
    assert "31.25" not in str(caught.value)


def test_every_truncation_is_noticed():
    text = AWKWARD.rstrip()
    for end in range(0, len(text) - len("];"), 97):
        with pytest.raises(CaseError):
            parse(text[:end], "cut.m")


STATEMENTS = [
    "mpc.bus += 1;",
    "mpc.bus *= 2;",
    "mpc.('bus')(1,3) = 500;",
    "mpc.bus(1, :) = [];",
    "mpc.baseMVA(1) = 10;",
    "mpc.bus.extra = 1;",
    "mpc = scale_load(2, mpc);",
    "mpc = loadcase('case14');",
    "[mpc.bus, mpc.gen] = deal(0, 0);",
    "[mpc.bus(1, 3)] = deal(500);",
    "mpc.gen_name = set_all(mpc);",
    "mpc.areas = [1 2]';",
    "mpc.scale = 2 * 3;",
    "for k = 1:2, mpc.bus(k, 3) = 0; end",
    "for k = 1:2\n  mpc.bus(k, 3) = 0;\nend",
    "if true, mpc.baseMVA = 10; end",
    "while false\nend",
    "try, change(mpc); catch, end",
    "eval('mpc.bus(1,3) = 500;');",
    "run change.m",
    "!change",
    "mpc.userfcn = 'change';",
    "mpc.A = [1 0 0];",
    "mpc.dcpol = 2;",
    "ppc.bus = [1 2 3];",
    "assert(true)",
    "mpc",
    "1",
    "end\nmpc.baseMVA = 10;",
    "return; mpc.zones = 3;",
    "function other = change(mpc)",
    "mpc.note = 'not closed;",
    "%{\nnot closed",
    "mpc.note = 3 ...\n%{\nmpc.bus = 1;\n%}\n;",
    "mpc.note = [ 1 2 );",
    "]",
    "mpc.version = 1 + 1;",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_may_change_numbers_is_refused_with_its_line(statement: str):
    text = AWKWARD.replace("mpc.version = '2';", "") if ".version" in statement else AWKWARD
    lines = text.splitlines()
    for at in (lines.index("mpc.gen = ["), len(lines)):
        edited = "\n".join([*lines[:at], *statement.splitlines(), *lines[at:]])
        first, last = at + 1, at + 1 + statement.count("\n")
        with pytest.raises(CaseError) as caught:
            parse(edited, "changed.m")
        named = re.findall(r"line (\d+)", str(caught.value))
        assert named and first <= int(named[-1]) <= last, str(caught.value)
        assert "500" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mpc.gen = [", "mpc.gen = 2 * ["),
        ("mpc.gen = [", "mpc.gen = -["),
        ("];\nmpc.gen = [", "] * 2;\nmpc.gen = ["),
        ("];\nmpc.gen = [", "]';\nmpc.gen = ["),
        ("];\nmpc.gen = [", "].';\nmpc.gen = ["),
        ("];\nmpc.gen = [", "](1:3, :);\nmpc.gen = ["),
        ("];\nmpc.gen = [", "] % comment\n * 2;\nmpc.gen = ["),
        ("];\nmpc.gen = [", "] ...\n * 2;\nmpc.gen = ["),
        ("31.25", "31.25 * 2"),
        ("31.25", "31.25'"),
        ("31.25", "[31.25]"),
        ("31.25", "31.25i"),
        ("31.25", "1e999"),
        ("31.25", "0x1F"),
        ("31.25", "\u0661"),
        ("\t31.25\t-2.5", "\t31.25 - 2.5"),
        ("3, 12.5", "3,, 12.5"),
        ("10, 3", ", 10, 3"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = 50';"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = ...\n% 7\n50;"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = '50';"),
        ("function mpc = awkward", "function ppc = awkward"),
        ("function mpc = awkward", "function mpc = awkward(scale) + 1"),
        ("function mpc = awkward", "x = 1\nfunction mpc = awkward"),
    ],
)
def test_what_is_not_a_literal_is_refused(old: str, new: str):
    assert AWKWARD.count(old) >= 1
    with pytest.raises(CaseError, match=r"line \d+") as caught:
        parse(AWKWARD.replace(old, new, 1), "changed.m")
    assert "31.25" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        AWKWARD.replace("\n", "\r\n"),
        AWKWARD.replace("\n", "\r"),
        AWKWARD.replace("mpc.", "case.").replace("function mpc", "function [case]"),
        AWKWARD.replace("function mpc = awkward", "function mpc = awkward()"),
        AWKWARD.replace("function mpc = awkward", ""),
        AWKWARD.replace("};", "} % no semicolon"),
        AWKWARD.replace("mpc.gen = [", "mpc.areas = [1 5; 2 9]; mpc.n = -1, mpc.gen = ["),
        AWKWARD + "mpc.reserves.zones = [1 1 0];\nmpc.note = 'it''s 100 % ] done ...';\nend",
        AWKWARD + "return;\nend\n% nothing more",
        AWKWARD.replace("'2'", '"2"'),
    ],
)
def test_forms_that_mean_the_same(text: str):
    same, found = parse(AWKWARD, "awkward.m"), parse(text, "same.m")
    assert found.base_mva == same.base_mva
    for field in COLUMNS:
        np.testing.assert_array_equal(getattr(found, field), getattr(same, field))


def test_version_1_is_recognized():
    text = "function [baseMVA, bus, gen, branch, areas, gencost] = case9\nbaseMVA = 100;\n"
    for start in (text, text.partition("\n")[2]):
        with pytest.raises(CaseError, match="looks like version '1'"):
            parse(start, "case9.m")


def lines_executed(call):
    """Lines of Python that a call goes through."""
    count = 0

    def tracer(_frame, event, _argument):
        nonlocal count
        count += event == "line"
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_comments_cost_less_than_a_look_at_every_character():
    comments = "% a comment of sixty-four characters, as they stand in case files\n" * 500
    short, long = (
        lines_executed(lambda text=text: parse(text, "case.m"))
        for text in (AWKWARD, AWKWARD + comments)
    )
    assert 500 < long - short < len(comments) / 2


STORAGE = "mpc.storage = [ 10 0 0 20 100 50 70 0.8 0.9 100 -50 70 0.1 0 0 0 {} ];"
SWITCH = "mpc.switch = [ 10 20 300 98.61 {} 1000 {}; 10 30 0 0 0 1000 1 ];"
CHANGES = [
    ("mpc.load = [ 1 10 500 ];", "loads beside those of the bus matrix"),
    ("mpc.bus3p = [ 1 1 1 ];", "a three-phase network"),
]


@pytest.mark.parametrize(("statement", "message"), CHANGES)
def test_fields_that_change_the_network_are_refused_with_their_line(statement, message):
    with pytest.raises(CaseError, match=message) as caught:
        parse(f"{AWKWARD}{statement}\n", "more.m")
    assert f"(line {len(AWKWARD.splitlines()) + 1})" in str(caught.value)
    assert "500" not in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        STORAGE.format(0),
        SWITCH.format(0, 1),
        SWITCH.format(1, 0),
        "mpc.storage = [];",
        "mpc.branch_currents = [];",
        "mpc.genfuel = { 'coal'; 'wind'; };",
        "mpc.gentype = { 'ST'; 'WT'; };",
        "mpc.areas = [ 1 10 ];",
    ],
)
def test_fields_that_describe_or_are_out_of_service_are_no_matter(statement):
    assert parse(f"{AWKWARD}{statement}\n", "more.m").notes == ()


def test_fields_of_unknown_meaning_are_named_once_in_a_note():
    more = "mpc.ne_branch = [ 1 2 ];\nmpc.reserves.cost = 3;\nmpc.reserves.zones = [ 1 1 ];\n"
    (note,) = parse(AWKWARD + more, "more.m").notes
    assert note.startswith("more.m: read_case does not read 'ne_branch', 'reserves'.")
    many = "".join(f"mpc.extra{k} = {k};\n" for k in range(12))
    (note,) = parse(AWKWARD + many, "more.m").notes
    assert "'extra7' and 4 more." in note and "extra8" not in note


HEAD = """
[PQ, PV, REF, NONE, BUS_I, BUS_TYPE, PD, QD, GS, BS, BUS_AREA, VM, ...
    VA, BASE_KV, ZONE, VMAX, VMIN, LAM_P, LAM_Q, MU_VMAX, MU_VMIN] = idx_bus;
[F_BUS, T_BUS, BR_R, BR_X, BR_B, RATE_A] = idx_brch;
Vbase = mpc.bus(1, BASE_KV) * 1e3;   %% in Volts
Sbase = mpc.baseMVA * 1e6;           %% in VA
"""
# Statements, the field that they change, the columns from 0, and the factor on them.
CONVERSIONS = [
    (
        f"{HEAD}mpc.branch(:, [BR_R BR_X]) = mpc.branch(:, [BR_R BR_X]) / (Vbase^2 / Sbase);",
        "branch",
        [2, 3],
        50e6 / 110e3**2,
    ),
    (f"{HEAD}mpc.bus(:, [PD, QD]) = mpc.bus(:, [PD, QD]) / 1e3;", "bus", [2, 3], 1e-3),
    ("mpc.bus(:, 3:4) = mpc.bus(:, 3:4)/1000;", "bus", [2, 3], 1e-3),
    ("mpc.bus(:, 3) = 2 * mpc.bus(:, 3);", "bus", [2], 2),
    ("mpc.bus(1:end, [3]) = +mpc.bus(:, 3) .* --2;", "bus", [2], 2),
    ("define_constants; mpc.bus(:, PD) = mpc.bus(:, PD) * 0.85;", "bus", [2], 0.85),
    ("pf = .6; mpc.bus(:, 3) = mpc.bus(:, 3) * sin(acos(pf));", "bus", [2], 0.8),
    ("s3 = sqrt(3); mpc.branch(:, 3) = mpc.branch(:, 3) ./ s3 .^ 2;", "branch", [2], 1 / 3),
    ("k = -2^2 + 2^-1; mpc.branch(:, 4) = k * mpc.branch(:, 4);", "branch", [3], -3.5),
    ("mpc.gen(:, 9:10) = mpc.gen(:, 9:10) * mpc.baseMVA;", "gen", [8, 9], 50),
    ("mpc.gencost(:, 7) = mpc.gencost(:, 7) + mpc.gencost(:, 7);", "gencost", [6], 2),
    ("mpc.bus(1:4, 4) = 3*mpc.bus(1:4, 4); mpc.bus(end, 4) = mpc.bus(5, 4)*3;", "bus", [3], 3),
]


@pytest.mark.parametrize(("statements", "field", "columns", "factor"), CONVERSIONS)
def test_conversions_of_units_are_carried_out(statements, field, columns, factor):
    before, after = parse(AWKWARD, "a.m"), parse(f"{AWKWARD}{statements}\n", "a.m")
    for other in COLUMNS:
        expected = getattr(before, other).copy()
        if other == field:
            expected[:, columns] *= factor
        np.testing.assert_allclose(getattr(after, other), expected, rtol=1e-14)


def test_entries_are_assigned_and_numbers_computed():
    text = f"{AWKWARD}mpc.bus(2, [3 4]) = 2;\nmpc.branch(end-1:end, 11) = 0;\n"
    tables = parse(text.replace("= 50;", "= 150/3;").replace("31.25", "(25/0.8)"), "a.m")
    assert tables.base_mva == 50
    assert tables.bus[1, 2:4].tolist() == [2, 2]
    assert tables.branch[:, 10].tolist() == [1, 1, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    "statement",
    [
        "mpc.bus(:, 3) = mpc.bus(:, 3) * mpc.bus(:, 4);",
        "mpc.bus(:, 3) = 1 / mpc.bus(:, 4);",
        "mpc.bus(:, 3) = mpc.bus(:, 3) ^ 2;",
        "mpc.bus(:, 3) = mpc.bus(:, 3:4);",
        "mpc.bus(:, 3) = mpc.gen(:, 3);",
        "mpc.bus(:, 3) = mpc.bus(:, 3)';",
        "mpc.bus(:, 3) = 0 * mpc.bus(:, 12);",  # Inf * 0
        "mpc.bus(:, 99) = 1;",
        "mpc.bus(6, 3) = 1;",
        "mpc.bus(0, 3) = 1;",
        "mpc.bus(1.5, 3) = 1;",
        "mpc.bus(3) = 1;",
        "mpc.bus(1:1e12, 3) = 1;",
        "mpc.bus(:, PD) = 1;",
        "mpc.bus(find(mpc.bus(:, 3) > 1), 3) = 1;",
        "mpc.bus(mpc.bus(:, 2) == 1, 3) = 1;",
        "mpc.nothing(:, 1) = 1;",
        "x = ones(3, 1);",
        "x = mpc.bus(:, 3);",
        "sin = 3;",
        "x = 'text';",
        "[PQ, PV] = idx_tables;",
        "[mpc] = idx_bus;",
        f"x = {'(' * 200}1{')' * 200};",
        "c = idx_dcline;",
        "mpc.baseMVA(1, 1) = 3;",
    ],
)
def test_code_beyond_conversions_is_refused(statement: str):
    with pytest.raises(CaseError, match=rf"line {len(AWKWARD.splitlines()) + 1}\b"):
        parse(f"{AWKWARD}{statement}\n", "a.m")


def test_a_conversion_before_the_matrix_is_refused():
    text = AWKWARD.replace("mpc.gen = [", "mpc.gen(:, 9) = 2 * mpc.gen(:, 9);\nmpc.gen = [")
    with pytest.raises(CaseError, match="line 15 changes entries of gen"):
        parse(text, "a.m")
