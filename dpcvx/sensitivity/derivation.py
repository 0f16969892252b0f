r"""Derivation of a gradient's sensitivity from the normal form, or the reason that it fails.

Terms whose gradient is affine in the private data, with a Jacobian that depends on neither the data
nor the point,

.. math:: \nabla f(x; d) = h(x) + \sum_k J_k d_k ,

are bounded exactly: for neighbors that differ in private parameter k the change is :math:`J_k (d_k
- d_k')`, and the sensitivity is a norm of :math:`J_k` over the adjacency ball. Other terms are
covered where the data are records: see `dpcvx.sensitivity.records`. Any other term is refused, and
the error names its atom, unless the agent clips the contributions of its records or supplies a
bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from ..errors import PrivacyError
from ..model.adjacency import Rows
from ..model.matrices import Sparse, without_zeros
from ..model.normal_form import Atom, Clip, NormalForm
from ..model.quadratic import Term, bilinear, cross, terms
from ..model.spec import Asserted, PrivateSpec
from ..solvers.projector import Extent
from .certificate import Sensitivity
from .intervals import Unbounded, read_by
from .private_weights import LARGEST, is_private_quadratic, weighs, weights
from .records import Contributions


def derive(
    form: NormalForm,
    owner: str,
    extent: Callable[[], Extent],
    *,
    clip: float | None = None,
    asserted: Asserted | None = None,
) -> Sensitivity:
    """Derive the sensitivity of the gradient of an agent's objective.

    Parameters
    ----------
    form : NormalForm
    owner : str
        Name of the agent, for messages.
    extent : callable
        Function that returns the bounds, balls and sums of the agent's feasible set, called if
        needed.
    clip : float, optional
        Largest l2 norm of a single record's contribution, for clipping; infinite for no clipping.
    asserted : Asserted, optional
        User-supplied bound that replaces the derivation.

    Raises
    ------
    PrivacyError
        If no bound can be derived.
    """
    _check_records(form, owner)
    _check_complex(form, owner)
    clip = None if clip == math.inf else clip
    if clip is not None and asserted is not None:
        raise PrivacyError(
            f"Agent '{owner}' has both clip_norm= and sensitivity=, but clipping already gives a "
            "proved bound, which the asserted one would replace. Keep one of the two."
        )
    private, names = form.private, [spec.name for spec in form.private]
    free = np.full(form.n, np.inf)
    anywhere = Extent(-free, free)
    sorted_terms = _sorted(form, owner) if asserted is None else _Sorted.nothing(form)
    records = sorted_terms.contributions(form)
    if clip is not None and not records:
        raise PrivacyError(
            f"Agent '{owner}' has clip_norm={clip:g}, but its objective holds no loss of records "
            "whose contributions could be clipped; its gradient is bounded without. Drop "
            "clip_norm=."
        )
    where = extent() if records and clip is None else anywhere
    if not any(task.has_edge for task in records):
        where = replace(where, sums=())  # magnitudes follow from bounds and balls
    try:
        clips = () if clip is None else tuple(task.clipping(clip) for task in records)
        covered = _read_products(form, records) if clip is None else _covered(form, clips)
        if covered:
            sorted_terms = _sorted(form, owner, covered, tuple(sorted_terms.records))
            records = sorted_terms.contributions(form)
        for task in records if clip is None else ():
            if task.largest(2, where) == 0:
                read = {k for term in task.terms for k in form.reach(term.atom)[1]}
                raise _vanished(owner, [names[k] for k in sorted(read)], task.names)
            task.largest(2, where, absent=True)
    except Unbounded as reason:
        what = f"records of {_quoted(names)} meet variables in {reason.atom}, which {reason.why}"
        losses = (
            "Write a sum of losses of each record's scores X @ w, such as cp.sum_squares(X @ w - "
            "y) or cp.norm1(X @ w - y); cp.logistic, cp.log_sum_exp, cp.pos, cp.huber, cp.abs, "
            "cp.square and other convex or concave functions of one argument are covered."
        )
        if clip is not None:
            raise PrivacyError(
                f"clip_norm={clip:g} cannot be used for agent '{owner}': {what}, and only "
                "contributions through one product X @ w are clipped. Drop clip_norm=, without "
                "which bounds may follow from the records' own. Or: "
                f"{losses[0].lower()}{losses[1:]}"
            ) from None
        raise PrivacyError(
            f"No sensitivity can be derived for agent '{owner}': {what}. {losses} {_CLIP}"
        ) from None
    return Sensitivity(
        private,
        sorted_terms.jacobians,
        sorted_terms.names,
        weights(form, sorted_terms.weighing) if sorted_terms.weighing else None,
        records,
        where,
        clips,
        asserted,
        tuple(
            names[k] for k in range(len(names)) if k not in sorted_terms.met and asserted is None
        ),
    )


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Terms with private data and variables, sorted by the type of their sensitivity bound.

    Attributes
    ----------
    jacobians : tuple of csr_array or csc_array
        Jacobians of the terms with a constant Jacobian, one per private parameter.
    names : tuple of str
        Atoms of these terms, as users write them.
    weighing : list of Term
        Terms with private weights of functions of x.
    records : dict
        Terms that are losses of records, by label.
    met : set of int
        Indices of private parameters in terms with variables.
    """

    jacobians: tuple[Sparse, ...]
    names: tuple[str, ...]
    weighing: list[Term]
    records: dict[str, list[Term]]
    met: set[int]

    @staticmethod
    def nothing(form: NormalForm) -> _Sorted:
        """Return empty lists of terms, for a form without terms with data and variables."""
        zero = tuple(sp.csr_array((form.n, spec.size)) for spec in form.private)
        return _Sorted(zero, (), [], {}, set())

    def contributions(self, form: NormalForm) -> tuple[Contributions, ...]:
        """Return the losses of records of a form, one object per label."""
        return tuple(
            Contributions(form, tuple(terms_of), _parts_of(form, label))
            for label, terms_of in self.records.items()
        )


