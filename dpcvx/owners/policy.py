"""An owner's policy: decisions that no request can change, read from its file ``owner.toml``.

See docs/reference/owner_toml.md for the keys of the file.
"""

from __future__ import annotations

import difflib
import importlib
import re
import runpy
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from .._arguments import PATH, check_argument, finite, is_int, one_of, show
from .._words import plural
from ..errors import DpcvxError, FileError, ModelError
from ..model.adjacency import ByPerson, Rows, Within
from ..model.private import Private, specs_of
from ..model.sealed import Sealed
from ..model.spec import PrivateSpec
from ..plan.terms import Terms
from . import wire
from .data_files import read_csv, read_npy, read_people
from .faults import file_words, read_whole
from .keys import fingerprint_in

# Methods that an owner accepts unless its policy names others.
METHODS = (
    "ADMM", "DecentralizedGradient", "FederatedAveraging", "FederatedGradient", "LinearizedADMM",
    "ObjectivePerturbation", "OneShot", "PrimalDual",
)  # fmt: skip


@dataclass(frozen=True)
class Held:
    """A private object of an owner: its privacy unit, and the source of its values.

    Attributes
    ----------
    spec : PrivateSpec
        Declaration of the object, with its privacy unit.
    source : Sealed
        Function that fetches the values; called once per run, in the owner's process.
    """

    spec: PrivateSpec
    source: Sealed = field(repr=False)


@dataclass(frozen=True)
class Policy:
    """Conditions of an owner for taking part in runs.

    Attributes
    ----------
    agent : str
        Name of the agent in models, and on its certificate.
    ledger : Path
        Ledger file of all runs on these data.
    epsilon, delta : float
        Budget for all runs in the ledger together.
    data : mapping of str to Held
        Private objects by their names in models.
    methods : tuple of str
        Names of the accepted methods.
    share : int
        Largest number of agents that one person may have data with.
    partners : int
        Smallest number of other participants.
    max_colluders : int or None
        Number of participants, colluding with the coordinator, that distributed noise must protect
        against. None stands for all others; distributed noise is then refused. Participants that
        the coordinator plays, or that add no noise, count as colluders.
    ask : bool
        Whether to show every offer to a person for consent.
    reply_after : float
        Replies are sent at multiples of this number of seconds after a request; 0 for at once.
    keys : Path or None
        Folder of the owner's key and of certificates.
    coordinator : str
        Fingerprint of the coordinator's certificate; empty for any that the authority signed.
    program : str
        Digest of the program that an offer must have; empty for any program. See ``model =``.
    """

    agent: str
    ledger: Path
    epsilon: float
    delta: float
    data: Mapping[str, Held]
    methods: tuple[str, ...] = METHODS
    share: int = 1
    partners: int = 0
    max_colluders: int | None = None
    ask: bool = False
    reply_after: float = 0.0
    keys: Path | None = None
    coordinator: str = ""
    program: str = ""


