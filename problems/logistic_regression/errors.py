"""The error of data sets and splits that cannot be used."""

from __future__ import annotations

from dpcvx.errors import ModelError


class DatasetError(ModelError):
    """A data set or a split of it is broken; features and labels are never shown."""
