"""The planner's whole picture: the common line, and the line of each booking within the booking's own cards."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime

from reservation_core.domain.calendar import Row, to_micros
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, LateStart, Start, WaitEstimate, Waiting
from reservation_core.domain.planning.booking_planning import BookingPool
from reservation_core.domain.planning.slot_decisions import SlotPlan
from reservation_core.domain.planning.start_decisions import PlanningState
from reservation_core.domain.planning.waiting_queue import Key
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.rules import Holding


class CalendarPicture:
    """Routes what is told to whom it concerns, and puts together what is decided.

    What runs within a booking is no part of the common calendar, where the booking itself is, but for one thing: while
    its pod may exist, nobody else can have its cards, however late it is.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        commitments: Iterable[Commitment],
        waiting: Iterable[Waiting],
        complete_types: frozenset[str | None],
        policy: PlacementPolicy = DEFAULT_POLICY,
    ) -> None:
        self._policy = policy
        self._nodes = tuple(nodes)
        rows = list(commitments)
        jobs = list(waiting)
        self._common = PlanningState(
            self._nodes,
            [row for row in rows if row.booking_id is None or row.held],
            [job for job in jobs if job.booking_id is None],
            complete_types,
            policy,
        )
        self._bookings: dict[str, BookingPool] = {}
        self._booking_of: dict[str, str] = {}
        within: dict[str, list[Commitment]] = {}
        for row in rows:
            if row.booking_id is not None:
                within.setdefault(row.reservation_id, []).append(row)
        in_line = {job.id: job for job in jobs if job.booking_id is not None}
        for reservation_id in {**within, **in_line}:
            self._set_within(reservation_id, in_line.get(reservation_id), within.get(reservation_id, []))

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace the inventory."""
        nodes = tuple(nodes)
        if nodes != self._nodes:
            self._nodes = nodes
            self._common.set_nodes(nodes)
            for pool in self._bookings.values():
                pool.forget()

    def set_shares(self, shares: Mapping[int, int]) -> None:
        """Among equal priorities of the common line, those go first whose owner has the smaller rank here."""
        self._common.set_shares(shares)

    def set_quotas(self, quotas: QuotaBook | None) -> None:
        """Quotas that hold from now on; what runs within a booking is the booking's."""
        self._common.set_quotas(quotas)

    def note_held(self, holdings: Iterable[Holding]) -> bool:
        """This is all that is held and booked; true when somebody has less than before."""
        return self._common.note_held(holdings)

    @property
    def owners(self) -> Set[int]:
        """Owners of jobs that were ever in the common queue."""
        return self._common.owners

    def set_reservation(self, reservation_id: str, waiting: Waiting | None, commitments: Sequence[Commitment]) -> None:
        """Replace everything known about one reservation; None and nothing mean that it is gone."""
        if self._bookings or self._booking_of or (waiting is not None and waiting.booking_id is not None):
            self._note_cards_of(reservation_id, commitments)
        if reservation_id in self._bookings:
            self._bookings[reservation_id].forget()
        within = [commitment for commitment in commitments if commitment.booking_id is not None]
        if within or reservation_id in self._booking_of or (waiting is not None and waiting.booking_id is not None):
            self._set_within(reservation_id, waiting, within)
            waiting = None if waiting is not None and waiting.booking_id is not None else waiting
            commitments = [commitment for commitment in commitments if commitment.booking_id is None or commitment.held]
        self._common.set_reservation(reservation_id, waiting, commitments)

    def _note_cards_of(self, reservation_id: str, commitments: Sequence[Commitment]) -> None:
        """A job that comes to a booking's card or leaves it concerns those that wait for it."""
        cards = {gpu_id for gpu_id, _ in self._common.rows_of(reservation_id)} | {
            commitment.gpu_id for commitment in commitments
        }
        for booking_id, pool in self._bookings.items():
            if cards.intersection(gpu_id for gpu_id, _ in self._common.rows_of(booking_id)):
                pool.forget()

    def _set_within(self, reservation_id: str, waiting: Waiting | None, rows: Sequence[Commitment]) -> None:
        booking_id = self._booking_of.pop(reservation_id, None)
        if waiting is not None and waiting.booking_id is not None:
            booking_id = waiting.booking_id
        elif rows:
            booking_id = rows[0].booking_id
        if booking_id is None:
            return
        pool = self._bookings.setdefault(booking_id, BookingPool(booking_id, self._policy))
        pool.set_reservation(reservation_id, waiting, rows)
        if waiting is not None or rows:
            self._booking_of[reservation_id] = booking_id
        if pool.empty:
            del self._bookings[booking_id]

    def slotted(self, ids: Iterable[str]) -> list[str]:
        """Those of these reservations that have a slot as far as is known."""
        return [
            reservation_id
            for reservation_id in ids
            if reservation_id in self._booking_of or self._common.has_slot(reservation_id)
        ]

    @property
    def in_line(self) -> Mapping[str, Waiting]:
        """Waiting jobs of the common queue, by id, as far as they are in memory."""
        return self._common.in_line

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the usable cards."""
        return self._common.types

    def type_of(self, gpu_id: int) -> str | None:
        """The type of a usable card."""
        return self._common.type_of(gpu_id)

    def forget_slot(self, job_id: str) -> None:
        """A slot that was decided was not written: the job has been changed, or is being changed just now."""
        booking_id = self._booking_of.get(job_id)
        if booking_id is None:
            self._common.forget_slot(job_id)
        else:
            pool = self._bookings[booking_id]
            pool.set_reservation(job_id, pool.waiting.get(job_id), ())

    def needs_refill(self, low_water: int) -> list[tuple[str | None, Key | None]]:
        """Requested types whose part of the common line in memory is short and goes on in the database."""
        return self._common.needs_refill(low_water)

    def refill(self, gpu_type: str | None, jobs: Sequence[Waiting], complete: bool) -> None:
        """Append the next jobs of one requested type's line; `complete` says that there are none after them."""
        self._common.refill(gpu_type, jobs, complete)

    def plan_starts(self, now: datetime, limit: int) -> list[Start]:
        """Decide which jobs start now, at most `limit`; the decision is applied to this picture at once."""
        starts = self._common.plan_starts(now, limit)
        for pool in list(self._bookings.values()):
            pool.note_time(to_micros(now))
            if len(starts) < limit and pool.changed and pool.waiting:
                starts += self._starts_within(pool, now, limit - len(starts))
        return starts

    def _starts_within(self, pool: BookingPool, now: datetime, limit: int) -> list[Start]:
        state = self._look(pool, now)
        starts = [] if state is None else pool.plan_starts(state, now, limit)
        pool.changed = pool.changed and state is not None
        for start in starts:
            self._common.set_reservation(start.id, None, pool.rows[start.id])
        return starts

    def _look(self, pool: BookingPool, now: datetime) -> PlanningState | None:
        own = self._common.rows_of(pool.booking_id)
        holds: list[tuple[int, Row]] = [
            (gpu_id, row) for gpu_id, _ in own for row in self._common.holds_on(gpu_id) if row[3] != pool.booking_id
        ]
        return pool.look(self._nodes, own, holds, now)

    def plan_slots(
        self, now: datetime, promises: int, limit: int, enough: Callable[[], bool] = lambda: False
    ) -> SlotPlan:
        """Slots for the first `promises` of the common line, and for all who wait within bookings.

        `enough` is asked after each job, and after each booking: true ends this part of the work.
        """
        plan = self._common.plan_slots(now, promises, limit, enough)
        slots = list(plan.slots)
        more = plan.more
        looked_at = 0
        for pool in self._bookings.values():
            if pool.waiting and pool.slots_wanted and not pool.changed:
                if looked_at and enough():
                    more = True
                    break
                looked_at += 1
                state = self._look(pool, now)
                if state is None:
                    pool.slots_wanted = False
                else:
                    slots += pool.plan_slots(state, now, limit)
        return SlotPlan(slots, more)

    def late(self, now: datetime) -> list[LateStart]:
        """Jobs that can't start although their slot has come, and the jobs in their way."""
        found = self._common.late(now)
        for pool in self._bookings.values():
            state = self._look(pool, now) if pool.waiting else None
            if state is not None:
                found += state.late(now)
        return found

    def lacks_slots(self, limit: int) -> bool:
        """Whether any of the first `limit` in the common line could have a slot and has none."""
        return self._common.lacks_slots(limit)

    def estimates(self, now: datetime, limit: int) -> list[WaitEstimate]:
        """What the first `limit` in the common line are told, and everybody who waits within a booking."""
        answer = self._common.estimates(now, limit)
        for pool in self._bookings.values():
            if pool.waiting:
                answer += pool.estimates(self._look(pool, now), now)
        return answer
