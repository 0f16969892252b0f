"""The privacy gate: private values reach what leaves an agent through this file alone.

A release charges the accounts, computes exact values, and adds noise, in this order; nothing else
comes back. Data may be read and checked before: data that cannot be used cost nothing. Charges and
values are in the ledger's file before the run uses the values. A gate stands between a run and one
agent, or a batch of agents that release at the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import DataError, PrivacyError, package_fault
from ..guard import guarded
from ..model.adjacency import Rows
from ..model.matrices import Data
from ..model.normal_form import NormalForm
from ..model.sealed import Sealed, people_of, raw_array, seal, unseal
from ..model.spec import PrivateSpec
from ..privacy.accounts import Account
from ..privacy.book import JointAccount
from ..privacy.entries import Entry
from ..privacy.ledger_lines import Writer
from ..privacy.mechanism import Calibrated
from ..privacy.noise import Grid
from ..privacy.randomness import Sources, uniform
from ..sensitivity.known import Facts, Known
from ..sensitivity.queries.query import Query

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Round and step of a release.
Place = tuple[int, int]
T = TypeVar("T")
# Why sparse data are refused.
_NEEDED = "what was asked for takes every entry by itself, not products. Pass the data"
_USED = (
    "the objective does more than multiply them with variables as they are. Write X @ w wherever "
    "they stand, such as X @ w + b in place of a column of ones; or pass the data"
)


@dataclass(frozen=True, eq=False)
class Release:
    """A value that was released."""

    agent: int  # position in the plan
    round: int  # from 1; 0 before the first round
    step: int  # from 1
    value: Array  # shape (n,)


@dataclass(frozen=True, eq=False)
class Charge:
    """Charge to some agents of a gate for one release, and the noise that hides the values."""

    rows: Index  # positions in the gate, ascending
    entry: Entry | None  # for the ledger; None if the values do not depend on private data
    grid: Grid | None  # grid and noise of the (scaled) values; None for exact values


@dataclass(frozen=True, eq=False)
class Perturbed:
    """The minimization of an objective with a linear term, behind the gate."""

    size: int  # entries of the linear term
    minimizer: Callable[[Array], Array]  # of a linear term of each agent, a row per agent
    # What checks compare between neighbors: the exact gradients at released points.
    gradient: Callable[[Array], Array]


class PrivacyGate:
    """The only way out for values computed from private data: charge, compute, add noise, keep.

    Arrays have a row per agent of the gate.

    Parameters
    ----------
    agents : sequence of int
        Positions of the agents in the plan.
    noise : Calibrated or None
        One for all; None switches the noise off.
    accounts : sequence of Account
        One per agent, equal but for their names.
    sources : Sources
        A source of random bits per agent.
    record : bool
        Keep the releases.
    past : iterable of Release
        Releases of an interrupted run, which are replayed at no charge.
    paid : sequence of collection of (round, step)
        Charged releases that the interrupted run did not make, by agent.
    journal : Writer or None
        Journal that charges and values are written to before they take effect. A run that was
        charged as a whole has none, because its values are never released.
    """

    def __init__(
        self,
        agents: Sequence[int],
        noise: Calibrated | None,
        accounts: Sequence[Account],
        sources: Sources,
        *,
        record: bool = False,
        past: Iterable[Release] = (),
        paid: Sequence[Collection[Place]] = (),
        journal: Writer | None = None,
    ) -> None:
        self.agents = tuple(agents)
        self.count = len(self.agents)
        self.everyone = np.arange(self.count)
        self.noise = noise
        self.releases: list[Release] = []
        self._names = [account.agent for account in accounts]
        self._book = JointAccount(accounts)
        self._sources = sources
        self._record = record
        self._past: dict[Place, dict[int, Array]] = {}
        rows = {agent: row for row, agent in enumerate(self.agents)}
        for release in past:
            if release.agent in rows:
                values = self._past.setdefault((release.round, release.step), {})
                values[rows[release.agent]] = release.value
        self._paid = paid if any(paid) else ()
        self._prepaid = noise is not None and noise.prepaid
        self._journal = None if self._prepaid else journal

    def release(
        self,
        round_step: Place,
        charges: Sequence[Charge],
        compute: Callable[[], Array] | Perturbed,
        scale: Array | None = None,
    ) -> Array:
        """Release ``compute()``, or the minimizer of an objective with a random linear term.

        Parameters
        ----------
        round_step : (int, int)
            Round and step.
        charges : sequence of Charge
            Every agent is in one of them.
        compute : callable or Perturbed
            Returns a row per agent. Called after the accounts were charged.
        scale : ndarray, shape (size,), optional
            Public weights of the components, which are divided out again.

        Returns
        -------
        ndarray, shape (agents, size)

        Raises
        ------
        BudgetError
            If an account does not cover its charge.
        """
        for charge in charges:
            if self.noise is not None and charge.grid is None and charge.entry is not None:
                raise package_fault("A value that was charged as noisy has no noise.")
        past = self._past.get(round_step)
        if past is None or len(past) < self.count:
            fresh = charges if past is None else [_without(charge, past) for charge in charges]
            self._charge(round_step, fresh)
            values = self.withheld(lambda: self._noised(round_step, fresh, compute, scale))
            if past is not None:
                values = values.copy()
                for row, value in past.items():
                    values[row] = value
            if self._journal is not None and self.noise is not None:
                self._write(self._journal, round_step, fresh, values)
        else:
            values = np.stack([past[row] for row in range(self.count)])
        if self._record:
            pairs = zip(self.agents, values, strict=True)
            self.releases += [Release(agent, *round_step, value.copy()) for agent, value in pairs]
        return values

    def withheld(self, compute: Callable[[], T], *, foreign: str = "") -> T:
        """Compute on the agents' data; see `withheld`."""
        whose: int | str = self.agents[0]
        if self.count > 1:
            others = f"{self.count - 1} others in one array with it"
            whose = f"'{self._names[0]}', or of {others},"
        return withheld(whose, compute, foreign=foreign)

    def accounts(self) -> list[Account]:
        """Return the account of every agent."""
        return self._book.accounts()

    def uniform(self, t: int, size: int) -> Array:
        """Return secret uniform variables of round t, a row per agent.

        A release that is replayed had the same.
        """
        return uniform(size, self._sources.at(t, 0))

    def made(self, round_step: Place) -> bool:
        """Return whether an interrupted run made the release of every agent."""
        return len(self._past.get(round_step, ())) == self.count

    def _noised(
        self,
        round_step: Place,
        charges: Sequence[Charge],
        compute: Callable[[], Array] | Perturbed,
        scale: Array | None,
    ) -> Array:
        if isinstance(compute, Perturbed):
            return self._minimized(round_step, charges, compute)
        values, noisy = compute(), list[tuple[Index, Grid]]()
        for charge in charges:
            if charge.grid is not None and charge.rows.size:
                noisy.append((charge.rows, charge.grid))
        if self.noise is None or not noisy:  # no noise, which accounts record; or nothing moves it
            return values
        values = values if scale is None else scale * values
        streams = self._sources.at(*round_step)
        if noisy[0][0].size == self.count:  # one grid for all
            values = self.noise.release_rows(values, noisy[0][1], streams)
        else:
            values = values.copy()  # it may be a view, or what the oracle keeps
            for rows, grid in noisy:
                values[rows] = self.noise.release_rows(values[rows], grid, streams.among(rows))
        return values if scale is None else values / scale

    def _minimized(
        self, round_step: Place, charges: Sequence[Charge], perturbed: Perturbed
    ) -> Array:
        """Return the minimizers, with noise that covers their inexactness."""
        noise, streams = self.noise, self._sources.at(*round_step)
        (charge,) = charges
        if noise is None or charge.grid is None:
            return perturbed.minimizer(np.zeros((self.count, perturbed.size)))
        if noise.linear is None:
            raise package_fault("A minimizer that was charged as noisy has no linear term.")
        values = perturbed.minimizer(noise.linear.drawn(streams))
        return noise.release_rows(values, charge.grid, streams)

    def _charge(self, round_step: Place, charges: Sequence[Charge]) -> None:
        if self._prepaid:  # the whole run was charged before this gate was made
            return
        due: list[tuple[Index, Entry]] = []
        for charge in charges:
            rows = charge.rows
            if self._paid:
                rows = rows[[round_step not in self._paid[row] for row in rows.tolist()]]
            if charge.entry is not None and rows.size:
                due.append((rows, charge.entry))
        if due:
            self._book.charge(due, None if self.noise is None else self.noise.at(*round_step))
        if self._journal is not None:
            for rows, entry in due:
                self._journal.charge(self._named(rows), entry)

    def _write(
        self, journal: Writer, round_step: Place, charges: Sequence[Charge], values: Array
    ) -> None:
        """Write noisy values to the ledger's file."""
        for charge in charges:
            if charge.grid is not None and charge.rows.size:
                journal.release(self._named(charge.rows), round_step, values[charge.rows])

    def _named(self, rows: Index) -> list[str]:
        return [self._names[row] for row in rows.tolist()]


