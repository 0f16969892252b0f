"""The AC power flow of a pandapower net, by pandapower and by `problems.power_flow.ac.newton`."""

from dataclasses import dataclass

import numpy as np

from problems.power_flow.ac import newton
from problems.power_flow.case import read_case
from problems.power_flow.pandapower_nets import places
from problems.power_flow.physics import slack_buses


@dataclass(frozen=True)
class Compared:
    """How far the two are apart."""

    converged: bool  # of ours
    magnitude: float  # per unit
    angle: float  # degrees, beyond multiples of 30, since vector groups are dropped
    slack: float  # MW


def compare(net) -> Compared | None:
    """Solve both from the set points of the net; None where pandapower finds no power flow.

    Elements that can be controlled are fixed in the net.
    """
    import pandapower

    for table in ("load", "sgen", "storage"):
        if len(net[table]):
            net[table]["controllable"] = False
    case = read_case(net)
    try:
        pandapower.runpp(
            net, trafo_model="pi", tolerance_mva=1e-10, numba=False, calculate_voltage_angles=True
        )
    except pandapower.LoadflowNotConverged:
        return None
    count = len(case.bus.id)
    row = {int(number): at for at, number in enumerate(case.bus.id)}
    lookup = {bus: row[number] for bus, number in places(net).bus.items()}
    made, magnitude = -(case.load[:, 0] + 1j * case.load[:, 1]), np.ones(count)
    held = np.zeros(count, dtype=bool)
    # Behind extended Wards, voltages are held that the net has no generators for.
    inner = np.setdiff1d(case.gen.bus, [*lookup.values()])
    held[inner], magnitude[inner] = True, case.bus.vmin[inner]
    gen, grid = (net[name][net[name].in_service] for name in ("gen", "ext_grid"))
    for elements in (gen, grid):
        for bus, size in zip(elements.bus, elements.vm_pu, strict=True):
            magnitude[lookup[bus]], held[lookup[bus]] = size, True
    for bus, power, scaling in zip(gen.bus, gen.p_mw, gen.scaling, strict=True):
        made[lookup[bus]] += power * scaling / case.base_mva
    grids = [*grid.bus, *gen.bus[gen.slack]]
    reached = np.flatnonzero(net.res_bus.vm_pu.notna()[net.bus.index].to_numpy())
    supplied = {lookup[bus] for bus in net.bus.index[reached] if bus in lookup}
    # Parts that nothing supplies, which pandapower leaves out, have one of their own.
    slack = np.union1d(
        [lookup[bus] for bus in grids], [at for at in slack_buses(case) if at not in supplied]
    ).astype(int)
    flow = newton(case, made, magnitude, held, slack)
    buses = [bus for bus in net.bus.index if lookup.get(bus) in supplied]
    at = [lookup[bus] for bus in buses]
    theirs = net.res_bus.loc[buses]
    away = np.degrees(np.angle(flow.voltage[at])) - theirs.va_degree.to_numpy()
    away -= away[0]
    away -= 30 * np.round(away / 30)
    ours = case.base_mva * (flow.injected[slack] - made[slack]).real.sum()
    total = net.res_ext_grid.p_mw.sum()
    total += (net.res_gen.p_mw - net.gen.p_mw * net.gen.scaling)[gen.index[gen.slack]].sum()
    return Compared(
        flow.converged,
        float(np.max(np.abs(np.abs(flow.voltage[at]) - theirs.vm_pu))),
        float(np.max(np.abs(away))),
        float(abs(ours - total)),
    )
