"""Record and replay: two runs on neighboring data with equal releases, compared exactly.

The first run is an ordinary one. The second runs on the neighbor's data, but hands out the first
run's releases in place of its own. If the trust boundary holds, everything outside the agents is
then equal bit for bit. Inside, the exact values of each release differ by at most the sensitivity
that the ledger was charged for. This comparison involves no statistics, so two runs suffice.

The noise of the first run is compared with the scale that the ledger was charged for, over all
released numbers. For 60 (Gaussian) or 110 (Laplace) numbers, a wrong scale of one half is detected,
and a right scale is rejected less than once in a billion runs. The test is repeated for each entry
of the releases, so that an entry without noise is detected.

The runs use the gate, oracle and worker of ``plan.run()``. A batch of identical agents is also
checked one by one, since executors with several processes evaluate them in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from .._words import at_most, plural
from ..errors import DataError, PrivacyError
from ..guard import discreet
from ..model.adjacency import Codes, Rows
from ..model.declaration import matching
from ..model.matrices import Data, alike, changed_rows
from ..model.private import Private, seal_all
from ..model.sealed import Sealed, people_of, seal, with_people_of
from ..model.spec import PrivateSpec
from ..plan.terms import Terms, require_plan
from ..privacy.accounts import Account
from ..privacy.entries import Entry
from ..privacy.mechanism import Calibrated
from ..privacy.noise import Grid, Integers, Unrounded, on_grid
from ..privacy.randomness import Source, Sources, source_for, together
from ..run.data import DataSource, sources_of
from ..run.gate import Charge, Perturbed, Place, PrivacyGate, Release, read_for_gradients
from ..run.loop import drive_silently
from ..run.oracle import AgentOracle
from ..run.part import oracle_of, parts_of
from ..run.result import Result
from ..run.resume import batches, begin, one_by_one
from .worst_neighbor import gradient_gap, worst_neighbor

Array = NDArray[np.float64]
# Probability with which noise of the charged scale is called too small, per agent: for all numbers
# together, and again for the entries.
_BY_CHANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Observation:
    """Exact and released values of one release. Not private.

    Attributes
    ----------
    place : (int, int)
        Round and step.
    entry : Entry or None
        Charged ledger entry; None if nothing is charged.
    inside : ndarray
        Exact value that noise is added to, scaled as the entry states and rounded to the grid.
    outside : ndarray
        Released value, scaled like `inside`; in a replay, the value that the first run released.
    grid : Grid or None
        Grid to which values and noise are rounded, if any.
    released : ndarray
        Released value, not scaled.
    steps : ndarray of int or None
        `inside` in steps of the grid, exactly; None without a grid or for a minimizer's gradient.
    """

    place: tuple[int, int]
    entry: Entry | None
    inside: Array
    outside: Array
    grid: Grid | None
    released: Array
    steps: Integers | None = None

    def moved_from(self, other: Observation) -> Array:
        """Return the exact value minus the exact value of another observation."""
        if self.grid is not None and self.steps is not None and other.steps is not None:
            return np.asarray(self.grid.width * (self.steps - other.steps), dtype=float)
        return self.inside - other.inside


class ObservedGate(PrivacyGate):
    """Privacy gate that keeps the exact values. Not private: for tests on synthetic data.

    Parameters
    ----------
    agents, noise, accounts, sources
        See `PrivacyGate`.
    frozen : iterable of Release or None
        Releases to hand out in place of new ones; None to release the agents' values with noise.
    """

    def __init__(
        self,
        agents: Sequence[int],
        noise: Calibrated | None,
        accounts: Sequence[Account],
        sources: Sources,
        frozen: Iterable[Release] | None = None,
    ) -> None:
        super().__init__(agents, noise, accounts, sources, record=True)
        self._seen: list[list[Observation]] = [[] for _ in agents]
        # Released value of another run, at which a minimizer's gradient is compared.
        self.shown: Array | None = None
        self._frozen: dict[tuple[int, int, int], Array] | None = None
        if frozen is not None:
            self._frozen = {(r.agent, r.round, r.step): r.value for r in frozen}

    def release(
        self,
        round_step: tuple[int, int],
        charges: Sequence[Charge],
        compute: Callable[[], Array | Unrounded] | Perturbed,
        scale: Array | None = None,
    ) -> Array:
        """Release values as `PrivacyGate.release` does, and keep the exact values."""
        if isinstance(compute, Perturbed):
            return self._minimizer(round_step, charges, compute)
        computed, errors = compute(), None
        exact = computed.values if isinstance(computed, Unrounded) else computed
        if isinstance(computed, Unrounded):
            errors = computed.errors
        weights = 1.0 if scale is None else scale
        inside = weights * exact
        if self._frozen is None:
            out = super().release(round_step, charges, lambda: computed, scale)
        else:
            self._charge(round_step, charges)
            pairs = zip(self.agents, exact, strict=True)
            out = np.array(
                [self._frozen.get((agent, *round_step), value) for agent, value in pairs]
            )
        for charge in charges:
            grid = charge.grid
            for row in charge.rows.tolist():
                value, steps = inside[row], None
                if grid is not None:
                    steps = on_grid(value, grid, None if errors is None else errors[row])
                    value = np.asarray(grid.width * steps, dtype=float)
                seen = weights * out[row]
                self._seen[row].append(
                    Observation(round_step, charge.entry, value, seen, grid, out[row], steps)
                )
        return out

    def _minimizer(
        self, round_step: Place, charges: Sequence[Charge], perturbed: Perturbed
    ) -> Array:
        """Release a minimizer; see `PrivacyGate`.

        The check compares exact gradients at the released point. As the released value it keeps
        the gradient plus the drawn linear term, which together determine the minimizer.
        """
        drawn = np.zeros((self.count, perturbed.size))

        def minimizer(b: Array) -> Array:
            drawn[:] = b
            return perturbed.minimizer(b)

        if self._frozen is None:
            out = super().release(round_step, charges, replace(perturbed, minimizer=minimizer))
        else:
            self._charge(round_step, charges)
            left = [self._frozen.get((agent, *round_step)) for agent in self.agents]
            out = np.array([self.shown if value is None else value for value in left])
        inside = perturbed.gradient(out)
        for charge in charges:
            for row in charge.rows.tolist():
                entry, grid = _as_gradient(charge, self.noise)
                outside = inside[row] + drawn[row]
                seen = Observation(round_step, entry, inside[row], outside, grid, out[row])
                self._seen[row].append(seen)
        return out

    def observed(self) -> list[Observed]:
        """Return the observed releases of each agent, in the order of the agents."""
        pairs = zip(self._seen, self.accounts(), strict=True)
        return [Observed(seen, account, self.noise) for seen, account in pairs]


def _as_gradient(charge: Charge, noise: Calibrated | None) -> tuple[Entry | None, Grid | None]:
    """Return a charge's ledger entry and grid in units of gradients, for perturbed minimizers."""
    term = None if noise is None else noise.linear
    if term is None or charge.entry is None or charge.grid is None:
        return charge.entry, charge.grid
    level, multiplier = term.sensitivity, term.scale / term.sensitivity
    entry = replace(charge.entry, sensitivity=level, multiplier=multiplier)
    return entry, replace(charge.grid, sensitivity=level, scale=term.scale)


