"""The error of census records that cannot be used."""

from __future__ import annotations

from dpcvx.errors import ModelError


class CensusError(ModelError):
    """Records or shares of them are broken; values are never shown."""
