"""Suites of tests for the promises of every method, on small problems with synthetic data.

A suite is a list of named checks, for the tests of a method's author::

    @pytest.mark.parametrize("check", dp.testing.check_method(MyMethod()), ids=str)
    def test_my_method(check):
        check()

and `Conformance.run` performs them all, for interactive use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, overload

from .._arguments import check_argument, count, listed, optional, show
from ..algorithms.base import Algorithm
from ..errors import ModelError, PrivacyError
from ..guard import frameless, line_of_user
from .instances import INSTANCES, Instance, equal_clinics
from .promises import (
    PROMISES,
    Trial,
    converges,
    differs_somewhere,
    refuses,
    stays_inside,
    takes_turns_in_a_batch,
)


@dataclass(frozen=True, eq=False)
class MethodCheck:
    """Check of one promise of a method on one instance; call it to perform the check.

    Attributes
    ----------
    name : str
        Promise of the method.
    instance : str
        Name of the instance, or "all instances".

    Raises
    ------
    AssertionError
        When called, if the method breaks the promise.
    """

    name: str
    instance: str
    perform: Callable[[], None] = field(repr=False)

    def __call__(self) -> None:
        """Perform the check on the method and the instance."""
        self.perform()

    def __str__(self) -> str:
        return f"{self.name} ({self.instance})"


@dataclass(frozen=True)
class ConformanceReport:
    """Result of a suite of checks on a method.

    Attributes
    ----------
    method : str
        Name of the method's class.
    passed : tuple of str
        Checks that the method passed.
    broken : mapping of str to str
        Checks that the method failed, with the error of each.
    refused : mapping of str to str
        Instances that the method refuses, with its error for each.
    """

    method: str
    passed: tuple[str, ...]
    broken: Mapping[str, str]
    refused: Mapping[str, str]

    @property
    def conforms(self) -> bool:
        """Return whether the method keeps every promise."""
        return not self.broken

    def __str__(self) -> str:
        total = len(self.passed) + len(self.broken)
        head = "keeps all" if self.conforms else f"breaks {len(self.broken)} of"
        lines = [f"{self.method} {head} {total} promises"]
        lines += [f"  broken: {name}: {what}" for name, what in self.broken.items()]
        lines += [f"  not tried on {name}: {what}" for name, what in self.refused.items()]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Conformance(Sequence[MethodCheck]):
    """Sequence of all checks of one method; no check runs before it is called.

    Attributes
    ----------
    method : str
        Name of the method's class.
    checks : tuple of MethodCheck
        Checks in the order in which `run` performs them.
    refused : mapping of str to str
        Instances that the method refuses, with its error for each.
    """

    method: str
    checks: tuple[MethodCheck, ...] = field(repr=False)
    refused: Mapping[str, str] = field(repr=False)

    def run(self) -> ConformanceReport:
        """Perform all checks; errors of the method count as broken promises."""
        passed, broken = [], {}
        for check in self.checks:
            try:
                check()
                passed.append(str(check))
            except Exception as error:
                kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
                where = line_of_user(error) if kind else ""
                broken[str(check)] = f"{kind}{error}{f' (raised{where})' if where else ''}"
        return ConformanceReport(self.method, tuple(passed), broken, self.refused)

    def __len__(self) -> int:
        return len(self.checks)

    def __iter__(self) -> Iterator[MethodCheck]:
        return iter(self.checks)

    @overload
    def __getitem__(self, index: int) -> MethodCheck: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MethodCheck]: ...
    def __getitem__(self, index: int | slice) -> MethodCheck | Sequence[MethodCheck]:
        return self.checks[index]

    def __str__(self) -> str:
        return f"{len(self)} checks of {self.method}; .run() performs them"


@frameless
def check_method(
    method: Algorithm[Any, Any],
    *,
    exact: Algorithm[Any, Any] | None = None,
    rounds: int | None = 300,
    release: Literal["each_step", "once"] = "each_step",
    instances: Sequence[str] | Mapping[str, Instance] | None = None,
    feasible: bool = True,
) -> Conformance:
    """Return checks that a method keeps the promises that every method makes.

    Checks with noise: releases alone reproduce a run, bit for bit and without the data. A seed
    repeats a run. Releases on neighboring data differ by at most the charged sensitivity, and the
    ledger holds the planned charges. No returned object contains private values. Executors and deep
    copies change nothing. Points satisfy their agents' constraints. Check without noise: the method
    converges to the optimum of the joint problem. It does not if, for example, server and agents
    update different multipliers. Finally, the method refuses invalid parameters with a clear error.

    Parameters
    ----------
    method : Algorithm
        Method for the runs with noise.
    exact : Algorithm, optional
        Method for runs without noise, with other parameters such as constant steps; `method` if
        omitted.
    rounds : int, optional
        Number of rounds within which runs without noise converge. If None, convergence is not
        checked: use it for methods that only end near an optimum.
    release : {"each_step", "once"}
        When data are released, as in `Problem.plan`.
    instances : sequence of str, or mapping of str to Instance, optional
        Names of the package's instances, or a mapping to your own instances. If omitted, all of the
        package's instances that the method accepts; a report names the others.
    feasible : bool
        Whether points must satisfy their agents' constraints, up to 1e-6, even with noise.

    Returns
    -------
    Conformance

    Raises
    ------
    ModelError
        If an argument is invalid, or the method refuses all instances.

    Examples
    --------
    >>> import dpcvx as dp
    >>> print(dp.testing.check_method(dp.ADMM(), instances=["power line"]))
    12 checks of ADMM; .run() performs them
    """
    for given in (method, method if exact is None else exact):
        if not isinstance(given, Algorithm):
            raise ModelError(
                f"dp.testing.check_method takes a method, such as dp.ADMM(), and got {show(given)}."
            )
    ends_near = "or None for a method that ends near an optimum only"
    check_argument("", "rounds", rounds, optional(count().otherwise(ends_near)))
    made = partial(Trial, method, method if exact is None else exact, rounds, release)
    trials = {name: made(build) for name, build in _builders(instances).items()}
    refused: dict[str, str] = {}
    if instances is None:
        refused = {name: said for name, trial in trials.items() if (said := _refusal(trial))}
        trials = {name: trial for name, trial in trials.items() if name not in refused}
    if not trials:
        said = "; ".join(f"{name}: {text}" for name, text in refused.items())
        raise ModelError(
            f"{type(method).__name__} supports none of the instances, so nothing would be "
            "checked. Pass instances={'mine': dpcvx.extend.Instance(problem, data)} with a "
            f"problem that it supports. {said}"
        )
    checks = [
        MethodCheck(promise, name, partial(test, trial))
        for name, trial in trials.items()
        for promise, test in PROMISES.items()
        if (rounds is not None or test is not converges) and (feasible or test is not stays_inside)
    ]
    first = next(iter(trials.values()))
    checks += [
        MethodCheck(promise, "all instances", partial(test, given))
        for promise, test, given in (
            ("wrong parameters are refused in words", refuses, first),
            ("neighboring data differ somewhere", differs_somewhere, [*trials.values()]),
        )
    ]
    if method.batched and release == "each_step":
        trial = made(equal_clinics)
        said = _refusal(trial)  # for example, the method has a graph of other agents
        if said:
            refused["equal clinics"] = said
        else:
            promise = "a batch of agents computes what each computes by itself"
            test = partial(takes_turns_in_a_batch, trial)
            checks.append(MethodCheck(promise, "equal clinics", test))
    return Conformance(type(method).__name__, tuple(checks), refused)


def _refusal(trial: Trial) -> str:
    """Return the error of a method that refuses an instance, as text; empty if it accepts it."""
    try:
        trial.noisy  # noqa: B018
    except (ModelError, PrivacyError) as error:
        return str(error)
    return ""


def _builders(
    instances: Sequence[str] | Mapping[str, Instance] | None,
) -> Mapping[str, Callable[[], Instance]]:
    if instances is None:
        return INSTANCES
    if isinstance(instances, Mapping):
        return {name: partial(_given, name, instance) for name, instance in instances.items()}
    names = listed(instances)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ModelError(
            f"dp.testing.check_method(instances={show(instances)}) must be names of the package's "
            "instances, or a mapping of names to instances: "
            "{'mine': dpcvx.extend.Instance(problem, data)}."
        )
    return {name: _known(name) for name in names}


def _known(name: str) -> Callable[[], Instance]:
    if name not in INSTANCES:
        raise ModelError(
            f"There is no instance called {show(name)}; the package's are "
            f"{', '.join(repr(instance) for instance in INSTANCES)}. Others go in as a mapping, "
            "instances={'mine': dpcvx.extend.Instance(problem, data)}."
        )
    return INSTANCES[name]


def _given(name: str, instance: Instance) -> Instance:
    if not isinstance(instance, Instance):
        raise ModelError(
            f"instances= has {show(instance)} for {show(name)}; it maps names to "
            "dpcvx.extend.Instance(problem, data)."
        )
    return instance