@dataclass(frozen=True, eq=False)
class Observed:
    """Observed releases of one agent in a run, with its account and calibrated noise."""

    seen: Sequence[Observation]
    account: Account
    calibrated: Calibrated | None


@dataclass(frozen=True)
class AgentCheck:
    """Findings of `check_sensitivity` for one agent.

    Attributes
    ----------
    agent : str
        Name of the agent.
    releases : int
        Number of releases compared.
    ratio : float
        Largest distance between neighbors over the charged sensitivity; at most 1 if the
        sensitivity holds, close to 1 if it is tight for these neighbors.
    moved : bool
        Whether any exact value differed between the neighbors. If not, nothing was tested.
    independent : bool
        Whether the plan states that the agent's gradient does not depend on its data.
    """

    agent: str
    releases: int
    ratio: float
    moved: bool = True
    independent: bool = False

    def __str__(self) -> str:
        if self.independent:
            return f"{self.agent}: its gradient does not depend on its data, nothing to compare"
        if not self.releases:
            return f"{self.agent}: it released nothing in this run, nothing to compare"
        compared = f"{self.agent}: {plural(self.releases, 'release')} compared"
        if not self.moved:
            return f"{compared}, VACUOUS: none differs between the neighbors"
        return f"{compared}, largest distance {at_most(self.ratio)} times the sensitivity"


