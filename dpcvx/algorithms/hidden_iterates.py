"""What a method adds to `Algorithm` to have a guarantee for its last iterate alone.

An observer of ``observer="last_iterate"`` learns the result and nothing else of a run. Such a plan
asks for two things: what the loss of the agents depends on, and results that follow from the last
iterate only.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

from ..privacy.last_iterate import LastIterate
from .base import A, Algorithm, Answer, S
from .program import Program


class HiddenIterates(Algorithm[S, A]):
    """A method whose steps do not expand differences, so that later noise covers earlier steps."""

    needs_last_iterate = False

    @abc.abstractmethod
    def amplification(
        self, program: Program, sensitivities: Sequence[float], clipped: bool, rounds: int
    ) -> LastIterate:
        """Constants of the guarantee against an observer who learns the last iterate only.

        Parameters
        ----------
        program : Program
        sensitivities : sequence of float
            Of the agents' gradients in l2.
        clipped : bool
            Whether gradients are clipped in a way that may leave those of convex functions.
        rounds : int

        Raises
        ------
        PrivacyError
            If no theorem covers the problem.
        """

    @abc.abstractmethod
    def conclude_hidden(self, server: S) -> list[Answer]:
        """The agents' results as functions of the last iterate alone."""
