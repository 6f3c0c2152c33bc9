"""Kinds of events in words, for tables and pages. Filters and JSON have the kinds themselves."""

import re
from collections.abc import Mapping

from reservation_core.domain.event_kinds import (
    BookingEventKind,
    EventKind,
    JobEventKind,
    NodeEventKind,
    PeopleEventKind,
    PodEventKind,
    SystemEventKind,
    all_kinds,
)

_SHORT = re.compile(r"\b(?:gpu|ssh)\b")
_SAID: Mapping[EventKind, str] = {
    JobEventKind.ALLOCATED: "GPUs given to it",
    JobEventKind.ADOPTED: "found running, and recorded",
    JobEventKind.START_PROMISE_MISSED: "promised start lost",
    JobEventKind.DEPENDENCIES_MET: "jobs before it are over",
    JobEventKind.RETRIED: "runs again",
    JobEventKind.ELEMENTS_CHANGED: "elements started or ended",
    JobEventKind.END_WARNING: "ends soon",
    JobEventKind.END_REACHED: "its time is over",
    JobEventKind.IDLE_WARNING: "its GPUs are idle",
    JobEventKind.IDLE_WARNING_OVER: "its GPUs are in use again",
    JobEventKind.IDLE_RELEASED: "ended because its GPUs were idle",
    JobEventKind.KEPT: "kept, although its GPUs are idle",
    JobEventKind.END_SIGNALLED: "signalled that it ends soon",
    JobEventKind.PREEMPTION_ASKED: "asked to give its GPUs back",
    JobEventKind.PREEMPTED: "gave its GPUs back",
    JobEventKind.BOOKING_OVER: "its booking is over",
    JobEventKind.MAINTENANCE_AFFECTS: "affected by maintenance",
    JobEventKind.LOG_NOT_KEPT: "output not kept",
    JobEventKind.ENTERED: "entered by a shell",
    JobEventKind.UNSHARED: "no longer shared",
    JobEventKind.GPU_QUARANTINED: "a GPU of the job quarantined",
    BookingEventKind.WAITLISTED: "booking put on the waitlist",
    BookingEventKind.STARTING_SOON: "booking starts soon",
    BookingEventKind.NO_SHOW_WARNING: "booking not used so far",
    BookingEventKind.ENDING_SOON: "booking ends soon",
    BookingEventKind.RELEASED: "booking given up",
    BookingEventKind.WAIT_EXPIRED: "nothing came free for the booking",
    PodEventKind.ADMITTED: "pod let in",
    PodEventKind.END_WARNED: "end of the pod announced",
    PodEventKind.END_ASKED: "pod asked to end",
    PodEventKind.END_REFUSED: "end of the pod refused",
    PodEventKind.DISPLACED: "pod ended before its time",
    NodeEventKind.GPU_SLOW_OVER: "GPU no longer slow",
    NodeEventKind.MAINTENANCE_CARDS_JOINED: "GPUs joined the maintenance",
    NodeEventKind.UNKNOWN_POD: "unknown pod found",
    NodeEventKind.UNKNOWN_POD_END_REQUESTED: "end of the unknown pod requested",
    NodeEventKind.UNKNOWN_POD_OVER: "unknown pod gone",
    NodeEventKind.ORPHAN_REMOVED: "pod without a job removed",
    PeopleEventKind.SESSION_BEGUN: "browser signed in",
    PeopleEventKind.CALENDAR_FEED_MADE: "calendar address made",
    PeopleEventKind.CALENDAR_FEED_REMOVED: "calendar address removed",
    PeopleEventKind.NOTICE_TARGET_CREATED: "notification address added",
    PeopleEventKind.NOTICE_TARGET_REMOVED: "notification address removed",
    PeopleEventKind.NOTICE_PREFERENCES_CHANGED: "notification choices changed",
    PeopleEventKind.PROJECT_DIGEST: "weekly digest of the project",
    SystemEventKind.DEAD_LETTERS_REDRIVEN: "dead letters sent again",
    SystemEventKind.CLOCK_STEPPED: "clock jumped",
}
"""What the name of a kind does not say by itself."""
_WORDS: Mapping[str, str] = {kind.value: words for kind, words in _SAID.items()}


def kind_words(kind: str) -> str:
    """A kind in words, also one of an older version."""
    said = _WORDS.get(kind)
    return _SHORT.sub(lambda word: word[0].upper(), kind.replace("_", " ")) if said is None else said


def kind_named(text: str) -> str:
    """The kind of which these are the words; other text as it is."""
    return next((kind for kind in all_kinds() if kind_words(kind) == text), text)
