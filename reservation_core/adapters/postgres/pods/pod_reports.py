"""Foreign pods that use bookings, in PostgreSQL. An exclusion constraint allows a pod one booking at a time."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.event_kinds import PodEventKind
from reservation_core.domain.pods.pod_reports import Admission, BookedSlot, PodReport

_LATELY = timedelta(days=1)


class Admissions(StatementRunner):
    """Admissions of pods under bookings."""

    async def hold(self, reports: Sequence[PodReport], now: datetime) -> list[str]:
        """Lock the bookings that these pods may use until the transaction ends; returns their ids.

        Pods without a named booking may use any booking of their user that is open or ended within the last day.
        Transactions with reports run one after the other.
        """
        await self._run("take_reports_in_turn")
        rows = await self._run(
            "hold_bookings_of_pods",
            ids=sorted({report.booking_id for report in reports if report.booking_id is not None}),
            users=sorted({report.user for report in reports if report.booking_id is None}),
            earliest=now - _LATELY,
            now=now,
        )
        return [row.id for row in rows]

    async def slots(self, booking_ids: Sequence[str]) -> list[BookedSlot]:
        """The slots of these bookings in the ledger; unconfirmed ones are left out."""
        rows = await self._run("booked_slots", ids=list(booking_ids))
        return [BookedSlot(row.id, row.user_name, row.gpu_type, row.gpus, row.begins, row.ends) for row in rows]

    async def of_pods(self, uids: Sequence[str]) -> list[Admission]:
        """The admissions of these pods."""
        rows = await self._run("admissions_of_pods", uids=list(uids))
        return [
            Admission(
                row.booking_id, row.pod_uid, row.namespace, row.name, row.gpus, row.admitted_at, row.ended_at, row.node
            )
            for row in rows
        ]

    async def write(self, new: Sequence[Admission], ended: Sequence[Admission], actor: str, now: datetime) -> None:
        """End admissions, then add new ones, which may begin at these ends, with events of the bookings."""
        if ended:
            await self._run(
                "end_admissions",
                booking_ids=[admission.booking_id for admission in ended],
                uids=[admission.pod_uid for admission in ended],
                ended_ats=[admission.ended_at for admission in ended],
            )
        if new:
            await self._run(
                "add_admissions",
                booking_ids=[admission.booking_id for admission in new],
                uids=[admission.pod_uid for admission in new],
                namespaces=[admission.namespace for admission in new],
                names=[admission.name for admission in new],
                gpus=[admission.gpus for admission in new],
                nodes=[admission.node for admission in new],
                admitted_ats=[admission.admitted_at for admission in new],
                ended_ats=[admission.ended_at for admission in new],
                now=now,
            )
        events = [(PodEventKind.ENDED, admission) for admission in ended]
        events += [(PodEventKind.ADMITTED, admission) for admission in new]
        events += [(PodEventKind.ENDED, admission) for admission in new if admission.ended_at is not None]
        if events:
            await self._run(
                "record_admissions",
                booking_ids=[admission.booking_id for _, admission in events],
                kinds=[kind for kind, _ in events],
                datas=[json.dumps(_data(kind, admission)) for kind, admission in events],
                actor=actor,
                now=now,
            )


def _data(kind: PodEventKind, admission: Admission) -> dict[str, object]:
    at = (admission.ended_at if kind is PodEventKind.ENDED else None) or admission.admitted_at
    return {
        "namespace": admission.namespace,
        "name": admission.name,
        "uid": admission.pod_uid,
        "gpus": admission.gpus,
        "since" if kind is PodEventKind.ADMITTED else "until": at.isoformat(),
    }
