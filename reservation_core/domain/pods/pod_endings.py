"""When a user's pod has to end, and what is due now: a warning, its end, or a notification.

The booking in our ledger decides if it is known; else the webhook's annotation as it was first read, so that removing
it or writing a later end has no effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import assert_never

from reservation_core.domain.statuses import BookingStatus
from reservation_core.domain.time_words import time_words


@dataclass(frozen=True, slots=True)
class GuardedPod:
    """A pod as the cluster shows it. `cards` are the indices of its GPUs; None if only their number `gpus` is known.

    `enforced`: bookings are enforced in its namespace; of other pods only their use matters. `leaving`: its deletion
    was requested. `finished_at`: it runs no more.
    """

    uid: str
    namespace: str
    name: str
    node: str | None = None
    owner: str | None = None
    booking_id: str | None = None
    marked_end: datetime | None = None
    preemptible: bool = False
    gpus: int = 0
    gpu_type: str | None = None
    cards: tuple[int, ...] | None = None
    priority: int = 0
    began: datetime | None = None
    finished_at: datetime | None = None
    leaving: bool = False
    grace_s: int = 30
    enforced: bool = True

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class BookedTime:
    """A booking's status and slot."""

    booking_id: str
    user: str
    status: BookingStatus
    begins: datetime
    ends: datetime


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a pod.

    When it was first seen; its owner, booking, end and preemptibility as first read; and when it was warned last,
    first asked to end, first refused by a budget, and reported to administrators.
    """

    uid: str
    namespace: str
    name: str
    seen_at: datetime
    owner: str | None = None
    preemptible: bool = False
    booking_id: str | None = None
    end: datetime | None = None
    warned_at: datetime | None = None
    asked_at: datetime | None = None
    refused_at: datetime | None = None
    told_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class EndRules:
    """Seconds before the end at which the owner is warned.

    Then how long a disruption budget may keep a pod, and whether the pod is deleted after that.
    """

    warn_before_s: Sequence[int] = (1800, 900, 300)
    budget_patience: timedelta = timedelta(minutes=10)
    override_budgets: bool = False


class EndingStep(StrEnum):
    """The request to the cluster."""

    NOTHING = "nothing"
    EVICT = "evict"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Ending:
    """The next step for a pod, and what to remember. `end` None: it has none.

    `mark`: write `end` to the annotation. `asks`: it is asked to end for the first time. `displaced`: it ends early for
    others. `tells_refusal`: its budget has kept it too long, and that was not reported yet.
    """

    after: Memory
    end: datetime | None
    why: str
    step: EndingStep = EndingStep.NOTHING
    mark: bool = False
    warn: bool = False
    asks: bool = False
    displaced: bool = False
    tells_refusal: bool = False


def ending(
    pod: GuardedPod,
    memory: Memory | None,
    booking: BookedTime | None,
    displaced: str | None,
    rules: EndRules,
    now: datetime,
) -> Ending:
    """Decide about a pod in an enforced namespace.

    `booking` is the one of `booking_of`; `displaced`: why it has to end early.
    """
    before = remembered(pod, memory, now)
    end, why = _end(pod, before, booking, now)
    due = end is not None and now >= end
    if displaced is not None:
        due, why = True, displaced
    after = replace(before, end=end)
    if pod.finished_at is not None or pod.leaving:
        return Ending(after, end, why)
    mark = end is not None and not _same(pod.marked_end, end) and not due
    if not due:
        warn = end is not None and _warning_due(end, rules.warn_before_s, before.warned_at or pod.began or now, now)
        warned_at = now if warn else before.warned_at
        # A pod that may stay after all is announced again when its time comes.
        after = replace(after, asked_at=None, refused_at=None, told_at=None, warned_at=warned_at)
        return Ending(after, end, why, mark=mark, warn=warn)
    kept = before.refused_at is not None and now - before.refused_at >= rules.budget_patience
    tells = kept and before.told_at is None
    after = replace(after, asked_at=before.asked_at or now, told_at=now if tells else before.told_at)
    step = EndingStep.DELETE if kept and rules.override_budgets else EndingStep.EVICT
    asks = before.asked_at is None
    return Ending(after, end, why, step, asks=asks, displaced=displaced is not None, tells_refusal=tells)


def needed_by(reservation_id: str) -> str:
    """Why a preemptible pod ends."""
    return f"It was admitted without a booking, and its GPUs are needed for {reservation_id}."


def overbooked(booking_id: str, gpus: int) -> str:
    """Why a pod ends that was admitted to GPUs that others use."""
    owned = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    return (
        f"Its booking {booking_id} has {owned}, and pods that began before it use them. Ask for no more at once,"
        " or book more."
    )


def remembered(pod: GuardedPod, memory: Memory | None, now: datetime) -> Memory:
    """Remember a pod; its current annotations count only where nothing was read before."""
    if memory is None:
        return Memory(
            pod.uid, pod.namespace, pod.name, now, pod.owner, pod.preemptible, pod.booking_id, pod.marked_end
        )  # fmt: skip
    return replace(
        memory,
        owner=memory.owner or pod.owner,
        preemptible=memory.preemptible or pod.preemptible,
        booking_id=memory.booking_id or pod.booking_id,
    )


def _end(pod: GuardedPod, before: Memory, booking: BookedTime | None, now: datetime) -> tuple[datetime | None, str]:
    """When it has to end, and why then. Another user's booking is ignored."""
    if booking is not None and booking.user == before.owner:
        return _end_of(booking, before, now)
    known = [end for end in (before.end, pod.marked_end) if end is not None]
    if not known:
        return None, "Its end is unknown."
    return min(known), f"Its time was over at {time_words(min(known), UTC)}."


def _end_of(booking: BookedTime, before: Memory, now: datetime) -> tuple[datetime, str]:
    """The end by the booking; once that is over, the pod's end is when that was first seen."""
    match booking.status:
        case BookingStatus.CONFIRMED | BookingStatus.ACTIVE:
            if booking.begins > now:
                return _at_once(before, now), f"Its booking {booking.booking_id} was moved, and has not begun."
            return booking.ends, f"Its booking {booking.booking_id} ends at {time_words(booking.ends, UTC)}."
        case BookingStatus.ENDED:
            return min(booking.ends, now), f"Its booking {booking.booking_id} has ended."
        case BookingStatus.CANCELLED | BookingStatus.RELEASED | BookingStatus.EXPIRED:
            return _at_once(before, now), f"Its booking {booking.booking_id} was {booking.status.value}."
        case BookingStatus.WAITING | BookingStatus.OFFERED:
            return _at_once(before, now), f"Its booking {booking.booking_id} holds no GPUs: it is {booking.status}."
        case _:
            assert_never(booking.status)


def _at_once(before: Memory, now: datetime) -> datetime:
    return now if before.end is None else min(before.end, now)


def _same(marked: datetime | None, end: datetime) -> bool:
    """Marks are written in whole seconds."""
    return marked is not None and marked == end.replace(microsecond=0)


def _warning_due(end: datetime, before_s: Sequence[int], given: datetime, now: datetime) -> bool:
    return any(given < end - timedelta(seconds=before) <= now for before in before_s)
