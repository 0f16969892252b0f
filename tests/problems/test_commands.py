"""Arguments of command lines are checked before anything runs."""

import argparse

import pytest

from dpcvx.errors import ModelError
from problems.commands import count, folder, in_words, positive


def parser():
    made = argparse.ArgumentParser(prog="test")
    made.add_argument("--rounds", type=count(2))
    made.add_argument("--rho", type=positive)
    made.add_argument("--plot", type=folder)
    return made


def test_good_arguments(tmp_path):
    new = tmp_path / "new"
    found = parser().parse_args(["--rounds", "12", "--rho", "1e-3", "--plot", str(new)])
    assert (found.rounds, found.rho, found.plot) == (12, 1e-3, new)
    assert new.is_dir()


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--rounds", ["0", "1", "-3", "1.5", "1e3", "nan", "\u00b2", "", "9" * 5000]),
        ("--rho", ["0", "-1", "nan", "inf", "1e400", "x", ""]),
        ("--plot", ["/dev/null", "/dev/null/x", "/proc/x", "a" * 300]),
    ],
)
def test_bad_arguments_end_in_one_short_line(option, values, capsys):
    for value in values:
        with pytest.raises(SystemExit) as ended:
            parser().parse_args([f"{option}={value}"])
        assert ended.value.code == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith(f"test: error: argument {option}: ")
        assert len(line) < 600


@pytest.mark.parametrize("error", [ModelError("Too long."), OSError(28, "No space left", "out")])
def test_errors_become_sentences(error, capsys):
    error.add_note("And a note.")
    with pytest.raises(SystemExit) as ended, in_words(parser()):
        raise error
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert ("Too long.\nAnd a note." in printed) or ("'out'" in printed and "No space" in printed)
