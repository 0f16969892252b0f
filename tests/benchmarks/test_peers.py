"""The parts of the comparison with peers that need no peer."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dpcvx as dp

from .peers import convergence, environments, features, instances, privacy, report
from .peers.__main__ import main
from .peers.environments import Peer, Run
from .peers.exchange import Instance, load
from .peers.privacy import Settings, clipped, gradients, iiadmm, local_dp
from .peers.private_programs import STUDIES, compared, linear_gaps

INSTANCE = instances.box(agents=3, variables=4, rows=6)


def test_an_instance_survives_the_exchange(tmp_path):
    made = instances.cones(agents=2, variables=3, rows=5)
    made.save(tmp_path / "made.npz")
    found = load(tmp_path / "made.npz")
    assert found.conic and not INSTANCE.conic
    for name in ("A", "b", "B", "c", "r"):
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
    assert found.bound == made.bound


@pytest.mark.parametrize("make", [instances.box, instances.cones])
def test_constraints_bind_and_the_model_of_dpcvx_is_the_same_problem(make):
    inst = make()
    best, x = instances.optimum(inst)
    assert inst.objective(x) == pytest.approx(best, rel=1e-6)
    assert inst.violation(x) < 1e-6
    free = np.linalg.lstsq(np.concatenate(inst.A), np.concatenate(inst.b), rcond=None)[0]
    assert inst.violation(free) > 0.1
    declared, _ = instances.declared(inst)
    assert dp.not_private.joint_problem(declared).solve() == pytest.approx(best, rel=1e-5)
    assert inst.violation(np.zeros(x.size)) == 0.0


def test_appfls_client_dual_is_its_last_gradient():
    # Recomputed step by step, as in the trainer: z_t = w_t + (g_{t-1} - g_t) / rho.
    rho, w = 2.0, np.zeros(4)
    z, lam, last = np.zeros((3, 4)), np.zeros((3, 4)), np.zeros((3, 4))
    for _ in range(5):
        g = clipped(gradients(INSTANCE, z), 0.5, 1)
        z = w + (lam - g) / rho
        np.testing.assert_allclose(z, w + (last - g) / rho)
        lam, last = lam + rho * (w - z), g
        np.testing.assert_allclose(lam, g)
        w = (z - lam / rho).mean(axis=0)


def test_a_change_of_data_moves_appfls_second_release_by_twice_what_it_charges():
    C, rho, w = 0.4, 1.0, 0.0
    one = np.ones((1, 1, 1))
    none = np.zeros((1, 0))
    releases = []
    for target in (C / 2, -C / 2):  # the server's point is the same for both, released before
        inst = Instance(one, np.array([[target]]), np.zeros((1, 0, 1)), none, np.zeros(1), 9.0)
        z, lam = np.zeros((1, 1)), np.zeros((1, 1))
        for _ in range(2):
            g = clipped(gradients(inst, z), C, 1)
            z = w + (lam - g) / rho
            lam = lam + rho * (w - z)
        releases.append(z.item())
    assert abs(releases[0] - releases[1]) == pytest.approx(2 * (2 * C / rho))


@pytest.mark.parametrize("released_dual", [True, False])
def test_iiadmm_and_local_dp_without_noise_reach_the_optimum_of_a_loose_box(released_dual):
    loose = instances.box(agents=3, variables=4, rows=6, seed=3)
    loose = type(loose)(loose.A, loose.b, loose.B, loose.c, loose.r, 100.0)
    best, _ = instances.optimum(loose)
    rng = np.random.default_rng(0)
    last, _ = iiadmm(loose, Settings(1000, rho=40.0), 0.0, rng, released_dual=released_dual)
    assert loose.objective(last) == pytest.approx(best, rel=1e-4)
    last, _ = local_dp(loose, Settings(1000, step=0.05), 0.0, rng)
    assert loose.objective(last) == pytest.approx(best, rel=1e-4)


def test_clipping_bounds_norms_and_leaves_short_rows():
    rows = np.array([[3.0, 4.0], [0.1, 0.1]])
    np.testing.assert_allclose(clipped(rows, 1.0, 2), [[0.6, 0.8], [0.1, 0.1]])
    np.testing.assert_allclose(np.abs(clipped(rows, 1.0, 1)).sum(axis=1), [1.0, 0.2])


def test_totals_of_the_peers_noise():
    assert privacy.iiadmm_total(1, 1.0) == pytest.approx(1.0, rel=1e-3)
    assert privacy.iiadmm_total(2, 0.1) == pytest.approx(0.3, rel=1e-3)
    assert privacy.laplace_total(2, 0.1) == pytest.approx(0.2, rel=1e-3)
    # 100 rounds of noise for (1, 1e-6) are one Gaussian mechanism with mu = 10 / 5.3.
    assert privacy.classical_total(100, 1.0) == pytest.approx(10.25, abs=0.01)
    budget = privacy.largest(lambda rounds, epsilon: rounds * epsilon, 5)
    assert budget == pytest.approx(privacy.EPSILON / 5, rel=1e-3) and budget <= 0.2


def test_schemes_at_the_equal_budget_have_that_total_and_answer_in_the_box():
    for scheme in privacy.schemes(INSTANCE):
        if scheme.total is not privacy.laplace_total:  # the package's own calibration, and slow
            assert scheme.total(1, scheme.per_round(1)) == pytest.approx(1.0, rel=1e-3)
        last, average = scheme.run(replace(scheme.grid[0], rounds=3), 1.0, 0)
        assert max(INSTANCE.violation(last), INSTANCE.violation(average)) < 1e-6


def test_a_run_is_judged_by_when_it_stays_close():
    best, x = instances.optimum(INSTANCE)
    points = np.array([0 * x, x, 0 * x, x, x])
    found = Run(points, np.zeros(5), np.arange(1.0, 6.0), {"some": "1.0"}, "")
    row = convergence.judged(INSTANCE, best, found, "some", 1.0)
    assert (row.rounds, row.seconds, row.per_round, row.ran) == (4, 4.0, 1.0, 5)
    far = Run(0 * points, np.zeros(5), np.arange(1.0, 6.0), {}, "")
    worse = convergence.judged(INSTANCE, best, far, "some", 3.0)
    assert worse.rounds is None and worse.seconds == 5.0
    assert min(worse, row, key=convergence.faster) is row


def test_missing_peers_are_named_with_their_pip_line(tmp_path):
    peer = next(p for p in environments.PEERS if p.name == "dede")
    assert not environments.installed(peer, tmp_path)
    quiet = dict(rounds=1, rhos=[1.0], repeats=1, timeout=9.0, progress=lambda text: None)
    (row,) = convergence.rows(INSTANCE, [peer], tmp_path, **quiet)
    assert "pip install --quiet dede==0.1.6 scipy==1.11.4" in row.missing
    assert row.missing in report.convergence_table("box", [row], "dpcvx, exact steps")


def test_a_failing_worker_is_reported_with_its_error(tmp_path):
    place = tmp_path / "osbdo" / "bin"
    place.mkdir(parents=True)
    (place / "python").symlink_to(sys.executable)
    peer = Peer("osbdo", "no_such_worker", ("osbdo",))
    with pytest.raises(environments.PeerFailed, match="No such file"):
        environments.run(peer, INSTANCE, tmp_path, rounds=1, rho=1.0, timeout=20.0)
    assert environments.error_in("Traceback\n  x\nValueError: a\n b\n") == "ValueError: a b"


def test_every_feature_has_a_mark_per_package_and_workers_exist():
    for marks in features.FEATURES.values():
        assert len(marks.split()) == len(features.PACKAGES)
        assert set(marks.split()) <= set(report.WORDS)
    folder = Path(environments.__file__).parent
    assert all((folder / f"{peer.worker}.py").exists() for peer in environments.PEERS)


def test_the_command_prints_the_features_and_refuses_to_install_nowhere(capsys):
    main(["--parts", "features"])
    assert "private data marked in the model" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--install"])


def test_the_privacy_table_names_what_is_covered():
    line = privacy.Line("some", "1 per round", 9.0, 0.5, 0.1, 0.2, math.inf, "T 1", "any change")
    text = report.privacy_table([line], 3, 1.3)
    assert "any change; T 1" in text and "not private" in text


@pytest.mark.parametrize("epsilon", [1.0, pytest.param(10.0, marks=pytest.mark.study)])
def test_linear_programs_lose_less_where_a_few_violations_are_allowed(epsilon):
    """Medians of 12 runs; those of the page are 2.9 and 4.8 times apart."""
    found = linear_gaps(epsilon, runs=6)
    gap, violated = found["published"]
    assert found["plan, at most 5%"][0] < found["plan, never"][0] < gap < 0.5
    assert violated == found["plan, never"][1] == 0


@pytest.mark.parametrize(
    "name",
    [
        name if name == "allocation" else pytest.param(name, marks=pytest.mark.study)
        for name in STUDIES
    ],
)
def test_plans_lose_less_than_noise_on_the_optimum(name):
    """Medians of 6 runs; those of the page are at least 1.6 times apart."""
    found, ratio = compared(name, 10.0, runs=6)
    assert found["plan"][0] < found["published"][0]
    assert ratio > 1  # the sampled sensitivity is no bound
