"""The records: made ones, the file format, and the shares of agents."""

import numpy as np
import pytest

from problems.census.adult import read_adult
from problems.census.columns import COLUMNS, NAMES, normalized
from problems.census.errors import CensusError
from problems.census.records import Records, made_records, shared_out

# Numbers and categories in the order of the file.
FIRST = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, 40, United-States, <=50K"
)
SECOND = (
    "95, Private, 234721, 11th, 7, Married-civ-spouse, Handlers-cleaners, Husband, Black, Female, "
    "0, 0, 40, Cuba, >50K."
)
MISSING = FIRST.replace("State-gov", "?")


@pytest.fixture
def file(tmp_path):
    def write(*lines):
        path = tmp_path / "adult.data"
        path.write_text("\n".join(lines))
        return path

    return write


def test_made_records_have_fourteen_columns_and_short_rows():
    records = made_records(3000, seed=4)
    assert (records.count, records.size) == (3000, len(COLUMNS)) == (3000, 14)
    norms = np.linalg.norm(records.features, axis=1)
    assert norms.max() <= 1 + 1e-12 and records.features.min() >= 0
    assert 0.2 < (records.labels > 0).mean() < 0.35
    # Mixed columns: most gains are zero, hardly any ages are.
    zeros = (records.features == 0).mean(axis=0)
    assert zeros[NAMES.index("capital-gain")] > 0.8 and zeros[NAMES.index("age")] < 0.01
    np.testing.assert_array_equal(records.features, made_records(3000, seed=4).features)
    assert not np.array_equal(records.features, made_records(3000, seed=5).features)


def test_columns_are_scaled_first_and_rows_second():
    low = np.array([[column.low for column in COLUMNS]], float)
    high = np.array([[column.high for column in COLUMNS]])
    np.testing.assert_array_equal(normalized(low), 0)
    np.testing.assert_allclose(normalized(high), 1 / np.sqrt(14))
    # A row that is short stays as it is, and what leaves the public range is moved to its end.
    own = low.copy()
    own[0, 0] = (low[0, 0] + high[0, 0]) / 2
    own[0, 2] = -1e9
    np.testing.assert_allclose(normalized(own), [[0.5] + [0] * 13])


def test_a_file_of_the_same_format_is_read(file):
    records = read_adult(file("|1x3 Cross validator", FIRST, "", MISSING, SECOND))
    np.testing.assert_array_equal(records.labels, [-1, 1])
    table = np.array(
        [
            [39, 5, 77516, 12, 13, 2, 8, 3, 0, 1, 2174, 0, 40, 0],
            [90, 0, 234721, 6, 7, 0, 6, 2, 4, 0, 0, 0, 40, 12],
        ],
        float,
    )
    np.testing.assert_allclose(records.features, normalized(table))


@pytest.mark.parametrize("separator", [".", "-", "_", " "])
def test_a_file_with_a_header_quotes_and_empty_values_is_read(file, separator):
    header = ",".join(f'"{name.replace("-", separator)}"' for name in (*NAMES, "income"))
    quoted = ",".join(f'"{word.strip()}"' for word in FIRST.split(","))
    records = read_adult(file(header, quoted, MISSING.replace("?", ""), SECOND))
    plain = read_adult(file(FIRST, SECOND))
    np.testing.assert_array_equal(records.features, plain.features)
    np.testing.assert_array_equal(records.labels, plain.labels)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((FIRST, FIRST[:-7]), "Line 2 .* has 14 values"),
        ((FIRST.replace("White", "Secret"),), "Line 1 .* value of 'race'"),
        ((FIRST.replace("39", "nan"),), "value of 'age'"),
        ((FIRST.replace("39", "old"),), "value of 'age'"),
        ((FIRST.replace("39", "3_9"),), "value of 'age'"),
        ((FIRST.replace("39", "\u0663"),), "value of 'age'"),
        ((FIRST.replace("39", "1e300"),), "value of 'age'"),
        ((FIRST.replace("<=50K", "50"),), "value of 'income'"),
        ((MISSING,), "no complete record"),
        (
            (",".join(NAMES[::-1]) + ",income", FIRST),
            "Line 1 .* a header, .*'native-country' where .* 'age'",
        ),
        ((FIRST, ",".join(NAMES) + ",income"), "Line 2 .* value of 'income'"),
    ],
)
def test_broken_files_are_refused_and_no_value_is_shown(file, lines, message):
    with pytest.raises(CensusError, match=message) as caught:
        read_adult(file(*lines))
    assert "Secret" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CensusError, match="cannot be read"):
        read_adult(tmp_path / "nothing")
    with pytest.raises(CensusError, match="a folder"):
        read_adult(tmp_path)
    with pytest.raises(CensusError, match="zero byte"):
        read_adult("a\0b")


def test_no_record_goes_to_two_agents():
    records = made_records(50, seed=1)
    shares = shared_out(records, 4, 10, seed=2)
    assert [part.count for part in shares.parts] == [10] * 4 and shares.test.count == 10
    rows = np.concatenate([part.features for part in (*shares.parts, shares.test)])
    order = [np.lexsort(each.T) for each in (rows, records.features)]
    np.testing.assert_array_equal(rows[order[0]], records.features[order[1]])
    other = shared_out(records, 4, 10, seed=3)
    assert not np.array_equal(other.parts[0].features, shares.parts[0].features)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made_records(0), "count=0"),
        (lambda: shared_out(made_records(20), 2, 10), "not enough"),
        (lambda: shared_out(made_records(20), 0, 10), "not enough"),
        (lambda: Records(np.ones((2, 3)), np.ones(2)), "longer than 1"),
    ],
)
def test_broken_records_are_refused(make, message):
    with pytest.raises(CensusError, match=message):
        make()
