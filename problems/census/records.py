"""Labeled census records: synthetic ones, and the shares of records that agents hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dpcvx._arguments import is_int

from ..labeled import Records as Labeled
from .columns import COLUMNS, NAMES, normalized
from .errors import CensusError


@dataclass(frozen=True, eq=False)
class Records(Labeled):
    """Records of people, labeled 1 for an income above the limit, with rows of l2 norm <= 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (np.linalg.norm(self.features, axis=1) <= 1 + 1e-9).all():
            raise CensusError(
                "Some rows of features are longer than 1, but the sensitivity relies on that "
                "bound. Use `columns.normalized`, or divide rows by a public bound."
            )


@dataclass(frozen=True, eq=False)
class Shares:
    """Records of the agents, and records that no agent holds.

    Attributes
    ----------
    parts : tuple of Records
        Records of each agent, all of one length.
    test : Records
        Records that no agent holds.
    """

    parts: tuple[Records, ...]
    test: Records


def made_records(count: int, *, seed: int = 0) -> Records:
    """Draw synthetic records with the columns of the Adult data.

    Numbers are skewed, categories fall off in frequency, most capital gains are zero, and about a
    quarter earn more than the limit, decided by age, education, hours, marriage, sex and gains.

    Parameters
    ----------
    count : int
        Number of records.
    seed : int
        Seed of the draw.

    Raises
    ------
    CensusError
        If `count` is not a positive whole number.
    """
    if not is_int(count, 1):
        raise CensusError(f"count={count!r} must be a whole number of at least 1.")
    rng = np.random.default_rng(seed)
    table = np.empty((count, len(COLUMNS)))
    for k, column in enumerate(COLUMNS):
        # Each category is two thirds as frequent as the one before it.
        odds = (2 / 3) ** np.arange(max(1, len(column.codes)))
        table[:, k] = rng.choice(odds.size, size=count, p=odds / odds.sum())
    own = {name: table[:, k] for k, name in enumerate(NAMES)}
    own["age"][:] = 17 + 73 * rng.beta(1.6, 3.0, count)
    own["fnlwgt"][:] = rng.lognormal(12.0, 0.5, count)
    own["education-num"][:] = 1 + rng.binomial(15, 0.6, count)
    own["education"][:] = own["education-num"] - 1
    own["sex"][:] = rng.random(count) < 0.67
    own["hours-per-week"][:] = 1 + 98 * rng.beta(8, 11, count)
    gains = rng.random(count)
    own["capital-gain"][:] = np.where(gains > 0.92, rng.lognormal(8.5, 1.0, count), 0)
    own["capital-loss"][:] = np.where(gains < 0.05, rng.normal(1870, 350, count), 0)
    score = (
        0.05 * (own["age"] - 38)
        + 0.45 * (own["education-num"] - 10)
        + 0.05 * (own["hours-per-week"] - 40)
        + 1.8 * (own["marital-status"] == 0)
        + 0.8 * own["sex"]
        + 2.5 * (own["capital-gain"] > 5000)
        - 3.0
    )
    labels = np.where(rng.random(count) < expit(score), 1.0, -1.0)
    return Records(normalized(table), labels)


def shared_out(records: Records, agents: int, each: int = 100, *, seed: int = 0) -> Shares:
    """Give every agent `each` records at random; no record goes to two agents.

    Raises
    ------
    CensusError
        If there are too few records to leave one for the test.
    """
    if not is_int(agents, 1) or not is_int(each, 1) or agents * each >= records.count:
        raise CensusError(
            f"{records.count} records are not enough for {agents!r} agents with {each!r} each and "
            "one to test: use more records, fewer agents, or smaller shares."
        )
    order = np.random.default_rng(seed).permutation(records.count)
    parts = tuple(records.take(order[k * each : (k + 1) * each]) for k in range(agents))
    return Shares(parts, records.take(order[agents * each :]))
