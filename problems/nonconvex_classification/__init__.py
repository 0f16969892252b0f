"""Classification with a nonconvex penalty over a network (Ou, Wang, Liu and Lu, section VI)."""

from ..labeled import Records, data_of
from .errors import ClassificationError
from .measures import Measures
from .networks import geometric_network
from .penalty import Penalty
from .records import Shares, made_shares
from .study import Classification, classification, gradients, objective, stationary_point

__all__ = [
    "Classification",
    "ClassificationError",
    "Measures",
    "Penalty",
    "Records",
    "Shares",
    "classification",
    "data_of",
    "geometric_network",
    "gradients",
    "made_shares",
    "objective",
    "stationary_point",
]
