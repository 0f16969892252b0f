"""The coordinator's executor: it sends the run loop's requests to owners, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._events import event
from .._words import plural, together
from ..algorithms.base import Answer
from ..algorithms.program import LocalProgram
from ..errors import ModelError, RefusedError
from ..plan.terms import Terms
from ..privacy.accounts import Account
from ..privacy.ledger_file import Journal
from ..privacy.ledger_lines import Writer
from ..run import worker
from ..run.part import parts_of
from ..run.repeats import planned_entries
from . import messages, wire
from .files import CoordinatorLog, StoredCalls
from .messages import (
    REASONS,
    Agreed,
    Answers,
    Ask,
    Call,
    End,
    Ended,
    Exchange,
    IterateAnswer,
    Offer,
    Parted,
    Partners,
    Refusal,
    RunBegun,
    RunOver,
    going_on,
    refused,
)
from .offers import offers_of, require_account, require_agreed, require_answer, require_reply
from .records import sums_in_secret

Array = NDArray[np.float64]
# Seconds for absent owners to reconnect and receive the end of the run; a restarted owner connects
# within three.
_LINGER = 10.0
# Seconds between two checks for missing answers.
GLANCE = 1.0
# Called with the answers that came so far, by owner.
Late = Callable[[Mapping[str, bytes]], None]
M = TypeVar("M", Agreed, messages.AgentReply, IterateAnswer, messages.FinalAccount)


class Gone(ConnectionError):
    """Loss of an owner's connection, or no answer from the owner in time."""


class Hub(Protocol):
    """Transport of frames (encoded messages) between the coordinator and owners."""

    def gather(self, some: bool = False) -> Sequence[str]:
        """Wait until all owners are connected, and return the names of the connected owners.

        Parameters
        ----------
        some : bool
            Whether to return without an error if only some owners connect in time.

        Raises
        ------
        RefusedError
            If not all owners connect in time, and `some` is false.
        """
        ...

    def exchange(
        self, frames: Mapping[str, bytes], late: Late | None = None
    ) -> dict[str, bytes | Gone]:
        """Send frames to owners, and return each owner's answer, or `Gone` if none came in time.

        Parameters
        ----------
        frames : mapping of str to bytes
            Frame for each owner, by name.
        late : callable, optional
            Called about every second with the answers so far; an error raised in it ends the wait.
        """
        ...

    def again(self, name: str) -> None:
        """Wait for a disconnected owner to reconnect.

        Raises
        ------
        RefusedError
            If the owner does not reconnect in time.
        """
        ...

    def part(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Gone]:
        """Send owners a last frame each, and return their answers; absent owners may reconnect.

        Parameters
        ----------
        frames : mapping of str to bytes
            Last frame for each owner, by name.
        seconds : float
            Longest wait in seconds, if the hub's own time limit is not shorter.
        """
        ...

    def close(self, farewell: bytes = b"") -> None:
        """Disconnect all owners, after sending a last frame, if any, that they do not answer."""
        ...


