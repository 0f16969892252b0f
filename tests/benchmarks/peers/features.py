"""What the peers offer, as read in their wheels and repositories on 2026-11-21."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Package:
    """A column: one package as found on the day."""

    name: str
    version: str
    released: str
    status: str


PACKAGES = (
    Package("dpcvx", "0.1.0", "unreleased", "Python; alpha"),
    Package("OSBDO", "0.0.6", "2022-11-29", "Python; repository last touched 2023-07"),
    Package("disropt", "0.1.9", "2021-06-16", "Python, MPI; last commit 2022-04"),
    Package("DeDe", "0.1.6", "2025-06-09", "Python, Ray; last commit 2026-04, unreleased"),
    Package("APPFL", "1.12.0", "2026-10-23", "Python, torch; maintained"),
    Package("Flower", "1.42.0", "2026-10-22", "Python, any; maintained"),
)

# Y yes, ~ in part, - no; in the order of PACKAGES.
FEATURES: dict[str, str] = {
    "objectives written as formulas": "Y ~ Y Y - -",
    "constraints per agent": "Y ~ Y ~ - -",
    "conic sets (second order, semidefinite, exponential)": "Y Y ~ - - -",
    "coupling found from shared variables": "Y - - ~ - -",
    "every agent's iterates stay in its own set": "Y Y Y - - -",
    "certified optimality gap": "- Y - - - -",
    "peer to peer, without a server": "- - Y - ~ -",
    "over a network, several machines": "- - Y Y Y Y",
    "differential privacy": "Y - - - Y Y",
    "private data marked in the model": "Y - - - - -",
    "sensitivity derived": "Y - - - ~ ~",
    "total of all rounds accounted": "Y - - - ~ ~",
    "ledger per agent, budget checked before a release": "Y - - - - ~",
    "neural networks, training at scale": "- - - - Y Y",
    "installs and imports with today's dependencies": "Y ~ Y - ~ Y",
}

NOTES = (
    "OSBDO: agents are oracles of value and gradient, about 15 lines each; constraints go into the "
    "coupling. Its default solver ECOS no longer comes with cvxpy, and after 20 rounds it calls "
    "a function that numpy 2 dropped (put back for these runs).",
    "disropt: second-order cones through its Norm; semidefinite and exponential sets not.",
    "DeDe: groups constraints within two families that the user separates; every constraint is "
    "penalized. 0.1.6 needs scipy held back.",
    "APPFL: sensitivity 2 C / rho (or 2 C lr) from a clip; a total only on its Opacus path. The "
    "ADMM trainers need torch; here their formulas are recomputed in numpy.",
    "Flower: server-side noise with fixed clipping is accounted (Renyi) and stops at a budget; "
    "LocalDpMod has a free sensitivity and no total.",
)
