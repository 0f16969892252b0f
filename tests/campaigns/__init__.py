"""Attack and fault campaigns: many random trials of one claim, counted.

Each module has a function ``campaign(size, seed) -> Tally`` and the size of a full run, `FULL`. The
tests beside them run short forms; ``make campaigns`` runs all in full, and
``python -m tests.campaigns NAME --size N --seed S`` one.
"""
