"""PyPSA networks: numbers by hand, optima of a linear program, and PyPSA's own where installed."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

import dpcvx as dp
from problems.power_flow import CaseError, CaseWarning, power_flow, read_case, read_pypsa, together
from problems.power_flow.pypsa_nets import from_pypsa

FILES = {
    "buses": "name,v_nom,carrier,v_mag_pu_min,v_mag_pu_max\nnorth,380,AC,0.95,1.05\n"
    "south,380,AC,,\nlow,110,,0.9,1.1\nsea,380,AC,,\n",
    "snapshots": "snapshot,objective,stores,generators\n0,2,2,2\n1,2,2,2\n2,2,2,2\n",
    "loads": "name,bus,p_set,q_set\na,south,90,30\nb,south,60,0\nc,low,50,10\nd,low,9,9\n",
    "loads-p_set": "snapshot,b\n0,30\n1,60\n2,90\n",
    "generators": "name,bus,p_nom,p_min_pu,marginal_cost,marginal_cost_quadratic\n"
    "coal,north,300,0.1,30,0.01\ngas,south,200,0,60,0\nwind,sea,100,0,1,0\n",
    "generators-p_max_pu": ",wind\n0,0.2\n1,0.8\n2,0.4\n",
    "lines": "name,bus0,bus1,x,r,b,s_nom,s_max_pu\nns,north,south,14.44,1.444,0.0001,100,0.8\n",
    "transformers": "name,bus0,bus1,x,r,s_nom,tap_ratio,tap_side,phase_shift\n"
    "t,south,low,0.1,0.01,200,1.05,1,10\n",
    "links": "name,bus0,bus1,p_nom,p_min_pu,p_max_pu,efficiency,marginal_cost\n"
    "cable,sea,south,60,0,1,0.9,2\n",
    "storage_units": "name,bus,p_nom,max_hours,efficiency_store,efficiency_dispatch,"
    "state_of_charge_initial\npump,north,20,6,0.8,0.9,60\n",
    "shunt_impedances": "name,bus,b\nshunt,north,0.0001\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "net", FILES)


def write(path: Path, files: dict[str, str]) -> Path:
    path.mkdir()
    for name, text in files.items():
        (path / f"{name}.csv").write_text(text)
    return path


@pytest.mark.filterwarnings("ignore::problems.power_flow.errors.CaseWarning")
def test_numbers_of_the_first_snapshot(folder):
    case = read_case(folder)
    assert case.name == "net"
    assert case.bus.id.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(100 * case.load, [[0, 0], [120, 30], [59, 19], [0, 0]])
    np.testing.assert_allclose(case.bus.vmin, [0.95, 0.9, 0.9, 0.9])
    np.testing.assert_allclose(case.bus.bs[0], 0.0001 * 380**2 / 100)
    line, trafo = 0, 1
    np.testing.assert_allclose(case.branch.x, [14.44 / 1444, 0.1 * 100 / 200])
    np.testing.assert_allclose(case.branch.r, [0.001, 0.005])
    np.testing.assert_allclose(case.branch.b, [0.0001 * 1444, 0])
    np.testing.assert_allclose(case.branch.rate, [0.8, 2.0])
    # The tap is on the second side, so this is the from end; the shift turns round.
    ends = case.bus.id[case.branch.from_bus], case.bus.id[case.branch.to_bus]
    assert [int(end[line]) for end in ends] == [1, 2]
    assert [int(end[trafo]) for end in ends] == [3, 2]
    assert case.branch.tap[trafo] == pytest.approx(1.05)
    assert np.degrees(case.branch.shift[trafo]) == pytest.approx(-10)
    np.testing.assert_allclose(100 * case.gen.pmax[:3], [300, 200, 20])
    np.testing.assert_allclose(100 * case.gen.pmin[:3], [30, 0, 0])
    assert case.gen.kind.tolist() == ["gen"] * 3 + ["dcline"] * 2
    assert case.links.loss1[0] == pytest.approx(0.1)


def test_what_is_left_out_is_named(folder):
    with pytest.warns(CaseWarning) as caught:
        read_case(folder)
    shown = " ".join(str(warning.message) for warning in caught)
    assert "2 buses without voltage limits" in shown
    assert "storage is left out. Write power_flow(net.case" in shown


@pytest.mark.filterwarnings("ignore::problems.power_flow.errors.CaseWarning")
def test_days_with_wind_and_storage_are_those_of_a_linear_program(folder):
    path = folder / "generators.csv"
    path.write_text(path.read_text().replace("30,0.01", "30,0"))
    net = read_pypsa(folder, hours=3)
    np.testing.assert_allclose(100 * net.case.load[1, 0] * net.profiles[1], [120, 150, 180])
    np.testing.assert_allclose(net.availability[:, :].min(axis=0)[:3], [0.25, 1, 0.5])
    (store,) = net.storage
    assert (store.bus, store.power, store.start) == (net.bus["north"], 20, 0.5)
    assert store.energy == pytest.approx(120 / 2)  # each snapshot counts as an hour
    study = power_flow(
        net.case, model="dc", zones=1, private=None, horizon=3, profiles=net.profiles,
        availability=net.availability, storage=net.storage,
    )  # fmt: skip
    value, _ = together(study)
    # Per hour: coal, gas, wind = cable, flow north to south, take, give, energy.
    cost, bounds, rows, right = [], [], [], []
    load, wind = [179, 209, 239], [20, 80, 40]
    for hour in range(3):
        cost += [30, 60, 1 + 2, 0, 0, 0, 0]
        bounds += [(30, 300), (0, 200), (0, min(60, wind[hour])), (-80, 80), (0, 20), (0, 20)]
        bounds += [(30 if hour == 2 else 0, 60)]
        north, south, energy = np.zeros((3, 21))
        at = 7 * hour
        north[[at, at + 3, at + 4, at + 5]] = 1, -1, -1, 1
        south[[at + 1, at + 2, at + 3]] = 1, 0.9, 1
        energy[[at + 6, at + 4, at + 5]] = 1, -np.sqrt(0.72), 1 / np.sqrt(0.72)
        if hour:
            energy[at - 1] = -1
        rows += [north, south, energy]
        right += [0, load[hour], 30 if hour == 0 else 0]
    best = linprog(cost, A_eq=np.array(rows), b_eq=right, bounds=bounds)
    assert value == pytest.approx(best.fun, rel=1e-6)
    private = power_flow(
        net.case, model="dc", zones={1: "a", 2: "b", 3: "b", 4: "b"}, horizon=3,
        profiles=net.profiles, availability=net.availability, storage=net.storage,
    )  # fmt: skip
    assert private.problem.plan(mechanism=None, constraints="released").run() is not None


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("buses", "380,AC,,\n", "380,hydrogen,,\n", "carries 'hydrogen'"),
        ("lines", "north", "nowhere", "lines 'ns' is at bus 'nowhere', which is not there"),
        ("lines", "14.44,1.444", "0,0", "branches 'ns' have no impedance"),
        ("loads", "90,30", "secret,30", "loads p_set has an entry that is no number"),
        ("loads-p_set", "1,60", "1", "rows are missing or differ in length"),
        ("loads-p_set", "0,30", "0,hush", "loads-p_set has an entry that is no number"),
        ("transformers", "200,1.05", "0,1.05", "have no s_nom"),
    ],
)
def test_networks_that_a_case_cannot_hold_are_refused(folder, name, old, new, message):
    path = folder / f"{name}.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(CaseError, match=message) as raised:
        from_pypsa(folder, 3)
    assert "secret" not in str(raised.value) and "hush" not in str(raised.value)


def test_missing_files_and_snapshots_are_refused(folder, tmp_path):
    with pytest.raises(CaseError, match="has 3 snapshots, not 5"):
        from_pypsa(folder, 4, first=1)
    with pytest.raises(CaseError, match="netCDF"):
        from_pypsa(tmp_path / "none.nc")
    (folder / "buses.csv").unlink()
    with pytest.raises(CaseError, match=r"there is no buses\.csv"):
        from_pypsa(folder)
    with pytest.raises(dp.ModelError, match="availability= has shape"):
        power_flow(5, model="dc", availability=np.ones((2, 1)))


@pytest.mark.filterwarnings("ignore")  # of PyPSA, and notes
def test_all_forms_are_one_network_and_its_optimum_is_pypsas(folder, tmp_path):
    pypsa = pytest.importorskip("pypsa")
    network = pypsa.Network(str(folder))
    network.remove("StorageUnit", "pump")
    network.export_to_netcdf(str(tmp_path / "file.nc"))
    network.export_to_csv_folder(str(tmp_path / "folder"))
    forms = [from_pypsa(form, 3) for form in (network, tmp_path / "file.nc", tmp_path / "folder")]
    for form in forms[1:]:
        for name, table in forms[0].fields.items():
            np.testing.assert_allclose(form.fields[name], table)
        np.testing.assert_allclose(form.profiles, forms[0].profiles)
    net = read_pypsa(network, hours=3)
    study = power_flow(
        net.case, model="dc", zones=1, private=None, horizon=3, profiles=net.profiles,
        availability=net.availability,
    )  # fmt: skip
    with warnings.catch_warnings():
        network.optimize(solver_name="highs")
    weight = network.snapshot_weightings.objective.iloc[0]
    assert together(study)[0] == pytest.approx(network.objective / weight, rel=1e-6)


def test_an_object_is_exported_and_never_copied(folder):
    """PyPSA refuses to copy a network that it has just solved."""

    class Solved:
        name = "solved"

        def copy(self):
            raise ValueError("Copying a solved network is not supported.")

        def export_to_csv_folder(self, path: str):
            for file in folder.iterdir():
                shutil.copy(file, path)

    made = from_pypsa(Solved(), 3)
    assert made.name == "solved"
    for field, table in from_pypsa(folder, 3).fields.items():
        np.testing.assert_array_equal(made.fields[field], table)


def test_storage_that_may_end_empty_is_named(folder):
    assert any("may end empty" in note for note in from_pypsa(folder, 3).notes)
    units = folder / "storage_units.csv"
    text = units.read_text().replace("initial\n", "initial,cyclic_state_of_charge\n")
    units.write_text(text.replace(",60\n", ",60,True\n"))
    assert not any("may end empty" in note for note in from_pypsa(folder, 3).notes)
