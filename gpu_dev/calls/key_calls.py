"""SSH keys over REST."""

from collections.abc import Iterator
from urllib.parse import quote

from gpu_dev.calls.calls import Calls
from gpu_dev.wire.base import Page
from gpu_dev.wire.sessions import SshKeyAdd, SshKeyOut


class KeyCalls(Calls):
    """Your SSH keys; for administrators everybody's."""

    def keys(self) -> Iterator[SshKeyOut]:
        """Keys by id."""
        return self._items(Page[SshKeyOut], "/v1/keys")

    def add(self, request: SshKeyAdd) -> SshKeyOut:
        """Add a key; one that is there already is answered as it is."""
        return self._post(SshKeyOut, "/v1/keys", request)

    def remove(self, key_id: str) -> SshKeyOut:
        """Remove a key."""
        return self._change("DELETE", SshKeyOut, f"/v1/keys/{quote(key_id, safe='')}")
