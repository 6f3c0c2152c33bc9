"""Pods of others that use bookings, in PostgreSQL. That a pod uses one at a time is an exclusion constraint."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.event_kinds import PodEventKind
from reservation_core.domain.pods.pod_reports import Admission, BookedSlot, PodReport

_LATELY = timedelta(days=1)


class Admissions:
    """Which pods were admitted under which bookings."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def hold(self, reports: Sequence[PodReport], now: datetime) -> list[str]:
        """Keep the bookings that these pods may use from being changed until the transaction ends; answers their ids.

        Those that are named, and of pods that name none what their users have or had within the last day. Reports are
        taken in one after the other: who comes second waits.
        """
        await self._connection.execute(statement("take_reports_in_turn"))
        found = await self._connection.execute(
            statement("hold_bookings_of_pods"),
            {
                "ids": sorted({report.booking_id for report in reports if report.booking_id is not None}),
                "users": sorted({report.user for report in reports if report.booking_id is None}),
                "earliest": now - _LATELY,
                "now": now,
            },
        )
        return [row.id for row in found]

    async def slots(self, booking_ids: Sequence[str]) -> list[BookedSlot]:
        """What these bookings have or had in the ledger; nothing of those that were never confirmed."""
        found = await self._connection.execute(statement("booked_slots"), {"ids": list(booking_ids)})
        return [BookedSlot(row.id, row.user_name, row.gpu_type, row.gpus, row.begins, row.ends) for row in found]

    async def of_pods(self, uids: Sequence[str]) -> list[Admission]:
        """Read the admissions of some pods."""
        found = await self._connection.execute(statement("admissions_of_pods"), {"uids": list(uids)})
        return [
            Admission(
                row.booking_id,
                row.pod_uid,
                row.namespace,
                row.name,
                row.gpus,
                row.admitted_at,
                row.ended_at,
                row.node,
            )
            for row in found
        ]

    async def write(self, new: Sequence[Admission], ended: Sequence[Admission], actor: str, now: datetime) -> None:
        """Write the ends of rows, then new rows, which may begin there, and the record of the bookings."""
        if ended:
            await self._connection.execute(
                statement("end_admissions"),
                {
                    "booking_ids": [row.booking_id for row in ended],
                    "uids": [row.pod_uid for row in ended],
                    "ended_ats": [row.ended_at for row in ended],
                },
            )
        if new:
            await self._connection.execute(
                statement("add_admissions"),
                {
                    "booking_ids": [row.booking_id for row in new],
                    "uids": [row.pod_uid for row in new],
                    "namespaces": [row.namespace for row in new],
                    "names": [row.name for row in new],
                    "gpus": [row.gpus for row in new],
                    "nodes": [row.node for row in new],
                    "admitted_ats": [row.admitted_at for row in new],
                    "ended_ats": [row.ended_at for row in new],
                    "now": now,
                },
            )
        lines = [(PodEventKind.ENDED, row) for row in ended]
        lines += [(PodEventKind.ADMITTED, row) for row in new]
        lines += [(PodEventKind.ENDED, row) for row in new if row.ended_at is not None]
        if lines:
            await self._connection.execute(
                statement("record_admissions"),
                {
                    "booking_ids": [row.booking_id for _, row in lines],
                    "kinds": [kind for kind, _ in lines],
                    "datas": [json.dumps(_data(kind, row)) for kind, row in lines],
                    "actor": actor,
                    "now": now,
                },
            )


def _data(kind: PodEventKind, row: Admission) -> dict[str, object]:
    at = row.ended_at if kind is PodEventKind.ENDED and row.ended_at is not None else row.admitted_at
    return {
        "namespace": row.namespace,
        "name": row.name,
        "uid": row.pod_uid,
        "gpus": row.gpus,
        "since" if kind is PodEventKind.ADMITTED else "until": at.isoformat(),
    }
