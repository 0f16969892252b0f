"""Conversion of a cvxpy objective to its normal form; affine parts are multiplied out once.

`parts_of` splits an objective in two: a normal form with gradients, and public terms for proximal
steps. Terms whose atoms have no rule in `dpcvx.model.atoms`, such as ``cp.normNuc(X)`` or
``-cp.log_det(X)``, go into the second part if they are convex and hold no private data. They are
compiled into a cone program, and proximal steps minimize them exactly
(`dpcvx.solvers.projector`).

Public convex terms whose gradient has no Lipschitz constant, such as ``cp.norm1(x)``, go there,
too. A step along the gradient of all other terms can then have the length 1 / L, with their
Lipschitz constant L, in any unit of the objective. No step length suits subgradients of such a term
in all units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import ModelError
from .atoms import Rule, rule_of, spellings, supported, written
from .canonical import affine_map
from .curvature import smoothness
from .layout import Layout, picked
from .like_terms import gathered
from .matrices import Array, Identity, Matrix, as_array, compact, zeros
from .normal_form import Atom, Combination, NormalForm, digest_of
from .private import Private, specs_of
from .rewriting import image, rewritten, total
from .structure import constants_of, nodes_of

# Above this many entries, a dense constant times a matrix of variables keeps its own rule: its
# collapsed form repeats the constant once per column.
_KRON_LIMIT = 50_000


class NoRule(ModelError):
    """Error for a cvxpy atom without a gradient rule in `dpcvx.model.atoms`."""

    def __init__(self, atom: str, owner: str) -> None:
        super().__init__(f"The objective of agent '{owner}' uses {atom}, which has no gradient.")
        self.atom = atom


def normal_form(
    objective: cp.Expression,
    layout: Layout,
    private: Sequence[Private],
    owner: str,
    *,
    largest: float = math.inf,
) -> NormalForm:
    """Convert a scalar cvxpy expression, to be minimized, into its normal form.

    Parameters
    ----------
    objective : cvxpy expression
        Scalar expression, convex or not. Public parameters enter with their current value.
    layout : Layout
        Layout of the agent's vector.
    private : sequence of Private
        The private parameters of the objective.
    owner : str
        Name of the agent, for messages.
    largest : float
        Largest magnitude of a constant. A form that is evaluated needs the squares of constants; a
        form for derivations only does not.

    Raises
    ------
    ModelError
        If a public parameter has no value, or a constant is too large.
    NoRule
        If an atom has no gradient rule.
    """
    builder = _Builder(layout, private, owner, largest)
    root = builder.visit(objective)
    return gathered(NormalForm(layout.size, specs_of(private, owner), tuple(builder.atoms), root))


class _Builder:
    def __init__(
        self, layout: Layout, private: Sequence[Private], owner: str, largest: float
    ) -> None:
        self.layout = layout
        self.largest = largest
        self.private = {p.id: k for k, p in enumerate(private)}
        self.owner = owner
        self.atoms: list[Atom] = []
        # Kept alive, so that no new node reuses one of their ids.
        self._opposites: list[cp.Expression] = []
        self._seen: dict[int, Combination] = {}
        self._known: dict[tuple[Any, ...], _Alike] = {}

    def visit(self, expr: Any) -> Combination:
        # One cvxpy object that occurs twice is one node; the tree keeps it alive, so id is safe.
        if id(expr) not in self._seen:
            self._seen[id(expr)] = self._visit(expr)
        return self._seen[id(expr)]

    def _visit(self, expr: Any) -> Combination:
        if isinstance(expr, Private):
            G = ((self.private[expr.id], expr.spec.unfolded()),)
            return Combination(expr.shape, None, G, zeros(expr.size))
        if isinstance(expr, cp.Variable):
            F = self._selection(expr, np.arange(expr.size))
            return Combination(expr.shape, F, (), zeros(expr.size))
        combination = picked(expr)
        if combination is not None:  # of a large variable, only these entries cost time
            F = compact(self._selection(*combination))
            return Combination(expr.shape, F, (), zeros(expr.size))
        if not expr.variables() and not any(isinstance(p, Private) for p in expr.parameters()):
            return self._constant(expr)
        product = self._sparse_product(expr)
        if product is not None:
            return product
        opposite = _opposite(expr)
        if opposite is not None:
            self._opposites.append(opposite)
            u, m = self.visit(opposite), expr.size
            return image(expr.shape, zeros(m), [(spellings.minus(m), u)])
        args = [self.visit(arg) for arg in expr.args]
        combination = self._linear(expr, args)
        return self._outer(expr, args) if combination is None else combination

    def _selection(self, variable: cp.Variable, positions: NDArray[np.intp]) -> sp.csr_array:
        """Return the matrix that selects a variable's entries at `positions` from the vector x."""
        piece, wanted = self.layout[variable.id], np.ravel(positions, order="F")
        columns = piece.offset + np.searchsorted(piece.entries, wanted)
        entry = (np.ones(wanted.size), (np.arange(wanted.size), columns))
        return sp.csr_array(entry, shape=(wanted.size, self.layout.size))

    def _constant(self, expr: cp.Expression) -> Combination:
        value = expr.value
        if value is None:
            missing = [p.name() for p in expr.parameters() if p.value is None]
            raise ModelError(
                f"The objective of agent '{self.owner}' uses public parameters without a value"
                f"{': ' + ', '.join(missing) if missing else ''}. Write "
                f"{missing[0] if missing else 'parameter'}.value = ... before "
                "problem.plan(...)."
            )
        h = np.ravel(as_array(value), order="F").astype(float)
        self._check(h)
        return Combination(expr.shape, None, (), h)

    def _sparse_product(self, expr: Any) -> Combination | None:
        """Return a product with a sparse constant as a combination; None for other expressions."""
        rule = rule_of(expr)
        if rule is None or rule[0].product != "matrix":
            return None
        for k, (other, constant) in enumerate((expr.args, expr.args[::-1])):
            if not constant.is_constant() or constant.parameters():
                continue
            C = constant.value
            if not sp.issparse(C) or C.ndim != 2 or C.shape != constant.shape:
                continue
            self._check(C.data)
            M = rule[0].linear_map(k, C, [a.shape for a in expr.args])
            return image(expr.shape, zeros(expr.size), [(compact(M), self.visit(other))])
        return None

    def _check(self, h: Array) -> None:
        """Refuse constants h that are not finite, or have squares that overflow."""
        if not np.isfinite(h).all():
            raise ModelError(
                f"The objective of agent '{self.owner}' uses a constant with NaN or infinite "
                "entries, so neither its gradient nor its sensitivity is defined. Clean the data "
                "the expression is built from."
            )
        if max(h.max(initial=0.0), -h.min(initial=0.0)) > self.largest:
            raise ModelError(
                f"The objective of agent '{self.owner}' uses a constant beyond {self.largest:g}, "
                "whose square overflows. Scale the problem."
            )

    def _linear(self, expr: Any, args: list[Combination]) -> Combination | None:
        """Return the combination of an atom that is affine in its varying arguments, or None."""
        if spellings.adds(expr):
            return total(expr.shape, args)
        maps = spellings.maps(expr)
        if maps is not None:
            return image(expr.shape, zeros(expr.size), list(zip(maps, args, strict=True)))
        if spellings.scales(expr):
            return _scaled(expr, args)
        fresh = [cp.Variable(a.shape) for a in args]
        mixed = [
            arg if combination.constant else variable
            for arg, combination, variable in zip(expr.args, args, fresh, strict=True)
        ]
        try:
            copy = expr.copy(mixed)
        except ValueError:  # the atom insists on a constant where private data stand
            return None
        if not copy.is_affine():
            return None
        moving = [(c, v) for c, v in zip(args, fresh, strict=True) if not c.constant]
        M, offset = affine_map(copy, [v for _, v in moving])
        pieces: list[tuple[Matrix, Combination]] = []
        start = 0
        for combination, variable in moving:
            pieces.append((M[:, start : start + variable.size], combination))
            start += variable.size
        return image(expr.shape, offset, pieces)

    def _outer(self, expr: cp.Expression, args: list[Combination]) -> Combination:
        matched = rule_of(expr)
        if matched is None:
            raise NoRule(written(expr), self.owner)
        rule, data = matched
        return self._made(rule, data, tuple(args), expr.shape)

    def _made(
        self,
        rule: Rule,
        data: tuple[Any, ...],
        args: tuple[Combination, ...],
        shape: tuple[int, ...],
    ) -> Combination:
        atom = Atom(rule, data, args, shape)
        rewritten_form = rewritten(atom, self.atoms, self._made)
        if rewritten_form is not None:
            return rewritten_form
        # If X @ w occurs twice, one shared node is faster, and lets contributions cancel.
        similar = self._known.setdefault((rule.name, data, shape), _Alike())
        index = similar.place(atom, len(self.atoms))
        if index == len(self.atoms):
            self.atoms.append(atom)
        size = math.prod(shape)
        return Combination(shape, None, (), zeros(size), ((index, Identity(size)),))


