"""A plan in words: problem, algorithm, sensitivity and its derivation, noise, guarantee."""

from __future__ import annotations

import math
import textwrap
from importlib.metadata import version

from ..sensitivity.argument import argument, figures
from .guarantee import AgentGuarantee, Guarantee
from .terms import Terms

WIDTH = 96
_LABEL = 13
# Agents listed one by one.
LISTED = 12


def banner(plan: Terms, guarantee: Guarantee) -> str:
    """The plan in words: problem, algorithm, sensitivity and its derivation, noise, guarantee."""
    versions = f"cvxpy {version('cvxpy')}, clarabel {version('clarabel')}"
    lines = [
        "=" * WIDTH,
        f"dpcvx {version('dpcvx')}  ({versions})".center(WIDTH).rstrip(),
        "=" * WIDTH,
        *_problem_rows(plan),
        *_coupling_rows(plan),
        row("algorithm", str(plan.algorithm)),
        row("rounds", str(plan.rounds)),
        *_sensitivity_rows(plan),
        "guarantee:",
        textwrap.indent(str(guarantee), "  "),
    ]
    if plan.noisy:
        lines.append("  fixed by the plan; no data have been read")
    return "\n".join([*lines, "=" * WIDTH])


def _problem_rows(plan: Terms) -> list[str]:
    program = plan.program
    local = sum(a.n - a.shared.size for a in program.agents)
    agents, shared = count(len(program.agents), "agent"), count(program.size, "shared component")
    rows = [
        row(
            "",
            f"{agent.name}: {agent.n} variables ({agent.shared.size} shared), "
            f"set: {agent.set_description}",
        )
        for agent in program.agents
    ]
    return [row("problem", f"{agents}, {shared}, {local} local"), *_shortened(rows)]


def _coupling_rows(plan: Terms) -> list[str]:
    text = plan.algorithm.coupling(plan.program)
    return [] if text is None else [row("coupling", text)]


def _sensitivity_rows(plan: Terms) -> list[str]:
    if not plan.noisy:
        return []
    derived = [(a.name, a.sensitivity) for a in plan.agents]
    known = [sensitivity for _, sensitivity in derived if sensitivity is not None]
    entries = {entry.agent: entry for entry in plan.guarantee.agents}
    rows: list[str] = []
    for name, sensitivity in derived:
        if sensitivity is None:
            rows.append(row("", f"{name}: nothing private"))
            continue
        entry = entries[name]
        bounds = f" ({text})" if (text := figures(sensitivity)) else ""
        rows.append(row("", f"{name}: gradient {_bounded(entry)}; noise: {entry.noise}{bounds}"))
    return [*([row("sensitivity", argument(known))] if known else []), *_shortened(rows)]


def _bounded(entry: AgentGuarantee) -> str:
    if math.isinf(entry.sensitivity):
        return f"l{entry.norm} bounded at each point, not over the whole set"
    return f"l{entry.norm} {'=' if entry.tight else '<='} {entry.sensitivity:.6g}"


def _shortened(rows: list[str]) -> list[str]:
    if len(rows) <= LISTED:
        return rows
    return [*rows[:LISTED], row("", f"... and {len(rows) - LISTED} more agents")]


def row(label: str, text: str) -> str:
    """A labelled paragraph; lines below the first are indented."""
    first = f"{label + ':' if label else '':<{_LABEL}}"
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * _LABEL)


def count(number: int, noun: str) -> str:
    """Such as ``1 agent`` or ``2 agents``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
