"""The privacy guarantee of a plan or a run, with everything it depends on next to the numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# Two less than the banner's, which indents the text.
_WIDTH = 94

Kind = Literal["worst-case", "none"]

OBSERVER = (
    "everyone but the agent itself, the server and all other agents together; sees every "
    "released value of every round"
)
ASSUMPTIONS = (
    "agents follow the protocol and keep their noise to themselves",
    "what the model declares public is independent of the private data",
    "one change touches one private object: no two describe the same person or thing",
    "this run alone: earlier runs on the same data count only if their ledger is passed on",
    "noise is drawn by a pseudo-random generator, and it and sums are treated as real numbers "
    "(floating point is not accounted for)",
)
SEEDED = (
    "reproducible: not for release (whoever knows the seed can subtract the noise, and runs of "
    "one plan with one seed share it)"
)
STATED_ACCURACY = "local solves on private data reach the solver's stated accuracy"


@dataclass(frozen=True)
class AgentGuarantee:
    """What one agent's data are protected by.

    Attributes
    ----------
    agent : str
    adjacency : dict of str to str
        For each private object, what one change means.
    sensitivity : float
        Of the gradient, in the mechanism's norm.
    exact : bool
        Whether some neighbouring pair attains the sensitivity.
    scale : float
        Noise scale per component of the gradient.
    releases : int
        Planned number of releases.
    """

    agent: str
    adjacency: Mapping[str, str]
    sensitivity: float
    exact: bool
    scale: float
    releases: int


@dataclass(frozen=True)
class Guarantee:
    """An (epsilon, delta) statement; ``kind`` says of which sort.

    Attributes
    ----------
    kind : {"worst-case", "none"}
        ``none``: there is no guarantee (noise off), or nothing is private.
    epsilon, delta : float
        For each agent's data; data of different agents compose in parallel.
    mechanism, accountant, observer : str
    certificate : {"derived", "none"}
        How the sensitivities were obtained.
    agents : tuple of AgentGuarantee
    assumptions : tuple of str
    """

    kind: Kind
    epsilon: float
    delta: float
    mechanism: str
    accountant: str
    observer: str
    certificate: Literal["derived", "none"]
    agents: tuple[AgentGuarantee, ...]
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        if self.kind == "none":
            return f"none: {self.mechanism}"
        changes: dict[str, list[str]] = {}
        for agent in self.agents:
            for private, change in agent.adjacency.items():
                changes.setdefault(change, []).append(f"'{private}'")
        units = "; ".join(f"{change} in {' or '.join(names)}" for change, names in changes.items())
        rows = [
            ("adjacency", units),
            ("observer", self.observer),
            ("mechanism", self.mechanism),
            ("accountant", self.accountant),
            ("sensitivity", f"{self.certificate} from the model"),
            ("assumptions", "; ".join(self.assumptions)),
        ]
        seeded = ", if the seed stays secret: not for release" if SEEDED in self.assumptions else ""
        head = f"({self.epsilon:.6g}, {self.delta:g})-DP for each agent's data, worst case{seeded}"
        return "\n".join([head, *(_row(label, text) for label, text in rows)])


def _row(label: str, text: str) -> str:
    indent = " " * 13
    return textwrap.fill(text, _WIDTH, initial_indent=f"{label:<13}", subsequent_indent=indent)
