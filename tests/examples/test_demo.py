"""The demonstration: what it finds, says and draws, on two budgets and one run of each."""

import numpy as np
import pytest

from examples import demo
from tests.examples.printing import assert_written, printed

BUDGETS = (0.1, 1.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Findings, printed lines and folder of a run of the command."""
    folder = tmp_path_factory.mktemp("demo") / "new"
    found = []
    with printed() as (lines, patched):
        patched.setattr(demo, "EPSILONS", BUDGETS)
        patched.setattr(demo, "draw", lambda f, draw=demo.draw: (found.append(f), draw(f))[1])
        demo.main(["--seeds", "1", "--plot", str(folder)])
    return found[0], "\n".join(lines), folder


def test_messages_without_noise_give_every_load_away(run):
    found, text, _ = run
    assert found.loads.sum() == pytest.approx(259.0)
    np.testing.assert_allclose(found.known, found.loads, atol=1e-3)  # 1 kW
    assert "knows every load to 0.000 MW" in text


def test_noise_hides_loads_as_well_as_epsilon_says(run):
    found, _, _ = run
    for epsilon, spent in found.well.items():
        # The root mean square of 14 Laplace errors of scale 1 MW / epsilon is within a factor of
        # two of its expectation in 97 of 100 seeds, of which this is the first.
        assert 0.5 < found.error(spent) * epsilon / np.sqrt(2) < 2
        assert found.error(found.badly[epsilon]) > found.error(spent)


def test_one_release_costs_a_fifth_of_noise_in_every_step_or_less(run):
    found, _, _ = run
    well, badly = found.well[1.0].wrong, found.badly[1.0].wrong
    # The largest of 100 seeds is 28 MW, and the smallest of 50 is 148 MW.
    assert 5 * well.max() < badly.min()
    assert found.well[0.1].wrong.max() < found.total < found.badly[0.1].wrong.min()


def test_the_text_has_ten_lines_with_what_was_found(run):
    found, text, _ = run
    lines, (*said, _) = str(found).splitlines(), text.splitlines()
    assert len(said) == 10 and max(map(len, said)) <= 80
    assert text.startswith(str(found))
    *_, well, _, badly, nothing = [line.split()[-2:] for line in lines]
    for words, runs in ((well, found.well), (badly, found.badly)):
        shown = [float(word) for word in words]
        assert shown == pytest.approx([float(s.wrong[0]) for s in runs.values()], rel=0.05)
    assert nothing == ["259", "259"]


def test_the_guarantee_is_that_of_the_plan(run):
    found, text, _ = run
    assert f"Guarantee: {found.well[1.0].plan.guarantee.headline}." in text
    assert "Laplace noise of scale 1 MW" in text


def test_the_picture_is_written_and_said_to_be_not_private(run):
    found, text, folder = run
    assert_written(folder, text, ["demo"])
    figure = demo.draw(found)
    assert len(figure.axes) == 2
    assert "not private" in figure.get_supxlabel()
