r"""Margins that keep constraints with private data, up to a probability, whatever is decided.

The data leave once, as :math:`\tilde d = d + \xi`. A row that holds for the released data with a
margin t is broken by the true data only if the noise moves its slack by more than t.

Where no data multiply variables, by how much the noise moves a row does not depend on what is
decided: t is a quantile of that number, and what is decided may depend on the noise in any way.
Where they do, decisions prefer entries whose noise was low, and the quantile of a fixed decision is
exceeded far more often. The row is then kept for all noise of a set that holds the noise, up to a
probability. The total is divided over all rows, in shares that may follow from anything public;
rows that meet the same noise share one set.

Noise with a limit lies in a box for certain: margins are what the box moves a row by at most, and
nothing is divided. For rows with coefficients the ball around the box stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.private_constraints import ConstraintRows, PrivateConstraint
from ..privacy.mechanism import Calibrated
from ..privacy.truncation import image_quantile, length_quantile, sum_quantile
from ..sensitivity.release_once import Publication
from ..solvers.tightened import NoiseBall, Tightened

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Spread:
    """The noise in an agent's data as they leave: N (Y + e), with every entry of e bounded.

    Attributes
    ----------
    norm : {0, 1, 2}
        The components of Y are independent, 2: normal, 1: Laplace. 0: there is no Y.
    matrix : csr_array, shape (D, s)
        N.
    rounding : float
        Largest entry of e: data and noise are each rounded to a grid, by half its width at most.
        Of noise with a limit, all is in e.
    """

    norm: int
    matrix: sp.csr_array
    rounding: float

    def components(self, entries: Index) -> Index:
        """The components of Y that move some entries of the data."""
        return np.flatnonzero(np.diff(sp.csc_array(self.matrix[entries]).indptr) > 0)

    def only(self, components: Index) -> sp.csr_array:
        """N without the columns of all others."""
        kept = np.zeros(self.matrix.shape[1])
        kept[components] = 1.0
        found = sp.csr_array(self.matrix @ sp.diags_array(kept))
        found.eliminate_zeros()
        return found


def spread_of(publication: Publication, noise: Calibrated) -> Spread:
    """The noise of a release of the data themselves.

    Parameters
    ----------
    publication : Publication
    noise : Calibrated
    """
    grid = noise.grid(publication.sensitivity, publication.size)
    matrix = sp.csr_array(grid.scale * publication.decode)
    unit = grid.width / grid.scale
    if noise.truncation is None:
        return Spread(noise.mechanism.norm, matrix, unit)
    return Spread(0, matrix, (noise.truncation.steps(grid) + 0.5) * unit)


@dataclass(frozen=True, eq=False)
class _Case:
    """One part of one constraint, with the noise that it meets."""

    constraint: int
    part: int
    spread: Spread
    components: Index
    alpha: float

    def shared(self, holders: Sequence[int], bends: bool) -> tuple[object, ...]:
        """What parts that may share one set of noise have in common."""
        return holders[self.constraint], bends, tuple(self.components.tolist())


def tightened(
    constraints: Sequence[PrivateConstraint],
    holders: Sequence[int],
    spreads: Mapping[int, Spread],
    violation: float,
    price: float | None = None,
    shares: Sequence[Sequence[float]] | None = None,
) -> tuple[Tightened, ...]:
    """The constraints with margins: for the true data, all hold together up to a probability.

    Parameters
    ----------
    constraints : sequence of PrivateConstraint
    holders : sequence of int
        For each, the agent whose data it contains.
    spreads : mapping of int to Spread
        By agent.
    violation : float
        Between 0 and 1; 0 where all noise has a limit.
    price : float, optional
        What a unit costs by which a constraint may be missed.
    shares : sequence of sequence of float, optional
        How the probability is divided over the parts of every constraint; equally if omitted.
    """
    if shares is None:
        parts = [len(constraint.parts) for constraint in constraints]
        shares = [[1 / sum(parts)] * each for each in parts]
    groups: dict[tuple[object, ...], list[_Case]] = {}
    for i, (constraint, holder) in enumerate(zip(constraints, holders, strict=True)):
        spread = spreads[holder]
        for k, part in enumerate(constraint.parts):
            components = spread.components(constraint.entries(part.rows))
            case = _Case(i, k, spread, components, violation * shares[i][k])
            groups.setdefault(case.shared(holders, part.bends), []).append(case)
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
        if first.bends:
            for case in cases:
                balls[case.constraint][case.part] = NoiseBall(
                    radius + slack, spread.only(components)
                )
            continue
        images = [_image(constraints[c.constraint], c) for c in cases]
        parts = [constraints[c.constraint].parts[c.part] for c in cases]
        pairs = zip(images, parts, cases, strict=True)
        alone = [_margin(image, part, spread.norm, case.alpha) for image, part, case in pairs]
        lengths = [_reach(image) for image in images]
        together = [radius * length for length in lengths]
        weights = [case.alpha for case in cases]
        found = together if _less(together, alone, lengths, weights) else alone
        for case, margin, image in zip(cases, found, images, strict=True):
            rounded = spread.rounding * _rounded(image)
            margins[case.constraint][case.part] = (margin + rounded) * (1 + 1e-9)
    return tuple(
        Tightened(constraint, margin, ball, price)
        for constraint, margin, ball in zip(constraints, margins, balls, strict=True)
    )


def _image(constraint: PrivateConstraint, case: _Case) -> Array:
    """What standard noise does to the rows of a part, shape (rows, s)."""
    part: ConstraintRows = constraint.parts[case.part]
    moved = constraint.offsets[part.rows] @ case.spread.matrix
    return moved.toarray()


def _margin(image: Array, part: ConstraintRows, norm: int, alpha: float) -> float:
    """Exceeded with at most the probability by what noise takes from an inequality or a cone."""
    head, rest = image[0], image[1:]
    if norm == 0:
        return 0.0
    if part.size == 1 or not rest.any():
        return sum_quantile(norm, head, alpha)
    if not head.any():
        return image_quantile(norm, rest, alpha)
    return sum_quantile(norm, head, alpha / 2) + image_quantile(norm, rest, alpha / 2)


def _reach(image: Array) -> float:
    """What noise of length 1 takes at most."""
    rest = float(np.linalg.norm(image[1:], 2)) if image.shape[0] > 1 else 0.0
    return float(np.linalg.norm(image[0])) + rest


def _rounded(image: Array) -> float:
    """What noise with entries of at most 1 takes at most."""
    return float(np.abs(image[0]).sum() + np.linalg.norm(np.abs(image[1:]).sum(axis=1)))


def _less(
    one: Sequence[float], other: Sequence[float], units: Sequence[float], weights: Sequence[float]
) -> bool:
    """Whether the first margins are smaller, in units of their own, by what counts."""
    every = zip(one, other, units, weights, strict=True)
    return sum(weight * (a - b) / unit for a, b, unit, weight in every if unit > 0) < 0
