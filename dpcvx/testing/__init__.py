"""Tests of privacy: sensitivities, audits of epsilon, reconstruction, a suite for methods."""

from .conformance import check_method

__all__ = ["check_method"]


def __dir__() -> list[str]:
    return __all__
