"""Malformed arguments and models: each works, or is refused in words, within a second or two.

Every public callable is called with every wrong value in every argument, and models are built
from the atoms of cvxpy with private data, public ones and odd constants in every position. A trial
ends as

* ``works``: something came back;
* ``refused``: a `DpcvxError`;
* ``cvxpy``, ``python``: an error that is raised before the package is reached;
* ``RAW``: any other error, from the package or from below it;
* ``LEAK``: a message, or a variable of one of the package's frames, quotes a misplaced value;
* ``HANG``: more than `LIMIT` seconds of processor time, or `LASTING` of a search that is told to
  go on for ages, which is to end once nothing is left to be tried;
* ``NONSENSE``: a completed run with numbers that are not finite, or with an imaginary part dropped.
"""

import contextlib
import functools
import inspect
import io
import math
import signal
import tempfile
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.transforms.indicator import indicator
from cvxpy.transforms.partial_optimize import partial_optimize
from cvxpy.transforms.suppfunc import SuppFunc as suppfunc

import dpcvx as dp
from tests.campaigns.tally import Tally
from tests.frames import CANARY, PACKAGE, leaks

FULL = 5000
LIMIT = 5.0
# Comparisons of two agents take 40 s to their own end.
LASTING = 200.0


class Hostile:
    """Whatever is asked of it, it raises and quotes itself."""

    def _fail(self, *args, **kwargs):
        raise RuntimeError(f"quoted {CANARY}")

    __array__ = __len__ = __bool__ = __eq__ = __iter__ = __float__ = __int__ = __index__ = _fail
    __lt__ = __gt__ = __le__ = __ge__ = __call__ = __getitem__ = __str__ = _fail
    __hash__ = object.__hash__

    def __repr__(self):
        return f"Hostile({CANARY})"


def recursive():
    """A list that contains itself."""
    inner = [CANARY]
    inner.append(inner)
    return inner


def masked():
    return np.ma.array([CANARY, 1.0], mask=[False, True])


def two_agents(cost=None, limits=True, **arguments):
    """A problem of two agents; its private object is called d."""
    x = cp.Variable(2, name="x")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    first = cp.sum_squares(x - d) if cost is None else cost(x, d)
    box = [cp.abs(x) <= 2] if limits else []
    agents = [
        dp.Agent(cp.Minimize(first), box, name="a"),
        dp.Agent(cp.Minimize(cp.sum_squares(x)), box, name="b"),
    ]
    return dp.Problem(agents, **arguments)


@functools.cache
def a_plan(noisy=True):
    budget = {"epsilon": 1.0, "delta": 1e-6} if noisy else {"mechanism": None}
    return two_agents().plan(dp.LinearizedADMM(), rounds=2, **budget)


@functools.cache
def a_result():
    return a_plan().run(record=True, seed=1, verbose=False)