_KEYS = {"agent", "ledger", "keys", "coordinator", "budget", "accept", "data"}
_ACCEPT = {"methods", "model", "ask", "partners", "reply_after", "share", "max_colluders"}
_BUDGET = {"epsilon", "delta"}
_TABLES = {"budget": _BUDGET, "accept": _ACCEPT}
_KINDS = ("nonneg", "nonpos", "symmetric", "PSD", "bounds", "boolean", "simplex")
_DATA = {"file", "columns", "people", "shape", "within", "norm", "rows", *_KINDS}
_ROWS = {field.name for field in fields(Rows) if field.init}
# Examples of lines, for messages on missing keys.
_EXAMPLES = {
    "agent": 'agent = "north"',
    "ledger": 'ledger = "spent.jsonl"',
    "budget": "[budget], with epsilon = 1.0 and delta = 1e-6 below it",
    "epsilon": "epsilon = 1.0 below [budget]",
    "delta": "delta = 1e-6 below [budget]",
    "file": 'file = "loads.csv"',
    "max_norm": "rows = { max_norm = 1.0 }",
}
# Python declarations in error messages (patterns), and their form in a policy.
_IN_TOML = (
    (r"dp\.Within\(radius=(.*?)\)(?= must)", r"within = \1"),
    (r"dp\.(?:Within|Rows)\((\w+)=(.*?)\)(?= must)", r"\1 = \2"),
    (r"dp\.Rows\(1\.0\)", "rows = { max_norm = 1.0 }"),
    (r"bounds=\(0, 1\)", "bounds = [0, 1]"),
    (r"dp\.(?:Within|Rows|Private)\((\w+)=([^()]*)\)(?= (?:is|must))", r"\1 = \2"),
    (r"dp\.Within\(([\d.]+), norm=(\w+)\)", r"within = \1 and norm = \2"),
    (r"dp\.Within\(([\d.]+)\)", r"within = \1"),
    (r"dp\.Rows\(1\.0, max_rows_per_person=3\)", "max_rows_per_person = 3"),
    (r"\bnorm='entry' \(one entry\), 1, 2 or 'inf'", "norm = 'entry' (one entry), 1, 2 or 'inf'"),
    (r"\b(norm|columns)=(?=[\[\d])", r"\1 = "),
    (r"\b(\w+)=True\b", r"\1 = true"),
    (r"\bTrue or False\b", "true or false"),
)
# A function of a module, as `file =` names it; other texts are paths.
_FUNCTION = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
# Beginnings of paths that a shell would replace, and that a policy takes as they are.
_SHELL = re.compile(r"~|\$\w+|\$\{|%\w+%")
# Characters in the line of a fault in TOML, and the fix.
_IN_LINE = (
    ("[\u2018-\u201f\u00ab\u00bb]", "The line has typographic quotes: write straight ones"),
    ("[\u00a0\u2007\u202f\u200b]", "The line has a blank that does not break: write a usual one"),
    (r"=\s*(True|False)\b", "Write true and false in small letters"),
    (r"=\s*[-+]?\.\d", "Write a number with a digit before the point, such as 0.5"),
    (r"=\s*\d+,\d", "Write a number with a decimal point, such as 0.5"),
    (r'"[^"]*\\', "Write a path with \\ in single quotes, or with / in place of it"),
    (r"=\s*[^\W\d]\w*\s*$", "Write texts in quotes"),
)


def read_policy(path: str | Path) -> Policy:
    """Return the policy in a file, without reading data; paths are relative to the file's folder.

    Raises
    ------
    ModelError
        If the file cannot be read, or is no valid policy.
    """
    check_argument("dp.Owner", "policy", path, PATH)
    file = Path(path)
    text = ""
    try:
        text = read_whole(file).decode("utf-8-sig")
        said = tomllib.loads(text)
    except FileNotFoundError:
        raise ModelError(
            f"The policy '{file.name}' does not exist. Name the file that has agent =, ledger = "
            "and [budget], such as owner.toml."
        ) from None
    except OSError as error:
        raise ModelError(f"The policy {file_words(error, file, 'read')}") from None
    except UnicodeDecodeError:
        raise ModelError(
            f"The policy '{file.name}' is not text in UTF-8. Save it as UTF-8."
        ) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ModelError(
            f"The policy '{file.name}' is not in TOML: {_in_words(error, text)}. "
            'docs/reference/owner_toml.md has every key, in lines such as agent = "north".'
        ) from None
    return _File(file).policy(said)


