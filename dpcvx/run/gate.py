"""The privacy gate: values computed from private data leave an agent only through this module.

A release charges the accounts, computes exact values, and adds noise, in this order. Methods that
read return raw data within the agent, for the owner's recourse and checks. Data may be read and
checked before the charge, so unusable data cost nothing, and a refusal of data is not charged. The
ledger's file contains charges and values before the run uses the values. A gate belongs to one
agent, or to a batch of agents that release at the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._arguments import of_package
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
from ..privacy.noise import Grid, Unrounded
from ..privacy.randomness import Sources, uniform
from ..sensitivity.queries.query import Facts, Known, Query

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Round, and release within the round.
Place = tuple[int, int]
T = TypeVar("T")
# Endings of the error for sparse data: reasons why an array is needed.
_NEEDED = "what was asked for takes every entry by itself, not products. Pass the data"
_USED = (
    "the objective does more than multiply them with variables as they are. Write X @ w wherever "
    "they stand, such as X @ w + b in place of a column of ones; or pass the data"
)


@dataclass(frozen=True, eq=False)
class Release:
    """A released value of one agent, with its round and step."""

    agent: int  # index of the agent in the plan
    round: int  # from 1; 0 is before the first round
    step: int  # release within the round, from 1
    value: Array  # shape (n,)


@dataclass(frozen=True, eq=False)
class Charge:
    """Charge for one release of some of a gate's agents, with the noise of their values."""

    rows: Index  # indices of the agents in the gate, ascending
    entry: Entry | None  # ledger entry; None if the values do not depend on private data
    grid: Grid | None  # grid and noise of the scaled values; None for exact values


@dataclass(frozen=True, eq=False)
class Perturbed:
    """Minimization of an objective with a random linear term, computed inside the gate."""

    size: int  # number of entries of the linear term
    minimizer: Callable[[Array], Array]  # from linear terms to minimizers, a row per agent
    # Exact gradients at released points, which sensitivity checks compare between neighbors.
    gradient: Callable[[Array], Array]