# Made anew for every trial, for some can be read once only.
ZOO: dict[str, Callable[[], object]] = {
    "None": lambda: None,
    "True": lambda: True,
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "half": lambda: 0.5,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "huge": lambda: 1e300,
    "huge int": lambda: 10**400,
    "large": lambda: 1e160,
    "tiny": lambda: 5e-324,
    "complex": lambda: 1 + 2j,
    "float16": lambda: np.float16(0.5),
    "numpy bool": lambda: np.bool_(True),
    "fraction": lambda: Fraction(1, 3),
    "text": lambda: "no such thing",
    "empty text": lambda: "",
    "long text": lambda: "x" * 1000,
    "bytes": lambda: b"31415.92653",
    "list": lambda: [CANARY, 1.0],
    "empty list": lambda: [],
    "texts": lambda: ["a", "b"],
    "twice": lambda: ["a", "a"],
    "ragged": lambda: [[CANARY], [1.0, 2.0]],
    "nested": lambda: [["a", ["b"]]],
    "recursive": recursive,
    "tuple": lambda: (CANARY, 1.0),
    "dict": lambda: {"a": np.full(2, CANARY)},
    "odd dict": lambda: {3: [CANARY], None: 1.0},
    "hostile dict": lambda: {"a": Hostile(), "d": Hostile()},
    "set": lambda: {CANARY},
    "generator": lambda: (CANARY for _ in range(2)),
    "array": lambda: np.array([CANARY, -CANARY]),
    "matrix": lambda: np.full((2, 3), CANARY),
    "scalar array": lambda: np.array(CANARY),
    "empty array": lambda: np.zeros((0, 2)),
    "nan array": lambda: np.array([CANARY, np.nan]),
    "complex array": lambda: np.array([CANARY + 1j, 0]),
    "object array": lambda: np.array([CANARY, "a", None], dtype=object),
    "large array": lambda: np.full(2, 1e160),
    "times": lambda: np.array([3, 4], dtype="timedelta64[s]"),
    "sparse": lambda: sp.csr_array(np.array([[CANARY, 0.0]])),
    "masked": masked,
    "hostile": Hostile,
    "hostile list": lambda: [Hostile(), Hostile()],
    "class": lambda: dp.Gaussian,
    "function": lambda: lambda: np.full(2, CANARY),
    "failing function": lambda: Hostile()._fail,
    "variable": lambda: cp.Variable(2),
    "complex variable": lambda: cp.Variable(2, complex=True),
    "parameter": lambda: cp.Parameter(2),
    "constant": lambda: cp.Constant([CANARY, 1.0]),
    "private": lambda: dp.Private(np.full(2, CANARY), adjacency=dp.Within(1.0)),
    "objective": lambda: cp.Minimize(cp.square(cp.Variable())),
    "constraint": lambda: cp.Variable() >= 1,
    "nonconvex": lambda: cp.Minimize(-cp.square(cp.Variable())),
    "agent": lambda: dp.Agent(cp.Minimize(cp.square(cp.Variable())), name="other"),
    "problem": lambda: two_agents(),
    "plan": lambda: a_plan(False),
    "result": lambda: a_result(),
    "solution": lambda: a_result().last,
    "mechanism": lambda: dp.Laplace(release_epsilon=1.0),
    "adjacency": lambda: dp.Rows(1.0),
    "algorithm": lambda: dp.ADMM(),
    "step": lambda: dp.steps.Constant(0.1),
    "path": lambda: Path("/no/such/folder/file.jsonl"),
    "null": lambda: "nu\0ll",
    "folder": lambda: tempfile.gettempdir(),
    "range": lambda: range(3),
    "module": lambda: math,
    "ellipsis": lambda: ...,
}


def used(algorithm):
    """Plan and run with a method that could be made."""
    unlimited = (dp.DPP2, dp.GradientTracking, dp.PrimalDual)
    problem = two_agents(limits=not isinstance(algorithm, unlimited))
    noise = {"epsilon": 1.0, "delta": 1e-6}
    return problem.plan(algorithm, rounds=2, **noise).run(verbose=False)


def learned(scale):
    w = cp.Variable(2, name="w")
    X = dp.Private(np.eye(2).repeat(20, axis=0), name="X", adjacency=dp.Rows(1.0))
    agent = dp.Agent(cp.Minimize(cp.sum(cp.logistic(X @ w)) / 40), [cp.abs(w) <= 1])
    plan = dp.Problem([agent]).plan(scale=scale, rounds=14, epsilon=1.0, delta=1e-6)
    return plan.run(verbose=False)


def stepped(rule):
    return used(dp.LinearizedADMM(step=rule))


def weighted(rule):
    return used(dp.LinearizedADMM(penalty=rule))


def noised(mechanism):
    budget = {} if mechanism.per_step() is not None else {"epsilon": 1.0}
    return (
        two_agents()
        .plan(dp.LinearizedADMM(), mechanism=mechanism, rounds=2, delta=1e-6, **budget)
        .run(verbose=False)
    )


