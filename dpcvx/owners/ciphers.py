"""Keys and streams for masks, from ``cryptography``: the only module that knows their names."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from .refusal import refused


@dataclass(frozen=True)
class PairSecret:
    """A secret of two owners, for one direction."""

    key: bytes = field(repr=False)

    def words(self, t: int, size: int) -> NDArray[np.uint64]:
        """So many words of round t."""
        nonce = (0).to_bytes(8, "little") + t.to_bytes(8, "little")
        stream = Cipher(algorithms.ChaCha20(self.key, nonce), None).encryptor()
        return np.frombuffer(stream.update(bytes(8 * size)), "<u8").astype(np.uint64)


def fresh() -> bytes:
    """A new secret key."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_of(key: bytes) -> bytes:
    """Its public part."""
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def agreed(key: bytes, public: bytes, said: bytes) -> PairSecret:
    """What two owners share, for a purpose.

    Parameters
    ----------
    key : bytes
        One's own.
    public : bytes
        The other's.
    said : bytes
        The run and the direction.

    Raises
    ------
    RefusedError
        If the other's key is none.
    """
    try:
        shared = X25519PrivateKey.from_private_bytes(key).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError:
        raise refused("stranger", "a mask key that is none") from None
    return PairSecret(HKDF(hashes.SHA256(), 32, None, said).derive(shared))