class PrivacyGate:
    """Privacy gate: the only code that releases values computed from private data.

    For each release it charges the accounts, computes the values, adds noise, and records the
    result. Arrays have one row per agent of the gate.

    Parameters
    ----------
    agents : sequence of int
        Indices of the agents in the plan.
    noise : Calibrated or None
        Mechanism of all agents; None switches the noise off.
    accounts : sequence of Account
        One account per agent; the accounts are equal apart from names.
    sources : Sources
        Random bits, with a source for each agent.
    record : bool
        Whether to keep all releases, for a transcript.
    past : iterable of Release
        Releases of an interrupted run, which are replayed without a charge.
    paid : sequence of collection of (round, step)
        Releases that the interrupted run charged but did not make, for each agent.
    journal : Writer or None
        Journal that records charges and values before they take effect. It is unused if the run was
        charged as a whole, because its values are never released.
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
        compute: Callable[[], Array | Unrounded] | Perturbed,
        scale: Array | None = None,
    ) -> Array:
        """Release computed values with noise, or the minimizers of randomly perturbed objectives.

        Parameters
        ----------
        round_step : (int, int)
            Round, and release within it.
        charges : sequence of Charge
            Charges; every agent of the gate is in exactly one of them.
        compute : callable or Perturbed
            Function that returns a row per agent, called after the charge; or a minimization.
            Unrounded values have one charge and no `scale`.
        scale : ndarray, shape (size,), optional
            Public positive weights of the components; noise is added to the weighted values.

        Returns
        -------
        ndarray, shape (agents, size)

        Raises
        ------
        BudgetError
            If an account's budget does not cover its charge.
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
        """Run a computation on the agents' data without messages that could quote data."""
        whose = f"'{self._names[0]}'"
        if self.count > 1:
            whose = f"{whose}, or of {self.count - 1} others in one array with it,"
        return withheld(whose, compute, foreign=foreign)

    def accounts(self) -> list[Account]:
        """Return the privacy accounts of all agents of the gate."""
        return self._book.accounts()

    def uniform(self, t: int, size: int) -> Array:
        """Return secret uniform random numbers for round t, a row per agent.

        A resumed run with a seed draws equal numbers again. Without a seed it draws others, which
        changes nothing: they enter only releases of their round, and made releases are replayed.
        """
        return uniform(size, self._sources.at(t, 0))

    def made(self, round_step: Place) -> bool:
        """Return whether an interrupted run has already made every agent's release `round_step`."""
        return len(self._past.get(round_step, ())) == self.count

    def _noised(
        self,
        round_step: Place,
        charges: Sequence[Charge],
        compute: Callable[[], Array | Unrounded] | Perturbed,
        scale: Array | None,
    ) -> Array:
        if isinstance(compute, Perturbed):
            return self._minimized(round_step, charges, compute)
        computed, noisy = compute(), list[tuple[Index, Grid]]()
        values = computed.values if isinstance(computed, Unrounded) else computed
        for charge in charges:
            if charge.grid is not None and charge.rows.size:
                noisy.append((charge.rows, charge.grid))
        if self.noise is None or not noisy:  # no noise, or no private data in the values
            return values
        streams = self._sources.at(*round_step)
        if isinstance(computed, Unrounded):
            if scale is not None or noisy[0][0].size < self.count:
                raise package_fault("Unrounded values have several charges, or a scale.")
            return self.noise.release_rows(computed, noisy[0][1], streams)
        values = values if scale is None else scale * values
        if noisy[0][0].size == self.count:  # one grid for all agents
            values = self.noise.release_rows(values, noisy[0][1], streams)
        else:
            values = values.copy()  # `compute` may have returned a view, or an array that it stores
            for rows, grid in noisy:
                values[rows] = self.noise.release_rows(values[rows], grid, streams.among(rows))
        return values if scale is None else values / scale

    def _minimized(
        self, round_step: Place, charges: Sequence[Charge], perturbed: Perturbed
    ) -> Array:
        """Return perturbed minimizers plus noise that covers their numerical errors."""
        noise, streams = self.noise, self._sources.at(*round_step)
        (charge,) = charges
        if noise is None or charge.grid is None:
            return perturbed.minimizer(np.zeros((self.count, perturbed.size)))
        if noise.linear is None:
            raise package_fault("A minimizer that was charged as noisy has no linear term.")
        values = perturbed.minimizer(noise.linear.drawn(streams))
        return noise.release_rows(values, charge.grid, streams)

    def _charge(self, round_step: Place, charges: Sequence[Charge]) -> None:
        if self._prepaid:  # the run was charged as a whole earlier
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
        """Write released noisy values to the ledger's file."""
        for charge in charges:
            if charge.grid is not None and charge.rows.size:
                journal.release(self._named(charge.rows), round_step, values[charge.rows])

    def _named(self, rows: Index) -> list[str]:
        return [self._names[row] for row in rows.tolist()]


