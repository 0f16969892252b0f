"""``python -m problems.refutations``: every refutation with its hypotheses, paper by paper."""

import argparse

from . import PAPERS, refutations

about = "Print every refuted statement with its hypotheses, paper by paper; there are no options."
argparse.ArgumentParser(prog=f"python -m {__package__}", description=about).parse_args()
for paper in PAPERS:
    print(f"{paper}\n")
    for refutation in refutations(paper):
        print(f"{refutation}\n")
