"""Files that users name are read, or refused in words."""

import os

import pytest

from dpcvx.errors import ModelError
from problems.files import check_folder, content, text
from problems.power_flow.errors import CaseError


def test_text_in_any_form(tmp_path):
    path = tmp_path / "file"
    path.write_bytes("\ufeffä\r\nb\rc\n".encode())
    assert text(path, "file", CaseError, "Try again.") == "ä\nb\nc\n"
    path.write_bytes(b"\xff")
    with pytest.raises(CaseError, match="^file: it cannot be read as text in UTF-8. Try again.$"):
        text(path, "file", CaseError, "Try again.")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "no such file"),
        ("", "it is a folder"),
        ("/dev/zero", "a device or a pipe"),
        ("pipe", "a device or a pipe"),
        ("a\0b", "zero byte"),
        ("a" * 300, "too long"),
        ("file/below", "directory"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path, name, message):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    with pytest.raises(CaseError, match=message) as caught:
        content(tmp_path / name, "here", CaseError, "Try again.")
    assert str(caught.value).startswith("here: ") and str(caught.value).endswith(" Try again.")
    assert str(tmp_path) not in str(caught.value)


def test_folders_for_results(tmp_path):
    check_folder(tmp_path / "new" / "one", "--plot")
    assert list((tmp_path / "new" / "one").iterdir()) == []
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "in", tmp_path / "a\0b", "/proc/none"):
        with pytest.raises(ModelError, match=r"^--plot '.*' is no folder that files can be"):
            check_folder(tmp_path / folder, "--plot")
