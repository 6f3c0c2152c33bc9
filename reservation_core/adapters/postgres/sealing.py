"""Seal confidential values before they are stored: variables of jobs, addresses of webhooks, secrets of users.

AES-256-GCM with a key outside the database, so that dumps, backups and a replica's disk reveal nothing. A sealed value
is bound to its owner. Without a key values are stored as plain text, which can always be read.
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
    """A sealed value can't be opened, as its key is missing or it was changed. Names only the key."""


class Sealing:
    """Seals with the first key, opens with any: a new key goes before the others.

    `secrets` seals users' secrets, with keys of their own (`secret_keys`) or the same ones.
    """

    def __init__(self, keys: Sequence[bytes] = (), secret_keys: Sequence[bytes] | None = None) -> None:
        self._ciphers = {_id_of(key): AESGCM(key) for key in keys}
        self._first = next(iter(self._ciphers), None)
        self.secrets: Sealing = self if secret_keys is None else Sealing(secret_keys)

    @property
    def seals(self) -> bool:
        return self._first is not None

    @property
    def former(self) -> list[str]:
        """The ids of the keys that only open."""
        return [key for key in self._ciphers if key != self._first]

    def seal(self, plain: str, whose: str) -> str:
        """Seal a value for storage. `whose` names its owner, and is needed to open it."""
        if self._first is None:
            return plain
        nonce = os.urandom(_NONCE_BYTES)
        hidden = self._ciphers[self._first].encrypt(nonce, plain.encode(), whose.encode())
        return f"{_PREFIX}{self._first}:{base64.b64encode(nonce + hidden).decode()}"

    def open(self, kept: str, whose: str) -> str:
        """Open a stored value. Raises UnreadableError."""
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
"""Sealing without a key."""


def is_sealed(kept: str) -> bool:
    """Whether a stored value is sealed."""
    return kept.startswith(_PREFIX)


def _id_of(key: bytes) -> str:
    return hashlib.sha256(b"gpu-dev key id\0" + key).hexdigest()[:_ID_LETTERS]
