"""The text of a case file becomes the right matrices, or a message that helps."""

import numpy as np
import pytest

from problems.power_flow.errors import CaseError
from problems.power_flow.matpower import parse
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
        ("mpc.gencost = [", "mpc.cost = [", "no 'mpc.gencost ="),
        ("];\nmpc.gen = [", "mpc.gen = [", "matrix bus is not closed"),
        ("    2 0 0 1 9    0 0;\n];", "    2 0 0 1 9", "matrix gencost is not closed"),
        ("mpc.gen = [", "mpc.gen = load('gen.mat');\nx = [", "matrix gen is not closed"),
        ("    20 30 0 ", "    20 30 ", "branch row 2 has 12 columns, row 1 has 13"),
        ("mpc.gencost = [", "mpc.gencost = [ 2 0 0;", "gencost row 1 has 3 columns"),
        ("31.25", "31.25MW", "bus row 2, column 3 is not a number"),
        ("31.25", "3_1", "bus row 2, column 3 is not a number"),
        ("mpc.gencost = [", "mpc.bus(2, 3) = 12;\nmpc.gencost = [", "changes entries of bus"),
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
