"""Notification preferences: which kinds go to which channels."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import StaleVersionError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.people.notices import StoredPreferences


async def read(uow: UnitOfWork, principal: Principal) -> StoredPreferences:
    """The caller's preferences for every kind, with the defaults."""
    return await uow.notices.preferences(principal.user_id)


async def replace(
    uow: UnitOfWork,
    principal: Principal,
    preferences: Mapping[NoticeKind, Iterable[NoticeChannel]],
    expected_version: int | None,
    now: datetime,
) -> StoredPreferences:
    """Replace the caller's preferences and return them; missing kinds get their default.

    Raises StaleVersionError when the preferences have changed since they were read.
    """
    version = await uow.notices.lock_preferences(principal.user_id)
    if expected_version is not None and expected_version != version:
        raise StaleVersionError(
            f"Your notification preferences have changed: they are at version {version}, not {expected_version}. "
            "Read them again, then repeat the change."
        )
    await uow.notices.prefer(principal.user_id, {kind: frozenset(channels) for kind, channels in preferences.items()})
    await uow.events.append(
        actor=principal.user, kind=PeopleEventKind.NOTICE_PREFERENCES_CHANGED, at=now, subject=f"user:{principal.user}"
    )
    return await read(uow, principal)
