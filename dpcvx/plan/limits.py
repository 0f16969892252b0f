r"""Constraints with private data: eligible methods, margins, and texts of the guarantee.

The margins keep constraints with private data for every decision, except with a given probability.

The data are released once, as :math:`\tilde d = d + \xi`. Let a row hold for the released data with
a margin t. The true data break it only if the noise moves its slack by more than t.

If no data multiply variables, the move of a row by the noise does not depend on the decision. Then
t is a quantile of that move, and the decision may depend on the noise in any way. If data multiply
variables, decisions prefer entries whose noise was low, so the quantile for a fixed decision is
exceeded far more often. The row is then kept for all noise in a set that contains the noise, except
with a given probability. The total probability is divided over all rows, in shares that may depend
on anything public. Rows that depend on one noise vector share one set.

A constraint without such margins, of a geometric program or with functions of the data, holds at
the unsafe corner of a box around the data; see `dpcvx.model.constraints`. Its part of the
probability is divided over the entries and sides of the box that are used.

Truncated noise certainly lies in a box. Margins are then the largest moves of a row by noise in the
box, and no probability is divided. For cones with coefficients, the ball around the box is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from cvxpy.constraints.zero import Equality, Zero
from numpy.typing import NDArray

from .._arguments import Kind, check_argument, choice, finite, one_of, optional, positive_finite
from .._words import number, plural, together
from ..algorithms.program import Corner, Program
from ..errors import ModelError, PrivacyError
from ..model.agent import private_in
from ..model.declaration import Declaration
from ..model.defined import with_defined
from ..model.private_constraints import (
    NoiseBall,
    PrivateConstraint,
    Tightened,
    check_readable,
    equality,
    matrices,
)
from ..privacy.mechanism import Calibrated
from ..privacy.truncation import (
    eigenvalue_quantile,
    image_quantile,
    length_quantile,
    sum_quantile,
)
from ..sensitivity.release_once import Publication
from .agent_plan import Agents
from .request import Request

Array = NDArray[np.float64]
Index = NDArray[np.intp]


_VIOLATION = Kind(
    lambda value: finite(value) and 0 <= float(value) < 1,  # type: ignore[arg-type]
    "at least 0 and below 1: the probability with which the true data may break a constraint. "
    "Write for example violation_probability=0.01",
)
_FOR = choice("true", "released").because(
    "for which data constraints with private data hold: the true data, with "
    "violation_probability=, or the released data"
)
_PRICE = Kind(
    positive_finite,
    "a positive number: what a unit costs by which a private constraint is missed. Leave it out "
    "if none may be missed",
)
# Relative tolerance for sums of shares.
_SLACK = 1e-9
# Largest number of constraints that a banner lists one by one.
_LISTED = 8


def first_limit(problem: Declaration) -> str | None:
    """Return the text of the first constraint with private data; None if there is none."""
    for name, agent in problem.named.items():
        for position, _ in agent.limits:
            return f"Constraint {position} of agent '{name}'"
    return None


def _first_equality(problem: Declaration) -> tuple[str, str] | None:
    """Return the text of the first equality with private data, and the name of these; or None."""
    for name, agent in problem.named.items():
        for position, constraint in agent.limits:
            if isinstance(constraint, (Equality, Zero)):
                what = f"Constraint {position} of agent '{name}'"
                return what, private_in(constraint)[0].name()
    return None


def _refused(problem: Declaration, what: str, private: str, violation: object) -> PrivacyError:
    """Return the error for an equality with private data; shorter if it defines a variable."""
    smaller, names = with_defined(problem) if violation is None else (problem, ())
    if not names or _first_equality(smaller) is not None:
        return equality(what, private)
    defined = plural(len(names), "variable")
    return PrivacyError(
        f"{what} is an equality with private '{private}', and such equalities define {defined} "
        f"({', '.join(names)}). Write problem.plan(..., violation_probability=0.01): bounds of "
        "these variables then get margins, and their owner computes them by result.recourse(...). "
        "Or write constraints='released', so that the constraint holds for the released data only. "
        "A decision from noisy data cannot meet an equality exactly for the true data."
    )


def check_given(violation: object, price: object) -> None:
    """Refuse a violation probability or a slack penalty that is out of range."""
    check_argument("", "violation_probability", violation, optional(_VIOLATION))
    check_argument("", "slack_penalty", price, optional(_PRICE))


def check_violation(problem: Declaration, request: Request, noisy: bool) -> None:
    """Refuse unsupported constraints with private data, and arguments without such constraints.

    Parameters
    ----------
    problem : Declaration
        Problem with its constraints.
    request : Request
        Arguments of the plan.
    noisy : bool
        Whether releases have noise.

    Raises
    ------
    ModelError
        If the method does not support constraints with private data.
    PrivacyError
        If `violation_probability` is missing, does not apply, or is 0 without a positive delta.
    """
    violation, price, delta = request.violation_probability, request.slack_penalty, request.delta
    check_given(violation, price)
    what = first_limit(problem)
    if _check_released(request, what):
        return
    if what is None or not noisy:
        if violation is not None or price is not None:
            why = "no constraint contains private data" if what is None else "there is no noise"
            given = "violation_probability" if violation is not None else "slack_penalty"
            raise PrivacyError(
                f"{given}= applies to constraints with private data that are kept for noisy data, "
                f"but {why}. Leave out {given}=."
            )
    elif (equal := _first_equality(problem)) is not None:
        raise _refused(problem, *equal, violation)
    elif violation is None:
        raise PrivacyError(
            f"{what} contains private data, and a solution computed from noisy data can violate "
            "it. Write the largest probability of that: with problem.plan(..., "
            "violation_probability=0.01), all such constraints hold for the true data, except "
            "with probability 0.01. Or write constraints='released' to have them hold for the "
            "released data only."
        )
    elif request.release == "each_step":
        raise PrivacyError(
            f"{what} contains private data, but this plan does not release the data once. Write "
            "release='once', or leave out release=. dpcvx keeps such constraints only if the data "
            "are released once."
        )
    elif violation == 0 and (delta is None or (finite(delta) and delta == 0)):
        raise PrivacyError(
            "violation_probability=0 needs truncated noise, which has no guarantee at delta=0: "
            "with a small probability, a released value rules out one of two neighboring data "
            "sets. Write problem.plan(..., violation_probability=0, delta=1e-6), or a "
            "violation_probability= above 0."
        )
    if what is None:
        return
    algorithm = request.algorithm
    if algorithm is not None and not algorithm.requirements.limits:
        secret = algorithm.requirements.secret is not None
        drop = "Drop sharing=, whose sums hide the data that this needs: use" if secret else "Use"
        raise ModelError(
            f"{what} contains private data, and {algorithm.called}, with these options, supports "
            f"public constraints only. {drop} dp.OneShot(), which solves the problem for the "
            "released data, or leave out the method."
        )
    for name, agent in problem.named.items():
        for position, constraint in agent.limits:
            used = {p.id for p in constraint.parameters()}
            for private in agent.private:
                if private.id in used:
                    check_readable(private.spec, f"Constraint {position} of agent '{name}'")


def _check_released(request: Request, what: str | None) -> bool:
    """Return whether constraints with private data, such as `what`, hold for released data only."""
    check_argument("", "constraints", request.constraints, _FOR)
    if not one_of(request.constraints, "released"):
        return False
    if what is None:
        raise PrivacyError(
            "constraints='released' applies to constraints with private data, but the problem has "
            "none. Leave out constraints=."
        )
    if request.violation_probability is not None:
        raise PrivacyError(
            "constraints='released' cannot be combined with violation_probability=. Leave one of "
            "them out. With the first, constraints hold for the released data; with the second, "
            "for the true data."
        )
    method = request.algorithm
    if method is not None and not method.requirements.as_written:
        raise ModelError(
            "constraints='released' cannot be used with this method. Leave out the method, or "
            "write dp.OneShot(). A server has to solve the model for the released data."
        )
    return True


def with_margins(
    program: Program,
    agents: Agents,
    violation: float,
    price: float | None,
    shares: Sequence[Sequence[float]] | None = None,
) -> Program:
    """Return the program with margins for the noise in the agents' releases.

    Parameters
    ----------
    program : Program
        Program with the constraints to be kept.
    agents : tuple of AgentPlan
        Agents with their publications.
    violation : float
        Violation probability of all constraints together, from 0 to 1.
    price : float or None
        Penalty per unit of slack; None without slack.
    shares : sequence of sequence of float, optional
        Division of the probability over the parts of every constraint; equal if omitted.

    Raises
    ------
    PrivacyError
        If the shares are not positive, do not fit the constraints, or add up to more than 1.
    """
    if shares is not None:
        counts = [len(of_limit) for of_limit in shares]
        total = math.fsum(share for of_limit in shares for share in of_limit)
        fits = counts == [len(limit.constraint.parts) for limit in program.kept]
        positive = all(share > 0 for of_limit in shares for share in of_limit)
        if not (fits and positive and total <= 1 + _SLACK):
            raise PrivacyError(
                "violation_probability= is divided over constraints in shares that are not "
                f"positive, or add up to {total:.6g} instead of 1. Make the plan by "
                "problem.plan(...)."
            )
    spreads = spreads_of(program, agents)
    return replace(program, kept=tightened(program.kept, spreads, violation, price, shares))


def share_of_margins(program: Program) -> float:
    """Return the share of the violation probability that margins of cone programs get.

    The rest is for boxes around the data. All parts of constraints, and all used sides of entries,
    count alike.
    """
    parts = sum(len(limited.constraint.parts) for limited in program.kept)
    sides = sum(len(each) for used in _sides(program).values() for each in used)
    return parts / (parts + sides) if parts else 0.0


def with_boxes(program: Program, agents: Agents, violation: float) -> Program:
    """Return the program with boxes around the data of constraints that hold at corners.

    The boxes contain the data, except with probability `violation`.

    Parameters
    ----------
    program : Program
    agents : tuple of AgentPlan
        Agents with their publications.
    violation : float
        Probability that an entry of the data exceeds a used side of its box; 0 if all noise is
        truncated.
    """
    used = _sides(program)
    count = sum(len(each) for sides in used.values() for each in sides)
    reaches: dict[int, Array] = {}
    for k, spread in spreads_of(program, agents, used).items():
        entries = np.union1d(*used[k])
        reach, quantiles = np.zeros(spread.matrix.shape[0]), dict[bytes, float]()
        for entry in entries.tolist():
            row = np.sort(np.abs(spread.matrix[[entry]].data))
            key = row.tobytes()
            if key not in quantiles:
                free = sum_quantile(spread.norm, row, violation / count) if spread.norm else 0.0
                quantiles[key] = (free + spread.rounding * float(row.sum())) * (1 + 1e-9)
            reach[entry] = quantiles[key]
        reaches[k] = reach
    return replace(program, reaches=reaches)


def _sides(program: Program) -> dict[int, tuple[Index, Index]]:
    """Return the entries of each agent's data whose upper and whose lower side corners use."""
    used: dict[int, tuple[Index, Index]] = {}
    none = np.zeros(0, dtype=np.intp)
    for corner in program.corners:
        above, below = used.get(corner.agent, (none, none))
        limit = corner.constraint
        used[corner.agent] = np.union1d(above, limit.above), np.union1d(below, limit.below)
    return used


