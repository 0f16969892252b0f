"""``python -m problems.refutations``: every refutation with its hypotheses, paper by paper."""

from . import PAPERS, refutations

for paper in PAPERS:
    print(f"{paper}\n")
    for refutation in refutations(paper):
        print(f"{refutation}\n")