class Remote:
    """Executor that requests the local updates of agents from their owners, over a hub.

    It implements `dpcvx.run.live.RemoteExecutor`.

    Parameters
    ----------
    hub : callable
        Function that opens the hub (the network connections) for agents of given names, when a run
        begins.
    log : callable
        Function that opens the log of the owners' replies. If the log contains an interrupted run,
        the run resumes.
    name : callable
        Function that returns a name for a new run.
    tell : callable, optional
        Function that is called with a line of text on owners for which the run waits.
    close : bool
        Whether to end the logged run after its last complete round, without absent owners.

    Attributes
    ----------
    closed_after : int or None
        See `dpcvx.run.live.RemoteExecutor`.
    """

    def __init__(
        self,
        hub: Callable[[Sequence[str]], Hub],
        log: Callable[[], CoordinatorLog],
        name: Callable[[], str],
        tell: Callable[[str], None] = lambda line: None,
        close: bool = False,
    ) -> None:
        self._make, self._open, self._name, self._tell = hub, log, name, tell
        self._closing = close
        self.closed_after: int | None = None
        self._hub: Hub | None = None
        self._state: _Run | None = None
        self._farewell = b""

    def writer(self, journal: Journal) -> Writer:
        """Return the journal of the run unchanged, because owners write ledgers of their own."""
        return journal

    def begin(self, plan: Terms) -> tuple[int, tuple[str, ...]]:
        """Send the plan to owners as a request; return the agreed number of rounds, and notes."""
        log = self._open()
        try:
            offers = offers_of(plan, self._name() if log.begun is None else log.begun.run)
            begun = RunBegun(offers[0].run, plan.fingerprint, tuple(map(wire.digest, offers)))
            whole = len(log.exchanges) // plan.algorithm.exchanges
            if self._closing and not whole:
                raise ModelError(
                    "The log holds no complete round, so there is no result to keep. Name the log "
                    "of the run that you want to close. Owners lose no privacy before the first "
                    "round."
                )
            closed = log.ended is not None and whole < log.ended.rounds
            self.closed_after = whole if self._closing or closed else None
            if log.begun is None:
                log.begin(begun)
            elif (log.begun.plan, log.begun.offers) != (begun.plan, begun.offers):
                raise ModelError(
                    "The log holds a run of another plan, or a run of this plan on a machine "
                    "that computes differently. Name another log for a new run. To resume, use "
                    "the model and the machine that the run began with."
                )
            if log.ended is None or log.parted != {offer.agent for offer in offers}:
                self._hub = self._make([offer.agent for offer in offers])
            self._state = state = _Run(plan, offers, self._hub, log, self._tell, self.closed_after)
            with self._ending():
                return state.agreed()
        except BaseException:
            log.close()
            self.close()
            raise

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Do nothing: owners have built their agents."""

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Request local updates, current iterates or final reports from all owners.

        Every owner has one agent, so each owner's messages and answers are lists of one element.
        """
        assert self._state is not None
        with self._ending():
            if method == "act":
                assert each is not None
                t, k = common
                answers = self._state.act(t, k, [message for (message,) in each])
            else:
                answers = self._state.answers() if method == "answer" else self._state.reports()
            return [[answer] for answer in answers]

    def close(self) -> None:
        """Disconnect the owners; after a refusal, send them its code so that they stop waiting."""
        if self._state is not None:
            self._state.close()
        if self._hub is not None:
            self._hub.close(self._farewell)
        self._hub = self._state = None
        self._farewell = b""

    @contextmanager
    def _ending(self) -> Iterator[None]:
        try:
            yield
        except RefusedError as error:
            self._farewell = wire.encode(Refusal(error.code))
            if self._state is not None:
                self._state.broken_off(error.code)
            log = None if self._state is None else self._state.log
            begun = log is not None and log.path is not None and log.exchanges
            raise (going_on(error) if begun and error.code == "away" else error) from None


