"""Users' secrets: values go in, and come out in the owner's jobs alone."""

from collections.abc import Sequence
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.errors import NotFoundError, UnknownSecretError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.sessions.secret_uses import MOST_SECRETS, SecretUse
from reservation_core.domain.similar_names import did_you_mean
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.people.user_secrets import SecretRecord

_BATCH = 100


async def set_secret(
    uow: UnitOfWork, principal: Principal, name: str, value: str, now: datetime
) -> tuple[SecretRecord, bool]:
    """Store a secret of the caller or its new value; returns it, and whether it is new.

    Raises NoSecretsKeyError and LimitExceededError.
    """
    record, is_new = await uow.secrets.put(principal.user_id, name, value, most=MOST_SECRETS, now=now)
    await _append(uow, principal, PeopleEventKind.SECRET_SET, name, now)
    return record, is_new


async def delete_secret(uow: UnitOfWork, principal: Principal, name: str, now: datetime) -> SecretRecord:
    """Delete a secret of the caller. Raises NotFoundError."""
    record = await uow.secrets.remove(principal.user_id, name)
    if record is None:
        meant = await _name_meant(uow, principal.user_id, name)
        raise NotFoundError(f"You have no secret {name}.{meant} `gpu-dev secret list` shows yours.")
    await _append(uow, principal, PeopleEventKind.SECRET_DELETED, name, now)
    return record


async def check_secrets(uow: UnitOfWork, user_id: int, uses: Sequence[SecretUse]) -> None:
    """Raises UnknownSecretError for secrets that the user does not have."""
    missing = await uow.secrets.missing(user_id, {use.name for use in uses})
    if missing:
        meant = await _name_meant(uow, user_id, missing[0])
        raise UnknownSecretError(
            f"You have no secret {' or '.join(missing)}.{meant} Set it with `gpu-dev secret set {missing[0]}`.",
            [
                RuleBreach(UnknownSecretError.code, f"secrets.{place}.name: you have no secret {use.name}")
                for place, use in enumerate(uses)
                if use.name in missing
            ],
        )


async def reseal_secrets(uow_factory: UnitOfWorkFactory) -> tuple[int, int]:
    """Seal all secrets of former keys with the first key, in small transactions; safe to end at any time.

    Returns how many were read, and how many of these can't be opened and stay as they are.
    """
    after, read, unread = (0, ""), 0, 0
    while True:
        async with uow_factory() as uow:
            found, kept = await uow.secrets.reseal(after, _BATCH)
        read, unread = read + len(found), unread + kept
        if len(found) < _BATCH:
            return read, unread
        after = found[-1]


async def _name_meant(uow: UnitOfWork, user_id: int, name: str) -> str:
    """The sentence that suggests the name of a secret of this user."""
    secrets = await uow.secrets.page(user_id, after=None, limit=MOST_SECRETS)
    return did_you_mean(name, [secret.name for secret in secrets])


async def _append(uow: UnitOfWork, principal: Principal, kind: PeopleEventKind, name: str, now: datetime) -> None:
    data = {"user": principal.user, "secret": name}
    await uow.events.append(actor=principal.user, kind=kind, at=now, subject=f"user:{principal.user}", data=data)