class _Alike:
    """Atoms with equal rule, static data and shape, with their indices in the normal form."""

    def __init__(self) -> None:
        self._first: tuple[Atom, int] | None = None
        self._places: dict[tuple[bytes, ...], int] = {}

    def place(self, atom: Atom, new: int) -> int:
        """Return the index of an atom with equal arguments.

        If no such atom is stored, store this atom and return the index `new`.
        """
        if self._first is None:  # without digests: data of records have millions of entries
            self._first = atom, new
            return new
        first, position = self._first
        if all(a is b for a, b in zip(first.args, atom.args, strict=True)):
            return position
        if not self._places:
            self._places[_arguments(first)] = position
        return self._places.setdefault(_arguments(atom), new)


def _arguments(atom: Atom) -> tuple[bytes, ...]:
    return tuple(map(digest_of, atom.args))


def _opposite(expr: Any) -> cp.Expression | None:
    """Return ``A @ B`` for ``-A @ B`` or ``A @ -B`` if the negated factor is private, else None.

    Negating the product is free, but negating the data would need a matrix of their size.
    """
    rule = rule_of(expr)
    if rule is None or rule[0].product != "matrix":
        return None
    for position, factor in enumerate(expr.args):
        inner = spellings.negated(factor)
        if inner is not None and any(isinstance(p, Private) for p in factor.parameters()):
            return expr.copy([inner if k == position else a for k, a in enumerate(expr.args)])
    return None


