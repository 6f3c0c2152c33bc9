"""Memories of pods that people made, in PostgreSQL."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.model import BookingStatus
from reservation_core.domain.pods.overbooked_pods import Occupant
from reservation_core.domain.pods.pod_endings import BookedTime, Memory
from reservation_core.ports.pods.pod_endings import BookingUse, EndingRecord, NeededCards


class PodEndings:
    """What those who end pods know. All of it is read and written by one after the other."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def take_turn(self) -> None:
        """Keep all others who end pods waiting until the transaction ends."""
        await self._connection.execute(statement("take_turn_at_ending_pods"))

    async def memories(self) -> list[Memory]:
        """All that is remembered."""
        found = await self._connection.execute(statement("remembered_pods"))
        return [Memory(*row) for row in found]

    async def booked(self, booking_ids: Collection[str]) -> list[BookedTime]:
        """How these bookings stand; nothing of those that there are not."""
        if not booking_ids:
            return []
        found = await self._connection.execute(statement("booked_times"), {"ids": sorted(booking_ids)})
        return [
            BookedTime(row.id, row.user_name, BookingStatus(row.status), row.starts_at, row.ends_at) for row in found
        ]

    async def booked_cards(self, booking_ids: Collection[str]) -> list[BookingUse]:
        """What these bookings have now, and which jobs are on it; nothing of those whose slot it is not."""
        if not booking_ids:
            return []
        found = (await self._connection.execute(statement("booked_cards"), {"ids": sorted(booking_ids)})).all()
        jobs: dict[str, list[Occupant]] = {}
        for row in found:
            if row.job is not None:
                occupant = Occupant(row.job, row.cards, row.began, goes=False)
                jobs.setdefault(row.id, []).append(occupant)
        return [BookingUse(row.id, row.cards, tuple(jobs.get(row.id, ()))) for row in found if row.job is None]

    async def needed_cards(self, nodes: Collection[str], lead: timedelta) -> list[NeededCards]:
        """Of these nodes those with cards that bookings or jobs have now, or bookings within `lead`."""
        if not nodes:
            return []
        found = await self._connection.execute(statement("needed_cards"), {"nodes": sorted(nodes), "lead": lead})
        needs = []
        for node, rows_of_node in groupby(found, lambda row: str(row.node)):
            rows = list(rows_of_node)
            needed = {row.card: row.needed_by for row in rows if row.needed_by is not None}
            types = frozenset(row.gpu_type for row in rows if row.needed_by is not None)
            if needed:
                needs.append(NeededCards(node, len(rows), needed, types))
        return needs

    async def remember(self, memories: Sequence[Memory]) -> None:
        """Write what is remembered of these pods anew."""
        if not memories:
            return
        await self._connection.execute(
            statement("remember_pods"),
            {
                "uids": [memory.uid for memory in memories],
                "namespaces": [memory.namespace for memory in memories],
                "names": [memory.name for memory in memories],
                "seen_ats": [memory.seen_at for memory in memories],
                "owners": [memory.owner for memory in memories],
                "preemptibles": [memory.preemptible for memory in memories],
                "booking_ids": [memory.booking_id for memory in memories],
                "ends": [memory.end for memory in memories],
                "warned_ats": [memory.warned_at for memory in memories],
                "asked_ats": [memory.asked_at for memory in memories],
                "refused_ats": [memory.refused_at for memory in memories],
                "told_ats": [memory.told_at for memory in memories],
            },
        )

    async def forget(self, uids: Collection[str]) -> None:
        """These pods are gone."""
        if uids:
            await self._connection.execute(statement("forget_pods"), {"uids": sorted(uids)})

    async def record(self, records: Sequence[EndingRecord], now: datetime) -> None:
        """Write lines of the record, in order."""
        if not records:
            return
        await self._connection.execute(
            statement("record_pod_endings"),
            {
                "booking_ids": [record.booking_id for record in records],
                "subjects": [record.subject for record in records],
                "kinds": [record.kind for record in records],
                "reasons": [record.reason for record in records],
                "datas": [json.dumps({**record.data, "why": record.reason}) for record in records],
                "now": now,
            },
        )