def spreads_of(
    program: Program, agents: Agents, holders: Iterable[int] | None = None
) -> dict[int, Spread]:
    """Return the noise in the released data of constraints, by the agent's index.

    `holders` are these indices; if omitted, those of the constraints with margins of cone programs.
    """
    spreads = {}
    given = [limit.agent for limit in program.kept] if holders is None else holders
    for k in dict.fromkeys(given):
        noise, released = agents[k].noise, agents[k].publication
        assert noise is not None and isinstance(released, Publication)
        spreads[k] = spread_of(released, noise)
    return spreads


def margin_rows(program: Program) -> list[str]:
    """Return texts on the margins of all constraints, for a plan's banner."""
    rows = [_margins_in_words(limit) for limit in program.kept[:_LISTED]]
    more = len(program.kept) - len(rows)
    boxes = [_box_in_words(program, corner) for corner in program.corners[:_LISTED]]
    beyond = len(program.corners) - len(boxes)
    ends = [f"... and {count} more" for count in (more, beyond)]
    return [*rows, *ends[: more > 0], *boxes, *ends[1:][: beyond > 0]]


def _box_in_words(program: Program, corner: Corner) -> str:
    reach = program.reaches.get(corner.agent)
    limit = corner.constraint
    used = np.union1d(limit.above, limit.below)
    if reach is None or not used.size:
        return f"{limit.what}: holds for the data"
    low, high = f"{reach[used].min():.3g}", f"{reach[used].max():.3g}"
    sizes = low if low == high else f"{low} to {high}"
    return f"{limit.what}: holds for all data within {sizes} of the released data"


