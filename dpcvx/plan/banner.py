"""Texts of a plan: its summary, and the derivation of its guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

from .._words import Named, at_least, at_most, marked, named, number, paragraph, plural, together
from ..algorithms.base import OUTPUTS
from ..algorithms.program import once_per_kind
from ..model.adjacency import Rows, Within
from ..model.declaration import SLACK, Declaration
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.norms import ball_norm, row_norms
from ..sensitivity.second_moments import Moments
from .agent_plan import AgentPlan
from .guarantee import CERTIFICATES, AgentGuarantee, Guarantee
from .limits import margin_rows
from .terms import Terms

WIDTH = 80
LABEL = 13
# A remark follows if delta exceeds this factor over the number of records.
_FEW = 0.1
# A remark follows if delta reaches this value and the data are not records.
_LARGE = 0.01
_DATA_LEAVE = (
    "The data are released once, with noise, and the model reads what was released. So the "
    "declared adjacency alone bounds what one change moves, whatever the model is."
)
# Largest number of agents, or groups of equal agents, that are listed one by one.
LISTED = 12


def banner(
    plan: Terms, guarantee: Guarantee, accuracy: str | None = None, first: bool = False
) -> str:
    """Return a plan as text: privacy, accuracy, method, agents.

    Parameters
    ----------
    plan : Terms
        Plan to describe.
    guarantee : Guarantee
        Guarantee of the plan, or of a run.
    accuracy : str, optional
        Text on the predicted accuracy; by default, the plan's remarks.
    first : bool
        Whether the accuracy is the first row.
    """
    accuracy = plan.remarks if accuracy is None else accuracy
    told = [row("Accuracy", accuracy)] if accuracy else []
    agents = plural(sum(a.name != SLACK for a in plan.program.agents), "agent")
    method = type(plan.algorithm).__name__
    return "\n".join(
        [
            f"dpcvx plan: {method}, {agents}, {plural(plan.rounds, 'round')}",
            *(told if first else []),
            row("Privacy", guarantee.headline),
            *[row(f"  {label}", text) for label, text in guarantee.terms],
            *_delta_rows(plan),
            *([] if first else told),
            *_labeled("Margins", margin_rows(plan.program) if plan.published else []),
            row("Method", str(plan.algorithm)),
            *_labeled("", [rate] if (rate := plan.algorithm.rate(plan.program)) else []),
            *_labeled("Why", _choices(plan)),
            *_problem_rows(plan),
            *_pointers(plan, guarantee),
        ]
    )


def derivation(plan: Terms) -> str:
    """Return a text on the derivation: why the change of released values has a bound."""
    versions = f"cvxpy {version('cvxpy')}, clarabel {version('clarabel')}"
    return "\n".join(
        [
            f"dpcvx derivation (dpcvx {version('dpcvx')}, {versions})",
            *_sensitivity_rows(plan),
            row("Sets", "entries of the agents' variables, by the kind of their set"),
            *_by_agent(
                (agent.name, agent.set_description, ())
                for agent in plan.program.agents
                if agent.name != SLACK
            ),
        ]
    )


def _pointers(plan: Terms, guarantee: Guarantee) -> list[str]:
    """Return the last lines: number of assumptions, derivation, and that no data were read."""
    if not plan.noisy:
        return []
    hold = plural(len(guarantee.assumptions), "assumption")
    whose = "plan" if guarantee == plan.guarantee else "result"
    return [
        row(
            "Valid if",
            f"{hold} {'holds' if len(guarantee.assumptions) == 1 else 'hold'}: "
            f"print({whose}.guarantee)",
        ),
        row("Derivation", f"{CERTIFICATES[guarantee.certificate]}: print(plan.derivation)"),
        "The plan was made without private data.",
    ]


def _choices(plan: Terms) -> list[str]:
    """Return the reasons for the plan's choices, and for the returned iterate."""
    reasons = [choice.why for choice in plan.choices]
    output = plan.algorithm.returned
    if output is None or plan.published or plan.rounds == 1:
        return reasons
    if all(choice.what != "algorithm" for choice in plan.choices):
        return reasons
    reason = f"what is returned is the {OUTPUTS[output]}: predicted to end nearest to the optimum"
    return [*reasons, reason]


