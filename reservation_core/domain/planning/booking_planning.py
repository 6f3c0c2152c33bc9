"""Starts within one booking: its GPUs are a pool of their own, from its start to its end.

A job in a booking ends by the booking's end at the latest, whatever it asked for: it fits as soon as GPUs of the
booking are free of the booking's other jobs, for as long as there is left. It gets no GPUs of nodes of which it asks
for more than these GPUs are.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

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


class BookingPool:
    """The picture of one booking, kept up to date; made anew when something about its GPUs changes.

    The slot of a `_former` job is on a node that has become too small. It stays in the picture, under another name and
    as nobody's, until the job is placed anew, or is found to have no other place.
    """

    def __init__(self, booking_id: str, policy: PlacementPolicy = DEFAULT_POLICY) -> None:
        self.booking_id = booking_id
        self._policy = policy
        self.waiting: dict[str, Waiting] = {}
        self.rows: dict[str, tuple[Commitment, ...]] = {}
        self.changed = True
        self.slots_wanted = True
        self._look_again_at = FOREVER
        self._picture: Picture | None = None
        self._whole: list[Node] = []
        self._part: list[Node] = []
        self._end = datetime.max.replace(tzinfo=UTC)
        self._former: set[str] = set()
        self._freed = False

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
        self.changed = self.slots_wanted = True
        if self._picture is not None:
            self._draw(self._picture, reservation_id)

    def forget(self) -> None:
        """Look at it anew: something about its GPUs has changed."""
        self.changed = self.slots_wanted = True
        self._picture = None

    def note_time(self, now: int) -> None:
        """Look again when a time was reached at which something in it begins or ends."""
        if now >= self._look_again_at:
            self.changed = self.slots_wanted = True
            self._look_again_at = FOREVER

    def take_picture(
        self, nodes: Iterable[Node], own: Sequence[tuple[int, Row]], holds: Iterable[tuple[int, Row]], now: datetime
    ) -> Picture | None:
        """The picture of it: `own` are the booking's rows by GPU, `holds` those of others whose pods may be there.

        None when the booking has no GPUs, or is over.
        """
        if self._picture is not None and now < self._end:
            return self._picture
        self._picture = None
        if not own:
            return None
        cards = dict(own)
        self._end = to_moment(max(row[1] for row in cards.values()))
        if self._end <= now:
            return None
        self._whole = [node for node in nodes if any(gpu.id in cards for gpu in node.gpus)]
        self._part = [replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.id in cards)) for node in self._whole]
        rows = [
            Commitment(_BEFORE, gpu_id, now, to_moment(start), False)
            for gpu_id, (start, _, _, _) in cards.items()
            if start > to_micros(now)
        ]
        rows += [
            Commitment(owner, gpu_id, to_moment(start), to_moment(end), True)
            for gpu_id, (start, end, _, owner) in holds
            if owner not in self.rows
        ]
        snapshot = PlanningSnapshot(tuple(self._part), tuple(rows), (), frozenset())
        self._picture = Picture(snapshot, self._policy, until=to_micros(self._end))
        self._former.clear()
        for reservation_id in {**self.rows, **self.waiting}:
            self._draw(self._picture, reservation_id)
        return self._picture

    def _draw(self, picture: Picture, reservation_id: str) -> None:
        """Put one of its jobs into the picture, without its amounts: among those that wait if it can be placed."""
        job, rows = self.waiting.get(reservation_id), self.rows.get(reservation_id, ())
        small = frozenset() if job is None else too_small(job, self._whole)
        able = None if job is None else placeable(job, small, self._part)
        too_few = {gpu.id for node in self._part if node.name in small for gpu in node.gpus}
        self._freed = self._freed or _gives_back(picture.ledger.by_reservation.get(reservation_id, ()), rows)
        self._free_former(picture, reservation_id)
        if any(row.planned and row.gpu_id in too_few for row in rows):
            name = _FORMER + reservation_id
            picture.set_reservation(name, None, [replace(row, reservation_id=name, planned=False) for row in rows])
            self._former.add(reservation_id)
            rows = ()
        picture.set_reservation(reservation_id, able, rows)

    def _free_former(self, picture: Picture, job_id: str) -> None:
        if job_id in self._former:
            self._former.remove(job_id)
            self._freed = True
            picture.set_reservation(_FORMER + job_id, None, ())

    def _note(self, picture: Picture, placed: Start | PlannedSlot, *, held: bool) -> None:
        """Note the rows of a job that was placed, or lost its place."""
        span = placed.start, placed.end
        self._freed = self.rows.pop(placed.id, None) is not None or self._freed
        if placed.gpus:
            self.rows[placed.id] = tuple(
                Commitment(placed.id, gpu.gpu_id, *span, held, planned=not held, booking_id=self.booking_id)
                for gpu in placed.gpus
            )
        self._free_former(picture, placed.id)

    def plan_starts(self, picture: Picture | None, now: datetime, limit: int) -> list[Start]:
        """Decide which jobs start now, and note their starts here, too."""
        if picture is None:
            self.changed = False
            return []
        starts = []
        for job_start in plan_starts(picture, now, limit):
            had_slot = any(row.planned for row in self.rows.get(job_start.id, ()))
            starts.append(replace(job_start, had_slot=had_slot))
            del self.waiting[job_start.id]
            self._note(picture, job_start, held=True)
        self.changed = len(starts) == limit
        self._await(picture)
        return starts

    def plan_slots(
        self, picture: Picture | None, now: datetime, limit: int, enough: Callable[[], bool]
    ) -> list[PlannedSlot]:
        """Slots for the jobs that wait in it; none for a job that could start only when it is over.

        After all had their turn, those without a slot have another if something was given back meanwhile.
        """
        self.slots_wanted = False
        if picture is None:
            return []
        plan = plan_slots(picture, now, len(self.waiting), limit, enough)
        for slot in plan.slots:
            self._note(picture, slot, held=False)
        given_up = [] if plan.more else [self._give_up(picture, job_id, now) for job_id in sorted(self._former)]
        if self._freed and not plan.more:
            picture.queue.release_all()
            self._freed = False
        # Those that can start go first.
        self.changed = self.slots_wanted = plan.more or bool(picture.pools.dirty or picture.queue.arrivals)
        self._await(picture)
        return plan.slots + given_up

    def _give_up(self, picture: Picture, job_id: str, now: datetime) -> PlannedSlot:
        """The end of a slot on nodes that have become too small, of a job that is not placed anew."""
        job = self.waiting[job_id]
        is_placeable = job_id in picture.queue.jobs  # only the time is too short
        reason = (
            booking_too_full(self.booking_id) if is_placeable else share_too_small(self.booking_id, job.share or UNSAID)
        )
        slot = PlannedSlot(job.id, now, now, (), job.version, self.booking_id, reason.detail)
        self._note(picture, slot, held=False)
        return slot

    def _await(self, picture: Picture) -> None:
        self._look_again_at = min(picture.ledger.next_edge, to_micros(self._end))

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
            start = estimate.estimated_start_at
            if start is None or start >= self._end or estimate.id in picture.queue.barred:
                answer.append(replace(estimate, reason=booking_too_full(self.booking_id), estimated_start_at=None))
            else:
                answer.append(estimate)
        # Those that no node of it is large enough for are not in its queue.
        greedy = sorted(
            (job for job_id, job in self.waiting.items() if job_id not in picture.queue.jobs), key=lambda job: job.key
        )
        return answer + [
            WaitEstimate(job.id, place, share_too_small(self.booking_id, job.share or UNSAID), None)
            for place, job in enumerate(greedy, len(answer) + 1)
        ]


def _gives_back(before: Iterable[tuple[int, Row]], rows: Iterable[Commitment]) -> bool:
    """Whether a job has any GPU no longer, or for less time than before."""
    after = {row.gpu_id: row for row in rows}
    for gpu_id, (start, end, held, _) in before:
        row = after.get(gpu_id)
        if row is None or to_micros(row.end) < end or (to_micros(row.start) > start and not (held and row.held)):
            return True
    return False
