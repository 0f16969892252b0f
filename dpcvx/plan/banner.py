"""A plan in words: problem, algorithm, sensitivity and its derivation, noise, guarantee."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version

from .._words import Named, marked, named, number, paragraph, plural, together
from ..algorithms.base import OUTPUTS
from ..algorithms.program import once_per_kind
from ..model.adjacency import Rows
from ..model.declaration import SLACK, Declaration
from ..sensitivity.argument import argument, figures, moved
from .agent_plan import AgentPlan
from .guarantee import AgentGuarantee, Guarantee
from .limits import margin_rows
from .terms import Terms

WIDTH = 80
_LABEL = 13
# A delta of so many times one over the number of records is remarked upon.
_FEW = 0.1
_DATA_LEAVE = (
    "The data are released once, with noise, and the model reads what was released. So the "
    "declared adjacency alone bounds what one change moves, whatever the model is."
)
# Agents or groups of like agents that are listed one by one.
LISTED = 12


def banner(
    plan: Terms, guarantee: Guarantee, accuracy: str | None = None, first: bool = False
) -> str:
    """The plan in words: problem, algorithm, sensitivity and its derivation, noise, guarantee.

    Parameters
    ----------
    plan : Terms
    guarantee : Guarantee
    accuracy : str, optional
        What is forecast; without, what the plan knows itself.
    first : bool
        Whether that stands above all else.
    """
    accuracy = plan.remarks if accuracy is None else accuracy
    told = [row("accuracy", accuracy)] if accuracy else []
    versions = f"cvxpy {version('cvxpy')}, clarabel {version('clarabel')}"
    unread = " (fixed by the plan; no private data was used to make it)" if plan.noisy else ""
    return "\n".join(
        [
            f"== dpcvx {version('dpcvx')} ({versions}) ".ljust(WIDTH, "="),
            *(told if first else []),
            *_problem_rows(plan),
            *_rows_of("coupling", plan.algorithm.coupling(plan.program)),
            row("algorithm", f"{plan.algorithm}; {plural(plan.rounds, 'round')}"),
            *[row("" if k else "chosen", why) for k, why in enumerate(_choices(plan))],
            *_rows_of("convergence", plan.algorithm.rate(plan.program)),
            *_sensitivity_rows(plan),
            *[
                row("" if k else "margins", text)
                for k, text in enumerate(margin_rows(plan.program) if plan.published else [])
            ],
            *([] if first else told),
            *_delta_rows(plan),
            f"guarantee:{unread}",
            textwrap.indent(str(guarantee), "  "),
            "=" * WIDTH,
        ]
    )


def _choices(plan: Terms) -> list[str]:
    """What the plan chose, and the iterate to report where its method was left to it as well."""
    reasons = [choice.why for choice in plan.choices]
    output = plan.algorithm.returned
    if output is None or plan.published or plan.rounds == 1:
        return reasons
    if all(choice.what != "algorithm" for choice in plan.choices):
        return reasons
    found = f"what is returned is the {OUTPUTS[output]}: predicted to end nearest to the optimum"
    return [*reasons, found]


def _problem_rows(plan: Terms) -> list[str]:
    program = plan.program
    local = sum(a.n - a.shared.size for a in program.agents)
    agents = plural(sum(a.name != SLACK for a in program.agents), "agent")
    shared = plural(program.size, "shared component")
    sets = [
        (
            agent.name,
            f"{plural(agent.n, 'variable')} ({agent.shared.size} shared), "
            f"set: {agent.set_description}"
            if agent.name != SLACK
            else f"{plural(agent.n, 'variable')} of the package's own, what the inequalities in "
            "coupling= leave over",
            (),
        )
        for agent in program.agents
    ]
    first = row("problem", f"{agents}, {shared}, {local} local")
    return [first, *_by_agent(sets), *own_rows(plan.problem)]


def own_rows(problem: Declaration) -> list[str]:
    """Which agents have ``recourse=``, and what keeps it."""
    pairs = problem.named.items()
    deciding = [name for name, agent in pairs if agent.recourse]
    if not deciding:
        return []
    return [row("", f"only result.recourse(...) keeps the recourse= of {together(deciding)}")]


def _delta_rows(plan: Terms) -> list[str]:
    """A remark where delta is not small beside one over the number of an agent's records."""
    records = [
        (spec.shape[0], spec.name)
        for agent in plan.agents
        if agent.price is not None
        for spec in agent.program.form.private
        if isinstance(spec.adjacency, Rows)
    ]
    count, name = max(records, default=(0, ""))
    delta = plan.guarantee.delta if plan.noisy else 0.0
    if delta * count < _FEW:
        return []
    return [
        row(
            "delta",
            f"{number(delta)} is not small beside 1/n = {number(1 / count)}, with n = {count} "
            f"records in '{name}'. A release that shows each record in full with probability delta "
            f"would keep the guarantee too. Choose a delta far below 1/n, such as "
            f"delta={number(10.0 ** math.floor(math.log10(0.01 / count)))}",
        )
    ]