def _problem_rows(plan: Terms) -> list[str]:
    """Return lines on the numbers of variables, and on the releases of each agent."""
    program = plan.program
    entries = {entry.agent: entry for entry in plan.guarantee.agents}
    local = sum(a.n - a.shared.size for a in program.agents)
    # Some of these texts take milliseconds to compute, and agents are often equal.
    texts = once_per_kind(
        plan.agents, lambda agent: marked(_protected(agent, entries), _names(agent))
    )
    told = [
        (
            agent.name,
            f"{plural(agent.program.n, 'variable')} ({agent.program.shared.size} shared)"
            + (f"; {text}" if plan.noisy else "")
            if agent.name != SLACK
            else f"{plural(agent.program.n, 'variable')} of the package's own, what the "
            "inequalities in coupling= leave over",
            _names(agent) if plan.noisy else (),
        )
        for agent, text in zip(plan.agents, texts, strict=True)
    ]
    sizes = f"{_entries(program.size, 'shared')}, {local} local"
    coupling = plan.algorithm.coupling(program)
    return [
        row("Problem", f"{sizes}; {coupling}" if coupling else sizes),
        *_by_agent(told),
        *own_rows(plan.problem),
    ]


def _entries(count: int, which: str) -> str:
    return f"{count} {which} {'entry' if count == 1 else 'entries'}"


def _protected(agent: AgentPlan, entries: Mapping[str, AgentGuarantee]) -> str:
    """Return a text on an agent's noise, and the sensitivity that determines its scale."""
    entry = entries.get(agent.name)
    if agent.sensitivity is None or entry is None:
        return "no private data"
    if agent.program.as_written:
        moments = agent.publication if isinstance(agent.publication, Moments) else None
        what = "its data are" if moments is None else "second moments of its records are"
        bounded = f"; {what} released with noise"
    elif agent.publication is not None and entry.sensitivity > 0:
        bounded = f"; {agent.publication.moved(entry.norm)}"
    elif entry.sensitivity > 0 or not entry.releases:
        bounded = f"; {moved(agent.sensitivity, entry.norm, agent.program.start)}"
    else:
        bounded = "; its constraints contain private data, which are released with noise"
    return f"noise: {entry.noise}{bounded}"


def own_rows(problem: Declaration) -> list[str]:
    """Return a line on agents with ``recourse=``, if there are any."""
    pairs = problem.named.items()
    deciding = [name for name, agent in pairs if agent.recourse]
    if not deciding:
        return []
    return [row("", f"only result.recourse(...) keeps the recourse= of {together(deciding)}")]


def _delta_rows(plan: Terms) -> list[str]:
    """Return a remark if delta is large, compared with 1 / (number of records) if any."""
    records = [
        (spec.shape[0], spec.name)
        for agent in plan.agents
        if agent.price is not None
        for spec in agent.program.form.private
        if isinstance(spec.adjacency, Rows)
    ]
    count, name = max(records, default=(0, ""))
    delta = plan.guarantee.delta if plan.noisy else 0.0
    if not records and delta >= _LARGE:
        return [
            row(
                "  delta",
                f"{number(delta)} is large: a release that shows all data in full with that "
                "probability would keep the guarantee too. Choose a far smaller one, such as "
                "delta=1e-6",
            )
        ]
    if delta * count < _FEW:
        return []
    return [
        row(
            "  delta",
            f"{number(delta)} is not small beside 1/n = {number(1 / count)}, with n = {count} "
            f"records in '{name}'. A release that shows each record in full with probability delta "
            f"would keep the guarantee too. Choose a delta far below 1/n, such as "
            f"delta={number(10.0 ** math.floor(math.log10(0.01 / count)))}",
        )
    ]


def _labeled(label: str, texts: Sequence[str]) -> list[str]:
    return [row("" if k else label, text) for k, text in enumerate(texts)]


def _sensitivity_rows(plan: Terms) -> list[str]:
    if not plan.noisy:
        return [row("Sensitivity", "not needed: the plan adds no noise")]
    derived = [agent.sensitivity for agent in plan.agents if agent.sensitivity is not None]
    why = argument(derived) if derived else ""
    if plan.program.model is not None:
        why = _DATA_LEAVE
    entries = {entry.agent: entry for entry in plan.guarantee.agents}
    texts = once_per_kind(
        plan.agents, lambda agent: marked(_bounded(agent, entries), _names(agent))
    )
    pairs = zip(plan.agents, texts, strict=True)
    return [
        row("Sensitivity", why),
        *_by_agent((agent.name, text, _names(agent)) for agent, text in pairs),
    ]


def _bounded(agent: AgentPlan, entries: Mapping[str, AgentGuarantee]) -> str:
    """Return a text on an agent's sensitivities: of its gradient, and of its one-time release."""
    if agent.sensitivity is None:
        return "no private data"
    entry = entries[agent.name]
    said = [] if agent.program.as_written else [figures(agent.sensitivity)]
    if agent.publication is not None:
        said.append(agent.publication.moved(entry.norm))
    term = None if agent.noise is None else agent.noise.linear
    if term is not None:
        gradient = term.sensitivity / term.scale
        rest = term.epsilon - gradient - term.covering
        said.append(
            f"of epsilon {at_most(term.epsilon)}, {at_most(gradient)} covers the change of the "
            f"gradient, {at_most(rest)} that of the curvature (the rest of the objective has "
            f"strong convexity {at_least(term.convexity)}), and {at_most(term.covering)} the error "
            "of the minimizer"
        )
    return "; ".join(filter(None, said)) or "nothing that is released depends on its data"


