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
    notes : Counter of str
        What else was counted, and depends on the machine.
    """

    counts: Counter = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    notes: Counter = field(default_factory=Counter)

    def add(self, outcome: str, fault: str | None = None) -> None:
        """One trial that ended like this."""
        self.counts[outcome] += 1
        if fault is not None:
            self.faults.append(fault)

    def note(self, what: str) -> None:
        """One more of what is counted beside the trials."""
        self.notes[what] += 1

    def __str__(self) -> str:
        counts = ", ".join(f"{name}: {count}" for name, count in sorted(self.counts.items()))
        notes = (f"{name}: {count}" for name, count in sorted(self.notes.items()))
        return "\n".join([f"{self.counts.total()} trials ({counts})", *notes, *self.faults])
