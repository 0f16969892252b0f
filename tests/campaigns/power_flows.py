"""pandapower's networks: each is read, and its AC power flow is that of pandapower.

A trial is a network of ``pandapower.networks`` that needs no arguments and has at most 3,200 buses.
It is *refused* in words, *has no power flow* for pandapower, or *agrees* within 1e-8 per unit of
voltage, 1e-6 degrees and 1e-6 MW at the slack buses. A fault is anything else.
"""

import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from problems.power_flow.errors import CaseError
from tests.campaigns.tally import Tally
from tests.problems.power_flow.pandapower_flow import compare

FULL = 1_000
MOST_BUSES = 3200
VOLTAGE, ANGLE, POWER = 1e-8, 1e-6, 1e-6


def campaign(size: int, seed: int) -> Tally:
    """The first `size` networks in the order of their names."""
    tally = Tally()
    for name, make in networks()[:size]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pandapower, and notes on what nets lack
            net = make()
            if len(net.bus) <= MOST_BUSES:
                tally.add(*_trial(name, net, tally))
    return tally


def networks() -> list[tuple[str, Callable[[], Any]]]:
    """Functions of ``pandapower.networks`` that need no arguments, by name; none without it."""
    if importlib.util.find_spec("pandapower") is None:
        return []
    module = importlib.import_module("pandapower.networks")
    return [
        (name, function)
        for name, function in sorted(vars(module).items())
        if inspect.isfunction(function) and not name.startswith("_") and _makes_a_net(function)
    ]


def _makes_a_net(function: Callable[..., Any]) -> bool:
    needed = [
        argument
        for argument in inspect.signature(function).parameters.values()
        if argument.default is argument.empty
        and argument.kind in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD)
    ]
    return not needed and function.__name__ != "pp_elements"


def _trial(name: str, net: Any, tally: Tally) -> tuple[str, str | None]:
    try:
        compared = compare(net)
    except CaseError as error:
        tally.note(str(error))
        return "refused", None
    if compared is None:
        return "read, no power flow by pandapower", None
    close = compared.magnitude < VOLTAGE and compared.angle < ANGLE and compared.slack < POWER
    if compared.converged and close:
        return "agrees", None
    return "DIFFERS", f"{name}: {compared}"
