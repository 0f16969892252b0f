"""Tampered programs: none ends the process, and none that is accepted moves beyond its bound.

Programs of many kinds are written, changed and sealed again, as a malicious coordinator would. An
owner reads them with its own description of its data. What it accepts is held against finite
differences over neighboring data of its own. All of it happens in another process, so that one
that ends shows. A trial ends as

* ``refused: code``: by the package's own refusal, of the kind that crosses between owners;
* ``no sensitivity``: nothing bounds what is asked, in the package's words;
* ``holds``: accepted, and no neighbor moved the gradient farther than its bound.
"""

import concurrent.futures
import functools
import multiprocessing
import random
import signal
import warnings
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.algorithms.program import compile_problem
from dpcvx.owners import wire
from dpcvx.owners.wellformed import require_well_formed
from tests import instances
from tests.campaigns.tally import Tally
from tests.owners.tampered import WAYS, packed, put, unpacked

FULL = 100_000
_CHUNK = 250
# Processor seconds for one document.
_LIMIT = 20
_NEIGHBOURS = 6


def clinic():
    """Twenty records of three features, with labels."""
    rows = dp.Rows(1.0)
    X = dp.Private(shape=(20, 3), name="X", adjacency=rows)
    y = dp.Private(shape=20, name="y", adjacency=rows)
    w, b = cp.Variable(3, name="w"), cp.Variable(name="b")
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ w))) / 20 + cp.sum_squares(w) / 20
    other = dp.Agent(cp.Minimize(cp.sum_squares(w) + cp.square(b)), [cp.abs(w) <= 1], name="b")
    agent = dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 1], name="clinic")
    return dp.Problem([agent, other])


def mixed():
    """Losses of several kinds over data of several kinds."""
    x = cp.Variable(3, name="x")
    d = dp.Private(shape=3, name="d", adjacency=dp.Within(0.1, norm=2), nonneg=True)
    R = dp.Private(
        shape=(8, 3), name="R", adjacency=dp.Rows(2.0, norm=1, relation="add_or_remove_one")
    )
    cost = cp.sum(cp.huber(R @ x, 0.5)) + cp.norm1(R @ x - 1) + d @ cp.square(x)
    cost += cp.quad_form(x, np.eye(3) + 0.2) + cp.max(x) + cp.norm(x, 2) + cp.log_sum_exp(x)
    one = dp.Agent(cp.Minimize(cost), [cp.norm(x) <= 2, cp.sum(x) <= 1], name="one")
    two = dp.Agent(cp.Minimize(cp.sum_squares(x)), name="two")
    return dp.Problem([one, two])


_BUILDS = (
    clinic,
    mixed,
    *(
        functools.partial(lambda build: build().problem, build)
        for build in (
            instances.clinics, instances.power_line, instances.overlapping_slices,
            instances.covariance,
        )
    ),
)  # fmt: skip


@functools.cache
def corpus():
    """Programs with private data, as the compiler makes them."""
    locals_ = [a for build in _BUILDS for a in compile_problem(build()).agents]
    return [wire.portable(local) for local in locals_ if local.form.private]


def known_breaks():
    """The two documents that once had a derived bound below what one change does."""
    frame = wire.encode(wire.portable(compile_problem(clinic()).agents[0]))
    found = []
    for change in (_twice, _negative):
        tree, raw = unpacked(frame)
        change(tree)
        found.append(packed(tree, raw))
    return found


def _twice(tree):
    """One atom named twice by the root."""
    root = tree[3][4]
    assert root[0] == "combination"
    terms = root[5]
    terms[2][1] = terms[1][1]


def _negative(tree):
    """A negative dimension of the first atom's argument."""
    atom = tree[3][3][1]
    assert atom[0] == "atom"
    put(atom, (3, 1, 1, 2), -atom[3][1][1][2])


def read(frame, own):
    """What an owner makes of a program: checked, with its own description of its data."""
    local = wire.decode(frame)
    if not isinstance(local, type(corpus()[0])):
        return None
    specs = tuple(own.get(spec.name) for spec in local.form.private)
    if None in specs:
        return None
    local = replace(local, form=replace(local.form, private=specs))
    require_well_formed(local)
    return local if local.asserted is None else None


def drawn(spec, rng):
    """Data that fit a description."""
    values = rng.normal(size=spec.shape) * 10.0 ** rng.integers(-1, 2)
    if spec.symmetric:
        values = (values + values.T) / 2
    if isinstance(spec.adjacency, dp.Rows):
        rows = values.reshape(spec.shape[0], -1)
        norms = np.linalg.norm(rows, spec.adjacency.order, axis=1, keepdims=True)
        values = (rows / norms * spec.adjacency.max_norm).reshape(spec.shape)
    return spec.admissible(spec.kept(values))