def noised_once(mechanism):
    budget = {} if mechanism.per_step() is not None else {"epsilon": 1.0}
    plan = two_agents().plan(mechanism=mechanism, release="once", delta=1e-6, **budget)
    return plan.run(verbose=False)


def protected(adjacency):
    d = dp.Private(np.full((2, 1), 1e-3), name="d", adjacency=adjacency)
    x = cp.Variable(name="x")
    agent = dp.Agent(cp.Minimize(cp.sum(cp.logistic(d[:, 0] * x))), [cp.abs(x) <= 1])
    return solved(dp.Problem([agent]))


def by_person(values):
    rows = dp.Rows(2.0, max_rows_per_person=1)
    x, d = cp.Variable(1, name="x"), dp.Private(values, name="d", shape=(2, 1), adjacency=rows)
    cost = cp.Minimize(cp.sum(cp.logistic(d @ x)))
    return solved(dp.Problem([dp.Agent(cost, [cp.abs(x) <= 1], name="a")]))


def asserted(sensitivity):
    x, d = cp.Variable(name="x"), dp.Private(1.0, name="d", adjacency=dp.Within(0.1))
    cost = cp.Minimize(cp.square(x - d))
    return solved(dp.Problem([dp.Agent(cost, sensitivity=sensitivity)]))


def of_data(private):
    x = cp.Variable(private.shape, name="x")
    return solved(dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - private)))]))


def solved(problem):
    return problem.plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6).run(verbose=False)


def of_agent(agent):
    return solved(dp.Problem([agent]))


def connected(graph):
    return used(dp.DecentralizedGradient(graph, 0.1))


def between(executor):
    return a_plan().run(executor=executor, verbose=False)


def fixed(algorithm):
    return two_agents().plan(algorithm, epsilon=1.0, delta=1e-6).run(verbose=False)


def perturbed(algorithm):
    agent = two_agents().agents[0]
    return dp.Problem([agent]).plan(algorithm, epsilon=1.0, delta=0).run(verbose=False)


def nothing(made):
    return made


def objective():
    x, d = cp.Variable(2), dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    return cp.Minimize(cp.sum_squares(x - d))


def agents():
    return list(two_agents().agents)


