"""Errors for wrong return values of a user's method: the function, the value, and the fix.

The run loop checks values that would otherwise fail later, inside the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from .._arguments import is_int, of_package, show
from .._words import plural
from ..errors import DpcvxError, ModelError
from ..guard import line_of_user
from ..sensitivity.queries.query import Query
from .base import Algorithm, Batch, Requirements
from .program import LocalProgram

_GUIDE = "docs/guides/extending.md shows a whole method."


def breach(method: object, what: str, returned: object, due: str) -> ModelError:
    """Return the error for a wrong value that a method returned.

    Parameters
    ----------
    method : object
    what : str
        Name of the method's function, such as "send".
    returned : object
        Returned value; the error shows its type or shape.
    due : str
        Sentence on the value to return instead.
    """
    said = show(returned)
    return ModelError(f"{type(method).__name__}.{what} returned {said}. {due} {_GUIDE}")


def sent_by(method: Algorithm[Any, Any], sent: Any, agents: int) -> tuple[Any, Sequence[Any]]:
    """Return the state and the messages of `Algorithm.send`; refuse anything but such a pair.

    Parameters
    ----------
    method : Algorithm
    sent : tuple
        Value that `send` returned.
    agents : int
        Number of agents.
    """
    if not isinstance(sent, tuple) or len(sent) != 2:
        raise breach(method, "send", sent, "Return the server's state and a list: state, messages.")
    state, messages = sent
    if not isinstance(messages, (list, tuple, Batch)):
        due = "Return a list with a message for each agent after the state; None leaves one idle."
        raise breach(method, "send", messages, due)
    if len(messages) != agents:
        raise ModelError(
            f"{type(method).__name__}.send returned {plural(len(messages), 'message')} for "
            f"{plural(agents, 'agent')}. Return one for each agent, in the order of "
            f"program.agents; None leaves an agent idle. {_GUIDE}"
        )
    return state, messages


def unreceived(
    method: Algorithm[Any, Any],
    replies: Sequence[tuple[LocalProgram, Any]],
    error: Exception,
) -> ModelError | None:
    """Return the error for a reply that `Algorithm.receive` could not use; None if none is odd.

    Parameters
    ----------
    method : Algorithm
    replies : sequence of (LocalProgram, Any)
        Programs of the agents that are not idle, with their replies.
    error : Exception
        Error that `receive` raised.
    """
    if of_package(type(method)) or isinstance(error, DpcvxError):
        return None
    for program, reply in replies:
        size = program.shared.size
        odd = next((shape for shape in _shapes(reply) if shape != (size,)), None)
        if reply is not None and odd is None:
            continue
        fact = "is None. Return the state and a reply from act: state, reply."
        if odd is not None:
            entries = f"{size} shared {'entry' if size == 1 else 'entries'}"
            fact = (
                f"has an array of shape {odd}, and the agent has {entries}. Reply with arrays "
                f"of shape ({size},), as state.x[local.program.shared] is, or have receive take "
                "others."
            )
        return ModelError(
            f"{type(method).__name__}.receive failed on the reply of agent '{program.name}' "
            f"({type(error).__name__}{line_of_user(error)}). The reply {fact} {_GUIDE}"
        )
    return None


def _shapes(reply: Any) -> Iterator[tuple[int, ...]]:
    """Return the shapes of a reply's arrays: itself, or entries of a tuple or a dataclass."""
    parts: Sequence[Any] = (reply,)
    if isinstance(reply, (tuple, list)):
        parts = reply
    elif is_dataclass(reply):
        parts = [getattr(reply, field.name) for field in fields(reply)]
    return (np.shape(part) for part in parts if isinstance(part, np.ndarray))


def uncounted(method: Algorithm[Any, Any], agent: str, asked: int) -> ModelError:
    """Return the error for more releases in a round than `Requirements.releases` states.

    Parameters
    ----------
    method : Algorithm
    agent : str
    asked : int
        Largest number of releases that the agent was asked for in one round.
    """
    name = type(method).__name__
    return ModelError(
        f"{name}.act requested {plural(asked, 'release')} from agent '{agent}' in a round, but "
        f"{name}.requirements says releases={method.requirements.releases}. Write "
        f"Requirements(releases={asked}), so that the plan counts all of them. The additional "
        f"releases exceeded the budget. {_GUIDE}"
    )


def no_point(
    method: Algorithm[Any, Any], what: str, point: Any, program: LocalProgram
) -> ModelError:
    """Return the error for a state whose point has the wrong size for the agent's program.

    Parameters
    ----------
    method : Algorithm
    what : str
        Name of the function that returned the state.
    point : ndarray
        Point in that state.
    program : LocalProgram
    """
    n = program.start.size
    shape = f"shape {np.shape(point)}" if isinstance(point, np.ndarray) else show(point)
    return ModelError(
        f"{type(method).__name__}.{what} returned a state whose point has {shape}, and agent "
        f"'{program.name}' has {plural(n, 'number')}. Return a state with x of shape ({n},), such "
        f"as state.after(x). {_GUIDE}"
    )


def proposed_by(method: Algorithm[Any, Any], proposed: Any) -> Algorithm[Any, Any]:
    """Return the value that `Algorithm.propose` returned; refuse it if it is no method."""
    if not isinstance(proposed, Algorithm):
        due = "Return the method with its missing parameters filled in: replace(self, step=...)."
        raise breach(method, "propose", proposed, due)
    return proposed


def require_requirements(method: Algorithm[Any, Any]) -> None:
    """Refuse a method's `requirements` if they have the wrong type or impossible entries."""
    needs: Any = method.requirements
    if not isinstance(needs, Requirements):
        due = "Return Requirements(convex=True, exact=False, releases=1, queries=(Gradient,))."
        raise breach(method, "requirements", needs, due)
    queries: Any = needs.queries
    kinds = queries if isinstance(queries, tuple) else (None,)
    if not all(isinstance(kind, type) and issubclass(kind, Query) for kind in kinds):
        due = "Write queries=(Gradient,), a tuple of types of Query."
        raise breach(method, "requirements", queries, due)
    if not is_int(needs.releases, 0):
        due = "Write releases=1, the number of releases of an agent in a round."
        raise breach(method, "requirements", needs.releases, due)
