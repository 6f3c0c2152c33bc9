"""The keys that an SSH gateway works with, and whose key or certificate it is shown."""

import hashlib
import re
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.sessions.ssh_keys import KeyOwner, ServerKey, ServerKeyPurpose

_CERTIFICATE_ID = re.compile(r"user=(?P<user>\S+) token=(?P<token>tok-[0-9a-z]{1,32})")


async def host_key(uow: UnitOfWork, now: datetime) -> ServerKey:
    """The host key of all gateways: made once, and the same ever after. Raises ServerKeyUnreadableError."""
    return await uow.server_keys.key(ServerKeyPurpose.HOST, now)


async def certificate_authority(uow: UnitOfWork, now: datetime) -> ServerKey:
    """The key that signs certificates of people. Raises ServerKeyUnreadableError."""
    return await uow.server_keys.key(ServerKeyPurpose.CERTIFICATES, now)


async def job_token_key(uow: UnitOfWork, now: datetime) -> bytes:
    """The key (32 bytes) that makes tokens of jobs. Raises ServerKeyUnreadableError."""
    key = await uow.server_keys.key(ServerKeyPurpose.JOB_TOKENS, now)
    return hashlib.sha256(key.private_key.encode()).digest()


async def find_key_owners(uow: UnitOfWork, fingerprint: bytes) -> list[KeyOwner]:
    """The enabled users with a key, by the SHA-256 digest of the key: the job that is entered decides who is meant."""
    return await uow.ssh_keys.owners(fingerprint)


async def note_key_use(uow: UnitOfWork, key_id: str, now: datetime) -> None:
    """Note when a key was last used, at most every 30 s."""
    await uow.ssh_keys.note_use(key_id, now)


def certificate_id(user: str, token_id: str) -> str:
    """The id in a certificate, which says whose it is and with which token it was made."""
    return f"user={user} token={token_id}"


async def find_certificate_owner(uow: UnitOfWork, key_id: str, now: datetime) -> Principal | None:
    """The caller of the token that a certificate was made with, by the certificate's id.

    None when the token has ended or the user is disabled: the certificate is then worth nothing, whatever it says.
    """
    named = _CERTIFICATE_ID.fullmatch(key_id)
    if named is None:
        return None
    principal = await uow.identities.principal_of_token(named["token"], now)
    return principal if principal is not None and principal.user == named["user"] else None
