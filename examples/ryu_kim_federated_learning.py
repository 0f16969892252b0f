"""Federated learning as in Ryu and Kim, section 6.2 (Figures 5 to 7), with honest totals.

Agents fit multiclass logistic regression to images: noise in the gradients (ObjG) or on the results
of local steps (OutG), several local updates E, budgets per local update, schedule (73). Every line
states what its run spends in total.
`OutG, paper` has the step size 1/n and the sensitivity of the authors' code, which the text does
not print (docs/papers/ryu_kim.md); `OutG` differs from ObjG in the place of the noise only. Figure
7 runs `OutG, paper` with other penalties: they change little, and the budget much. Two more
comparisons: other divisions of the records among agents, and ways to spend one total budget,
DP-ADMM and DP-SGD among them.
Everything printed here is computed on the records in the open: not private.

    python -m examples.ryu_kim_federated_learning                      # digits, less than a minute
    python -m examples.ryu_kim_federated_learning --full --plot out    # 8 minutes on 2 free cores
    python -m examples.ryu_kim_federated_learning --data FOLDER        # MNIST's or LEAF's files
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from matplotlib.figure import Figure

import dpcvx as dp
from problems import pictures
from problems.commands import add_plot, count, in_words
from problems.logistic_regression import figures
from problems.logistic_regression.dataset import Dataset
from problems.logistic_regression.experiment import (
    Method,
    Noise,
    Trace,
    run,
    total,
)
from problems.logistic_regression.partition import Partition
from problems.logistic_regression.settings import setting
from problems.logistic_regression.sources import read_dataset
from problems.logistic_regression.study import logistic_regression
from problems.papers import entry
from problems.progress import done

NOISES: tuple[Noise, ...] = ("ObjG", "OutG", "OutG, paper")


@dataclass(frozen=True)
class Scope:
    """How much is run."""

    epsilons: tuple[float, ...]
    updates: tuple[int, ...]
    rounds: int
    agents: int
    seeds: int
    total: float


SHORT = Scope((0.05, 0.5), (1, 5), rounds=15, agents=3, seeds=1, total=1.0)
FULL = Scope(
    entry("ryu_kim", "budgets").numbers("epsilon"),
    (1, 5, 10),
    rounds=50,
    agents=entry("ryu_kim", "MNIST").whole("P"),
    seeds=3,
    total=1.0,
)


@dataclass(frozen=True)
class Task:
    """A method on a division of a data set, with all seeds; `panel` says where it is shown."""

    panel: str
    source: str
    box: float
    partition: Partition
    method: Method
    seeds: int


def methods(scope: Scope, penalty: dp.penalties.Growing) -> Iterator[Method]:
    """The lines of the paper's figures."""
    for epsilon in scope.epsilons:
        for noise in NOISES:
            for e in scope.updates:
                yield Method(noise, scope.rounds, e, release_epsilon=epsilon, penalty=penalty)


