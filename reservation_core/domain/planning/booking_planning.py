"""Starts within one booking: its GPUs are a pool of their own, from its start to its end.

A job in a booking ends by the booking's end at the latest, whatever it asked for: it fits as soon as GPUs of the
booking are free of the booking's other jobs, for as long as there is left. It gets no GPUs of nodes of which it asks
for more than these GPUs are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from reservation_core.domain.calendar import FOREVER, Row, to_micros, to_moment
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, PlannedSlot, PlanningSnapshot, Start, WaitEstimate, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.slot_decisions import plan_slots
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.planning.wait_estimates import estimate_waits
from reservation_core.domain.pools.booked_shares import placeable, share_too_small, too_small
from reservation_core.domain.pools.waiting_reasons import booking_too_full
from reservation_core.domain.request_terms import UNSAID

_BEFORE = "before the booking"
_FORMER = "former slot of "

_Placed = TypeVar("_Placed", Start, PlannedSlot)


class BookingPool:
    """The picture of one booking: made anew whenever something in it changes, for it is small."""

    def __init__(self, booking_id: str, policy: PlacementPolicy = DEFAULT_POLICY) -> None:
        self.booking_id = booking_id
        self._policy = policy
        self.waiting: dict[str, Waiting] = {}
        self.rows: dict[str, tuple[Commitment, ...]] = {}
        self.changed = True
        self.slots_wanted = True
        self._look_again_at = FOREVER
        self._picture: Picture | None = None
        self._end = datetime.max.replace(tzinfo=UTC)
        self._too_greedy: set[str] = set()
        self._former: set[str] = set()

    @property
    def empty(self) -> bool:
        """Whether no job waits or runs in it."""
        return not self.waiting and not self.rows

    def set_reservation(self, reservation_id: str, waiting: Waiting | None, rows: Sequence[Commitment]) -> None:
        """Replace what is known of one of its jobs."""
        rows = tuple(rows)
        if self.waiting.get(reservation_id) == waiting and self.rows.get(reservation_id, ()) == rows:
            return
        self.waiting.pop(reservation_id, None)
        self.rows.pop(reservation_id, None)
        if waiting is not None:
            self.waiting[reservation_id] = waiting
        if rows:
            self.rows[reservation_id] = rows
        self.forget()

    def forget(self) -> None:
        """Look at it anew: something about its GPUs has changed."""
        self.changed = True
        self.slots_wanted = True
        self._picture = None

    def note_time(self, now: int) -> None:
        """Look again when a time was reached at which something in it begins or ends."""
        if now >= self._look_again_at:
            self.forget()

    def take_picture(
        self, nodes: Iterable[Node], own: Sequence[tuple[int, Row]], holds: Iterable[tuple[int, Row]], now: datetime
    ) -> Picture | None:
        """The picture of it: `own` are the booking's rows by GPU, `holds` those of others whose pods may be there.

        None when the booking has no GPUs, or is over.
        """
        if self._picture is not None:
            return self._picture
        at = to_micros(now)
        self._look_again_at = FOREVER
        if not own:
            return None
        cards = dict(own)
        self._end = to_moment(max(row[1] for row in cards.values()))
        if self._end <= now:
            return None
        whole = [node for node in nodes if any(gpu.id in cards for gpu in node.gpus)]
        part = [replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.id in cards)) for node in whole]
        waiting, rows = self._within_shares(whole, part)
        for gpu_id, (start, _, _, _) in cards.items():
            if start > at:
                rows.append(Commitment(_BEFORE, gpu_id, now, to_moment(start), False))
        rows += [
            Commitment(owner, gpu_id, to_moment(start), to_moment(end), True)
            for gpu_id, (start, end, _, owner) in holds
            if owner not in self.rows
        ]
        edges = [to_micros(edge) for row in rows for edge in (row.start, row.end)]
        self._look_again_at = min((edge for edge in [*edges, to_micros(self._end)] if edge > at), default=FOREVER)
        types = frozenset(job.gpu_type for job in self.waiting.values())
        snapshot = PlanningSnapshot(tuple(part), tuple(rows), tuple(waiting), types)
        self._picture = Picture(snapshot, self._policy)
        return self._picture

    def _within_shares(self, whole: Sequence[Node], part: Sequence[Node]) -> tuple[list[Waiting], list[Commitment]]:
        """The waiting jobs that can be placed, without their amounts, and all rows of jobs.

        A slot on a node that has become too small is nobody's: its job is placed anew.
        """
        node_of = {gpu.id: node.name for node in part for gpu in node.gpus}
        waiting: list[Waiting] = []
        self._too_greedy, self._former = set(), set()
        for job in self.waiting.values():
            small = too_small(job, whole)
            able = placeable(job, small, part)
            if able is None:
                self._too_greedy.add(job.id)
            else:
                waiting.append(able)
            if small and any(row.planned and node_of.get(row.gpu_id) in small for row in self.rows.get(job.id, ())):
                self._former.add(job.id)
        rows = [
            replace(row, reservation_id=_FORMER + owner, planned=False)
            if row.planned and owner in self._former
            else row
            for owner, its in self.rows.items()
            for row in its
        ]
        return waiting, rows

    def plan_starts(self, picture: Picture | None, now: datetime, limit: int) -> list[Start]:
        """Decide which jobs start now, and note their starts here, too."""
        starts = [] if picture is None else [self._cut(start) for start in plan_starts(picture, now, limit)]
        starts = [replace(start, had_slot=self._has_slot(start.id)) for start in starts]
        for start in starts:
            del self.waiting[start.id]
            self.rows[start.id] = tuple(
                Commitment(start.id, gpu.gpu_id, start.start, start.end, True, booking_id=self.booking_id)
                for gpu in start.gpus
            )
        if len(starts) < limit:
            self.changed = False
        return starts

    def plan_slots(self, picture: Picture | None, now: datetime, limit: int) -> list[PlannedSlot]:
        """Slots for the jobs that wait in it; none for a job that could start only when it is over."""
        slots: list[PlannedSlot] = []
        self.slots_wanted = False
        if picture is None:
            return slots
        plan = plan_slots(picture, now, len(self.waiting), limit)
        for job_slot in plan.slots:
            if job_slot.start < self._end or not job_slot.gpus:
                slot = self._cut(job_slot)
                slots.append(slot)
                self.rows[slot.id] = tuple(
                    Commitment(slot.id, g.gpu_id, slot.start, slot.end, False, planned=True, booking_id=self.booking_id)
                    for g in slot.gpus
                )
        self.slots_wanted = plan.more
        edges = [to_micros(free_slot.start) for free_slot in slots if free_slot.gpus]
        self._look_again_at = min([self._look_again_at, *edges])
        if self._former and not plan.more:
            slots += self._drop_former({slot.id for slot in slots}, now)
        return slots

    def _drop_former(self, placed: set[str], now: datetime) -> list[PlannedSlot]:
        """The end of slots on nodes that have become too small, of jobs that are not placed anew."""
        jobs = [self.waiting[job_id] for job_id in sorted(self._former - placed) if job_id in self.waiting]
        for job in jobs:
            self.rows[job.id] = ()
        self.forget()  # the places that they leave are free for others
        reasons = {job.id: share_too_small(self.booking_id, job.share or UNSAID).detail for job in jobs}
        return [PlannedSlot(job.id, now, now, (), job.version, self.booking_id, reasons[job.id]) for job in jobs]

    def _has_slot(self, job_id: str) -> bool:
        return any(row.planned for row in self.rows.get(job_id, ()))

    def _cut(self, placed: _Placed) -> _Placed:
        return replace(placed, end=min(placed.end, self._end), booking_id=self.booking_id)

    def estimate_waits(self, picture: Picture | None, now: datetime) -> list[WaitEstimate]:
        """Estimates for the jobs that wait in it."""
        if picture is None:
            jobs = sorted(self.waiting.values(), key=lambda job: job.key)
            return [
                WaitEstimate(job.id, place, booking_too_full(self.booking_id), None)
                for place, job in enumerate(jobs, 1)
            ]
        answer = []
        for estimate in estimate_waits(picture, now, len(self.waiting)):
            if estimate.estimated_start_at is None or estimate.estimated_start_at >= self._end:
                answer.append(replace(estimate, reason=booking_too_full(self.booking_id), estimated_start_at=None))
            else:
                answer.append(estimate)
        greedy = sorted((self.waiting[job_id] for job_id in self._too_greedy), key=lambda job: job.key)
        return answer + [
            WaitEstimate(job.id, place, share_too_small(self.booking_id, job.share or UNSAID), None)
            for place, job in enumerate(greedy, len(answer) + 1)
        ]