def _without(charge: Charge, past: Mapping[int, Array]) -> Charge:
    """Return a charge without the agents whose releases are replayed."""
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
    """Return the grid and the ledger entry of a query's answer.

    Parameters
    ----------
    facts : Facts
        Public properties of the agent.
    round_step : (int, int)
        Round, and release within it.
    query : Query
        Query to the agent.
    size : int
        Number of components of the answer.
    noise : Calibrated or None
        Mechanism for this release.
    public_state : Known or None
        Public quantities from which the query derives its bounds; None if nothing is certified.
    bound : float
        Sensitivity of the answer: its largest change between neighboring data.

    Raises
    ------
    PrivacyError
        If the answer depends on private data but its bound rounds to 0, or if no grid fits.
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
        # Answers are not released, so one grid serves all points.
        grid = noise.hidden_grid(size)
        return grid, entry_on(noise, round_step, grid, query.released)
    if public_state is None or bound == 0:
        if public_state is not None and query.matters(public_state):
            if not of_package(type(query)):
                raise PrivacyError(
                    f"{type(query).__name__}.bound returned 0 for agent '{facts.name}', but the "
                    "answer may depend on private data. Return a positive bound, or let "
                    "`matters` return False if the answer never depends on them. Without a "
                    "sensitivity, no noise can be scaled to the answer."
                )
            raise PrivacyError(
                f"The effect of one change on the {query.released} of agent '{facts.name}' is "
                "too small for a floating-point number, so no noise can be scaled to it. Scale "
                "the problem up, or take larger steps."
            )
        # In secure aggregation, the noise of public summands protects the other summands.
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
    """Return the grid and ledger entry of a release of `size` components, from its sensitivity."""
    grid = calibrated.grid(bound, size, floor)
    return grid, entry_on(calibrated, round_step, grid, released, certificate)


def entry_on(
    calibrated: Calibrated,
    round_step: tuple[int, int],
    grid: Grid,
    released: str,
    certificate: Literal["derived", "asserted"] = "derived",
) -> Entry:
    """Return the ledger entry of a release, from the grid of its noise."""
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
    """Read and check an agent's private values as dense arrays.

    Parameters
    ----------
    specs : sequence of PrivateSpec
        Declarations of the private objects.
    sources : sequence of callables
        One function per private object, which returns its values.

    Returns
    -------
    list of ndarray
        Values of each private object, flattened in column order.

    Raises
    ------
    DataError
        If a source fails, or if values contradict their declaration or are sparse.
    """
    values = _unsealed(specs, sources)
    return [_entries(value, spec, _NEEDED) for value, spec in zip(values, specs, strict=True)]


def read_sparse_too(
    specs: Sequence[PrivateSpec], sources: Sequence[Callable[[], Any]]
) -> list[Data]:
    """Read and check an agent's private values, which may be sparse matrices.

    Parameters
    ----------
    specs, sources : sequences
        Declarations of the private objects, and functions that return their values.

    Raises
    ------
    DataError
        If a source fails, or if values contradict their declaration.
    """
    return _unsealed(specs, sources)


def require_fit(spec: PrivateSpec, source: Callable[[], Any]) -> None:
    """Read and check the values of a private object without keeping them.

    Raises
    ------
    DataError
        If the source fails, or if its values contradict their declaration.
    """
    unseal(source, spec)


def read_for_gradients(form: NormalForm, sources: Sequence[Callable[[], Any]]) -> list[Data]:
    """Read and check private values; sparse ones may stay sparse if they only multiply variables.

    Parameters
    ----------
    form : NormalForm
        Objective of the agent.
    sources : sequence of callables
        One function per private object, which returns its values.

    Raises
    ------
    DataError
        As for `read`, or if the objective uses a sparse matrix in another way.
    """
    values = _unsealed(form.private, sources)
    return [
        value if k in form.factors else _entries(value, spec, _USED)
        for k, (value, spec) in enumerate(zip(values, form.private, strict=True))
    ]


def _unsealed(specs: Sequence[PrivateSpec], sources: Sequence[Callable[[], Any]]) -> list[Data]:
    """Read and check an agent's values; parts of the same rows must name the same people.

    Raises
    ------
    DataError
        If values contradict their declaration, or identifiers of people differ between parts of
        rows.
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
    assert people is not None  # checked when the values were read
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
    """Read private values whose rows may exceed the declared norm.

    Raises
    ------
    DataError
        If the values are not an array of real numbers of the declared shape.
    """
    values = raw_array(source, spec.name)
    if values is None or values.shape != spec.shape:
        raise DataError(
            f"The data of private '{spec.name}' must be an array of real numbers of its shape "
            f"{spec.shape}, as declared. Pass such an array, or a function that returns one."
        )
    return values


def withheld(agent: str, compute: Callable[[], T], *, foreign: str = "") -> T:
    """Run a computation on private data without warnings or messages that could quote data.

    Parameters
    ----------
    agent : str
        Name of the agent in quotes, for the error.
    compute : callable
        Computation without arguments.
    foreign : str
        Name of the called code if it is not part of the package; else empty.
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
