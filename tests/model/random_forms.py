"""Random objectives: every atom with a rule, many shapes, private data, products and clips."""

import warnings

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.sensitivity.derivation import derive
from dpcvx.solvers.projector import Extent
from tests.forms import form_of

SMALL, LARGE = ((1, 9), (2, 9), (1, 9)), ((1, 200), (2, 40), (2, 7))

ENTRYWISE = (
    lambda u: u,
    lambda u: u,
    cp.square,
    cp.abs,
    cp.logistic,
    cp.xexp,
    cp.nlp.tanh,
    lambda u: cp.huber(u, 0.4),
    lambda u: cp.exp(0.1 * u),
    lambda u: cp.pos(1 - u),
    lambda u: cp.maximum(0.3 * u, -0.7 * u),
    lambda u: cp.minimum(u, 0.2),
    lambda u: cp.entr(cp.square(u) + 0.1),
    lambda u: cp.log(cp.square(u) + 1),
    lambda u: cp.log1p(cp.square(u)),
    lambda u: cp.power(cp.abs(u), 1.5),
    lambda u: cp.multiply(u, u),
    lambda u: cp.kl_div(cp.square(u) + 1, cp.abs(u) + 0.5),
    lambda u: cp.rel_entr(cp.square(u) + 1, cp.abs(u) + 0.5),
    lambda u: u / (1 + cp.square(u)),
)


