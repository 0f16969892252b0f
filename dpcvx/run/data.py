"""Data sources of the agents: values for private objects, by object or name; none are read."""

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
    """Return functions that fetch values, per agent and private object that runs know of.

    Nothing is read yet. If a value is missing, the message names `asked` as the call that needs it.
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
    """Return the sources with all values checked, except those of functions, which agents call.

    Raises
    ------
    DataError
        If values do not fit their declaration.
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
    """Return sources for every private object of agent k, those of ``recourse=`` last."""
    agent, given = problem.agents[k], dict(matching(problem, seal_all(data)))
    name, specs = problem.names[k], agent.specs(problem.names[k])
    asked = f"result.recourse('{name}', data={{private: array}})"
    private = (*agent.private, *agent.kept)
    return [source_of(p, given.get(p), name=specs[p].name, asked=asked) for p in private]


def source_for(private: Private, data: DataSource | None = None) -> Sealed:
    """Return a function that fetches the values of one private object; nothing is read yet."""
    return source_of(private, data)


def stand_ins(
    problem: Declaration, proxy: Mapping[Private | str, Sealed], verb: str, recourse: bool = False
) -> dict[Private | str, Sealed]:
    """Return public values for every private object: from `proxy`, else from its own ``proxy=``.

    Functions among them are called here, once; no private data are read.

    Parameters
    ----------
    problem : Declaration
    proxy : mapping
        See `seal_all`.
    verb : str
        Method that needs them, for messages, such as ``problem.tune``.
    recourse : bool
        Also for those that are in ``recourse=`` alone.

    Raises
    ------
    ModelError
        If one has neither.
    DataError
        If values do not fit their declaration.
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
