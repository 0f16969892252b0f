"""Pictures of the landing page and of the gallery, a legible panel each: ``python docs/gallery.py [NAME ...]``.

The examples draw whole figures, whose text is too small on a card. A card has one panel of such a
figure, or what one panel says, in the size and with the labels of a card.
"""

import sys
from pathlib import Path

import cvxpy as cp
import dpcvx as dp
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from examples import (
    chan_xie_zhao_elastic_net,
    demo,
    ou_nonconvex,
    privacy_table,
    published_mistakes,
    ryu_kim_federated_learning,
    ryu_kim_power_flow,
    xiao_ye_devadas_logistic,
)
from problems.power_flow import power_flow

FOLDER = Path(__file__).parent / "gallery"
BLUE, ORANGE, GREY = "#2b6f8f", "#d9822b", "#b8bec4"
DARK = "#666666"
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def panel(name, draw):
    """Draw one legible panel for a card."""
    with plt.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(4, 2.8), layout="constrained")
        draw(ax)
        figure.savefig(FOLDER / f"{name}.png", dpi=140)
        plt.close(figure)


def lines_of(figure, axes):
    """Return the data of the labeled lines of one panel of a figure."""
    panel = figure.axes[axes]
    handles, labels = panel.get_legend_handles_labels()
    lines = (getattr(handle, "lines", [handle])[0] for handle in handles)
    return {label: np.asarray(line.get_data(), float) for label, line in zip(labels, lines, strict=True) if line}


def curves(ax, shown):
    """Plot curves, each with its name at its end.

    Parameters
    ----------
    ax : Axes
    shown : sequence of (str, ndarray of shape (2, points), color, linestyle)
    """
    for text, (x, y), color, style in shown:
        ax.plot(x, y, style, color=color, lw=2, label=text)
    ax.legend(frameon=False, handlelength=1.4, labelspacing=0.3, borderaxespad=0.2)


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



def costs(ax):
    """Plot the power imbalance of the demo against epsilon."""
    study = power_flow(14, radius=demo.RADIUS)
    found = demo.find(study, demo.EPSILONS, range(10))
    for text, runs, color in (
        ("noise in every step", found.badly, ORANGE),
        ("noise once", found.well, BLUE),
    ):
        medians = [np.median(spent.wrong) for spent in runs.values()]
        ax.loglog(list(runs), medians, "o-", color=color, lw=2, label=text)
    ax.axhline(found.total, color=DARK, ls="--", lw=1)
    ax.text(0.1, 1.15 * found.total, "no data", color=DARK)
    ax.set_xticks(list(found.well), [f"{e:g}" for e in found.well])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="epsilon", ylabel="power imbalance, MW", ylim=(None, 1e4))
    ax.legend(frameon=False, ncols=2, loc="upper left", columnspacing=1, handlelength=1.4)


def zones(ax):
    """Draw the 14-bus network by zone."""
    case, parts = (study := power_flow(14)).case, study.zones
    graph = nx.Graph(zip(case.pairs.first.tolist(), case.pairs.second.tolist(), strict=True))
    where = nx.kamada_kawai_layout(graph)
    zone = {int(bus): k for k, buses in enumerate(parts.buses) for bus in buses}
    colors = [(BLUE, ORANGE, "#4d8f5b")[zone[bus]] for bus in graph]
    ties = [zone[a] != zone[b] for a, b in graph.edges]
    nx.draw_networkx_edges(
        graph, where, ax=ax, width=[2.5 if tie else 1.0 for tie in ties], edge_color=[DARK if tie else GREY for tie in ties]
    )
    nx.draw_networkx_nodes(graph, where, ax=ax, node_color=colors, node_size=220)
    names = {bus: str(int(case.bus.id[bus])) for bus in graph}
    nx.draw_networkx_labels(graph, where, names, ax=ax, font_size=9, font_color="white")
    ax.set_axis_off()


def places(ax):
    """Plot gaps by where the noise is."""
    rows = {row.method: row for row in privacy_table.main([]) if row.kind not in privacy_table.BASELINES}
    shown = {
        "objective,\nlast iterate": "ObjG, last iterate",
        "objective,\naverage": "ObjG, average",
        "output,\npaper's sensitivity": "OutG, paper's sensitivity, average",
        "output,\nderived sensitivity": "OutG, derived sensitivity, average",
    }
    for height, method in enumerate(shown.values()):
        row = rows[method]
        ax.plot(row.gaps, np.full(row.gaps.size, height), "o", color=BLUE, alpha=0.6)
    ax.set_yticks(range(len(shown)), list(shown))
    ax.set(xlabel="gap to the optimum", xlim=(0, None), ylim=(len(shown) - 0.5, -0.5))


