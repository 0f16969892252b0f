"""All owners of a secret sum but two, and the coordinator, against one of these two."""

from dataclasses import fields, is_dataclass, replace

import numpy as np

from dpcvx.algorithms.summed import Heard
from dpcvx.owners import keys, wire
from dpcvx.owners.masks import KeyFile, Masker, fresh, public_of, statement
from dpcvx.owners.messages import AgentReply, Agreed, Call, Key, Partners
from dpcvx.owners.offers import document_of
from dpcvx.owners.session import Session
from dpcvx.privacy.secret_sharing import Partial, Share
from tests.owners.tampered import WAYS


def certified(place, names):
    """Keys and certificates of these owners."""
    found, authority = {}, place / "ca"
    keys.make_authority(authority)
    for name in names:
        own = place / name
        keys.sign_request(authority, keys.make_request(own, name))
        (own / "ca.crt").write_bytes((authority / "ca.crt").read_bytes())
        found[name] = keys.PartyIdentity.of(own, name)
    return found


# Of a sum; the same in all calls of a trial.
LIES = (
    lambda sums: None,  # the coordinator adds up, it says
    lambda sums: {"round": sums.round + 1},
    lambda sums: {"round": 1},
    lambda sums: {"agents": sums.agents[:-1]},  # nobody's masks but those of colluders
    lambda sums: {"agents": sums.agents[::-1]},
    lambda sums: {"shape": (2,)},
    lambda sums: {"encoding": replace(sums.encoding, limit=2 * sums.encoding.limit)},
)


