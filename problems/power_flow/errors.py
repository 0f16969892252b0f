"""The error of network data that cannot be used, and the warning of what was not."""

from __future__ import annotations

from dpcvx.errors import ModelError


class CaseError(ModelError):
    """A network file or a partition of its buses is broken; loads are never shown."""


class CaseWarning(UserWarning):
    """A part of a network file is not read, or is taken otherwise than the file says."""
