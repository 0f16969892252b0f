"""Pictures of the landing page, one panel each; ``make gallery`` draws them."""

from pathlib import Path

import cvxpy as cp
import dpcvx as dp
import matplotlib.pyplot as plt
import numpy as np
from examples import demo
from problems.power_flow import power_flow

FOLDER = Path(__file__).parent / "gallery"
BLUE, ORANGE, GREY = "#2b6f8f", "#d9822b", "#b8bec4"


def panel(name, draw):
    """Draw one legible panel for a card."""
    with plt.rc_context(
        {
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    ):
        figure, ax = plt.subplots(figsize=(4, 2.8), layout="constrained")
        draw(ax)
        figure.savefig(FOLDER / f"front_{name}.png", dpi=140)
        plt.close(figure)


def network(ax):
    """Plot the loads of the 14-bus network, and an eavesdropper's estimates of them."""
    study = power_flow(14, load_scale=1.0)
    loads = demo.active(
        study, [study.case.load[buses] for buses in study.zones.buses]
    )
    order = np.argsort(-loads)[:8]
    runs = demo.spend(study, demo.chosen(study, 0.3), range(12))
    ax.bar(range(8), loads[order], color=GREY, label="true load")
    for k, bus in enumerate(order):
        label = "estimates at epsilon 0.3" if k == 0 else None
        ax.plot(
            np.full(12, k),
            runs.estimates[:, bus],
            "o",
            ms=3,
            color=BLUE,
            alpha=0.7,
            label=label,
        )
    ax.set_xticks(range(8), study.case.bus.id[order].astype(int))
    ax.set(xlabel="bus", ylabel="MW")
    ax.legend(frameon=False)


def clinics(ax):
    """Plot the accuracy of a classifier on the records of four clinics against epsilon."""
    rng = np.random.default_rng(0)
    truth = np.array([2.0, -1.0, 0.5])

    def sample(count):
        rows = rng.normal(size=(count, 3))
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
        return rows, np.where(
            rows @ truth + 0.3 * rng.normal(size=count) > 0, 1.0, -1.0
        )

    w, agents = cp.Variable(3, name="w"), []
    for k in range(4):
        X, y = sample(250)
        person = dp.Rows(1.0, records=f"patient of clinic {k}")
        features = dp.Private(X, name=f"features {k}", adjacency=person)
        labels = dp.Private(y, name=f"labels {k}", adjacency=person)
        loss = cp.sum(cp.logistic(-cp.multiply(labels, features @ w))) / 1000
        agents.append(
            dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 5], name=f"clinic {k}")
        )
    problem = dp.Problem(agents)
    X, y = sample(4000)

    def accuracy():
        return 100 * np.mean(y * (X @ w.value) > 0)

    epsilons = (0.1, 0.3, 1.0, 3.0, 10.0)
    for epsilon in epsilons:
        plan = problem.plan(epsilon=epsilon, delta=1e-6)
        values = []
        for seed in range(9):
            plan.run(seed=seed)
            values.append(accuracy())
        ax.plot(np.full(9, epsilon), values, "o", ms=3, color=BLUE, alpha=0.5)
        ax.plot(epsilon, np.median(values), "s", color=BLUE)
    dp.not_private.joint_problem(problem).solve()
    ax.axhline(accuracy(), color="k", lw=1, ls="--")
    ax.text(0.1, accuracy() + 1, "without noise", va="bottom")
    ax.axhline(50, color=GREY, lw=1)
    ax.text(10, 51, "no data", color="#666666", ha="right", va="bottom")
    ax.set(
        xscale="log", xlabel="epsilon", ylabel="correct, %", ylim=(None, 100)
    )
    ax.set_xticks(epsilons, [f"{e:g}" for e in epsilons])


def lesson(ax):
    """Plot the densities of a release for two neighboring data sets."""
    release = np.linspace(-2, 5, 800)
    for value, color in ((1.0, BLUE), (2.0, ORANGE)):
        density = np.exp(-np.abs(release - value)) / 2
        ax.plot(release, density, color=color)
        ax.fill_between(release, density, color=color, alpha=0.15)
        ax.text(value, 0.52, f"data {value:g}", color=color, ha="center")
    ax.annotate(
        "at most e = 2.7\ntimes as likely",
        (3.2, 0.15),
        (2.9, 0.32),
        arrowprops={"arrowstyle": "-"},
    )
    ax.set(xlabel="released value at epsilon 1", yticks=[], ylim=(0, 0.58))


if __name__ == "__main__":
    for name, draw in {
        "network": network,
        "clinics": clinics,
        "lesson": lesson,
    }.items():
        panel(name, draw)
