"""The models, as a newcomer would write them, in natural units.

Data and stand-ins are drawn from different truths: a stand-in is what last year's published figures
or another region's are. Nothing about a model is scaled for a method's sake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from problems.census.records import made_records
from problems.census.records import shared_out as census_shares
from problems.census.study import census
from problems.elastic_net.study import elastic_net
from problems.elastic_net.users import made_users
from problems.labeled import data_of
from problems.nonconvex_classification.records import made_shares
from problems.nonconvex_classification.study import classification, stationary_point
from problems.power_flow.study import PowerFlow, power_flow

Floats = NDArray[np.float64]
Data = Mapping[dp.Private | str, Floats]


@dataclass(frozen=True, eq=False)
class Model:
    """A problem, what its agents hold, and what everybody knows.

    Attributes
    ----------
    problem : dp.Problem
    stand_in : mapping of str to ndarray
        Public values of the same kind as the private ones.
    data : mapping of str to ndarray
        The true ones, where they are not part of the problem.
    minimizer : callable, optional
        Finds one on the true data; cvxpy does by `dp.not_private.joint_problem` if omitted.
    expected : callable, optional
        From a seed to what is publicly expected of the data, right to a tenth.
    method : Algorithm, optional
        Named by its user, as plans ask for where an objective is not convex.
    """

    problem: dp.Problem
    stand_in: Data = field(repr=False)
    data: Data = field(default_factory=dict, repr=False)
    minimizer: Callable[[], Mapping[cp.Variable, Floats]] | None = None
    expected: Callable[[int], Mapping[dp.Private | str, dp.Prior]] | None = None
    method: dp.Algorithm | None = None


# The papers' instances ----------------------------------------------------------------------------


def power_flow_14() -> Model:
    """Ryu and Kim: loads that are shed, 14 buses in three zones, load scale 1.5."""
    return _power_flow(14)


def power_flow_118() -> Model:
    """The same with 118 buses."""
    return _power_flow(118)


def _power_flow(case: int) -> Model:
    study = power_flow(case, load_scale=1.5)
    rng, loads = np.random.default_rng(case), _loads(study)
    last_year = {name: load * rng.lognormal(0.0, 0.2, load.shape) for name, load in loads.items()}

    def expected(seed: int) -> dict[dp.Private | str, dp.Prior]:
        drawn = np.random.default_rng([case, seed])
        found = {name: load * drawn.normal(1.0, 0.1, load.shape) for name, load in loads.items()}
        return {name: dp.Prior(mean, 0.1 * np.abs(mean)) for name, mean in found.items()}

    return Model(study.problem, last_year, expected=expected)


def _loads(study: PowerFlow) -> dict[str, Floats]:
    loads = study.case.scaled_load(study.load_scale)
    return {
        f"load of zone {label}": loads[study.zones.buses[zone]]
        for zone, label in enumerate(study.zones.names)
    }


def users_elastic_net() -> Model:
    """Chan, Xie and Zhao: every user holds one record, agents agree by ``x = y``."""
    study = elastic_net(made_users(100, 10))
    others = made_users(100, 10, seed=1)
    stand_in: dict[dp.Private | str, Floats] = {}
    for k in range(100):
        stand_in[f"features {k}"] = others.features[k : k + 1]
        stand_in[f"target {k}"] = others.targets[k : k + 1]
    return Model(study.problem, stand_in)


def incomes_logistic() -> Model:
    """Xiao, Ye and Devadas: logistic regression on census records, ten agents with 100 each."""
    study = census(10, 100, made_records(1).size)
    parts = census_shares(made_records(1100), 10).parts
    others = census_shares(made_records(1100, seed=1), 10).parts
    return Model(study.problem, data_of(others), data_of(parts))


def nonconvex_classification() -> Model:
    """Ou, Wang, Liu and Lu: logistic losses with a penalty that levels off, ten agents."""
    shares = made_shares(10, 200, 5, heterogeneity=0.5)
    others = made_shares(10, 200, 5, heterogeneity=0.5, seed=1)
    study = classification(10, 200, 5, bound=shares.bound)

    def minimizer() -> dict[cp.Variable, Floats]:
        return {study.x: stationary_point(study, shares.parts)}

    return Model(
        study.problem,
        data_of(others.parts),
        data_of(shares.parts),
        minimizer,
        method=dp.FederatedGradient(),
    )


# A newcomer's -------------------------------------------------------------------------------------


def ridge() -> Model:
    """Four hospitals, 300 patients each: days in hospital by standardized findings."""
    w = cp.Variable(6, name="w")

    def drawn(seed: int) -> list[tuple[Floats, Floats]]:
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=6)
        found = []
        for _ in range(4):
            X = np.clip(rng.normal(size=(300, 6)), -2, 2)
            found.append((X, np.clip(X @ truth + rng.normal(size=300), -10, 10)))
        return found

    agents, stand_in = [], {}
    for k, ((X, y), other) in enumerate(zip(drawn(1), drawn(2), strict=True)):
        patients = dp.Private(X, name=f"findings {k}", adjacency=dp.Rows(5.0, clip_rows=True))
        days = dp.Private(y, name=f"days {k}", adjacency=dp.Rows(10.0))
        loss = cp.sum_squares(patients @ w - days) / 300
        agents.append(
            dp.Agent(
                cp.Minimize(loss + 0.1 * cp.sum_squares(w)), [cp.abs(w) <= 10], f"hospital {k}"
            )
        )
        stand_in[f"findings {k}"], stand_in[f"days {k}"] = other
    return Model(dp.Problem(agents), stand_in)


def used_machines() -> Model:
    """Prices of 60 used machines by age, hours and mass: columns of very different size."""
    rng = np.random.default_rng(3)
    columns = [np.ones(60), rng.uniform(0, 20, 60), rng.uniform(0, 9000, 60)]
    A = np.column_stack([*columns, rng.uniform(0.5, 3.0, 60)])
    x = cp.Variable(4, name="x")
    agents, stand_in = [], {}
    for k, rows in enumerate(np.array_split(np.arange(60), 3)):
        prices = A[rows] @ [52e3, -1500.0, -2.1, 4e3] + 2e3 * rng.normal(size=rows.size)
        private = dp.Private(prices, name=f"prices {k}", adjacency=dp.Within(500.0))
        agents.append(
            dp.Agent(cp.Minimize(cp.sum_squares(A[rows] @ x - private)), name=f"dealer {k}")
        )
        stand_in[f"prices {k}"] = A[rows] @ [45e3, -1100.0, -1.6, 5e3] + 2e3 * rng.normal(
            size=rows.size
        )
    return Model(dp.Problem(agents), stand_in)


def portfolio() -> Model:
    """Three desks agree on weights of eight assets; their expected returns are private."""
    rng = np.random.default_rng(4)
    factors = 0.1 * rng.normal(size=(8, 3))
    covariance = factors @ factors.T + 0.01 * np.eye(8)
    returns = rng.uniform(0.0, 0.12, 8)
    w = cp.Variable(8, name="w", nonneg=True)
    agents, stand_in = [], {}
    for k in range(3):
        view = returns + 0.02 * rng.normal(size=8)
        expected = dp.Private(view, name=f"returns {k}", adjacency=dp.Within(0.005))
        cost = 2.0 * cp.quad_form(w, covariance) - expected @ w
        agents.append(dp.Agent(cp.Minimize(cost), [cp.sum(w) == 1, w <= 0.4], f"desk {k}"))
        stand_in[f"returns {k}"] = rng.uniform(0.0, 0.12, 8)
    return Model(dp.Problem(agents), stand_in)


def clinics_logistic() -> Model:
    """Ten clinics, 200 patients each: five findings and a diagnosis."""
    w = cp.Variable(5, name="w")

    def drawn(seed: int) -> list[tuple[Floats, Floats]]:
        rng = np.random.default_rng(seed)
        truth = 2.0 * rng.normal(size=5)
        found = []
        for _ in range(10):
            X = rng.normal(size=(200, 5))
            X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) / 2)
            chance = 1 / (1 + np.exp(-X @ truth))
            found.append((X, np.where(rng.random(200) < chance, 1.0, -1.0)))
        return found

    agents, stand_in = [], {}
    for k, ((X, y), other) in enumerate(zip(drawn(5), drawn(6), strict=True)):
        patients = dp.Private(X, name=f"findings {k}", adjacency=dp.Rows(2.0, clip_rows=True))
        ill = dp.Private(y, name=f"diagnoses {k}", adjacency=dp.Rows(1.0))
        loss = cp.sum(cp.logistic(-cp.multiply(ill, patients @ w))) / 200
        agents.append(dp.Agent(cp.Minimize(loss + 0.01 * cp.sum_squares(w)), name=f"clinic {k}"))
        stand_in[f"findings {k}"], stand_in[f"diagnoses {k}"] = other
    return Model(dp.Problem(agents), stand_in)


def ev_charging() -> Model:
    """Six cars share a feeder of 15 kW over eight hours; when they would charge is private."""
    rng = np.random.default_rng(7)

    def wishes() -> Floats:
        hours = np.exp(-0.5 * ((np.arange(8) - rng.uniform(1, 5)) / 1.5) ** 2)
        return 5.0 * hours

    agents, stand_in, charging = [], {}, []
    for k in range(6):
        p = cp.Variable(8, name=f"p{k}", bounds=[0, 7])
        wish = dp.Private(wishes(), name=f"wish {k}", adjacency=dp.Within(0.5))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(p - wish)), name=f"car {k}"))
        stand_in[f"wish {k}"] = wishes()
        charging.append(p)
    spare = cp.Variable(8, name="spare", nonneg=True)
    agents.append(dp.Agent(cp.Minimize(0.01 * cp.sum_squares(spare)), name="feeder"))
    return Model(dp.Problem(agents, coupling=[sum(charging) + spare == 15]), stand_in)


def facility() -> Model:
    """Where to put a depot (km): the mean distance along streets to customers of three towns."""
    x = cp.Variable(2, name="x", bounds=[-50, 50])

    def drawn(seed: int) -> list[Floats]:
        rng = np.random.default_rng(seed)
        towns = rng.uniform(-30, 30, (3, 2))
        return [np.clip(town + 5 * rng.normal(size=(150, 2)), -50, 50) for town in towns]

    agents, stand_in = [], {}
    for k, (places, other) in enumerate(zip(drawn(8), drawn(9), strict=True)):
        homes = dp.Private(places, name=f"homes {k}", adjacency=dp.Rows(50.0, norm="inf"))
        here = np.ones((150, 1)) @ cp.reshape(x, (1, 2), order="C")
        agents.append(dp.Agent(cp.Minimize(cp.sum(cp.abs(homes - here)) / 150), name=f"town {k}"))
        stand_in[f"homes {k}"] = other
    return Model(dp.Problem(agents), stand_in)


def svm() -> Model:
    """A support vector machine of three sites with 400 records each."""
    w, b = cp.Variable(4, name="w"), cp.Variable(name="b")

    def drawn(seed: int) -> list[tuple[Floats, Floats]]:
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=4)
        found = []
        for _ in range(3):
            X = rng.normal(size=(400, 4))
            found.append((X, np.sign(X @ truth + 0.5 + 0.5 * rng.normal(size=400))))
        return found

    agents, stand_in = [], {}
    for k, ((X, y), other) in enumerate(zip(drawn(10), drawn(11), strict=True)):
        features = dp.Private(X, name=f"features {k}", adjacency=dp.Rows(4.0, clip_rows=True))
        labels = dp.Private(y, name=f"labels {k}", adjacency=dp.Rows(1.0))
        hinge = cp.sum(cp.pos(1 - cp.multiply(labels, features @ w + b))) / 400
        agents.append(dp.Agent(cp.Minimize(hinge + 0.05 * cp.sum_squares(w)), name=f"site {k}"))
        stand_in[f"features {k}"], stand_in[f"labels {k}"] = other
    return Model(dp.Problem(agents), stand_in)


def median_income() -> Model:
    """The median of incomes around 33 (thousand), five offices with 200 people each."""
    return _median(1.0)


def median_income_in_euros() -> Model:
    """The same incomes in euros: the answer should only change its unit."""
    return _median(1000.0)


def _median(unit: float) -> Model:
    m = cp.Variable(name="m", bounds=[0, 200 * unit])
    rng = np.random.default_rng(12)
    agents, stand_in = [], {}
    for k in range(5):
        own = np.minimum(33 * rng.lognormal(0.0, 0.5, 200), 200) * unit
        incomes = dp.Private(own, name=f"incomes {k}", adjacency=dp.Rows(200 * unit))
        agents.append(dp.Agent(cp.Minimize(cp.sum(cp.abs(m - incomes)) / 200), name=f"office {k}"))
        stand_in[f"incomes {k}"] = np.minimum(25 * rng.lognormal(0.0, 0.6, 200), 200) * unit
    return Model(dp.Problem(agents), stand_in)


def covariance() -> Model:
    """Four labs agree on a covariance of five yields (0.01); theirs are private."""
    S = cp.Variable((5, 5), name="S", PSD=True)

    def drawn(seed: int) -> list[Floats]:
        rng = np.random.default_rng(seed)
        root = 0.01 * rng.normal(size=(5, 5))
        return [np.cov(rng.normal(size=(500, 5)) @ root.T, rowvar=False) for _ in range(4)]

    agents, stand_in = [], {}
    for k, (own, other) in enumerate(zip(drawn(13), drawn(14), strict=True)):
        # One of 500 rows of norm at most 0.06 changes.
        C = dp.Private(own, name=f"covariance {k}", adjacency=dp.Within(2 * 0.06**2 / 500, norm=2))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(S - C)), name=f"lab {k}"))
        stand_in[f"covariance {k}"] = other
    return Model(dp.Problem(agents), stand_in)


def denoising() -> Model:
    """Total-variation denoising of what three microphones heard: steps of a signal of length 40."""
    x = cp.Variable(40, name="x")
    rng = np.random.default_rng(15)

    def signal() -> Floats:
        return np.repeat(rng.uniform(0, 4, 5), 8)

    truth, other = signal(), signal()
    agents, stand_in = [], {}
    for k in range(3):
        heard = dp.Private(
            truth + 0.3 * rng.normal(size=40), name=f"heard {k}", adjacency=dp.Within(0.2)
        )
        cost = cp.sum_squares(x - heard) / 2 + 1.0 * cp.tv(x)
        agents.append(dp.Agent(cp.Minimize(cost), name=f"microphone {k}"))
        stand_in[f"heard {k}"] = other + 0.3 * rng.normal(size=40)
    return Model(dp.Problem(agents), stand_in)


MODELS: dict[str, Callable[[], Model]] = {
    "power flow 14": power_flow_14,
    "power flow 118": power_flow_118,
    "elastic net": users_elastic_net,
    "census logistic": incomes_logistic,
    "nonconvex": nonconvex_classification,
    "ridge": ridge,
    "used machines": used_machines,
    "portfolio": portfolio,
    "clinics logistic": clinics_logistic,
    "EV charging": ev_charging,
    "facility": facility,
    "SVM": svm,
    "median (thousand)": median_income,
    "median (euros)": median_income_in_euros,
    "covariance": covariance,
    "denoising": denoising,
}
