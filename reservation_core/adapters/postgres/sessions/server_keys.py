"""The server's SSH keys in PostgreSQL: made when they are first needed, and kept for ever."""

from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.sealing import PLAIN, Sealing, UnreadableError
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.ports.sessions.ssh_keys import ServerKey, ServerKeyPurpose, ServerKeyUnreadableError


class ServerKeys(StatementRunner):
    """The host key, and the key that signs certificates."""

    def __init__(self, connection: AsyncConnection, sealing: Sealing = PLAIN) -> None:
        super().__init__(connection)
        self._sealing = sealing

    async def key(self, purpose: ServerKeyPurpose, now: datetime) -> ServerKey:
        """The key for a purpose, the same for all processes. Raises ServerKeyUnreadableError."""
        stored = await self._first(_private_key, "server_key", purpose=purpose.value)
        if stored is None:
            fresh = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
            sealed = self._sealing.seal(fresh.decode(), _owner_of(purpose))
            await self._run("add_server_key", purpose=purpose.value, private_key=sealed, now=now)
            # Another process may have been first.
            stored = _private_key((await self._run("server_key", purpose=purpose.value)).one())
        try:
            private = self._sealing.open(stored, _owner_of(purpose))
        except UnreadableError as error:
            raise ServerKeyUnreadableError(
                f"The server's SSH key `{purpose}` can't be read: {error}. Add that key to GPU_DEV_SEAL_KEY_FILE."
            ) from error
        public = load_ssh_private_key(private.encode(), None).public_key()
        return ServerKey(private, public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())


def _private_key(row: Row[Any]) -> str:
    return str(row.private_key)


def _owner_of(purpose: ServerKeyPurpose) -> str:
    return f"ssh key {purpose}"