@dataclass(eq=False)
class _Run:
    """A run on the coordinator's side: its offers to owners, connections and log."""

    plan: Terms
    offers: tuple[Offer, ...]
    hub: Hub | None
    log: CoordinatorLog
    tell: Callable[[str], None]
    closed_after: int | None = None

    def __post_init__(self) -> None:
        self._names = [offer.agent for offer in self.offers]
        self._closing = self.closed_after is not None and self.log.ended is None
        self._here = list(self._names)  # agents that take part: fewer if a run is closed early
        self._documents = {offer.agent: wire.encode(offer) for offer in self.offers}
        # Calls grow with the log, so they are kept in memory only if the log is.
        self._calls = [] if self.log.path is None else StoredCalls()
        self._done = self._asked = self._rounds = 0
        self._keys: bytes | None = None
        self._at: dict[str, tuple[int, int]] = {}
        self._t = 0
        self._diverged: set[str] = set()
        self._said = ""

    def close(self) -> None:
        """Close the files of the run."""
        self.log.close()
        if isinstance(self._calls, StoredCalls):
            self._calls.close()

    def broken_off(self, code: str) -> None:
        """Log the event that the run is broken off, with the code of the refusal."""
        event("broken off", {"run": self.offers[0].run, "round": self._t, "code": code})

    def agreed(self) -> tuple[int, tuple[str, ...]]:
        """Return the number of rounds that every owner's budget covers, and notes on the run."""
        if self.log.ended is not None:
            return self.log.ended.rounds, ("all that owners said is in the coordinator's log",)
        assert self.hub is not None
        here = self.hub.gather(some=self._closing)
        self._here = [name for name in self._names if name in here]
        documents = {name: self._documents[name] for name in self._here}
        said = self._expected(self._sent(documents, self._undecided), Agreed)
        keyed = sums_in_secret(self.plan.algorithm)
        for name, answer in said.items():
            require_agreed(answer, name, self.plan.rounds, keyed)
        self._at = {name: answer.place for name, answer in said.items()}
        keys = [answer.key for answer in said.values() if answer.key is not None]
        if keyed and self._closing:
            # No further sum is formed. An owner that lags behind would need the others' keys to
            # repeat one, so it is left out.
            last = (self.closed_after or 0, self.plan.algorithm.exchanges - 1)
            self._here = [name for name in self._here if self._at[name] >= last]
        elif keyed:
            run = self.offers[0].run
            self._keys = wire.encode(Partners(run, tuple(keys)))
            self._expected(self._sent(dict.fromkeys(self._names, self._keys)), Agreed)
        self._rounds = rounds = min(
            (answer.rounds for answer in said.values()), default=self.plan.rounds
        )
        notes = []
        facts = {"run": self.offers[0].run, "agents": together(self._here or ["none"])}
        if not self.log.exchanges:
            event("began", {**facts, "rounds": rounds})
        else:
            last = self.log.exchanges[-1].t
            event("resumed", {**facts, "round": last})
            notes.append(f"resumed in round {last}, from the coordinator's log")
        if self._closing:
            notes.append(self._closed())
        elif rounds < self.plan.rounds:
            notes.append(
                f"the owners' ledgers leave budget for {rounds} of the "
                f"{plural(self.plan.rounds, 'planned round')}"
            )
        return rounds, tuple(notes)

    def _closed(self) -> str:
        """Return the note on a run that is closed early; refuse a run without any iterates."""
        gone = [name for name in self._names if name not in self._here]
        note = f"closed after round {self.closed_after} of {self.plan.rounds} planned ones"
        if not gone:
            return note
        if not self._here and not self.log.answers:
            raise refused(
                "away",
                "no owner connected, and the log has no final iterates. One owner has to "
                "connect to close the run",
            )
        return (
            f"{note}; without {together(gone)}, who did not come: its shared variables are taken "
            "to be those of the others, and its releases are counted as planned, up to the round "
            "that it was asked in last"
        )

    def act(self, t: int, k: int, each: Sequence[Any]) -> list[worker.Reply | None]:
        """Return agents' replies to the `k`-th messages of round `t`, from the log or owners."""
        run = self.offers[0].run
        calls = {
            name: wire.encode(Call(run, t, k, message))
            for name, message in zip(self._names, each, strict=True)
            if message is not None
        }
        position, self._t = self._done, t
        if isinstance(self._calls, StoredCalls):
            self._calls.add(calls)
        else:
            self._calls.append(calls)
        if position < len(self.log.exchanges):
            logged = self.log.exchanges[position]
            if (logged.t, logged.k, [n for n, _ in logged.replies]) != (t, k, list(calls)):
                raise refused("changed", "the log belongs to another run")
            by_name = dict(logged.replies)
            try:
                self._require_replies(by_name, each)
            except RefusedError:
                detail = f"the log has replies of round {t} that no owner sends"
                raise refused("changed", detail) from None
            self._lead(calls, by_name, (t, k))
        else:
            by_name = self._expected(self._sent(calls), messages.AgentReply)
            if any((reply.t, reply.k) != (t, k) for reply in by_name.values()):
                raise refused("order", "a reply belongs to another round")
            self._require_replies(by_name, each)
            self.log.add(Exchange(t, k, tuple(by_name.items())))
        self._done += 1
        self._diverged |= {name for name, reply in by_name.items() if reply.diverged}
        replies = [by_name.get(name) for name in self._names]
        return [
            None
            if answer is None
            else worker.Reply(answer.message, answer.outcome, answer.diverged)
            for answer in replies
        ]

    def _require_replies(
        self, by_name: Mapping[str, messages.AgentReply], each: Sequence[Any]
    ) -> None:
        for local, message in zip(self.plan.program.agents, each, strict=True):
            if message is not None:
                require_reply(by_name[local.name], message, self.plan.algorithm, local)

    def answers(self) -> list[Answer]:
        """Return the agents' current iterates, with local components from the initial point."""
        position, self._asked = self._asked, self._asked + 1
        if position == len(self.log.answers):
            frame = wire.encode(Ask(self.offers[0].run))
            said = self._expected(self._sent(dict.fromkeys(self._here, frame)), IterateAnswer)
            for local in self.plan.program.agents:
                if local.name in said:
                    diverged = local.name in self._diverged
                    require_answer(said[local.name].answer, local, diverged)
            by_name = {name: answer.answer for name, answer in said.items()}
            each = self._filled(by_name)
            told = tuple(IterateAnswer(self.offers[0].run, each[name]) for name in self._names)
            self.log.add(Answers(told))
        pairs = zip(self.log.answers[position].told, self.plan.program.agents, strict=True)
        return [_spread(answer.answer, local) for answer, local in pairs]

    def reports(self) -> list[worker.Report]:
        """Return the owners' reports after the end of the run."""
        if self.log.ended is None:
            status = "completed" if self._t == self.plan.rounds else "stopped"
            # An owner may have begun a round that other owners did not answer.
            last = {name: max(self._t, self._at[name][0]) for name in self._here}
            run = self.offers[0].run
            ends = {name: wire.encode(End(run, status, t)) for name, t in last.items()}
            said = self._expected(self._sent(ends), messages.FinalAccount)
            for local in self.plan.program.agents:
                if local.name in said:
                    diverged = local.name in self._diverged
                    # The owner may have charged a further round, and its reply was lost.
                    reached = self._t + 1 if self._closing else self._t
                    require_account(said[local.name], local, reached, diverged)
            event("ended", {"run": run, "status": status, "round": self._t})
            self.log.add(Ended(self._rounds, self._accounts(said)))
        assert self.log.ended is not None
        self._part()
        return [
            worker.Report(_spread(told.answer, local), told.violation, _with(account, told), [])
            for told, local, account in zip(
                self.log.ended.accounts, self.plan.program.agents, self.plan.accounts(), strict=True
            )
        ]

    def _filled(self, by_agent: Mapping[str, Answer]) -> dict[str, Answer]:
        """Return all agents' current iterates, with estimates for missing answers.

        A component of a missing answer is the mean of the other agents' copies. If no other agent
        holds it, it is taken from the agent's last answer in the log, or else from the public
        initial point. The estimates are post-processing of released values.
        """
        if len(by_agent) == len(self._names):
            return dict(by_agent)
        agents = {local.name: local for local in self.plan.program.agents}
        size = self.plan.program.size
        sums = np.zeros((2, size))
        count = np.zeros(size)
        for name, answer in by_agent.items():
            slots = agents[name].slots
            sums[:, slots] += np.stack([answer.last, answer.average])
            count[slots] += 1
        before = self.log.answers[-1].told if len(self.log.answers) else None
        weight = next((answer.weight for answer in by_agent.values()), None)
        filled = dict(by_agent)
        for k, (name, local) in enumerate(agents.items()):
            if name in by_agent:
                continue
            initial = local.start[local.shared]
            earlier = Answer(initial, initial) if before is None else before[k].answer
            held = count[local.slots] > 0
            mean = sums[:, local.slots] / np.maximum(count[local.slots], 1)
            last = np.where(held, mean[0], earlier.last)
            filled[name] = Answer(last, np.where(held, mean[1], earlier.average), weight)
        return {name: filled[name] for name in self._names}

    def _accounts(
        self, said: Mapping[str, messages.FinalAccount]
    ) -> tuple[messages.FinalAccount, ...]:
        """Return final accounts of all agents; if one is missing, the most it can have released."""
        answers = self._filled({name: account.answer for name, account in said.items()})
        accounts = []
        for part in parts_of(self.plan):
            name = part.agent.name
            if name in said:
                accounts.append(said[name])
                continue
            entries = (e for e in planned_entries(part) if e.round <= self._t + 1)
            run, unknown = self.offers[0].run, 0.0
            accounts.append(messages.FinalAccount(run, answers[name], unknown, tuple(entries)))
        return tuple(accounts)

    def _part(self) -> None:
        """Send the end of the run to owners that have not confirmed it, and wait a few seconds."""
        frame = wire.encode(RunOver(self.offers[0].run))
        late = [name for name in self._here if name not in self.log.parted]
        if not late:
            return
        assert self.hub is not None
        said = self.hub.part(dict.fromkeys(late, frame), _LINGER)
        heard = tuple(name for name, answer in said.items() if answer == frame)
        if heard:
            self.log.add(Parted(heard))

    def _undecided(self, said: Mapping[str, bytes]) -> None:
        """Report which owners have not answered an offer yet: they may wait for a person's consent.

        A refusal by one owner ends the wait for the others.
        """
        self._expected(said, Agreed)
        due = together([name for name in self._here if name not in said])
        self._say(f"waiting for {due} ({len(said)} of {len(self._names)} have answered)")

    def _say(self, line: str) -> None:
        """Report a line of text, unless it repeats the line before."""
        if line != self._said:
            self.tell(line)
        self._said = line

    def _sent(self, frames: Mapping[str, bytes], late: Late | None = None) -> dict[str, bytes]:
        """Send messages and return answers; wait for disconnected owners, and send theirs again.

        A run that is closed early continues without these owners.
        """
        if self.hub is None:
            raise refused("changed", "the log has the end of the run, and not all rounds before it")
        said = self.hub.exchange(frames, late) if frames else {}
        if self._closing:
            for name in [name for name, answer in said.items() if isinstance(answer, Gone)]:
                self.tell(f"{name} left, and the run is closed without it")
                self._here.remove(name)
            return {name: answer for name, answer in said.items() if not isinstance(answer, Gone)}
        return {
            name: self._back(name, frames[name]) if isinstance(answer, Gone) else answer
            for name, answer in said.items()
        }

    def _back(self, name: str, frame: bytes) -> bytes:
        """Return a disconnected owner's answer, after it reconnects and answers missed requests."""
        assert self.hub is not None
        while True:
            self.hub.again(name)
            try:
                return self._led(name, frame)
            except Gone:
                continue

    def _led(self, name: str, frame: bytes) -> bytes:
        again = self._one(name, self._documents[name], f"waiting for {name} to agree again")
        agreed = self._expected({name: again}, Agreed)[name]
        if frame == self._documents[name]:
            return again
        self._at[name] = agreed.place
        if self._keys is not None:
            self._expected({name: self._one(name, self._keys)}, Agreed)
        for calls, exchange in zip(self._calls, self.log.exchanges, strict=False):
            if name in calls and self._at[name] < (exchange.t, exchange.k):
                self._same(name, self._one(name, calls[name]), dict(exchange.replies))
        return self._one(name, frame)

    def _lead(
        self,
        calls: Mapping[str, bytes],
        replies: Mapping[str, messages.AgentReply],
        round_step: tuple[int, int],
    ) -> None:
        """Send a logged request again to owners that restarted and have not answered it since."""
        if self.log.ended is not None:
            return
        late = {n: f for n, f in calls.items() if n in self._here and self._at[n] < round_step}
        for name, said in (self._sent(late) if late else {}).items():
            self._same(name, said, replies)

    def _same(self, name: str, said: bytes, replies: Mapping[str, messages.AgentReply]) -> None:
        """Refuse an owner whose repeated reply `said` differs: honest owners repeat it exactly."""
        again = self._expected({name: said}, messages.AgentReply)[name]
        if wire.digest(again) != wire.digest(replies[name]):
            raise refused("changed", f"agent '{name}'")

    def _one(self, name: str, frame: bytes, waiting: str = "") -> bytes:
        assert self.hub is not None
        late = (lambda _: self._say(waiting)) if waiting else None
        said = self.hub.exchange({name: frame}, late)[name]
        if isinstance(said, Gone):
            raise said
        return said

    def _expected(self, frames: Mapping[str, bytes], kind: type[M]) -> dict[str, M]:
        """Decode owners' frames as messages of one kind, in the order of the agents.

        Raises
        ------
        RefusedError
            If a message is of another kind, or if owners refuse; the error names all that refuse.
        """
        said = {name: _decoded(name, frames[name]) for name in self._names if name in frames}
        refusals: dict[str, list[str]] = {}
        for name, answer in said.items():
            if isinstance(answer, Refusal):
                code = answer.code if answer.code in REASONS else "version"
                refusals.setdefault(code, []).append(name)
        if refusals:
            raise _without(refusals)
        by_name: dict[str, M] = {}
        for name, answer in said.items():
            if not isinstance(answer, kind) or answer.run != self.offers[0].run:
                raise refused("order", f"agent '{name}' sent a {type(answer).__name__}")
            by_name[name] = answer
        return by_name


