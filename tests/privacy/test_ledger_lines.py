"""Lines of a ledger are the same whoever noted first."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpcvx.privacy.entries import Entry
from dpcvx.privacy.ledger_lines import Notes

ENTRY = Entry(1, 1, "Gaussian", 10.0, 0.5, 2.0**-20, "derived", "gradient")
NAMES = ["c", "a", "d", "b"]
ORDER = {name: k for k, name in enumerate(NAMES)}


@given(st.permutations(range(len(NAMES))), st.integers(1, 4), st.booleans())
def test_lines_are_in_the_order_of_the_run(told, hosts, unlike):
    def noted(order, apart):
        whole = [Notes() for _ in range(apart)]
        for k in order:
            name, own = NAMES[k], whole[k % apart]
            own.charge([name], replace(ENTRY, sensitivity=0.5 + k * unlike))
            own.release([name], (1, 1), np.full((1, 2 if k < 3 else 3), float(k)))
        first, *others = whole
        for other in others:
            first.add(other)
        return first.lines(ORDER)

    lines = noted(told, hosts)
    assert lines == noted(range(len(NAMES)), 1)
    charged = [name for line in lines for name in line.get("charges", ())]
    assert charged == NAMES
    assert [name for line in lines for name in line.get("values", ())] == NAMES


def test_numbers_go_with_their_agents():
    one, other = Notes(), Notes()
    one.release(["c", "d"], (1, 1), np.array([[0.0, 1.0], [4.0, 5.0]]))
    other.release(["a", "b"], (1, 1), np.array([[2.0, 3.0], [6.0, 7.0]]))
    other.add(one)
    whole = Notes()
    whole.release(NAMES, (1, 1), np.arange(8.0).reshape(4, 2))
    assert other.lines(ORDER) == whole.lines(ORDER)
