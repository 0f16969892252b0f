"""A row of the benchmark of zones, for a small network."""

from tests.benchmarks import power_zones


def test_zones_of_a_small_network_come_near_its_optimum():
    row = power_zones.measured("14", 2, 120)
    assert abs(row["gap"]) < 1e-5 and row["residual"] < 1e-5
    assert row["rounds"] <= 120 and row["megabytes"] > 0
    assert len(power_zones.line(row)) == len(power_zones.HEAD)