def _margins_in_words(limit: Tightened) -> str:
    parts = []
    fixed = sorted(limit.margins.values())
    if fixed:
        low, high = f"{fixed[0]:.3g}", f"{fixed[-1]:.3g}"
        count = "" if len(fixed) == 1 else f" on {len(fixed)} rows"
        parts.append(f"margin {low if low == high else f'{low} to {high}'}{count}")
    if limit.balls:
        reach = max(
            ball.length * float(np.abs(ball.noise.data).max(initial=0.0))
            for ball in limit.balls.values()
        )
        parts.append(
            f"a margin that grows with the decision, {reach:.3g} times the length of what the data "
            "multiply"
        )
    return f"{limit.constraint.what}: {together(parts)}"


# Text of the guarantee with constraints='released'.
FOR_RELEASED = (
    "constraints with private data hold for the released data only: the true data may break them, "
    "by about as much as the noise moves them"
)


def promise(violation: float, price: float | None) -> str:
    """Return the text of the guarantee that constraints hold for the true data.

    `violation` is the violation probability, and `price` the penalty per unit of slack, if any.
    """
    loosened = "" if price is None else ", loosened by what the decision pays for,"
    if violation == 0:
        return (
            f"all constraints with private data{loosened} hold for the true data in every run that "
            "finds a decision, to within the accuracy of the solver: the noise has a limit, and "
            "the margins cover it"
        )
    text = (
        f"all constraints with private data{loosened} hold for the true data, except with "
        f"probability at most {number(violation)} over the noise. That is the share of all runs "
        "that decide and break one"
    )
    if price is None:
        text += (
            "; among the runs that find a decision the share may be larger, because a decision may "
            "exist only by chance of the noise"
        )
    return text


