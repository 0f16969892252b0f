"""Settings that Ryu and Kim fix for a data set, in the printed and the honest study."""

from __future__ import annotations

from dataclasses import dataclass

import dpcvx as dp

from ..papers import entry
from .dataset import Dataset
from .experiment import FEMNIST_PENALTY, MNIST_PENALTY
from .partition import Partition

_BOX = entry("ryu_kim", "box")


@dataclass(frozen=True)
class Setting:
    """Box, schedule of the penalty, and division of the records."""

    box: float
    penalty: dp.penalties.Growing
    base: Partition


def setting(dataset: Dataset, agents: int) -> Setting:
    """The paper's settings of MNIST and FEMNIST; those of FEMNIST for anything else.

    Parameters
    ----------
    dataset : Dataset
    agents : int
        P, unless writers are agents.
    """
    if dataset.train.writer is not None:
        return Setting(_BOX.number("FEMNIST"), FEMNIST_PENALTY, Partition("writer", None))
    if dataset.features == 784:
        return Setting(_BOX.number("MNIST"), MNIST_PENALTY, Partition("iid", agents))
    return Setting(_BOX.number("FEMNIST"), FEMNIST_PENALTY, Partition("iid", agents))
