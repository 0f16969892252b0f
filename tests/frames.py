"""What tools print of an error: its text, its chain, and the variables of the package's frames."""

import traceback
from pathlib import Path

import dpcvx

CANARY = 31415.92653
PACKAGE = Path(dpcvx.__file__).parent


def told(error, package=PACKAGE):
    """Text, arguments and notes of an error and its chain, and variables of frames of `package`.

    Frames of code that the package made at run time, such as constructors of dataclasses, count.
    """
    parts, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        parts += [str(error), repr(error.args), repr(getattr(error, "__notes__", ""))]
        for frame, _ in traceback.walk_tb(error.__traceback__):
            name = frame.f_code.co_filename
            if name == "<string>" or Path(name).is_relative_to(package):
                parts += [f"{frame.f_code.co_name}: {k} = {v!r}" for k, v in frame.f_locals.items()]
        error = error.__cause__ or error.__context__
    return "\n".join(parts)


def leaks(error, package=PACKAGE, marks=(str(CANARY), str(2.0 * CANARY))):
    """Whether that shows the canary, or what gradients of squares make of it, or other marks."""
    text = told(error, package)
    return any(mark in text for mark in marks)
