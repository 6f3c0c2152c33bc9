"""Targets and preferences of notices in PostgreSQL. Messages are made there too: see the trigger on `events`."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.sealing import PLAIN, Sealing, UnreadableError
from reservation_core.domain.errors import LimitExceededError
from reservation_core.domain.notices import NoticeChannel, NoticedEvent, NoticeKind, ToldOf
from reservation_core.ports.people.notices import Destination, NewTarget, NoticeTarget, Preferences, SaidPreferences

_LONGEST_FAILURE = 500


class Notices:
    """Targets, preferences, and what delivering needs to know."""

    def __init__(self, connection: AsyncConnection, sealing: Sealing = PLAIN) -> None:
        self._connection = connection
        self._sealing = sealing

    async def add_target(self, new: NewTarget, *, most: int, most_a_day: int, now: datetime) -> NoticeTarget:
        """Store a target.

        Raises LimitExceededError when the user has `most` already, or made `most_a_day` within a day; the transaction
        stays usable.
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
        await self._connection.execute(statement("lock_whose_notices"), {"user_id": new.user_id})
        row = (await self._connection.execute(statement("add_notice_target"), values)).one_or_none()
        if row is None:
            raise LimitExceededError(
                f"You have {most} targets already, or made {most_a_day} within a day. Remove one that you don't need, "
                "or wait."
            )
        return self._target(row)

    async def targets(self, user_id: int | None, *, after: str | None, limit: int) -> list[NoticeTarget]:
        """Targets that are not removed, after an id, in order of their ids; None means everybody's."""
        name = "notice_targets_of_everybody" if user_id is None else "notice_targets_of_user"
        values: dict[str, Any] = {"after": after or "", "limit": limit}
        if user_id is not None:
            values["user_id"] = user_id
        return [self._target(row) for row in await self._connection.execute(statement(name), values)]

    async def target(self, target_id: str, user_id: int | None) -> NoticeTarget | None:
        """One target; None when this user (None: anybody) has no such target."""
        values = {"id": target_id, "user_id": user_id}
        row = (await self._connection.execute(statement("notice_target"), values)).one_or_none()
        return None if row is None else self._target(row)

    async def remove_target(self, target_id: str, user_id: int | None, now: datetime) -> NoticeTarget | None:
        """Forget its address and secrets; answers what it was. Messages that are on their way find nothing."""
        values = {"id": target_id, "user_id": user_id}
        row = (await self._connection.execute(statement("lock_notice_target"), values)).one_or_none()
        if row is None:
            return None
        await self._connection.execute(statement("remove_notice_target"), {"id": target_id, "now": now})
        return self._target(row)

    async def verify_target(self, target_id: str, user_id: int, code: str, now: datetime) -> bool:
        """Whether the code was the one that was mailed; then the target is verified.

        It has 40 random bits and is forgotten then.
        """
        values = {"id": target_id, "user_id": user_id, "code": code, "now": now}
        return (await self._connection.execute(statement("verify_notice_target"), values)).one_or_none() is not None

    async def claim_test(self, target_id: str, now: datetime, not_since: datetime) -> bool:
        """Note a test now; false when there was one after `not_since`."""
        values = {"id": target_id, "now": now, "not_since": not_since}
        return (await self._connection.execute(statement("claim_notice_test"), values)).one_or_none() is not None

    async def preferences(self, user_id: int) -> SaidPreferences:
        """Every kind, with what was said or else the default."""
        values = {"user_id": user_id, "channels": [channel.value for channel in NoticeChannel]}
        wanted: dict[NoticeKind, set[NoticeChannel]] = {kind: set() for kind in NoticeKind}
        found = (await self._connection.execute(statement("notice_preferences"), values)).all()
        for row in found:
            if row.kind is not None:
                wanted[NoticeKind(row.kind)].add(NoticeChannel(row.channel))
        return SaidPreferences({kind: frozenset(channels) for kind, channels in wanted.items()}, found[0].version)

    async def lock_preferences(self, user_id: int) -> int:
        """Keep others from changing them until the transaction ends; answers their version."""
        found = await self._connection.execute(statement("lock_whose_notices"), {"user_id": user_id})
        return int(found.one().preferences_version)

    async def prefer(self, user_id: int, preferences: Preferences) -> None:
        """Replace what was said, as the next version; kinds that are left out have their default again."""
        said = [(kind, channel) for kind in preferences for channel in NoticeChannel]
        await self._connection.execute(statement("count_preferences_up"), {"user_id": user_id})
        await self._connection.execute(statement("forget_notice_preferences"), {"user_id": user_id})
        await self._connection.execute(
            statement("add_notice_preferences"),
            {
                "user_id": user_id,
                "kinds": [kind.value for kind, _ in said],
                "channels": [channel.value for _, channel in said],
                "wanted": [channel in preferences[kind] for kind, channel in said],
            },
        )

    async def destination(self, target_id: str) -> Destination | None:
        """A target that is not removed and whose user is not disabled, with its secrets. Raises UnreadableError."""
        row = (await self._connection.execute(statement("notice_destination"), {"id": target_id})).one_or_none()
        if row is None:
            return None
        self._sealing.open(row.address, _address_of(row.id))
        secret = None if row.secret is None else self._sealing.open(row.secret, _secret_of(row.id))
        return Destination(self._target(row), secret, row.code)

    async def occasion(self, event_id: int) -> tuple[NoticedEvent, ToldOf | None] | None:
        """The event and its reservation, if it is about one, as it stands; None for what nobody is told of."""
        row = (await self._connection.execute(statement("notice_occasion"), {"event_id": event_id})).one_or_none()
        if row is None:
            return None
        occurrence = NoticedEvent(NoticeKind(row.notice_kind), row.event, row.at, row.actor, row.why, row.data)
        if row.id is None:
            return occurrence, None
        about = ToldOf(
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

    async def note_delivered(self, target_id: str, now: datetime) -> None:
        """It works (again)."""
        await self._connection.execute(statement("note_notice_delivered"), {"id": target_id, "now": now})

    async def note_failed(self, target_id: str, why: str, now: datetime, *, lost: bool) -> None:
        """It did not work; `lost`: the notice is given up."""
        text = why.replace("\x00", "")[:_LONGEST_FAILURE] or "It failed without a word."
        values = {"id": target_id, "why": text, "lost": lost, "now": now}
        await self._connection.execute(statement("note_notice_failed"), values)

    def _target(self, row: Row[Any]) -> NoticeTarget:
        return NoticeTarget(
            id=row.id,
            user_id=row.user_id,
            user=row.user_name,
            channel=NoticeChannel(row.channel),
            name=row.name,
            address=self._shown(row),
            created_at=row.created_at,
            verified_at=row.verified_at,
            delivered_at=row.delivered_at,
            failed_at=row.failed_at,
            failure=row.failure,
            told=row.told,
        )

    def _shown(self, row: Row[Any]) -> str:
        """Its address; nothing where that can't be read here."""
        try:
            return self._sealing.open(row.address or "", _address_of(row.id))
        except UnreadableError:
            return ""


def _address_of(target_id: str) -> str:
    return f"address of {target_id}"


def _secret_of(target_id: str) -> str:
    return f"secret of {target_id}"
