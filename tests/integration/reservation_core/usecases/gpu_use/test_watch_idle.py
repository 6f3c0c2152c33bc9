"""Idle jobs are warned and released by the policy, and nothing else is."""

from datetime import timedelta
from typing import Any

import pytest

from reservation_core.domain.errors import NotFoundError, NotIdleError
from reservation_core.domain.gpu_use.idle_rules import IdleRule, IdleThen
from reservation_core.domain.gpu_use.spans import Resolution
from reservation_core.domain.model import PodPhase
from reservation_core.domain.policy.limits import UNLIMITED, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.statuses import BookingStatus, JobStatus, ReasonCode, Role
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.waitlist import Waitlist
from reservation_core.usecases.gpu_use import watch_idle
from reservation_core.usecases.gpu_use.watch_idle import IdleReport, IdleWatch
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.jobs.keep import keep
from reservation_core.usecases.running.preempt import preempt
from tests.clocks import START
from tests.database.gpu_use_partitions import make_partition
from tests.integration.reservation_core.usecases.booking_world import HOUR, BookingWorld
from tests.integration.reservation_core.usecases.world import LONGEST, World, pod

TEN, MINUTE = timedelta(seconds=10), timedelta(minutes=1)
RELEASE = IdleRule(0.1, 10 * MINUTE, 5 * MINUTE, IdleThen.RELEASE)
NOTHING, WARNED, CLEARED, RELEASED = IdleReport(), IdleReport(warned=1), IdleReport(cleared=1), IdleReport(released=1)
ALL_SAMPLED = "UPDATE gpu_use_state SET minutes_until = '2030-01-01', hours_until = '2030-01-01'"
_SAMPLES = """
INSERT INTO gpu_samples (at, gpu_id, utilisation, xid)
SELECT at, :gpu, :use, 0
FROM generate_series(CAST(:start AS timestamptz) + interval '5 s', CAST(:end AS timestamptz), interval '10 s') AS at
"""