# What is called, its arguments where they are right, and what is done with what comes back.
Case = tuple[Callable[..., object], Callable[[], dict[str, object]], Callable[[object], object]]
CALLS: dict[str, Case] = {
    "Within": (dp.Within, lambda: {"radius": 0.1}, nothing),
    "Rows": (dp.Rows, lambda: {"max_norm": 1.0}, protected),
    "ByPerson": (
        dp.ByPerson, lambda: {"values": np.ones((2, 1)), "people": ["a", "b"]}, by_person,
    ),
    "Asserted": (dp.Asserted, lambda: {"l2": 1.0}, asserted),
    "Private": (
        dp.Private, lambda: {"data": np.ones(2), "adjacency": dp.Within(0.1), "name": "d"}, of_data,
    ),
    "Agent": (dp.Agent, lambda: {"objective": objective(), "name": "a"}, of_agent),
    "Problem": (dp.Problem, lambda: {"agents": agents()}, solved),
    "Gaussian": (dp.Gaussian, lambda: {"noise_multiplier": 3.0}, noised),
    "Gaussian per step": (
        dp.Gaussian, lambda: {"release_epsilon": 0.5, "release_delta": 1e-6}, noised,
    ),
    "Laplace": (dp.Laplace, dict, noised),
    "Staircase": (dp.Staircase, dict, noised_once),
    "LearnScale": (dp.LearnScale, dict, learned),
    "LinearizedADMM": (dp.LinearizedADMM, dict, used),
    "ADMM": (dp.ADMM, dict, used),
    "GradientADMM": (dp.GradientADMM, dict, used),
    "DecentralizedADMM": (dp.DecentralizedADMM, lambda: {"graph": "complete"}, used),
    "DecentralizedGradient": (
        dp.DecentralizedGradient, lambda: {"graph": "complete", "step": 0.1}, used,
    ),
    "DPP2": (dp.DPP2, lambda: {"graph": "complete"}, used),
    "GradientTracking": (
        dp.GradientTracking, lambda: {"graph": "complete", "step": 0.1}, used,
    ),
    "PrimalDual": (dp.PrimalDual, lambda: {"graph": "complete"}, used),
    "FederatedAveraging": (dp.FederatedAveraging, dict, used),
    "ResourceADMM": (dp.ResourceADMM, dict, used),
    "steps.Constant": (dp.steps.Constant, lambda: {"step": 0.1}, stepped),
    "steps.Geometric": (dp.steps.Geometric, lambda: {"first": 0.1, "ratio": 0.9}, stepped),
    "steps.Smooth": (dp.steps.Smooth, dict, stepped),
    "steps.Sqrt": (dp.steps.Sqrt, dict, stepped),
    "steps.StronglyConvex": (dp.steps.StronglyConvex, dict, stepped),
    "penalties.Fixed": (dp.penalties.Fixed, lambda: {"penalty": 1.0}, weighted),
    "penalties.Growing": (dp.penalties.Growing, lambda: {"c1": 1.0, "c2": 1.0, "Tc": 10}, weighted),
    "penalties.ResidualBalancing": (
        dp.penalties.ResidualBalancing, lambda: {"penalty": 1.0}, weighted,
    ),
    "penalties.Spectral": (dp.penalties.Spectral, lambda: {"penalty": 1.0}, weighted),
    "SecretSharing": (dp.SecretSharing, lambda: {"limit": 1e3}, nothing),
    "Threads": (dp.Threads, dict, nothing),
    "Processes": (dp.Processes, dict, nothing),
    "networks.build": (
        dp.networks.build, lambda: {"graph": "path", "agents": ["a", "b"]}, connected,
    ),
    "networks.random": (
        dp.networks.random, lambda: {"agents": ["a", "b"], "edges": 1, "seed": 1}, connected,
    ),
    "Problem.plan": (
        lambda **given: two_agents().plan(**given),
        lambda: {"rounds": 2, "epsilon": 1.0, "delta": 1e-6},
        lambda plan: plan.run(verbose=False),
    ),
    "Problem.plan once": (
        lambda **given: two_agents().plan(**given),
        lambda: {"rounds": 2, "epsilon": 1.0, "delta": 1e-6, "release": "once"},
        lambda plan: plan.run(verbose=False),
    ),
    "Problem.solve": (
        lambda **given: two_agents().solve(**given),
        lambda: {"rounds": 2, "epsilon": 1.0, "delta": 1e-6, "verbose": False},
        nothing,
    ),
    "Problem.compare": (
        lambda **given: two_agents().compare(**given),
        lambda: {
            "epsilon": 1.0, "delta": 1e-6, "proxy": {"d": np.ones(2)},
            "time_limit": 1e-3, "runs": 1,
            "seed": 0, "verbose": False,
        },
        nothing,
    ),
    "Problem.tune": (
        lambda **given: two_agents().tune(**given),
        lambda: {
            "epsilon": 1.0, "delta": 1e-6, "proxy": {"d": np.ones(2)},
            "time_limit": 1e-3, "seed": 0,
            "verbose": False,
        },
        nothing,
    ),
    "Problem.tradeoff": (
        lambda **given: two_agents().tradeoff(**given),
        lambda: {
            "epsilons": [1.0], "delta": 1e-6, "proxy": {"d": np.ones(2)}, "time_limit": 1e-3,
            "runs": 1, "seed": 0, "verbose": False,
        },
        nothing,
    ),
    "Plan.run": (
        lambda **given: a_plan().run(**given), lambda: {"seed": 1, "verbose": False}, nothing,
    ),
    "Plan.replay": (lambda **given: a_plan().replay(**given), dict, nothing),
    "check_sensitivity": (dp.check_sensitivity, lambda: {"plan": a_plan()}, nothing),
    "audit": (dp.audit, lambda: {"target": a_plan(), "runs": 20}, nothing),
    "audit mechanism": (dp.audit, lambda: {"target": dp.Laplace(1.0), "runs": 20}, nothing),
    "reconstruct": (
        dp.reconstruct, lambda: {"plan": a_plan(), "transcript": a_result().transcript}, nothing,
    ),
    "LoopbackOwners": (dp.LoopbackOwners, lambda: {"plan": a_plan()}, between),
    "Owner": (dp.Owner, dict, nothing),
    "RemoteOwners": (dp.RemoteOwners, lambda: {"listen": "127.0.0.1:0", "keys": "keys"}, nothing),
    "Ledger": (dp.Ledger, lambda: {"accounts": (a_result().ledger["a"],)}, str),
    "networks.Network": (
        dp.networks.Network,
        lambda: {
            "agents": ("a", "b"), "neighbors": ((1,), (0,)),
            "rows": (np.full(2, 0.5), np.full(2, 0.5)), "rule": "halves",
        },
        connected,
    ),
    "ObjectivePerturbation": (dp.ObjectivePerturbation, dict, perturbed),
    "OneShot": (dp.OneShot, dict, fixed),
    "FederatedGradient": (dp.FederatedGradient, dict, used),
    "Prior": (dp.Prior, lambda: {"mean": np.ones(2), "std": 1.0}, nothing),
    "Dask": (dp.Dask, dict, nothing),
    "testing.check_method": (
        dp.testing.check_method,
        lambda: {"method": dp.FederatedAveraging(), "instances": [], "rounds": None},
        nothing,
    ),
    "not_private.joint_problem": (
        dp.not_private.joint_problem, lambda: {"problem": two_agents()}, nothing,
    ),
    "objective": (
        dp.not_private.objective,
        lambda: {"problem": a_plan().problem, "solution": a_result().last},
        nothing,
    ),
    "too_long": (
        dp.not_private.too_long,
        lambda: {"private": dp.Private(np.ones((2, 1)), adjacency=dp.Rows(2.0))},
        nothing,
    ),
    "Ledger.load": (dp.Ledger.load, dict, nothing),
    "Ledger.spent": (lambda **given: a_result().ledger.spent(**given), dict, nothing),
    "Solution.of": (
        lambda **given: a_result().last.of(**given),
        lambda: {"agent": "a", "variable": a_plan().problem.variables()[0]},
        nothing,
    ),
}  # fmt: skip
# Callables behind functions without a signature of their own.
SIGNED = {
    "Problem.plan": dp.Problem.plan,
    "Problem.plan once": dp.Problem.plan,
    "Problem.solve": dp.Problem.solve,
    "Problem.compare": dp.Problem.compare,
    "Problem.tune": dp.Problem.tune,
    "Problem.tradeoff": dp.Problem.tradeoff,
    "Plan.run": dp.Plan.run,
    "Plan.replay": dp.Plan.replay,
    "Ledger.spent": dp.Ledger.spent,
    "Solution.of": dp.Solution.of,
}


