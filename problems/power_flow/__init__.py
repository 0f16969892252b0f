"""Power flow over zones: network data, partitions, the conic model and reports on its solutions.

`power_flow` states a network as a private problem in one call. For an optimal power flow of your
own, read a `Case` and `Zones`, declare `variables`, and put `zone_constraints`, `delivered` and
`generation_cost` together as you like. `dc_power_flow` and its terms are the same for several hours
in the direct-current approximation. Drawings are in `figures`, imported apart since matplotlib is
slow to import. All quantities are in per unit unless a name says otherwise.
"""

from .ac import AcCheck, Flow, ac_check, newton
from .case import Case, read_case
from .dc import (
    DcVariables,
    Store,
    branch_limits,
    dc_cost,
    dc_delivered,
    dc_flows,
    dc_limits,
    dc_variables,
    generation_limits,
    ramp_limits,
    storage_limits,
)
from .dc_study import (
    DcPowerFlow,
    dc_ac_check,
    dc_imbalance,
    dc_optimum,
    dc_power_flow,
    dc_prices,
)
from .elastic import limits_in_the_way
from .errors import CaseError, CaseWarning
from .hidden import adjacency
from .measured import Run, measure, optimum
from .model import (
    Variables,
    cost_scale,
    delivered,
    generation_cost,
    variables,
    zone_constraints,
    zone_model,
)
from .profiles import read_profiles
from .provenance import network_digest
from .recovery import Recovery, ac_optimum, ac_recover
from .relaxed import Relaxation, angle_mismatch, relaxation
from .report import Outcome, assess, imbalance, thermal_loading, violations
from .solution import Central, State, central, network_state
from .study import PowerFlow, flat_start, power_flow
from .tables import Table, result_tables, voltage_angles, write_tables
from .writer import net_with_set_points, write_set_points
from .zones import Zones, read_zones

__all__ = [
    "AcCheck",
    "Case",
    "CaseError",
    "CaseWarning",
    "Central",
    "DcPowerFlow",
    "DcVariables",
    "Flow",
    "Outcome",
    "PowerFlow",
    "Recovery",
    "Relaxation",
    "Run",
    "State",
    "Store",
    "Table",
    "Variables",
    "Zones",
    "ac_check",
    "ac_optimum",
    "ac_recover",
    "adjacency",
    "angle_mismatch",
    "assess",
    "branch_limits",
    "central",
    "cost_scale",
    "dc_ac_check",
    "dc_cost",
    "dc_delivered",
    "dc_flows",
    "dc_imbalance",
    "dc_limits",
    "dc_optimum",
    "dc_power_flow",
    "dc_prices",
    "dc_variables",
    "delivered",
    "flat_start",
    "generation_cost",
    "generation_limits",
    "imbalance",
    "limits_in_the_way",
    "measure",
    "net_with_set_points",
    "network_digest",
    "network_state",
    "newton",
    "optimum",
    "power_flow",
    "ramp_limits",
    "read_case",
    "read_profiles",
    "read_zones",
    "relaxation",
    "result_tables",
    "storage_limits",
    "thermal_loading",
    "variables",
    "violations",
    "voltage_angles",
    "write_set_points",
    "write_tables",
    "zone_constraints",
    "zone_model",
]