def noise_in_rounds(ax):
    """Plot the objective of Ryu and Kim's methods by round."""
    (study,) = ryu_kim_power_flow.main([])
    lines = lines_of(ryu_kim_power_flow.draw(study, "derived"), 2)
    curves(
        ax,
        [
            ("noise on the output", lines["OutG"], ORANGE, "-"),
            ("noise in the objective", lines["ObjG"], BLUE, "-"),
            ("no noise", lines["no noise"], DARK, "--"),
        ],
    )
    ax.set(xlabel="round", ylabel="objective", yscale="log")


def digits(ax):
    """Plot test errors of federated learning by round."""
    source = ryu_kim_federated_learning
    dataset, scope = source.read_dataset("digits"), source.SHORT
    planned = source.tasks("digits", dataset, scope)
    drawn = source.draw(dataset, planned, source.measured(dataset, planned, 1), scope)
    figure = drawn["comparison"]
    column = len(scope.epsilons)
    lines = lines_of(figure, 3 * column - 1)
    curves(
        ax,
        [
            ("output, the paper's", lines["OutG, paper, E = 1"], ORANGE, "-"),
            ("objective", lines["ObjG, E = 1"], BLUE, "-"),
            ("no noise", lines[f"no noise, E = {max(scope.updates)}"], DARK, "--"),
        ],
    )
    ax.set(xlabel="round", ylabel="test error", ylim=(0, 1))


def amplified(ax):
    """Plot epsilon by the position of a user."""
    lines = lines_of(chan_xie_zhao_elastic_net.draw(chan_xie_zhao_elastic_net.main([]))["privacy"], 0)
    ax.axhline(lines["every iterate visible"][1, 0], color=DARK, ls="--", label="every iterate visible")
    curves(
        ax,
        [
            ("last iterate only", lines["last iterate only"], ORANGE, "-"),
            ("with a certificate", lines["last iterate only, with a certificate"], BLUE, "-"),
        ],
    )
    ax.set(xlabel="position of the user", ylabel="epsilon", yscale="log", ylim=(1e-3, None))


def decentralized(ax):
    """Plot the gaps of decentralized gradient methods by round."""
    lines = lines_of(xiao_ye_devadas_logistic.draw(xiao_ye_devadas_logistic.main([]))["gradients"], 3)
    curves(
        ax,
        [
            ("Huang, Mitra, Vaidya", lines["Huang, Mitra and Vaidya"], ORANGE, "-"),
            ("Algorithm 2", lines["Algorithm 2"], BLUE, "-"),
            ("no noise", lines["Algorithm 2, no noise"], DARK, "--"),
        ],
    )
    ax.set(xlabel="round", ylabel="gap, 1 at the start", yscale="log")


def nonconvex(ax):
    """Plot gaps of methods against their total epsilon."""
    lines = lines_of(ou_nonconvex.draw(ou_nonconvex.main([]))["epsilon"], 0)
    shown = (("DPP2", BLUE), ("PPDC", ORANGE), ("Gradient descent", DARK))
    curves(ax, [(name, lines[name], color, "o-") for name, color in shown])
    ax.set(xlabel="total epsilon", ylabel="gap", xscale="log", ylim=(0, None))
    ax.minorticks_off()


def claims(ax):
    """Plot a composition theorem against the exact total."""
    lines = lines_of(published_mistakes.draw(published_mistakes.experiment(20)), 0)
    curves(ax, [("exact", lines["exact"], BLUE, "o-"), ("claimed", lines["theorem 4.9"], ORANGE, "s--")])
    ax.set(xlabel="steps at (1, 1e-6) each", ylabel="total epsilon", xscale="log", yscale="log")


CARDS = {
    "front_network": network,
    "front_clinics": clinics,
    "front_lesson": lesson,
    "demo": costs,
    "power_flow": zones,
    "privacy_table": places,
    "ryu_kim_power_flow": noise_in_rounds,
    "ryu_kim_federated_learning": digits,
    "chan_xie_zhao_elastic_net": amplified,
    "xiao_ye_devadas_logistic": decentralized,
    "ou_nonconvex": nonconvex,
    "published_mistakes": claims,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or CARDS:
        panel(name, CARDS[name])