def _read_products(form: NormalForm, records: Sequence[Contributions]) -> list[Atom]:
    """Return products of records and variables that losses of these records read.

    A linear term of such a product is a part of a record's contribution, whose bound then follows
    from one interval of the derivative: ``cp.pos(r) - 0.2 * r`` has derivatives from -0.2 to 0.8.
    """
    read = {j for task in records for j in read_by(form, task.terms)}
    return [form.atoms[j] for j in sorted(read) if form.atoms[j].rule.product == "matrix"]


def _covered(form: NormalForm, clips: Sequence[Clip]) -> list[Atom]:
    """Return products of records and variables whose derivatives (cotangents) are all clipped.

    The cotangents are the derivatives by the products. A linear term of such a product, such as
    ``- cp.sum(X @ w)`` next to ``cp.sum(cp.exp(X @ w))``, is a part of the clipped contributions.
    """
    return [form.atoms[clip.atom] for clip in clips if clip.beside is None]


def _sorted(
    form: NormalForm, owner: str, covered: Sequence[Atom] = (), labels: Sequence[str] = ()
) -> _Sorted:
    """Return the terms with private data and variables, sorted by the type of their bound.

    Parameters
    ----------
    form : NormalForm
    owner : str
        Name of the agent, for messages.
    covered : sequence of Atom
        Products whose linear terms belong to losses of records.
    labels : sequence of str
        Labels of records in the order of the result.
    """
    jacobians: list[Sparse] = list(_Sorted.nothing(form).jacobians)
    constant: list[tuple[int, str]] = []  # private parameters with a constant Jacobian, and atoms
    weighing: list[Term] = []
    records: dict[str, list[Term]] = {label: [] for label in labels}
    met: set[int] = set()
    for term in terms(form):
        on_x, on_d = form.reach(term.atom)
        if not on_x or not on_d:
            continue
        met |= on_d
        parts = bilinear(form, term)
        if parts is not None and any(term.atom is atom for atom in covered):
            records.setdefault(_record_label(form, term, on_d, owner), []).append(term)
        elif parts is not None:
            for k in sorted(on_d):
                constant.append((k, term.atom.written))
                J = cross(form, parts, k)
                jacobians[k] = sp.csr_array(jacobians[k] + J) if jacobians[k].nnz else J
        elif weighs(form, term) and not _many_records(form, term, on_d):
            weighing.append(term)
        else:
            records.setdefault(_record_label(form, term, on_d, owner), []).append(term)
    linear = tuple(
        J if isinstance(J, sp.csc_array) and J.data.all() else without_zeros(J) for J in jacobians
    )
    for k in dict.fromkeys(k for k, _ in constant):
        if linear[k].nnz == 0:
            atoms = dict.fromkeys(atom for j, atom in constant if j == k)
            raise _vanished(owner, [form.private[k].name], tuple(atoms))
    _require_few(form, weighing, owner)
    names = tuple(dict.fromkeys(atom for _, atom in constant))
    return _Sorted(linear, names, weighing, records, met)


def _parts_of(form: NormalForm, label: str) -> tuple[int, ...]:
    """Return the indices of private parameters with one label: parts of the same records."""
    return tuple(
        k
        for k, spec in enumerate(form.private)
        if isinstance(spec.adjacency, Rows) and spec.adjacency.label == label
    )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _vanished(owner: str, names: Sequence[str], atoms: Sequence[str]) -> PrivacyError:
    """Return the error for a derived sensitivity of 0 although data and variables meet in atoms."""
    return PrivacyError(
        f"Private {_quoted(names)} of agent '{owner}' and variables meet in {', '.join(atoms)}, "
        "yet the derived sensitivity is 0, so the gradient would leave without noise. Remove the "
        "data from terms in which they cancel, are multiplied by 0, or can never count on the "
        "agent's set, and give parts that hold data alone a term of their own, such as "
        "cp.sum_squares(x) + cp.sum_squares(data). If the data do count, this is an error of dpcvx."
    )


