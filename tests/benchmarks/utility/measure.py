"""Runs of one model: default, tuned, by hand."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache

import dpcvx as dp

from .by_hand import Setting, gaps_of, quartiles
from .judge import Judge
from .models import MODELS, Model
from .report import Answer, Row, settings

DELTA = 1e-6
EPSILONS = (1.0, 0.1)
# Those that do not take minutes on their own.
SHORT = tuple(n for n in MODELS if n not in ("power flow 118", "elastic net", "census logistic"))
# Those in which agents decide much for themselves.
RECOURSE = ("power flow 14", "power flow 118")
# Seeds of the runs that are judged, of defaults and hands alike. The search has others: whoever
# chooses and judges by the same runs flatters the hand.
FIRST = 1000


@lru_cache(maxsize=1)
def _judged_model(name: str) -> tuple[Model, Judge]:
    model = MODELS[name]()
    return model, Judge(model)


def measure(name: str, epsilon: float, seeds: int, seconds: float) -> Row:
    """Everything about one model at one budget.

    Parameters
    ----------
    name : str
    epsilon : float
    seeds : int
        Runs of every plan.
    seconds : float
        For tuning.
    """
    model, judge = _judged_model(name)
    default = answer(
        lambda: model.problem.plan(model.method, epsilon=epsilon, delta=DELTA), model, judge, seeds
    )
    tuned = answer(lambda: _tuned(model, epsilon, seconds), model, judge, seeds)
    found = settings(name, epsilon)
    hand = by_hand(found, model, judge, epsilon, seeds)
    whole = hand
    if any(setting.clip is not None for setting in found):
        unclipped = [setting for setting in found if setting.clip is None]
        whole = by_hand(unclipped, model, judge, epsilon, seeds)
    own = None
    if name in RECOURSE:
        plan = model.problem.plan(epsilon=epsilon, delta=DELTA)
        own = Answer(quartiles(own_gaps(plan, model, judge, seeds)), _said(plan))
    informed = None
    if model.expected is not None:
        gaps = informed_gaps(model, judge, epsilon, seeds)
        informed = Answer(quartiles(gaps), "expectations that are right to a tenth")
    return Row(
        name, epsilon, judge.nothing, default, tuned, hand, own, informed,
        None if whole == hand else whole,
    )  # fmt: skip


def by_hand(
    found: Sequence[Setting], model: Model, judge: Judge, epsilon: float, seeds: int
) -> Answer:
    """What did best in the search, which had other seeds; the start where there is nothing."""
    for setting in found:
        gaps = setting.gaps(model, judge, epsilon, DELTA, range(FIRST, FIRST + seeds))
        if gaps is not None:
            return Answer(quartiles(gaps), str(setting))
    return Answer(None, "the public start")


def own_gaps(plan: dp.Plan, model: Model, judge: Judge, seeds: int) -> list[float]:
    """Gaps of a plan's runs once every agent has decided for itself."""
    runs = (plan.run(seed=FIRST + k, data=model.data, verbose=False) for k in range(seeds))
    after = dp.not_private.recourse
    return [after(plan.problem, run.solution, model.data) - judge.optimum for run in runs]


def informed_gaps(model: Model, judge: Judge, epsilon: float, seeds: int) -> list[float]:
    """The same with public expectations, of other values for every run."""
    assert model.expected is not None
    gaps = []
    for k in range(FIRST, FIRST + seeds):
        plan = model.problem.plan(epsilon=epsilon, delta=DELTA, prior=model.expected(k))
        run = plan.run(seed=k, data=model.data, verbose=False)
        after = dp.not_private.recourse(plan.problem, run.solution, model.data)
        gaps.append(after - judge.optimum)
    return gaps


def _tuned(model: Model, epsilon: float, seconds: float) -> dp.Plan:
    return model.problem.tune(
        epsilon=epsilon, delta=DELTA, proxy=model.stand_in, time_limit=seconds, verbose=False
    ).plan()


def answer(planned: Callable[[], dp.Plan], model: Model, judge: Judge, seeds: int) -> Answer:
    """Gaps of a plan's runs."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            plan = planned()
        except dp.DpcvxError as refusal:
            return Answer(None, f"refused: {refusal}")
        gaps = gaps_of(plan, model, judge, range(FIRST, FIRST + seeds))
    told = [str(one.message) for one in heard] + [plan.remarks]
    warned = any("nothing about the data" in text or told_of(text, judge.nothing) for text in told)
    return Answer(quartiles(gaps), _said(plan), warned)


def told_of(text: str, nothing: float) -> bool:
    """Whether it says that noise may leave more than the gap of the public start is."""
    found = re.search(r"may leave a gap of up to about (\S+), in units of the objective", text)
    return found is not None and float(found[1]) >= nothing


def _said(plan: dp.Plan) -> str:
    kinds = {str(a.noise.mechanism) for a in plan.agents if a.noise is not None}
    return f"{plan.release}, {'/'.join(sorted(kinds))}, T = {plan.rounds}, {plan.algorithm}"
