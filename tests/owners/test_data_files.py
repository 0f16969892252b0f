"""Files of data: what is read, and where a fault is, without what is there."""

import os

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.errors import FileError
from dpcvx.model.adjacency import codes_of
from dpcvx.owners.data_files import read_csv, read_npy, read_people
from dpcvx.run.gate import require_fit

SECRET = "7312.5"
CASES = {
    "header": (b"age,bp\n1,2\n", "line 1, column 1: no row of numbers: a header"),
    "header of one column": (b"_age\n7312.5\n", "line 1, column 1: no row of numbers: a header"),
    "minus sign": ("\u22127312.5\n2\n".encode(), "line 1, column 1: no number.* without a unit"),
    "unit": (b"7312.5 kW\n2 kW\n", "line 1, column 1: no number.* without a unit"),
    "percent": (b"10%\n20%\n", "line 1, column 1: no number"),
    "dates": (b"2024-01-01\n2024-01-02\n", "line 1, column 1: no number"),
    "currency": ("\u20ac7312.5\n2\n".encode(), "line 1, column 1: no number"),
    "fraction": (b"1/2\n7312.5\n", "line 1, column 1: no number"),
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
    "old line ends": (b"1,2\r7312.5,4\r", "ends its lines by carriage returns alone"),
    "other digits": ("1,\u0662\n".encode(), "line 1, column 2: no number"),
    "wide digits": ("1,2\n3,\uff17\n".encode(), "line 2, column 2: no number"),
    "decimal commas": (
        b"1,5;7312,5\n",
        "Separate them by commas, and write decimal points",
    ),
    "NA": (b"1,2\n7312.5,NA\n", "line 2, column 2: a missing value. Fill in a number"),
    "dash": (b"1,2\n-,7312.5\n", "line 2, column 1: a missing value"),
    "workbook": (b"PK\x03\x047312.5", "is an Excel workbook or another zip archive, and its name"),
    "gzip": (b"\x1f\x8b\x08\x007312.5", r"is compressed \(gzip\), and its name ends in .csv"),
    "parquet": (b"PAR1\x15\x04\x15", "is a Parquet file"),
    "numpy": (b"\x93NUMPY\x01\x00v\x00", r"is an array of numpy \(\.npy\), and its name"),
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


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("age;bp", "line 1: names separated by a semicolon. Separate columns by commas"),
        ("age\tbp", "line 1: names separated by a tab"),
        ("Age,bp", "called 'age', but one differs from it in capital letters alone"),
        ("age,age", "no column is called 'bp'"),
        ("", "no column is called 'age'"),
    ],
)
def test_a_header_of_another_kind_is_named(tmp_path, header, said):
    path = tmp_path / "d.csv"
    path.write_text(f"{header}\n1,7312.5\n")
    with pytest.raises(FileError, match=said) as caught:
        read_csv(path, 2, ["age", "bp"])
    assert SECRET not in str(caught.value)


def test_accents_of_both_encodings_are_one_name(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("a\u0308,b\n1,2\n3,4\n", encoding="utf-8")  # as macOS writes it
    assert read_csv(path, 2, ["b", "\u00e4"]).tolist() == [[2, 1], [4, 3]]


def test_fields_of_an_array_come_by_their_names(tmp_path):
    path = tmp_path / "d.npy"
    np.save(path, np.array([(1.0, 2.0)], [("age", float), ("bp", float)]))
    assert read_npy(path, ["bp", "age"]).tolist() == [(2.0, 1.0)]
    with pytest.raises(FileError, match=r"'d\.npy' has other fields than columns ="):
        read_npy(path, ["age", "weight"])


def test_one_person_has_one_identifier(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("a\u0308\n\u00e4 \n \u00e4\r\nb\u2028c\n", encoding="utf-8")
    assert codes_of(read_people(path)).tolist() == [0, 0, 0, 3]
    path.write_text("a\n\nb")
    assert read_people(path) == ["a", "", "b"]


@pytest.mark.parametrize("read", [lambda path: read_csv(path, 1), read_people, read_npy])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="'pipe' cannot be read: it is a pipe"):
        read(tmp_path / "pipe")


def test_files_that_cannot_be_opened_are_named(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileError, match=r"The data file 'none\.csv' does not exist"):
        read_csv(tmp_path / "none.csv", 2)
    for read in (read_people, lambda path: read_csv(path, 2)):
        with pytest.raises(FileError, match=r"'folder\.csv' cannot be read: is a directory"):
            read(tmp_path / "folder.csv")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("1,2\n")
    (tmp_path / "empty.npy").touch()
    with open(tmp_path / "several.npy", "wb") as file:
        np.savez(file, a=np.ones(2))
    for name in ("objects", "text", "empty", "several"):
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
