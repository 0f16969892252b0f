"""An offer, a policy that takes it, and owners that can be ended and started again."""

from dataclasses import replace

import dpcvx as dp
from dpcvx.owners import wire
from dpcvx.owners.coordinator import Gone
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import Call
from dpcvx.owners.offers import line_of, offers_of
from dpcvx.owners.session import Session
from tests.instances import power_line

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
METHOD = dp.LinearizedADMM(penalty=2.0)
SHARING = dp.SecretSharing(limit=50.0)
METHODS = {
    "gradients": dp.LinearizedADMM(penalty=2.0, local_updates=2),
    "outputs": dp.LinearizedADMM(penalty=2.0, perturb="output"),
    "exact": dp.ADMM(penalty=2.0),
    "mean": dp.FederatedAveraging(step=0.1),
    "summed": dp.FederatedGradient(step=0.1),
    "in shares": dp.FederatedGradient(step=0.1, sharing=SHARING),
    "mean in shares": dp.FederatedAveraging(step=0.1, sharing=SHARING),
    "central": dp.OneShot(),
    "central in shares": dp.OneShot(sharing=SHARING),
    "neighbors": dp.DecentralizedGradient("ring"),
    "primal-dual": dp.PrimalDual(),
}


def planned(build=power_line, method=METHOD, rounds=4, **arguments):
    """A plan whose releases leave step by step, unless something else is asked for."""
    rounds = {} if method.fixed_rounds else {"rounds": rounds}
    return build().problem.plan(method, **{"release": "each_step", **BUDGET, **rounds, **arguments})


def offered(plan, place, run="a run"):
    """The first agent's offer, and its owner's policy with a ledger in a folder."""
    return offers_of(plan, run)[0], policies_of(plan, place)[0]


def asking(offer, **changes):
    """An offer that requests something else of its agent."""
    return replace(offer, request=replace(offer.request, **changes))


def resealed(offer, **changes):
    """An offer with another program, as a coordinator would write it."""
    program = replace(offer.program, **changes)
    parts = list(offer.parts)
    parts[offer.place] = (offer.agent, wire.digest(program))
    return relined(replace(offer, program=program, parts=tuple(parts)))


def relined(offer):
    """An offer whose document shows it to the others as it is, as a coordinator would write it."""
    lines = [line_of(offer) if k == offer.place else line for k, line in enumerate(offer.lines)]
    return replace(offer, lines=tuple(lines))


def answer(session, message):
    """What a session answers."""
    return wire.decode(session.handle(wire.encode(message)))


def charges(policy):
    """Lines of charges and of values in a policy's ledger file."""
    if not policy.ledger.exists():
        return 0, 0
    lines = policy.ledger.read_text().split("\n")
    return sum('"charges"' in line for line in lines), sum('"values"' in line for line in lines)


class Mortal:
    """A hub whose owners end before some calls and come back as new sessions on their ledgers.

    Attributes
    ----------
    traffic : list of (str, bytes)
        Every frame in either direction, with the owner's name.
    """

    def __init__(self, policies, deaths=(), seed=1):
        self._policies = {policy.agent: policy for policy in policies}
        self._deaths, self._seed = dict(deaths), seed
        self.sessions = {name: self._new(name) for name in self._policies}
        self.traffic, self.rejoined = [], 0

    def _new(self, name):
        return Session(self._policies[name], seed=self._seed, record=True)

    def gather(self, some=False):
        return [*self.sessions]

    def part(self, frames, seconds):
        return self.exchange(frames)

    def exchange(self, frames, late=None):
        found = {}
        for name, frame in frames.items():
            said = wire.decode(frame)
            when = self._deaths.get(name)
            if when is not None and isinstance(said, Call) and (said.t, said.k) >= when[0]:
                del self._deaths[name]
                if when[1] == "after":  # the reply is on disk, and lost on its way
                    self.sessions[name].handle(frame)
                self.sessions[name].close()
                self.sessions[name] = None
                found[name] = Gone(name)
                continue
            reply = self.sessions[name].handle(frame)
            self.traffic += [(name, frame), (name, reply)]
            found[name] = reply
        return found

    def again(self, name):
        self.rejoined += 1
        self.sessions[name] = self._new(name)

    def close(self, farewell=b""):
        for session in filter(None, self.sessions.values()):
            session.close()
