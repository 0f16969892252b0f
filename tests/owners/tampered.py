"""Frames that were changed and sealed again: what a malicious coordinator can send."""

import hashlib
import json
import math
import random
import struct

import numpy as np

from dpcvx.owners import wire

HEADER = struct.Struct("<4sIQ32s")
_LEAVES = [0, 1, -1, 2, 3, 7, 0.5, 1e-300, 1e300, -2.5, None, "x", "", True, False, 2**40, -(2**62)]
_NUMBERS = [0.0, 1e6, -1e6, 1e-9, np.nan, np.inf, -np.inf, 1e308, 0.5, 1e-160, -1.0]


def unpacked(frame):
    """Tree and arrays of a frame."""
    _, length, more, _ = HEADER.unpack_from(frame)
    start = HEADER.size + length
    return json.loads(frame[HEADER.size : start]), bytes(frame[start : start + more])


def packed(tree, raw):
    """A frame with a digest that fits, whatever it says."""
    text = json.dumps(tree, separators=(",", ":"), ensure_ascii=True).encode()
    front = HEADER.pack(wire.MAGIC, len(text), len(raw), b"")[:16]
    digest = hashlib.blake2b(front + text + raw, digest_size=32).digest()
    return front + digest + text + raw


def leaves(tree, path=()):
    """Paths to all leaves but the kinds of lists."""
    for k, part in enumerate(tree):
        if isinstance(part, list):
            yield from leaves(part, (*path, k))
        elif k or not isinstance(part, str):
            yield (*path, k)


def lists(tree, path=()):
    """Paths to all lists in a tree."""
    for k, part in enumerate(tree):
        if isinstance(part, list):
            yield (*path, k)
            yield from lists(part, (*path, k))


def at(tree, path):
    """The part of a tree at a path."""
    for k in path:
        tree = tree[k]
    return tree


def put(tree, path, value):
    """Put a value at a path."""
    at(tree, path[:-1])[path[-1]] = value


def flipped(frame, coins: random.Random):
    """One bit of the whole frame."""
    changed = bytearray(frame)
    changed[coins.randrange(len(frame))] ^= 1 << coins.randrange(8)
    return bytes(changed)


def cut(frame, coins: random.Random):
    """A part of the frame, or the frame and more."""
    if coins.random() < 0.5:
        return frame[: coins.randrange(len(frame))]
    return frame + bytes(coins.randrange(1, 40))


def relabeled(frame, coins: random.Random):
    """One number, name or truth value of the tree."""
    tree, raw = unpacked(frame)
    path = coins.choice(list(leaves(tree)))
    old = at(tree, path)
    near = [old + 1, old - 1, -old, old * 2] if type(old) in (int, float) else [old]
    put(tree, path, coins.choice([*_LEAVES, *near, *near]))
    return packed(tree, raw)


def rearranged(frame, coins: random.Random):
    """A part of the tree removed, repeated, or replaced by another one."""
    tree, raw = unpacked(frame)
    paths = list(lists(tree))
    if not paths:
        return relabeled(frame, coins)
    path, other = coins.choice(paths), coins.choice(paths)
    holder = at(tree, path[:-1])
    what = coins.randrange(3)
    if what == 0:
        del holder[path[-1]]
    elif what == 1:
        holder.insert(path[-1], json.loads(json.dumps(at(tree, path))))
    else:
        holder[path[-1]] = json.loads(json.dumps(at(tree, other)))
    return packed(tree, raw)


def renumbered(frame, coins: random.Random):
    """Some entries of arrays."""
    tree, raw = unpacked(frame)
    whole = len(raw) // 8 * 8
    if not whole:
        return frame
    numbers = np.frombuffer(raw[:whole], "<f8").copy()
    for _ in range(coins.choice([1, 1, 3, 30])):
        k = coins.randrange(numbers.size)
        numbers[k] = coins.choice([*_NUMBERS, numbers[k] * 1e3, -numbers[k], numbers[k] / 2])
    return packed(tree, numbers.tobytes() + raw[whole:])


def reindexed(frame, coins: random.Random):
    """Some bytes of arrays, small numbers in place of small numbers: indices above all."""
    tree, raw = unpacked(frame)
    changed = bytearray(raw)
    if not changed:
        return frame
    for _ in range(coins.choice([1, 2, 8])):
        k = coins.randrange(len(changed))
        changed[k] = coins.choice([0, 1, 2, 3, 5, 127, 255, changed[k] ^ 1])
    return packed(tree, bytes(changed))


WAYS = (flipped, cut, relabeled, relabeled, rearranged, renumbered, renumbered, reindexed)


def poisoned(frame, number, coins: random.Random):
    """The frame once for every array of floats and every float in it, with this number there."""
    tree, raw = unpacked(frame)
    said = number if math.isfinite(number) else ["float", repr(number)]
    for path in leaves(tree):
        if type(at(tree, path)) is float:
            other = json.loads(json.dumps(tree))
            put(other, path, said)
            yield packed(other, raw)
    start = 0
    for path in lists(tree):
        if at(tree, path)[0] != "#":
            continue
        _, kind, shape, _ = at(tree, path)
        size = math.prod(shape)
        if kind == "<f8" and size:
            place = start + 8 * coins.randrange(size)
            yield packed(tree, raw[:place] + struct.pack("<d", number) + raw[place + 8 :])
        start += size * int(kind[-1])
