"""A coordinator that sends different documents to honest owners of secret sums, and restarts them.

Nobody colludes with it. Every owner runs the package, checks what it is sent, and follows the
protocol; the first one is the victim, whose privacy loss is measured. In a trial the coordinator
plays one lie, or none, against owners with certificates. It adds up the masked values of all owners
wherever it gets them, and the trial is repeated with other noise. A trial ends as

* ``lie: refused by code``: an owner refused before there was a sum;
* ``lie: held``: the sums hide the victim as well as its ledger states;
* ``honest: held``: the same for a coordinator that follows the protocol and starts owners again
  between sums, which no owner may refuse.

What is measured: let S be the sums of one repetition on the victim's grid, and let d say how far
one change of the victim's data moves each of them. All else in S is public or noise, so an observer
of all sums distinguishes two neighboring data sets as well as one normal release of multiplier
1/mu, with mu**2 = d' inv(Cov(S)) d: no combination of sums does better. The victim's ledger states
mu**2 = releases / multiplier**2. With R repetitions and p sums,
(R - 1) * mu**2 / (d' inv(sample covariance) d) is chi-squared with R - p degrees of freedom, and a
trial fails below the quantile of level 1e-6: this is the probability that an honest sum fails.
Sums whose masks do not cancel are uniform, have a larger covariance, and pass.
"""

import functools
import math
import random
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import cvxpy as cp
import numpy as np
from scipy import stats

import dpcvx as dp
from dpcvx.algorithms.data_terms import moment_sum
from dpcvx.algorithms.one_shot import MomentsQuestion
from dpcvx.algorithms.summed import Delivery, Question
from dpcvx.owners import offers as offers_module
from dpcvx.owners import wire
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import AgentReply, Agreed, Call, End, Partners, Refusal
from dpcvx.owners.offers import offers_of
from dpcvx.owners.session import Session
from dpcvx.privacy.secret_sharing import SecretSum, combine
from tests.campaigns.colluders import certified
from tests.campaigns.tally import Tally
from tests.owners.settings import charges

FULL = 300
REPEATS, LEVEL = 32, 1e-6
_MULTIPLIER = 8.0
# Residues stand in the upper 52 bits of a word.
_SHIFT = np.int64(12)


def _absolute(x, k, public):
    """The absolute value of a record: one more moves the gradient by 1 or by -1, by the point."""
    record, rows = np.ones((1, 1)), dp.Rows(1.0, relation="add_or_remove_one")
    return cp.norm1((record if public else dp.Private(record, name=f"d{k}", adjacency=rows)) @ x)


def _square(x, k, public):
    """A square of private data, of which gradients are affine in these."""
    data = np.ones(1)
    return cp.sum_squares(
        x - (data if public else dp.Private(data, name=f"d{k}", adjacency=dp.Within(0.1)))
    )


def _records(x, k, public):
    """Least squares on two records."""
    X, y = np.ones((2, 1)), np.zeros(2)
    if not public:
        rows = dp.Rows(1.0, records=f"person of {k}")
        X, y = (dp.Private(d, name=f"{n}{k}", adjacency=rows) for d, n in ((X, "X"), (y, "y")))
    return cp.sum_squares(X @ x - y)


_LOSSES = {"summed": _absolute, "central": _square, "moments": _records}


@functools.cache
def plan_of(kind, count, *, rounds=1, public=False, resolution=None):
    """A plan of secret sums over so many owners; of `public` ones, only the first has data."""
    sharing, x = dp.SecretSharing(limit=1000.0, resolution=resolution), cp.Variable(1, name="x")
    method = {
        "summed": dp.FederatedGradient(sharing=sharing, max_colluders=1, step=0.01),
        "central": dp.OneShot(sharing=sharing, max_colluders=1),
        "moments": dp.OneShot(sharing=sharing, max_colluders=1, sums="moments"),
    }[kind]
    agents = []
    for k in range(count):
        objective = _LOSSES[kind](x, k, public and k > 0)
        agents.append(dp.Agent(cp.Minimize(objective), [cp.abs(x) <= 20], name=f"site{k}"))
    asked = {} if method.fixed_rounds else {"rounds": rounds}
    return dp.Problem(agents).plan(
        method,
        mechanism=dp.Gaussian(noise_multiplier=_MULTIPLIER),
        epsilon=4.0,
        delta=1e-6,
        **asked,
    )


