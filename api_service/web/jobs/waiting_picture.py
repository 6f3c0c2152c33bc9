"""The picture of why a job waits, or would: the GPUs of its type, what has them until when, and the job's own slot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from api_service.access.sight import sight_of
from api_service.web.calendar.timeline_entries import see_entries
from api_service.web.calendar.timeline_rows import By
from api_service.web.calendar.timeline_window import TimelineScale, window_of
from api_service.web.jobs.job_prospects import prospects_of, question_of
from api_service.web.jobs.waiting_axis import Tick, end_of_axis, ticks
from api_service.web.jobs.waiting_rows import WaitingRow, choose_rows, draw_row
from api_service.web.rest_calls import RestProblemError
from api_service.web.visit import Visit
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.jobs import Job
from reservation_core.contracts.policy import ExplainRequest, Explanation
from reservation_core.domain.bookings.card_choice import BookableGpu, bookable, choose
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.calendar import Range, length_micros, to_micros, to_moment
from reservation_core.domain.jobs.smaller_requests import Size, SmallerRequest, chosen_among, lengths_up_to, sizes_up_to
from reservation_core.domain.statuses import JobStatus, ReasonCode, RequestVerdict

_MOST_ENTRIES = 400
"""Entries beyond are drawn as taken, without their owner."""

_NOT_PLANNED = frozenset({ReasonCode.WAITING_FOR_JOBS, ReasonCode.DEPENDENCY_FAILED})
"""Reasons of jobs that wait for other jobs, or would end for them."""

_A_MILLISECOND = length_micros(timedelta(milliseconds=1))


@dataclass(frozen=True, slots=True)
class WaitingPicture:
    """What has the GPUs in [`start`, `end`), which are ints as in `reservation_core.domain.calendar`.

    `slot` is the time of the job's own slot; its length includes what starting takes. `estimate` is when a job without
    a slot is expected to run. Before a job is submitted, the slots of rows are GPUs that are free then. `left_out` GPUs
    have no row.
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
class _Request:
    """What waits, or would: `body` has the rest of it for REST to explain.

    `job` is None before it is submitted. `replaces`: a waiting job whose GPUs count as free.
    """

    size: Size
    length: timedelta
    gpu_type: str | None
    body: Mapping[str, Any]
    job: Job | None = None
    replaces: str | None = None
    estimate: datetime | None = None

    @property
    def estimated(self) -> Range | None:
        if self.estimate is None:
            return None
        return to_micros(self.estimate), to_micros(self.estimate + self.length)


@dataclass(frozen=True, slots=True)
class WhyWaiting:
    """All that a page shows of a wait: the picture, the choices, and the answer to one. `job` as in the request."""

    job: Job | None
    gpu_type: str | None
    picture: WaitingPicture
    sizes: Sequence[Size]
    lengths: Sequence[timedelta]
    chosen: SmallerRequest
    what_if: WhatIf | None


async def read_why_waiting(visit: Visit, job: Job) -> WhyWaiting | None:
    """Read it for the address's `size` and `duration`.

    None for a job that does not wait, waits for other jobs or without GPUs, or within a booking, whose GPUs are the
    booking's.
    """
    if (
        job.status is not JobStatus.QUEUED
        or job.gpus == 0
        or job.booking_id is not None
        or job.reason.code in _NOT_PLANNED
    ):
        return None
    body = {
        "priority": job.priority,
        "project": job.project,
        "instead_of": job.id,
        "user": job.user if job.user != visit.principal.user else None,
    }
    size, estimate = Size(job.nodes, job.gpus), job.estimated_start_at
    request = _Request(size, job.duration, job.gpu_type, body, job, job.id, estimate)
    return await _read(visit, request, visit.query("size"), visit.query("duration"))


async def foresee_waiting(visit: Visit, body: Mapping[str, Any], answer: Explanation) -> WhyWaiting | None:
    """What a request that REST has explained would wait for, for the form's `smaller_size` and `smaller_duration`.

    None for a request that does not wait in the queue.
    """
    if answer.verdict is not RequestVerdict.ACCEPTED or "booking_id" in body or body.get("gpus") == 0:
        return None
    if any(reason.code in _NOT_PLANNED for reason in answer.reasons):
        return None
    asked = ExplainRequest.model_validate(question_of(body))
    size = Size(asked.nodes, asked.gpus)
    request = _Request(size, asked.length, asked.gpu_type, body, None, asked.instead_of, answer.starts_at)
    form = visit.form
    return await _read(visit, request, form.get("smaller_size") or "", form.get("smaller_duration") or "")


