"""What is recorded of a plan and of its runs."""

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import dpcvx as dp
from tests.golden.cases import Case

# Numbers in texts, apart from those that are part of a name.
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]*\w)")
# Rows of a plan's text that forecast or name versions: no guarantee rests on them.
_UNRECORDED = re.compile(r"^(?:dpcvx derivation.*|Accuracy .*\n(?: +.*\n)*)", re.MULTILINE)


def planned(case: Case) -> dict[str, Any]:
    """What a plan derives and says, or why it is refused, which no processor changes.

    Numbers are equal up to rounding; `equal` compares them so.
    """
    try:
        plan = case.plan()
    except (dp.ModelError, dp.PrivacyError) as refusal:
        return {"refused": type(refusal).__name__, "text": str(refusal)}
    return {
        # Without what takes local steps, which depends on what is installed.
        "fingerprint": plan.fingerprint.partition("-")[0],
        "method": type(plan.algorithm).__name__,
        "rounds": plan.rounds,
        "releases": plan.releases(plan.rounds),
        "agents": _grouped([_agent(agent) for agent in plan.agents]),
        "entries": _kinds_of_entries(plan),
        "text": _UNRECORDED.sub("", f"{plan}\n{plan.derivation}").strip(),
    }


def _agent(agent: Any) -> dict[str, Any]:
    """What is fixed for one agent: how far its data move queries, the noise, and the cost."""
    sensitivity, noise = agent.sensitivity, agent.noise
    bounds = {} if sensitivity is None else {str(p): sensitivity.bound(p).value for p in (1, 2)}
    return {
        "names": agent.name,
        "sensitivity": bounds,
        "multiplier": None if noise is None else noise.multiplier,
        "epsilon": None if agent.price is None else agent.price.epsilon,
        "publication": None if agent.publication is None else agent.publication.kind,
    }


def _grouped(agents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbors with the same numbers as one, under all their names."""
    groups: list[dict[str, Any]] = []
    for agent in agents:
        if groups and equal({**groups[-1], "names": ""}, {**agent, "names": ""}):
            groups[-1]["names"] += f" {agent['names']}"
        else:
            groups.append(agent)
    return groups


def _kinds_of_entries(plan: dp.Plan) -> list[str]:
    """Kinds of ledger entries that a run charges, over all agents."""
    result = plan.run(seed=3, record=False, verbose=False)
    entries = (entry for account in result.ledger.values() for entry in account.entries)
    return sorted(
        {
            f"{entry.mechanism}, {entry.certificate}, {entry.released}, {entry.colluders}"
            f"{', before the first round' * (entry.round == 0)}"
            for entry in entries
        }
    )


def ran(case: Case) -> dict[str, str]:
    """Digests of a seeded run, bit by bit: they hold on one machine alone."""
    try:
        plan = case.plan()
    except (dp.ModelError, dp.PrivacyError) as refusal:
        return {"refused": digest(str(refusal).encode())}
    said: dict[str, Callable[[], Iterator[bytes]]] = {}
    result = plan.run(seed=3, record=not plan.hidden, verbose=False)
    if result.transcript is not None:
        # Recorded runs evaluate agents one by one, and others identical agents in a batch.
        said |= {
            f"batched {what}": parts for what, parts in _parts(plan.run(seed=3, verbose=False))
        }
    said |= dict(_parts(result))
    return {what: digest(b"|".join(parts())) for what, parts in said.items()}


def _parts(result: dp.Result) -> Iterator[tuple[str, Callable[[], Iterator[bytes]]]]:
    """What a run ends with, by name."""
    for name in ("average", "last", "tail", "weighted", "solution"):
        yield (
            name,
            lambda name=name: (np.asarray(x).tobytes() for x in getattr(result, name).vectors),
        )
    yield "status", lambda: iter([result.status.name.encode(), str(result.rounds).encode()])
    entries = (entry for account in result.ledger.values() for entry in account.entries)
    yield "entries", lambda: (repr(entry).encode() for entry in entries)
    if result.transcript is not None:
        releases = result.transcript.releases
        yield "releases", lambda: (np.asarray(release.value).tobytes() for release in releases)
    yield "guarantee", lambda: iter([str(result.guarantee).encode()])


def digest(content: bytes) -> str:
    """A short name of some content."""
    return hashlib.sha256(content).hexdigest()[:16]


def equal(first: Any, second: Any) -> bool:
    """Whether two records say the same: numbers to 1e-9, numbers in texts to their last digit."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(equal(first[k], second[k]) for k in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, float) and isinstance(second, float):
        return bool(np.isclose(first, second, rtol=1e-9, atol=0.0, equal_nan=True))
    if isinstance(first, str) and isinstance(second, str):
        return _texts(first, second)
    return type(first) is type(second) and first == second


def _texts(first: str, second: str) -> bool:
    """Whether the words are equal, and printed numbers up to a unit of their last digit."""
    first, second = " ".join(first.split()), " ".join(second.split())
    if _NUMBER.split(first) != _NUMBER.split(second):
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    return all(a == b or _adjacent(a, b) for a, b in pairs)


def _adjacent(first: str, second: str) -> bool:
    """Whether printed numbers differ by at most a unit of the last digit."""
    return abs(float(first) - float(second)) <= 1.001 * max(_unit(first), _unit(second))


def _unit(number: str) -> float:
    """What one more in the last printed digit is worth; whole numbers are exact."""
    digits, _, exponent = number.partition("e")
    if not exponent and "." not in digits:
        return 0.0
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
