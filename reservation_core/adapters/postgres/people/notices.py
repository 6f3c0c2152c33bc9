"""Notification targets and preferences in PostgreSQL. A trigger on `events` creates the messages."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.sealing import PLAIN, Sealing, UnreadableError
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.errors import LimitExceededError
from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind
from reservation_core.domain.notices.messages import NoticedEvent, NotifiedReservation
from reservation_core.ports.people.notices import (
    Destination,
    NewTarget,
    NoticeRoutes,
    NoticeTarget,
    Preferences,
    StoredPreferences,
)

_LONGEST_FAILURE = 500


class Notices(StatementRunner):
    """Notification targets, preferences, and the data for deliveries."""

    def __init__(self, connection: AsyncConnection, sealing: Sealing = PLAIN) -> None:
        super().__init__(connection)
        self._sealing = sealing

    async def add_target(self, new: NewTarget, *, most: int, most_a_day: int, now: datetime) -> NoticeTarget:
        """Store a target.

        Raises LimitExceededError when the user already has `most` targets, or made `most_a_day` within a day; the
        transaction stays usable.
        """
        values = {
            "id": new.id,
            "user_id": new.user_id,
            "channel": new.channel.value,
            "name": new.name,
            "address": self._sealing.seal(new.address, _address_of(new.id)),
            "secret": None if new.secret is None else self._sealing.seal(new.secret, _secret_of(new.id)),
            "code": new.code,
            "most": most,
            "most_a_day": most_a_day,
            "now": now,
        }
        await self._run("lock_whose_notices", user_id=new.user_id)
        row = (await self._run("add_notice_target", **values)).one_or_none()
        if row is None:
            raise LimitExceededError(
                f"You have {most} notification addresses already, or added {most_a_day} within a day. "
                "Remove one that you don't need, or wait."
            )
        return self._target(row)

    async def targets(self, user_id: int | None, *, after: str | None, limit: int) -> list[NoticeTarget]:
        """Existing targets after an id, by id; `user_id` None means all users."""
        name = "notice_targets_of_everybody" if user_id is None else "notice_targets_of_user"
        values: dict[str, Any] = {"after": after or "", "limit": limit}
        if user_id is not None:
            values["user_id"] = user_id
        return [self._target(row) for row in await self._run(name, **values)]

    async def target(self, target_id: str, user_id: int | None) -> NoticeTarget | None:
        """One target; None when this user (`user_id` None: any user) has no such target."""
        values = {"id": target_id, "user_id": user_id}
        return await self._first(self._target, "notice_target", **values)

    async def remove_target(self, target_id: str, user_id: int | None, now: datetime) -> NoticeTarget | None:
        """Remove a target with its address and secrets, and return it. Pending messages are dropped."""
        values = {"id": target_id, "user_id": user_id}
        row = (await self._run("lock_notice_target", **values)).one_or_none()
        if row is None:
            return None
        await self._run("remove_notice_target", id=target_id, now=now)
        return self._target(row)

    async def verify_target(self, target_id: str, user_id: int, code: str, now: datetime) -> bool:
        """Verify a target with the mailed code, which has 40 random bits and works once; whether the code was right."""
        values = {"id": target_id, "user_id": user_id, "code": code, "now": now}
        return (await self._run("verify_notice_target", **values)).one_or_none() is not None

    async def claim_test(self, target_id: str, now: datetime, not_since: datetime) -> bool:
        """Store the time of a test; false when there was a test after `not_since`."""
        values = {"id": target_id, "now": now, "not_since": not_since}
        return (await self._run("claim_notice_test", **values)).one_or_none() is not None

    async def preferences(self, user_id: int) -> StoredPreferences:
        """The channels of every kind, by preference or default."""
        values = {"user_id": user_id, "channels": [channel.value for channel in NoticeChannel]}
        wanted: dict[NoticeKind, set[NoticeChannel]] = {kind: set() for kind in NoticeKind}
        rows = (await self._run("notice_preferences", **values)).all()
        for row in rows:
            if row.kind is not None:
                wanted[NoticeKind(row.kind)].add(NoticeChannel(row.channel))
        return StoredPreferences({kind: frozenset(channels) for kind, channels in wanted.items()}, rows[0].version)

    async def lock_preferences(self, user_id: int) -> int:
        """Lock a user's preferences until the transaction ends, and return their version."""
        result = await self._run("lock_whose_notices", user_id=user_id)
        return int(result.one().preferences_version)

    async def prefer(self, user_id: int, preferences: Preferences) -> None:
        """Replace the preferences and increment their version; missing kinds get their default."""
        choices = [(kind, channel) for kind in preferences for channel in NoticeChannel]
        await self._run("count_preferences_up", user_id=user_id)
        await self._run("forget_notice_preferences", user_id=user_id)
        await self._run(
            "add_notice_preferences",
            user_id=user_id,
            kinds=[kind.value for kind, _ in choices],
            channels=[channel.value for _, channel in choices],
            wanted=[channel in preferences[kind] for kind, channel in choices],
        )

    async def destination(self, target_id: str) -> Destination | None:
        """An existing target of an enabled user, with its secrets. Raises UnreadableError."""
        row = (await self._run("notice_destination", id=target_id)).one_or_none()
        if row is None:
            return None
        self._sealing.open(row.address, _address_of(row.id))
        secret = None if row.secret is None else self._sealing.open(row.secret, _secret_of(row.id))
        return Destination(self._target(row), secret, row.code)

    async def occasion(self, event_id: int) -> tuple[NoticedEvent, NotifiedReservation | None] | None:
        """The event and the current state of its reservation, if any; None for events without notifications."""
        row = (await self._run("notice_occasion", event_id=event_id)).one_or_none()
        if row is None:
            return None
        occurrence = NoticedEvent(
            NoticeKind(row.notice_kind), row.event, row.at, row.actor, row.why, row.data, row.subject
        )
        if row.id is None:
            return occurrence, None
        about = NotifiedReservation(
            id=row.id,
            kind=row.kind,
            name=row.name,
            status=row.status,
            gpus=row.gpus,
            nodes=row.nodes,
            gpu_type=row.gpu_type,
            starts_at=row.starts_at,
            ends_at=row.ends_at,
            offer_until=row.offer_until,
            release_at=row.release_at,
        )
        return occurrence, about

    async def store_delivery(self, target_id: str, now: datetime) -> None:
        """Mark the last delivery to a target as successful."""
        await self._run("note_notice_delivered", id=target_id, now=now)

    async def store_failure(self, target_id: str, why: str, now: datetime, *, lost: bool) -> None:
        """Store a failed delivery; `lost`: the notification is dropped."""
        text = why.replace("\x00", "")[:_LONGEST_FAILURE] or "It failed without a message."
        values = {"id": target_id, "why": text, "lost": lost, "now": now}
        await self._run("note_notice_failed", **values)

    async def routes(self) -> NoticeRoutes | None:
        """Where notifications can go; None before a processor has said it."""
        row = (await self._run("notice_routes")).one_or_none()
        return None if row is None else NoticeRoutes(row.mail, tuple(row.allow), row.public)

    async def set_routes(self, routes: NoticeRoutes) -> None:
        """Store where notifications can go."""
        await self._run("set_notice_routes", mail=routes.mail, allow=list(routes.allow), public=routes.public)

    def _target(self, row: Row[Any]) -> NoticeTarget:
        return NoticeTarget(
            id=row.id,
            user_id=row.user_id,
            user=row.user_name,
            channel=NoticeChannel(row.channel),
            name=row.name,
            address=self._address(row),
            created_at=row.created_at,
            verified_at=row.verified_at,
            delivered_at=row.delivered_at,
            failed_at=row.failed_at,
            failure=row.failure,
            told=row.told,
        )

    def _address(self, row: Row[Any]) -> str:
        """The target's address; empty if it can't be decrypted here."""
        try:
            return self._sealing.open(row.address or "", _address_of(row.id))
        except UnreadableError:
            return ""


def _address_of(target_id: str) -> str:
    return f"address of {target_id}"


def _secret_of(target_id: str) -> str:
    return f"secret of {target_id}"
