"""The short form."""

import numpy as np
import pytest

from dpcvx.solvers.conic import ConicProgram
from dpcvx.solvers.newton import PLAIN, Newton
from dpcvx.solvers.newton_layout import layout_of
from tests.campaigns import newton
from tests.kernels import KERNELS


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_newton_certifies_is_the_projection(kernel):
    tally = newton.campaign(100, 0, kernel)
    assert not tally.faults, str(tally)
    assert all(tally.counts[f"{kind}: Newton"] for kind in newton.KINDS if kind != "empty")
    assert tally.counts["empty: interior point"] == 30


@pytest.mark.parametrize("kind", ["ordinary", "boxes"])
def test_an_answer_beside_the_projection_is_a_fault(kind):
    rng = np.random.default_rng(1)
    data, inside, scale = newton.program(rng, kind)
    ours, interior = ConicProgram(data), ConicProgram(data)
    method, interior._newton = Newton(layout_of(data), PLAIN, 45), None
    D, v = np.ones(data.n), inside + 3 * scale * rng.normal(size=data.n)
    for share, right in ((0.0, True), (1e-3, False)):

        def beside(D, v, share=share):
            found = method(D, v)
            return found._replace(x=found.x + share * (inside - found.x))

        ours._newton = beside
        _, fault = newton.judged(data, ours, interior, interior, D, v, inside, False)
        assert (fault is None) == right
