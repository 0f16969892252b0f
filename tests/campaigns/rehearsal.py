"""A rehearsal by the page alone: its commands, in its order, print what it says.

A trial is docs/guides/owners/rehearsal.md from keys to the page for an auditor, in an empty folder.
Blocks of several commands that do not end by themselves are started together. Only the port and the
path of the command differ from the page. It is noted how many seconds each part took, which depends
on how busy the machine is.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.campaigns.tally import Tally
from tests.owners.federation import ROOT, free_port

FULL = 1
PAGE = ROOT / "docs/guides/owners/rehearsal.md"
# Seconds for a part, on a busy machine.
_LIMIT = 600
# Values in the ledger of north after which west is killed: the first run has one a round.
_KILLED_AT = 45


def parts():
    """Titles of the page, and the blocks below each."""
    sections = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.M)[1:]
    return {
        title: re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S)
        for title, text in zip(sections[::2], sections[1::2], strict=True)
    }


class Rehearsal:
    """An empty folder in which commands of the page run."""

    def __init__(self, folder):
        self._folder, self._port, self.faults = folder, free_port(), []
        scripts = folder / "bin"
        scripts.mkdir()
        (scripts / "dpcvx").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dpcvx "$@"\n')
        (scripts / "dpcvx").chmod(0o755)
        self._settings = {
            **os.environ,
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "OPENBLAS_NUM_THREADS": "1",
        }

    def start(self, commands):
        """A process of a shell."""
        return subprocess.Popen(
            ["bash", "-c", commands.replace("8443", str(self._port))],
            cwd=self._folder,
            env=self._settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def expect(self, process, code, *said):
        """Wait for a process that has to end like this, and to say this."""
        try:
            text, _ = process.communicate(timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            text = f"HUNG {process.communicate()[0]}"
        missing = [pattern for pattern in said if not re.search(pattern, text)]
        if process.returncode != code or missing:
            self.faults.append(
                f"{process.args[-1][:80]!r} ended with {process.returncode}, and {code} is due; "
                f"without {missing}: {text[-500:]}"
            )

    def at_once(self, block):
        """Processes of all commands of a block."""
        lines = block.replace("\\\n", " ").splitlines()
        return [self.start(f"exec {line}") for line in lines]

    def write(self, path, text):
        """Write a file of the page."""
        (self._folder / path).write_text(text)

    def values(self):
        """Number of values that north has released."""
        return (self._folder / "federation/north/spent.jsonl").read_text().count('"values"')


def rehearsed(folder):
    """What went otherwise than the page says, in words, and seconds by part."""
    made, (page, seconds) = Rehearsal(folder), (parts(), {})
    timed = time.monotonic()
    for title, blocks in page.items():
        if title.startswith("Keys"):
            keys, model, policies = blocks
            keys = keys[keys.index("dpcvx") :]  # without pip, which this environment has
            made.expect(made.start(keys), 0, "belongs into every owner.toml")
            made.write("federation/coordinator/model.py", model)
            made.expect(made.start(policies), 0, "(?s)(agent .*belong together.*){3}")
        elif title == "A study":
            said = [re.escape(line) for line in blocks[1].splitlines()]
            first, *owners = made.at_once(blocks[0])
            made.expect(first, 0, "completed, 40 rounds", r"w  \[")
            for owner in owners:
                made.expect(owner, 0, *said)
        elif title == "A fault":
            quoted = re.search(r"prints `keys: (.+)` and ends", PAGE.read_text())[1]
            made.expect(made.start(blocks[0]), 1, re.escape(quoted))
            made.expect(made.start(blocks[1]), 0)
        elif title == "A renewal":
            made.expect(made.start(blocks[0]), 0, "the certificate of 'west'", "valid until")
        elif title == "A revocation":
            quoted = re.search(r"prints `keys: (.+revoked.+)` and ends", PAGE.read_text())[1]
            made.expect(made.start(blocks[0]), 1, re.escape(quoted))
            made.expect(made.start(blocks[1]), 0, "the certificate of 'west'", "valid until")
        elif title == "An early end":
            first, north, south, west = made.at_once(blocks[0])
            deadline = time.monotonic() + _LIMIT
            while made.values() < _KILLED_AT and time.monotonic() < deadline:
                time.sleep(0.05)
            west.kill()  # as the page does by the name of the process
            made.expect(west, -9)
            made.expect(first, 1, "west left", "^away|\naway")
            for owner in (north, south):
                made.expect(owner, 1, "ended: ")
            first, *owners = made.at_once(blocks[2])
            made.expect(first, 0, "closed early", "spent epsilon 0")
            for owner in owners:
                made.expect(owner, 0, "the run is over: stopped after")
        else:
            made.expect(made.start(blocks[0]), 0, "chain intact", "ledger spent.jsonl: 2 runs")
        seconds[title], timed = time.monotonic() - timed, time.monotonic()
    return made.faults, seconds


def campaign(size, seed):
    """So many rehearsals."""
    tally = Tally()
    for _ in range(size):
        with tempfile.TemporaryDirectory() as folder:
            faults, seconds = rehearsed(Path(folder))
        tally.add("rehearsed", "; ".join(faults) or None)
        for title, taken in seconds.items():
            tally.note(f"{title}: {taken:.0f} s")
    return tally