class Draw:
    """Choices of one random form, with its variables and private objects."""

    def __init__(self, seed, sizes, records=None):
        self.rng = np.random.default_rng(seed)
        self.m, self.n, self.q = (int(self.rng.integers(*pair)) for pair in sizes)
        self.w, self.b = cp.Variable(self.n, name="w"), cp.Variable(name="b")
        self.V = cp.Variable((self.n, self.q), name="V")
        rows = dp.Rows(2.0, records=records)
        self.X = dp.Private(shape=(self.m, self.n), name="X", adjacency=rows)
        self.y = dp.Private(shape=self.m, name="y", adjacency=dp.Rows(1.0, records=records))
        self.Z = dp.Private(shape=(self.m, self.q), name="Z", adjacency=dp.Rows(1.0))
        self.s = dp.Private(shape=(), name="s", adjacency=dp.Within(1.0))
        self.C = self.rng.normal(size=(self.m, self.n))

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def vector(self):
        """An affine vector, or nearly, with a row per record."""
        w, b, X, y, C = self.w, self.b, self.X, self.y, self.C
        sparse = np.where(self.rng.random(C.shape) < 0.2, C, 0.0)
        return self.pick(
            lambda: X @ w,
            lambda: X @ w - y,
            lambda: C @ w - y,
            lambda: sparse @ w + b,
            lambda: X @ w + b,
            lambda: cp.multiply(y, X @ w),
            lambda: cp.multiply(y, C @ w + 1),
            lambda: w @ X.T,
            lambda: X @ cp.square(w),
            lambda: (X @ w) * self.s,
            lambda: w @ X.T - y,
        )()

    def matrix(self):
        """The same with several columns."""
        V, X, Z = self.V, self.X, self.Z
        # A column that is repeated; of one row it would be a number.
        column = self.y[:, None] if self.m > 1 else 2.0
        return self.pick(
            lambda: X @ V,
            lambda: X @ V - Z,
            lambda: self.C @ V + Z,
            lambda: cp.multiply(Z, X @ V),
            lambda: (V.T @ X.T).T,
            lambda: cp.multiply(column, X @ V),
        )()

    def reduced(self, u):
        """A number made of an array."""
        axis = self.pick(None, 0, 1) if u.ndim == 2 else self.pick(None, 0) if u.ndim else None
        whole = axis is None and u.ndim == 2
        A = self.rng.normal(size=(u.size, u.size))
        return self.pick(
            lambda: cp.sum(u),
            lambda: cp.sum_squares(u),
            lambda: cp.norm1(u),
            lambda: cp.norm(u, 2) if u.ndim < 2 else cp.sum(cp.norm(u, 2, axis=axis or 0)),
            lambda: cp.sum(cp.max(u, axis=axis)),
            lambda: cp.sum(cp.min(u, axis=axis)),
            lambda: cp.sum(cp.log_sum_exp(u, axis=axis)),
            lambda: cp.sum_largest(u, self.pick(1, 1.5)),
            lambda: cp.norm_inf(u),
            lambda: cp.sum(cp.pnorm(u, 3, axis=0 if whole else axis)),
            lambda: cp.quad_over_lin(u, 2.0),
            lambda: cp.sum(cp.norm1(u, axis=axis)),
            lambda: cp.quad_form(u, cp.psd_wrap(A @ A.T)) if u.ndim == 1 else cp.sum_squares(u),
            lambda: cp.quad_over_lin(u, cp.square(self.b) + 1),
            lambda: cp.sum(cp.max(cp.reshape(u, (1, *u.shape), order="F"), axis=(0, u.ndim))),
        )()

    def term(self):
        """A term of an objective."""
        inner = self.vector() if self.rng.random() < 0.6 else self.matrix()
        part = self.reduced(self.pick(*ENTRYWISE)(inner))
        return self.pick(
            lambda: part,
            lambda: 0.5 * part,
            lambda: cp.exp(0.01 * part),
            lambda: cp.square(part),
            lambda: cp.multiply(self.s, part),
        )()

    def of_records(self):
        """A sum over records that can be clipped, also turned or with public parts beside."""
        w, b, V, X, y, C = self.w, self.b, self.V, self.X, self.y, self.C
        weights, z = self.rng.uniform(0.5, 2, self.m), cp.Variable(self.n, name="z")
        u = self.pick(
            lambda: X @ w,
            lambda: X @ w - y,
            lambda: X @ w + b,
            lambda: X @ w + b - y,
            lambda: X @ V,
            lambda: w @ X.T,
            lambda: V.T @ X.T,
            lambda: w @ X.T + b,
            lambda: cp.multiply(weights, X @ w) + C @ w,
            lambda: X @ w + C @ w,
            lambda: cp.multiply(y, X @ w),
            lambda: X @ w + C @ z,
        )()
        cost = self.pick(
            lambda: cp.sum(cp.logistic(u)),
            lambda: cp.sum(cp.huber(u, 0.3)),
            lambda: cp.sum_squares(u),
            lambda: cp.sum(cp.pos(1 - u)),
            lambda: cp.sum(cp.maximum(0.2 * u, -0.8 * u)),
            lambda: cp.norm1(u),
            lambda: cp.sum(cp.log_sum_exp(u, axis=1)) if u.ndim == 2 else cp.sum(cp.logistic(u)),
        )()
        return cost / self.m + (0.1 * cp.sum_squares(w) if self.rng.random() < 0.5 else 0)


def expression_of(seed, sizes=SMALL):
    """A random objective; odd seeds give sums over records."""
    if seed % 2:
        return Draw(seed, sizes, "r").of_records()
    draw = Draw(seed, sizes)
    terms = [draw.term() for _ in range(int(draw.rng.integers(1, 4)))]
    return sum(terms) + (cp.sum_squares(draw.w) if draw.rng.random() < 0.5 else 0)


def random_form(seed, sizes=SMALL):
    """A form with private data; None where cvxpy or dpcvx refuse the expression."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of cvxpy, about products of variables
            form = form_of(expression_of(seed, sizes))[1]
    except (ValueError, cp.DCPError, dp.DpcvxError):
        return None
    return form if form.private else None


def clips_of(form, bound=0.3):
    """Clips of records' contributions; none where there is nothing to clip."""
    free = np.full(form.n, np.inf)
    try:
        return derive(form, "north", lambda: Extent(-free, free), clip=bound).clips
    except dp.DpcvxError:
        return ()
