"""What takes local steps is part of a plan: runs are replayed with what they were run with."""

import sys

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.errors import SolverError
from dpcvx.plan.fingerprint import computed_by, named
from dpcvx.privacy.ledger_file import Journal
from dpcvx.solvers import newton
from dpcvx.solvers.newton import COMPILED, PLAIN, best_kernel, kernel_for

needs_numba = pytest.mark.skipif(best_kernel() == PLAIN, reason="numba is not installed")


def plan_of(constraint):
    x = cp.Variable(4, name="x")
    agents = []
    for k in range(2):
        d = dp.Private(np.arange(4.0) - k, name=f"d{k}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [constraint(x)], name=f"a{k}"))
    problem = dp.Problem(agents)
    return problem.plan(dp.LinearizedADMM(), rounds=3, epsilon=1.0, delta=1e-6)


def cone(x):
    return cp.SOC(1 + 0.5 * x[0], cp.multiply([1.0, 2.0, 3.0], x[1:]))


def test_a_plan_takes_compiled_steps_where_they_save_the_time_of_compiling(monkeypatch):
    # 20 s, and 0.254 ms a step of each of two agents with 4 components.
    least = 20.0 / (2 * (2.5e-4 + 4 * 9e-7))
    assert kernel_for(int(least) - 1, [4, 4]) == PLAIN
    assert kernel_for(int(least) + 1, [4, 4]) == best_kernel()
    assert kernel_for(10**9, []) == PLAIN
    plan = plan_of(cone)
    monkeypatch.setattr(newton, "_COMPILING", 0.0)
    longer = plan_of(cone)
    digests = [p.fingerprint.partition("-")[0] for p in (plan, longer)]
    assert digests[0] == digests[1] and longer.fingerprint.endswith(f"-{best_kernel()}")
    assert {agent.program.kernel for agent in longer.agents} == {best_kernel()}
    assert longer.program.kernel == best_kernel()


def test_short_runs_do_not_load_numba(monkeypatch):
    def loaded():
        raise AssertionError("numba was loaded")

    monkeypatch.setattr(newton, "_compiled", loaded)
    plan_of(cone).run(seed=0, verbose=False)


def test_a_plan_names_what_takes_its_steps_where_that_matters():
    plan, other = plan_of(cone), plan_of(lambda x: cp.abs(x) <= 1)
    assert plan.fingerprint.endswith(f"-{PLAIN}")
    assert "-" not in other.fingerprint
    assert computed_by(other, [plan.fingerprint]) is other


@needs_numba
def test_a_run_is_replayed_with_what_it_was_run_with(tmp_path):
    plan = plan_of(cone)
    digest = plan.fingerprint.partition("-")[0]
    plan = computed_by(plan, [named(digest, COMPILED)])
    assert plan.fingerprint == named(digest, COMPILED)
    plain = computed_by(plan, [named(digest, PLAIN)])
    assert plain.fingerprint == named(digest, PLAIN)
    assert {agent.program.kernel for agent in plain.agents} == {PLAIN}
    path = tmp_path / "spent.jsonl"
    result = plain.run(seed=1, ledger=path, record=True, verbose=False)
    assert named(digest, PLAIN) in path.read_text()
    for told in (path, result.transcript):
        again = plan.replay(told)
        assert np.array_equal(again.solution["x"], result.solution["x"])
    # Noise is the same for both, and answers are but for rounding.
    other = plan.run(seed=1, verbose=False).solution["x"]
    assert other == pytest.approx(result.solution["x"], abs=1e-6)
    assert other.tobytes() != result.solution["x"].tobytes() or best_kernel() == PLAIN


@needs_numba
def test_an_interrupted_run_goes_on_with_what_it_began_with(tmp_path, monkeypatch):
    plan = plan_of(cone)
    digest = plan.fingerprint.partition("-")[0]
    plan = computed_by(plan, [named(digest, COMPILED)])
    path = tmp_path / "spent.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "end", lambda *_: "")
        computed_by(plan, [named(digest, PLAIN)]).run(seed=1, ledger=path, verbose=False)
    result = plan.run(seed=1, ledger=path, record=True, verbose=False)
    assert result.transcript.fingerprint == named(digest, PLAIN)


def test_what_is_not_installed_is_named_with_its_remedy(monkeypatch):
    plan = plan_of(cone)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "dpcvx.solvers.newton_compiled", raising=False)
    digest = plan.fingerprint.partition("-")[0]
    plain = computed_by(plan, [named(digest, PLAIN)])
    with pytest.raises(SolverError, match=r"numba.*pip install 'dpcvx\[fast\]'"):
        computed_by(plain, [named(digest, COMPILED)])
