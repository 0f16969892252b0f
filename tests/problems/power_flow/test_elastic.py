"""Where loads cannot be served, the limits in the way are named, and no others."""

import re
from dataclasses import replace

import numpy as np
import pytest

from problems.power_flow.case import Case, read_case
from problems.power_flow.elastic import Family, limits_in_the_way


def test_nothing_is_in_the_way_of_loads_that_can_be_served():
    case = read_case(14)
    assert limits_in_the_way(case, case.load) == ()


def changed(part: str, **fields) -> Case:
    case = read_case(14)
    return replace(case, **{part: replace(getattr(case, part), **fields)})


def kinds(case: Case, scale: float = 1.0) -> dict[str, Family]:
    return {family.kind: family for family in limits_in_the_way(case, scale * case.load)}


def test_active_power():
    case = read_case(14)
    short = changed("gen", pmax=case.gen.pmax * 0.5)
    found = kinds(short)
    assert set(found) == {"upper limits of active power"}
    family = found["upper limits of active power"]
    (power,) = re.findall(r"by up to (\S+) MW", family.most)
    missing = 100 * (case.load[:, 0].sum() - short.gen.pmax.sum())
    assert 0 < missing < len(family.labels) * float(power)


def test_ratings():
    case = read_case(14)
    # Bus 14 hangs on two branches, and 10 % of what it takes fits.
    ends = (case.branch.from_bus == 13) | (case.branch.to_bus == 13)
    rate = np.where(ends, 0.05 * np.hypot(*case.load[13]), np.inf)
    family = kinds(changed("branch", rate=rate))["ratings"]
    assert set(family.labels) == {f"branch row {row}" for row in case.branch.row[ends]}
    (most,) = re.findall(r"largest (\S+) %", family.most)
    # 5 % each: they carry 20 times of it together.
    assert 1000 < float(most) <= 2100


def test_voltages():
    case = read_case(14)
    found = kinds(changed("bus", vmin=np.where(case.bus.id == 14, 1.0, 0.0)))
    assert found == {}
    low = np.where(case.bus.id == 14, 1.3, 0.0)
    high = np.where(case.bus.id == 14, 1.3, 1.06)
    found = kinds(changed("bus", vmin=low, vmax=high))
    assert found and all("limits of voltage" in kind for kind in found)


def test_families_are_listed_shortly():
    labels = tuple(f"bus {k}" for k in range(1, 6))
    assert str(Family("ratings", labels, "largest 180 %")) == (
        "5 ratings (bus 1, bus 2, bus 3 and 2 more; largest 180 %)"
    )
    assert str(Family("upper limits of voltage", ("bus 1",), "by up to 0.02 p.u.")) == (
        "1 upper limit of voltage (bus 1; by up to 0.02 p.u.)"
    )


@pytest.mark.parametrize("scale", [3.0, 5.0])
def test_more_load_needs_more(scale: float):
    assert "upper limits of active power" in kinds(read_case(14), scale)
