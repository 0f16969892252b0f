"""Classification with a nonconvex penalty over a network (Ou, Wang, Liu and Lu, section VI)."""

from problems.labelled import Records, data_of
from problems.nonconvex_classification.errors import ClassificationError
from problems.nonconvex_classification.measures import Measures
from problems.nonconvex_classification.networks import geometric_network
from problems.nonconvex_classification.penalty import Penalty
from problems.nonconvex_classification.quadratics import Quadratics, made_quadratics, quadratics
from problems.nonconvex_classification.records import Shares, made_shares
from problems.nonconvex_classification.study import (
    Classification,
    classification,
    gradients,
    objective,
    stationary_point,
)

__all__ = [
    "Classification",
    "ClassificationError",
    "Measures",
    "Penalty",
    "Quadratics",
    "Records",
    "Shares",
    "classification",
    "data_of",
    "geometric_network",
    "gradients",
    "made_quadratics",
    "made_shares",
    "objective",
    "quadratics",
    "stationary_point",
]