class Use:
    """What samples say of all GPUs of a world, as time passes; and the leader's looks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.watch = IdleWatch(world.uow, world.clock, TEN)

    async def pass_minutes(self, minutes: int, utilisation: float = 0.0, **others: float | None) -> None:
        """Let time pass; each GPU has samples of this utilisation, but for those named `a1=0.5`; None: no samples."""
        start = self.world.clock.now()
        end = self.world.clock.go_on(minutes * MINUTE)
        for row in await self.world.sql("SELECT g.id, name || index AS it FROM gpus g JOIN nodes n ON n.id = node_id"):
            use = others.get(row.it, utilisation)
            if use is not None:
                await self.world.sql(_SAMPLES, gpu=row.id, use=round(1000 * use), start=start, end=end)

    async def look(self) -> IdleReport:
        return await self.watch.look()


@pytest.fixture
async def use(world: World) -> Use:
    await world.sql(make_partition("gpu_samples"))
    await world.sql(ALL_SAMPLED)
    return Use(world)


async def rule(world: World, idle: Any = RELEASE, scope: Scope = Scope()) -> None:  # noqa: B008 - it is frozen
    async with world.uow() as uow:
        await uow.policies.replace_rule(scope, Rules(idle=idle), by="root", from_file=False, now=world.clock.now())


@pytest.mark.parametrize("preemptible", [False, True])
async def test_an_idle_job_is_warned_and_then_ended_and_its_gpus_go_to_the_next(
    world: World, use: Use, preemptible: bool
) -> None:
    await rule(world)
    job_id = await world.ran(gpus=2, nodes=2)
    waiting = await world.submitted(gpus=2, preemptible=preemptible)
    await use.pass_minutes(9)
    assert await use.look() == NOTHING
    await use.pass_minutes(2)
    assert await use.look() == WARNED
    row = await world.row(job_id)
    assert row.idle is not None
    assert row.idle.release_at == world.clock.now() + 5 * MINUTE
    assert row.idle.since == START + MINUTE
    assert row.reason.code is ReasonCode.RUNNING
    warning = (await world.events(job_id))[-1]
    assert warning.reason is not None
    assert (warning.kind, warning.reason.code) == ("idle_warning", ReasonCode.IDLE)
    assert warning.reason.detail.startswith(f"Its GPUs have been idle since {START + MINUTE:%Y-%m-%dT%H:%M:%SZ}. They")
    assert await use.look() == NOTHING
    await use.pass_minutes(4)
    assert await use.look() == NOTHING
    await use.pass_minutes(1)
    assert await use.look() == RELEASED
    row = await world.row(job_id)
    assert (row.status, row.outcome, row.reason.code.value) == (JobStatus.ENDING, JobStatus.EXPIRED, "idle")
    assert "Its GPUs were idle for 15m" in row.reason.detail
    await world.operate()
    await world.see(*(world.cluster.show(pod(job_id, rank), PodPhase.GONE) for rank in range(2)))
    await world.plan()
    assert (await world.row(waiting)).status is JobStatus.STARTING
    kinds = await world.kinds(job_id)
    assert [kind for kind in kinds if "idle" in kind] == ["idle_warning", "idle_released"]
    assert kinds[-1] == "expired"


async def test_what_is_released_is_booked_for_who_waits(bookings: BookingWorld) -> None:
    world = bookings.world
    await world.sql(make_partition("gpu_samples"))
    await world.sql(ALL_SAMPLED)
    use = Use(world)
    await rule(world)
    job_id = await world.ran(gpus=2, nodes=2, duration=7200)
    waiting = await bookings.booked(START + 30 * MINUTE, gpus=2, nodes=2, wait=True, auto_accept=True)
    for minutes in (12, 5):
        await use.pass_minutes(minutes)
        await bookings.time.set(world.clock.now())
        assert await Waitlist(world.uow, bookings.ids, HOUR).serve() == 0
        assert await use.look() in (WARNED, RELEASED)
    await world.operate()
    await world.see(*(world.cluster.show(pod(job_id, rank), PodPhase.GONE) for rank in range(2)))
    assert await Waitlist(world.uow, bookings.ids, HOUR).serve() == 1
    assert (await bookings.booking(waiting.id)).status is BookingStatus.CONFIRMED


async def test_a_job_that_is_requeued_waits_behind_all_others_and_runs_again(world: World, use: Use) -> None:
    await rule(world, RELEASE._replace(then=IdleThen.REQUEUE))
    job_id = await world.ran(gpus=2, nodes=2)
    others = [await world.submitted(gpus=2, nodes=2) for _ in range(2)]
    await use.pass_minutes(12)
    assert await use.look() == WARNED
    await use.pass_minutes(5)
    assert await use.look() == RELEASED
    await world.operate()
    await world.see(*(world.cluster.show(pod(job_id, rank), PodPhase.GONE) for rank in range(2)))
    row = await world.row(job_id)
    assert (row.status, row.preemption.times) == (JobStatus.QUEUED, 1)
    assert row.seq > max([(await world.row(other)).seq for other in others])
    world.clock.go_on(MINUTE)
    await world.plan()
    assert [(await world.row(one)).status for one in (*others, job_id)] == [
        JobStatus.STARTING, JobStatus.QUEUED, JobStatus.QUEUED,
    ]  # fmt: skip
    assert (await world.kinds(job_id))[-4:] == ["idle_warning", "preempted", "idle_released", "requeued"]
    assert (await world.view(job_id)).reservation.attempt == 1


async def test_a_requeued_job_has_its_signals_lead(world: World, use: Use) -> None:
    await rule(world, RELEASE._replace(then=IdleThen.REQUEUE))
    job_id = await world.ran(gpus=2, nodes=2, end_signal={"signal": "USR1", "before": 120})
    await use.pass_minutes(12)
    assert await use.look() == WARNED
    await use.pass_minutes(5)
    assert await use.look() == RELEASED
    assert [one.op for one in await world.operate()] == ["signal"]
    assert sorted(world.cluster.signals) == [(f"{job_id}-1-{rank}", "USR1") for rank in (0, 1)]

    async def asked() -> int:
        return (await preempt(world.uow, world.clock, timedelta(0))).asked

    await use.pass_minutes(1, b1=0.9)  # a checkpoint may use the GPUs
    assert (await use.look(), await asked()) == (NOTHING, 0)
    assert (await world.row(job_id)).status is JobStatus.RUNNING
    await use.pass_minutes(1)
    assert await asked() == 1
    assert (await world.row(job_id)).status is JobStatus.ENDING
    await world.operate()
    await world.see(*(world.cluster.show(pod(job_id, rank), PodPhase.GONE) for rank in range(2)))
    assert (await world.row(job_id)).status is JobStatus.QUEUED
    kinds = ["idle_warning", "preemption_asked", "idle_released", "preempted", "requeued"]
    assert (await world.kinds(job_id))[-5:] == kinds


async def test_one_busy_gpu_of_a_gang_keeps_all(world: World, use: Use) -> None:
    await rule(world)
    await world.ran(gpus=2, nodes=2)
    await use.pass_minutes(20, b1=0.2)
    assert await use.look() == NOTHING


@pytest.mark.parametrize("lost", [{"a0": None}, {"a0": None, "a1": None}])
async def test_a_gpu_without_samples_is_in_use(world: World, use: Use, lost: dict[str, None]) -> None:
    await rule(world)
    await world.ran(gpus=2)
    await use.pass_minutes(20, **lost)
    assert await use.look() == NOTHING


@pytest.mark.parametrize("named", [("a0",), ("a0", "a1")])
async def test_a_gpu_whose_samples_do_not_tell_its_use_is_in_use(
    world: World, use: Use, named: tuple[str, ...]
) -> None:
    await rule(world)
    await world.ran(gpus=2)
    await use.pass_minutes(20, **dict.fromkeys(named))
    for name in named:  # as of a MIG instance without counters: there are samples, of its memory alone
        await world.sql(
            "INSERT INTO gpu_samples (at, gpu_id, memory_kib, xid) SELECT at, g.id, 7, 0 FROM gpus g"
            " JOIN nodes n ON n.id = g.node_id AND n.name || g.index = :name CROSS JOIN generate_series("
            "CAST(:start AS timestamptz), :now, interval '10 s') AS at",
            name=name,
            start=world.clock.now() - 20 * MINUTE,
            now=world.clock.now(),
        )
    for _ in range(3):
        assert await use.look() == NOTHING
        world.clock.go_on(MINUTE)


async def test_late_samples_are_no_idleness(world: World, use: Use) -> None:
    await rule(world)
    await world.ran()
    await use.pass_minutes(20)
    world.clock.go_on(2 * MINUTE)
    assert await use.look() == NOTHING


async def test_nothing_is_released_by_samples_of_times_that_come_again(world: World, use: Use) -> None:
    """The clock was ahead and was set back: by its samples all GPUs are idle for an hour to come."""
    job_id = await world.ran(duration=7200)
    await use.pass_minutes(72)
    await world.sql(make_partition("gpu_minutes"))
    async with world.uow() as uow:
        await uow.gpu_use.roll_up(Resolution.MINUTES, START, world.clock.now())
    await world.sql("UPDATE gpu_use_state SET minutes_until = :at", at=world.clock.now())
    world.clock.go_on(-60 * MINUTE)
    await rule(world)
    for _ in range(20):
        assert await use.look() == NOTHING
        world.clock.go_on(MINUTE)
    assert (await world.row(job_id)).status is JobStatus.RUNNING


async def test_the_next_holder_is_not_judged_by_the_use_before(world: World, use: Use) -> None:
    await rule(world)
    await use.pass_minutes(30)
    await world.ran()
    await use.pass_minutes(9)
    assert await use.look() == NOTHING


async def test_nothing_is_released_while_samples_stall(world: World, use: Use) -> None:
    await rule(world)
    job_id = await world.ran(duration=7200)
    await use.pass_minutes(12)
    assert await use.look() == WARNED
    await use.pass_minutes(5)
    world.clock.go_on(3.5 * TEN)  # its owner may use it since
    assert await use.look() == NOTHING
    assert (await world.row(job_id)).status is JobStatus.RUNNING
    await use.pass_minutes(5)
    assert await use.look() == RELEASED


async def test_each_part_of_a_look_has_its_own_time_and_rules(
    world: World, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_idle, "_GPUS_AT_ONCE", 1)
    await rule(world)
    first, second = await world.ran(duration=7200), await world.ran(duration=7200)
    await use.pass_minutes(12)
    assert await use.look() == IdleReport(warned=2)
    await use.pass_minutes(5)
    carry_out = use.watch._carry_out

    async def lift_the_rule(verdicts: Any) -> Any:
        await rule(world, UNLIMITED)
        return await carry_out(verdicts)

    monkeypatch.setattr(use.watch, "_carry_out", lift_the_rule)
    assert await use.look() == IdleReport(released=1, cleared=1)
    statuses = {(await world.row(job_id)).status for job_id in (first, second)}
    assert statuses == {JobStatus.ENDING, JobStatus.RUNNING}


@pytest.mark.parametrize("what", ["use", "silence", "no rule", "only warns"])
async def test_a_warning_is_taken_back(world: World, use: Use, what: str) -> None:
    await rule(world)
    job_id = await world.ran(duration=7200)
    await use.pass_minutes(12)
    assert await use.look() == WARNED
    match what:
        case "use":
            await use.pass_minutes(1, 0.3)
            await use.pass_minutes(4)
        case "silence":
            world.clock.go_on(3 * MINUTE)
        case "no rule":
            await rule(world, UNLIMITED, Scope(user="alice"))
        case _:
            await rule(world, IdleRule(0.1, 10 * MINUTE, 5 * MINUTE, IdleThen.WARN))
    assert await use.look() == CLEARED
    row = await world.row(job_id)
    assert (row.idle, row.idle_from, row.status) == (None, world.clock.now(), JobStatus.RUNNING)
    assert (await world.kinds(job_id))[-1] == "idle_warning_over"


async def test_a_rule_that_only_warns_ends_nothing(world: World, use: Use) -> None:
    await rule(world, IdleRule(0.1, 10 * MINUTE, 5 * MINUTE))
    job_id = await world.ran(duration=7200)
    await use.pass_minutes(12)
    assert await use.look() == WARNED
    await use.pass_minutes(60)
    assert await use.look() == NOTHING
    assert (await world.row(job_id)).status is JobStatus.RUNNING


@pytest.mark.parametrize("how", ["keep", "extend"])
async def test_its_owner_keeps_it_for_another_window(world: World, use: Use, how: str) -> None:
    await rule(world)
    job_id = await world.ran(duration=7200)
    await use.pass_minutes(12)
    assert await use.look() == WARNED
    async with world.uow() as uow:
        if how == "keep":
            view = await keep(uow, world.who, job_id, None, world.clock.now())
        else:
            view = await extend(uow, world.who, job_id, MINUTE, None, LONGEST, world.clock.now())
    assert view.reservation.idle is None
    await use.pass_minutes(9)
    assert await use.look() == NOTHING
    await use.pass_minutes(2)
    assert await use.look() == WARNED
    last = (await world.events(job_id))[-2]
    assert (last.kind, last.actor) == ("kept" if how == "keep" else "extended", "alice")


async def test_a_job_does_not_keep_itself(world: World, use: Use) -> None:
    """Its own token extends it, which says nothing about whether anybody needs its GPUs."""
    await rule(world)
    job_id = await world.ran(duration=7200)
    await use.pass_minutes(12)
    assert await use.look() == WARNED
    itself = Principal(world.who.user_id, world.who.user, Role.USER, f"job:{job_id}", None)
    async with world.uow() as uow:
        view = await extend(uow, itself, job_id, MINUTE, None, LONGEST, world.clock.now())
    assert view.reservation.idle is not None
    await use.pass_minutes(5)
    assert await use.look() == RELEASED


async def test_only_a_warned_job_is_kept_and_only_by_its_owner(world: World, use: Use) -> None:
    await rule(world)
    job_id = await world.ran()
    async with world.uow() as uow:
        with pytest.raises(NotIdleError, match="not about to end because of idle GPUs"):
            await keep(uow, world.who, job_id, None, world.clock.now())
        bob = await uow.identities.create_user("bob", Role.USER, world.clock.now())
        stranger = Principal(bob.id, bob.name, bob.role, "tok-b", None)
        with pytest.raises(NotFoundError):
            await keep(uow, stranger, job_id, None, world.clock.now())


@pytest.mark.parametrize(("change", "asked"), [(keep, (None,)), (extend, (MINUTE, None, LONGEST))])
async def test_a_change_between_the_look_and_the_end_is_not_overrun(
    world: World, use: Use, monkeypatch: pytest.MonkeyPatch, change: Any, asked: tuple[Any, ...]
) -> None:
    await rule(world)
    job_id = await world.ran(duration=7200)
    await use.pass_minutes(12)
    if change is keep:
        assert await use.look() == WARNED
        await use.pass_minutes(5)

    async def change_first(verdicts: Any) -> Any:
        async with world.uow() as uow:
            await change(uow, world.who, job_id, *asked, world.clock.now())
        return await IdleWatch._carry_out(use.watch, verdicts)

    monkeypatch.setattr(use.watch, "_carry_out", change_first)
    assert (await use.look(), (await world.row(job_id)).status) == (NOTHING, JobStatus.RUNNING)


async def test_the_most_specific_rule_counts(world: World, use: Use) -> None:
    await rule(world)
    await rule(world, UNLIMITED, Scope(gpu_type="h100"))
    await world.ran()
    await use.pass_minutes(20)
    assert await use.look() == NOTHING
    await rule(world, IdleRule(0.1, 30 * MINUTE), Scope(user="alice"))
    assert await use.look() == NOTHING
    await use.pass_minutes(10)
    assert await use.look() == WARNED


async def test_roll_ups_tell_as_much_as_samples(world: World, use: Use) -> None:
    await rule(world)
    await world.ran()
    await use.pass_minutes(12)
    await world.sql(make_partition("gpu_minutes"))
    now = world.clock.now()
    async with world.uow() as uow:
        rolled = await uow.gpu_use.lock()
        for resolution in rolled:
            await uow.gpu_use.roll_up(resolution, START, now) if resolution.value == 60 else None
        await uow.gpu_use.move(dict.fromkeys(rolled, now - MINUTE))
    await world.sql("DELETE FROM gpu_samples WHERE at < CAST(:now AS timestamptz) - interval '2 minutes'", now=now)
    assert await use.look() == WARNED