@dataclass
class Part:
    """A part of a lie: documents to all owners, then calls of rounds at points, for sums.

    Attributes
    ----------
    offers : list of Offer
        One per owner.
    calls : list of (int, float)
    again : collection of int
        Owners that are started again before.
    ended : collection of int
        Owners that are told, after it, that the run is over.
    relabeled : bool
        Whether keys are said to be of the document of each owner that they are given to.
    """

    offers: list
    calls: list
    again: tuple = ()
    ended: tuple = ()
    relabeled: bool = False


class Refused(Exception):
    """An owner refused."""


class Coordinator:
    """Plays parts to owners in one folder.

    Parameters
    ----------
    plan : Plan
        The victim's first one.
    place : Path
        For ledgers.
    identities : dict or None
        Of the owners; None without certificates.
    seed : int
    """

    def __init__(self, plan, place, identities, seed):
        self._plan, self._seed, self._identities = plan, seed, identities
        self._policies = [
            replace(one, epsilon=100.0, delta=1e-6, max_colluders=1, partners=len(plan.agents) - 1)
            for one in policies_of(plan, place)
        ]
        self._sessions = [self._new(k) for k in range(len(self._policies))]
        self.sums, self.signs = [], []

    def _new(self, k):
        policy, known = self._policies[k], self._identities
        identity = None if known is None else known[policy.agent]
        return Session(policy, seed=1000 * self._seed + k, identity=identity)

    def _say(self, k, message, kind):
        said = wire.decode(self._sessions[k].handle(wire.encode(message)))
        if isinstance(said, Refusal):
            raise Refused(said.code)
        assert isinstance(said, kind), said
        return said

    def play(self, part):
        """One part; its sums are kept."""
        for k in part.again:
            self._sessions[k].close()
            self._sessions[k] = self._new(k)
        owners = range(len(self._sessions))
        agreed = [self._say(k, part.offers[k], Agreed) for k in owners]
        keys = [said.key for said in agreed]
        for k in owners:
            names = [name for name, _ in part.offers[k].parts]
            told = tuple(key for key in keys if key.agent in names)
            if part.relabeled:
                told = tuple(replace(key, document=keys[k].document) for key in told)
            self._say(k, Partners(part.offers[k].run, told), Agreed)
        for t, x in part.calls:
            words = [self._words(k, part.offers[k], t, x, agreed[k].place) for k in owners]
            self.sums.append(int(combine(words).view(np.int64)[0] >> _SHIFT))
            self.signs.append(math.copysign(1.0, x))
        for k in part.ended:
            self._say(k, End(part.offers[k].run, "completed", part.calls[-1][0]), object)

    def _words(self, k, offer, t, x, reached):
        """The masked value of an owner in a round; its last one again if it was not restarted."""
        names, algorithm = tuple(name for name, _ in offer.parts), offer.algorithm
        moments = getattr(algorithm, "sums", "") == "moments"
        term = moment_sum(self._plan.program).terms[k] if moments else None
        size = term.size if moments else 1
        sums = SecretSum(names, algorithm.sharing.encoding(len(names)), (size,), t)
        asked = MomentsQuestion(term, sums) if moments else Question(
            np.array([x]), np.arange(1), 1, sums
        )  # fmt: skip
        if reached < (t, 1):
            self._say(k, Call(offer.run, t, 0, asked), AgentReply)
        return self._say(k, Call(offer.run, t, 1, Delivery(sums, ())), AgentReply).message.words

    def close(self):
        """Let all owners go; the number of releases in the victim's ledger."""
        for session in self._sessions:
            session.close()
        return charges(self._policies[0])[0]


def _told(offers, others, lines):
    """The first owner's offer, and other ones to all others, with lines in one of the ways.

    Parameters
    ----------
    offers, others : sequences of Offer
    lines : {"each", "true", "false"}
        Everybody's document is of its own offer; or all show what the first owner should be shown;
        or all show what the others are asked.
    """
    told = [offers[0], *others[1:]]
    if lines == "each" or not hasattr(offers[0], "lines"):
        return told
    shown = offers if lines == "true" else [offers[0], *others[1:]]
    common = tuple(map(offers_module.line_of, shown))
    return [replace(offer, lines=common) for offer in told]


def _silent(offer):
    """The offer without noise."""
    request = replace(offer.request, multiplier=None)
    return replace(offer, mechanism=None, request=request, split=None)


def coarse_grid(setting):
    """Others are asked for noise of 8 to 16 steps of a coarse grid, which counts by steps."""
    plan = setting.plan()
    split = plan.agents[0].noise.split
    decoy = setting.plan(resolution=2.0 ** math.floor(math.log2(split.scale / 8)))
    return plan, [Part(setting.told(plan, offers_of(decoy, "run")), setting.once)]


