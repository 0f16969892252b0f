"""Checks of the arguments of `study.power_flow`, with errors for invalid ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .case import Case
from .errors import CaseError
from .model import Objective, Shared
from .models import Kind
from .private import PrivateData
from .ptdf import Form

Floats = NDArray[np.float64]
Balance = Literal["exact", "covered"]
# Number of hours of a year.
_MOST_HOURS = 8760


def read_proxy(
    proxy: Floats | None, case: Case, hours: int, quantities: int, private: PrivateData | None
) -> Floats | None:
    """Return public loads for every hour, of shape (buses, quantities, hours).

    Parameters
    ----------
    proxy : ndarray or None
        Proxy loads, as passed to `study.power_flow`.
    case : Case
    hours, quantities : int
        Number of hours; 2 quantities for active and reactive loads, else 1.
    private : str or None
        Argument of `study.power_flow`.

    Raises
    ------
    dp.ModelError
        If the proxy loads have another shape, or no loads are private.
    """
    if proxy is None:
        return None
    if private != "loads":
        raise dp.ModelError(
            f"proxy= has public values for private loads, but private={private!r} declares no "
            "load private. Leave it out, or write private='loads'."
        )
    count, given = len(case.bus.id), np.asarray(proxy, dtype=np.float64)
    if given.shape == (count, 2):
        given = np.repeat(given[:, :quantities, None], hours, axis=2)
    if given.shape != (count, quantities, hours) or not np.isfinite(given).all():
        raise dp.ModelError(
            f"proxy= has shape {np.shape(proxy)} or numbers that are not finite. Give loads in per "
            f"unit of shape {(count, 2)} or {(count, quantities, hours)}."
        )
    return given


def check_words(
    model: str,
    objective: str | None,
    private: str | None,
    balance: str | None,
    horizon: int,
    contingencies: Sequence[int] | str,
    emergency: float,
    cuts: bool,
) -> None:
    """Refuse unknown values of arguments, and combinations that a model does not support.

    Parameters
    ----------
    model, objective, private, balance, horizon, contingencies, emergency, cuts
        Arguments of `study.power_flow`.

    Raises
    ------
    dp.ModelError
        If an argument is invalid.
    """
    for name, value, known in (
        ("model", model, get_args(Kind)),
        ("objective", objective, (None, *get_args(Objective))),
        ("private", private, (None, *get_args(PrivateData))),
        ("balance", balance, (None, *get_args(Balance))),
    ):
        if value not in known:
            shown = ", ".join(repr(choice) for choice in known)
            raise dp.ModelError(f"{name}={value!r} is not known. Write one of {shown}.")
    if isinstance(horizon, bool) or not isinstance(horizon, int) or not 1 <= horizon <= _MOST_HOURS:
        raise dp.ModelError(f"horizon= is no number of hours from 1 to {_MOST_HOURS}. Write 24.")
    if cuts and model != "soc":
        raise dp.ModelError(
            f"cuts= tightens the relaxation of model='soc', but model={model!r} has no "
            "relaxation. Leave it out."
        )
    if len(contingencies) and model == "distflow":
        raise dp.ModelError(
            "contingencies= needs a network with loops. Networks of model='distflow' have none, "
            "so an outage of any branch splits them. Write model='soc' or model='dc'."
        )
    if len(contingencies) and model == "soc" and private == "capacities":
        raise dp.ModelError(
            "private='capacities' bounds set points, and with model='soc' generators at slack "
            "buses leave theirs after an outage. Write model='dc', or another private=."
        )
    if not 0 < emergency < np.inf:
        raise dp.ModelError(
            "emergency= is not a positive multiple of the ratings. Write for example 1.2."
        )


def check_form(model: str, form: str, monitored: Sequence[int] | str, balance: str | None) -> None:
    """Refuse forms and monitored branches that a model does not support.

    Parameters
    ----------
    model, form, monitored, balance
        Arguments of `study.power_flow`.

    Raises
    ------
    dp.ModelError
        If an argument is invalid.
    """
    if form not in get_args(Form):
        raise dp.ModelError(f"form={form!r} is not known. Write one of 'angles', 'ptdf'.")
    if model != "dc" and (form != "angles" or monitored != "all"):
        name = "form" if form != "angles" else "monitored"
        raise dp.ModelError(
            f"{name}= applies to model='dc', whose flows are linear in injections, and not to "
            f"model={model!r}. Leave it out, or write model='dc'."
        )
    if form == "ptdf" and balance == "covered":
        raise dp.ModelError(
            "balance='covered' moves power within areas of a zone, whose flows form='ptdf' does "
            "not have. Leave it out, or write form='angles'."
        )


def check_shared(shared: str, model: str, form: str, contingencies: Sequence[int] | str) -> None:
    """Refuse ``shared="tie"`` for models that have no copies of what zones share.

    Parameters
    ----------
    shared, model, form, contingencies
        Arguments of `study.power_flow`.

    Raises
    ------
    dp.ModelError
        If the combination is invalid.
    """
    if shared not in get_args(Shared):
        raise dp.ModelError(
            f"shared={shared!r} is not known. Write one of 'voltage', 'flow', 'tie'."
        )
    if shared != "tie":
        return
    if model == "distflow" or form == "ptdf":
        name = f"model={model!r}" if model == "distflow" else "form='ptdf'"
        raise dp.ModelError(
            f"shared='tie' has no effect with {name}. Leave it out, or write model='soc', or "
            "model='dc' with form='angles'. Other models share no voltages."
        )
    if model == "dc" and len(contingencies):
        raise dp.ModelError(
            "shared='tie' does not support contingencies= with model='dc'. Leave shared= out. A "
            "flow after an outage depends on angles of other zones, and zones with copies see "
            "those at their own tie lines only."
        )


def check_network(
    case: Case, horizon: int, ramps: float | Floats | None, availability: Floats | None
) -> None:
    """Refuse hours, ramps and availability that do not fit a network.

    Parameters
    ----------
    case : Case
    horizon, ramps, availability
        Arguments of `study.power_flow`.

    Raises
    ------
    CaseError, dp.ModelError
        If an argument does not fit the network.
    """
    shape = (len(case.gen.pmax), horizon)
    if availability is not None and (
        np.shape(availability) != shape or not np.all(np.asarray(availability) >= 0)
    ):
        raise dp.ModelError(
            f"availability= has shape {np.shape(availability)} or numbers that are no share, and "
            f"{case.name} has {shape[0]} generators and {shape[1]} hours. Write a share of the "
            "largest power for each generator and hour."
        )
    if horizon > 1 and np.any(case.gen.kind == "storage"):
        raise CaseError(
            f"{case.name} has storage rows, which hold for one period. Switch them off in the "
            "file, and write storage=[Store(...)]."
        )
    if ramps is not None and not np.all(np.asarray(ramps, dtype=np.float64) > 0):
        raise dp.ModelError("ramps= has numbers that are not positive. Write 0.3 for 30 % an hour.")
    if isinstance(ramps, np.ndarray) and ramps.shape != case.gen.pmax.shape:
        raise dp.ModelError(
            f"ramps= has shape {ramps.shape}, and {case.name} has {len(case.gen.pmax)} generators "
            "in service. Write a number of MW per hour for each."
        )
