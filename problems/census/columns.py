"""The fourteen columns of the Adult data and their public ranges.

Values are scaled by the ranges in the documentation of the data, not by the largest values found:
the largest value among private records is private.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """One column of the Adult data.

    Attributes
    ----------
    name : str
        Name of the column in the documentation of the data.
    low, high : float
        Public range; numbers outside it are moved to its ends.
    codes : tuple of str
        The categories, numbered from 0; empty for numbers.
    """

    name: str
    low: float
    high: float
    codes: tuple[str, ...] = ()


def _categories(name: str, codes: str) -> Column:
    parts = tuple(codes.split())
    return Column(name, 0, len(parts) - 1, parts)


# Categories of education are ordered by level, all others as the documentation lists them.
COLUMNS = (
    Column("age", 17, 90),
    _categories(
        "workclass",
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay "
        "Never-worked",
    ),
    Column("fnlwgt", 0, 1_500_000),
    _categories(
        "education",
        "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc "
        "Assoc-acdm Bachelors Masters Prof-school Doctorate",
    ),
    Column("education-num", 1, 16),
    _categories(
        "marital-status",
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
        "Married-AF-spouse",
    ),
    _categories(
        "occupation",
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
        "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
        "Priv-house-serv Protective-serv Armed-Forces",
    ),
    _categories("relationship", "Wife Own-child Husband Not-in-family Other-relative Unmarried"),
    _categories("race", "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
    _categories("sex", "Female Male"),
    Column("capital-gain", 0, 99_999),
    Column("capital-loss", 0, 4_356),
    Column("hours-per-week", 1, 99),
    _categories(
        "native-country",
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) "
        "India Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica "
        "Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti "
        "Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
        "Trinadad&Tobago Peru Hong Holand-Netherlands",
    ),
)
NAMES = tuple(column.name for column in COLUMNS)


def normalized(table: Floats) -> Floats:
    """Scale columns to [0, 1] by their public ranges, then rows of l2 norm above 1 to norm 1.

    Parameters
    ----------
    table : ndarray, shape (records, 14)
        Numbers, and the numbers of categories.
    """
    low = np.array([column.low for column in COLUMNS])
    high = np.array([column.high for column in COLUMNS])
    scaled = (np.clip(table, low, high) - low) / (high - low)
    return scaled / np.maximum(1, np.linalg.norm(scaled, axis=1, keepdims=True))