@dataclass(frozen=True)
class SensitivityCheck:
    """Outcome of `check_sensitivity`, true if it passed. Not private: it uses both data sets.

    Attributes
    ----------
    agents : tuple of AgentCheck
        Findings for all agents with private data.
    faults : tuple of str
        Detected faults; empty if the check passed.
    """

    agents: tuple[AgentCheck, ...]
    faults: tuple[str, ...] = field(default=())

    @property
    def vacuous(self) -> tuple[str, ...]:
        """Names of agents whose releases did not differ, so that nothing was tested.

        Agents that released nothing are omitted, unless no agent released anything.
        """
        tested = [a for a in self.agents if a.releases and not a.independent]
        return tuple(a.agent for a in tested or self.agents if not a.moved)

    @property
    def status(self) -> Literal["passed", "failed", "vacuous"]:
        """Verdict: failed if there are faults, vacuous if an agent was not tested."""
        if self.faults:
            return "failed"
        return "vacuous" if self.vacuous or not self.agents else "passed"

    @property
    def passed(self) -> bool:
        """Return whether every agent was tested without a fault."""
        return self.status == "passed"

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        head = self.status if self.passed else self.status.upper()
        lines = [
            f"dpcvx check_sensitivity: {head}",
            "Not private: computed on both neighbors' data.",
            *(f"  {agent}" for agent in self.agents),
            *(f"  fault: {fault}" for fault in self.faults),
        ]
        if self.status == "vacuous":
            lines.append("  to test something, pass neighbors={...} that move what is released")
        return "\n".join(lines)


@discreet
def check_sensitivity(
    plan: Terms,
    neighbors: Mapping[Private | str, DataSource] | None = None,
    *,
    data: Mapping[Private | str, DataSource] | None = None,
    seed: int = 0,
) -> SensitivityCheck:
    """Compare a run with its replay on neighboring data, release by release. Not private.

    The check fails if the exact values of a release differ by more than the sensitivity that the
    ledger was charged for. The data of all agents change in the same replay, because data of
    different agents compose in parallel.

    Parameters
    ----------
    plan : Terms
    neighbors : mapping of Private or its name to array_like or callable, optional
        Neighboring data, with one changed object per agent. If you omit an agent, the check
        constructs neighboring data that change its gradient by nearly the sensitivity.
    data : mapping, optional
        Data, as in `Plan.run`.
    seed : int
        Noise seed of the first run.

    Returns
    -------
    SensitivityCheck

    Raises
    ------
    DataError
        If data and neighbors are not neighbors under the declared adjacency, or do not fit
        their declaration.
    """
    require_plan(plan, "dp.check_sensitivity")
    actual, other = neighboring_sources(plan, seal_all(neighbors, "neighbors"), seal_all(data))
    dealt, alone = dealt_as_run(plan), one_by_one(plan.agents)
    result = _checked(plan, actual, other, seed, dealt)
    if dealt == alone:
        return result
    apart = _checked(plan, actual, other, seed, alone).faults
    return replace(
        result, faults=(*result.faults, *(f"agents one by one: {fault}" for fault in apart))
    )


def dealt_as_run(plan: Terms) -> list[list[int]]:
    """Return the indices of agents by worker, as ``plan.run()`` assigns them."""
    return batches(plan, begin(parts_of(plan), None, seeded=True))


def observed_gates(
    plan: Terms,
    dealt: Sequence[Sequence[int]],
    accounts: Sequence[Account],
    source: Callable[[int], Source],
    frozen: Iterable[Release] | None = None,
) -> list[ObservedGate]:
    """Return an observed gate for each batch of agents.

    Parameters
    ----------
    plan : Terms
    dealt : sequence of sequence of int
        Indices of the agents of each batch.
    accounts : sequence of Account
        Accounts by agent.
    source : callable
        Function of an agent's index that returns the source of its noise.
    frozen : iterable of Release, optional
        See `ObservedGate`.
    """
    return [
        ObservedGate(
            agents,
            plan.agents[agents[0]].noise,
            [accounts[k] for k in agents],
            together([source(k) for k in agents]),
            frozen,
        )
        for agents in dealt
    ]


