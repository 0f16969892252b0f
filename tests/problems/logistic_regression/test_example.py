"""The example: what it runs, prints and draws."""

import re
from dataclasses import replace

import numpy as np
import pytest

from examples import ryu_kim_federated_learning as example
from problems.logistic_regression.experiment import FEMNIST_PENALTY, MNIST_PENALTY
from tests.examples.printing import printed
from tests.problems.logistic_regression.instances import blobs, write_leaf, write_mnist


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder, printed text and traces of a run on tiny arrays."""
    folder = tmp_path_factory.mktemp("example")
    data = blobs()
    np.savez(
        folder / "blobs.npz",
        features=data.train.features,
        labels=data.train.labels,
        classes=3,
        scale=1,
    )
    with printed() as (lines, patched):
        scope = replace(example.SHORT, epsilons=(0.5,), updates=(1, 2), agents=2)
        patched.setattr(example, "SHORT", scope)
        data, out = str(folder / "blobs.npz"), str(folder / "out")
        read, times = example.read_dataset, []
        patched.setattr(
            example, "read_dataset", lambda source: times.append(source) or read(source)
        )
        found = example.main(["--data", data, "--rounds", "4", "--seeds", "2", "--plot", out])
        assert times == [data]  # once, whatever is run on them
    return folder, "\n".join(lines), found


def test_every_line_states_its_total(made):
    _, text, found = made
    head, note, *lines = [line for line in text.splitlines() if not line.startswith("wrote")]
    assert head.startswith("blobs: 48 records, 6 features, 3 classes, norms clipped to 1.22")
    assert note == "Medians over 2 seeds. Not private: computed on the records in the open."
    methods = [line for line in lines if line.startswith("  ")]
    assert len(methods) == len(found) == 26
    assert all("in total" in line or "no guarantee" in line for line in methods)
    assert all(("paper" in line) == ("asserted" in line) for line in methods)
    divisions = [line for line in lines if not line.startswith("  ")]
    assert [re.split(r", 2 agents", line)[0] for line in divisions] == [
        "records iid",
        "other penalties, records iid",
        "records imbalanced (down to 0.1)",
        "records dirichlet (0.3)",
        "one total budget, records iid",
    ]
    numbers = [float(word) for word in methods[0].split()[-4:]]
    error, cost = (
        np.median([t.last.error for t in found[0]]),
        np.median([t.average.cost for t in found[0]]),
    )
    assert (numbers[0], numbers[3]) == pytest.approx((error, cost), abs=1e-3)


def test_the_figures_are_written(made):
    folder, text, _ = made
    for name in ("comparison", "penalties", "divisions", "one_total"):
        path = folder / "out" / f"ryu_kim_learning_{name}.png"
        assert path.read_bytes().startswith(b"\x89PNG")
        assert f"wrote {path}" in text


def test_figure_7_says_that_the_budget_matters_and_the_penalty_little():
    """Errors at 5 lie below those at 0.05 by more than five penalties differ; one fixed seed."""
    scope = replace(example.SHORT, epsilons=(0.05, 5.0), agents=2)
    digits = example.read_dataset()
    planned = [t for t in example.tasks("digits", digits, scope) if t.panel == "penalty"]
    assert [t.method.note for t in planned[:5]] == [
        "rho = 0.1", "rho = 1", "rho = 10", "rho = (73)", "rho = (73) / 100",
    ]  # fmt: skip
    errors = np.array([example.measure(digits, t)[0].last.error for t in planned]).reshape(2, 5)
    assert errors[0].min() - errors[1].max() > np.ptp(errors, axis=1).max()


def test_data_sets_have_the_papers_settings(tmp_path):
    write_leaf(
        tmp_path / "femnist",
        {
            ("train", "a.json"): {u: ([[0.0] * 784], [1]) for u in ("ann", "bob")},
            ("test", "a.json"): {"ann": ([[0.0] * 784], [1])},
        },
    )
    femnist = example.read_dataset(tmp_path / "femnist")
    own = example.setting(femnist, 10)
    assert (own.box, own.penalty, own.base.kind, own.base.agents) == (
        1.0, FEMNIST_PENALTY, "writer", None,
    )  # fmt: skip
    mnist = replace(femnist, train=replace(femnist.train, writer=None))
    own = example.setting(mnist, 10)
    assert (own.box, own.penalty, own.base.kind, own.base.agents) == (0.1, MNIST_PENALTY, "iid", 10)
    (tmp_path / "other").mkdir()
    write_mnist(tmp_path / "other")
    other = example.setting(example.read_dataset(tmp_path / "other"), 10)
    assert (other.box, other.penalty) == (1.0, FEMNIST_PENALTY)


def test_a_broken_source_is_an_error_of_usage(capsys):
    with pytest.raises(SystemExit):
        example.main(["--data", "nowhere"])
    assert "There is no data set 'nowhere'" in capsys.readouterr().err


def test_processes_find_the_same(tmp_path):
    scope = replace(example.SHORT, epsilons=(0.5,), updates=(1,), rounds=2, agents=2, seeds=1)
    digits = example.read_dataset()
    planned = example.tasks("digits", digits, scope)[:3]
    one, two = (example.measured(digits, planned, jobs) for jobs in (1, 2))
    assert [t[0].last for t in one] == [t[0].last for t in two]
