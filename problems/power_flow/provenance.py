"""Provenance of a stored result: all that is needed to recompute it, and nothing private."""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import fields

import dpcvx as dp

from ..provenance import commit, versions
from .case import Case
from .hours import Flexible, Store
from .zones import Zones

# Options that choose where results are written and shown; they do not change results.
_OUTPUT = frozenset(
    {"json", "plot", "format", "tables", "table_format", "set_points", "quiet", "ledger", "over"}
)
_PRIVATE = frozenset({"pd", "qd"})


def provenance(
    options: argparse.Namespace, case: Case, plan: dp.Plan | None, zones: Zones
) -> dict[str, object]:
    """Return inputs, versions, the plan's fingerprint and a digest of the network.

    Parameters
    ----------
    options : argparse.Namespace
        Parsed arguments of `options.parser`.
    case : Case
    plan : dp.Plan or None
        None for a central solve.
    zones : Zones

    Returns
    -------
    dict
        ``inputs`` has options by their names, ``network`` the digest of `network_digest`, and
        ``zone_map`` a digest of the map from buses to zones. ``plan`` has the settings that no
        option names, and ``commit`` the result of `commit`.
    """
    return {
        "inputs": {
            name: _plain(value)
            for name, value in sorted(vars(options).items())
            if name not in _OUTPUT and value is not None and value != () and value != []
        },
        "plan": None
        if plan is None
        else {
            "algorithm": str(plan.algorithm),
            "rounds": plan.rounds,
            "release": plan.release,
            "fingerprint": plan.fingerprint,
        },
        "network": network_digest(case),
        "zone_map": hashlib.sha256(
            repr((zones.names, case.bus.id.tolist(), zones.of_bus.tolist())).encode()
        ).hexdigest(),
        "versions": versions(),
        "commit": commit(),
    }


def _plain(value: object) -> object:
    """Return an option's value as it is written on the command line."""
    if isinstance(value, Store):
        return f"{value.bus}:{value.power!r}:{value.energy!r}"
    if isinstance(value, Flexible):
        price = "" if value.price is None else f":{value.price!r}"
        return f"{value.bus}:{value.power!r}{price}"
    if isinstance(value, tuple):
        return ",".join(str(each) for each in value)
    return [_plain(each) for each in value] if isinstance(value, list) else value


def network_digest(case: Case) -> str:
    """Return the SHA-256 digest of the network without its loads, which a digest would reveal.

    Parameters
    ----------
    case : Case
    """
    digest = hashlib.sha256(repr((case.name, case.base_mva)).encode())
    for part in (case.bus, case.gen, case.branch, case.pairs):
        for field in fields(part):
            if field.name not in _PRIVATE:
                values = getattr(part, field.name)
                digest.update(f"{field.name} {values.dtype.str} {values.shape}".encode())
                digest.update(values.tobytes())
    return digest.hexdigest()
