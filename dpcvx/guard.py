"""Errors without private data: no stack frames with variables, and no text that may quote data.

Common tools print tracebacks with the variables of every frame (rich, Sentry, IPython), and many
error messages quote the faulty value.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from .errors import DataError, DpcvxError, FileError, ModelError, PrivacyError

T = TypeVar("T")
# Files whose stack frames are not the caller's: the package, and Python's context managers.
_OWN = (f"{Path(__file__).parent}{os.sep}", contextlib.__file__)
# Folders of installed packages and of Python's standard library.
_INSTALLED = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("purelib", "platlib", "stdlib")
)
_PLACE = inspect.Parameter.POSITIONAL_OR_KEYWORD
# Fixes for arguments of a run that belong to its plan.
_FIXED = {
    ("Plan.run", name): f"A plan fixes it: write problem.plan(..., {name}=...).run()."
    for name in (
        "algorithm", "mechanism", "rounds", "epsilon", "delta", "release", "observer",
        "violation_probability", "slack_penalty", "prior", "scale",
    )
}  # fmt: skip
_FIXED["Problem.plan", "proxy"] = (
    "Public proxy data are declared: dp.Private(data, proxy=values, ...), or passed to "
    "plan.forecast(proxy={...})."
)
# Fixes for arguments of cvxpy's `solve` that dp.OneShot takes here.
_FIXED |= {
    (f"Problem.{verb}", name): f"Write problem.{verb}(dp.OneShot({name}={value}), epsilon=1.0, "
    "delta=1e-6): the data are released once, and cvxpy solves the model as written."
    for verb in ("plan", "solve")
    for name, value in (
        ("gp", True), ("qcp", True), ("solver", "cp.SCS"), ("solver_options", '{"max_iters": 500}'),
    )
}  # fmt: skip
# Arguments to write by name in place of positional ones.
_NAMED = {"Plan.run": "data={'usage': values}", "Problem.plan": "epsilon=1.0, delta=1e-6"}
# A function or a class.
C = TypeVar("C", bound=Callable[..., Any])


def guarded(
    compute: Callable[[], T], refusal: Callable[[str], DpcvxError], *, foreign: bool = False
) -> T:
    """Return the result of a computation on private data, without floating-point warnings.

    Parameters
    ----------
    compute : callable
        Function without arguments that returns the result.
    refusal : callable
        Function of the name of an error's type that returns the error to raise instead. Errors of
        the package itself are raised as they are.
    foreign : bool
        Whether `compute` calls code of users, whose warnings and errors of any type may quote data.
    """
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings() if foreign else nullcontext():
            if foreign:
                warnings.simplefilter("ignore")
            return compute()
    except BaseException as error:
        expected = isinstance(error, DpcvxError) and not foreign
        left = _bare(error) if expected else _silenced(error, refusal)
    del compute
    raise left


def fetched(source: Callable[[], T], what: str) -> T:
    """Call a user's function that reads private data; withhold texts of its errors and warnings.

    A `FileError` of the package's own readers keeps its text, which quotes no data.

    Parameters
    ----------
    source : callable
        Function of the user.
    what : str
        Text on the function for messages, the subject of a sentence.

    Raises
    ------
    DataError
        If the function raises an error other than an interrupt.
    """
    values: list[T] = []
    left: BaseException | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with np.errstate(all="ignore"):
                values.append(source())
        except BaseException as error:
            told, where = type(error) is FileError, line_of_user(error)
            refusal = functools.partial(failed, what, where=where)
            left = _bare(error) if told else _silenced(error, refusal)
    del source
    kinds = " and ".join(sorted({warning.category.__name__ for warning in caught}))
    del caught
    if left is None and kinds:
        notice = failed(what, kinds)
        try:
            warnings.warn(str(notice), stacklevel=2)
        except Warning:  # the user's filter turns warnings into errors
            left = notice
    if left is not None:
        del values
        raise left
    return values.pop()


def warn_caller(text: str, kind: type[Warning]) -> None:
    """Issue a warning that names the user's line that called the package.

    Parameters
    ----------
    text : str
        Text of the warning.
    kind : type
        Type of the warning.
    """
    frame, depth = inspect.currentframe(), 0
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(text, kind, stacklevel=depth + 1)


def failed(what: str, kind: str, where: str = "") -> DataError:
    """Return an error without the text of the original one, which may quote private data.

    Parameters
    ----------
    what : str
        Action that failed, as the subject of a sentence.
    kind : str
        Name of the original error's type.
    where : str
        Place in the user's code, as `line_of_user` returns it.
    """
    return DataError(
        f"{what} raised {kind}{where}; its message is withheld because it may quote the data. "
        "Call the function by itself to see it."
    )


def understood(build: Callable[[], T], agent: str) -> T:
    """Call a function that builds an object from an agent's public cvxpy model.

    Raises
    ------
    ModelError
        In place of errors within cvxpy's atoms, whose texts may quote constants that are private
        data by mistake.
    """
    try:
        return build()
    except DpcvxError:
        raise
    except Exception as error:
        kind = type(error).__name__
    raise ModelError(
        f"The model of agent '{agent}' uses an atom or a number that cannot be compiled: {kind}. "
        "Its objective and constraints by themselves may show which: "
        "cp.Problem(objective, constraints).get_problem_data(cp.CLARABEL), with cp.Parameter in "
        "place of dp.Private. Write the term with other atoms, or scale the numbers."
    )


def frameless(thing: C) -> C:
    """Decorate a function, or a class's constructor, to raise its errors without stack frames.

    An argument may be private data, if a user has confused two arguments. Messages do not quote it
    (`dpcvx._arguments.show`), and the frames that checked it are removed from the error.
    """
    if isinstance(thing, type):
        made = cast(Any, thing)
        made.__init__ = frameless(made.__init__)
        return made
    takes = inspect.signature(thing).parameters

    most = _places(takes)

    @functools.wraps(thing)
    def call(*args: Any, **kwargs: Any) -> Any:
        refusal: BaseException | None = _unknown(thing, takes, kwargs)
        if refusal is None and len(args) > most:
            refusal = _surplus(thing, takes, len(args))
        try:
            if refusal is None:
                return thing(*args, **kwargs)
        except DpcvxError as error:
            again = isinstance(error, (ModelError, PrivacyError)) and _imported_again(
                thing, (*args, *kwargs.values())
            )
            refusal = ModelError(_AGAIN) if again else _bare(error)
        finally:
            del args, kwargs  # the error's traceback holds this frame as well
        raise refusal

    return cast(C, call)


_AGAIN = (
    "dpcvx was imported again after some of these objects were made, and classes of the two "
    "imports are not the same. Run the cells of the model again, from import dpcvx as dp on; or "
    "start Python again."
)


def _of_one_import(
    error: DpcvxError, thing: Callable[..., Any], given: Iterable[object]
) -> BaseException:
    """Return the error without stack frames, or another one if dpcvx was imported again."""
    again = isinstance(error, (ModelError, PrivacyError)) and _imported_again(thing, given)
    return ModelError(_AGAIN) if again else _bare(error)


def require_one_import(things: Iterable[object]) -> None:
    """Refuse objects that were made before the package was imported again.

    A second import makes new classes with the old names. Checks of types then fail for objects of
    the old classes, or take private data for public ones.

    Raises
    ------
    ModelError
        If there is such an object.
    """
    if any(_is_old(kind) for thing in things for kind in type(thing).__mro__):
        raise ModelError(_AGAIN)


def _imported_again(thing: Callable[..., Any], given: Iterable[object]) -> bool:
    """Return whether a function `thing` or an argument is from an earlier import of dpcvx."""
    is_method = next(iter(inspect.signature(thing).parameters), "") == "self"
    scope = getattr(thing, "__globals__", {}).values()
    return any(isinstance(value, type) and _is_old(value) for value in scope) or any(
        _is_old(kind) for part in _inner(given, is_method) for kind in type(part).__mro__
    )


def _is_old(kind: type) -> bool:
    """Return whether a class of the package has been replaced by a later import."""
    module = getattr(kind, "__module__", None)
    if not isinstance(module, str) or "<locals>" in kind.__qualname__:
        return False
    if module.partition(".")[0] != __name__.partition(".")[0]:
        return False
    current: Any = sys.modules.get(module)
    for name in kind.__qualname__.split("."):
        current = getattr(current, name, None)
    return current is not kind


def _inner(given: Iterable[Any], is_method: bool) -> Iterable[Any]:
    """Yield arguments, except a method's `self`, and elements of lists, tuples or dicts."""
    for position, part in enumerate(given):
        if is_method and position == 0:  # `self` belongs to the import of its method
            continue
        yield part
        # Only of these types, since errors of other containers may quote data.
        if type(part) is dict:
            yield from (*part.keys(), *part.values())
        elif type(part) in (list, tuple):
            yield from part


