"""Owners in this process: the same frames, checks and ledgers, without a network between them."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from .._arguments import check_argument, integer, optional
from ..errors import ModelError
from ..guard import frameless
from ..model.private import Private, Sealed, seal_all
from ..plan.terms import Terms
from ..run.data import DataSource, sources_of
from .coordinator import Gone, Remote
from .log import Log
from .policy import Held, Policy
from .session import Session


class _Direct:
    """A hub whose owners are in this process."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions

    def exchange(self, frames: Mapping[str, bytes]) -> dict[str, bytes | Gone]:
        return {name: self._sessions[name].handle(frame) for name, frame in frames.items()}

    def again(self, name: str) -> None:
        raise Gone(name)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


class Loopback(Remote):
    """Owners of a plan in this process; made by `loopback`.

    Attributes
    ----------
    sessions : dict of str to Session
        The owners' side, by agent; ``sessions["north"].result`` is what its owner has in the end.
    """

    def __init__(self, sessions: dict[str, Session], log: Path | None) -> None:
        self.sessions = sessions
        super().__init__(
            lambda names: _Direct(sessions), lambda: Log(log), lambda: uuid.uuid4().hex
        )


@frameless
def loopback(
    plan: Terms,
    *,
    data: Mapping[Private | str, DataSource] | None = None,
    folder: str | Path | None = None,
    seed: int | None = None,
    record: bool = False,
) -> Loopback:
    """Owners of all agents in this process, for tests and first contact.

    Everything is as between machines: offers are bytes, each owner checks its own and prices it
    against a ledger of its own, and errors cross as codes. ``plan.run(executor=dp.loopback(plan))``
    gives what ``plan.run()`` does in shared entries; what agents keep to themselves is nan.

    Parameters
    ----------
    plan : Plan
    data : mapping of Private or its name to array_like or callable, optional
        Values for private objects declared by shape, or replacing declared ones.
    folder : str or Path, optional
        For ledgers and logs; a temporary one if omitted, which the next run does not count.
    seed : int, optional
        Of the noise, for studies: who knows it can subtract the noise.
    record : bool
        Keep what left in ``sessions[agent].result.releases``.

    Returns
    -------
    Loopback
        An executor.

    Raises
    ------
    ModelError
        If a private object has no data, or the folder does not exist.
    """
    sealed = seal_all(data)  # first, so that no frame holds the data themselves
    del data
    check_argument("", "seed", seed, optional(integer(0)))
    place = Path(tempfile.mkdtemp(prefix="dpcvx-") if folder is None else folder)
    if not place.is_dir():
        raise ModelError(
            f"dp.loopback(folder=...) needs a folder for the owners' ledgers, and '{place.name}' "
            "is none. Create it."
        )
    sessions = {
        policy.agent: Session(policy, seed=seed, record=record)
        for policy in policies_of(plan, place, sealed)
    }
    return Loopback(sessions, None)


def policies_of(
    plan: Terms, place: Path, data: Mapping[Private | str, Sealed] | None = None
) -> Sequence[Policy]:
    """What each agent's owner would write down: the model's own words, and the plan's budget.

    Parameters
    ----------
    plan : Terms
    place : Path
        Folder of all ledgers.
    data : mapping, optional
        Sealed, by private object or its name.
    """
    found = []
    for k, (agent, sources) in enumerate(
        zip(plan.agents, sources_of(plan.problem, data or {}), strict=True)
    ):
        specs = agent.program.form.private
        held = {s.name: Held(s, source) for s, source in zip(specs, sources, strict=True)}
        delta = 0.0 if agent.price is None else agent.price.delta
        noise = agent.noise
        found.append(
            Policy(
                agent=agent.name,
                ledger=place / f"agent-{k}.jsonl",
                epsilon=agent.budget or 0.0,
                delta=delta,
                data=held,
                share=agent.share,
                colluders=None if noise is None or noise.split is None else noise.split.colluders,
            )
        )
    return found
