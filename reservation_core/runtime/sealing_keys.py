"""The keys that seal jobs' variables, notification addresses and users' secrets in the database."""

import base64
import binascii
import os
import secrets
from pathlib import Path

from reservation_core.adapters.postgres.sealing import KEY_BYTES, Sealing
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.error import SettingsError

_MOST_BYTES = 64 * 1024
_MOST_KEYS = 100


def sealing_of(settings: CommonSettings) -> Sealing:
    """Sealing with the keys of the settings' files; without a file nothing is sealed.

    Raises SettingsError, which never quotes a file.
    """
    keys = () if settings.seal_key_file is None else _read_keys(settings.seal_key_file, "GPU_DEV_SEAL_KEY_FILE")
    if settings.secrets_key_file is None:
        return Sealing(keys)
    own = _read_keys(settings.secrets_key_file, "GPU_DEV_SECRETS_KEY_FILE")
    # The others open what they sealed before secrets had keys of their own.
    return Sealing(keys, [*own, *keys])


def _read_keys(path: Path, setting: str) -> list[bytes]:
    """The keys of a file, one a line. Raises SettingsError."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{setting}: {path} can't be read: {error.strerror}.") from error
    lines = [line.strip() for line in text[:_MOST_BYTES].splitlines()]
    words = [line for line in lines if line and not line.startswith(b"#")]
    if len(text) > _MOST_BYTES or not 1 <= len(words) <= _MOST_KEYS:
        raise SettingsError(
            f"{setting}: the file must hold 1 to {_MOST_KEYS} keys, one a line, the one to seal with first."
        )
    return [_key(word, number, setting) for number, word in enumerate(words, start=1)]


def ensure_key_file(home: Path) -> Path:
    """The key file of a server with its database in `home`, created atomically; the caller holds the home's lock."""
    path = home / "seal-key"
    if path.exists():
        return path
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode() + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return path


def _key(word: bytes, number: int, setting: str) -> bytes:
    try:
        key = base64.b64decode(word, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise SettingsError(
            f"{setting}: key {number} is not base64 of {KEY_BYTES} bytes; `openssl rand -base64 {KEY_BYTES}` makes it."
        )
    return key
