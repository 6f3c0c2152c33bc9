"""Pods of other systems that use bookings: which booking each uses, and when.

Reports repeat, and may come late or twice; each is compared with what is recorded, of which only the end can change. A
pod uses one booking at a time; when that is over and its owner has another, it continues in that one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class PodReport:
    """A user's pod on `gpus` GPUs, seen since `since` (None: now) and until `ended_at` (None: it runs).

    `booking_id` None: any fitting booking of the user, with GPUs of `gpu_type` (None: of any type).
    """

    user: str
    namespace: str
    name: str
    uid: str
    gpus: int
    booking_id: str | None = None
    gpu_type: str | None = None
    since: datetime | None = None
    ended_at: datetime | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class BookedSlot:
    """The GPUs of a type that a booking has, or had, in the ledger in [begins, ends)."""

    booking_id: str
    user: str
    gpu_type: str
    gpus: int
    begins: datetime
    ends: datetime


@dataclass(frozen=True, slots=True)
class Admission:
    """A pod's use of a booking; `ended_at` None: it still runs as far as known. `node`, if reported."""

    booking_id: str
    pod_uid: str
    namespace: str
    name: str
    gpus: int
    admitted_at: datetime
    ended_at: datetime | None = None
    node: str | None = None


class ReportOutcome(StrEnum):
    """The result of a report. Stable: clients match on it."""

    RECORDED = "recorded"
    ENDED = "ended"
    UNCHANGED = "unchanged"
    NO_BOOKING = "no_booking"
    NOT_IN_SLOT = "not_in_slot"


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of a report, and why. `until` is the end of the booking that the pod uses."""

    uid: str
    outcome: ReportOutcome
    reason: str
    booking_id: str | None = None
    until: datetime | None = None


class Register:
    """The recorded uses of some pods, the slots of the bookings that they may use, and what reports change."""

    def __init__(self, slots: Iterable[BookedSlot], known: Iterable[Admission], now: datetime) -> None:
        self._slots = {slot.booking_id: slot for slot in slots}
        self._rows: dict[str, dict[str, Admission]] = {}
        for row in known:
            self._rows.setdefault(row.pod_uid, {})[row.booking_id] = row
        self._now = now
        self.new: dict[tuple[str, str], Admission] = {}
        """New rows, by pod and booking."""
        self.ended: dict[tuple[str, str], Admission] = {}
        """Existing rows that have ended."""

    def report(self, pod: PodReport) -> Judged:
        """Apply one report."""
        until = self._now if pod.ended_at is None else min(pod.ended_at, self._now)
        rows = self._rows.get(pod.uid, {})
        open_row = next((row for row in rows.values() if row.ended_at is None), None)
        if pod.ended_at is not None and open_row is None:
            # A repeated report must not use another booking of the same time for an instant.
            if rows and (pod.since is None or _over_at(rows.values()) >= until):
                return Judged(pod.uid, ReportOutcome.UNCHANGED, "Its end is known.")
            if pod.since is None:
                return Judged(
                    pod.uid, ReportOutcome.NOT_IN_SLOT, "It was not reported before: say in `since` when it began."
                )
        began = open_row.admitted_at if open_row is not None else until
        since = min(began if pod.since is None else pod.since, until)
        judged = self._use(pod, since, until, open_row)
        if pod.ended_at is None:
            return judged
        return self._end(pod, until, judged)

    def _use(self, pod: PodReport, since: datetime, until: datetime, open_row: Admission | None) -> Judged:
        """Record a pod that ran in [since, until], and runs then."""
        slot = self._slot_of(pod, since, until, open_row)
        kind = "GPUs" if pod.gpu_type is None else pod.gpu_type
        if slot is None:
            what = f"of {pod.gpus} {kind} in that time" if pod.booking_id is None else pod.booking_id
            return Judged(pod.uid, ReportOutcome.NO_BOOKING, f"{pod.user} has no booking {what}.")
        where = (slot.booking_id, slot.ends)
        rows = self._rows.setdefault(pod.uid, {})
        if slot.booking_id in rows:
            return Judged(pod.uid, ReportOutcome.UNCHANGED, f"It is known to use {slot.booking_id}.", *where)
        if not _fits(pod, slot):
            booked = f"{slot.booking_id} has {slot.gpus} {slot.gpu_type}"
            return Judged(pod.uid, ReportOutcome.NO_BOOKING, f"{booked}, the pod has {pod.gpus} {kind}.")
        # Times of one pod never overlap: it continues here when its former booking is over.
        admitted = max(since, slot.begins, _over_at(rows.values())) if rows else max(since, slot.begins)
        if admitted > until or admitted >= slot.ends:
            span = f"from {_timestamp(slot.begins)} to {_timestamp(slot.ends)}"
            return Judged(
                pod.uid, ReportOutcome.NOT_IN_SLOT, f"{slot.booking_id} is {span}, the pod ran at another time."
            )
        if open_row is not None:
            self._close(open_row, admitted)
        row = Admission(slot.booking_id, pod.uid, pod.namespace, pod.name, pod.gpus, admitted, node=pod.node)
        rows[slot.booking_id] = self.new[pod.uid, slot.booking_id] = row
        detail = f"It uses {slot.booking_id} since {_timestamp(admitted)}."
        return Judged(pod.uid, ReportOutcome.RECORDED, detail, *where)

    def _end(self, pod: PodReport, until: datetime, judged: Judged) -> Judged:
        open_row = next((row for row in self._rows.get(pod.uid, {}).values() if row.ended_at is None), None)
        if open_row is None:
            return judged
        self._close(open_row, until)
        if judged.outcome is ReportOutcome.RECORDED:
            return judged
        slot = self._slots.get(open_row.booking_id)
        detail = f"It used {open_row.booking_id} until {_timestamp(until)}."
        return Judged(pod.uid, ReportOutcome.ENDED, detail, open_row.booking_id, None if slot is None else slot.ends)

    def _close(self, row: Admission, at: datetime) -> None:
        closed = replace(row, ended_at=max(row.admitted_at, at))
        key = row.pod_uid, row.booking_id
        self._rows[row.pod_uid][row.booking_id] = closed
        (self.new if key in self.new else self.ended)[key] = closed

    def _slot_of(
        self, pod: PodReport, since: datetime, until: datetime, open_row: Admission | None
    ) -> BookedSlot | None:
        if pod.booking_id is not None:
            slot = self._slots.get(pod.booking_id)
            return slot if slot is not None and slot.user == pod.user else None
        used = None if open_row is None else open_row.booking_id

        def fitness(slot: BookedSlot) -> tuple[bool, bool, datetime, str]:
            return slot.begins <= until < slot.ends, slot.booking_id == used, slot.ends, slot.booking_id

        able = [
            slot
            for slot in self._slots.values()
            if slot.user == pod.user and _fits(pod, slot) and slot.begins <= until and since < slot.ends
        ]
        return max(able, key=fitness, default=None)


def _over_at(rows: Iterable[Admission]) -> datetime:
    """When a pod's other bookings are over; one in use can be left at any time after its start."""
    return max(row.admitted_at if row.ended_at is None else row.ended_at for row in rows)


def _fits(pod: PodReport, slot: BookedSlot) -> bool:
    return slot.gpus >= pod.gpus and pod.gpu_type in (None, slot.gpu_type)


def _timestamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
