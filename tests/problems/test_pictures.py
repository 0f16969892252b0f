"""Figures under their names, in a folder that need not exist."""

import argparse

import matplotlib
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from dpcvx._figure import STYLE
from problems import pictures
from problems.commands import add_plot


def test_every_figure_is_written_where_the_list_says(tmp_path):
    folder = tmp_path / "new" / "folder"
    found = pictures.write({"one": Figure(), "two": Figure()}, folder)
    assert found == [folder / "one.png", folder / "two.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in found)


def test_what_is_announced_is_there(tmp_path, capsys):
    pictures.announce({"one": Figure()}, tmp_path)
    assert capsys.readouterr().out == f"wrote {tmp_path / 'one.png'}\n"
    assert (tmp_path / "one.png").is_file()


@pictures.styled
def drawn() -> Figure:
    figure = Figure(figsize=(pictures.ONE_COLUMN, 2))
    axes = figure.subplots()
    axes.plot([1, 2], label="one")
    axes.plot([2, 1], label="two")
    pictures.whole_rounds(axes)
    axes.legend()
    return figure


@pytest.mark.parametrize(
    ("kind", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_formats_are_what_they_say_and_the_same_figure_is_the_same_file(tmp_path, kind, begins):
    (one,) = pictures.write({"one": drawn()}, tmp_path, [kind])
    (two,) = pictures.write({"two": drawn()}, tmp_path, [kind])
    assert one.suffix == f".{kind}" and one.read_bytes().startswith(begins)
    assert one.read_bytes() == two.read_bytes()


def test_text_of_vector_formats_stays_text(tmp_path):
    (path,) = pictures.write({"one": drawn()}, tmp_path, ["svg"])
    assert ">one</text>" in path.read_text()


def test_a_command_takes_formats_in_any_order_and_refuses_others(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    add_plot(parser)
    options = parser.parse_args(["--plot", str(tmp_path), "--format", "SVG, pdf,svg"])
    assert (options.plot, options.format) == (tmp_path, ("svg", "pdf"))
    assert parser.parse_args([]).format == ("png",)
    with pytest.raises(SystemExit):
        parser.parse_args(["--format", "jpeg"])
    assert "'jpeg' is no format for figures; write one or several of png,pdf,svg" in (
        capsys.readouterr().err
    )


def test_figures_look_the_same_whatever_the_settings():
    before = drawn()
    with matplotlib.rc_context({"font.size": 20, "xtick.labelsize": 30, "lines.linewidth": 9}):
        after = drawn()
        for figure in (before, after):
            figure.draw_without_rendering()
    for one, two in zip(before.axes, after.axes, strict=True):
        assert one.lines[0].get_linewidth() == two.lines[0].get_linewidth()
        sizes = [{label.get_size() for label in axes.get_xticklabels()} for axes in (one, two)]
        assert sizes[0] == sizes[1] == {7.0}


def test_lines_of_the_style_differ_without_color():
    with matplotlib.style.context(STYLE):
        looks = list(matplotlib.rcParams["axes.prop_cycle"])
    assert len({str(look["linestyle"]) for look in looks}) == len(looks)
    # None is so pale that it is lost on white paper.
    for look in looks:
        red, green, blue = to_rgb(look["color"])
        assert 0.299 * red + 0.587 * green + 0.114 * blue < 0.75


def test_rounds_are_whole():
    figure = drawn()
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_xlabel() == "round" and all(tick == int(tick) for tick in axes.get_xticks())