def arguments_of(name):
    """Names of the arguments that a user may give."""
    signature = inspect.signature(SIGNED.get(name, CALLS[name][0]))
    return [p for p in signature.parameters if p != "self"]


def call(name, argument, value):
    """A trial: one argument is wrong, the others are right."""

    def trial():
        function, right, use = CALLS[name]
        given = {**right(), argument: ZOO[value]()}
        if argument == "ledger" and value in ("text", "long text", "empty text", "bytes"):
            with tempfile.TemporaryDirectory() as folder:
                given["ledger"] = str(Path(folder) / str(given["ledger"])[:300])
                return use(function(**given))
        if argument == "folder" and value == "folder":
            with tempfile.TemporaryDirectory() as folder:
                return use(function(**{**given, "folder": folder}))
        return use(function(**given))

    trial.lasts = argument == "time_limit" and value in ("huge", "large")
    return f"{name}({argument}={value})", trial


VARIABLES = {
    "vector": lambda: cp.Variable(2, name="x"),
    "scalar": lambda: cp.Variable(name="x"),
    "matrix": lambda: cp.Variable((2, 2), name="x"),
    "symmetric": lambda: cp.Variable((2, 2), name="x", symmetric=True),
    "PSD": lambda: cp.Variable((2, 2), name="x", PSD=True),
    "nonneg": lambda: cp.Variable(2, name="x", nonneg=True),
    "integer": lambda: cp.Variable(2, name="x", integer=True),
    "complex": lambda: cp.Variable(2, name="x", complex=True),
    "imaginary": lambda: cp.Variable(2, name="x", imag=True),
    "hermitian": lambda: cp.Variable((2, 2), name="x", hermitian=True),
}