def _without(charge: Charge, past: Mapping[int, Array]) -> Charge:
    """Return the charge of agents whose releases are not replayed."""
    fresh = [row not in past for row in charge.rows.tolist()]
    return Charge(charge.rows[fresh], charge.entry, charge.grid)


def charge_for(
    facts: Facts,
    round_step: tuple[int, int],
    query: Query,
    size: int,
    noise: Calibrated | None,
    public_state: Known | None,
    bound: float,
) -> tuple[Grid | None, Entry | None]:
    """Return grid and ledger entry of an answer; None if it has no noise or is public.

    Parameters
    ----------
    facts : Facts
        Facts of the agent.
    round_step : (int, int)
        Round and step.
    query : Query
    size : int
        Size of the answer.
    noise : Calibrated or None
        Noise of this release.
    public_state : Known or None
        Facts that bounds follow from; None if nothing is certified.
    bound : float
        Largest move of the answer in one change of the data.

    Raises
    ------
    PrivacyError
        If the bound is positive but rounds to 0, or no grid fits.
    """
    if noise is None:
        exposed = Entry(*round_step, "none", 0.0, np.inf, 0.0, "none", query.released)
        return None, exposed if facts.form.private else None
    if noise.mechanism.single:
        raise PrivacyError(
            f"{noise.mechanism} noise hides one number, and one change moves several numbers in "
            f"the {query.released} of agent '{facts.name}'."
        )
    if noise.prepaid:
        # Answers stay hidden, so their grid need not depend on where they are.
        grid = noise.hidden_grid(size)
        return grid, entry_on(noise, round_step, grid, query.released)
    if public_state is None or bound == 0:
        if public_state is not None and query.matters(public_state):
            raise PrivacyError(
                f"The effect of one change on the {query.released} of agent '{facts.name}' is "
                "too small for a floating-point number, so no noise can be scaled to it. Scale "
                "the problem up, or take larger steps."
            )
        # In a sum, noise hides what others add.
        return None if noise.split is None else noise.grid(0.0, size), None
    claimed = query.claims(facts)
    certificate = "asserted" if claimed else public_state.sensitivity.certificate
    return entry_for(
        noise, round_step, bound, size, query.released, certificate, query.floor(public_state)
    )


