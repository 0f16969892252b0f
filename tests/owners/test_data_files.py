"""Files of data: what is read, and where a fault is, without what is there."""

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.errors import FileError
from dpcvx.owners.data_files import read_csv, read_npy, read_people
from dpcvx.run.gate import require_fit

SECRET = "7312.5"
CASES = {
    "header": (b"age,bp\n1,2\n", "line 1, column 1: no row of numbers: a header"),
    "mark": (b"\xef\xbb\xbf1,2\n", "starts with a byte-order mark"),
    "wide": ("1,2\n".encode("utf-16"), r"byte-order mark \(UTF-16"),
    "semicolons": (b"1;2\n3;4\n", "line 1, column 1: numbers separated by a semicolon"),
    "tabs": (b"1\t2\n", "separated by a tab"),
    "blanks": (b"1 2\n3 7312.5\n", "separated by a blank"),
    "decimal comma": (b"1;7312,5\n", "separated by a semicolon"),
    "quotes": (b'1,2\n3,"7312.5"\n', "line 2, column 2: quotes"),
    "missing": (b"1,2\n7312.5,\n", "line 2, column 2: a missing cell"),
    "first missing": (b"1,2\n,7312.5\n", "line 2, column 1: a missing cell"),
    "short": (b"1,2\n3,4\n7312.5\n", "line 3: the line has 1 number, but 2 are expected"),
    "long": (b"1,2\n3,4,7312.5\n", "line 2: the line has 3 numbers, but 2 are expected"),
    "text": (b"1,2\n3,Qz7312.5\n", "line 2, column 2: no number"),
    "nan": (b"1,2\nnan,7312.5\n", "line 2, column 1: no finite number"),
    "infinite": (b"1,2\r\n7312.5,inf\r\n", "line 2, column 2: no finite number"),
    "underscores": (b"1,7_312.5\n", "line 1, column 2: a number with underscores"),
    "bytes": (b"1,2\n3,\xff\n", "line 2: not text in UTF-8"),
    "zero": (b"1,2\n3,\0\n", "line 2: a zero byte"),
    "nothing": (b"", "is empty"),
    "blank lines": (b"\n \n", "is empty"),
    "comment": (b"# only\n", "holds no row"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_told_by_its_place_and_kind(tmp_path, case):
    raw, said = CASES[case]
    path = tmp_path / "d.csv"
    path.write_bytes(raw)
    with pytest.raises(FileError, match=said) as caught:
        read_csv(path, 2)
    assert "'d.csv'" in str(caught.value)
    assert SECRET not in str(caught.value) and "Qz" not in str(caught.value)


def test_numbers_of_other_programs_are_read(tmp_path):
    path = tmp_path / "d.csv"
    for text in ("1,2\n3,4\n", "1, 2\r\n3 ,4\r\n", "# a b\n1,2\n\n3,4", "+1,2.\n3e0,4 # last\n"):
        path.write_text(text)
        assert read_csv(path, 2).tolist() == [[1, 2], [3, 4]]


def test_columns_come_by_their_names(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text('bp,"chol, total",age\n2,3,1\n5,6,4\n')
    columns = ["age", "bp", "chol, total"]
    assert read_csv(path, 2, columns).tolist() == [[1, 2, 3], [4, 5, 6]]
    for other, said in (
        (["age", "bp", "weight"], "no column is called 'weight'"),
        (["age", "bp"], "the header has 3 names, but columns = in the policy has 2"),
    ):
        with pytest.raises(FileError, match=said):
            read_csv(path, 2, other)
    path.write_text("bp,age\n2,1\n5\n")
    with pytest.raises(FileError, match="line 3: the line has 1 number, but 2 are expected"):
        read_csv(path, 2, ["age", "bp"])
    path.write_text("2,1\n5,4\n")
    with pytest.raises(FileError, match="line 1: no column is called 'age'"):
        read_csv(path, 2, ["age", "bp"])


def test_files_that_cannot_be_opened_are_named(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileError, match=r"The data file 'none\.csv' does not exist"):
        read_csv(tmp_path / "none.csv", 2)
    for read in (read_people, read_csv):
        with pytest.raises(FileError, match=r"'folder\.csv' cannot be read: is a directory"):
            read(tmp_path / "folder.csv", 2)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("1,2\n")
    (tmp_path / "empty.npy").touch()
    for name in ("objects", "text", "empty"):
        with pytest.raises(FileError, match=f"'{name}.npy' holds no array"):
            read_npy(tmp_path / f"{name}.npy")
    with pytest.raises(FileError, match=r"'none\.npy' cannot be read: no such file"):
        read_npy(tmp_path / "none.npy")


def test_owners_read_the_place_and_others_a_code(tmp_path):
    (tmp_path / "owner.toml").write_text(
        'agent = "north"\nledger = "spent.jsonl"\n[budget]\nepsilon = 1.0\ndelta = 1e-6\n'
        '[data."load"]\nfile = "d.csv"\nshape = [2, 2]\nwithin = 0.01\n'
    )
    (tmp_path / "d.csv").write_text("1,2\n7312.5,\n")
    with pytest.raises(dp.DataError, match="'d.csv', line 2, column 2: a missing cell") as caught:
        dp.Owner(tmp_path / "owner.toml").check()
    assert SECRET not in str(caught.value)


def test_texts_of_functions_stay_withheld():
    def fetch():
        raise dp.DataError("7312.5 is in here")

    class Pretended(FileError):
        pass

    def pretend():
        raise Pretended("7312.5 is in here")

    for source in (fetch, pretend):
        private = dp.Private(source, shape=2, adjacency=dp.Within(1.0), name="d")
        with pytest.raises(dp.DataError, match="withheld") as caught:
            require_fit(private.spec, source)
        assert SECRET not in str(caught.value)