async def _read(visit: Visit, request: _Request, size_key: str, seconds: str) -> WhyWaiting:
    picture = await _read_picture(visit, request)
    sizes, lengths = sizes_up_to(request.size), lengths_up_to(request.length)
    chosen = chosen_among(sizes, lengths, size_key, seconds)
    is_smaller = chosen != SmallerRequest(sizes[-1], lengths[-1])
    what_if = await _ask(visit, request, chosen, picture.expected) if is_smaller else None
    return WhyWaiting(request.job, request.gpu_type, picture, sizes, lengths, chosen, what_if)


async def _read_picture(visit: Visit, request: _Request) -> WaitingPicture:
    window = window_of(TimelineScale.DAY, visit.now.astimezone(visit.zone).date(), visit.zone)
    without = [] if request.replaces is None else [request.replaces]
    settings = visit.services.settings
    beside = length_micros(settings.start_allowance + settings.turnaround)

    async def read(uow: UnitOfWork) -> WaitingPicture:
        now = await uow.now()
        slots = {} if request.job is None else await _slots_of(uow, request.job.id)
        slot = next(iter(slots.values()), None)
        estimate = request.estimated if slot is None else None
        start, length = to_micros(now), length_micros(request.length)
        end = end_of_axis(start, slot or estimate, length)
        until = end if estimate is None else max(end, estimate[1] + beside)
        cards = [
            card
            for card in bookable(await uow.bookings.cards(now, to_moment(until), without=without), now)
            if request.gpu_type in (None, card.gpu_type)
        ]
        if request.job is None and estimate is not None:
            slots = _free_then(cards, request, estimate, beside)
        chosen = choose_rows(cards, slots, request.size.gpus, length, start)
        here = [card.gpu_id for row in chosen.rows for card in row.cards]
        entries = await uow.bookings.entries(now, to_moment(end), here, limit=_MOST_ENTRIES)
        sight = await sight_of(uow, visit.principal, visit.services.settings.holders)
        others = [entry for entry in entries.single if entry.id not in without]
        seen = see_entries(others, chosen.rows, sight, window, now)
        rows = [draw_row(row, chosen.by, seen, slots, start, end) for row in chosen.rows]
        axis = ticks(start, end, visit.zone)
        return WaitingPicture(start, end, chosen.by, rows, axis, chosen.left_out, slot, estimate)

    return await visit.services.reads(read)


async def _slots_of(uow: UnitOfWork, job_id: str) -> dict[int, Range]:
    """The ranges of a waiting job's slot by GPU."""
    _, held = await uow.planning.changed([job_id], timedelta(0), {job_id})
    return {row.gpu_id: (to_micros(row.start), to_micros(row.end)) for row in held}


def _free_then(cards: Sequence[BookableGpu], request: _Request, estimate: Range, beside: int) -> dict[int, Range]:
    """GPUs on which the request could run when it is expected to, and for `beside` longer."""
    wanted = Wanted(request.size.gpus, request.size.nodes, request.gpu_type)
    start = estimate[0] + _A_MILLISECOND  # REST cuts times to milliseconds
    return {gpu.gpu_id: estimate for gpu in choose(cards, wanted, start, estimate[1] + beside) or ()}


async def _ask(visit: Visit, request: _Request, chosen: SmallerRequest, expected: Range | None) -> WhatIf:
    body = {
        **request.body,
        "gpus": chosen.size.gpus,
        "nodes": chosen.size.nodes,
        "duration": int(chosen.length.total_seconds()),
        "gpu_type": request.gpu_type,
    }
    found = await prospects_of(visit.rest, {name: value for name, value in body.items() if value is not None})
    begins = None if found.answer is None else found.answer.starts_at
    if begins is None:
        return WhatIf(chosen, found.answer, found.problem, None, None, None)
    sooner = None if expected is None else to_moment(expected[0]) - begins
    ends = to_micros(begins + chosen.length)
    return WhatIf(chosen, found.answer, found.problem, to_micros(begins), ends, sooner)