def _many_records(form: NormalForm, term: Term, on_d: frozenset[int]) -> bool:
    """Return whether a term has too many private weights to bound each of them separately."""
    rows = all(isinstance(form.private[k].adjacency, Rows) for k in on_d)
    many = sum(form.private[k].size for k in on_d) > LARGEST
    return rows and many and not is_private_quadratic(term)


def _require_few(form: NormalForm, weighing: Sequence[Term], owner: str) -> None:
    one_by_one = [term for term in weighing if not is_private_quadratic(term)]
    members = frozenset[int]().union(*(form.reach(term.atom)[1] for term in one_by_one))
    count = sum(form.private[k].size for k in members)
    if count > LARGEST:
        raise PrivacyError(
            f"Agent '{owner}' has {count} private weights, and dpcvx needs one gradient per "
            "weight in every step to bound the effect of one change. It supports at most "
            f"{LARGEST}. Aggregate the weights, or {_ASSERT}"
        )


def _record_label(form: NormalForm, term: Term, on_d: frozenset[int], owner: str) -> str:
    labels = {
        spec.adjacency.label if isinstance(spec.adjacency, Rows) else None
        for spec in (form.private[k] for k in on_d)
    }
    label = labels.pop()
    inside = _quoted([form.private[k].name for k in sorted(on_d)])
    start = (
        f"No sensitivity can be derived for agent '{owner}': private {inside} and variables meet "
        f"in {term.atom.written}, "
    )
    if labels:
        raise PrivacyError(
            f"{start}but are not declared as parts of the same records, so several of them could "
            "change at once in a loss that allows for one. Declare each with dp.Rows and the same "
            "records= label, with features and target of one record in rows of the same number; or "
            f"{_ASSERT}"
        )
    if label is None:
        raise PrivacyError(
            f"{start}whose gradient does not depend linearly on the data, so dpcvx derives no "
            "bound on the effect of one change. Write the term with cp.sum_squares, "
            "cp.quad_form or products of affine expressions, such as cp.sum_squares(A @ x - "
            "data) in place of cp.norm(A @ x - data), or data @ x. If each row of the data is "
            "one record, declare dp.Private(X, adjacency=dp.Rows(1.0)), which covers "
            f"cp.logistic, cp.norm1 and other losses of records. Otherwise {_ASSERT}"
        )
    return label


_ASSERT = "assert a bound that you can prove: dp.Agent(..., sensitivity=dp.Asserted(l2=...))."
_CLIP = f"Otherwise clip each record's contribution, dp.Agent(..., clip_norm=1.0), or {_ASSERT}"


def _check_complex(form: NormalForm, owner: str) -> None:
    """Refuse complex data in a gradient: no bound covers changes of real and imaginary part."""
    if not any(spec.is_complex for spec in form.private):
        return
    reads = [form.root, *(u for atom in form.atoms for u in atom.args)]
    if any(u.G for u in reads):
        raise PrivacyError(
            f"No sensitivity can be derived for agent '{owner}', because its gradient depends on "
            "complex data. Write dp.OneShot(as_written=True), which releases the data once."
        )


def _check_records(form: NormalForm, owner: str) -> None:
    """Refuse inconsistent parts of the same records, and other data next to one person's rows."""
    whole = [
        isinstance(spec.adjacency, Rows) and spec.adjacency.max_rows_per_person == "all"
        for spec in form.private
    ]
    labels = {spec.adjacency.label for spec in form.private if isinstance(spec.adjacency, Rows)}
    if any(whole) and (not all(whole) or len(labels) > 1):
        name = form.private[whole.index(True)].name
        raise PrivacyError(
            f"Private '{name}' of agent '{owner}' has max_rows_per_person='all', so all data of "
            "the agent are one person's, but its other private objects would not change with it. "
            "Declare all of them with dp.Rows(..., max_rows_per_person='all') and one records= "
            "label, or give the rows identifiers with dp.ByPerson."
        )
    first_of: dict[str, PrivateSpec] = {}
    for spec in form.private:
        if not isinstance(spec.adjacency, Rows):
            continue
        first = first_of.setdefault(spec.adjacency.label, spec)
        assert isinstance(first.adjacency, Rows)
        if first.shape[0] != spec.shape[0] or any(
            getattr(first.adjacency, name) != getattr(spec.adjacency, name)
            for name in ("relation", "max_rows_per_person")
        ):
            raise PrivacyError(
                f"Private '{first.name}' and '{spec.name}' of agent '{owner}' hold parts of the "
                f"same records ('{spec.adjacency.label}'), but differ in their number of rows, in "
                "relation= or in max_rows_per_person=. Make them agree, or give them different "
                "records= labels if they describe different things."
            )
