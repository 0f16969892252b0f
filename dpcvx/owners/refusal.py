"""Why an owner does not take part, or a coordinator does not go on: a code, never data."""

from __future__ import annotations

from ..errors import RefusedError

# What each code says. The codes are all that crosses between owners.
REASONS = {
    "unreadable": "The bytes are no message of this package",
    "version": "The message is of another version of the format, or of a method",
    "large": "The message, or something in it, is larger than this package reads",
    "altered": "The message is not what was sent",
    "malformed": "The document is not one that a plan could have made",
    "name": "The offer is addressed to another agent",
    "method": "The owner takes no part in runs of this method",
    "asserted": "A sensitivity is asserted, and owners derive their own",
    "data": "The data that are asked about are not those that the owner holds",
    "adjacency": "The offer protects other changes of the data than the owner does",
    "model": "The program is not that of the owner's own model",
    "partners": "Too few others take part",
    "documents": "The participants were sent documents that do not agree",
    "colluders": "The noise protects against fewer colluders than the owner asks for",
    "sensitivity": "Nothing bounds what one change of the data does to what is asked",
    "budget": "The run costs more than the owner allows",
    "spent": "The owner's ledger leaves no room for the run",
    "ledger": "The owner's ledger cannot be used",
    "order": "The message does not belong to this place of the run",
    "nonsense": "The message is not what the method sends",
    "away": "The other side cannot be reached",
    "declined": "The person who was asked said no",
    "ended": "The coordinator ended the run, and asks nothing more",
    "changed": "An answer or a document differs from an earlier one of the run",
    "stranger": "A certificate is not the one that it should be",
    "failed": "The owner's computation failed; its own log says how",
}


def refused(code: str, detail: str) -> RefusedError:
    """A refusal by its code; see `REASONS`.

    Parameters
    ----------
    code : str
    detail : str
        Of public things alone; stays where it is raised.
    """
    return RefusedError(code, f"{REASONS[code]}{f' ({detail})' if detail else ''}.")


def going_on(error: RefusedError) -> RefusedError:
    """The same refusal of a run that has begun.

    Parameters
    ----------
    error : RefusedError
    """
    return RefusedError(error.code, f"{error} The same call goes on where it stood.")
