"""Looks up whose key or certificate a client shows, and slows addresses that show unknown ones."""

import asyncio
import base64
import hashlib
from collections.abc import Sequence

import structlog
from asyncssh import PermissionDenied
from asyncssh.packet import PacketDecodeError, SSHPacket
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import SSHCertificate, load_ssh_public_identity

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.network.client_addresses import source_of
from reservation_core.domain.people.token_buckets import Pace, TokenBuckets
from reservation_core.ports.clock import Clock
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.settings.ssh import SshSettings
from reservation_core.runtime.ssh.counts import SshCounts, SshRefusal
from reservation_core.usecases.sessions.server_keys import find_certificate_owner, find_key_owners, note_key_use
from reservation_core.usecases.sessions.ssh_visitors import KeyHolder

MOST_TRIES = 20
"""The number of unknown keys that one connection may show: agents hold many."""

_MOST_ADDRESSES = 20_000
_LONGEST_DELAY_S = 5.0
_CERTIFICATE = b"-cert-v01@openssh.com"
_log = structlog.get_logger(__name__)


class KeyChecks:
    """The keys that are known, and the pace of unknown ones by address."""

    def __init__(self, uow: UnitOfWorkFactory, clock: Clock, settings: SshSettings, counts: SshCounts) -> None:
        self._uow = uow
        self._clock = clock
        self._counts = counts
        pace = Pace(settings.wrong_keys_per_s, settings.wrong_keys_burst)
        self._failures = TokenBuckets(pace, _MOST_ADDRESSES)

    async def holders(self, key: bytes) -> tuple[KeyHolder, ...]:
        """The users whom a key or certificate, as it comes over the wire, stands for.

        Raises PermissionDenied while the database does not answer.
        """
        try:
            async with self._uow() as uow:
                named = _certificate_id(key)
                if named is None:
                    owners = await find_key_owners(uow, hashlib.sha256(key).digest())
                    return tuple(KeyHolder(owner.user_id, owner.user, owner.key_id) for owner in owners)
                found = await find_certificate_owner(uow, named, self._clock.now())
                return () if found is None else (KeyHolder(found.user_id, found.user, found.token_id),)
        except DatabaseUnavailableError as error:
            raise PermissionDenied("The server's database does not answer at this moment. Try again.") from error

    async def refuse(self, key: bytes, username: str, address: str) -> None:
        """Count and log an unknown key, after a while if its address has shown too many."""
        now = asyncio.get_running_loop().time()
        self._counts.refused[SshRefusal.WRONG_KEY] += 1
        wait = self._failures.take(source_of(address, (), ()), now)
        _log.info("ssh_key_refused", address=address, user=username[:100], key=fingerprint(key), slowed=wait > 0)
        if wait:
            await asyncio.sleep(min(wait, _LONGEST_DELAY_S))

    async def note_use(self, holders: Sequence[KeyHolder]) -> None:
        """Note that keys were used."""
        now = self._clock.now()
        try:
            async with self._uow() as uow:
                for holder in holders:
                    await note_key_use(uow, holder.credential, now)
        except DatabaseUnavailableError as error:
            _log.warning("ssh_key_use_not_noted", error=str(error))


def fingerprint(key: bytes) -> str:
    """A key's fingerprint in OpenSSH's words."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def _certificate_id(key: bytes) -> str | None:
    """The id in a certificate, whose signature is checked elsewhere; None for a plain key."""
    try:
        algorithm = SSHPacket(key).get_string()
    except PacketDecodeError:
        return None
    if not algorithm.endswith(_CERTIFICATE):
        return None
    try:
        identity = load_ssh_public_identity(algorithm + b" " + base64.b64encode(key))
    except (ValueError, UnsupportedAlgorithm):
        return ""
    return identity.key_id.decode("utf-8", "replace") if isinstance(identity, SSHCertificate) else ""