class Colluders:
    """A coordinator and all owners but the first, which is asked, and the last.

    Parameters
    ----------
    policy : Policy
        Of the owner that is asked.
    frames : list of bytes
        What a coordinator asks it in a run that goes well.
    fault : callable
        Says what is wrong at an owner after an answer.
    place : Path
    coins : random.Random
    """

    def __init__(self, policy, frames, fault, place, coins):
        self._policy, self._frames, self._fault = policy, frames, fault
        self._place, self._coins, self._lie = place, coins, coins.choice(LIES)
        self._offer = wire.decode(frames[0])
        self._document = document_of(self._offer)
        self._names = [name for name, _ in self._offer.parts]
        self._me, *others = self._names
        self._seed, self._identities = coins.choice((None, 1)), certified(place, self._names)
        self._own = {name: self._masker(name) for name in others}
        self._known, self._session = {}, None  # whose masks the owner has taken
        self._residues, self.said, self._next = {}, None, 0
        self._calls = [one for one in self._frames if isinstance(wire.decode(one), Call)]

    def _masker(self, name):
        path = self._place / f"{name} {self._coins.random()}.key"
        return Masker(name, KeyFile(path, self._document))

    def say(self, message):
        """Ask the owner; what is wrong with its answer, if something is."""
        frame = message if isinstance(message, bytes) else wire.encode(message)
        self.said = said = wire.decode(self._session.handle(frame))
        found = [*parts_in(said.message)] if isinstance(said, AgentReply) else []
        if any(isinstance(part, Share) for part in found):
            return "a share left"
        if any(isinstance(part, np.ndarray) and part.dtype == float for part in found):
            return "a term left that is not masked"
        for part in found:
            if isinstance(part, Partial):
                if not self._known:
                    return "a masked value left before keys had come"
                residue = self._without(part, self._names[1:-1])
                if readable(residue):
                    return "a value left that the colluders can read"
                if not readable(self._without(part, self._names[1:])):
                    return "the masks are not those of the keys"
                if not np.array_equal(self._residues.setdefault(part.round, residue), residue):
                    return f"two values under the masks of round {part.round}"
        return self._fault(self._session, self._policy, said)

    def _without(self, part, names):
        """Words of the owner without the masks that it has with these."""
        words = part.words.copy().ravel()
        for name in names:
            words += self._known[name].words(self._me, name, part.round, words.size)
            words -= self._known[name].words(name, self._me, part.round, words.size)
        return words

    def start(self):
        """The owner, anew."""
        if self._session is not None:
            self._session.close()
        identity = self._identities[self._me]
        self._session, self._known = Session(self._policy, seed=self._seed, identity=identity), {}
        self._next = 0
        return self.say(self._frames[0])

    def lose(self):
        """The owner's ledger is lost, and what is known of it; its key is not."""
        self._session.close()
        for path in (self._policy.ledger, *self._place.glob(f"{self._policy.ledger.name}.seen")):
            path.unlink(missing_ok=True)
        self._seed = None if self._seed is None else self._seed + 1
        return self.start()

    def exchange(self):
        """A colluder has another key."""
        name = self._coins.choice(self._names[1:-1])
        self._own[name] = self._masker(name)

    def _signed(self):
        said = wire.decode(self._session.handle(self._frames[0]))
        if not isinstance(said, Agreed):
            return None
        found = [said.key]
        for name, one in self._own.items():
            told = statement(self._document, name, one.public.hex())
            own = self._identities[name]
            public, signature = one.public.hex(), own.signed(told)
            found.append(Key(name, self._document, public, own.certificate, signature))
        return found

    def forge(self):
        """Keys of which one is nobody's."""
        return self.partners(forged=True)

    def partners(self, forged=False):
        """The keys of all."""
        said = self._signed()
        if said is None:
            return None
        told = self._forged(said) if forged else said
        wrong = self.say(Partners(self._offer.run, tuple(told)))
        if isinstance(self.said, Agreed):
            if forged:
                return "forged keys were taken"
            self._known = dict(self._own)
            for one in self._known.values():
                one.agree({self._me: bytes.fromhex(said[0].public)})
        return wrong

    def _forged(self, said):
        """Keys of which one is not its owner's, in one of the ways there are."""
        *rest, last = said
        mine, colluder = public_of(fresh()).hex(), said[1]
        signed = self._identities[colluder.agent].signed

        def by(document, agent, public):
            return signed(statement(document, agent, public))

        document, zero, other = self._document, "00" * 32, "0d" * 32
        named, forged = (by(document, *pair) for pair in (
            (colluder.agent, last.public), (last.agent, mine),
        ))  # fmt: skip
        ways = (
            [*rest, replace(last, public=mine)],
            [*rest, replace(last, public=mine, certificate=colluder.certificate, signature=forged)],
            [*rest, replace(last, public=mine, signature=forged)],
            [*rest, replace(last, public=mine, certificate="", signature="")],
            [*rest, replace(last, agent=colluder.agent)],
            [said[0], replace(colluder, public=zero, signature=by(document, colluder.agent, zero)),
             *said[2:]],
            [said[0], replace(colluder, signature=by(other, colluder.agent, colluder.public)),
             *said[2:]],
            # Of an owner that was sent another document.
            [said[0], replace(colluder, document=other,
                              signature=by(other, colluder.agent, colluder.public)), *said[2:]],
            # The last one's key under another name: its masks would cancel.
            [said[0], replace(colluder, public=last.public, signature=named), *said[2:]],
            [colluder, *said[1:]],
            [replace(said[0], public=mine), *said[1:]],
            rest, [*said, last], said[::-1], [],
        )  # fmt: skip
        return self._coins.choice(ways)

    def call(self):
        """The next call, or another one; as it was, or changed."""
        k = self._next if self._coins.random() < 0.7 else self._coins.randrange(len(self._calls))
        k, how = min(k, len(self._calls) - 1), self._coins.random()
        frame = self._calls[k]
        if how < 0.2:
            frame = self._coins.choice(WAYS)(frame, self._coins)
        elif how < 0.5:
            said = wire.decode(frame)
            frame = replace(said, message=self._summed(said.message))
        wrong = self.say(frame)
        if isinstance(self.said, AgentReply):
            self._next = k + 1
        return wrong

    def _summed(self, message):
        """A message with another sum, or with another point."""
        sums, heard = message
        if isinstance(heard, Heard) and self._coins.random() < 0.5:
            return sums, replace(heard, residual=heard.residual + self._coins.uniform(-1, 1))
        lie = self._lie(sums)
        return None if lie is None else replace(sums, **lie), heard

    def step(self):
        """One of them."""
        if self._session.refusal is not None and self._coins.random() < 0.8:
            return self.start() or self.partners()
        what = self._coins.choices(
            (self.call, self.partners, self.start, self.forge, self.exchange, self.lose),
            (20, 2, 2, 1, 1, 1),
        )[0]
        return what()

    def end(self):
        """The run as it is meant, to its end."""
        wrong = self.start() or self.partners()
        for frame in self._frames[2:]:
            wrong = wrong or self.say(frame)
        self._session.close()
        return wrong


def readable(words):
    """Whether these are small numbers, which three words that are masked are once in 2 ** 60."""
    return bool(np.all(np.abs(words.astype(np.int64)) < 2**43))


def parts_in(thing):
    """All that a message is made of."""
    yield thing
    if isinstance(thing, (tuple, list)):
        for part in thing:
            yield from parts_in(part)
    elif is_dataclass(thing):
        for field in fields(thing):
            yield from parts_in(getattr(thing, field.name))
