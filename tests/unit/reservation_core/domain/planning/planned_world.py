"""The true state of a small world, the planner that is told of it, and a look by brute force at what it decides."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

from reservation_core.domain.cards.link_words import read_links
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, PlannedSlot, Start, Waiting
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.policy.limits import NO_POLICY, Policy
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.quota_windows import WEEK, Held, gpu_time, week_start
from reservation_core.domain.policy.rules import Holding, RuleBreach, RuleRequest, UsageView, check
from reservation_core.domain.statuses import ReservationKind
from tests.unit.reservation_core.domain.planning.worlds import (
    choices,
    fits_at,
    is_free,
    snapshot,
    types_for,
)

MANY = 1000
LINKS = (None, None, read_links("NV4 0,2 1,3 4,6 5,7"), read_links("0-3 4-7"), read_links("NV18 0-7"))
NAMES = {0: "ann", 1: "bob", 2: "cid"}
PROJECTS = (None, "lab", None)
EVE = datetime.fromisoformat("2026-01-04T23:30:00+00:00")
"""Half an hour before a week ends."""
QUOTAS = (RuleName.MAX_GPUS, RuleName.MAX_GPU_HOURS_PER_WEEK)


@dataclass(frozen=True)
class Owned:
    """The owner of a thing, and how many things there were before it was given."""

    owner: int
    project: str | None
    kind: ReservationKind
    made: int


class PlannedWorld:
    """The true state, and what the planner makes of it."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        limit: int,
        chance: Random,
        policy: Policy = NO_POLICY,
        *,
        oracle: bool = False,
        late: timedelta = timedelta(0),
    ) -> None:
        self.late = late
        self.chance = chance
        self.nodes = nodes = tuple(replace(node, links=chance.choice(LINKS)) for node in nodes)
        self.limit = limit
        self.policy = policy
        self.oracle = oracle
        self.placement = chance.choice(list(PlacementPolicy))
        self.planner = CalendarPicture(snapshot(nodes, (), ()), self.placement)
        self.now = EVE
        self.cards = {gpu.id: gpu for node in nodes for gpu in node.gpus}
        self.waiting: dict[str, Waiting] = {}
        self.running: dict[str, list[Commitment]] = {}
        self.booked: dict[str, list[Commitment]] = {}
        self.slots: dict[str, PlannedSlot] = {}
        self.owned: dict[str, Owned] = {}
        self.spent: list[Holding] = []
        self.shares: dict[int, int] = {}
        self.promises: dict[str, datetime] = {}
        self.started: dict[str, datetime] = {}
        self.next_seq = 1
        self.made = 0
        self.refused = 0
        if not policy.is_empty:
            self.planner.common.set_quotas(QuotaBook(policy, NAMES))

    # --- what is true ---

    def rows(self, without: str = "", within: str | None = None) -> list[Commitment]:
        """Every open row of one layer of the ledger but those of one reservation."""
        its = [row for some in (self.running, self.booked) for owner in some if owner != without for row in some[owner]]
        its += [row for owner, slot in self.slots.items() if owner != without for row in rows_of(slot)]
        return [row for row in its if row.booking_id == within]

    def holdings(self, without: str = "", before: int | None = None) -> list[Holding]:
        """What counts against quotas: all, or what is still there of what there was before something was made."""
        counted: dict[tuple[str, str, datetime, datetime], int] = {}
        for row in self.rows(without):
            key = (row.reservation_id, self.cards[row.gpu_id].gpu_type, row.start, row.end)
            counted[key] = counted.get(key, 0) + 1
        found = list(self.spent) if before is None else []
        for (reservation_id, gpu_type, start, end), gpus in counted.items():
            whose = self.owned[reservation_id]
            if before is None or whose.made < before:
                user = NAMES[whose.owner]
                found.append(Holding(reservation_id, whose.kind, user, whose.project, gpu_type, gpus, start, end))
        return found

    def over(
        self, wanted: Waiting, gpu_type: str, start: datetime, end: datetime, held: list[Holding]
    ) -> list[RuleBreach]:
        """The quotas that a job would break beside all that is held."""
        request = replace(self.asked(wanted, gpu_type), start=start, duration=end - start)
        found = check(request, self.policy, UsageView(tuple(held)), self.now)
        return [breach for breach in found if breach.code in QUOTAS]

    def asked(self, wanted: Waiting, gpu_type: str | None) -> RuleRequest:
        """What a job asks of the policy."""
        return RuleRequest(
            kind=ReservationKind.JOB,
            user=NAMES[wanted.owner],
            project=wanted.project,
            gpus=wanted.gpus * wanted.nodes,
            duration=wanted.length,
            gpu_type=gpu_type,
        )

    def could_ever(self, wanted: Waiting) -> bool:
        """Whether there is a place for it at all, and a quota that allows it some day."""
        if wanted.booking_id is not None:
            return False
        for gpu_type in types_for(self.nodes, wanted):
            # Over the turn of a week it counts half in each.
            turn = week_start(self.now) + 50 * WEEK - wanted.length / 2
            if any(choices(self.nodes, wanted, gpu_type)) and not self.over(
                wanted, gpu_type, turn, turn + wanted.length, []
            ):
                return True
        return False

    def left_out(self) -> list[str]:
        """Jobs within bookings that have no slot, and for which their booking has a place."""
        return [
            wanted.id
            for wanted in self.waiting.values()
            if wanted.booking_id is not None
            and wanted.id not in self.slots
            and self._earliest_within(wanted, self.rows(wanted.id, wanted.booking_id), wanted.booking_id) is not None
        ]

    # --- telling the planner, and what it decides ---

    def tell(self, reservation_id: str) -> None:
        rows = [*self.running.get(reservation_id, ()), *self.booked.get(reservation_id, ())]
        if reservation_id in self.slots:
            rows += rows_of(self.slots[reservation_id])
        self.planner.set_reservation(reservation_id, self.waiting.get(reservation_id), rows)

    def plan(self) -> None:
        if not self.policy.is_empty:
            waits = self.waiting.keys()
            held = [
                holding for holding in self.holdings() if holding.reservation_id and holding.reservation_id not in waits
            ]
            self.planner.common.note_held([*held, *self.spent])
        for _ in range(MANY):
            starts = self.planner.plan_starts(self.now, self.limit)
            for start in starts:
                self._start(start)
            plan = self.planner.plan_slots(self.now, MANY, self.limit)
            for slot in plan.slots:
                self._give(slot)
            if not plan.more and len(starts) < self.limit:
                return
        raise AssertionError("there is no end to planning")

    def _start(self, start: Start) -> None:
        wanted = self.waiting.pop(start.id)
        slot = self.slots.pop(start.id, None)
        # Nobody is disturbed: not those who run, what is booked, nor anybody's slot.
        others = self.rows(within=start.booking_id)
        assert all(is_free(self.cards[gpu.gpu_id], others, start.start, start.end, self.now) for gpu in start.gpus)
        assert start.start == self.now
        in_slot = slot is not None and slot.start <= self.now
        if start.booking_id is None:
            assert start.end >= self.now + wanted.length or (in_slot and slot is not None and start.end >= slot.end)
            before = self.owned[start.id].made if in_slot else None
            held = self.holdings(start.id, before)
            assert self.over(wanted, self._type(start), start.start, start.end, held) == []
        else:
            assert start.end == min(self.now + wanted.length, self._end_of(start.booking_id)) or in_slot
            self._check_within(start, start.booking_id)
        self.started[start.id] = self.now
        self.running[start.id] = [
            Commitment(start.id, gpu.gpu_id, start.start, start.end, True, booking_id=start.booking_id)
            for gpu in start.gpus
        ]
        self._own(start.id, wanted.owner, wanted.project, ReservationKind.JOB)
        assert self.now <= self.promises.get(start.id, self.now) + self.late

    def _give(self, slot: PlannedSlot) -> None:
        wanted = self.waiting[slot.id]
        before = self.slots.get(slot.id)
        assert before is None or slot.start < before.start
        others = self.rows(slot.id, slot.booking_id)
        assert all(is_free(self.cards[gpu.gpu_id], others, slot.start, slot.end, self.now) for gpu in slot.gpus)
        if slot.booking_id is None:
            held = self.holdings(slot.id)
            assert self.over(wanted, self._type(slot), slot.start, slot.end, held) == []
            if self.oracle:
                assert slot.start == self._earliest(wanted, others, held)
        else:
            self._check_within(slot, slot.booking_id)
            if self.oracle:
                assert slot.start == self._earliest_within(wanted, others, slot.booking_id)
        self.slots[slot.id] = slot
        self._own(slot.id, wanted.owner, wanted.project, ReservationKind.JOB)
        self.promises.setdefault(slot.id, slot.start)
        assert slot.start <= self.promises[slot.id]

    def _own(self, reservation_id: str, owner: int, project: str | None, kind: ReservationKind) -> None:
        self.made += 1
        self.owned[reservation_id] = Owned(owner, project, kind, self.made)

    def _type(self, placed: Start | PlannedSlot) -> str:
        [gpu_type] = {self.cards[gpu.gpu_id].gpu_type for gpu in placed.gpus}
        return gpu_type

    def _end_of(self, booking_id: str) -> datetime:
        return self.booked[booking_id][0].end

    def _check_within(self, placed: Start | PlannedSlot, booking_id: str) -> None:
        """It lies within its booking's cards and time."""
        rows = self.booked[booking_id]
        assert {gpu.gpu_id for gpu in placed.gpus} <= {row.gpu_id for row in rows}
        assert rows[0].start <= placed.start < placed.end <= rows[0].end

    # --- oracles ---

    def _earliest(self, wanted: Waiting, rows: list[Commitment], held: list[Holding]) -> datetime | None:
        times = {self.now} | {row.end for row in rows} | set(self._turns(wanted, held))
        for start in sorted(time for time in times if time >= self.now):
            for gpu_type in types_for(self.nodes, wanted):
                if fits_at(self.nodes, rows, wanted, gpu_type, start, self.now) and not self.over(
                    wanted, gpu_type, start, start + wanted.length, held
                ):
                    return start
        return None

    def _turns(self, wanted: Waiting, held: list[Holding]) -> Iterator[datetime]:
        """The times from which on just as much lies in a week as there is room for."""
        last = max([self.now, *(holding.end for holding in held)]) + 2 * WEEK
        gpus = wanted.gpus * wanted.nodes
        for gpu_type in types_for(self.nodes, wanted):
            for name, limit in self.policy.limits(NAMES[wanted.owner], wanted.project, gpu_type):
                if name is not RuleName.MAX_GPU_HOURS_PER_WEEK or limit.value is None:
                    continue
                its = [
                    Held(holding.gpus, holding.start, holding.end)
                    for holding in held
                    if limit.scope.gpu_type in (None, holding.gpu_type)
                    and _counts(holding, limit.scope, NAMES[wanted.owner])
                ]
                week = week_start(self.now)
                while week < last:
                    room = limit.value * timedelta(hours=1) - gpu_time(its, week, week + WEEK)
                    yield week + WEEK - max(room, timedelta(0)) // gpus
                    week += WEEK

    def _earliest_within(self, wanted: Waiting, rows: list[Commitment], booking_id: str) -> datetime | None:
        """The first time at which enough of the booking's cards are free till the job or the booking ends."""
        its = self.booked[booking_id]
        ids = {row.gpu_id for row in its}
        part = [replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.id in ids)) for node in self.nodes]
        since, end = max(self.now, its[0].start), its[0].end
        for start in sorted({since} | {row.end for row in rows if since < row.end < end}):
            cut = replace(wanted, length=min(wanted.length, end - start))
            if any(fits_at(part, rows, cut, gpu_type, start, self.now) for gpu_type in types_for(part, wanted)):
                return start
        return None

    # --- what people do ---


def rows_of(slot: PlannedSlot) -> list[Commitment]:
    """The ledger's rows that a slot becomes."""
    return [
        Commitment(slot.id, gpu.gpu_id, slot.start, slot.end, False, planned=True, booking_id=slot.booking_id)
        for gpu in slot.gpus
    ]


def _counts(holding: Holding, scope: Scope, user: str) -> bool:
    return holding.project == scope.project if scope.project is not None else holding.user == user
