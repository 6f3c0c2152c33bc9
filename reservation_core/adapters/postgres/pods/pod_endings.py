"""The state of ending foreign pods, in PostgreSQL."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.pods.overbooked_pods import Occupant
from reservation_core.domain.pods.pod_endings import BookedTime, Memory
from reservation_core.domain.statuses import BookingStatus
from reservation_core.ports.pods.pod_endings import BookingUse, EndingRecord, NeededGpus


class PodEndings(StatementRunner):
    """The state of ending foreign pods, read and written by one process at a time."""

    async def take_turn(self) -> None:
        """Exclude other processes that end pods until the transaction ends."""
        await self._run("take_turn_at_ending_pods")

    async def memories(self) -> list[Memory]:
        """The stored state of all pods."""
        return [Memory(*row) for row in await self._run("remembered_pods")]

    async def booked(self, booking_ids: Collection[str]) -> list[BookedTime]:
        """The status and span of these bookings; unknown ids are left out."""
        if not booking_ids:
            return []
        rows = await self._run("booked_times", ids=sorted(booking_ids))
        return [
            BookedTime(row.id, row.user_name, BookingStatus(row.status), row.starts_at, row.ends_at) for row in rows
        ]

    async def booked_cards(self, booking_ids: Collection[str]) -> list[BookingUse]:
        """The current GPUs of these bookings and the jobs on them, only during their slots."""
        if not booking_ids:
            return []
        rows = (await self._run("booked_cards", ids=sorted(booking_ids))).all()
        jobs: dict[str, list[Occupant]] = {}
        for row in rows:
            if row.job is not None:
                occupant = Occupant(row.job, row.cards, row.began, goes=False)
                jobs.setdefault(row.id, []).append(occupant)
        return [BookingUse(row.id, row.cards, tuple(jobs.get(row.id, ()))) for row in rows if row.job is None]

    async def needed_cards(self, nodes: Collection[str], lead: timedelta) -> list[NeededGpus]:
        """The GPUs of these nodes that bookings or jobs have now, or that bookings need within `lead`."""
        if not nodes:
            return []
        rows = await self._run("needed_cards", nodes=sorted(nodes), lead=lead)
        needs = []
        for node, group in groupby(rows, lambda row: str(row.node)):
            cards = list(group)
            needed = {card.card: card.needed_by for card in cards if card.needed_by is not None}
            types = frozenset(card.gpu_type for card in cards if card.needed_by is not None)
            if needed:
                needs.append(NeededGpus(node, len(cards), needed, types))
        return needs

    async def remember(self, memories: Sequence[Memory]) -> None:
        """Replace the stored state of these pods."""
        if not memories:
            return
        await self._run(
            "remember_pods",
            uids=[memory.uid for memory in memories],
            namespaces=[memory.namespace for memory in memories],
            names=[memory.name for memory in memories],
            seen_ats=[memory.seen_at for memory in memories],
            owners=[memory.owner for memory in memories],
            preemptibles=[memory.preemptible for memory in memories],
            booking_ids=[memory.booking_id for memory in memories],
            ends=[memory.end for memory in memories],
            warned_ats=[memory.warned_at for memory in memories],
            asked_ats=[memory.asked_at for memory in memories],
            refused_ats=[memory.refused_at for memory in memories],
            told_ats=[memory.told_at for memory in memories],
        )

    async def forget(self, uids: Collection[str]) -> None:
        """Delete the stored state of pods that are gone."""
        if uids:
            await self._run("forget_pods", uids=sorted(uids))

    async def record(self, records: Sequence[EndingRecord], now: datetime) -> None:
        """Write events to the audit log, in order."""
        if not records:
            return
        await self._run(
            "record_pod_endings",
            booking_ids=[record.booking_id for record in records],
            subjects=[record.subject for record in records],
            kinds=[record.kind for record in records],
            reasons=[record.reason for record in records],
            datas=[json.dumps({**record.data, "why": record.reason}) for record in records],
            now=now,
        )
