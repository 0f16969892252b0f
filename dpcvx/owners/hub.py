"""Owners behind whatever carries requests: it sends a frame, and waits for its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from . import wire
from .coordinator import GLANCE, Gone, Late
from .messages import Hello
from .refusal import refused

# Asks an owner who it is: no message is empty.
GREETING = b""
# Seconds between two attempts to reach an owner, and requests that wait at the same time.
_AGAIN = 0.3
_SIDE_BY_SIDE = 32


class RequestHub:
    """A coordinator's end; see `dpcvx.owners.coordinator.Hub`.

    Parameters
    ----------
    names : sequence of str
        Of the agents that are waited for.
    ask : callable
        Takes an agent's name and a frame, and gives its answer, or None if there is none in time.
        `GREETING` is answered by the owner's `Hello`.
    timeout : float
        Seconds to wait for an owner to come, and to come back.
    """

    def __init__(
        self, names: Sequence[str], ask: Callable[[str, bytes], bytes | None], timeout: float
    ) -> None:
        self._names, self._ask, self._patience = tuple(names), ask, timeout
        self._met: list[str] = []
        self._pool = ThreadPoolExecutor(min(len(names), _SIDE_BY_SIDE), "hub")

    def gather(self) -> None:
        """See `Hub.gather`."""
        for name in self._names:
            self.again(name)
            self._met.append(name)

    def exchange(
        self, frames: Mapping[str, bytes], late: Late | None = None
    ) -> dict[str, bytes | Gone]:
        """See `Hub.exchange`; all are asked side by side."""
        calls = {name: self._pool.submit(self._ask, name, f) for name, f in frames.items()}
        while late is not None and (due := wait(calls.values(), GLANCE).not_done):
            done = {name: call.result() for name, call in calls.items() if call not in due}
            late({name: said for name, said in done.items() if said is not None})
        said = {name: call.result() for name, call in calls.items()}
        return {name: Gone(name) if one is None else one for name, one in said.items()}

    def again(self, name: str) -> None:
        """Wait for an owner to be there.

        Raises
        ------
        RefusedError
            If it does not come in time, or another one answers.
        """
        deadline = time.monotonic() + self._patience
        while (said := self._ask(name, GREETING)) is None:
            if time.monotonic() > deadline:
                raise refused("away", f"agent '{name}' did not come within {self._patience:g} s")
            time.sleep(_AGAIN)
        hello = wire.decode(said)
        if not isinstance(hello, Hello) or hello.agent != name:
            raise refused("stranger", f"another one answers for agent '{name}'")

    def part(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Gone]:
        """See `Hub.part`; who does not answer is asked again."""
        deadline = time.monotonic() + min(seconds, self._patience)
        found = self.exchange(frames)
        while late := {n: frames[n] for n, one in found.items() if isinstance(one, Gone)}:
            if time.monotonic() > deadline:
                break
            time.sleep(_AGAIN)
            found |= self.exchange(late)
        return found

    def close(self, farewell: bytes = b"") -> None:
        """Let all owners go, with a last frame, if there is one, that nobody answers."""
        try:
            if farewell:
                self.exchange(dict.fromkeys(self._met, farewell))
        finally:
            self._pool.shutdown()
