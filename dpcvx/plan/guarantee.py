"""Texts of a privacy guarantee: the numbers, and all that they depend on."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .._figure import card
from .._words import SHOWN, Named, at_most, marked, named, number, paragraph, together
from ..privacy.last_iterate import Amplification
from ..privacy.split_noise import coalition

# Two less than the banner's width, because the banner indents the text.
_WIDTH = 78
_LABEL = 13

Kind = Literal["worst-case", "asserted", "none"]

OBSERVER = (
    "the server and all other agents, even if they collude and see every value that the agent "
    "releases"
)
# Assumptions of a run without a ledger, and of a run with one.
ALONE = (
    "This total is for this run alone. Earlier and later runs on the same data add to it; pass "
    "ledger= to have them counted."
)
COUNTED = (
    "This total is for this run alone. The ledger adds up the runs that it was passed to, and "
    "knows of no others on the same data."
)
SEEDED = (
    "Reproducible: not for release. Anyone who knows the seed can subtract the noise, and all runs "
    "of this plan with this seed have the same noise."
)


@dataclass(frozen=True)
class Claim:
    """A privacy loss that a paper claims without a valid proof; see docs/privacy/errata.md."""

    epsilon: float
    delta: float
    source: str


@dataclass(frozen=True)
class Change:
    """One kind of change of an agent's data; data before and after it are neighboring data sets.

    Attributes
    ----------
    what : str
        Description of the change, such as "one entry changes by at most 0.1".
    objects : tuple of str
        Private objects that change together: one object, or several that hold parts of a record.
    where : str
        Names of the changed objects, as text.
    record : str or None
        Label of what a row describes, such as "patient"; None if rows are not records.
    """

    what: str
    objects: tuple[str, ...]
    where: str
    record: str | None = None

    @property
    def names(self) -> list[Named]:
        """Names of the objects and of the record, as they occur in `what` and `where`."""
        people = [] if self.record is None else [Named("one ", self.record, " (", "of ")]
        return [*(Named("", f"'{name}'") for name in self.objects), *people]


@dataclass(frozen=True)
class AgentGuarantee:
    """Guarantee for one agent's data.

    Attributes
    ----------
    agent : str
        Name of the agent.
    adjacency : dict of str to str
        Neighboring relation of each private object, as text.
    changes : tuple of Change
        Kinds of changes; objects within one of them change together. Neighboring data differ by one
        of these changes. If the agent is in a group, they may also differ in data of other agents
        of the group.
    epsilon : float
        Epsilon for this agent's data, at the guarantee's delta.
    norm : int
        Order of the norm of the sensitivity: 1 or 2, by the agent's mechanism.
    sensitivity : float
        Sensitivity, in this norm and in the units of what it belongs to: the agent's gradient, or
        the released statistic if the server solves the model as written. Infinite if a bound of the
        gradient exists only at each single point.
    tight : bool
        Whether some pair of neighboring data attains the sensitivity.
    certificate : {"derived", "asserted"}
        Origin of the sensitivity.
    scale : float
        Noise scale per component of a release, in the units of the released values. Infinite if it
        differs between releases. If data are released once, these units can differ from the units
        of `sensitivity` and of the data, so do not divide the two. `noise` states the scale in the
        model's units.
    noise : str
        Description of the noise.
    releases : int
        Planned number of releases.
    independent : tuple of str
        Private objects on which the gradient does not depend, so that no release depends on them.
    """

    agent: str
    adjacency: Mapping[str, str]
    changes: tuple[Change, ...]
    epsilon: float
    norm: int
    sensitivity: float
    tight: bool
    certificate: Literal["derived", "asserted"]
    scale: float
    noise: str
    releases: int
    independent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Guarantee:
    """An (epsilon, delta)-differential-privacy guarantee with its assumptions.

    Attributes
    ----------
    kind : {"worst-case", "asserted", "none"}
        Kind of the guarantee. "asserted" holds if a user-supplied bound is true. "none" is no
        guarantee: noise is off, or there are no private data.
    epsilon, delta : float
        Guarantee for the data of each agent, or of one person in all agents of a group. It is not a
        sum over agents, because their data compose in parallel. If agents have different epsilons,
        `epsilon` is the largest.
    rho : float
        Parameter of zero-concentrated differential privacy (zCDP) of all releases of the run.
    mechanism, accountant, observer : str
        Noise, accounting rule and observer, as text.
    certificate : {"derived", "asserted", "none"}
        Origin of the sensitivities; "asserted" if the user supplied one of them.
    agents : tuple of AgentGuarantee
        Guarantee for each agent's data.
    groups : tuple of tuple of str
        Groups of agents that may hold one person's data.
    assumptions : tuple of str
        Assumptions of the guarantee, as text.
    claimed_by_paper : Claim or None
        Privacy loss that the method's paper claims for these releases; it is not a proved bound.
    amplification : Amplification or None
        Epsilon of every user with an explanation, if the observer does not see every release.
    kept : str
        Promise on constraints with private data (chance constraints), as text; empty without any.
    max_colluders : int or None
        Collusion threshold: other agents that may collude with the server; None for any number.
    against_all_others : float or None
        Largest epsilon at the same delta against all other agents together; None if it is equal.
    """

    kind: Kind
    epsilon: float
    delta: float
    rho: float
    mechanism: str
    accountant: str
    observer: str
    certificate: Literal["derived", "asserted", "none"]
    agents: tuple[AgentGuarantee, ...]
    groups: tuple[tuple[str, ...], ...]
    assumptions: tuple[str, ...]
    claimed_by_paper: Claim | None
    amplification: Amplification | None = None
    kept: str = ""
    max_colluders: int | None = None
    against_all_others: float | None = None

    @property
    def headline(self) -> str:
        """The guarantee in one line: epsilon and delta, with all restrictions on them."""
        if self.kind == "none":
            return f"no guarantee: {self.mechanism}"
        whose = "one agent's data"
        if self.groups:
            whose += ", or in that of all agents of a group at once"
        sort = "worst case" if self.kind == "worst-case" else "ASSERTED, not proved"
        seeded = ", if the seed stays secret: not for release" if SEEDED in self.assumptions else ""
        budget = f"({at_most(self.epsilon)}, {at_most(self.delta)})-DP"
        if self.max_colluders is not None and self.against_all_others is not None:
            budget += (
                f" against {coalition(self.max_colluders)}, ({at_most(self.against_all_others)}, "
                f"{at_most(self.delta)})-DP against all other agents together,"
            )
        return f"{budget} for one change in {whose}, {sort}{seeded}"

    def __repr__(self) -> str:
        return f"<Guarantee: {self.headline}>"

    @property
    def short(self) -> tuple[tuple[str, str], ...]:
        """Privacy unit, observer and noise, as labels and texts; empty without a guarantee."""
        if self.kind == "none":
            return ()
        return (
            ("unit", self._units),
            ("against", self.observer),
            ("noise", self.mechanism),
            ("sensitivity", CERTIFICATES[self.certificate] + self._independent),
        )

    def _repr_html_(self) -> str:
        return card(self, self.short)

    def __str__(self) -> str:
        if self.kind == "none":
            return self.headline
        rows = [*self.terms, ("sensitivity", CERTIFICATES[self.certificate] + self._independent)]
        lines = [textwrap.fill(self.headline, _WIDTH), *(_row(label, text) for label, text in rows)]
        labels = ["assumptions", *([""] * (len(self.assumptions) - 1))]
        for label, text in zip(labels, self.assumptions, strict=True):
            lines.append(_row(f"{label:<{_LABEL}}- ", text))
        return "\n".join(lines)

    @property
    def terms(self) -> list[tuple[str, str]]:
        """Labels and texts that explain the guarantee's numbers; empty without a guarantee."""
        if self.kind == "none":
            return []
        rows = [
            ("unit", f"one change: {self._units}"),
            ("against", self.observer),
            ("noise", self.mechanism),
            ("accounting", self.accountant + self._concentrated),
        ]
        if self.kept:
            rows.append(("promise", self.kept))
        budgets = {f"{agent.epsilon:.5g}" for agent in self.agents}
        if self.amplification is None and len(budgets) > 1:
            rows.insert(1, ("by agent", self._by_agent))
        if self.amplification is not None:
            rows.insert(4, ("amplified", str(self.amplification)))
        if self.groups:
            members = "; ".join(together(group) for group in self.groups)
            rows.insert(1, ("groups", members))
        if self.claimed_by_paper is not None:
            claim = self.claimed_by_paper
            rows.append(
                (
                    "claim",
                    f"{claim.source} claims ({number(claim.epsilon)}, {number(claim.delta)}); that "
                    "is not a bound (docs/privacy/errata.md)",
                )
            )
        return rows

    @property
    def _units(self) -> str:
        """Text on one change: in the data of one agent, or of all agents of a group at once."""
        grouped = [[a for a in self.agents if a.agent in group] for group in self.groups]
        grouped = [members for members in grouped if len(members) > 1]
        inside = {a.agent for members in grouped for a in members}
        units = [
            "at once " + ", and ".join(f"{_one_of(a.changes)} of '{a.agent}'" for a in members)
            for members in grouped
        ]
        alone = [change for a in self.agents if a.agent not in inside for change in a.changes]
        return "; or ".join([*units, *_merged(alone)])

    @property
    def _by_agent(self) -> str:
        grouped: dict[str, list[str]] = {}
        for agent in sorted(self.agents, key=lambda agent: -agent.epsilon):
            grouped.setdefault(at_most(agent.epsilon), []).append(f"'{agent.agent}'")
        return together([f"epsilon {most} for {together(who)}" for most, who in grouped.items()])

    @property
    def _independent(self) -> str:
        parts = [
            f"; the gradient of '{agent.agent}' does not depend on "
            + together([f"'{name}'" for name in agent.independent], "or")
            for agent in self.agents
            if agent.independent
        ]
        return "".join(parts)

    @property
    def _concentrated(self) -> str:
        return f"; {at_most(self.rho)}-zCDP" if math.isfinite(self.rho) else ""


