"""Settings of all tests: hypothesis draws the same examples every time; no test recalls another.

``--cases 2`` runs at most two cases of every test function, spread evenly, and tries few examples.
``--shuffle 7`` runs all in an order drawn by this seed.
"""

import gc
import random
from collections import defaultdict

import pytest

try:
    from hypothesis import given, settings
    from hypothesis.strategies import just
except ModuleNotFoundError:
    pytest.exit("Tests need packages that are not installed: pip install '.[test]'.", returncode=4)

from tests import spies

ALIKE = settings(derandomize=True, deadline=None, database=None)
settings.register_profile("dpcvx", ALIKE)
settings.register_profile("few", ALIKE, max_examples=5)
# For nights: examples that nobody has tried, with what reproduces a failure.
settings.register_profile("fresh", ALIKE, derandomize=False, print_blob=True)
settings.load_profile("dpcvx")


def pytest_addoption(parser):
    """Add the options that run a part of every family of cases, and another order."""
    parser.addoption("--cases", type=int, help="of every test function, at most")
    parser.addoption("--shuffle", type=int, help="seed of the order of all tests")


def pytest_configure(config):
    """Ask hypothesis for few examples where few cases are asked for.

    Collection makes thousands of objects that stay, and a fifth of its time would look for garbage.
    """
    gc.disable()
    drawn = config.getoption("--hypothesis-profile", None)
    if config.getoption("--cases") and not drawn:
        settings.load_profile("few")


def pytest_collection_modifyitems(config, items):
    """Keep as many cases of every function as are asked for, spread evenly, and order them."""
    most = config.getoption("--cases")
    if most:
        families = defaultdict(list)
        for item in items:
            families[item.nodeid.partition("[")[0]].append(item)
        items[:] = [case for cases in families.values() for case in spread(cases, most)]
    # A page takes a minute, and at the end of all tests other processes would wait for it.
    items.sort(key=lambda item: item.path.name != "test_docs.py")
    order = config.getoption("--shuffle")
    if order is not None:
        random.Random(order).shuffle(items)


def pytest_collection_finish():
    """Look for garbage again, but not among the 700,000 objects of the collection, and rarely.

    Before these are frozen hypothesis has asked the collector who holds what it seeds. A look after
    every 700 new objects, as by default, takes twice the time.
    """
    given(just(None))(lambda _: None)()
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


def spread(cases, most):
    """Return at most so many cases, spread evenly."""
    count = min(most, len(cases))
    return [cases[(2 * k + 1) * len(cases) // (2 * count)] for k in range(count)]


@pytest.fixture(autouse=True, scope="session")
def _computed_once():
    """A fifth of the processor's time would go into prices of the same Laplace noise.

    Another fiftieth would go into searches for the same certificates.
    """
    with pytest.MonkeyPatch.context() as patch:
        spies.price_once(patch)
        spies.search_once(patch)
        yield


@pytest.fixture(autouse=True, scope="session")
def _locks_are_free_at_once():
    """Tests kill few processes at work, and try many files that are in use."""
    with pytest.MonkeyPatch.context() as patch:
        spies.change(patch, "seconds until a killed process has left its locks", 0.0)
        yield


@pytest.fixture(autouse=True)
def _no_past(monkeypatch):
    """Tests use equal numbers for data of different people."""
    spies.change(monkeypatch, "data that were seen", {})
