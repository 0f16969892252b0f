"""Exact answers from a public objective, for agents whose data were released once with noise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.normal_form import Evaluator
from ..model.quadratic import data_curvature
from ..model.record_rows import RecordCurvature
from ..privacy.accounts import Account
from ..sensitivity.queries.query import Facts, Objective, Query, finite_clipped
from ..sensitivity.release_once import Publication, Statistic
from ..sensitivity.stored_vectors import LinearCombination, StoredVectors
from .gate import Charge, PrivacyGate, Release, Unrounded, entry_for, read
from .oracle import AgentOracle, Surrogate

Array = NDArray[np.float64]


class PublicOracle(AgentOracle):
    """Oracle that answers exactly from a public objective, without noise.

    Parameters
    ----------
    facts : Facts
        Public properties of the agent.
    objective : Evaluator
        Public objective, evaluated at the released data.
    account : Account
        Privacy account of the agent.
    releases : list of Release
        Recorded releases.
    data : ndarray, shape (D,), optional
        Released data, if queries may use them.
    """

    def __init__(
        self,
        facts: Facts,
        objective: Evaluator,
        account: Account,
        releases: list[Release],
        data: Array | None = None,
    ) -> None:
        super().__init__(lambda: [account], releases)
        self._stored = StoredVectors(objective.gradient)
        projector = functools.cache(facts.projector)
        curvature = functools.partial(data_curvature, facts.form, objective)
        gradient, left = objective.gradient, np.zeros(0) if data is None else data.copy()
        self._objective = Objective(
            gradient,
            gradient,
            projector,
            self._stored,
            curvature,
            lambda: left,
            functools.partial(finite_clipped, objective),
            lambda x: RecordCurvature.none(x.size),
        )

    def release(self, query: Query) -> Array:
        """Return the exact answer to a query, from the public objective."""
        return query.finish(query.evaluate(self._objective), None)

    def store(self, name: str, combination: LinearCombination) -> None:
        """Store a linear combination of stored vectors and gradients, for queries that name it."""
        self._stored.store(name, combination)


def publish(
    facts: Facts,
    sources: Sequence[Callable[[], Any]],
    publication: Statistic | None,
    gate: PrivacyGate,
) -> PublicOracle:
    """Release an agent's data once, and return an oracle that answers from the released data.

    Parameters
    ----------
    facts : Facts
        Public properties of the agent.
    sources : sequence of callables
        One function per private object, which returns its values; called once, here.
    publication : Statistic or None
        Statistic that is released. If None, the gradient depends on no data, and none are read.
    gate : PrivacyGate
        Gate of this agent, with noise if there is a statistic.
    """
    form, (account,) = facts.form, gate.accounts()
    if publication is None:
        return PublicOracle(facts, form.at_zero(), account, gate.releases)
    assert gate.noise is not None
    when = (0, 1)
    # Data are read before the charge, so that unusable data cost nothing.
    compute = _statistic(gate, when, facts, sources, publication)
    # One noise serves one release, whatever its round. The certificate is derived: plans refuse
    # release="once" beside an asserted sensitivity.
    grid, entry = entry_for(
        gate.noise, when, publication.sensitivity, publication.size, publication.kind
    )
    (released,) = gate.release(when, [Charge(gate.everyone, entry, grid)], compute)
    return _answering(facts, publication, released, account, gate.releases)


def _statistic(
    gate: PrivacyGate,
    round_step: tuple[int, int],
    facts: Facts,
    sources: Sequence[Callable[[], Any]],
    publication: Statistic,
) -> Callable[[], Array | Unrounded]:
    """Return a function that computes the statistic; read its data unless already released."""
    data = [] if gate.made(round_step) else read(facts.form.private, sources)

    def compute() -> Array | Unrounded:
        if isinstance(publication, Publication):
            values, errors = publication.exact(data)
            return Unrounded(values[np.newaxis], errors[np.newaxis])
        return publication.statistic(data)[np.newaxis]

    return compute


def published(
    agent: int,
    facts: Facts,
    publication: Statistic | None,
    releases: Iterable[Release],
    account: Account,
) -> PublicOracle:
    """Return the oracle for data that `publish` released, from the recorded release."""
    form = facts.form
    if publication is None:
        return PublicOracle(facts, form.at_zero(), account, [])
    for release in releases:
        if (release.agent, release.round, release.step) == (agent, 0, 1):
            return _answering(facts, publication, release.value, account, [])
    raise PrivacyError(
        "The transcript has no release of the agent's data, so it was recorded under another plan. "
        "Replay it with the plan it came from."
    )


def _answering(
    facts: Facts,
    publication: Statistic,
    released: Array,
    account: Account,
    releases: list[Release],
) -> PublicOracle:
    """Return the oracle of an agent, from its released statistic."""
    restored, data = publication.restore(released), None
    if publication.kind in ("sums", "second moments"):
        data = released  # the statistic contains all that the model uses
    elif isinstance(publication, Publication) and publication.whole:
        data = publication.unlimited(released)
    oracle = PublicOracle(facts, facts.form.bind(restored), account, releases, data)
    if isinstance(publication, Publication):  # rows that stand for second moments take much memory
        oracle.surrogate = Surrogate(tuple(restored), publication.whole)
    return oracle