def oracles_behind(
    plan: Terms,
    gates: Sequence[PrivacyGate],
    sources: Sequence[Sequence[Callable[[], object]]],
) -> list[Callable[[], AgentOracle]]:
    """Return, for each gate, a function that makes its oracle; `sources` has the data by agent."""
    parts = parts_of(plan)
    return [
        oracle_of([parts[k] for k in gate.agents], [sources[k] for k in gate.agents], gate)
        for gate in gates
    ]


def _ran(
    plan: Terms,
    dealt: Sequence[Sequence[int]],
    sources: list[list[Sealed]],
    seed: int,
    frozen: list[Release] | None,
) -> tuple[Result, list[Observed]]:
    """Run a plan with observed gates, with seeded noise or with given releases (`frozen`)."""
    accounts = [begun.account for begun in begin(parts_of(plan), None, seeded=True).agents]
    gates = observed_gates(plan, dealt, accounts, lambda k: source_for(seed, (k,)), frozen)
    oracles = oracles_behind(plan, gates, sources)
    result = drive_silently(plan, dealt, oracles, plan.rounds, seed)
    return result, [agent for gate in gates for agent in gate.observed()]


def _checked(
    plan: Terms,
    data: list[list[Sealed]],
    neighbor: list[list[Sealed]],
    seed: int,
    dealt: Sequence[Sequence[int]],
) -> SensitivityCheck:
    first, live = _ran(plan, dealt, data, seed, None)
    releases = [
        Release(k, *agent_.place, agent_.released)
        for k, agent in enumerate(live)
        for agent_ in agent.seen
    ]
    second, frozen = _ran(plan, dealt, neighbor, seed, releases)
    faults = list(_outside(first, second))
    agents = []
    for k, (local, agent_, two) in enumerate(zip(plan.program.agents, live, frozen, strict=True)):
        if not local.form.private:
            continue
        independent = _independent(plan, k, data[k], neighbor[k], faults)
        agents.append(_compare(local.name, agent_, two, faults, independent))
    faults += _too_little_noise(dict(zip(plan.problem.names, live, strict=True)))
    return SensitivityCheck(tuple(agents), tuple(faults))


def _independent(
    plan: Terms,
    k: int,
    mine: list[Sealed],
    neighbor: list[Sealed],
    faults: list[str],
) -> bool:
    """Return whether the plan states that a gradient ignores the data; add a fault if false."""
    local, sensitivity = plan.program.agents[k], plan.agents[k].sensitivity
    if sensitivity is None or sensitivity.l2 > 0 or local.hands_over:
        return False
    first, second = (read_for_gradients(local.form, sources) for sources in (mine, neighbor))
    gap = gradient_gap(local.form, sensitivity, first, second, 2)
    if gap > 0:
        faults.append(
            f"the plan says that the gradient of agent '{local.name}' does not depend on its data, "
            f"but it moves by {gap:.6g} between the neighbors"
        )
    return True


def neighboring_sources(
    plan: Terms,
    neighbors: Mapping[Private | str, Sealed],
    data: Mapping[Private | str, Sealed],
) -> tuple[list[list[Sealed]], list[list[Sealed]]]:
    """Return, by agent, the functions that fetch its data and the functions for a neighbor's data.

    Raises
    ------
    DataError
        If the given data sets are not neighbors.
    """
    actual = sources_of(plan.problem, data)
    changed = matching(plan.problem, neighbors, "neighbors")
    given: dict[Private | str, Sealed] = {p: value for p, value in matching(plan.problem, data)}
    other = sources_of(plan.problem, {**given, **dict(changed)})
    for k, agent in enumerate(plan.problem.agents):
        form = plan.program.agents[k].form
        if any(p is q for p in agent.private for q, _ in changed):
            first, second = (read_for_gradients(form, sources[k]) for sources in (actual, other))
            whose, theirs = (list(map(people_of, sources[k])) for sources in (actual, other))
            _require_same_people(form.private, whose, theirs)
            _require_neighbors(form.private, first, second, whose)
        elif form.private:
            other[k] = _worst(plan, k, read_for_gradients(form, actual[k]), actual[k])
    return actual, other


