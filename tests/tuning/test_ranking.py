"""What a ranking shows, what it refuses, and how often noise passes for merit."""

import math
from dataclasses import replace

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.problem import planned
from dpcvx.tuning.ranking import _best
from dpcvx.tuning.settings import PlanTrial, quantile, surely_lower
from dpcvx.tuning.tune import tune
from tests.tuning.trials import PROXY, network, picked, request


@pytest.fixture(scope="module")
def found():
    return tune(network(), planned, request(), picked("release once, exact steps, Laplace"))


def test_a_long_table_shows_the_settings_of_the_best_and_of_the_chosen(found):
    (only,) = found.candidates
    others = [replace(only, name=f"way {k}", gaps=(1.0 + k,)) for k in range(20)]
    text = str(replace(found, candidates=tuple(others), chosen=others[-1]))
    lines = text.splitlines()
    shown = [k for k, line in enumerate(lines) if line[2:].startswith("way ")]
    assert len(shown) == 20 and len(lines) < 60
    in_full = [
        lines[k].split()[-4] for k in shown if k + 1 not in shown and lines[k + 1][:4] == "    "
    ]
    assert in_full == ["0", "1", "2", "3", "4", "5", "6", "7", "19"]
    assert "candidate.settings" in lines[-1] and "candidate.settings" not in str(found)


def test_the_table_fits_a_screen_and_has_what_to_measure_by(found):
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    head = " ".join(lines[:3])
    assert head.startswith("dpcvx tuned: 1 configuration at (1, 1e-6) in total")
    assert f"minus the optimum (of the proxy: {found.optimum:.6g})" in " ".join(lines)
    assert "No private data were read." in " ".join(lines)
    rows = {line[2:52].strip(): line[52:].split() for line in lines if line[2:3].strip()}
    assert float(rows["initial point: no data at all"][0]) == pytest.approx(found.start, rel=1e-2)
    assert float(rows["no noise, same rounds"][0]) == pytest.approx(found.noiseless, rel=1e-2)
    assert float(rows["optimum for the proxy data"][0]) == pytest.approx(found.proxy, rel=1e-2)
    assert "Assumed error of the proxy: 20 % of each entry" in " ".join(found.verdict.split())
    for candidate in found.candidates:
        shown = [float(figure) for figure in rows[candidate.name]]
        assert shown == pytest.approx([candidate.gap, *candidate.quartiles], rel=1e-2)
    (marked,) = (line for line in lines if line.startswith("* "))
    assert marked[2:].startswith(found.chosen.name)
    assert repr(found).startswith("<Tuned: ") and found.chosen.name in repr(found)


def test_all_that_a_setting_is_stands_in_its_row():
    w = network().plan(
        dp.LinearizedADMM(step=0.5, penalty=2.0, returned="tail"),
        mechanism=dp.Gaussian(decay=0.9), epsilon=1.0, delta=1e-6, rounds=7,
    )  # fmt: skip
    made = tune(network(), planned, request(time_limit=1e-3), []).chosen
    assert replace(made, plan=w).settings == (
        "LinearizedADMM, Gaussian noise in each step, 7 rounds, step 0.5, penalty 2, decay 0.9, "
        "suffix average"
    )


def test_noise_passes_for_merit_at_the_stated_rate_and_merit_is_seen():
    """Of 2000 pairs of like samples about 100 pass at 5 %; 160 is six standard deviations more."""
    rng = np.random.default_rng(0)

    def passed(factor, pairs):
        draws = np.exp(rng.normal(size=(pairs, 2, 10)))
        entries = [
            [PlanTrial("", None, None, {"last": list(row)}) for row in (factor * one, other)]
            for one, other in draws
        ]
        return sum(surely_lower(one.judged, other.judged, 0.05) for one, other in entries)

    assert 40 <= passed(1.0, 2000) <= 160
    assert passed(0.1, 200) >= 190


def test_infinite_values_are_ranked_last():
    lost, fine = (PlanTrial("", None, None, {"last": [v] * 10}) for v in (math.inf, 1.0))
    assert surely_lower(fine.judged, lost.judged, 0.01)
    assert not surely_lower(lost.judged, lost.judged, 0.5)
    assert quantile([1.0, math.inf, math.inf], 0.5) == math.inf and quantile([3.0, 1.0], 0.5) == 2


WRONG = {
    "epsilon": (-1.0, 0.0, "much"),
    "delta": (2.0, -1e-6),
    "time_limit": (0, -1.0, math.inf, "long"),
    "seed": (-1, 0.5),
    "verbose": ("loud",),
}


@pytest.mark.parametrize("verb", ["tune", "compare"])
@pytest.mark.parametrize(("name", "value"), [(n, v) for n, of in WRONG.items() for v in of])
def test_arguments_without_meaning_are_refused_by_name(verb, name, value):
    given = {"epsilon": 1.0, "delta": 1e-6, "proxy": PROXY} | {name: value}
    with pytest.raises(dp.DpcvxError, match=name):
        getattr(network(), verb)(**given)


def test_it_is_quiet_unless_asked_or_on_a_terminal(capsys):
    few = {"epsilon": 1.0, "delta": 1e-6, "proxy": PROXY, "time_limit": 1e-3}
    network().tune(**few)
    network().tune(**few, verbose=False)
    quiet = capsys.readouterr()
    assert quiet.out == quiet.err == ""
    network().tune(**few, verbose=True)
    network().compare(**few, verbose=True)
    shown = capsys.readouterr().out
    assert shown.count("tune") == shown.count("compare") == 1


class _Ended:
    """A search in which all runs have been made."""

    passed = 0.0

    def run(self, *given, **options):
        pass


def test_who_leans_takes_what_did_better_without_calling_it_clear():
    default = PlanTrial("default", None, None, {"last": [float(k) for k in range(10)]})
    other = PlanTrial("other", None, None, {"last": [k - 1.7 for k in range(10)]})
    worse = PlanTrial("worse", None, None, {"last": [k + 1.7 for k in range(10)]})
    for entries, lean, best in [
        ([default, other], 0.0, default),
        ([default, other], 0.25, other),
        ([default, worse], 0.25, default),
    ]:
        assert _best(_Ended(), entries, default, 10, lean) == (best, False)


def test_a_run_that_there_was_no_time_for_has_no_figure(found):
    short = replace(found, noiseless=math.nan)
    assert "no noise" in found._repr_html_() and "no noise" not in short._repr_html_()
    assert "no noise, same rounds" not in str(short) and "nan" not in str(short)