def constants(x):
    """Odd public constants of the variable's shape."""
    shape = x.shape
    return {
        "one": np.ones(shape),
        "nan": np.full(shape, np.nan),
        "inf": np.full(shape, np.inf),
        "huge": np.full(shape, 1e300),
        "large": np.full(shape, 1e160),
        "tiny": np.full(shape, 5e-324),
        "complex": np.full(shape, 1 + 1j),
        "imaginary": np.full(shape, 1j),
        "zero": np.zeros(shape),
        "sparse": sp.csr_array(np.atleast_2d(np.ones(shape)))
        if len(shape) == 2
        else np.ones(shape),
    }


def operands(x, d):
    """Expressions of variable and data, by name."""
    public = cp.Parameter(x.shape, name="p", value=np.ones(x.shape))
    unset = cp.Parameter(x.shape, name="q")
    phasor = cp.Parameter(x.shape, name="c", complex=True, value=np.full(x.shape, 1 + 1j))
    found = {
        "x": x, "d": d, "x - d": x - d, "d * x": cp.multiply(d, x), "-x": -x, "x + p": x + public,
        "x + q": x + unset, "c * x": cp.multiply(phasor, x), "c + d": phasor + d, "p": public,
        "sum": cp.sum(x) + cp.sum(d), "x / d": x / d, "d / x": cp.multiply(d, cp.inv_pos(x)),
        "d * d": cp.multiply(d, d), "square": cp.square(x), "exp": cp.exp(x - d),
    }  # fmt: skip
    for name, value in constants(x).items():
        found[f"{name} constant"] = cp.Constant(value)
        found[f"{name} * x"] = cp.multiply(value, x)
        found[f"{name} * x - d"] = cp.multiply(value, x) - d
    return found