def _worst(plan: Terms, k: int, data: list[Data], sealed: list[Sealed]) -> list[Sealed]:
    """Return functions that fetch a neighbor's data, chosen so that the sensitivity is tight."""
    sensitivity, noise = plan.agents[k].sensitivity, plan.agents[k].noise
    if sensitivity is None or noise is None:
        raise PrivacyError(
            "A plan without noise has no sensitivity, which the check needs to construct "
            "neighbors. Pass neighbors={...}."
        )
    form = plan.program.agents[k].form
    people = list(map(people_of, sealed))
    once = plan.agents[k].publication
    statistic = None if once is None else once.statistic
    worst = worst_neighbor(form, sensitivity, data, noise.mechanism.norm, people, statistic)
    return [
        seal(with_people_of(spec.shaped(d) if isinstance(d, np.ndarray) else d, source))
        for d, spec, source in zip(worst, sensitivity.private, sealed, strict=True)
    ]


def _too_little_noise(agents: Mapping[str, Observed]) -> Iterator[str]:
    """Yield a fault for each agent whose noise is too small, and for all agents together.

    Noise is tested over all released numbers, and for each entry of the releases, since only a few
    entries may lack noise.

    A sum of N squares of normal variables is twice a gamma variable of shape N / 2; a sum of N
    magnitudes of Laplace variables is a gamma variable of shape N.
    """
    noise = {f"agent '{name}'": _noise(agent) for name, agent in agents.items()}
    if len(noise) > 1:
        noise["all agents together"] = [item for of_agent in noise.values() for item in of_agent]
    for whose, drawn in noise.items():
        for norm, said in ((1, "mean magnitude"), (2, "root mean square")):
            powers = [abs(n) ** p for p, n in drawn if p == norm]
            tables = {
                size: np.array([n for n in powers if n.size == size]) for size in _sizes(powers)
            }
            groups = {"": np.concatenate([np.zeros(0), *powers])[:, np.newaxis]}
            groups |= {f" in entry {{}} of {size}": table for size, table in tables.items()}
            for where, table in groups.items():
                count, total = table.shape[0], table.sum(axis=0)
                chances = gammainc(count / norm, total / norm) * total.size if count else np.ones(1)
                k = int(np.argmin(chances))
                if chances[k] < _BY_CHANCE:
                    yield (
                        f"{whose}: the {said} of the noise in {count} numbers{where.format(k)} is "
                        f"{(total[k] / count) ** (1 / norm):.3g} times what the ledger was charged "
                        f"for, which happens by chance with probability {chances[k]:.1g}"
                    )
                    break


def _sizes(arrays: Sequence[Array]) -> list[int]:
    return sorted({array.size for array in arrays} - {0})


def _noise(agent: Observed) -> list[tuple[int, Array]]:
    """Return, by release, the mechanism's norm and the noise divided by its charged scale.

    The width of the grid is added to magnitudes, since rounding may have reduced them by as much;
    this matters for an epsilon of thousands. The result is empty for truncated noise, which is
    smaller, and for distributed noise.
    """
    noise = agent.calibrated
    if noise is None or noise.split is not None or noise.truncation is not None:
        return []
    drawn: list[Array] = []
    for seen in agent.seen:
        if seen.entry is not None:
            width = 0.0 if seen.grid is None else seen.grid.width
            away = (np.abs(seen.outside - seen.inside) + width) / seen.entry.sensitivity
            drawn.append(noise.mechanism.magnitudes(away, seen.entry.multiplier))
    if noise.linear is not None:  # its norm is distributed as a sum of n Laplace magnitudes
        n = noise.linear.size
        lengths = [float(np.linalg.norm(b, noise.linear.norm)) for b in drawn]
        drawn = [np.full(n, length / n) for length in lengths]
    return [(noise.mechanism.norm, b) for b in drawn]


_REACHED = "private data reach them, or what the method keeps outside its states"


def _outside(first: Result, second: Result) -> Iterable[str]:
    pairs = zip(
        (*first.last.vectors, *first.average.vectors),
        (*second.last.vectors, *second.average.vectors),
        strict=True,
    )
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in pairs):
        yield f"with the same releases, the agents' iterates differ: {_REACHED}"
    histories = (
        (h.primal, h.dual, h.penalty, h.inaccurate, h.failed)
        for h in (first.history, second.history)
    )
    a, b = histories
    if first.status is not second.status or not all(
        np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True)
    ):
        yield f"with the same releases, residuals or status differ: {_REACHED}"
    if first.ledger.to_json() != second.ledger.to_json():
        yield "the ledgers differ: what is charged depends on private data"