@dataclass(frozen=True, eq=False)
class Spread:
    """Noise in an agent's released data: N (Y + e), with every entry of e bounded.

    Attributes
    ----------
    norm : {0, 1, 2}
        Distribution of the components of Y, which are independent: 2 for standard normal, 1 for
        Laplace, 0 if there is no Y.
    matrix : csr_array, shape (D, s)
        The matrix N, from D entries of the data and s components of Y.
    rounding : float
        Bound of the entries of e. Data and noise are each rounded to a grid, by at most half its
        width. Truncated noise is all in e.
    """

    norm: int
    matrix: sp.csr_array
    rounding: float

    def components(self, entries: Index) -> Index:
        """Return the indices of the components of Y that move the given entries of the data."""
        return np.flatnonzero(np.diff(sp.csc_array(self.matrix[entries]).indptr) > 0)

    def only(self, components: Index) -> sp.csr_array:
        """Return N with all columns set to zero except the given components."""
        selected = np.zeros(self.matrix.shape[1])
        selected[components] = 1.0
        matrix = sp.csr_array(self.matrix @ sp.diags_array(selected))
        matrix.eliminate_zeros()
        return matrix


def spread_of(publication: Publication, noise: Calibrated) -> Spread:
    """Return the distribution of the noise in a one-time release of an agent's data.

    Parameters
    ----------
    publication : Publication
        Release of the agent.
    noise : Calibrated
        Mechanism of the agent.
    """
    grid = noise.grid(publication.sensitivity, publication.size)
    matrix = sp.csr_array(grid.scale * publication.decode)
    unit = grid.width / grid.scale
    if noise.truncation is None:
        return Spread(noise.mechanism.norm, matrix, unit)
    return Spread(0, matrix, (noise.truncation.steps(grid) + 0.5) * unit)


@dataclass(frozen=True, eq=False)
class _Case:
    """Part of a constraint, with the noise in its data and its share of the probability."""

    constraint: int
    part: int
    spread: Spread
    components: Index
    alpha: float

    def shared(self, holder: int, bends: bool) -> tuple[object, ...]:
        """Return a key that is equal for parts of constraints that may share one set of noise."""
        return holder, bends, tuple(self.components.tolist())


