"""Divisions of records among agents, as functions of a public seed and of the labels or writers.

Divisions by label or writer simulate agents that differ. An agent's number of records is public,
like all shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpcvx._arguments import is_int, positive_finite

from .dataset import Dataset
from .errors import DatasetError

Ints = NDArray[np.int64]
Kind = Literal["iid", "dirichlet", "imbalanced", "writer"]


@dataclass(frozen=True)
class Partition:
    """A way to divide records among agents.

    Parameters
    ----------
    kind : {"iid", "dirichlet", "imbalanced", "writer"}
        ``iid``: at random, equal numbers. ``dirichlet``: the records of each class in proportions
        from a symmetric Dirichlet distribution, so that agents see different labels.
        ``imbalanced``: equal numbers at random after all classes but the first were thinned out,
        the last one to `share`. ``writer``: every writer is an agent, or, with fewer agents than
        writers, writers are dealt to agents in turn.
    agents : int, optional
        Number of agents; with ``writer``, all writers if omitted.
    concentration : float
        Parameter of the Dirichlet distribution; small values give an agent few classes.
    share : float
        Share of the last class's records that remain if ``imbalanced``; class k of K keeps
        ``share ** (k / (K - 1))``.
    seed : int
        Public seed of the division.

    Raises
    ------
    DatasetError
        If an argument has another type or value.
    """

    kind: Kind = "iid"
    agents: int | None = 10
    concentration: float = 0.3
    share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise DatasetError(
                f"Partition(kind={self.kind!r}) is unknown; write one of {get_args(Kind)}."
            )
        needed = self.kind != "writer" or self.agents is not None
        if (needed and not is_int(self.agents, 1)) or not is_int(self.seed, 0):
            raise DatasetError(
                f"Partition(agents={self.agents!r}, seed={self.seed!r}) takes a number of agents "
                "of at least 1 and a nonnegative seed; only kind='writer' finds the agents itself."
            )
        if not positive_finite(self.concentration) or not 0 < self.share <= 1:
            raise DatasetError(
                f"Partition(concentration={self.concentration!r}, share={self.share!r}) takes a "
                "positive concentration and a share above 0 and up to 1."
            )

    def of(self, dataset: Dataset) -> tuple[Ints, ...]:
        """Return sorted indices of every agent's training records; each agent has at least one.

        Raises
        ------
        DatasetError
            If there are more agents than records, or no writers are known.
        """
        labels, writer = dataset.train.labels, dataset.train.writer
        rng = np.random.default_rng(self.seed)
        if self.kind == "writer":
            if writer is None:
                raise DatasetError(
                    f"'{dataset.name}' does not say who wrote its records, so they cannot be "
                    "divided by writer. Write Partition('iid') or Partition('dirichlet')."
                )
            parts = _by_writer(writer, self.agents)
        else:
            assert self.agents is not None
            if self.kind == "dirichlet":
                parts = _dirichlet(labels, self.agents, self.concentration, rng)
            elif self.kind == "imbalanced":
                kept = _thinned(labels, dataset.classes, self.share, rng)
                parts = np.array_split(rng.permutation(kept), self.agents)
            else:
                parts = np.array_split(rng.permutation(labels.size), self.agents)
        return _without_empty(parts)

    def __str__(self) -> str:
        extra = {
            "dirichlet": f" ({self.concentration:g})",
            "imbalanced": f" (down to {self.share:g})",
        }.get(self.kind, "")
        return f"{self.kind}{extra}"


def _by_writer(writer: Ints, agents: int | None) -> list[Ints]:
    known, number = np.unique(writer, return_inverse=True)
    count = known.size if agents is None else agents
    return [np.flatnonzero(number % count == k) for k in range(count)]


def _dirichlet(
    labels: Ints, agents: int, concentration: float, rng: np.random.Generator
) -> list[Ints]:
    parts: list[list[Ints]] = [[] for _ in range(agents)]
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(agents, concentration))
        cuts = np.rint(np.cumsum(shares)[:-1] * own.size).astype(int)
        for part, piece in zip(parts, np.split(own, cuts), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


def _thinned(labels: Ints, classes: int, share: float, rng: np.random.Generator) -> Ints:
    kept = []
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        kept.append(own[: max(1, round(own.size * share ** (label / (classes - 1))))])
    return np.concatenate(kept)


def _without_empty(parts: Sequence[Ints]) -> tuple[Ints, ...]:
    """Give every agent without a record one from the largest part."""
    if sum(part.size for part in parts) < len(parts):
        raise DatasetError(
            f"{len(parts)} agents cannot have a record each: there are "
            f"{sum(part.size for part in parts)}. Use fewer agents."
        )
    filled = [np.sort(part).astype(np.int64) for part in parts]
    for k, part in enumerate(filled):
        if part.size == 0:
            largest = max(range(len(filled)), key=lambda j: filled[j].size)
            filled[k], filled[largest] = filled[largest][:1], filled[largest][1:]
    return tuple(filled)