def no_noise(setting):
    """Others have no private data, and are asked for no noise."""
    plan = setting.plan(public=True)
    return plan, [Part(setting.told(plan, [*map(_silent, offers_of(plan, "run"))]), setting.once)]


def less_noise(setting):
    """Others have no private data, and are asked for a part of the noise."""
    plan = setting.plan(public=True)
    others = [replace(o, split=o.split.times(1 / 16)) for o in offers_of(plan, "run")]
    return plan, [Part(setting.told(plan, others), setting.once)]


def other_multiplier(setting):
    """Others have no private data, and are asked for noise of another multiplier and scale."""
    plan = setting.plan(public=True)
    others = [
        replace(
            offer,
            request=replace(offer.request, multiplier=offer.request.multiplier / 20),
            split=offer.split.times(1 / 20),
        )
        for offer in offers_of(plan, "run")
    ]
    return plan, [Part(setting.told(plan, others), setting.once)]


def falling_noise(setting):
    """Others have no private data, and are asked for noise that falls from round to round."""
    plan = plan_of("summed", setting.count, rounds=2, public=True)
    others = [
        replace(offer, mechanism=replace(offer.mechanism, decay=0.05))
        for offer in offers_of(plan, "run")
    ]
    return plan, [Part(setting.told(plan, others), [(1, 1.0), (2, 1.0)])]


def other_range(setting):
    """Others are told of another range of the sums."""
    plan, others = setting.plan(), []
    for offer in offers_of(plan, "run"):
        sharing = replace(offer.algorithm.sharing, limit=2 * offer.algorithm.sharing.limit)
        others.append(replace(offer, algorithm=replace(offer.algorithm, sharing=sharing)))
    return plan, [Part(setting.told(plan, others), setting.once)]


def other_rounds(setting):
    """The victim is told of two rounds, and all others of one."""
    one, two = (plan_of("summed", setting.count, rounds=rounds) for rounds in (1, 2))
    return two, [Part(setting.told(two, offers_of(one, "run")), [(1, 1.0)])]


def longer_plan(setting):
    """Others are started again and say the same again; the victim's plan is longer."""
    one, two = (plan_of("summed", setting.count, rounds=rounds) for rounds in (1, 2))
    offers = offers_of(one, "run")
    others = tuple(range(1, setting.count))
    return one, [
        Part(offers, [(1, 1.0)]),
        Part(setting.told(two, offers), [(1, -1.0)], again=others),
    ]


def longer_plan_elsewhere(setting):
    """The same under another name of the run."""
    one, two = (plan_of("summed", setting.count, rounds=rounds) for rounds in (1, 2))
    others = tuple(range(1, setting.count))
    second = setting.told(two, offers_of(one, "another"), "another")
    return one, [
        Part(offers_of(one, "run"), [(1, 1.0)]), Part(second, [(1, -1.0)], again=others),
    ]  # fmt: skip


def ended_for_one(setting):
    """The victim is told that the run is over; the others go on with it, under another name."""
    plan = plan_of("summed", setting.count)
    others = tuple(range(1, setting.count))
    return plan, [
        Part(offers_of(plan, "run"), [(1, 1.0)], ended=(0,)),
        Part(offers_of(plan, "another"), [(1, -1.0)], again=others),
    ]


def left_out(setting):
    """Others are told of one participant less."""
    plan, fewer = setting.plan(), plan_of(setting.kind, setting.count - 1)
    offers = offers_of(plan, "run")
    return plan, [Part([offers[0], *offers_of(fewer, "run")[1:], offers[-1]], setting.once)]


def twice(setting):
    """Others add no noise, and the victim is shown the line of one that does in their places."""
    plan, [part] = no_noise(replace(setting, lines="each"))
    if hasattr(part.offers[0], "lines"):
        lines = part.offers[0].lines
        shown = (lines[0], *[lines[1]] * (len(lines) - 1))
        part.offers[0] = replace(part.offers[0], lines=shown)
    return plan, [part]


def relabeled(setting):
    """Owners without certificates, and keys that are said to be of every owner's own document."""
    plan, [part] = setting.coins.choice((coarse_grid, no_noise))(replace(setting, lines="each"))
    part.relabeled = hasattr(part.offers[0], "lines")
    return plan, [part]