class _File:
    """Parser of a policy file: its errors name the file, and paths are relative to its folder."""

    def __init__(self, path: Path) -> None:
        self._name, self._folder = path.name, path.parent

    def policy(self, said: Mapping[str, Any]) -> Policy:
        self._known(said, _KEYS, "")
        budget, accept = self._table(said, "budget"), self._table(said, "accept", {})
        self._known(budget, _BUDGET, "budget.")
        self._known(accept, _ACCEPT, "accept.")
        agent = self._text(said, "agent")
        if agent != agent.strip():
            raise self._wrong("agent", "has blanks at its ends. Write the name without them")
        methods = accept.get("methods", list(METHODS))
        accepted = isinstance(methods, list) and all(one_of(name, *METHODS) for name in methods)
        if not accepted or not methods:
            raise self._wrong(
                "accept.methods",
                f"{'is no list of methods' if methods else 'is empty, which refuses every run'}. "
                f'Write a list such as ["ADMM"], of methods among {", ".join(METHODS)}',
            )
        epsilon, delta = (self._number(budget, key, "budget.") for key in ("epsilon", "delta"))
        if epsilon == 0:
            raise self._wrong(
                "budget.epsilon",
                "is above 0, and here 0. Write epsilon = 1.0, or what you allow all runs in the "
                "ledger together: at epsilon 0 every release is refused",
            )
        if delta >= 1:
            raise self._wrong(
                "budget.delta",
                f"is below 1, and here {delta:g}. Write delta = 1e-6: at delta 1 any release of "
                "the data is allowed",
            )
        data = self._table(said, "data", {})
        model = accept.get("model")
        return Policy(
            agent=agent,
            ledger=self._path(said, "ledger"),
            epsilon=epsilon,
            delta=delta,
            data={name: self._held(name, data[name], agent) for name in data},
            methods=tuple(methods),
            share=self._count(accept, "share", 1, 1),
            partners=self._count(accept, "partners", 0, 0),
            max_colluders=None
            if "max_colluders" not in accept
            else self._count(accept, "max_colluders", 1, 1),
            ask=self._flag(accept, "ask", True),
            reply_after=self._number(accept, "reply_after", "accept.", 0.0),
            keys=self._path(said, "keys") if "keys" in said else None,
            coordinator=self._fingerprint(said),
            program=""
            if model is None
            else self._program(self._path(accept, "model", "accept."), agent),
        )

    def _held(self, name: str, said: object, agent: str) -> Held:
        where = f'data."{name}"'
        if not isinstance(said, Mapping):
            raise self._wrong(
                where,
                'is no table. Write a line [data."NAME"] above its keys, with the name of the '
                "private object in the model",
            )
        self._known(said, _DATA, f"{where}.")
        shape = said.get("shape", [])
        if not isinstance(shape, list) or not all(is_int(n, 1) for n in shape):
            raise self._wrong(
                f"{where}.shape",
                "is no list of whole numbers from 1 on. Write a list such as [39, 2]",
            )
        if ("within" in said) == ("rows" in said):
            raise self._wrong(
                where,
                "needs one of two lines: within = 0.01, the largest change of an entry, or rows = "
                "{ max_norm = 1.0 }, for records",
            )
        rows = self._rows(said["rows"], where) if "rows" in said else {}
        try:
            if "within" in said:
                norm = {"norm": said["norm"]} if "norm" in said else {}
                adjacency: Within | Rows = Within(said["within"], **norm)
            else:
                adjacency = Rows(**rows)
            attributes = {key: said[key] for key in _KINDS if key in said}
            attributes["columns"] = said.get("columns")
            private = Private(shape=tuple(shape), name=name, adjacency=adjacency, **attributes)
            (spec,) = specs_of([private], agent)
        except (DpcvxError, TypeError, ValueError) as error:
            raise self._wrong(where, f"is not a declaration of data. {_in_toml(error)}") from None
        csv = partial(read_csv, dimensions=len(spec.shape), columns=spec.columns)
        npy = partial(read_npy, columns=spec.columns)
        source = self._source(said, "file", f"{where}.", csv, npy)
        limited = isinstance(adjacency, Rows) and adjacency.row_limit is not None
        if limited and "people" not in said:
            raise self._wrong(
                where,
                'has max_rows_per_person, and no people. Write people = "people.csv", a file with '
                "the identifier of each row: the limit needs to know whose each row is",
            )
        if "people" in said and not limited:
            raise self._wrong(
                where,
                "has people, and rows without a limit for each person. Write rows = { max_norm = "
                "1.0, max_rows_per_person = 3 }, or drop people",
            )
        if "people" in said:
            people = self._source(said, "people", f"{where}.", read_people, read_npy)
            source = partial(_by_person, source, people, Path(self._text(said, "people")).name)
        return Held(spec, Sealed(source))

    def _rows(self, rows: object, where: str) -> Mapping[str, Any]:
        if not isinstance(rows, Mapping):
            raise self._wrong(
                f"{where}.rows", "is no table. Write a table, such as { max_norm = 1.0 }"
            )
        self._known(rows, _ROWS, f"{where}.rows.")
        if "max_norm" not in rows:
            raise self._missing("max_norm", f"{where}.rows.")
        return rows

    def _source(
        self,
        said: Mapping[str, Any],
        key: str,
        where: str,
        from_csv: Callable[[Path], Any],
        from_npy: Callable[[Path], Any],
    ) -> Callable[[], Any]:
        """Return a function that fetches values from the file or function that a key names."""
        written = self._text(said, key, where)
        named = _FUNCTION.fullmatch(written)
        if named and not (self._folder / written).exists():
            return partial(_called, self._folder, named[1], named[2], key)
        path = self._path(said, key, where)
        read = {".npy": from_npy, ".csv": from_csv}.get(path.suffix.lower())
        if read is not None:
            return partial(read, path)
        raise ModelError(
            f"The policy '{self._name}' names the data file '{path.name}', and files of data end "
            f'in .csv or .npy. For others write {key} = "module:function".'
        )

    def _path(self, said: Mapping[str, Any], key: str, where: str = "") -> Path:
        """Return a path, relative to the policy's folder; refuse what only a shell would read."""
        written = self._text(said, key, where)
        if not written.isprintable():
            raise self._wrong(f"{where}{key}", "has a character that no path has. Write it anew")
        path, shell = self._folder / written, _SHELL.match(written)
        if shell and not path.exists():
            raise self._wrong(
                f"{where}{key}",
                f"begins with '{shell[0]}', which only a shell replaces. Write the path in full, "
                "or relative to the policy's folder",
            )
        return path

    def _fingerprint(self, said: Mapping[str, Any]) -> str:
        """Return the coordinator's fingerprint as ``sha256:...``; empty if it is omitted."""
        if said.get("coordinator", "") == "":
            return ""
        fingerprint = fingerprint_in(self._text(said, "coordinator"))
        if not fingerprint:
            raise self._wrong(
                "coordinator",
                "is no fingerprint, which has sha256: and 64 digits from 0 to f. Write the output "
                "of: dpcvx keys fingerprint coordinator.crt",
            )
        return fingerprint

    def _program(self, path: Path, agent: str) -> str:
        """Return the digest of this agent's program in the owner's own model file."""
        plan = model_plan(path)
        for local in plan.program.agents:
            if local.name == agent:
                return wire.digest(wire.portable(local))
        names = ", ".join(f"'{local.name}'" for local in plan.program.agents)
        raise ModelError(
            f"The model '{path.name}' has no agent '{agent}'; its agents are {names}. Correct "
            "agent = or model = in the policy."
        )

    def _wrong(self, key: str, what: str) -> ModelError:
        return ModelError(f"In the policy '{self._name}', {key} {what.removesuffix('.')}.")

    def _missing(self, key: str, where: str = "") -> ModelError:
        return self._wrong(f"{where}{key}", f"is missing. Write {_EXAMPLES[key]}")

    def _known(self, said: Mapping[str, Any], keys: set[str], where: str) -> None:
        unknown = sorted(set(said) - keys)
        table = next((name for name, held in _TABLES.items() if {*unknown[:1]} & held), "")
        if unknown and not where and table:
            raise self._wrong(
                unknown[0], f"belongs below a line [{table}]. Write that line above it"
            )
        if unknown and where and unknown[0] in _KEYS - keys:
            raise self._wrong(
                f"{where}{unknown[0]}", "stands below a line in brackets. Write it above the first"
            )
        if unknown:
            raise self._wrong(
                f"{where}{unknown[0]}", f"is unknown. {_near(unknown[0], sorted(keys))}"
            )

    def _table(
        self, said: Mapping[str, Any], key: str, default: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        table = said.get(key, default)
        if not isinstance(table, Mapping):
            if key not in said:
                raise self._missing(key)
            raise self._wrong(f"[{key}]", f"is no table. Write a line [{key}], with its keys below")
        return table

    def _text(self, said: Mapping[str, Any], key: str, where: str = "") -> str:
        text = said.get(key)
        if text is None:
            raise self._missing(key, where)
        if not isinstance(text, str) or not text:
            raise self._wrong(f"{where}{key}", f"is a text in quotes, and here {show(text)}")
        return text

    def _number(
        self, said: Mapping[str, Any], key: str, where: str, default: float | None = None
    ) -> float:
        number = said.get(key, default)
        if number is None:
            raise self._missing(key, where)
        if not finite(number) or float(number) < 0:  # pyright: ignore[reportArgumentType]
            raise self._wrong(
                f"{where}{key}", f"is a number of at least 0, and here {show(number)}"
            )
        return float(number)  # pyright: ignore[reportArgumentType]

    def _count(self, said: Mapping[str, Any], key: str, default: int, least: int) -> int:
        count = said.get(key, default)
        if not is_int(count, least):
            what = f"is a whole number of at least {least}, and here {show(count)}"
            raise self._wrong(f"accept.{key}", what)
        return int(count)

    def _flag(self, said: Mapping[str, Any], key: str, default: bool) -> bool:
        flag = said.get(key, default)
        if not isinstance(flag, bool):
            raise self._wrong(f"accept.{key}", f"must be true or false, and is {show(flag)}")
        return flag


def require_model(path: Path) -> None:
    """Refuse a model file that does not exist, or that this process cannot read.

    Raises
    ------
    ModelError
        If there is no such file, or it cannot be read.
    """
    if not path.is_file():
        missing = "does not exist" if not path.exists() else "is no file"
        raise ModelError(
            f"The model '{path.name}' {missing}. Name a file of Python that has a line plan = "
            "problem.plan(...)."
        )
    try:
        read_whole(path)
    except OSError as error:
        raise ModelError(f"The model {file_words(error, path, 'read')}") from None


def model_plan(path: Path) -> Terms:
    """Execute a model file, which must be trusted, and return its variable `plan`.

    Raises
    ------
    ModelError
        If there is no such file or variable, or if the file raises an error; it names the line.
    """
    require_model(path)
    script = str(path.absolute())  # the form in which Python names a script in tracebacks
    fault: str | None = None
    try:
        with beside(path.parent):
            plan = runpy.run_path(script).get("plan")
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        fault = _fault_of_script(error, script)
    if fault is not None:
        raise ModelError(f"The model '{path.name}' cannot be run. {fault}")
    if not isinstance(plan, Terms):
        raise ModelError(
            f"The model '{path.name}' makes no plan. Write plan = problem.plan(...) in it, with "
            "private objects by shape: dp.Private(shape=..., name=...)."
        )
    return plan


def _fault_of_script(error: BaseException, script: str) -> str:
    """Return a sentence on a script's error, with the last line of the script in the traceback.

    A model has no data, so the sentence may quote the error's message.
    """
    if isinstance(error, SyntaxError) and error.filename == script:
        return f"Line {error.lineno} is not valid Python: {error.msg}."
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == script
    ]
    where = f"Line {lines[-1]}" if lines else "It"
    text = str(error).strip()
    if isinstance(error, DpcvxError):
        return f"{where} is refused: {text}"
    return f"{where} raises {type(error).__name__}{f': {text}' if text else ''}."


