"""Statements of the papers that do not hold, with their hypotheses, checked by the same code.

A `Refutation` cannot be made unless every hypothesis of the paper's statement holds at its numbers,
and unless what is computed contradicts what is stated. Its text prints both, so that readers can
check that the paper's statement is about these numbers. One module a paper::

    python -m problems.refutations
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from importlib import import_module

from dpcvx.errors import ModelError


@dataclass(frozen=True)
class Hypothesis:
    """A condition of a statement, at the numbers of a refutation.

    Attributes
    ----------
    text : str
        The condition with its numbers.
    holds : bool
    """

    text: str
    holds: bool


def less(name: str, value: float, limit_name: str, limit: float) -> Hypothesis:
    """Return the hypothesis that a number is less than another.

    Parameters
    ----------
    name : str
        Name of the number, as in the paper.
    value : float
    limit_name : str
        Name of the other number; empty if the number says it.
    limit : float
    """
    middle = f" < {limit_name} = " if limit_name else " < "
    return Hypothesis(f"{name} = {value:.4g}{middle}{limit:.4g}", bool(value < limit))


def close(name: str, value: float, limit: float) -> Hypothesis:
    """Return the hypothesis that a number equals the paper's value, up to rounding errors."""
    return Hypothesis(
        f"{name} = {limit:.4g}", bool(abs(value - limit) <= 1e-9 * max(1, abs(limit)))
    )


@dataclass(frozen=True)
class Refutation:
    """A statement of a paper, a case that it covers, and what is so in this case.

    Parameters
    ----------
    claim : str
        Which statement of which paper.
    hypotheses : tuple of Hypothesis
        All conditions of the statement.
    stated : str
        Statement of the paper, with its number.
    stated_value : float
    computed : str
        Name of the quantity computed in its place.
    computed_value : float
    above : bool
        Whether the computed value contradicts the stated one by being larger; else by being
        smaller.
    note : str
        Remark in favor of the paper.

    Raises
    ------
    ModelError
        If a hypothesis does not hold, or the computed value does not contradict the stated one.
    """

    claim: str
    hypotheses: tuple[Hypothesis, ...]
    stated: str
    stated_value: float
    computed: str
    computed_value: float
    above: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        broken = [hypothesis.text for hypothesis in self.hypotheses if not hypothesis.holds]
        if broken or not self.hypotheses:
            raise ModelError(
                f"{self.claim} says nothing about this case: "
                f"{'; '.join(broken) or 'no hypothesis'} does not hold. Choose numbers that keep "
                "all hypotheses, since only they can refute it."
            )
        contradicts = (
            self.computed_value > self.stated_value
            if self.above
            else self.computed_value < self.stated_value
        )
        if not contradicts:
            raise ModelError(
                f"{self.claim} stands in this case: stated {self.stated_value:.6g}, computed "
                f"{self.computed_value:.6g}. A refutation needs a case where they contradict."
            )

    def __str__(self) -> str:
        lines = [self.claim, *(_wrapped("holds", h.text) for h in self.hypotheses)]
        lines += [
            _wrapped("stated", f"{self.stated} {self.stated_value:.4g}"),
            _wrapped("computed", f"{self.computed} {self.computed_value:.4g}"),
        ]
        if self.note:
            lines.append(_wrapped("note", self.note))
        return "\n".join(lines)


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(
        text, 100, initial_indent=f"  {head + ':':<10}", subsequent_indent=" " * 12
    )


# Modules by paper.
PAPERS = {
    "Ryu and Kim (2022)": "ryu_kim",
    "Chan, Xie and Zhao (2024)": "chan",
    "Xiao, Ye and Devadas (2019)": "xiao",
    "Ou, Wang, Liu and Lu (2025)": "ou",
    "Dvorkin et al. (2020, 2021)": "dvorkin",
}


def refutations(paper: str) -> tuple[Refutation, ...]:
    """Return the refutations of a paper.

    Parameters
    ----------
    paper : str
        One of `PAPERS`.
    """
    module = import_module(f".{PAPERS[paper]}", __name__)
    return tuple(module.all_of_them())
