"""A job's life as a timeline: its events, each state with its span."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from reservation_core.domain.history.event_words import kind_words
from reservation_core.domain.statuses import FINAL_STATUSES
from reservation_core.ports.history.events import EventRecord


@dataclass(frozen=True, slots=True)
class LifeStep:
    """What happened at a moment.

    `why`: the reason, None where the step before had the same. `lasted`: how long the job was in that state,
    None for other events.
    """

    at: datetime
    words: str
    why: str | None
    actor: str
    lasted: timedelta | None


def life_of(events: Sequence[EventRecord], now: datetime) -> list[LifeStep]:
    """The steps, oldest first."""
    moves = [event for event in events if event.after is not None and event.after != event.before]
    ends = {event.id: later.at for event, later in pairwise(moves)}
    steps = []
    said = None
    for event in events:
        moved = event.after is not None and event.after != event.before
        lasted = None
        if moved and event.after not in FINAL_STATUSES:
            lasted = ends.get(event.id, now) - event.at
        words = str(event.after) if moved else kind_words(event.kind)
        why = event.data.get("because") if event.reason is None else event.reason.detail
        steps.append(LifeStep(event.at, words, None if why == said else why, event.actor, lasted))
        said = why
    return steps
