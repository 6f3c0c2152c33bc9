"""Slots along chains: a job that waits for others is promised a start that follows from their ends.

Such a job is not in the queue, and can't start before it is released; its slot stands in the calendar like any other.
It is given after those of jobs that wait for none, in queue order, and begins no earlier than what the job waits for
ends at the latest: by its slot, or by the GPUs that it has. It is moved to earlier times as these ends become earlier.
When they become later, or the slot has come and the job still waits, the job gets the next slot that follows them, with
the reason; none while an end is not known.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from reservation_core.domain.plan import PlannedSlot, Waiting
from reservation_core.domain.planning.chains.chain_links import IN_TIME, ChainLinks, Floor, SpanOf, floor_of, late_by
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.slot_decisions import UNUSABLE, SlotPlan, SlotSearch, no_slot

_LINED_UP = 16
"""After how many jobs that are lined up it is asked whether there is time."""

NOT_RELEASED = "What it waited for was over, but it was not released in time."


def plan_chain_slots(
    links: ChainLinks,
    pictures: Iterable[Picture],
    span_of: SpanOf,
    now: datetime,
    promises: int,
    limit: int,
    enough: Callable[[], bool] = lambda: False,
) -> SlotPlan:
    """Slots for jobs that wait for others, `promises` at most: of those that have to be looked at.

    The decision is applied to the pictures at once. Looks at `limit` jobs at most, at one at least, and at no more when
    `enough` says so.
    """
    places: list[_Place] = []
    late: dict[str, int] = {}
    for picture in pictures:
        at = picture.catch_up(now)
        late |= {job_id: by for job_id in picture.ledger.due if (by := late_by(picture.ledger, job_id, at))}
        if not picture.dependants:
            continue
        for profile in picture.pools.profiles.values():
            profile.refresh()
        places.append(_Place(picture, SlotSearch(picture, at), at))
        due = picture.ledger.due & picture.dependants.keys()
        links.news.update(job_id for job_id in due if job_id not in links.turns)
    links.note_late(late)
    plan = _ChainPlan(links, span_of, places, promises)
    more = plan.look(limit, enough)
    return SlotPlan(list(plan.decided.values()), more)


@dataclass(frozen=True, slots=True)
class _Place:
    """A picture and the search for slots in it, at one time."""

    picture: Picture
    search: SlotSearch
    at: int


@dataclass(slots=True)
class _ChainPlan:
    """One call of `plan_chain_slots`. The last decision on a job stands, where it was made."""

    links: ChainLinks
    span_of: SpanOf
    places: list[_Place]
    promises: int
    decided: dict[str, PlannedSlot] = field(default_factory=dict)
    given: int | None = None

    def look(self, limit: int, enough: Callable[[], bool]) -> bool:
        """Look at jobs with news; true when some are left.

        Those with a slot go first, as they were submitted: what a job follows has got its new slot before. So none is
        looked at before all are lined up.
        """
        turns = self.links.turns
        looked_at = 0
        while self._line_up_news(enough) and (job_id := turns.first) is not None:
            place = self._place_of(job_id)
            if place is None:  # it waits for others no longer
                turns.take_first()
                continue
            job = self.links.jobs[job_id]
            if looked_at == limit or (looked_at and enough()) or not place.search.is_ready(job, enough):
                return True
            looked_at += 1
            turns.take_first()
            slot = self._decide(job, place)
            if slot is not None:
                before = self.decided.pop(job_id, None)
                because = slot.because if before is None else slot.because or before.because
                self.decided[job_id] = replace(slot, because=because)
                self.links.news.update(self.links.dependants(job_id))
        return bool(self.links.news)

    def _line_up_news(self, enough: Callable[[], bool]) -> bool:
        """Line the jobs up that have news; false when there is no time for all."""
        news = self.links.news
        lined_up = 0
        while news:
            if lined_up and lined_up % _LINED_UP == 0 and enough():
                return False
            lined_up += self._line_up(news.pop())
        return True

    def _line_up(self, job_id: str) -> bool:
        """Line a job up; false if it is lined up already, or waits for others no longer."""
        place = None if job_id in self.links.turns else self._place_of(job_id)
        if place is None:
            return False
        job = self.links.jobs[job_id]
        if job_id in place.picture.ledger.slots:
            self.links.turns.add(job_id, (False, (0, 0, 0, job.seq)))
        else:
            self.links.turns.add(job_id, (True, place.picture.queue.order(job)))
        return True

    def _place_of(self, job_id: str) -> _Place | None:
        return next((place for place in self.places if job_id in place.picture.dependants), None)

    def _decide(self, job: Waiting, place: _Place) -> PlannedSlot | None:
        """A slot for a job, an earlier one, or instead of one that can't be had another, or none."""
        picture, search, at = place.picture, place.search, place.at
        slot = picture.ledger.slots.get(job.id)
        if slot is None and job.id in picture.ledger.by_reservation:
            return None  # it has just started
        floor = floor_of(job, self.span_of, at)
        if slot is None:
            if floor.at is None or not job.needs or self._slots_given() >= self.promises:
                return None
            found = search.find_slot(job, None, floor.at)
            if not found.gpus:
                return None
            self.given = self._slots_given() + 1
            return found
        because = _broken(job, floor, slot[0], place)
        if because is None:
            may_move = job.needs and floor.at is not None and floor.at < slot[0]
            return search.move_earlier(job, slot[0], floor.at) if may_move and floor.at is not None else None
        picture.drop_slot(job.id)
        picture.pools.refresh(at)
        if floor.at is None:
            return no_slot(job, at, because)
        return search.find_slot(job, because, floor.at)

    def _slots_given(self) -> int:
        """How many of these jobs have a slot; at least as many, once some were given up."""
        if self.given is None:
            pictures = [place.picture for place in self.places]
            self.given = sum(len(picture.dependants.keys() & picture.ledger.slots.keys()) for picture in pictures)
        return self.given


def _broken(job: Waiting, floor: Floor, start: int, place: _Place) -> str | None:
    """Why a job can't have its slot; None if it can."""
    if place.picture.pools.pool_of(job.id) is None:
        return UNUSABLE
    if floor.known_end <= start + IN_TIME and place.at < start + IN_TIME:
        return None
    if floor.need is None:
        return NOT_RELEASED
    verb = "run" if floor.need.by_start else "end"
    if floor.at is None:
        return f"It waits for {floor.need.job} to {verb}, and when that will be is not known."
    return f"It waits for {floor.need.job} to {verb}, which comes later than was planned."
