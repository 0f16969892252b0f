"""Power flow over zones: network data, partitions, the conic model and reports on its solutions.

`power_flow` states a network as a private problem in one call: the second-order-cone relaxation of
AC power flow, the direct-current approximation, or linearized DistFlow, over any number of hours.
For a model of your own, read a `Case` and `Zones`, declare `variables`, `dc_variables` or
`distflow_variables`, and put terms together as you like: all of them are functions. Drawings are in
`figures`, imported apart since matplotlib is slow to import. All quantities are in per unit unless
a name says otherwise.
"""

from .ac import AcCheck, Flow, ac_check, newton
from .case import Case, read_case
from .dc import (
    DcVariables,
    branch_limits,
    contingency_limits,
    dc_cost,
    dc_delivered,
    dc_flows,
    dc_limits,
    dc_variables,
    generation_limits,
    link_limits,
    outage_factors,
    read_outages,
    transfer_factors,
)
from .distflow import (
    DistFlowVariables,
    distflow_cost,
    distflow_delivered,
    distflow_limits,
    distflow_variables,
)
from .elastic import limits_in_the_way
from .errors import CaseError, CaseWarning
from .hidden import adjacency
from .hours import (
    Flexible,
    StorageVariables,
    Store,
    added,
    availability_limits,
    flexible_cost,
    flexible_limits,
    ramp_limits,
    storage_limits,
    storage_variables,
)
from .measured import Run, measure, optimum, together
from .model import (
    Variables,
    balanced,
    cost_scale,
    delivered,
    generation_cost,
    lifted_cuts,
    variables,
    zone_constraints,
    zone_model,
)
from .models import flat_start
from .prices import Prices, prices
from .private import private_loads, private_profiles
from .profiles import PypsaNetwork, read_profiles, read_pypsa
from .provenance import network_digest
from .ptdf import (
    PtdfVariables,
    ptdf_angles,
    ptdf_delivered,
    ptdf_flows,
    ptdf_limits,
    ptdf_variables,
    shared_numbers,
)
from .recovery import Recovery, ac_optimum, ac_recover
from .relaxed import Relaxation, angle_mismatch, relaxation
from .report import Outcome, ac_line, assess, imbalance, thermal_loading, violations
from .schedule import Schedule, hourly_tables, hourly_totals
from .security import NetworkCopy, copy_constraints, network_copies
from .solution import Central, State, central, network_state
from .study import PowerFlow, power_flow
from .tables import Table, result_tables, study_tables, voltage_angles, write_tables
from .writer import net_with_set_points, write_set_points
from .zones import Zones, read_zones

__all__ = [
    "AcCheck",
    "Case",
    "CaseError",
    "CaseWarning",
    "Central",
    "DcVariables",
    "DistFlowVariables",
    "Flexible",
    "Flow",
    "NetworkCopy",
    "Outcome",
    "PowerFlow",
    "Prices",
    "PtdfVariables",
    "PypsaNetwork",
    "Recovery",
    "Relaxation",
    "Run",
    "Schedule",
    "State",
    "StorageVariables",
    "Store",
    "Table",
    "Variables",
    "Zones",
    "ac_check",
    "ac_line",
    "ac_optimum",
    "ac_recover",
    "added",
    "adjacency",
    "angle_mismatch",
    "assess",
    "availability_limits",
    "balanced",
    "branch_limits",
    "central",
    "contingency_limits",
    "copy_constraints",
    "cost_scale",
    "dc_cost",
    "dc_delivered",
    "dc_flows",
    "dc_limits",
    "dc_variables",
    "delivered",
    "distflow_cost",
    "distflow_delivered",
    "distflow_limits",
    "distflow_variables",
    "flat_start",
    "flexible_cost",
    "flexible_limits",
    "generation_cost",
    "generation_limits",
    "hourly_tables",
    "hourly_totals",
    "imbalance",
    "lifted_cuts",
    "limits_in_the_way",
    "link_limits",
    "measure",
    "net_with_set_points",
    "network_copies",
    "network_digest",
    "network_state",
    "newton",
    "optimum",
    "outage_factors",
    "power_flow",
    "prices",
    "private_loads",
    "private_profiles",
    "ptdf_angles",
    "ptdf_delivered",
    "ptdf_flows",
    "ptdf_limits",
    "ptdf_variables",
    "ramp_limits",
    "read_case",
    "read_outages",
    "read_profiles",
    "read_pypsa",
    "read_zones",
    "relaxation",
    "result_tables",
    "shared_numbers",
    "storage_limits",
    "storage_variables",
    "study_tables",
    "thermal_loading",
    "together",
    "transfer_factors",
    "variables",
    "violations",
    "voltage_angles",
    "write_set_points",
    "write_tables",
    "zone_constraints",
    "zone_model",
]
