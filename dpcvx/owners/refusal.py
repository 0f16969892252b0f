"""Why an owner does not take part, or a coordinator does not go on: a code, never data."""

from __future__ import annotations

from ..errors import RefusedError


def refused(code: str, detail: str) -> RefusedError:
    """A refusal by its code; see `REASONS`.

    Parameters
    ----------
    code : str
    detail : str
        Of public things alone.
    """
    return RefusedError(code, f"{REASONS[code]} ({detail})." if detail else f"{REASONS[code]}.")


# What each code says. The codes are all that crosses between owners.
REASONS = {
    "unreadable": "The bytes are no message of this package",
    "version": "The message is of another version of the format",
    "altered": "The message is not what was sent",
    "malformed": "The document is not one that a plan could have made",
}
