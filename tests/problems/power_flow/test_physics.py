"""The linear maps agree with complex arithmetic on voltages."""

from pathlib import Path

import numpy as np

from problems.power_flow.case import read_case
from problems.power_flow.physics import flow_maps, incidence
from tests.problems.power_flow.networks import AWKWARD


def test_flows_of_random_voltages(tmp_path: Path):
    path = tmp_path / "network.m"
    path.write_text(AWKWARD)
    for case in (read_case(path), read_case(118)):
        rng = np.random.default_rng(1)
        count = len(case.bus.id)
        voltage = rng.uniform(0.8, 1.2, count) * np.exp(1j * rng.uniform(-1, 1, count))
        product = voltage[case.pairs.first] * np.conj(voltage[case.pairs.second])
        maps = flow_maps(case)
        flow = {
            end: part.w_map @ np.abs(voltage) ** 2
            + part.wr_map @ product.real
            + part.wi_map @ product.imag
            for end, part in maps.items()
        }
        branch = case.branch
        for k in range(len(branch.r)):
            # An ideal transformer at the from end, then the pi circuit of the line.
            ratio = branch.tap[k] * np.exp(1j * branch.shift[k])
            inner, outer = voltage[branch.from_bus[k]] / ratio, voltage[branch.to_bus[k]]
            through = (inner - outer) / (branch.r[k] + 1j * branch.x[k])
            into_f = through + 0.5j * branch.b[k] * inner
            into_t = -through + 0.5j * branch.b[k] * outer
            power_f, power_t = inner * np.conj(into_f), outer * np.conj(into_t)
            found = [flow[end][k] for end in ("pf", "qf", "pt", "qt")]
            expected = [power_f.real, power_f.imag, power_t.real, power_t.imag]
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_incidence_sums_elements_of_a_bus():
    matrix = incidence(np.array([2, 0, 2]), 4)
    np.testing.assert_array_equal(matrix @ np.array([1.0, 10.0, 100.0]), [10, 0, 101, 0])
