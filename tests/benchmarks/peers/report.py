"""Tables as text; the same text stands in docs/benchmarks/peers.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from . import features
from .convergence import TOLERANCE, Row
from .privacy import DELTA, EPSILON, LONG, Line

WORDS = {"Y": "Y", "~": "partial", "-": "-"}


def feature_table() -> str:
    """One line per feature, one column per package."""
    names = [package.name for package in features.PACKAGES]
    wide = max(map(len, features.FEATURES))
    found = [f"{'':<{wide}}" + "".join(f"{name:>9}" for name in names)]
    for feature, marks in features.FEATURES.items():
        cells = "".join(f"{WORDS[mark]:>9}" for mark in marks.split())
        found.append(f"{feature:<{wide}}{cells}")
    found += [f"{p.name} {p.version} ({p.released}): {p.status}" for p in features.PACKAGES]
    return "\n".join([*found, *features.NOTES])


def convergence_table(title: str, rows: Sequence[Row], base: str) -> str:
    """Rounds, times and errors; ratios to the row called `base`."""
    ours = next((row for row in rows if row.peer == base and not row.missing), None)
    found = [
        f"{title}: relative gap and violation below {TOLERANCE:g} after so many rounds",
        f"{'':<29}{'rho':>5}{'rounds':>8}{'seconds':>9}{'ratio':>7}{'ms/round':>10}{'ratio':>7}"
        f"{'gap':>9}{'violation':>10}{'apart':>9}{'ran':>5}",
    ]
    for row in rows:
        if row.missing:
            found.append(f"{row.peer:<29}{row.missing}")
            continue
        rounds = "-" if row.rounds is None else str(row.rounds)
        rho = "" if math.isnan(row.rho) else f"{row.rho:g}"
        found.append(
            f"{row.peer:<29}{rho:>5}{rounds:>8}{row.seconds:>9.3g}"
            f"{ratio(row.seconds, ours and ours.seconds):>7}"
            f"{blank(1e3 * row.per_round):>10}{ratio(row.per_round, ours and ours.per_round):>7}"
            f"{row.gap:>9.1e}{row.violation:>10.1e}{row.spread:>9.1e}{row.ran:>5}"
        )
    found += [f"  {row.peer}: {row.note}" for row in rows if row.note]
    return "\n".join(found)


def versions(rows: Sequence[Row]) -> str:
    """Versions that ran."""
    return "\n".join(f"  {row.peer}: {row.versions}" for row in rows if row.versions)


def privacy_table(lines: Sequence[Line], seeds: int, nothing: float) -> str:
    """What is promised, what it is in total, and the relative gaps."""
    found = [
        f"Relative gap over {seeds} seeds (not private: computed on the data); answering 0 has "
        f"{nothing:.3g}.",
        f"'total': epsilon of {LONG} rounds at delta = {DELTA:g} with epsilon = {EPSILON:g} as the "
        "tool takes it, and the gap then;",
        f"'equal': quartiles with noise for a total of ({EPSILON:g}, {DELTA:g}).",
        f"{'':<34}{'epsilon':>12}{'total':>8}{'gap':>9} |{'25 %':>9}{'median':>9}{'75 %':>9}"
        "  covers, settings",
    ]
    for line in lines:
        found.append(
            f"{line.name:<34}{line.stated:>12}{line.total:>8.4g}{line.stated_gap:>9.2g} |"
            f"{line.low:>9.2g}{line.gap:>9.2g}{line.high:>9.2g}  {line.covers}; {line.settings}"
        )
    return "\n".join(found)


def ratio(value: float, base: float | None) -> str:
    """A number of times, or nothing."""
    return "" if not base or math.isnan(value) else f"{value / base:.2g}"


def blank(value: float) -> str:
    """A number, or nothing."""
    return "" if math.isnan(value) else f"{value:.3g}"
