"""Transports without sockets: owners in this process, or reached by a given function.

That function carries the frames: it sends one to an owner, and returns the answer.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from .._arguments import FLAG, PATH, check_argument, integer, optional
from ..errors import ModelError, RefusedError
from ..guard import frameless
from ..model.private import Private, seal_all
from ..model.sealed import Sealed
from ..plan.terms import Terms, require_plan
from ..run.data import DataSource, sources_of
from . import wire
from .coordinator import GLANCE, Gone, Late, Remote
from .files import CoordinatorLog
from .messages import Hello, refused
from .policy import Held, Policy
from .session import Session


class _Direct:
    """Transport (hub) to owners in this process; at the end it closes their resources."""

    def __init__(self, sessions: Mapping[str, Session], held: ExitStack) -> None:
        self._sessions, self._held = sessions, held

    def gather(self, some: bool = False) -> Sequence[str]:
        return [*self._sessions]

    def exchange(
        self, frames: Mapping[str, bytes], late: Late | None = None
    ) -> dict[str, bytes | Gone]:
        return {name: self._sessions[name].handle(frame) for name, frame in frames.items()}

    def again(self, name: str) -> None:
        raise refused("away", f"agent '{name}' answers in this process, or not at all")

    def part(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Gone]:
        return self.exchange(frames)

    def close(self, farewell: bytes = b"") -> None:
        for session in self._sessions.values():
            if farewell and not session.over:
                session.handle(farewell)
        self._held.close()


@frameless
class LoopbackOwners(Remote):
    """Owners of all agents in this process, for tests and first trials.

    A run works as between machines: messages are bytes, and errors are sent as codes. Each owner
    checks its request, and compares the privacy loss with its own ledger. The shared entries of
    ``plan.run(executor=dp.LoopbackOwners(plan))`` equal the entries of ``plan.run()``. Local
    variables stay with their owners, and are nan in the result.

    Parameters
    ----------
    plan : Plan
    data : mapping of Private or its name to array_like or callable, optional
        Values for private objects declared by shape, or replacing declared ones.
    folder : str or Path, optional
        Folder for ledgers, keys, logs and final answers, which keeps these files after the run. If
        omitted, a temporary folder is removed when the run ends, even after an error. The next run
        then does not count the privacy loss of this run.
    seed : int, optional
        Noise seed, for studies on synthetic data only: anyone who knows it can subtract the noise.
    record : bool
        Store the released values in ``sessions[agent].result.releases``.

    Attributes
    ----------
    sessions : dict of str to Session
        The owners' side of the last run, by agent; empty before the first one.
        ``sessions["north"].result`` is the final result of this owner, and ``.refusal`` is the
        error if it refused to take part.

    Raises
    ------
    ModelError
        If a private object has no data, or the folder does not exist.
    """

    @frameless
    def __init__(
        self,
        plan: Terms,
        *,
        data: Mapping[Private | str, DataSource] | None = None,
        folder: str | Path | None = None,
        seed: int | None = None,
        record: bool = False,
    ) -> None:
        sealed = seal_all(data)  # first, so that no stack frame holds the data themselves
        del data
        require_plan(plan, "dp.LoopbackOwners")
        check_argument("dp.LoopbackOwners", "folder", folder, optional(PATH))
        check_argument("", "seed", seed, optional(integer(0)))
        check_argument("dp.LoopbackOwners", "record", record, FLAG)
        ledgers = None if folder is None else Path(folder)
        if ledgers is not None and not os.path.isdir(ledgers):  # false for too long names as well
            raise ModelError(
                "dp.LoopbackOwners(folder=...) needs a folder for the owners' ledgers, and "
                f"'{ledgers.name}' is not a folder. Create it."
            )
        self.sessions: dict[str, Session] = {}
        self._policies, self._folder = policies_of(plan, Path(), sealed), ledgers
        self._seed, self._record = seed, record
        super().__init__(self._joined, lambda: CoordinatorLog(None), lambda: uuid.uuid4().hex)

    def _joined(self, names: Sequence[str]) -> _Direct:
        """Return the owners of one run, with ledgers in the folder or in a temporary one."""
        with ExitStack() as held:
            folder = self._folder
            if folder is None:
                folder = Path(held.enter_context(TemporaryDirectory(prefix="dpcvx-")))
            self.sessions = {}
            for policy in self._policies:
                local = replace(policy, ledger=folder / policy.ledger)
                session = Session(local, seed=self._seed, record=self._record)
                held.callback(session.close)
                self.sessions[policy.agent] = session
            return _Direct(self.sessions, held.pop_all())


def policies_of(
    plan: Terms, folder: Path, data: Mapping[Private | str, Sealed] | None = None
) -> Sequence[Policy]:
    """Return a policy for each agent's owner, from the model's declarations and the plan's budget.

    Parameters
    ----------
    plan : Terms
    folder : Path
        Folder of all ledgers.
    data : mapping, optional
        Sealed data by private object or its name; they replace declared data.
    """
    policies = []
    for k, (agent, sources) in enumerate(
        zip(plan.agents, sources_of(plan.problem, data or {}), strict=True)
    ):
        specs = agent.program.form.private
        held = {s.name: Held(s, source) for s, source in zip(specs, sources, strict=True)}
        delta = 0.0 if agent.price is None else agent.price.delta
        noise = agent.noise
        policies.append(
            Policy(
                agent=agent.name,
                ledger=folder / f"agent-{k}.jsonl",
                epsilon=agent.budget or 0.0,
                delta=delta,
                data=held,
                share=agent.share,
                max_colluders=None
                if noise is None or noise.split is None
                else noise.split.max_colluders,
            )
        )
    return policies


# Frame that requests an owner's `Hello`; no encoded message is empty.
GREETING = b""
# Seconds between two attempts to reach an owner, and largest number of simultaneous requests.
_AGAIN = 0.3
_SIDE_BY_SIDE = 32


class RequestHub:
    """The coordinator's transport of frames by a given function; see `Hub` in `coordinator`.

    Parameters
    ----------
    names : sequence of str
        Names of the agents to wait for.
    ask : callable
        Function of an agent's name and a frame that returns the owner's answer, or None if no
        answer comes in time. The answer to `GREETING` is the owner's `Hello`.
    timeout : float
        Seconds to wait for an owner to connect, and to reconnect.
    """

    def __init__(
        self, names: Sequence[str], ask: Callable[[str, bytes], bytes | None], timeout: float
    ) -> None:
        self._names, self._ask, self._patience = tuple(names), ask, timeout
        self._met: list[str] = []
        self._pool = ThreadPoolExecutor(min(len(names), _SIDE_BY_SIDE), "hub")

    def gather(self, some: bool = False) -> Sequence[str]:
        """Wait for owners as `Hub.gather` does, and return the names of the connected ones."""
        for name in self._names:
            try:
                self.again(name)
            except RefusedError as error:
                if not some or error.code != "away":
                    raise
            else:
                self._met.append(name)
        return self._met

    def exchange(
        self, frames: Mapping[str, bytes], late: Late | None = None
    ) -> dict[str, bytes | Gone]:
        """Exchange frames as `Hub.exchange` does; all are sent in parallel."""
        calls = {name: self._pool.submit(self._ask, name, f) for name, f in frames.items()}
        while late is not None and (due := wait(calls.values(), GLANCE).not_done):
            done = {name: call.result() for name, call in calls.items() if call not in due}
            late({name: said for name, said in done.items() if said is not None})
        said = {name: call.result() for name, call in calls.items()}
        return {name: Gone(name) if answer is None else answer for name, answer in said.items()}

    def again(self, name: str) -> None:
        """Wait until an owner answers a greeting.

        Raises
        ------
        RefusedError
            If the owner does not answer in time, or another owner answers in its place.
        """
        deadline = time.monotonic() + self._patience
        while (said := self._ask(name, GREETING)) is None:
            if time.monotonic() > deadline:
                raise refused("away", f"agent '{name}' did not connect within {self._patience:g} s")
            time.sleep(_AGAIN)
        hello = wire.decode(said)
        if not isinstance(hello, Hello) or hello.agent != name:
            raise refused("stranger", f"another owner answers for agent '{name}'")

    def part(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Gone]:
        """Send last frames as `Hub.part` does; unanswered ones are repeated until time is over."""
        deadline = time.monotonic() + min(seconds, self._patience)
        answers = self.exchange(frames)
        while late := {n: frames[n] for n, answer in answers.items() if isinstance(answer, Gone)}:
            if time.monotonic() > deadline:
                break
            time.sleep(_AGAIN)
            answers |= self.exchange(late)
        return answers

    def close(self, farewell: bytes = b"") -> None:
        """Stop the threads of the hub, after sending all owners a last frame, if any."""
        try:
            if farewell:
                self.exchange(dict.fromkeys(self._met, farewell))
        finally:
            self._pool.shutdown()
