"""Slots along random graphs of jobs, whatever these jobs do, against what is true."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.changes import DependenciesMet, DependencyFailed
from reservation_core.domain.jobs.asked_dependencies import DependencyState, DependencyWhen
from reservation_core.domain.jobs.dependencies import KnownDependency, settle
from reservation_core.domain.plan import Commitment, Need, PlannedSlot, Start, Waiting
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.standings import BY_AREA
from reservation_core.domain.statuses import JobStatus
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.worlds import (
    MINUTE,
    T0,
    at,
    fits_at,
    held,
    is_free,
    job,
    node,
    snapshot,
)

MANY = 1000
PATIENCE = 200
"""So often the planner may be asked at one time until it has decided all."""
SLACK = timedelta(seconds=2)


@dataclass
class Life:
    """A job of the world: what it asked for, what it waits for, and what has become of it."""

    asked: Waiting
    after: dict[str, DependencyWhen]
    status: JobStatus = JobStatus.QUEUED
    held: bool = False
    runs: bool = False
    rows: list[Commitment] = field(default_factory=list)
    slot: PlannedSlot | None = None
    promise: datetime | None = None
    missed: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.status in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)

    @property
    def all_rows(self) -> list[Commitment]:
        slot = self.slot
        planned = () if slot is None else slot.gpus
        return self.rows + [
            Commitment(slot.id, gpu.gpu_id, slot.start, slot.end, False, planned=True) for gpu in planned if slot
        ]


class ChainWorld:
    """The true state, what the planner makes of it, and checks of all that it decides."""

    def __init__(self, chance: Random, *, honest: bool) -> None:
        self.chance = chance
        self.honest = honest
        sizes = [chance.randint(1, 3) for _ in range(chance.randint(1, 2))]
        self.nodes = tuple(node(f"n{i}", size, first_id=10 * i + 1) for i, size in enumerate(sizes))
        self.cards = {gpu.id: gpu for one in self.nodes for gpu in one.gpus}
        self.planner = CalendarPicture(snapshot(self.nodes, (), ()))
        self.now = T0
        self.jobs: dict[str, Life] = {}

    # --- what people and jobs do ---

    def submit(self) -> None:
        chance, seq = self.chance, len(self.jobs) + 1
        asked = job(seq, chance.randint(1, 2), minutes=chance.choice([5, 10, 30]), priority=chance.choice([0, 0, 1]))
        open_ids = list(self.jobs)
        named = chance.sample(open_ids, min(len(open_ids), chance.choice([0, 1, 1, 2, 3])))
        life = Life(asked, {one: chance.choice(list(DependencyWhen)) for one in named}, held=bool(named))
        self.jobs[asked.id] = life
        self.settle(life)

    def go_on(self) -> None:
        chance = self.chance
        edges = sorted({edge for life in self.jobs.values() for row in life.all_rows for edge in (row.start, row.end)})
        later = [edge for edge in edges if edge > self.now]
        step = chance.choice([1, 30, 90, 300]) * timedelta(seconds=1)
        self.now = later[0] if later and (self.honest or chance.random() < 0.6) else self.now + step
        for life in self.jobs.values():
            self.live(life)

    def live(self, life: Life) -> None:
        """Something happens to a job that runs; it ends in time in an honest world."""
        if life.status is not JobStatus.RUNNING:
            return
        if not life.runs and (self.honest or self.chance.random() < 0.7):
            life.runs = True
            self.tell_dependants(life.asked.id)
        due = life.rows[0].end <= self.now
        if due and not self.honest and self.chance.random() < 0.5:
            return  # it overruns
        drawn = self.chance.random()
        if due or drawn < 0.15:
            self.end(life, self.chance.choice([JobStatus.SUCCEEDED, JobStatus.SUCCEEDED, JobStatus.FAILED]))
        elif not self.honest and drawn < 0.22:  # retried, or its node is lost: it waits again
            life.status, life.rows, life.runs, life.promise = JobStatus.QUEUED, [], True, None
            self.tell(life.asked.id)
            self.tell_dependants(life.asked.id)
        elif not self.honest and drawn < 0.3:
            longer = self.now + timedelta(minutes=20)
            rows = [replace(row, end=max(row.end, longer)) for row in life.rows]
            if all(
                is_free(self.cards[row.gpu_id], self.rows(life.asked.id), row.start, row.end, self.now) for row in rows
            ):
                life.rows = rows
                self.tell(life.asked.id)

    def cancel(self) -> None:
        waiting = [life for life in self.jobs.values() if life.status is JobStatus.QUEUED]
        if waiting:
            self.end(self.chance.choice(waiting), JobStatus.CANCELLED)

    def end(self, life: Life, status: JobStatus) -> None:
        life.status, life.rows, life.slot = status, [], None
        self.tell(life.asked.id)
        self.tell_dependants(life.asked.id)

    def tell_dependants(self, job_id: str) -> None:
        for life in list(self.jobs.values()):
            if job_id in life.after and life.held and life.status is JobStatus.QUEUED:
                self.settle(life)

    def settle(self, life: Life) -> None:
        """Go on with a job that waits for others, or end it."""
        event = settle(self.known(life))
        life.held = life.held and not isinstance(event, DependenciesMet)
        if isinstance(event, DependencyFailed):
            self.end(life, JobStatus.CANCELLED)
        else:
            self.tell(life.asked.id)

    # --- what is true ---

    def known(self, life: Life) -> list[KnownDependency]:
        return [
            KnownDependency(one, when, self.jobs[one].status, self.jobs[one].runs) for one, when in life.after.items()
        ]

    def needs(self, life: Life) -> list[KnownDependency]:
        return [dependency for dependency in self.known(life) if dependency.state is not DependencyState.MET]

    def rows(self, without: str = "") -> list[Commitment]:
        return [row for life in self.jobs.values() if life.asked.id != without for row in life.all_rows]

    def floor(self, life: Life, *, sure: bool = False) -> datetime | None:
        """From when on a job may start; None where that is not known: not `sure` with a job whose slot has come."""
        latest = self.now
        for dependency in self.needs(life):
            rows = self.jobs[dependency.job].all_rows
            if not rows:
                return None
            end = rows[0].start if dependency.when is DependencyWhen.STARTED else rows[0].end
            if end <= self.now and (sure or self.jobs[dependency.job].slot is None):
                return None
            latest = max(latest, end)
        return latest

    # --- telling the planner, and what it decides ---

    def tell(self, job_id: str) -> None:
        life = self.jobs[job_id]
        waiting = life.asked if life.status is JobStatus.QUEUED else None
        if waiting is not None and life.held:
            needs = tuple(Need(one.job, one.when is DependencyWhen.STARTED) for one in self.needs(life))
            waiting = replace(waiting, needs=needs)
        self.planner.set_reservation(job_id, waiting, life.all_rows)

    def plan(self) -> None:
        for _ in range(PATIENCE):
            starts = self.planner.plan_starts(self.now, MANY)
            for start in starts:
                self.start(start)
            busy = self.chance.choice([0, 0, 0.5])
            enough = lambda: self.chance.random() < busy  # noqa: E731, B023
            plan = self.planner.plan_slots(self.now, MANY, self.chance.choice([1, 3, MANY]), enough)
            self.give(plan.slots)
            if not plan.more and not starts:
                break
        else:
            pytest.fail("there is no end to planning")
        self.check_all_have_slots()

    def start(self, start: Start) -> None:
        life = self.jobs[start.id]
        assert (life.status, life.held) == (JobStatus.QUEUED, False)
        life.slot = None
        life.status = JobStatus.RUNNING
        life.rows = [Commitment(start.id, gpu.gpu_id, start.start, start.end, True) for gpu in start.gpus]
        others = self.rows(start.id)
        assert all(is_free(self.cards[gpu.gpu_id], others, start.start, start.end, self.now) for gpu in start.gpus)
        if self.honest:
            assert life.promise is None or self.now <= life.promise
            life.runs = True
            self.tell_dependants(start.id)

    def give(self, slots: list[PlannedSlot]) -> None:
        before = {slot.id: self.jobs[slot.id].slot for slot in slots}
        for slot in slots:
            life = self.jobs[slot.id]
            assert slot.follows == life.held
            life.slot = slot if slot.gpus else None
        for slot in slots:
            life = self.jobs[slot.id]
            others = self.rows(slot.id)
            assert all(is_free(self.cards[gpu.gpu_id], others, slot.start, slot.end, self.now) for gpu in slot.gpus)
            if slot.gpus and life.held:
                floor = self.floor(life)
                assert floor is not None
                assert slot.start >= floor
            if slot.gpus:
                life.promise = life.promise or slot.promised_at
            former = before[slot.id]
            if slot.because is not None:
                assert not self.honest
                life.missed.append(slot.because)
            elif former is not None and (life.held or former.start > self.now):
                assert slot.start < former.start
            elif not life.missed:
                assert slot.start <= life.promise

    def has_place(self, life: Life) -> bool:
        """Whether a job could run if it were alone."""
        return fits_at(self.nodes, [], life.asked, "h100", self.now, self.now)

    def check_all_have_slots(self) -> None:
        """A job has a slot as soon as it can, which is not late, and none that is known to come too soon."""
        for life in self.jobs.values():
            if not life.held or life.status is not JobStatus.QUEUED:
                continue
            floor = self.floor(life, sure=True)
            if life.slot is None:
                assert floor is None or not self.has_place(life)
            else:
                assert life.slot.start + SLACK > self.now
                sure = [
                    rows[0].start if one.when is DependencyWhen.STARTED else rows[0].end
                    for one in self.needs(life)
                    if (rows := self.jobs[one.job].all_rows)
                ]
                assert all(time <= life.slot.start + SLACK or time <= self.now for time in sure)


def lives(world: ChainWorld, steps: int) -> Iterator[None]:
    for _ in range(steps):
        drawn = world.chance.random()
        if drawn < 0.4 and len(world.jobs) < 14:
            world.submit()
        elif drawn < 0.9 or world.honest:
            world.go_on()
        else:
            world.cancel()
        if world.honest or world.chance.random() < 0.8:
            world.plan()
        yield


@ledger_examples(300)
@example(100867)  # a slot lapses, and its job gets two others in one part of the work
@given(st.integers(0, 2**32))
def test_slots_follow_whatever_jobs_do(seed: int) -> None:
    world = ChainWorld(Random(seed), honest=False)
    for _ in lives(world, 40):
        pass


@ledger_examples(300)
@given(st.integers(0, 2**32))
def test_no_promise_is_missed_where_jobs_end_in_time(seed: int) -> None:
    world = ChainWorld(Random(seed), honest=True)
    for _ in lives(world, 30):
        pass
    world.plan()
    for _ in range(200):
        if all(life.is_over for life in world.jobs.values()):
            return
        world.go_on()
        world.plan()
    left = [life for life in world.jobs.values() if not life.is_over]
    assert not [life for life in left if not life.held and world.has_place(life)]
    assert all(any(not world.jobs[job_id].is_over for job_id in life.after) for life in left if life.held)


def test_a_slot_that_another_follows_makes_no_room() -> None:
    """A short job could start now, if the one with a slot on its GPU moved to a later time within its promise."""
    for followed in (False, True):
        rows = [held("job-90", 1, 0, 30), held("job-91", 2, 0, 30)]
        planner = CalendarPicture(snapshot([node("n0", 3, first_id=1)], rows, ()), slack=100 * MINUTE)
        planner.set_orders(BY_AREA)
        large = replace(job(1, 3, minutes=60), submitted_at=to_micros(T0))
        planner.set_reservation(large.id, large, ())
        decide_all(planner)
        if followed:
            behind = replace(job(2, 3, minutes=5), needs=(Need(large.id, by_start=False),))
            planner.set_reservation(behind.id, behind, ())
            decide_all(planner)
        start = planner.common.ledger.slots[large.id]
        short = replace(job(3, 1, minutes=40), submitted_at=to_micros(T0))
        planner.set_reservation(short.id, short, ())
        started = decide_all(planner)
        assert ([one.id for one in started] == [short.id]) is not followed
        assert (planner.common.ledger.slots[large.id] == start) is followed


def decide_all(planner: CalendarPicture) -> list[Start]:
    """All that is decided at T0."""
    started = []
    for _ in range(PATIENCE):
        starts = planner.plan_starts(T0, MANY)
        started += starts
        plan = planner.plan_slots(T0, MANY, MANY)
        if not (plan.more or plan.slots or starts):
            return started
    raise AssertionError("there is no end to planning")


@pytest.mark.parametrize("size", [2, 1000])
def test_a_chain_gets_all_its_slots_in_one_turn_of_bounded_batches(size: int) -> None:
    """The last of the queue goes first in the chain, so that the order of the queue is against it."""
    planner = CalendarPicture(snapshot([node("n0", 1, first_id=1)], (), ()))
    for seq in range(1, size + 1):
        one = job(seq, minutes=1, priority=seq)
        needs = None if seq == 1 else (Need(f"job-{seq - 1}", by_start=False),)
        planner.set_reservation(one.id, replace(one, needs=needs), ())
    assert [start.id for start in planner.plan_starts(T0, MANY)] == ["job-1"]
    batches = 0
    more = True
    while more:
        plan = planner.plan_slots(T0, MANY, 100)
        assert len(plan.slots) <= 100
        more, batches = plan.more, batches + 1
    slots = planner.common.ledger.slots
    assert [slots[f"job-{seq}"][0] for seq in range(2, size + 1)] == [
        to_micros(at(seq - 1)) for seq in range(2, size + 1)
    ]
    assert batches <= 2 + size // 50


def test_no_more_jobs_are_promised_a_start_than_may_be() -> None:
    planner = CalendarPicture(snapshot([node("n0", 1, first_id=1)], [held("job-0", 1, 0, 10)], ()))
    for seq in range(1, 9):
        one = replace(job(seq), needs=(Need("job-0", by_start=False),))
        planner.set_reservation(one.id, one, ())
    planner.plan_starts(T0, MANY)
    assert len(planner.plan_slots(T0, 3, MANY).slots) == 3
    assert planner.plan_slots(T0, 3, MANY).slots == []


@pytest.mark.parametrize("preemptible", [True, False])
def test_nothing_is_promised_after_a_preemptible_job(*, preemptible: bool) -> None:
    rows = [replace(held("job-0", 1, 0, 10), preemptible=preemptible)]
    planner = CalendarPicture(snapshot([node("n0", 1, first_id=1)], rows, ()))
    behind = replace(job(1), needs=(Need("job-0", by_start=False),))
    planner.set_reservation(behind.id, behind, ())
    decide_all(planner)
    assert (behind.id in planner.common.ledger.slots) is not preemptible


def test_what_a_slot_follows_is_decided_before_it() -> None:
    """Both have to move, and the one behind stands before the other in the queue: a batch never has only half of it."""
    planner = CalendarPicture(snapshot([node("n0", 4, first_id=1)], [held("a", 1, 0, 10), held("b", 2, 0, 10)], ()))
    before = replace(job(1), needs=(Need("a", by_start=False),))
    behind = replace(job(2, priority=5), needs=(Need(before.id, by_start=False), Need("b", by_start=False)))
    for one in (before, behind):
        planner.set_reservation(one.id, one, ())
    decide_all(planner)
    planner.set_reservation("a", None, [held("a", 1, 0, 15)])
    planner.set_reservation("b", None, [held("b", 2, 0, 22)])
    planner.plan_starts(T0, MANY)
    decided = planner.plan_slots(T0, MANY, 2).slots
    assert [(slot.id, slot.start) for slot in decided] == [(before.id, at(15)), (behind.id, at(25))]
