"""Error for invalid network data, and warning about data that are not used."""

from __future__ import annotations

from dpcvx.errors import ModelError


class CaseError(ModelError):
    """A network file or a partition of its buses is invalid; the message shows no loads."""


class CaseWarning(UserWarning):
    """A part of a network file is ignored or changed."""
