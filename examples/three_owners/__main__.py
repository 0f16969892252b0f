"""Three owners of one network and a coordinator: in this process, or with a folder for each.

``python -m examples.three_owners`` runs all of them here. With the name of a folder it writes keys,
policies and data files there, and prints the four commands for four terminals.
"""

import argparse
import runpy
from pathlib import Path
from typing import Any

import numpy as np

import dpcvx as dp

try:
    from dpcvx.owners.keys import fingerprint_of, make_authority, make_request, sign_request
except ModuleNotFoundError as error:
    raise SystemExit(str(error)) from None

MODEL = Path(__file__).with_name("model.py")
POLICY = """agent = "{agent}"
ledger = "spent.jsonl"
keys = "keys"
coordinator = "{coordinator}"

[budget]
epsilon = 1.0
delta = 1e-6

[accept]
methods = ["LinearizedADMM"]
partners = 2
ask = true

[data."load of {agent}"]
file = "loads.csv"
shape = {shape}
within = 0.01
"""


def loads(made):
    """Every zone's loads, by the name of its agent; in earnest they are at their owners alone."""
    network, zones = made["case"], made["zones"]
    values = network.scaled_load(1.0)
    pairs = zip(zones.names, zones.buses, strict=True)
    return {f"zone {label}": values[buses] for label, buses in pairs}


def prepare(folder):
    """Write all folders; return the commands."""
    made = runpy.run_path(str(MODEL))
    authority = folder / "authority"
    make_authority(authority)
    own = loads(made)
    for party in ("coordinator", *own):
        keys = folder / party / "keys"
        sign_request(authority, make_request(keys, party))
        (keys / "ca.crt").write_bytes((authority / "ca.crt").read_bytes())
    pinned = fingerprint_of((folder / "coordinator" / "keys" / "coordinator.crt").read_bytes())
    for agent, values in own.items():
        np.savetxt(folder / agent / "loads.csv", values, delimiter=",", fmt="%.17g")
        said = POLICY.format(agent=agent, coordinator=pinned, shape=list(values.shape))
        (folder / agent / "owner.toml").write_text(said)
    coordinate = (
        f"dpcvx coordinate {MODEL} --listen 127.0.0.1:8443 --keys '{folder}/coordinator/keys' "
        f"--log '{folder}/coordinator/run.dpx' --out '{folder}/coordinator/shared.npz'"
    )
    join = "dpcvx owner join '{0}/owner.toml' --connect wss://127.0.0.1:8443 --out '{0}/own.npz'"
    return [coordinate, *(join.format(folder / agent) for agent in own)]


def together():
    """The same between owners in this process."""
    made = runpy.run_path(str(MODEL))
    plan, own = made["plan"], loads(made)
    data: dict[dp.Private | str, Any] = {f"load of {name}": own[name] for name in own}
    executor = dp.LoopbackOwners(plan, data=data)
    result = plan.run(executor=executor, verbose=True)
    for agent, session in executor.sessions.items():
        spent = result.ledger[agent].spent().epsilon
        assert session.result is not None
        local = sum(int(np.isfinite(x).sum()) for x in session.result.last.values())
        print(f"{agent}: epsilon {spent:.3g} spent; {local} values that only its owner has")
    return result


def main():
    """Prepare, or run."""
    parser = argparse.ArgumentParser(prog="python -m examples.three_owners", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="for four terminals; created")
    asked = parser.parse_args()
    if asked.folder is None:
        together()
        return
    print("One command for each of four terminals:\n")
    print("\n".join(prepare(asked.folder)))


if __name__ == "__main__":
    main()
