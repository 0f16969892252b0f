"""Events for the standard log: fixed sentences on public facts, and the only module that logs.

The loggers are ``dpcvx.owner``, ``dpcvx.coordinator`` and ``dpcvx.cluster``. Nothing is written
unless the program adds a handler. An event has a name, a level and a sentence from the table below,
and facts: names, versions, codes and counts. Facts contain no values, no data and no texts of
errors.

No event is logged for every round or at the end of a computation. Requests, connections and ends of
processes cause events, at times that others observe too. So even with a time in each line, the log
does not show how long a round took.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

_DEBUG, _INFO, _WARNING, _ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

# Logger, level and sentence of each event, by its name.
EVENTS = {
    # Events at an owner.
    "connected": ("owner", _INFO, "{agent} is connected to {address}, which uses {version}"),
    "disconnected": ("owner", _WARNING, "{agent} has no connection to {address}"),
    "offered": ("owner", _INFO, "{agent} got a request: run {run}, {rounds} rounds"),
    "consented": ("owner", _INFO, "a person at {agent} answered {answer} to run {run}"),
    "joined": ("owner", _INFO, "{agent} takes part in run {run} for {rounds} rounds"),
    "rejoined": ("owner", _INFO, "{agent} resumes run {run} after round {round}"),
    "declined": ("owner", _ERROR, "{agent} refused ({code})"),
    "finished": ("owner", _INFO, "{agent} got the end of run {run}: {status}, round {round}"),
    # Events at a coordinator.
    "listening": ("coordinator", _INFO, "the coordinator listens on {address} for {agents}"),
    "came": ("coordinator", _INFO, "{agent} is here, and uses {version}"),
    "left": ("coordinator", _WARNING, "{agent} left"),
    "turned away": (
        "coordinator",
        _WARNING,
        "a connection as {agent} was turned away ({code})",
    ),
    "began": ("coordinator", _INFO, "run {run} begins: {agents}, {rounds} rounds"),
    "resumed": ("coordinator", _INFO, "run {run} resumes after round {round}: {agents}"),
    "ended": ("coordinator", _INFO, "run {run} is over: {status}, round {round}"),
    "broken off": ("coordinator", _ERROR, "run {run} was broken off in round {round} ({code})"),
    # Events of workers that share a run's agents.
    "dealt": ("cluster", _INFO, "{workers} workers of {executor} get {members} agents"),
    "hosted": ("cluster", _DEBUG, "a worker got {members} agents"),
    "lost": ("cluster", _ERROR, "{executor} lost {workers} of its workers in round {round}"),
    "out of order": ("cluster", _ERROR, "a worker got call {call}, and refused it"),
}
# Names of facts that are texts; all other facts are counts.
TEXTS = frozenset(
    {"agent", "agents", "address", "version", "run", "answer", "code", "status", "executor"}
)
# Largest number of characters of a fact, since other parties choose names.
_LONGEST = 100

logging.getLogger("dpcvx").addHandler(logging.NullHandler())


def event(name: str, facts: Mapping[str, str | int]) -> None:
    """Log an event.

    Parameters
    ----------
    name : str
        Key of `EVENTS`.
    facts : mapping of str to str or int
        Public facts that the event's sentence shows. The log record has them as its attribute
        ``facts``, and the name as ``event``.
    """
    which, level, sentence = EVENTS[name]
    logger = logging.getLogger(f"dpcvx.{which}")
    if logger.isEnabledFor(level):
        shown = {key: _text(fact) if key in TEXTS else int(fact) for key, fact in facts.items()}
        logger.log(level, sentence.format_map(shown), extra={"event": name, "facts": shown})


def _text(fact: object) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(fact))[:_LONGEST]


class JsonLines(logging.Formatter):
    """Formatter that writes an event as a JSON object: level, logger, event, sentence and facts.

    It writes no time; log collectors add the time when they read a line.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON line for a log record."""
        line = {
            "level": record.levelname,
            "logger": record.name,
            "event": getattr(record, "event", ""),
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        return json.dumps(line, ensure_ascii=False)


@contextmanager
def json_lines(stream: TextIO) -> Iterator[None]:
    """Write all events within the context as JSON lines.

    Parameters
    ----------
    stream : text file
        File to write to.
    """
    handler, logger = logging.StreamHandler(stream), logging.getLogger("dpcvx")
    handler.setFormatter(JsonLines())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(_INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
