"""Data sources of private objects, from the user's mapping by object or name; unread."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from numpy.typing import ArrayLike

from ..errors import ModelError
from ..model.declaration import Declaration, matching
from ..model.private import Private, seal_all, source_of
from ..model.sealed import Sealed, checked_now, stand_in

DataSource = ArrayLike | Callable[[], ArrayLike]


def sources_of(
    problem: Declaration,
    data: Mapping[Private | str, DataSource | Sealed] | None,
    asked: str = "plan.run(data={private: array})",
) -> list[list[Sealed]]:
    """Return the data source of each private object in an agent's objective or constraints.

    The sources are not read. If one is missing, the error names `asked` as the call that needs it.
    """
    given = dict(matching(problem, seal_all(data)))
    sources: list[list[Sealed]] = []
    for name, agent in problem.named.items():
        specs = agent.specs(name)
        sources.append(
            [source_of(p, given.get(p), name=specs[p].name, asked=asked) for p in agent.private]
        )
    return sources


def all_checked(problem: Declaration, sources: list[list[Sealed]]) -> list[list[Sealed]]:
    """Return the sources with given values checked; functions are called later, by the agents.

    Raises
    ------
    DataError
        If given values contradict their declaration.
    """
    return [
        [
            checked_now(source, agent.specs(name)[private])
            for private, source in zip(agent.private, sealed, strict=True)
        ]
        for (name, agent), sealed in zip(problem.named.items(), sources, strict=True)
    ]


def own_sources(
    problem: Declaration, k: int, data: Mapping[Private | str, DataSource | Sealed] | None
) -> list[Sealed]:
    """Return agent k's sources for all private objects; objects only in ``recourse=`` come last."""
    agent, given = problem.agents[k], dict(matching(problem, seal_all(data)))
    name, specs = problem.names[k], agent.specs(problem.names[k])
    asked = f"result.recourse('{name}', data={{private: array}})"
    private = (*agent.private, *agent.kept)
    return [source_of(p, given.get(p), name=specs[p].name, asked=asked) for p in private]


def source_for(private: Private, data: DataSource | None = None) -> Sealed:
    """Return the source of a private object's data, without reading it."""
    return source_of(private, data)


def stand_ins(
    problem: Declaration, proxy: Mapping[Private | str, Sealed], verb: str, recourse: bool = False
) -> dict[Private | str, Sealed]:
    """Return public proxy data for every private object: from `proxy`, or from its declaration.

    Functions in `proxy` are called here, once. Private data are not read.

    Parameters
    ----------
    problem : Declaration
        Problem with the private objects.
    proxy : mapping
        Sealed proxy data; see `seal_all`.
    verb : str
        Method that needs proxy data, for messages, such as ``problem.tune``.
    recourse : bool
        Whether to include private objects that occur in ``recourse=`` only.

    Raises
    ------
    ModelError
        If a private object has no proxy data.
    DataError
        If proxy data contradict the declaration.
    """
    given = dict(matching(problem, proxy, "proxy"))
    by_object: dict[Private | str, Sealed] = {}
    for name, agent in problem.named.items():
        specs = agent.specs(name)
        for private in (*agent.private, *(agent.kept if recourse else ())):
            spec = specs[private]
            value = given.get(private, None if private.proxy is None else Sealed(private.proxy))
            if value is None:
                raise ModelError(
                    f"Private '{spec.name}' has no proxy data, and {verb} may not look at the data "
                    "themselves. Declare public values of the same kind, such as nominal loads or "
                    "last year's published figures: dp.Private(..., proxy=values), or "
                    f"{verb}(..., proxy={{'{spec.name}': values}})."
                )
            by_object[private] = stand_in(value, spec)
    return by_object
