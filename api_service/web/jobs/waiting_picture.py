"""The picture of why a job waits: the GPUs of its type, what has them until when, and the job's own slot."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from api_service.access.sight import sight_of
from api_service.web.calendar.timeline_entries import see_entries
from api_service.web.calendar.timeline_rows import By
from api_service.web.calendar.timeline_window import TimelineScale, window_of
from api_service.web.jobs.job_prospects import prospects_of
from api_service.web.jobs.smaller_requests import Size, SmallerRequest, lengths_up_to, sizes_up_to
from api_service.web.jobs.waiting_axis import Tick, end_of_axis, ticks
from api_service.web.jobs.waiting_rows import WaitingRow, choose_rows, draw_row
from api_service.web.rest_calls import RestProblemError
from api_service.web.visit import Visit
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.jobs import Job
from reservation_core.contracts.policy import Explanation
from reservation_core.domain.bookings.card_choice import bookable
from reservation_core.domain.calendar import Range, length_micros, to_micros, to_moment
from reservation_core.domain.model import JobStatus
from reservation_core.usecases.bookings.view_calendar import calendar_entries

_MOST_ENTRIES = 400
"""Entries beyond are drawn as taken, without their owner."""


@dataclass(frozen=True, slots=True)
class WaitingPicture:
    """What has the GPUs in [`start`, `end`), which are ints as in `reservation_core.domain.calendar`.

    `slot` is the time of the job's own slot; its length includes what starting takes. `estimate` is when the planner
    expects a job without a slot to run. `left_out` GPUs have no row.
    """

    start: int
    end: int
    by: By
    rows: Sequence[WaitingRow]
    ticks: Sequence[Tick]
    left_out: int
    slot: Range | None
    estimate: Range | None

    @property
    def expected(self) -> Range | None:
        """When the job is to run, as far as is known."""
        return self.slot or self.estimate

    def x(self, at: int) -> str:
        """Where a time is, in percent of the width."""
        return f"{100 * (min(max(at, self.start), self.end) - self.start) / (self.end - self.start):.3f}%"

    def width(self, start: int, end: int) -> str:
        """How wide a range is, as far as it is within the picture."""
        shown = min(end, self.end) - max(start, self.start)
        return f"{max(0.0, 100 * shown / (self.end - self.start)):.3f}%"

    def shows(self, at: int) -> bool:
        return self.start <= at < self.end

    @staticmethod
    def moment(at: int) -> datetime:
        return to_moment(at)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What becomes of a smaller request in the job's place; `sooner` is None where one of the starts is not known."""

    request: SmallerRequest
    answer: Explanation | None
    problem: RestProblemError | None
    starts: int | None
    ends: int | None
    sooner: timedelta | None


@dataclass(frozen=True, slots=True)
class WhyWaiting:
    """All that the page shows of a job's wait: the picture, the choices, and the answer to one."""

    job: Job
    picture: WaitingPicture
    sizes: Sequence[Size]
    lengths: Sequence[timedelta]
    chosen: SmallerRequest
    what_if: WhatIf | None


async def read_why_waiting(visit: Visit, job: Job) -> WhyWaiting | None:
    """Read it for the address's `size` and `duration`.

    None for a job that does not wait, or waits within a booking, whose GPUs are the booking's.
    """
    if job.status is not JobStatus.QUEUED or job.booking_id is not None:
        return None
    picture = await _read_picture(visit, job)
    sizes, lengths = sizes_up_to(Size(job.nodes, job.gpus)), lengths_up_to(job.duration)
    chosen = SmallerRequest(
        next((size for size in sizes if size.key == visit.query("size")), sizes[-1]),
        next((length for length in lengths if _seconds(length) == visit.query("duration")), lengths[-1]),
    )
    is_smaller = chosen != SmallerRequest(sizes[-1], lengths[-1])
    what_if = await _ask(visit, job, chosen, picture.expected) if is_smaller else None
    return WhyWaiting(job, picture, sizes, lengths, chosen, what_if)


async def _read_picture(visit: Visit, job: Job) -> WaitingPicture:
    window = window_of(TimelineScale.DAY, visit.now.astimezone(visit.zone).date(), visit.zone)

    async def read(uow: UnitOfWork) -> WaitingPicture:
        now = await uow.now()
        _, held = await uow.planning.changed([job.id], timedelta(0), {job.id})
        slots = {row.gpu_id: (to_micros(row.start), to_micros(row.end)) for row in held}
        slot = next(iter(slots.values()), None)
        estimate = None if slot is not None else _estimated(job)
        start, length = to_micros(now), length_micros(job.duration)
        end = end_of_axis(start, slot or estimate, length)
        cards = [
            card
            for card in bookable(await uow.bookings.cards(now, to_moment(end), without=[job.id]), now)
            if job.gpu_type in (None, card.gpu_type)
        ]
        chosen = choose_rows(cards, slots, job.gpus, length, start)
        here = [card.gpu_id for row in chosen.rows for card in row.cards]
        entries = await calendar_entries(uow, now, to_moment(end), here, None, _MOST_ENTRIES)
        sight = await sight_of(uow, visit.principal, visit.services.settings.holders)
        others = [entry for entry in entries if entry.id != job.id]
        seen = see_entries(others, chosen.rows, sight, window, now)
        rows = [draw_row(row, chosen.by, seen, slots, start, end) for row in chosen.rows]
        axis = ticks(start, end, visit.zone)
        return WaitingPicture(start, end, chosen.by, rows, axis, chosen.left_out, slot, estimate)

    return await visit.services.reads(read)


def _estimated(job: Job) -> Range | None:
    if job.estimated_start_at is None:
        return None
    return to_micros(job.estimated_start_at), to_micros(job.estimated_start_at + job.duration)


async def _ask(visit: Visit, job: Job, chosen: SmallerRequest, expected: Range | None) -> WhatIf:
    body = {
        "gpus": chosen.size.gpus,
        "nodes": chosen.size.nodes,
        "duration": int(chosen.length.total_seconds()),
        "gpu_type": job.gpu_type,
        "priority": job.priority,
        "project": job.project,
        "instead_of": job.id,
        "user": job.user if job.user != visit.principal.user else None,
    }
    found = await prospects_of(visit.rest, {name: value for name, value in body.items() if value is not None})
    begins = None if found.answer is None else found.answer.starts_at
    if begins is None:
        return WhatIf(chosen, found.answer, found.problem, None, None, None)
    sooner = None if expected is None else to_moment(expected[0]) - begins
    ends = to_micros(begins + chosen.length)
    return WhatIf(chosen, found.answer, found.problem, to_micros(begins), ends, sooner)


def _seconds(length: timedelta) -> str:
    return str(int(length.total_seconds()))