def _rows_of(name: str, text: str | None) -> list[str]:
    return [] if text is None else [row(name, text)]


def _sensitivity_rows(plan: Terms) -> list[str]:
    if not plan.noisy:
        return []
    known = [agent.sensitivity for agent in plan.agents if agent.sensitivity is not None]
    entries = {entry.agent: entry for entry in plan.guarantee.agents}
    # Some figures take milliseconds, and agents are often alike.
    texts = once_per_kind(
        plan.agents, lambda agent: marked(_bounded(agent, entries), _names(agent))
    )
    if plan.program.model is not None:
        known, why = [], _DATA_LEAVE
    else:
        why = argument(known) if known else ""
    pairs = zip(plan.agents, texts, strict=True)
    bounds = [(agent.name, text, _names(agent)) for agent, text in pairs]
    return [*([row("sensitivity", why)] if why else []), *_by_agent(bounds)]


def _bounded(agent: AgentPlan, entries: Mapping[str, AgentGuarantee]) -> str:
    """How far one change moves the agent's gradient, and what noise hides it."""
    if agent.sensitivity is None:
        return "nothing private"
    entry = entries[agent.name]
    derived = f" ({why})" if (why := figures(agent.sensitivity)) else ""
    bounded = "its constraints contain private data, which leave with noise"
    if agent.program.as_written:
        bounded, derived = "its data are released with noise", ""
    elif entry.sensitivity > 0 or not entry.releases:
        bounded = moved(agent.sensitivity, entry.norm, agent.program.start)
    return f"{bounded}; noise: {entry.noise}{derived}"


def _names(agent: AgentPlan) -> list[Named]:
    """What names the agent's private objects, and what their rows stand for."""
    specs = () if agent.sensitivity is None else agent.sensitivity.private
    kinds = [spec.adjacency for spec in specs]
    people = dict.fromkeys(one.label for one in kinds if isinstance(one, Rows))
    objects = [Named("", f"'{spec.name}'") for spec in specs]
    return [*objects, *(Named("one ", label, " (", "of ") for label in people)]


def _by_agent(said: Iterable[tuple[str, str, Sequence[Named]]]) -> list[str]:
    """What is said of each agent, once for all of whom the same is true.

    Of each: its name, the text with places for what may differ, and what stands there.
    """
    alike: dict[str, tuple[list[str], list[Sequence[Named]]]] = {}
    for agent, text, names in said:
        agents, others = alike.setdefault(text, ([], []))
        agents.append(agent)
        others.append(names)
    rows = []
    for text, (agents, others) in alike.items():
        each = ", each" if len(agents) > 1 else ""
        rows.append(row("", f"{together(agents)}{each}: {named(text, others)}"))
    if len(rows) <= LISTED:
        return rows
    more = sum(len(agents) for agents, _ in list(alike.values())[LISTED:])
    return [*rows[:LISTED], row("", f"... and {plural(more, 'more agent')}")]


def row(label: str, text: str) -> str:
    """A labeled paragraph; lines below the first are indented."""
    return paragraph(f"{label + ':' if label else '':<{_LABEL}}", text, WIDTH)
