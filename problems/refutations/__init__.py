"""Statements of papers that do not hold: counterexamples with all hypotheses, checked by code.

A `Refutation` cannot be made unless every hypothesis of the paper's statement holds at its numbers,
and the computed value contradicts the statement. Its text prints hypotheses and values, so that
readers can check that the paper's statement covers these numbers. Each paper has a module::

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
        Text of the condition with its numbers.
    holds : bool
        Whether the condition holds.
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
        The number.
    limit_name : str
        Name of the other number; empty to write only its value.
    limit : float
        The other number.
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
    """A statement of a paper, a case that it covers, and the true value in this case.

    Parameters
    ----------
    claim : str
        Name of the statement, with the numbers of the case.
    hypotheses : tuple of Hypothesis
        All conditions of the statement.
    stated : str
        Text of the statement, which ends before its value.
    stated_value : float
        Value in the statement.
    computed : str
        Name of the computed quantity.
    computed_value : float
        Value of the computed quantity.
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
        Key of `PAPERS`.
    """
    module = import_module(f".{PAPERS[paper]}", __name__)
    return tuple(module.all_of_them())