def _near(name: str, names: Sequence[str]) -> str:
    """Return a text that proposes the nearest of the valid names, and lists all of them."""
    near = difflib.get_close_matches(name, names, n=1)
    return f"{f'Write {near[0]}. ' if near else ''}The keys are {', '.join(names)}"


def _in_words(error: Exception, policy: str) -> str:
    """Return an error in TOML as text, with a fix if the line of the fault shows one."""
    if isinstance(error, RecursionError):
        return "its lists are nested too deeply"
    text = str(error)
    number = re.search(r"line (\d+)", text)
    lines = policy.split("\n")
    line = lines[min(int(number[1]), len(lines)) - 1] if number else ""
    fix = next((fix for pattern, fix in _IN_LINE if re.search(pattern, line)), "")
    return f"{text[:1].lower()}{text[1:]}{f'. {fix}' if fix else ''}"


def _in_toml(error: Exception) -> str:
    """Return an error's message with Python declarations rewritten as lines of a policy."""
    text = str(error)
    for written, in_policy in _IN_TOML:
        text = re.sub(written, in_policy, text)
    return text


def _by_person(values: Callable[[], Any], people: Callable[[], Any], file: str) -> ByPerson:
    rows, identifiers = values(), people()
    many, named = _count(rows), _count(identifiers)
    if None not in (many, named) and many != named:
        raise FileError(
            f"'{file}' has {plural(named or 0, 'identifier')}, and the data have "
            f"{plural(many or 0, 'row')}. Write one identifier for each row, without a header."
        )
    return ByPerson(rows, identifiers)