def _scaled(expr: Any, args: Sequence[Combination]) -> Combination | None:
    """Return a product or quotient with one constant side as a combination.

    The result is None for other expressions, or if the combination's matrices would be too large.
    """
    rule, moving = rule_of(expr), [k for k, u in enumerate(args) if not u.constant]
    if rule is None or len(moving) != 1 or moving[0] not in rule[0].linear_in:
        return None
    k = moving[0]
    value, shapes = expr.args[1 - k].value, [u.shape for u in args]
    C = value if sp.issparse(value) else np.asarray(value, dtype=float).reshape(shapes[1 - k])
    M = rule[0].linear_map(k, C, shapes, _KRON_LIMIT)
    return None if M is None else image(expr.shape, zeros(expr.size), [(compact(M), args[k])])


def parts_of(
    objective: cp.Expression,
    layout: Layout,
    private: Sequence[Private],
    owner: str,
    *,
    largest: float = math.inf,
    proximal: bool = True,
) -> tuple[NormalForm, cp.Expression | None]:
    """Split an objective into terms with a gradient, and terms for proximal steps.

    Parameters
    ----------
    objective, layout, private, owner, largest
        See `normal_form`.
    proximal : bool
        Whether convex public terms without a Lipschitz gradient go into the rest. If not, only
        terms without any gradient do: for methods that follow gradients alone.

    Returns
    -------
    form : NormalForm
    rest : cvxpy expression or None
        Sum of convex public terms; None if all terms stay in the form.

    Raises
    ------
    ModelError
        If a term without a gradient holds private data or is not known to be convex. Also if
        `normal_form` raises one.
    """

    def form(expression: cp.Expression) -> NormalForm:
        return normal_form(expression, layout, private, owner, largest=largest)

    whole: NormalForm | None = None
    try:
        whole = form(objective)
    except NoRule:
        pass
    if whole is not None and (not proximal or smoothness(whole) is not None):
        return whole, None
    inside: list[cp.Expression] = [cp.Constant(0.0)]
    rest: list[cp.Expression] = []
    for term in summands(objective):
        try:
            normal = form(term)
        except NoRule as missing:
            _require_public(term, missing.atom, owner)
            rest.append(term)
            continue
        movable = proximal and not _private(term) and term.is_convex()
        (rest if movable and smoothness(normal) is None else inside).append(term)
    if whole is not None and not rest:
        return whole, None
    return form(_sum(inside)), _sum(rest)


def _require_public(term: cp.Expression, atom: str, owner: str) -> None:
    held = _private(term)
    if not held and term.is_convex():
        return
    *others, last = supported()
    constants = _private_constants(term)
    if atom.removeprefix("cp.") in others and constants:
        raise ModelError(
            f"The objective of agent '{owner}' puts private '{constants[0]}' where {atom} takes a "
            "constant, such as an exponent. Write a number or a cp.Parameter there. dpcvx knows no "
            f"gradient of {atom} for a private constant."
        ) from None
    why = f"together with private '{held[0]}'" if held else "in a term that is not convex"
    raise ModelError(
        f"The objective of agent '{owner}' uses {atom} {why}, and dpcvx knows no gradient of it. "
        f"Rewrite the term with {', '.join(others)} and {last}. Convex terms without private data "
        "may use every atom that cvxpy takes; write them as separate terms of the sum."
    ) from None


def summands(expression: Any) -> list[cp.Expression]:
    """Return terms that add up to a scalar expression, after multiplying out its products."""
    return spellings.terms(expression, lambda e: not e.variables() and not _private(e))


def _private(expression: cp.Expression) -> list[str]:
    return [p.name() for p in expression.parameters() if isinstance(p, Private)]


def _private_constants(expression: cp.Expression) -> list[str]:
    """Return the names of private objects that atoms take as constants, such as exponents."""
    constants = (c for node in nodes_of(expression) for c in constants_of(node))
    return [name for constant in constants for name in _private(constant)]


def _sum(terms: Sequence[cp.Expression]) -> cp.Expression:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