def tightened(
    limits: Sequence[Tightened],
    spreads: Mapping[int, Spread],
    violation: float,
    price: float | None = None,
    shares: Sequence[Sequence[float]] | None = None,
) -> tuple[Tightened, ...]:
    """Return constraints with margins, which hold jointly for the true data up to `violation`.

    Parameters
    ----------
    limits : sequence of Tightened
        Constraints with private data; their margins are replaced.
    spreads : mapping of int to Spread
        Noise in the released data, by index of the agent.
    violation : float
        Violation probability, from 0 to 1; 0 if all noise is truncated.
    price : float, optional
        Penalty per unit of slack.
    shares : sequence of sequence of float, optional
        Division of the probability over the parts of every constraint; equal if omitted.
    """
    constraints = [limit.constraint for limit in limits]
    if shares is None:
        parts = [len(constraint.parts) for constraint in constraints]
        shares = [[1 / sum(parts)] * each for each in parts]
    groups: dict[tuple[object, ...], list[_Case]] = {}
    for i, limit in enumerate(limits):
        spread = spreads[limit.agent]
        for k, part in enumerate(limit.constraint.parts):
            components = spread.components(limit.constraint.entries(part.rows))
            case = _Case(i, k, spread, components, violation * shares[i][k])
            groups.setdefault(case.shared(limit.agent, part.bends), []).append(case)
    margins: list[dict[int, float]] = [{} for _ in constraints]
    balls: list[dict[int, NoiseBall]] = [{} for _ in constraints]
    for cases in groups.values():
        spread, components = cases[0].spread, cases[0].components
        radius = 0.0
        if spread.norm:
            alpha = sum(case.alpha for case in cases)
            radius = length_quantile(spread.norm, components.size, alpha)
        slack = spread.rounding * math.sqrt(components.size)
        first = constraints[cases[0].constraint].parts[cases[0].part]
        if first.bends and first.size == 1 and not spread.norm:
            for case in cases:
                box = NoiseBall(spread.rounding, spread.only(components), box=True)
                balls[case.constraint][case.part] = box
            continue
        if first.bends:
            for case in cases:
                balls[case.constraint][case.part] = NoiseBall(
                    radius + slack, spread.only(components)
                )
            continue
        images = [_image(constraints[c.constraint], c) for c in cases]
        alone = [
            image.quantile(spread.norm, c.alpha) for image, c in zip(images, cases, strict=True)
        ]
        lengths = [image.reach() for image in images]
        together = [radius * length for length in lengths]
        weights = [case.alpha for case in cases]
        chosen = together if _less(together, alone, lengths, weights) else alone
        for case, margin, image in zip(cases, chosen, images, strict=True):
            rounded = spread.rounding * image.rounded()
            margins[case.constraint][case.part] = float((margin + rounded) * (1 + 1e-9))
    return tuple(
        replace(limit, margins=margin, balls=ball, price=price)
        for limit, margin, ball in zip(limits, margins, balls, strict=True)
    )


@dataclass(frozen=True, eq=False)
class _Image:
    """Linear map from the noise to the slack of one part of a constraint."""

    rows: Array  # matrix from s noise components to the part's rows, shape (rows, s)
    semidefinite: bool

    def quantile(self, norm: int, alpha: float) -> float:
        """Return a margin; the noise in this part exceeds it with probability at most `alpha`.

        `norm` is the kind of noise: 1 for Laplace, 2 for normal, 0 for none.
        """
        if norm == 0:
            return 0.0
        if self.semidefinite:
            return eigenvalue_quantile(norm, self._matrices(), alpha)
        head, rest = self.rows[0], self.rows[1:]
        if not rest.any():
            return sum_quantile(norm, head, alpha)
        if not head.any():
            return image_quantile(norm, rest, alpha)
        return sum_quantile(norm, head, alpha / 2) + image_quantile(norm, rest, alpha / 2)

    def reach(self) -> float:
        """Return the margin that suffices for all noise of Euclidean length at most 1."""
        if self.semidefinite:
            wide = np.concatenate(self._matrices(), axis=1)
            return float(np.linalg.norm(wide, 2))
        rest = float(np.linalg.norm(self.rows[1:], 2)) if self.rows.shape[0] > 1 else 0.0
        return float(np.linalg.norm(self.rows[0])) + rest

    def rounded(self) -> float:
        """Return the margin that suffices for all noise with entries between -1 and 1."""
        if self.semidefinite:
            values, vectors = np.linalg.eigh(self._matrices())
            sizes = (vectors * np.abs(values)[:, None]) @ vectors.transpose(0, 2, 1)
            return float(np.linalg.eigvalsh(sizes.sum(axis=0))[-1])
        sums = np.abs(self.rows).sum(axis=1)
        return float(sums[0] + np.linalg.norm(sums[1:]))

    def _matrices(self) -> Array:
        """Return the nonzero matrices that noise components add to a semidefinite cone's matrix."""
        return matrices(self.rows[:, np.any(self.rows != 0, axis=0)].T)


def _image(constraint: PrivateConstraint, case: _Case) -> _Image:
    part = constraint.parts[case.part]
    moved = (constraint.offsets[part.rows] @ case.spread.matrix).toarray()
    rows = constraint.standardized(case.part, moved)
    return _Image(rows, constraint.order(case.part) > 0)


def _less(
    first: Sequence[float],
    second: Sequence[float],
    units: Sequence[float],
    weights: Sequence[float],
) -> bool:
    """Return whether the weighted sum of margin / unit is smaller for `first` than for `second`."""
    every = zip(first, second, units, weights, strict=True)
    return sum(weight * (a - b) / unit for a, b, unit, weight in every if unit > 0) < 0