UNARY = {
    name: getattr(cp, name)
    for name in (
        "abs ceil conj cummax cumprod cumsum deep_flatten diag diff entr exp floor geo_mean "
        "harmonic_mean huber imag inv_pos inv_prod lambda_max lambda_min length linearize "
        "log log1p log_det log_normcdf log_sum_exp loggamma logistic max maximum mean min minimum "
        "mixed_norm neg norm norm1 norm2 norm_inf normNuc one_minus_pos pf_eigenvalue pnorm pos "
        "prod ptp real sigma_max sign sqrt square std sum sum_squares tr_inv trace "
        "transpose tv upper_tri var vec von_neumann_entr xexp"
    ).split()
}
UNARY |= {
    "cvar": lambda a: cp.cvar(a, 0.5),
    "resolvent": lambda a: cp.resolvent(a, 2.0),
    "power 3": lambda a: cp.power(a, 3),
    "power half": lambda a: cp.power(a, 0.5),
    "power -2": lambda a: cp.power(a, -2),
    "power 1e3": lambda a: cp.power(a, 1e3),
    "pnorm 3": lambda a: cp.pnorm(a, 3),
    "pnorm half": lambda a: cp.pnorm(a, 0.5),
    "sum_largest": lambda a: cp.sum_largest(a, 1),
    "lambda_sum_largest": lambda a: cp.lambda_sum_largest(a, 1),
    "dotsort": lambda a: cp.dotsort(a, np.ones(2)),
    "reshape": lambda a: cp.reshape(a, (a.size, 1), order="F"),
    "huber M": lambda a: cp.huber(a, 1e160),
    "indicator": lambda a: indicator([a <= 1]),
    "suppfunc": lambda a: suppfunc(cp.Variable(2), [])(a),
    "norm_inf axis": lambda a: cp.norm_inf(a, axis=0),
    "scalene": lambda a: cp.scalene(a, 1, 2),
    "condition_number": lambda a: cp.condition_number(a),
    "psd_wrap": lambda a: cp.psd_wrap(a),
    "perspective": lambda a: cp.perspective(cp.sum_squares(a), cp.Variable(nonneg=True)),
    "perspective itself": lambda a: cp.perspective(cp.square(a), a),
    "partial": lambda a: partial_optimize(
        cp.Problem(cp.Minimize(cp.sum_squares(a) + cp.square(cp.Variable(name="y")))),
        opt_vars=a.variables()[:1],
    ),
    "log utilities": lambda a: cp.sum(cp.log(1 + a)),
    "nested": lambda a: cp.exp(cp.square(cp.logistic(a))),
    "deep": lambda a: functools.reduce(lambda b, _: cp.logistic(b), range(30), a),
}
BINARY = {
    name: getattr(cp, name)
    for name in (
        "conv convolve dist_ratio gen_lambda_max kl_div kron matmul matrix_frac maximum "
        "minimum multiply outer power quad_form quad_over_lin rel_entr quantum_rel_entr "
        "scalar_product vdot"
    ).split()
}
BINARY |= {
    "hstack": lambda a, b: cp.hstack([a, b]),
    "vstack": lambda a, b: cp.vstack([a, b]),
    "add": lambda a, b: a + b,
    "divide": lambda a, b: a / b,
    "at": lambda a, b: a @ b,
    "quad": lambda a, b: cp.sum_squares(a - b),
    "norm": lambda a, b: cp.norm(cp.hstack([cp.vec(a, order="F"), cp.vec(b, order="F")])),
}
METHODS = {
    "LinearizedADMM": lambda: dp.LinearizedADMM(),
    "output": lambda: dp.LinearizedADMM(perturb="output"),
    "ADMM": lambda: dp.ADMM(),
    "FederatedAveraging": lambda: dp.FederatedAveraging(),
    "GradientADMM": lambda: dp.GradientADMM(),
}
PLANS = {
    "noise": {"epsilon": 1.0, "delta": 1e-6},
    "laplace": {"epsilon": 1.0, "delta": 1e-6, "mechanism": "laplace"},
    "once": {"epsilon": 1.0, "delta": 1e-6, "release": "once"},
    "none": {"mechanism": None},
}
CONSTRAINTS = {
    "none": lambda e, x: [],
    "box": lambda e, x: [cp.abs(x) <= 1],
    "of it": lambda e, x: [e <= 1],
    "equal": lambda e, x: [e == 0],
    "empty": lambda e, x: [x >= 1, x <= 0],
    "bool": lambda e, x: [True],
    "duplicate": lambda e, x: [x <= 1, x <= 1, cp.sum(x) == 1, cp.sum(x) == 1],
    "huge": lambda e, x: [x <= 1e300, x >= -1e300],
    "large": lambda e, x: [1e160 * x <= 1],
    "nan": lambda e, x: [x <= np.full(x.shape, np.nan)],
    "complex": lambda e, x: [cp.abs(1j * x + 1) <= 1],
    "psd": lambda e, x: [cp.diag(cp.vec(x, order="F")) >> 0],
}


