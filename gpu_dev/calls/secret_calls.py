"""Secrets over REST."""

from collections.abc import Iterator
from urllib.parse import quote

from gpu_dev.calls.calls import Calls
from gpu_dev.wire.base import Page
from gpu_dev.wire.people import SecretOut, SecretSet

_PATH = "/v1/secrets"


class SecretCalls(Calls):
    """Your secrets, without their values."""

    def secrets(self) -> Iterator[SecretOut]:
        """Secrets by name."""
        return self._items(Page[SecretOut], _PATH)

    def put(self, name: str, value: str) -> SecretOut:
        """Set a secret, or replace its value."""
        return self._change("PUT", SecretOut, f"{_PATH}/{quote(name, safe='')}", SecretSet(value=value))

    def delete(self, name: str) -> SecretOut:
        """Delete a secret."""
        return self._change("DELETE", SecretOut, f"{_PATH}/{quote(name, safe='')}")
