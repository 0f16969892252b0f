"""Texts of small networks for the tests."""

from dataclasses import replace

import numpy as np

from problems.power_flow.sources import BUNDLED, CASES

# Every awkward feature of the format at once. Bus 9 is isolated, bus 30 has a negative load,
# rows 3 to 5 of branch are parallel and reversed, row 6 shifts the phase, row 8 is switched off.
AWKWARD = """%{
mpc.bus = [ 1 2 3 ];  in a block comment
%}
function mpc = awkward % mpc.baseMVA = 7;
mpc.version = '2';
mpc.baseMVA = 50;   % MVA
mpc.bus_name = { 'north ] % station'; "it's [ south"; };
mpc.bus = [
    10, 3, 12.5, 5, 1, 2, 1, 1, 0, 110, 7, 1.1, 0.9, 0, 0;
\t20\t1\t31.25\t-2.5\t0\t0\t2\t1\t0\t110\t7\t1.05\t0.95\t0\t0
    30 2 -6.25 0 0 -4e0 2 1 0 20 8 ...  the row goes on
       1.1 .9 0 0;;
    9 4 1 1 0 0 2 1 0 20 8 1.1 0.9 0 0; 40 1 5 1 0 0 2 1 0 20 8 Inf -0.5 0 0
];
mpc.gen = [
    10 0 0  Inf -Inf 1 100 1 1e2 -10 ; % 'unfinished quote
    30 0 0  20 -10 1 100 1 40 5;
    30 0 0  20 -10 1 100 0 40 5;
    9  0 0  20 -10 1 100 1 40 5;
];
mpc.branch = [
    10 20 0.01 0.1  0.02 100 0 0 0    0  1 -30 30;
    20 30 0    0.2  0    0   0 0 0.95 0  1 0   0;
    10 40 0.02 0.1  0.04 Inf 0 0 0    0  1 -20 40;
    40 10 0.02 0.1  0.04 60  0 0 0    0  1 -25 10;
    10 40 0.02 -0.1 0.04 60  0 0 0    0  1 -360 360;
    30 40 0.01 0.05 0    60  0 0 1.02 -5 1 -30 0;
    9  40 0.01 0.05 0    60  0 0 1.02 -5 1 -30 0;
    10 30 0    0    0    60  0 0 1    0  0 -30 0;
];
mpc.gencost = [
    2 0 0 3 0.02 4 1;
    2 0 0 2 3    5 0;
    1 0 0 2 1    2 3;
    2 0 0 1 9    0 0;
];
"""


def bundled_text(number: int) -> str:
    """Text of a bundled case with one blank between columns."""
    lines = (CASES / BUNDLED[number]).read_text().splitlines()
    return "\n".join(" ".join(line.split()) for line in lines)


def blind(study):
    """The study with loads that nobody knows: every number that is read of them is NaN."""
    bus = study.case.bus
    nothing = np.full(len(bus.id), np.nan)
    case = replace(study.case, bus=replace(bus, pd=nothing, qd=nothing.copy()))
    return replace(
        study,
        load=np.full(study.load.shape, np.nan),
        setting=replace(study.setting, case=case),
        model=replace(study.model, case=case),
    )
