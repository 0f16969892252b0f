"""Linear maps of the network, as sparse matrices: branch flows and bus balances.

Complex voltages enter only through ``w_i = |V_i|^2`` per bus and ``wr + j wi = V_f conj(V_s)``
per pair (f = first, s = second bus of the pair).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from .case import Case

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

ENDS = ("pf", "qf", "pt", "qt")


@dataclass(frozen=True, eq=False)
class FlowMap:
    """Linear map to a flow on every branch: ``w_map @ w + wr_map @ wr + wi_map @ wi``.

    Attributes
    ----------
    w_map : csr_array, shape (branches, buses)
        Coefficients of squared voltages.
    wr_map, wi_map : csr_array, shape (branches, pairs)
        Coefficients in per unit, with the orientation of the branches.
    """

    w_map: sp.csr_array
    wr_map: sp.csr_array
    wi_map: sp.csr_array


def flow_maps(case: Case) -> dict[str, FlowMap]:
    """Return the flows into both ends of every branch as linear maps of the voltage products.

    The admittance matrix of a branch follows appendix D of Ryu & Kim (2022): turns ratio and phase
    shift at the from end, half of the charging at either end. Their (71f) to (71i) print the sum of
    two products of real and imaginary parts in place of their difference.

    Parameters
    ----------
    case : Case

    Returns
    -------
    dict of FlowMap
        Keys ``pf``, ``qf`` (active and reactive power entering the branch at its from end) and
        ``pt``, ``qt`` (at its to end), in per unit.
    """
    branch, pairs = case.branch, case.pairs
    series = 1 / (branch.r + 1j * branch.x)
    charged = series + 0.5j * branch.b
    turns = branch.tap * np.exp(1j * branch.shift)
    # S = V conj(I), hence conjugated admittances on |V|^2 and on V_f conj(V_t).
    own_f, across_f = np.conj(charged / np.abs(turns) ** 2), np.conj(-series / np.conj(turns))
    own_t, across_t = np.conj(charged), np.conj(-series / turns)
    buses, count = len(case.bus.id), len(pairs.first)

    def active(bus: Ints, own: Complexes, across: Complexes, sense: float) -> FlowMap:
        return FlowMap(
            w_map=_rows(np.real(own), bus, buses),
            wr_map=_rows(np.real(across), pairs.of_branch, count),
            wi_map=_rows(-sense * pairs.sign * np.imag(across), pairs.of_branch, count),
        )

    def reactive(bus: Ints, own: Complexes, across: Complexes, sense: float) -> FlowMap:
        return FlowMap(
            w_map=_rows(np.imag(own), bus, buses),
            wr_map=_rows(np.imag(across), pairs.of_branch, count),
            wi_map=_rows(sense * pairs.sign * np.real(across), pairs.of_branch, count),
        )

    # Flows at the to end have V_t conj(V_f), the conjugate of the product at the from end.
    return {
        "pf": active(branch.from_bus, own_f, across_f, 1.0),
        "qf": reactive(branch.from_bus, own_f, across_f, 1.0),
        "pt": active(branch.to_bus, own_t, across_t, -1.0),
        "qt": reactive(branch.to_bus, own_t, across_t, -1.0),
    }


def incidence(positions: Ints, count: int) -> sp.csr_array:
    """Return the matrix that sums elements by bus: entry (i, k) is 1 if element k is at bus i.

    Parameters
    ----------
    positions : ndarray of int, shape (elements,)
        Bus position of every element.
    count : int
        Number of buses.

    Returns
    -------
    csr_array, shape (count, elements)
    """
    return sp.csr_array(_rows(np.ones(len(positions)), positions, count).T)


def slack_buses(case: Case) -> Ints:
    """Return the bus with most generation in every connected part, or the part's first bus.

    Parameters
    ----------
    case : Case

    Returns
    -------
    ndarray of int
        Positions of the buses.
    """
    count = len(case.bus.id)
    most = np.zeros(count)
    np.add.at(most, case.gen.bus, np.where(np.isfinite(case.gen.pmax), case.gen.pmax, 0.0))
    generates = np.zeros(count, dtype=np.bool_)
    generates[case.gen.bus] = True
    order = np.lexsort((-most, ~generates))
    return order[np.unique(connected_parts(case)[order], return_index=True)[1]]


def susceptances(case: Case) -> Floats:
    """Return each branch's active power per angle across it, in the direct-current approximation.

    Parameters
    ----------
    case : Case

    Returns
    -------
    ndarray, shape (branches,)
        ``1 / (x tap)`` in per unit per radian, as in MATPOWER's ``makeBdc``.
    """
    return 1 / (_reactance(case) * case.branch.tap)


def _reactance(case: Case) -> Floats:
    """Return reactances, at least a thousandth of the impedance, since some cables have 0."""
    branch = case.branch
    least = 1e-3 * np.hypot(branch.r, branch.x)
    return np.where(np.abs(branch.x) < least, least, branch.x)


def connected_parts(case: Case) -> Ints:
    """Return the connected part of every bus, counted from 0.

    Parameters
    ----------
    case : Case
    """
    count = len(case.bus.id)
    links = incidence(case.branch.from_bus, count) @ incidence(case.branch.to_bus, count).T
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


def transfer(case: Case, buses: Ints | None = None, branches: Ints | None = None) -> Floats:
    """Return flows on branches per unit of power injected at a bus and taken out at the first bus.

    This is the direct-current approximation: flows depend on reactances only.

    Parameters
    ----------
    case : Case
    buses, branches : ndarray of int, optional
        Positions of a connected part's buses and branches; all if omitted.

    Returns
    -------
    ndarray, shape (branches, buses)
    """
    branch = case.branch
    buses = np.arange(len(case.bus.id)) if buses is None else buses
    branches = np.arange(len(branch.x)) if branches is None else branches
    count = len(case.bus.id)
    start, end = (incidence(e[branches], count)[buses] for e in (branch.from_bus, branch.to_bus))
    ends = (start - end).T.toarray()
    weighted = ends / branch.x[branches][:, None]
    angles = np.zeros((len(buses), len(buses)))
    angles[1:, 1:] = np.linalg.inv((ends.T @ weighted)[1:, 1:])
    return weighted @ angles


def _rows(values: NDArray[np.float64], columns: Ints, width: int) -> sp.csr_array:
    """Return a sparse matrix with one entry per row, in the given columns."""
    rows = np.arange(len(values))
    return sp.csr_array((values, (rows, columns)), shape=(len(values), width))
