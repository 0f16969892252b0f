"""Settings that Ryu and Kim fix for a data set, in studies with and without a guarantee."""

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
    """The bound of W's entries, the schedule of the penalty, and the division of the records."""

    box: float
    penalty: dp.penalties.Growing
    base: Partition


def setting(dataset: Dataset, agents: int) -> Setting:
    """Return the paper's settings of MNIST; for other data sets, the settings of FEMNIST.

    Parameters
    ----------
    dataset : Dataset
        The records.
    agents : int
        Number of agents P, if writers are not the agents.
    """
    if dataset.train.writer is not None:
        return Setting(_BOX.number("FEMNIST"), FEMNIST_PENALTY, Partition("writer", None))
    if dataset.features == 784:
        return Setting(_BOX.number("MNIST"), MNIST_PENALTY, Partition("iid", agents))
    return Setting(_BOX.number("FEMNIST"), FEMNIST_PENALTY, Partition("iid", agents))