def honest(setting):
    """One document for all; owners are started again between sums, and say the same again."""
    plan = plan_of(setting.kind, setting.count, rounds=2 if setting.kind == "summed" else 1)
    offers, owners = offers_of(plan, "run"), range(setting.count)
    again = [tuple(k for k in owners if setting.coins.random() < 0.5) for _ in range(2)]
    if setting.kind != "summed":
        return plan, [Part(offers, setting.once, again=again[0])]
    return plan, [
        Part(offers, [(1, 1.0)], again=again[0]),
        Part(offers, [(1, 1.0), (2, -1.0)], again=again[1]),
    ]


LIES = (
    coarse_grid, no_noise, less_noise, other_multiplier, falling_noise, other_range, other_rounds,
    longer_plan, longer_plan_elsewhere, ended_for_one, left_out, twice, relabeled,
)  # fmt: skip


@dataclass
class Setting:
    """What a lie is played in.

    Attributes
    ----------
    kind : {"summed", "central", "moments"}
    count : int
        Of owners.
    lines : {"each", "true", "false"}
        See `_told`.
    coins : random.Random
    """

    kind: str
    count: int
    lines: str
    coins: random.Random

    @property
    def once(self):
        """One call, of a first round."""
        return [(1, 1.0)]

    def plan(self, **arguments):
        """A plan of this kind."""
        return plan_of(self.kind, self.count, **arguments)

    def told(self, plan, others, run="run"):
        """The plan's offer to the victim, and other ones to all others."""
        return _told(offers_of(plan, run), others, self.lines)


def measured(plan, parts, identities, place, seed):
    """Sums of one repetition, their signs, the victim's releases, and the code of a refusal."""
    place.mkdir()
    coordinator, code = Coordinator(plan, place, identities, seed), ""
    try:
        for part in parts:
            coordinator.play(part)
    except Refused as refusal:
        code = str(refusal)
    releases = coordinator.close()
    return coordinator.sums, coordinator.signs, releases, code


def judged(split, sums, signs, releases):
    """What is wrong with the sums of all repetitions, a row each; None if nothing is."""
    distinct = np.sort(np.unique(sums, axis=1, return_index=True)[1])  # the same again: one sum
    sums, signs = sums[:, distinct] * split.width, np.array(signs)[distinct]
    moves = signs * split.together / _MULTIPLIER
    covariance = np.atleast_2d(np.cov(sums, rowvar=False))
    measured = float(moves @ np.linalg.solve(covariance, moves))
    stated, freedom = releases / _MULTIPLIER**2, len(sums) - len(moves)
    if (len(sums) - 1) * stated / measured >= stats.chi2.ppf(LEVEL, freedom):
        return None
    return f"mu is about {math.sqrt(measured):.3g}, and the ledger states {math.sqrt(stated):.3g}"


def tried(lie, setting, identities, repeats, seed):
    """How a lie ends, and what is wrong, if something is."""
    name, found = lie.__name__, []
    plan, parts = lie(setting)
    known = None if lie is relabeled else identities
    with tempfile.TemporaryDirectory() as folder:
        for k in range(repeats):
            sums, signs, releases, code = measured(
                plan, parts, known, Path(folder) / f"{k}", 10_000 * seed + k
            )
            if code and not sums:
                wrong = f"refused by {code}" if lie is honest else None
                return f"{name}: refused by {code}", wrong
            if lie is honest and code:
                return f"{name}: FAULT", f"refused by {code} after {len(sums)} sums"
            found.append(sums)
    wrong = judged(plan.agents[0].noise.split, np.array(found), signs, releases)
    if wrong:
        return f"{name}: FAULT", wrong
    return f"{name}: held{f', then refused by {code}' if code else ''}", None


def campaign(size, seed, repeats=REPEATS, fewest=8):
    """So many trials: every lie in turn to as many owners and up to 2 more; every fifth honest."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        identities = certified(Path(folder), [f"site{k}" for k in range(10)])
        for k in range(size):
            coins = random.Random(f"{seed} {k}")
            lie = honest if k % 5 == 4 else LIES[(k - k // 5) % len(LIES)]
            setting = Setting(
                coins.choice(("summed", "central", "moments")),
                coins.randrange(3, 6) if lie is honest else coins.randrange(fewest, fewest + 3),
                coins.choice(("each", "true", "false")),
                coins,
            )
            try:
                outcome, wrong = tried(lie, setting, identities, repeats, 1000 * seed + k)
            except Exception as error:
                outcome, wrong = "RAW", f"{lie.__name__}: {type(error).__name__}: {error}"
            tally.add(outcome, wrong and f"seed {seed}, trial {k}, {setting.kind}: {wrong}")
    return tally
