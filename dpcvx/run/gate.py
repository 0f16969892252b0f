"""The gate: the only module that reads private values, and the only way out for what is computed.

The account is charged first, then the answer is computed, then noise is added; nothing else comes
back. Charge and value are in the ledger's file before the run uses the value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import DataError, PrivacyError, package_fault
from ..guard import guarded
from ..model.matrices import Data
from ..model.normal_form import NormalForm
from ..model.sealed import Sealed, raw_array, unseal
from ..model.spec import PrivateSpec
from ..privacy.accounts import Account
from ..privacy.entries import Entry
from ..privacy.joint_account import JointAccount
from ..privacy.mechanism import Calibrated
from ..privacy.noise import Grid
from ..privacy.notes import Writer
from ..privacy.randomness import Source, Sources, uniform
from ..sensitivity.known import Facts, Known
from ..sensitivity.queries.query import Query

Array = NDArray[np.float64]
Index = NDArray[np.intp]
T = TypeVar("T")
# Why sparse data are refused.
_NEEDED = "what was asked for takes every entry by itself, not products. Pass the data"
_USED = (
    "the objective does more than multiply them with variables as they are. Write X @ w wherever "
    "they stand, such as X @ w + b in place of a column of ones; or pass the data"
)


@dataclass(frozen=True, eq=False)
class Release:
    """A value that left an agent.

    Attributes
    ----------
    agent : int
    round, step : int
        Counted from 1.
    value : ndarray, shape (n,)
    """

    agent: int
    round: int
    step: int
    value: Array


class ReleaseGate:
    """The only way out for values computed from private data: charge, compute, add noise, keep.

    Parameters
    ----------
    agent : int
        Position of the agent.
    calibrated : Calibrated or None
        None switches the noise off.
    account : Account
    source : Source
        Of the noise.
    record : bool
        Keep the releases.
    past : iterable of Release
        What already left in an interrupted run: given out again, at no charge.
    paid : collection of (round, step)
        Releases that the interrupted run was charged for and did not make.
    journal : Writer or None
        Where charges and values are written before they take effect. A run that was charged as a
        whole has none: what it computes stays hidden, and is not kept.
    """

    def __init__(
        self,
        agent: int,
        calibrated: Calibrated | None,
        account: Account,
        source: Source,
        *,
        record: bool,
        past: Iterable[Release] = (),
        paid: Collection[tuple[int, int]] = (),
        journal: Writer | None = None,
    ) -> None:
        self.agent = agent
        self.calibrated = calibrated
        self.account = account
        self.releases: list[Release] = []
        self._source = source
        self._record = record
        self._past = {(r.round, r.step): r.value for r in past if r.agent == agent}
        self._paid = paid
        self._prepaid = calibrated is not None and calibrated.prepaid
        self._journal = None if self._prepaid else journal

    def __call__(
        self,
        place: tuple[int, int],
        what: Entry | None,
        compute: Callable[[], Array],
        grid: Grid | None,
        scale: Array | None = None,
    ) -> Array:
        """Release ``compute()``.

        Parameters
        ----------
        place : (int, int)
            Round and step.
        what : Entry or None
            For the ledger; None for values that do not depend on private data.
        compute : callable
            Called after the account was charged.
        grid : Grid or None
            Grid and noise of the (scaled) value. None releases the exact value: of a plan without
            noise, or of what does not depend on private data.
        scale : ndarray, shape (n,), optional
            Public; divided out again.
        """
        if what is not None and self.calibrated is not None and grid is None:
            raise package_fault("A value that was charged as noisy has no noise.")
        value = self._past.get(place)
        if value is None:
            if what is not None and place not in self._paid:
                self._charge(what)
            noise = None if grid is None else self.calibrated
            if noise is None or grid is None:
                value = withheld(self.agent, compute)
            else:
                value = withheld(
                    self.agent, lambda: self._noised(noise, place, compute, grid, scale)
                )
                if self._journal is not None:
                    self._journal.release([self.account.agent], place, value[np.newaxis])
        if self._record:
            self.releases.append(Release(self.agent, *place, value.copy()))
        return value

    def _noised(
        self,
        noise: Calibrated,
        place: tuple[int, int],
        compute: Callable[[], Array],
        grid: Grid,
        scale: Array | None,
    ) -> Array:
        value = compute() if scale is None else scale * compute()
        value = noise.release(value, grid, self._source.at(*place))
        return value if scale is None else value / scale

    def uniform(self, t: int, size: int) -> Array:
        """Secret uniform variables of round t; a release that is given out again has its own."""
        return uniform(size, self._source.at(t, 0))

    def made(self, place: tuple[int, int]) -> bool:
        """Whether the release was made before an interruption."""
        return place in self._past

    def _charge(self, entry: Entry) -> None:
        if self._prepaid:
            return
        if self.calibrated is None:
            self.account.expose(entry)
        elif self.calibrated.truncation is not None:
            self.account.charge_run(entry, self.calibrated.composed(1))
        else:
            self.account.charge(entry, self.calibrated.at(entry.round, entry.step))
        if self._journal is not None:
            self._journal.charge([self.account.agent], entry)


@dataclass(frozen=True, eq=False)
class Charge:
    """What some of several agents are charged for one release.

    Attributes
    ----------
    rows : ndarray of int
        Positions of the agents.
    entry : Entry
    grid : Grid
    """

    rows: Index
    entry: Entry
    grid: Grid


class FleetGate:
    """`ReleaseGate` for many agents at once: one call releases a row for each.

    Parameters
    ----------
    names : sequence of str
        Of the agents.
    calibrated : Calibrated
        One for all.
    account : JointAccount
    source : Sources
        Of the noise.
    journal : Writer or None
        Where charges and values are written before they take effect.
    """

    def __init__(
        self,
        names: Sequence[str],
        calibrated: Calibrated,
        account: JointAccount,
        source: Sources,
        journal: Writer | None = None,
    ) -> None:
        self.names: Sequence[str] = names
        self.calibrated = calibrated
        self.account = account
        self._whose = f"'{names[0]}', or of {len(names) - 1} others in one array with them,"
        self._source = source
        self._journal = journal

    def __call__(
        self,
        place: tuple[int, int],
        charges: Sequence[Charge],
        public: Array,
        compute: Callable[[], Array],
    ) -> Array:
        """Release ``compute()`` of the agents that are charged; of all others what is public.

        Parameters
        ----------
        place : (int, int)
            Round and step.
        charges : sequence of Charge
            Each agent is in one at most.
        public : ndarray, shape (agents, n)
            Rows of agents that are not charged: certified not to depend on their data.
        compute : callable
            Called after the ledger was written; a row per agent.
        """
        if not charges:
            return public
        noise = self.calibrated.at(*place)
        self._charge(charges, noise)
        left = self.withheld(lambda: self._noised(noise, place, charges, public, compute))
        if self._journal is not None:
            for charge in charges:
                self._journal.release(self._named(charge), place, left[charge.rows])
        return left

    def withheld(self, compute: Callable[[], T]) -> T:
        """See `withheld`."""
        return withheld(self._whose, compute)

    def uniform(self, t: int, size: int) -> Array:
        """Secret uniform variables of round t, a row per agent."""
        return uniform(size, self._source.at(t, 0))

    def _noised(
        self,
        noise: Calibrated,
        place: tuple[int, int],
        charges: Sequence[Charge],
        public: Array,
        compute: Callable[[], Array],
    ) -> Array:
        left, exact, streams = public.copy(), compute(), self._source.at(*place)
        for charge in charges:
            rows = charge.rows
            left[rows] = noise.release_rows(exact[rows], charge.grid, streams.among(rows))
        return left

    def _charge(self, charges: Sequence[Charge], noise: Calibrated) -> None:
        self.account.charge([(charge.rows, charge.entry) for charge in charges], noise)
        if self._journal is not None:
            for charge in charges:
                self._journal.charge(self._named(charge), charge.entry)

    def _named(self, charge: Charge) -> list[str]:
        return [self.names[int(k)] for k in charge.rows]


def charge_for(
    facts: Facts,
    place: tuple[int, int],
    query: Query,
    noise: Calibrated | None,
    known: Known | None,
    bound: float,
) -> tuple[Grid | None, Entry | None]:
    """Grid and ledger entry of an answer; None for what has no noise, and for what is public.

    Parameters
    ----------
    facts : Facts
        Of the agent.
    place : (int, int)
        Round and step.
    query : Query
    noise : Calibrated or None
        Of this release.
    known : Known or None
        What bounds follow from; None where nothing is certified.
    bound : float
        How far one change of the data moves the answer.

    Raises
    ------
    PrivacyError
        If a bound of 0 stands for one that is too small for a number, or no grid fits.
    """
    if noise is None:
        exposed = Entry(*place, "none", 0.0, np.inf, 0.0, "none", query.released)
        return None, exposed if facts.form.private else None
    size = query.size(facts.form.n)
    if noise.prepaid:
        # Answers stay hidden, so their grid need not depend on where they are.
        grid = noise.hidden_grid(size)
        return grid, entry_on(noise, place, grid, query.released)
    if known is None or bound == 0:
        if known is not None and query.matters(known):
            raise PrivacyError(
                f"What one change does to the {query.released} of agent '{facts.name}' is too "
                "small for a number, so no noise can be scaled to it. Scale the problem up, or "
                "take larger steps."
            )
        # In a sum, noise hides what others add.
        return None if noise.split is None else noise.grid(0.0, size), None
    claimed = query.claims(facts)
    certificate = "asserted" if claimed else known.sensitivity.certificate
    return entry_for(noise, place, bound, size, query.released, certificate, query.floor(known))


def entry_for(
    calibrated: Calibrated,
    place: tuple[int, int],
    bound: float,
    size: int,
    released: str,
    certificate: Literal["derived", "asserted"] = "derived",
    floor: float = 0.0,
) -> tuple[Grid, Entry]:
    """Grid and ledger entry of a release of `size` components with a sensitivity bound."""
    grid = calibrated.grid(bound, size, floor)
    return grid, entry_on(calibrated, place, grid, released, certificate)


def entry_on(
    calibrated: Calibrated,
    place: tuple[int, int],
    grid: Grid,
    released: str,
    certificate: Literal["derived", "asserted"] = "derived",
) -> Entry:
    """Ledger entry of a release on a grid."""
    split, cut = calibrated.split, calibrated.truncation
    return Entry(
        round=place[0],
        step=place[1],
        mechanism=str(calibrated.mechanism),
        multiplier=calibrated.multiplier,
        sensitivity=grid.sensitivity,
        grid=grid.width,
        certificate=certificate,
        released=released,
        stated=None if cut is None else (cut.epsilon, cut.delta),
        colluders=None if split is None else split.colluders,
        alone=None if split is None else split.alone(calibrated.multiplier),
    )


def read(specs: Sequence[PrivateSpec], sources: Sequence[Callable[[], Any]]) -> list[Array]:
    """Fetch and check private values, entry by entry.

    Parameters
    ----------
    specs : sequence of PrivateSpec
    sources : sequence of callables
        One per private parameter.

    Returns
    -------
    list of ndarray
        Flat, column by column.

    Raises
    ------
    DataError
        If a source fails, or its values do not fit their declaration, or are sparse.
    """
    return [
        _entries(unseal(source, spec), spec, _NEEDED)
        for spec, source in zip(specs, sources, strict=True)
    ]


def read_sparse_too(
    specs: Sequence[PrivateSpec], sources: Sequence[Callable[[], Any]]
) -> list[Data]:
    """The same, with sparse matrices as they are.

    Parameters
    ----------
    specs, sources : sequences

    Raises
    ------
    DataError
        If a source fails, or its values do not fit their declaration.
    """
    return [unseal(source, spec) for spec, source in zip(specs, sources, strict=True)]


def require_fit(spec: PrivateSpec, source: Callable[[], Any]) -> None:
    """Fetch and check private values, and let go of them.

    Raises
    ------
    DataError
        If the source fails, or its values do not fit their declaration.
    """
    unseal(source, spec)


def read_for_gradients(form: NormalForm, sources: Sequence[Callable[[], Any]]) -> list[Data]:
    """The same, with sparse matrices where an objective only multiplies them with variables.

    Parameters
    ----------
    form : NormalForm
    sources : sequence of callables

    Raises
    ------
    DataError
        As `read` does; if the objective does more with a sparse matrix.
    """
    return [
        unseal(source, spec) if k in form.factors else _entries(unseal(source, spec), spec, _USED)
        for k, (spec, source) in enumerate(zip(form.private, sources, strict=True))
    ]


def _entries(data: Data, spec: PrivateSpec, why: str) -> Array:
    if sp.issparse(data):
        del data
        raise DataError(
            f"The data of private '{spec.name}' are a sparse matrix, and {why} as an array: "
            "matrix.toarray()."
        )
    return data


def read_as_they_are(spec: PrivateSpec, source: Sealed) -> Data:
    """Fetch private values whose rows may be longer than declared.

    Raises
    ------
    DataError
        If they are no real numbers of that shape.
    """
    values = raw_array(source, spec.name)
    if values is None or values.shape != spec.shape:
        raise DataError(
            f"The data of private '{spec.name}' must be an array of real numbers of its shape "
            f"{spec.shape}, as declared. Pass such an array, or a function that returns one."
        )
    return values


def withheld(agent: int | str, compute: Callable[[], T], *, foreign: bool = False) -> T:
    """Compute on private data without warnings and without messages that could quote them."""

    def refusal(kind: str) -> PrivacyError:
        return PrivacyError(
            f"A computation on the private data of agent {agent} failed with {kind}. Its message "
            "is withheld because it may quote the data. Run it with made-up data to see it."
        )

    return guarded(compute, refusal, foreign=foreign)
