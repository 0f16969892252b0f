"""The error of records, networks and models that cannot be used."""

from __future__ import annotations

from dpcvx.errors import ModelError


class ClassificationError(ModelError):
    """Records, a network or a model are broken; private values are never shown."""
