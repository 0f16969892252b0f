"""A row of the benchmark of zones, for a small network."""

from tests.benchmarks import power_zones


def test_zones_of_a_small_network_come_near_its_optimum():
    row = power_zones.measured("14", 2, 120)
    # Steps of interior points end the run 7e-9 to 1.8e-5 above the optimum, by the BLAS kernel.
    assert abs(row["gap"]) < 1e-4 and row["residual"] < 1e-5
    direct = power_zones.measured("14", 2, 300, "dc")
    assert abs(direct["gap"]) < 1e-3 and direct["residual"] < 1e-4
    assert row["rounds"] <= 120 and row["megabytes"] > 0
    assert len(power_zones.line(row)) == len(power_zones.HEAD)
