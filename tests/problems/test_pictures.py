"""Figures under their names, in a folder that need not exist."""

from matplotlib.figure import Figure

from problems import pictures


def test_every_figure_is_written_where_the_list_says(tmp_path):
    folder = tmp_path / "new" / "folder"
    found = pictures.write({"one.png": Figure(), "two.png": Figure()}, folder)
    assert found == [folder / "one.png", folder / "two.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in found)


def test_what_is_announced_is_there(tmp_path, capsys):
    pictures.announce({"one.png": Figure()}, tmp_path)
    assert capsys.readouterr().out == f"wrote {tmp_path / 'one.png'}\n"
    assert (tmp_path / "one.png").is_file()