CERTIFICATES = {
    "derived": "derived from the model",
    "asserted": "asserted by the user, at least in part",
    "none": "none",
}


def _merged(kinds: Sequence[Change]) -> list[str]:
    """Return one text per kind of change, with the names of all changed objects."""
    grouped: dict[str, list[Change]] = {}
    for change in kinds:
        text = marked(f"{change.what} in {change.where}", change.names)
        grouped.setdefault(text, []).append(change)
    many = {text: some for text, some in grouped.items() if len(some) > SHOWN}
    places: dict[str, list[str]] = {}
    for change in (
        change_ for text, some in grouped.items() if text not in many for change_ in some
    ):
        places.setdefault(change.what, []).append(change.where)
    said = [named(text, [_each(change) for change in some]) for text, some in many.items()]
    return said + [
        f"{what} in {'one of ' if len(where) > 1 else ''}{together(where)}"
        for what, where in places.items()
    ]


def _each(change: Change) -> list[Named]:
    """Return the names in a change, for a text on many changes of the same kind."""
    first, *others = change.names
    parts = len(change.objects) - 1
    held = [name._replace(before="its own of ") for name in others[:parts]]
    return [first._replace(before="one of "), *held, *others[parts:]]


def _one_of(kinds: Sequence[Change]) -> str:
    merged = _merged(kinds)
    return merged[0] if len(kinds) == 1 else f"[{'; or '.join(merged)}]"


def no_guarantee(reason: str) -> Guarantee:
    """Return the guarantee object that states the lack of a guarantee, with its reason."""
    return Guarantee(
        "none", math.inf, 0.0, math.inf, reason, "none", OBSERVER, "none", (), (), (), None
    )


def _row(label: str, text: str) -> str:
    """Return a labeled paragraph, or a list item, with a hanging indent."""
    return paragraph(f"{label:<{_LABEL}}", text, _WIDTH)
