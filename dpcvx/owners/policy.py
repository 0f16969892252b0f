"""What an owner decides by itself, and no request can change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..model.sealed import Sealed
from ..model.spec import PrivateSpec

# Methods that an owner takes part in unless its policy names others.
METHODS = (
    "ADMM", "DecentralizedGradient", "FederatedAveraging", "FederatedGradient", "LinearizedADMM",
    "OneShot", "PrimalDual",
)  # fmt: skip


@dataclass(frozen=True)
class Held:
    """One private object of an owner: what one change means, and where its values are.

    Attributes
    ----------
    spec : PrivateSpec
    source : Sealed
        Fetches the values; called once per run, where the owner is.
    """

    spec: PrivateSpec
    source: Sealed = field(repr=False)


@dataclass(frozen=True)
class Policy:
    """An owner's terms.

    Attributes
    ----------
    agent : str
        Its name in models, and on its certificate.
    ledger : Path
        Of all runs on these data.
    epsilon, delta : float
        Over all runs in the ledger.
    data : mapping of str to Held
        By the names that models use.
    methods : tuple of str
    share : int
        Among how many agents one person's data may be spread.
    partners : int
        At least so many others must take part.
    max_colluders : int or None
        Under secret sums, against so many partners that pool what they see with the coordinator
        the budget has to hold; None for all of them, who leave no room for noise that is split.
        Partners that the coordinator plays, or that add no noise, count among them.
    ask : bool
        Show every offer to a person before taking part.
    reply_after : float
        Seconds after a call at which its reply leaves; 0 for at once.
    keys : Path or None
        The folder of its key and of certificates.
    coordinator : str
        Fingerprint of the coordinator's certificate; empty for any that the authority signed.
    program : str
        Digest of the program that an offer must have; empty for any. See ``model =``.
    """

    agent: str
    ledger: Path
    epsilon: float
    delta: float
    data: Mapping[str, Held]
    methods: tuple[str, ...] = METHODS
    share: int = 1
    partners: int = 0
    max_colluders: int | None = None
    ask: bool = False
    reply_after: float = 0.0
    keys: Path | None = None
    coordinator: str = ""
    program: str = ""