def _count(values: Any) -> int | None:
    """Return the number of rows of an array or list; None for other objects."""
    if isinstance(values, list):
        return len(values)
    shape = getattr(values, "shape", ())
    return shape[0] if shape else None


def _called(folder: Path, module: str, function: str, key: str) -> Any:
    """Return what a function of a module returns; `key` is the policy's key that names it."""
    call = _function(folder, module, function, key)
    try:
        with beside(folder):
            return call()
    except SystemExit:
        pass
    raise FileError(
        f"The function '{module}:{function}' ended Python by sys.exit. Return an array from it."
    )


def _function(folder: Path, module: str, function: str, key: str) -> Callable[[], Any]:
    fault, call = "", None
    try:
        with beside(folder):
            call = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        fault = (
            f"There is no module '{error.name}'. Put '{error.name}.py' beside the policy, or "
            f"correct {key} = in it."
        )
    except SyntaxError as error:
        where = f"line {error.lineno} of '{Path(error.filename or module).name}'"
        fault = f"The module '{module}' is not valid Python: look at {where}."
    except SystemExit:
        fault = f"The module '{module}' ended Python by sys.exit. Remove that from it."
    if fault:
        raise FileError(fault)
    if not callable(call):
        raise FileError(
            f"The module '{module}' has no function '{function}'. Define it there, or correct "
            f"{key} = in the policy."
        )
    return call


@contextmanager
def beside(folder: Path) -> Iterator[None]:
    """Search imported modules in a folder first, as Python does for a script's folder.

    Parameters
    ----------
    folder : Path
        Folder to put in front of `sys.path`.
    """
    directory = str(folder.absolute())
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        if directory in sys.path:
            sys.path.remove(directory)