def _unknown(
    thing: Callable[..., Any], takes: Mapping[str, inspect.Parameter], given: Iterable[str]
) -> TypeError | None:
    """Return the error for an argument with an unknown name; None if all names are valid."""
    name = next((argument for argument in given if argument not in takes), None)
    if name is None or any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        return None
    what = thing.__qualname__.removesuffix(".__init__")
    names = ", ".join(f"{argument}=" for argument in takes if argument != "self")
    fix = f" {_FIXED[what, name]}" if (what, name) in _FIXED else ""
    from difflib import get_close_matches  # rarely needed

    if not fix and (near := get_close_matches(name, takes, n=1)):
        fix = f" Write {near[0]}=."
    return TypeError(f"{what}(...) takes no argument {name}=.{fix} It takes {names or 'none'}.")


def _places(takes: Mapping[str, inspect.Parameter]) -> float:
    """Return the largest number of positional arguments of a function; may be infinite."""
    kinds = [p.kind for p in takes.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return math.inf
    return sum(kind in (_PLACE, inspect.Parameter.POSITIONAL_ONLY) for kind in kinds)


def _surplus(
    thing: Callable[..., Any], takes: Mapping[str, inspect.Parameter], given: int
) -> TypeError:
    """Return the error for a call with too many positional arguments."""
    what = thing.__qualname__.removesuffix(".__init__")
    first = [name for name, p in takes.items() if p.kind is _PLACE and name != "self"]
    named = [name for name, p in takes.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    got = given - ("self" in takes)
    said = f"{what}(...) takes {_positional(len(first))}, and got {got}."
    if not named:
        return TypeError(said)
    fix = _NAMED.get(what) or ", ".join(f"{name}=..." for name in named[:2])
    call = f"{what[0].lower()}{what[1:]}" if "." in what else what
    return TypeError(f"{said} Write {call}({', '.join([*first, fix])}): names tell them apart.")


def _positional(count: int) -> str:
    return f"{count or 'no'} positional argument{'' if count == 1 else 's'}"


# Key in a pickle's state for the version of the package that made it.
VERSION = "made by version"


def of_this_version(state: Mapping[str, object], what: str) -> dict[str, object]:
    """Return a pickle's state without its version; warn if another version made the pickle.

    Parameters
    ----------
    state : mapping of str to object
        State in the pickle.
    what : str
        Name of the pickled object for the warning, such as "plan".
    """
    rest = dict(state)
    made, read = rest.pop(VERSION, "an older version"), version("dpcvx")
    if made != read:
        warn_caller(
            f"This {what} was pickled by dpcvx {made} and is read by dpcvx {read}, which may not "
            "understand it. Make it again with this version, or install the other one.",
            UserWarning,
        )
    return rest


def without_attribute(thing: object, name: str, hints: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that an object does not have, with code to write instead.

    Parameters
    ----------
    thing : object
        Object without the attribute.
    name : str
        Name of the attribute.
    hints : mapping of str to str
        Code to write instead, by name of a missing attribute.
    """
    kind = type(thing).__name__
    fix = f" Write {hints[name]}." if name in hints else ""
    dot = "." if fix else ""
    return AttributeError(
        f"'{kind}' object has no attribute '{name}'{dot}{fix}", name=name, obj=thing
    )


def line_of_user(error: BaseException) -> str:
    """Return file and line of the innermost user code in an error's traceback, or "".

    Parameters
    ----------
    error : BaseException
        Error that was raised within a function of the package.

    Returns
    -------
    str
        Text such as " in method.py, line 12", without any values.
    """
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        name = frame.filename
        if not name.startswith((*_OWN, *_INSTALLED, "<")):
            where = f" in {Path(name).name}, line {frame.lineno}"
    return where


def discreet(function: C) -> C:
    """Decorate a function that computes on raw data, such as a test, so that errors quote none."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except DpcvxError as error:
            left: BaseException = _of_one_import(error, function, (*args, *kwargs.values()))
        except BaseException as error:
            # If the call itself raises, an argument is missing or unknown, and no value is quoted.
            expected = error.__traceback__ is not None and error.__traceback__.tb_next is None
            where = line_of_user(error)

            def refusal(kind: str) -> PrivacyError:
                return PrivacyError(
                    f"{function.__name__}(...) failed with {kind}{where}; the message is withheld, "
                    "because it may quote the data. Try it with made-up data."
                )

            left = _bare(error) if expected else _silenced(error, refusal)
        finally:
            del args, kwargs
        raise left

    return cast(C, call)


def _bare(error: BaseException) -> BaseException:
    """Return the error without frames, cause and context."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _silenced(error: BaseException, refusal: Callable[[str], DpcvxError]) -> BaseException:
    """Return the error to raise in place of one whose text may quote data.

    Interrupts and exits are kept, without their texts.
    """
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    if isinstance(error, SystemExit):  # a signal handler may raise it; its code may be a text
        plain = error.code is None or (type(error.code) is int and 0 <= error.code < 256)
        return SystemExit(error.code if plain else 1)
    return refusal(type(error).__name__)
