"""Sealing what people say in confidence before it is stored: variables of jobs, addresses and secrets of hooks.

AES-256-GCM with a key that is not in the database, so that a dump, a backup or a replica's disk tells nobody. A sealed
value says whose it is, and opens as nobody else's. Without a key all is stored as it is said; what was stored so can
always be read.
"""

import base64
import hashlib
import os
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
_PREFIX = "gpu-dev:sealed:1:"
_NONCE_BYTES = 12
_ID_LETTERS = 8


class UnreadableError(Exception):
    """The sealed value can't be opened: its key is missing, or it is not what was sealed. Names the key, never more."""


class Sealing:
    """Seals with the first of these keys, opens with any: a new one goes before the others."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._ciphers = {_id_of(key): AESGCM(key) for key in keys}
        self._first = next(iter(self._ciphers), None)

    @property
    def seals(self) -> bool:
        """Whether there is a key."""
        return self._first is not None

    def seal(self, plain: str, whose: str) -> str:
        """As it is to be stored. `whose` says where it belongs, and is asked for again."""
        if self._first is None:
            return plain
        nonce = os.urandom(_NONCE_BYTES)
        hidden = self._ciphers[self._first].encrypt(nonce, plain.encode(), whose.encode())
        return f"{_PREFIX}{self._first}:{base64.b64encode(nonce + hidden).decode()}"

    def open(self, kept: str, whose: str) -> str:
        """As it was said. Raises UnreadableError."""
        if not is_sealed(kept):
            return kept
        key, _, text = kept.removeprefix(_PREFIX).partition(":")
        cipher = self._ciphers.get(key)
        if cipher is None:
            raise UnreadableError(f"it was sealed with the key {key[:_ID_LETTERS]}, which this process does not have")
        try:
            raw = base64.b64decode(text, validate=True)
            return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], whose.encode()).decode()
        except (InvalidTag, ValueError):
            raise UnreadableError(f"it is not what was sealed with the key {key}") from None


PLAIN: Final = Sealing()
"""Where there is no key."""


def is_sealed(kept: str) -> bool:
    """Whether it has to be opened."""
    return kept.startswith(_PREFIX)


def _id_of(key: bytes) -> str:
    return hashlib.sha256(b"gpu-dev key id\0" + key).hexdigest()[:_ID_LETTERS]