def entry_for(
    calibrated: Calibrated,
    round_step: tuple[int, int],
    bound: float,
    size: int,
    released: str,
    certificate: Literal["derived", "asserted"] = "derived",
    floor: float = 0.0,
) -> tuple[Grid, Entry]:
    """Return grid and ledger entry of a release of `size` components with a sensitivity bound."""
    grid = calibrated.grid(bound, size, floor)
    return grid, entry_on(calibrated, round_step, grid, released, certificate)


def entry_on(
    calibrated: Calibrated,
    round_step: tuple[int, int],
    grid: Grid,
    released: str,
    certificate: Literal["derived", "asserted"] = "derived",
) -> Entry:
    """Return the ledger entry of a release on a grid."""
    split = calibrated.split
    return Entry(
        round=round_step[0],
        step=round_step[1],
        mechanism=str(calibrated.mechanism),
        multiplier=calibrated.multiplier,
        sensitivity=grid.sensitivity,
        grid=grid.width,
        certificate=certificate,
        released=released,
        stated=calibrated.stated,
        colluders=None if split is None else split.max_colluders,
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
    values = _unsealed(specs, sources)
    return [_entries(value, spec, _NEEDED) for value, spec in zip(values, specs, strict=True)]


def read_sparse_too(
    specs: Sequence[PrivateSpec], sources: Sequence[Callable[[], Any]]
) -> list[Data]:
    """Fetch and check private values, with sparse matrices as they are.

    Parameters
    ----------
    specs, sources : sequences

    Raises
    ------
    DataError
        If a source fails, or its values do not fit their declaration.
    """
    return _unsealed(specs, sources)


def require_fit(spec: PrivateSpec, source: Callable[[], Any]) -> None:
    """Fetch and check private values, and let go of them.

    Raises
    ------
    DataError
        If the source fails, or its values do not fit their declaration.
    """
    unseal(source, spec)


def read_for_gradients(form: NormalForm, sources: Sequence[Callable[[], Any]]) -> list[Data]:
    """Fetch and check private values, sparse if the objective only multiplies them with variables.

    Parameters
    ----------
    form : NormalForm
    sources : sequence of callables

    Raises
    ------
    DataError
        Raised as by `read`, or if the objective does more with a sparse matrix.
    """
    values = _unsealed(form.private, sources)
    return [
        value if k in form.factors else _entries(value, spec, _USED)
        for k, (value, spec) in enumerate(zip(values, form.private, strict=True))
    ]


def _unsealed(specs: Sequence[PrivateSpec], sources: Sequence[Callable[[], Any]]) -> list[Data]:
    """Return an agent's checked values; refuse parts of the same rows for different people.

    Raises
    ------
    DataError
        Raised as by `unseal`, or if identifiers with parts of the same rows differ.
    """
    held = [seal(source) for source in sources]
    values = [unseal(source, spec) for source, spec in zip(held, specs, strict=True)]
    first: dict[str, tuple[PrivateSpec, Sealed]] = {}
    for spec, source in zip(specs, held, strict=True):
        if not isinstance(spec.adjacency, Rows) or spec.adjacency.row_limit is None:
            continue
        other, its = first.setdefault(spec.adjacency.label, (spec, source))
        if not np.array_equal(_people(source), _people(its)):
            del values
            raise DataError(
                f"Private '{other.name}' and '{spec.name}' hold parts of the same rows, and their "
                "identifiers count them as those of different people. Pass the same people= in "
                "dp.ByPerson(values, people) for both, row by row."
            )
    return values


def _people(source: Sealed) -> Index:
    people = people_of(source)
    assert people is not None  # the values fit a declaration that needs them
    return people


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


def withheld(agent: int | str, compute: Callable[[], T], *, foreign: str = "") -> T:
    """Compute on private data without warnings and without messages that could quote them.

    Parameters
    ----------
    agent : int or str
    compute : callable
    foreign : str
        Name of the code of others that is called; empty if all of it is the package's.
    """

    def refusal(kind: str) -> PrivacyError:
        if foreign:
            return PrivacyError(
                f"{foreign} failed with {kind} on the private data of agent {agent}. Its message "
                "is withheld because it may quote the data. Call it by itself, with an object "
                "whose gradient(x) returns made-up numbers, to see it."
            )
        return PrivacyError(
            f"A computation on the private data of agent {agent} failed with {kind}. Its message "
            "is withheld because it may quote the data. Run it with made-up data to see it."
        )

    return guarded(compute, refusal, foreign=bool(foreign))