def spendings(scope: Scope, penalty: dp.penalties.Growing) -> list[Method]:
    """Ways to spend one total budget; the paper's choice of T and E first."""
    T, E = scope.rounds, max(scope.updates)
    paper = Method("ObjG", T, E, total_epsilon=scope.total, penalty=penalty)
    added = Method("ObjG", T, E, scope.total / (T * E), penalty=penalty, note="budgets added up")
    few = max(1, T // 5)
    return [
        added,
        paper,
        replace(paper, noise="OutG, paper"),
        replace(paper, local_updates=1),
        replace(paper, noise="OutG", local_updates=1, note="DP-ADMM"),
        replace(paper, noise="DP-SGD", local_updates=1),
        replace(paper, local_updates=1, rounds=few, step=3.0, note="eta = 3"),
        replace(paper, local_updates=1, step=3.0, penalty=1.0, note="eta = 3, rho = 1"),
    ]


def penalties(scope: Scope, schedule: dp.penalties.Growing) -> Iterator[Method]:
    """The lines of Figure 7."""
    figure = entry("ryu_kim", "figure_7")
    by = figure.number("divided")
    small = replace(schedule, c1=schedule.c1 / by, c2=schedule.c2 / by)
    rules: dict[str, float | dp.penalties.Growing] = {
        f"{rho:g}": rho for rho in figure.numbers("rho")
    }
    rules |= {"(73)": schedule, f"(73) / {by:g}": small}
    for epsilon in scope.epsilons:
        for name, rule in rules.items():
            yield Method(
                "OutG, paper", scope.rounds, 1, epsilon, penalty=rule, note=f"rho = {name}"
            )


def tasks(source: str, dataset: Dataset, scope: Scope) -> list[Task]:
    """Everything that is run, the paper's figure first."""
    own = setting(dataset, scope.agents)
    T, E = scope.rounds, max(scope.updates)
    # The same penalty as the runs that it is compared with.
    exact = Method("ObjG", T, E, penalty=replace(own.penalty, c=scope.epsilons[-1]))
    agents = len(own.base.of(dataset))
    divisions = (own.base, Partition("imbalanced", agents), Partition("dirichlet", agents))
    shown = list(methods(scope, own.penalty))
    middle = [
        replace(m, noise=noise)
        for m in shown
        if (m.noise, m.local_updates, m.release_epsilon) == ("ObjG", E, scope.epsilons[-1])
        for noise in (NOISES[0], NOISES[-1])
    ]
    planned = [("figure", own.base, m) for m in (*shown, exact)]
    planned += [("penalty", own.base, m) for m in penalties(scope, own.penalty)]
    planned += [("division", d, m) for d in divisions[1:] for m in (*middle, exact)]
    planned += [("total", own.base, m) for m in spendings(scope, own.penalty)]
    return [Task(panel, source, own.box, d, m, scope.seeds) for panel, d, m in planned]


def measure(dataset: Dataset, task: Task) -> list[Trace]:
    """Run one task."""
    study = logistic_regression(dataset, task.partition.of(dataset), box=task.box)
    return run(study, task.method, range(task.seeds))


def measure_some(tasks: Sequence[Task]) -> list[list[Trace]]:
    """Run tasks of one data set, in a process of their own, which reads it once."""
    dataset = read_dataset(tasks[0].source)
    return [measure(dataset, task) for task in tasks]


def measured(dataset: Dataset, planned: Sequence[Task], jobs: int) -> list[list[Trace]]:
    """All tasks, in the given order.

    Parameters
    ----------
    dataset : Dataset
        That of the tasks; other processes read it anew, once each.
    planned : sequence of Task
    jobs : int
        Processes.
    """
    if jobs == 1:
        return done(partial(measure, dataset), planned, 1, "runs")
    jobs = min(jobs, len(planned))
    shared = done(measure_some, [planned[k::jobs] for k in range(jobs)], jobs, "processes")
    return [shared[k % jobs][k // jobs] for k in range(len(planned))]


def table(dataset: Dataset, planned: Sequence[Task], found: Sequence[list[Trace]]) -> str:
    """Medians over the seeds of test error and cost, with total guarantees."""
    seeds = len(found[0])
    lines = [
        f"{dataset.name}: {dataset.train.count} records, {dataset.features} features, "
        f"{dataset.classes} classes, norms clipped to {dataset.bound:g}",
        f"Medians over {seeds} {'seed' if seeds == 1 else 'seeds'}. Not private: computed on the "
        "records in the open.",
    ]
    head = f"{'error:':>8}{'last':>7}{'average':>9}{'cost:':>8}{'last':>7}{'average':>9}"
    names = [f"  {t.method}: {total(r[0].guarantee)}" for t, r in zip(planned, found, strict=True)]
    wide = max(map(len, names)) + 1
    panel: tuple[str, Partition] | None = None
    for task, name, traces in zip(planned, names, found, strict=True):
        if panel != (task.panel, task.partition):
            panel = task.panel, task.partition
            agents = "" if task.partition.agents is None else f", {task.partition.agents} agents"
            kinds = {"total": "one total budget, ", "penalty": "other penalties, "}
            what = f"{kinds.get(task.panel, '')}records {task.partition}{agents}"
            lines.append(f"{what:<{wide}}{head}")
        numbers = [
            float(np.median([getattr(getattr(t, kind), what) for t in traces]))
            for what in ("error", "cost")
            for kind in ("last", "average")
        ]
        lines.append(
            f"{name:<{wide}}{'':>8}{numbers[0]:>7.3f}{numbers[1]:>9.3f}"
            f"{'':>8}{numbers[2]:>7.3f}{numbers[3]:>9.3f}"
        )
    return "\n".join(lines)


def draw(
    dataset: Dataset,
    planned: Sequence[Task],
    found: Sequence[list[Trace]],
    scope: Scope,
) -> dict[str, Figure]:
    """The figures by name."""
    both = list(zip(planned, found, strict=True))
    own = [(t.method, traces) for t, traces in both if t.panel == "figure"]
    exact = next(traces for method, traces in own if method.release_epsilon is None)
    columns = {
        epsilon: [traces for method, traces in own if method.release_epsilon == epsilon] + [exact]
        for epsilon in scope.epsilons
    }
    tried = {
        epsilon: [
            traces
            for task, traces in both
            if (task.panel, task.method.release_epsilon) == ("penalty", epsilon)
        ]
        for epsilon in scope.epsilons
    }
    largest = max(scope.updates)
    divided: dict[str, list[list[Trace]]] = {}
    for task, traces in both:
        if task.panel in ("figure", "division") and task.method.local_updates == largest:
            paper = task.method.noise != "OutG"
            if paper and task.method.release_epsilon in (scope.epsilons[-1], None):
                divided.setdefault(str(task.partition), []).append(traces)
    noisy = next(t for t, *_ in columns[scope.epsilons[-1]] if t.method.local_updates == largest)
    spent = [traces for task, traces in both if task.panel == "total"]
    agents = f"{dataset.name}, {len(planned[0].partition.of(dataset))} agents"
    return {
        "comparison": figures.comparison(
            columns, f"{agents}: local updates help, and are spent like rounds"
        ),
        "penalties": figures.penalties(
            tried, exact, f"{agents}, Figure 7: the budget decides, the penalty hardly"
        ),
        "divisions": figures.divisions(
            divided,
            f"{agents}: divisions change the level, not the order\n"
            f"{scope.epsilons[-1]:g} per local update, E = {largest}, {total(noisy.guarantee)}",
        ),
        "one_total": figures.alternatives(
            spent,
            exact,
            1 - 1 / dataset.classes,
            f"Budgets added up waste a total of ({scope.total:g}, 1e-6): {agents}",
        ),
    }


def main(arguments: Sequence[str] | None = None) -> list[list[Trace]]:
    """Run, print the table, draw."""
    parser = argparse.ArgumentParser(prog="python -m examples.ryu_kim_federated_learning")
    parser.add_argument(
        "--data",
        default="digits",
        help="digits, a folder with MNIST's idx files or LEAF's JSON files, or an .npz file",
    )
    parser.add_argument("--full", action="store_true", help="all budgets and E, 10 agents, 3 seeds")
    parser.add_argument("--rounds", type=count(), help="T")
    parser.add_argument("--seeds", type=count())
    parser.add_argument("--jobs", type=count(), help="processes; with --full 2, else 1")
    add_plot(parser)
    options = parser.parse_args(arguments)
    scope = FULL if options.full else SHORT
    scope = replace(
        scope, rounds=options.rounds or scope.rounds, seeds=options.seeds or scope.seeds
    )
    with in_words(parser):
        dataset = read_dataset(options.data)
        planned = tasks(options.data, dataset, scope)
        found = measured(dataset, planned, options.jobs or (2 if options.full else 1))
        print(table(dataset, planned, found))
        if options.plot:
            drawn = {
                f"ryu_kim_learning_{name}": figure
                for name, figure in draw(dataset, planned, found, scope).items()
            }
            pictures.announce(drawn, options.plot, options.format)
    return found


if __name__ == "__main__":
    main()