def neighbor(specs, data, rng):
    """Data of a neighbor: one object moved, or one record and all its parts."""
    other, k = [d.copy() for d in data], int(rng.integers(len(specs)))
    spec = specs[k]
    if isinstance(spec.adjacency, dp.Rows):
        i = int(rng.integers(spec.shape[0]))
        fresh = [drawn(s, rng) if isinstance(s.adjacency, dp.Rows) else None for s in specs]
        for j, part in enumerate(specs):
            if fresh[j] is not None and part.adjacency.label == spec.adjacency.label:
                own = np.arange(i, part.size, part.shape[0])
                absent = spec.adjacency.relation == "add_or_remove_one"
                other[j][own] = 0.0 if absent else fresh[j][own]
        return other
    move = rng.normal(size=spec.size)
    if spec.adjacency.norm in ("entry", 1):
        move = np.where(np.arange(spec.size) == rng.integers(spec.size), move, 0.0)
    order = np.inf if spec.adjacency.norm == "entry" else spec.adjacency.norm
    move *= spec.adjacency.radius / np.linalg.norm(move, order) * (1 - 1e-12)
    # Towards data that are admissible both before and after the change.
    if spec.admissible(other[k] + move).tobytes() == (other[k] + move).tobytes():
        other[k] = other[k] + move
    return other


def exceeds(local, sensitivity, rng):
    """How far beyond its bound a neighbor moves the gradient; None if none does."""
    form, extent = local.form, sensitivity.extent
    for _ in range(_NEIGHBOURS):
        data = [drawn(spec, rng) for spec in form.private]
        other = neighbor(form.private, data, rng)
        x = np.clip(rng.normal(size=form.n), extent.lower, extent.upper)
        bound = sensitivity.near(2, x)
        one, two = (
            np.nan_to_num(
                form.bind(d, sensitivity.clips, limited=True).gradient(x),
                nan=0.0, posinf=0.0, neginf=0.0,
            )
            for d in (data, other)
        )  # fmt: skip
        if bound > 1e60:  # no noise can be scaled to it, and the door says so
            continue
        with np.errstate(all="ignore"):
            moved = float(np.linalg.norm(one - two))
            slack = 1e-9 * float(np.linalg.norm(one))  # their own rounding
        if moved > bound * (1 + 1e-6) + slack:
            return f"moved {moved:.6g}, bound {bound:.6g}"
    return None


def tried(frame, own, rng):
    """How one document ends, and what is wrong if something is."""
    signal.setitimer(signal.ITIMER_PROF, _LIMIT)
    try:
        local = read(frame, own)
        if local is None:
            return "refused: policy", None
        sensitivity = local.sensitivity()
        wrong = exceeds(local, sensitivity, rng)
    except dp.RefusedError as error:
        return f"refused: {error.code}", None
    except dp.DpcvxError:
        return "no sensitivity", None
    except BaseException as error:
        return "RAW", f"{type(error).__name__}: {str(error)[:120]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ("holds", None) if wrong is None else ("EXCEEDED", wrong)


def _too_long(*_):
    raise TimeoutError("a document that takes too long")


def chunk(seed, size):
    """So many documents, in this process."""
    signal.signal(signal.SIGPROF, _too_long)
    warnings.simplefilter("ignore")
    found, programs = [], corpus()
    frames = [wire.encode(local) for local in programs]
    for k in range(size):
        coins, rng = random.Random(f"{seed} {k}"), np.random.default_rng([seed, k])
        which = coins.randrange(len(programs))
        own = {spec.name: spec for spec in programs[which].form.private}
        way = coins.choice(WAYS)
        outcome, wrong = tried(way(frames[which], coins), own, rng)
        fault = None if wrong is None else f"seed {seed}, document {k} ({way.__name__}): {wrong}"
        found.append((outcome, fault))
    return found


def campaign(size, seed):
    """Change and read so many documents, in a process of their own."""
    tally, starts = Tally(), range(0, size, _CHUNK)
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
    try:
        for first in starts:
            number = seed * 1_000_003 + first
            try:
                results = pool.submit(chunk, number, min(_CHUNK, size - first)).result()
            except BrokenProcessPool:
                tally.add("CRASH", f"a document of seed {number} ends the process")
                pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
                continue
            for outcome, fault in results:
                tally.add(outcome, fault)
    finally:
        pool.shutdown()
    return tally