def _names(agent: AgentPlan) -> list[Named]:
    """Return the names of the agent's private objects and the labels of their rows."""
    specs = () if agent.sensitivity is None else agent.sensitivity.private
    kinds = [spec.adjacency for spec in specs]
    people = dict.fromkeys(kind.label for kind in kinds if isinstance(kind, Rows))
    objects = [Named("", f"'{spec.name}'") for spec in specs]
    return [*objects, *(Named("one ", label, " (", "of ") for label in people)]


def _by_agent(said: Iterable[tuple[str, str, Sequence[Named]]]) -> list[str]:
    """Return lines on agents; agents with equal text share one line.

    `said` contains a triple for each agent: its name, a text with marks in place of names that
    differ between agents, and these names.
    """
    grouped: dict[tuple[str, int], tuple[list[str], list[Sequence[Named]]]] = {}
    for agent, text, names in said:
        agents, others = grouped.setdefault((text, len(names)), ([], []))
        agents.append(agent)
        others.append(names)
    rows = []
    for (text, _), (agents, others) in grouped.items():
        each = ", each" if len(agents) > 1 else ""
        rows.append(row("", f"{together(agents)}{each}: {named(text, others)}"))
    if len(rows) <= LISTED:
        return rows
    more = sum(len(agents) for agents, _ in list(grouped.values())[LISTED:])
    return [*rows[:LISTED], row("", f"... and {plural(more, 'more agent')}")]


def row(label: str, text: str) -> str:
    """Return a labeled paragraph with a hanging indent."""
    return paragraph(f"{label:<{LABEL}}", text, WIDTH)


def argument(sensitivities: Sequence[Sensitivity]) -> str:
    """Return a text on the reasons why neighboring data change gradients by bounded amounts."""
    parts = []
    derived = [sensitivity for sensitivity in sensitivities if sensitivity.asserted is None]
    if len(derived) < len(sensitivities):
        parts.append(
            "The bound is asserted by the user, not derived: the guarantee is as good as that "
            "claim."
        )
    if terms := _once(name for sensitivity in derived for name in sensitivity.terms):
        parts.append(
            f"Private data and variables meet in {terms} of affine arguments, so the gradient "
            "depends linearly on the data: grad = h(x) + J d. Changing the data moves it by J "
            "times the change, at every x."
        )
    weighing = (sensitivity.weights for sensitivity in derived if sensitivity.weights is not None)
    if terms := _once(name for weights in weighing for name in weights.names):
        parts.append(
            f"Private data weigh public functions of x ({terms}), so the gradient depends linearly "
            "on them: grad = h(x) + J(x) d. Changing them moves it by J(x) times the change, with "
            "J at the point of each step."
        )
    enters: dict[str, tuple[list[str], list[str]]] = {}  # by reason of a bound: records, atoms
    once: dict[int, list[str]] = {}  # by id of shared bounds: texts may take milliseconds
    for sensitivity in derived:
        if id(sensitivity.bounds) not in once:
            once[id(sensitivity.bounds)] = [
                _bounded_by(sensitivity, k) for k in range(len(sensitivity.records))
            ]
        for reason, task in zip(once[id(sensitivity.bounds)], sensitivity.records, strict=True):
            labels, atoms = enters.setdefault(reason, ([], []))
            labels.append(sensitivity.adjacency_of(task).label)
            atoms.extend(task.names)
    for reason, (labels, atoms) in enters.items():
        each = "Each of" if len(set(labels)) > 1 else "Each"
        said = f"{each} {_once(labels)} contributes a term of its own, through {_once(atoms)}."
        parts.append(f"{said} {reason}")
    if names := _once((f"'{n}'" for sensitivity in derived for n in sensitivity.independent), "or"):
        parts.append(
            f"The gradient does not depend on {names}: no term of the objective holds it together "
            "with a variable."
        )
    return " ".join(parts) or "The objective holds nothing private."