def _compare(
    name: str,
    first: Observed,
    second: Observed,
    faults: list[str],
    independent: bool,
) -> AgentCheck:
    largest, differs = 0.0, False
    if [s.place for s in first.seen] != [s.place for s in second.seen]:
        faults.append(f"agent '{name}' is asked at other places on the neighbor's data")
    # A prepaid run is charged once as a whole, and not by release.
    charged = sum(s.entry is not None for s in first.seen)
    prepaid = first.calibrated is not None and first.calibrated.prepaid
    if not prepaid and len(first.account.entries) != charged:
        faults.append(f"agent '{name}' has releases that are not in its ledger")
    for a, b in zip(first.seen, second.seen, strict=False):
        moved = a.moved_from(b)
        differs |= bool(np.any(moved != 0))
        if a.entry is None or first.calibrated is None:
            if np.any(moved != 0):
                faults.append(
                    f"agent '{name}', round {a.place[0]}, step {a.place[1]}: released without "
                    "noise, and different on the neighbor's data"
                )
            continue
        distance = float(np.linalg.norm(moved, first.calibrated.norm))
        largest = max(largest, distance / a.entry.sensitivity)
        if distance > a.entry.sensitivity:
            faults.append(
                f"agent '{name}', round {a.place[0]}, step {a.place[1]}: neighbors differ by "
                f"{distance:.6g}, the ledger was charged a sensitivity of "
                f"{a.entry.sensitivity:.6g}"
            )
    return AgentCheck(name, len(first.seen), largest, differs, independent)


def _require_same_people(
    specs: tuple[PrivateSpec, ...], people: list[Codes | None], other: list[Codes | None]
) -> None:
    for spec, first, second in zip(specs, people, other, strict=True):
        if first is not None and not np.array_equal(first, second):  # pyright: ignore[reportArgumentType]
            raise DataError(
                f"neighbors= for private '{spec.name}' assigns rows to other people than the "
                "data do, but one change never moves a row to another person. Pass "
                "dp.ByPerson(values, people) with the same people=."
            )


def _require_neighbors(
    specs: tuple[PrivateSpec, ...],
    data: list[Data],
    other: list[Data],
    people: list[Codes | None],
) -> None:
    moved = [s for s, a, b in zip(specs, data, other, strict=True) if not alike(a, b)]
    for spec, a, b in zip(specs, data, other, strict=True):
        if not spec.adjacency.allows(*_compared(spec, a, b)):
            raise DataError(
                f"neighbors= for private '{spec.name}' is further from the data than its "
                f"adjacency allows ({spec.adjacency}). Pass data that differ by one such change."
            )
    labels = {
        ("row", s.adjacency.label) if isinstance(s.adjacency, Rows) else ("object", s.name)
        for s in moved
    }
    rows = {
        int(i if whose is None else whose[i])
        for s, a, b, whose in zip(specs, data, other, people, strict=True)
        if isinstance(s.adjacency, Rows) and s.adjacency.max_rows_per_person != "all"
        for i in _rows_changed(s, a, b)
    }
    if len(labels) > 1 or len(rows) > 1:
        names = ", ".join(f"'{spec.name}'" for spec in moved)
        raise DataError(
            f"neighbors= changes {names} at once, but one change touches one private object or "
            "one record, or the rows of one person. Change one of them."
        )


def _rows_changed(spec: PrivateSpec, original: Data, neighbor: Data) -> NDArray[np.intp]:
    if isinstance(original, np.ndarray) and isinstance(neighbor, np.ndarray):
        return np.flatnonzero(original != neighbor) % spec.shape[0]
    return changed_rows(original, neighbor)


def _compared(spec: PrivateSpec, original: Data, neighbor: Data) -> tuple[Array, Array]:
    """Return both data as dense arrays; sparse matrices keep only rows that differ, or one row."""
    if isinstance(original, np.ndarray) and isinstance(neighbor, np.ndarray):
        return spec.shaped(original), spec.shaped(neighbor)
    moved = changed_rows(original, neighbor)
    rows = moved if moved.size else np.zeros(1, dtype=np.intp)
    first, second = (
        spec.shaped(d)[rows] if isinstance(d, np.ndarray) else d[rows].toarray()
        for d in (original, neighbor)
    )
    return first, second