def model(rng):
    """A trial: a random model, planned and run."""
    kind, atom = rng.choice(list(VARIABLES)), rng.choice([*UNARY, *BINARY])
    names = [str(n) for n in rng.choice(list(operands(*_pair("vector"))), size=2)]
    method, noise = rng.choice(list(METHODS)), rng.choice(list(PLANS))
    around = rng.choice(["sum", "itself", "square", "minus"])
    constraint = rng.choice(list(CONSTRAINTS), p=[0.3, 0.2, *[0.05] * 10])
    records, size = rng.random() < 0.3, rng.choice([1.0, 1.0, 1.0, 1e155, 1e300])

    def trial():
        x, d = _pair(kind, records, size)
        known = operands(x, d)
        built = UNARY.get(atom, BINARY.get(atom))(
            *(known[n] for n in names[: 1 + (atom in BINARY)])
        )
        cost = built
        if around == "sum":
            cost = cp.sum(built)
        elif around == "square":
            cost = cp.sum_squares(built)
        elif around == "minus":
            cost = -cp.sum(built)
        agent = dp.Agent(cp.Minimize(cost), CONSTRAINTS[constraint](built, x), name="a")
        plan = dp.Problem([agent]).plan(METHODS[method](), rounds=2, **PLANS[noise])
        return plan.run(verbose=False)

    text = f"{kind}: {around}({atom}({names})), {constraint}, {method}, {noise}, {records} {size:g}"
    return text, trial


def _pair(kind, records=False, size=1.0):
    x = VARIABLES[kind]()
    rows = records and x.ndim > 0
    adjacency = dp.Rows(2.0 * size) if rows else dp.Within(0.1 * size)
    return x, dp.Private(np.full(x.shape, size), name="d", adjacency=adjacency)


class _TimeUp(BaseException):
    pass


def outcome(trial):
    """How a trial ends, and what to say of it."""
    late = []

    def stop(signum, frame):
        late.append(True)
        raise _TimeUp

    before = signal.signal(signal.SIGVTALRM, stop)
    lasts = getattr(trial, "lasts", False)
    signal.setitimer(signal.ITIMER_VIRTUAL, LASTING if lasts else LIMIT)
    try:
        quiet = contextlib.redirect_stdout(io.StringIO())
        with quiet, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = trial()
        dropped = any(issubclass(w.category, np.exceptions.ComplexWarning) for w in caught)
        kind = "NONSENSE" if dropped or senseless(found) else "works"
        return ("HANG" if late else kind), ""
    except BaseException as error:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if late:
            return "HANG", ""
        text = (
            f"{type(error).__name__}: {str(error)[:200] if not isinstance(error, Hostile) else ''}"
        )
        frames = list(_frames(error.__traceback__))
        ours = [f for f in frames if f.is_relative_to(PACKAGE)]
        if not isinstance(error, dp.DpcvxError) and ours and frames[-1].name != "guard.py":
            return "RAW", text
        if ours and leaks(error):
            return "LEAK", text
        if isinstance(error, dp.DpcvxError):
            return "refused", text
        return ("python" if isinstance(error, TypeError) else "cvxpy"), text
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _frames(trace):
    while trace is not None:
        yield Path(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next


def senseless(found):
    """Whether a run that says it completed has numbers that are not finite."""
    if not isinstance(found, dp.Result):
        return False
    done = found.status in (dp.Status.COMPLETED, dp.Status.CONVERGED)
    vectors = (*found.last.vectors, *found.average.vectors)
    return done and not all(np.isfinite(v).all() for v in vectors)


@functools.cache
def every_call():
    """All trials of callables, in order."""
    return [
        (name, argument, value)
        for name in CALLS
        for argument in arguments_of(name)
        for value in ZOO
    ]


def trials(size, seed):
    """Named trials: half of them calls with one wrong argument, half of them models."""
    rng = np.random.default_rng(seed)
    known = every_call()
    order = rng.permutation(len(known))[: size // 2]
    yield from (call(*known[i]) for i in order)
    yield from (model(rng) for _ in range(size - len(order)))


def campaign(size: int, seed: int) -> Tally:
    """Try that many inputs."""
    tally = Tally()
    for name, trial in trials(size, seed):
        kind, text = outcome(trial)
        tally.add(kind, f"{kind} {name}: {text}" if kind.isupper() else None)
    return tally