def moved(sensitivity: Sensitivity, p: int, start: NDArray[np.float64]) -> str:
    """Return a text on the bound of the gradient's change between neighboring data.

    Parameters
    ----------
    sensitivity : Sensitivity
        Sensitivity of the agent's gradient.
    p : {1, 2}
        Order of the mechanism's norm.
    start : ndarray, shape (n,)
        Initial point, for a bound at this point if no bound holds at all points.
    """
    bound = sensitivity.bound(p)
    if bound.value < math.inf:
        attained = " (attained)" if bound.tight else ""
        return f"one change moves the gradient by at most {at_most(bound.value)} in l{p}{attained}"
    return (
        "one change moves the gradient by at most "
        f"{at_most(sensitivity.near(p, start))} in l{p} at the start, "
        "and at each later point by a bound that is derived there"
    )


def _bounded_by(sensitivity: Sensitivity, k: int) -> str:
    adjacency = sensitivity.adjacency_of(sensitivity.records[k])
    rows = adjacency.moved_rows(sensitivity.records[k].count)
    several = "" if rows == 1 else f" One person has at most {rows} of them, whose moves add up."
    return _one_bounded_by(sensitivity, k) + several


def _one_bounded_by(sensitivity: Sensitivity, k: int) -> str:
    replaced = sensitivity.adjacency_of(sensitivity.records[k]).relation == "replace_one"
    verb = "replacing" if replaced else "adding or removing"
    if sensitivity.clips:
        task, clip = sensitivity.records[k], sensitivity.clips[k]
        alone = sensitivity.largest_contribution(task)
        length = min(alone, clip.bound)
        change = sensitivity.largest_change(task, 2)
        most = f"at most {'twice ' if change > 1.001 * length else ''}"
        if alone <= clip.bound:
            return (
                f"Its contribution to the gradient has an l2 norm of at most {at_most(alone)}, so "
                f"clip_norm={number(clip.bound)} changes nothing. So {verb} one moves the gradient "
                f"by {most}that."
            )
        return (
            f"Its contribution to the gradient is clipped to l2 norm {at_most(clip.bound)}, so "
            f"{verb} one moves the gradient by {most}that."
        )
    other = "another" if replaced else "a row of zeros"
    return (
        f"{verb[0].upper()}{verb[1:]} one moves the gradient by the difference between its "
        f"contribution and that of {other}, which interval arithmetic bounds for all admissible "
        "data."
    )


def figures(sensitivity: Sensitivity) -> str:
    """Return a text on each private object's influence on the gradient."""
    if sensitivity.asserted is not None:
        return f"claimed: {sensitivity.asserted}"
    lines = []
    for spec, J in zip(sensitivity.private, sensitivity.jacobians, strict=True):
        if J.nnz == 0:
            continue
        adjacency = spec.adjacency
        words = (
            f"'{spec.name}', {adjacency}: J is {J.shape[0]} x {J.shape[1]} with {J.nnz} non-zeros"
        )
        if isinstance(adjacency, Rows):
            l1, l2 = (float(row_norms(J, spec, p).max()) for p in (1, 2))
            lines.append(
                f"{words}, its norm over the change of one row is at most {at_most(l1)} in l1 and "
                f"{at_most(l2)} in l2"
            )
            continue
        values = [ball_norm(J, adjacency.norm, p) for p in (1, 2)]
        l1, l2 = (
            f"{at_most(bound.value * adjacency.radius)} in l{p}"
            f"{'' if bound.tight else ' (upper bound)'}"
            for p, bound in zip((1, 2), values, strict=True)
        )
        lines.append(f"{words}, {_norm_in_words(adjacency)} times the radius is {l1} and {l2}")
    for task in sensitivity.records:
        told: dict[str, list[str]] = {}  # members of one record may have bounds of their own
        for k in task.members:
            spec = sensitivity.private[k]
            told.setdefault(str(spec.adjacency), []).append(f"'{spec.name}'")
        records = " and ".join(f"{_once(names)}, {words}" for words, names in told.items())
        l1, l2 = (sensitivity.largest_change(task, p) for p in (1, 2))
        each = " each" if sensitivity.adjacency_of(task).moved_rows(task.count) > 1 else ""
        bounds = f"at most {at_most(l1)} in l1 and {at_most(l2)} in l2{each} over the agent's set"
        if not np.isfinite([l1, l2]).all():
            bounds = "each point of the agent's set has a bound of its own"
        lines.append(f"{records}: {task.count} records, {bounds}")
    return "; ".join(lines)


def _norm_in_words(adjacency: Within) -> str:
    if adjacency.norm in ("entry", 1):
        return "its largest column norm"
    if adjacency.norm == 2:
        return "its norm over the l2 ball"
    return "its norm over the box of worst signs"


def _once(names: Iterable[str], word: str = "and") -> str:
    """Return distinct names as text, as in ``a, b and c``; empty if there are none."""
    distinct = list(dict.fromkeys(names))
    return together(distinct, word) if distinct else ""
