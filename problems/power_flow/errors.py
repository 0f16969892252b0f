"""The error of network data that cannot be used."""

from __future__ import annotations

from dpcvx.errors import ModelError


class CaseError(ModelError):
    """A network file or a partition of its buses is broken; loads are never shown."""
