"""Made records and networks: lengths, constants, heterogeneity, refusals."""

import networkx as nx
import numpy as np
import pytest

from problems.nonconvex_classification import (
    ClassificationError,
    Penalty,
    geometric_network,
    made_shares,
)


def constant(part):
    """Smoothness of an agent's loss and penalty, from the eigenvalues."""
    Z = part.features
    return np.linalg.eigvalsh(Z.T @ Z)[-1] / (4 * part.count) + Penalty().smoothness


@pytest.mark.parametrize("heterogeneity", [0.0, 0.5, 1.0])
def test_rows_have_the_length_from_which_the_papers_constant_follows(heterogeneity):
    shares = made_shares(heterogeneity=heterogeneity)
    assert len(shares.parts) == 50
    for part in shares.parts:
        assert part.features.shape == (200, 10) and part.labels.shape == (200,)
        np.testing.assert_allclose(np.linalg.norm(part.features, axis=1), shares.bound)
        largest = np.linalg.norm(part.features, 2) ** 2 / part.count
        assert constant(part) == pytest.approx(largest / 4 + 0.002)
        assert constant(part) < 5.03
    assert shares.bound**2 / 4 + 0.002 == pytest.approx(5.03)
    drawn = made_shares(heterogeneity=heterogeneity, of="these data")
    assert max(constant(part) for part in drawn.parts) == pytest.approx(5.03)
    assert drawn.bound**2 / 4 > 5.03
    # But for their length, the records are the same.
    np.testing.assert_allclose(
        drawn.parts[3].features / drawn.bound, shares.parts[3].features / shares.bound
    )


def test_labels_follow_from_the_features_and_both_occur():
    for part in made_shares(seed=1).parts[:10]:
        assert 0.3 < (part.labels > 0).mean() < 0.7
        # Least squares tells them apart better than a coin: 4 standard deviations of 200 tosses.
        weights = np.linalg.lstsq(part.features, part.labels, rcond=None)[0]
        assert (np.sign(part.features @ weights) == part.labels).mean() > 0.5 + 4 * 0.5 / 200**0.5


def test_heterogeneous_agents_have_less_in_common():
    alike = []
    for heterogeneity in (0.0, 0.3, 0.6, 1.0):
        means = np.array(
            [p.signed.mean(axis=0) for p in made_shares(heterogeneity=heterogeneity).parts]
        )
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        alike.append((means @ means.T).mean())
    assert alike == sorted(alike, reverse=True) and alike[0] > 0.8 and alike[-1] < 0.2


def test_the_same_seed_draws_the_same():
    first, again, other = (made_shares(3, 5, 2, seed=s).parts[2].features for s in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_networks_are_connected_and_have_the_edges_asked_for():
    net = geometric_network(edges=255, seed=2)
    assert len(net.edges) == 255 and nx.is_connected(net.graph())
    assert net.agents[:2] == ("agent 0", "agent 1") and len(net.agents) == 50
    assert net.edges == geometric_network(edges=255, seed=2).edges
    assert net.edges != geometric_network(edges=255, seed=3).edges
    assert 150 < len(geometric_network().edges) < 350
    assert geometric_network(5, 2.0).complete


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made_shares(0), "agents=0"),
        (lambda: made_shares(size=2.5), "size=2.5"),
        (lambda: made_shares(smoothness=0.001), "above 0.002"),
        (lambda: made_shares(heterogeneity=1.1), "heterogeneity=1.1"),
        (lambda: made_shares(of="my data"), "of='my data' is unknown"),
        (lambda: Penalty(weight=0.0), "weight=0.0"),
        (lambda: Penalty(omega=None), "omega=None"),
        (lambda: geometric_network(1), "agents=1"),
        (lambda: geometric_network(50, 1e-3), "was connected. Use a larger radius"),
        (lambda: geometric_network(4, 2.0, edges=5), "with 5 edges"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert isinstance(caught.value, ClassificationError) or "Penalty(" in str(caught.value)
