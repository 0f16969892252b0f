"""A wire between network namespaces that loses, delays, doubles and damages what crosses it.

Kernels of small machines have no emulation of networks, so a thread forwards the frames. It reads
and writes them with the header of virtio, for the kernel leaves checksums and segments to devices.
"""

import ctypes
import heapq
import os
import random
import select
import socket
import subprocess
import threading
import time
from dataclasses import dataclass

_ALL, _SOL_PACKET, _VNET_HDR, _IGNORE_OUTGOING, _HEADER = 3, 263, 15, 23, 10


def shell(command):
    """Run a command of the shell; its errors are this program's."""
    subprocess.run(["sh", "-ec", command], check=True, stdout=subprocess.DEVNULL)


def enter(space):
    """Have this process, which has one thread, use the network of a namespace."""
    with open(f"/run/netns/{space}") as there:
        if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"namespace {space} cannot be entered")


def party(space, arguments, said, patch):
    """Be a process of the command ``dpcvx`` in a namespace.

    Parameters
    ----------
    space : str
    arguments : list of str
    said : str
        File for what goes to standard error.
    patch : str
        Lines of Python to run first.
    """
    from dpcvx.owners.cli import main

    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    enter(space)
    exec(patch, {})
    raise SystemExit(main(arguments))


def signed(authority, request, days):
    """Sign by a clock that is wrong by so many days, for 30 days; in a process of its own."""
    from dpcvx.owners import keys

    class Wrong(keys.dt.datetime):
        @classmethod
        def now(cls, zone=None):
            return super().now(zone) + keys.dt.timedelta(days=days)

    keys.dt.datetime = Wrong
    keys.sign_request(authority, request, days=30, renew=True)


@dataclass
class Way:
    """The faults of one direction: shares of frames, seconds and bytes."""

    lost: float = 0.0
    delay: float = 0.0
    spread: float = 0.0  # of the delay, by which frames overtake each other
    doubled: float = 0.0
    damaged: float = 0.0  # one byte each, of frames with data
    largest: int = 1 << 20


class Wire(threading.Thread):
    """A star: the first name in the middle, at 10.0.0.1, and all others around it.

    Parameters
    ----------
    names : sequence of str
        Each is a network namespace that is made here.
    mark : str
        First characters of the namespaces.

    Attributes
    ----------
    up, down : dict of Way
        By name, to the middle and back.
    """

    def __init__(self, names, mark, seed=0):
        super().__init__(daemon=True)
        self._mark, self._coins, self._over = mark, random.Random(seed), False
        self.up, self.down = ({name: Way() for name in names[1:]} for _ in range(2))
        self._middle, self._ports = names[0], {}
        for k, name in enumerate(names):
            space, inner, outer = self.space(name), f"{mark}i{k}", f"{mark}o{k}"
            shell(
                f"ip netns add {space}; ip link add {outer} type veth peer name {inner} netns "
                f"{space}; ip link set {outer} up; ip -n {space} link set lo up; ip -n {space} "
                f"addr add 10.0.0.{k + 1}/24 dev {inner}; ip -n {space} link set {inner} up"
            )
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            port.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
            port.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
            port.bind((outer, _ALL))
            self._ports[name] = port
        self.start()

    def space(self, name):
        """The namespace of a name."""
        return f"{self._mark}{name}"

    def inner(self, name):
        """The end of the wire in the namespace of a name."""
        return f"{self._mark}i{[*self._ports].index(name)}"

    def close(self):
        """Stop, and remove the namespaces."""
        self._over = True
        self.join()
        for name, port in self._ports.items():
            port.close()
            shell(f"ip netns del {self.space(name)}")

    def run(self):
        """Forward frames."""
        names = {port: name for name, port in self._ports.items()}
        due, count = [], 0
        while not self._over:
            wait = max(min(due[0][0] - time.monotonic(), 0.05), 0) if due else 0.05
            for port in select.select([*names], [], [], wait)[0]:
                frame, name = port.recv(1 << 17), names[port]
                middle = name == self._middle
                for other in self.up if middle else [name]:
                    way = (self.down if middle else self.up)[other]
                    target = self._ports[other if middle else self._middle]
                    for when, sent in self._through(way, frame):
                        count += 1
                        heapq.heappush(due, (when, count, target, sent))
            while due and due[0][0] <= time.monotonic():
                _, _, target, frame = heapq.heappop(due)
                try:
                    target.send(frame)
                except OSError:  # its end is down
                    pass

    def _through(self, way, frame):
        coins, now = self._coins, time.monotonic()
        if coins.random() < way.lost or len(frame) - _HEADER > way.largest:
            return
        if len(frame) > 200 and coins.random() < way.damaged:
            k = coins.randrange(len(frame) - 60, len(frame))
            frame = frame[:k] + bytes([frame[k] ^ 1 << coins.randrange(8)]) + frame[k + 1 :]
        for _ in range(1 + (coins.random() < way.doubled)):
            yield now + way.delay + coins.random() * way.spread, frame
