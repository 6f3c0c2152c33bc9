"""The verdict on a request before it is made: it would start now, be accepted and start later, or be refused.

A refusal is what submitting would answer. Everything else is accepted, however long it waits: a job starts at the
earliest fit in the calendar at which its quotas allow it, which is how the planner finds slots.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from reservation_core.domain.bookings.card_choice import LedgerGpu
from reservation_core.domain.bookings.nouns import Span
from reservation_core.domain.calendar import (
    OVERRUN,
    Range,
    earliest_start,
    length_micros,
    merge,
    node_windows,
    to_micros,
    to_moment,
)
from reservation_core.domain.model import Gpu, GpuCondition, Node, Reason, RequestVerdict
from reservation_core.domain.plan import Waiting
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.pools.waiting_reasons import (
    Capacity,
    booking_begins_then,
    booking_too_full,
    taken_until_then,
)


class VerdictReason(NamedTuple):
    """Why a request is refused, or what it waits for: a stable code and a sentence."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """A verdict with its reasons: what refuses the request, or all that it waits for.

    `starts_at` is about when it starts; None where it is refused, or no start can be told.
    """

    verdict: RequestVerdict
    starts_at: datetime | None = None
    reasons: tuple[VerdictReason, ...] = ()


def refused(broken: Iterable[RuleBreach]) -> Outlook:
    """The outlook of a request that submitting would refuse."""
    reasons = tuple(VerdictReason(breach.code, breach.detail) for breach in broken)
    return Outlook(RequestVerdict.REFUSED, None, reasons)


def booking_outlook(span: Span, missing: RuleBreach | None, now: datetime) -> Outlook:
    """The outlook of a booking that is allowed; `missing` says why it would be on the waitlist, if it would."""
    if missing is not None:
        return Outlook(RequestVerdict.ACCEPTED, None, (VerdictReason(missing.code, missing.detail),))
    if span.start <= now:
        return Outlook(RequestVerdict.STARTS_NOW, now)
    return Outlook(RequestVerdict.ACCEPTED, span.start)


def job_outlook(job: Waiting, gpus: Iterable[LedgerGpu], quotas: QuotaBook, now: datetime) -> Outlook:
    """The outlook of a job that submitting would accept, beside all that has these GPUs or is promised them."""
    nodes = _by_node(gpus)
    at, length = to_micros(now), length_micros(job.length)
    fits: list[tuple[int, str]] = []
    by_type = _windows(job, nodes, at)
    if not by_type:
        return _waits(None, Capacity(_inventory(nodes)).unplaceable(job.gpus, job.nodes, job.gpu_type))
    for gpu_type, windows in by_type.items():
        start = _earliest(job, gpu_type, windows, quotas, at)
        if start is not None:
            fits.append((start, gpu_type))
    # Every job fits some day: where none does, a quota is too small for it.
    start, gpu_type = min(fits, default=(None, min(by_type)))
    if start == at:
        return Outlook(RequestVerdict.STARTS_NOW, now)
    asker = job.asker(gpu_type)
    over = quotas.why_not(asker, job.all_gpus, length, at)
    if start is None or start == quotas.earliest(asker, job.all_gpus, length, at):
        return _waits(start, over)
    return _waits(start, over, taken_until_then(job.gpus, job.nodes, job.gpu_type))


def booked_job_outlook(job: Waiting, gpus: Iterable[LedgerGpu], booking: Span, now: datetime) -> Outlook:
    """The outlook of a job within a booking whose GPUs these are, each with the ranges of the booking's other jobs.

    It ends with the booking at the latest: it starts as soon as GPUs are free, for as long as there is left.
    """
    at = to_micros(now)
    before = max(at, to_micros(booking.start))
    fits = [
        start
        for windows in _windows(job, _by_node(gpus), before).values()
        if (start := earliest_start(windows, job.nodes, before)) is not None and start < to_micros(booking.end)
    ]
    booking_id = job.booking_id or ""
    if not fits:
        return _waits(None, booking_too_full(booking_id))
    if min(fits) == at:
        return Outlook(RequestVerdict.STARTS_NOW, now)
    if min(fits) == before:
        return _waits(before, booking_begins_then(booking_id))
    return _waits(min(fits), taken_until_then(job.gpus, job.nodes, job.gpu_type))


def _waits(start: int | None, *reasons: Reason | None) -> Outlook:
    named = tuple(VerdictReason(reason.code.value, reason.detail) for reason in reasons if reason is not None)
    return Outlook(RequestVerdict.ACCEPTED, None if start is None else to_moment(start), named)


def _earliest(
    job: Waiting, gpu_type: str, windows: Sequence[Sequence[Range]], quotas: QuotaBook, at: int
) -> int | None:
    """The first time from `at` on in the windows of enough nodes at which the quotas of this type allow the job."""
    asker, length = job.asker(gpu_type), length_micros(job.length)
    while True:
        allowed = quotas.earliest(asker, job.all_gpus, length, at)
        fit = None if allowed is None else earliest_start(windows, job.nodes, allowed)
        if fit is None or fit == allowed:
            return fit
        at = fit


def _windows(job: Waiting, nodes: Mapping[str, Sequence[LedgerGpu]], at: int) -> dict[str, list[list[Range]]]:
    """By type, the windows of each node in which the job fits on it; types without enough nodes are left out."""
    by_type: dict[str, list[list[Range]]] = {}
    for gpus in nodes.values():
        for gpu_type in {gpu.gpu_type for gpu in gpus if job.gpu_type in (None, gpu.gpu_type)}:
            busy = [_busy(gpu, at) for gpu in gpus if gpu.gpu_type == gpu_type and _is_usable(gpu)]
            windows = node_windows(busy, job.gpus, length_micros(job.length), at)
            if windows:
                by_type.setdefault(gpu_type, []).append(windows)
    return {gpu_type: windows for gpu_type, windows in by_type.items() if len(windows) >= job.nodes}


def _busy(gpu: LedgerGpu, at: int) -> list[Range]:
    overrun = [(at, at + OVERRUN)] if gpu.overrun else []
    return merge([*gpu.rows, *overrun])


def _is_usable(gpu: LedgerGpu) -> bool:
    return gpu.bookable and gpu.usable_now


def _by_node(gpus: Iterable[LedgerGpu]) -> dict[str, list[LedgerGpu]]:
    in_order = sorted(gpus, key=lambda gpu: (gpu.node, gpu.index))
    return {node: list(its) for node, its in groupby(in_order, key=lambda gpu: gpu.node)}


def _inventory(nodes: Mapping[str, Sequence[LedgerGpu]]) -> list[Node]:
    return [
        Node(
            name,
            tuple(
                Gpu(
                    gpu.gpu_id,
                    name,
                    gpu.index,
                    gpu.gpu_type,
                    condition=GpuCondition.USABLE if _is_usable(gpu) else GpuCondition.LOST,
                )
                for gpu in gpus
            ),
        )
        for name, gpus in nodes.items()
    ]
