"""Tests of promises: sensitivities, audits, reconstruction, and one suite for all methods."""

from .conformance import check_method

__all__ = ["check_method"]


def __dir__() -> list[str]:
    return __all__
