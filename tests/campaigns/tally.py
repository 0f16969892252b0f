"""What a campaign found."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts by outcome, and a line for every trial that broke the claim.

    Attributes
    ----------
    counts : Counter of str
        Number of trials by how they ended.
    faults : list of str
        One line each, enough to repeat the trial. A claim holds if there is none.
    """

    counts: Counter = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, outcome: str, fault: str | None = None) -> None:
        """One trial that ended like this."""
        self.counts[outcome] += 1
        if fault is not None:
            self.faults.append(fault)

    def __str__(self) -> str:
        counts = ", ".join(f"{name}: {count}" for name, count in sorted(self.counts.items()))
        return "\n".join([f"{self.counts.total()} trials ({counts})", *self.faults])