def _decoded(name: str, frame: bytes) -> object:
    try:
        return wire.decode(frame)
    except RefusedError as error:
        raise refused(error.code, f"from agent '{name}'") from None


def _without(refusals: Mapping[str, Sequence[str]]) -> RefusedError:
    """Return one error for all owners that refuse, grouped by the codes of their refusals."""
    parts = []
    for code, names in refusals.items():
        whom = together([f"'{name}'" for name in names])
        who = f"Agent {whom} takes" if len(names) == 1 else f"Agents {whom} each take"
        why = REASONS[code]
        parts.append(f"{who} no part ({code}): {why[0].lower()}{why[1:]}")
    return RefusedError(
        next(iter(refusals)),
        f"{'. '.join(parts)}. Nothing was repeated; once that is mended, run the plan again with "
        "the same log, and it resumes.",
    )


def _spread(answer: Answer, local: LocalProgram) -> Answer:
    """Return an agent's iterates with local components, taken from the initial point."""
    vectors = []
    for part in (answer.last, answer.average):
        x = local.start.copy()
        x[local.shared] = part
        vectors.append(x)
    last, average = vectors
    return Answer(last, average, answer.weight)


def _with(account: Account, told: messages.FinalAccount) -> Account:
    """Add the releases that an owner reported to its account, and return the account."""
    for entry in told.entries:
        account.recall(entry)
    return account
