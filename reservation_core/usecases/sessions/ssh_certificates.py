"""Certificates for people's keys, good at the gateways for an hour."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.sessions.public_keys import PublicKey, fingerprint_words, read_public_key
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.people.tokens import require_working
from reservation_core.usecases.sessions.server_keys import certificate_authority, certificate_id, host_key

VALID_FOR: Final = timedelta(hours=1)
_CLOCKS_DIFFER: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate, and the key of the hosts that take it, each in OpenSSH's form of one line."""

    certificate: str
    valid_until: datetime
    host_key: str


async def issue_certificate(uow: UnitOfWork, principal: Principal, public_key: str, now: datetime) -> IssuedCertificate:
    """Sign the caller's key, for an hour and at most as long as the caller's token works.

    Raises PublicKeyRefusedError, ForbiddenError when the token has ended, and ServerKeyUnreadableError.
    """
    key = read_public_key(public_key)
    reach = await require_working(uow, principal.token_id, now)
    until = now + VALID_FOR if reach.expires_at is None else min(now + VALID_FOR, reach.expires_at)
    until = until.replace(microsecond=0)
    authority, host = await certificate_authority(uow, now), await host_key(uow, now)
    certificate = await asyncio.to_thread(_sign, authority.private_key, key, principal, now, until)
    await uow.events.append(
        actor=principal.user,
        kind=PeopleEventKind.SSH_CERTIFICATE_ISSUED,
        at=now,
        subject=principal.token_id,
        data={"user": principal.user, "fingerprint": fingerprint_words(key.fingerprint)},
    )
    return IssuedCertificate(certificate, until, host.public_key)


def _sign(authority: str, key: PublicKey, principal: Principal, now: datetime, until: datetime) -> str:
    # Imported only here: it takes a fifth of a second, which most processes do without.
    import asyncssh  # noqa: PLC0415

    certificate = asyncssh.import_private_key(authority).generate_user_certificate(
        asyncssh.import_public_key(key.line),
        certificate_id(principal.user, principal.token_id),
        principals=[principal.user],
        valid_after=(now - _CLOCKS_DIFFER).timestamp(),
        valid_before=until.timestamp(),
        permit_x11_forwarding=False,
        permit_user_rc=False,
    )
    return certificate.export_certificate().decode().strip()
