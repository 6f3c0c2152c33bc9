"""From what the driver reports to quarantine, and to who is notified of it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.adapters.local.gpu_use.nvml_sampler import NvmlSampler
from reservation_core.domain.errors import ForbiddenError, NotFoundError
from reservation_core.domain.gpu_use.gpu_errors import ERRORS_KEPT, QuarantineRule
from reservation_core.domain.gpu_use.gpu_speeds import SLICE, SpeedTally
from reservation_core.domain.notices.kinds import NoticeChannel
from reservation_core.domain.notices.messages import Notice
from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.nodes.inventory import NodeView
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.people.notices import Destination
from reservation_core.ports.queues import QueueName
from reservation_core.usecases.gpu_use.keep_use import keep_use
from reservation_core.usecases.gpu_use.store_samples import store_samples
from reservation_core.usecases.gpu_use.watch_health import HealthReport, HealthWatch
from reservation_core.usecases.nodes.quarantine_gpu import quarantine, release
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_core.usecases.people import notice_targets
from reservation_core.usecases.people.deliver_notices import Deliveries, DeliveryRules
from tests.database.gpu_use_partitions import make_partition
from tests.integration.reservation_core.usecases.booking_world import BookingWorld
from tests.integration.reservation_core.usecases.world import World
from tests.nvml.driver import Driver, build, in_place

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler builds the library")

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
PATIENT_S = 30.0
RULE = QuarantineRule(3, HOUR)
RULES = DeliveryRules(tries=3, first_pause=MINUTE, longest_pause=HOUR, oldest=timedelta(days=1))
UNCONTAINED, OFF_THE_BUS, OF_A_PROGRAM = 95, 79, 13


@dataclass
class Health:
    """Two GPUs of node `a`, whose driver is set; what is sampled of them; and looks at their health."""

    bookings: BookingWorld
    driver: Driver
    sampler: NvmlSampler
    tally: SpeedTally = field(default_factory=SpeedTally)

    def __post_init__(self) -> None:
        self.world = self.bookings.world
        self.watch = HealthWatch(self.world.uow, self.world.clock, RULE)

    async def pass_minutes(self, minutes: int, *, xids: tuple[int, int] = (0, 0)) -> None:
        """Let time pass with a sample each minute; the errors are in the last one."""
        for left in range(minutes, 0, -1):
            await self.go_on(MINUTE)
            if left == 1:
                for gpu, xid in enumerate(xids):
                    self.driver.put("xids", gpu, xid)
            samples = await self.sampler.look(self.world.clock.now())
            await store_samples(self.world.uow, samples)
            slices = self.tally.add(samples)
            async with self.world.uow() as uow:
                await uow.gpu_health.add_speeds(slices)

    async def go_on(self, by: timedelta) -> None:
        await self.bookings.time.set(self.bookings.time.at + by)
        self.world.clock.at = self.bookings.time.at

    async def value(self, query: str) -> Any:
        return (await self.world.sql(query)).scalar_one()

    async def states(self) -> dict[str, str]:
        async with self.world.uow() as uow:
            return {f"{gpu.node}/{gpu.index}": gpu.state.value for gpu in await uow.inventory.gpus(after=None, limit=9)}

    async def node(self, name: str = "a") -> NodeView:
        async with self.world.uow() as uow:
            found = await uow.inventory.node(name)
        assert found is not None
        return found

    async def notices(self) -> list[tuple[str, Notice]]:
        """The users who are notified since the call before, and of what."""
        sender = Sender()
        deliveries = Deliveries(self.world.uow, {NoticeChannel.WEBHOOK: sender}, self.world.clock, RULES)
        async with self.world.uow() as uow:
            messages = await uow.queue.read(QueueName.NOTIFICATIONS, visibility=HOUR, limit=100)
            await uow.queue.delete(QueueName.NOTIFICATIONS, [message.id for message in messages])
        for message in messages:
            await deliveries.handle(replace(message, enqueued_at=self.world.clock.now()))
        return sorted(sender.got, key=lambda got: got[0])


class Sender:
    def __init__(self) -> None:
        self.got: list[tuple[str, Notice]] = []

    async def send(self, to: Destination, notice: Notice) -> None:
        self.got.append((to.target.user, notice))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    with in_place(build(tmp_path, "-DHEALTH"), monkeypatch) as driver:
        driver.set("count", 1)
        yield driver


@pytest.fixture
async def health(bookings: BookingWorld, driver: Driver) -> AsyncIterator[Health]:
    world = bookings.world
    await world.sql(make_partition("gpu_samples"))
    await world.sql("UPDATE gpu_use_state SET minutes_until = '2030-01-01', hours_until = '2030-01-01'")
    await world.sql("UPDATE gpus SET uuid = 'GPU-test-' || index FROM nodes n WHERE n.id = node_id AND n.name = 'a'")
    sampler = NvmlSampler(PATIENT_S)
    yield Health(bookings, driver, sampler)
    await sampler.close()


async def with_target(world: World, name: str, role: Role) -> Principal:
    """A new user who is notified at a webhook; alice is there already."""
    async with world.uow() as uow:
        user = None if name == "alice" else await uow.identities.create_user(name, role, world.clock.now())
        who = world.who if user is None else Principal(user.id, user.name, user.role, "tok-y", None)
        await notice_targets.create(
            uow, who, channel=NoticeChannel.WEBHOOK, address="https://hooks.example/x", name=None, ids=RandomIds(),
            now=world.clock.now(),
        )  # fmt: skip
    return who


async def test_errors_that_repeat_quarantine_a_gpu_and_the_right_people_are_notified(health: Health) -> None:
    world = health.world
    root, _, _ = [await with_target(world, name, role) for name, role in PEOPLE]
    job = await world.ran(gpus=2)
    await world.sql("SELECT pgmq.purge_queue('notifications')")
    cards = {f"{card.node}/{card.index}" for card in await world.cards(job)}
    assert cards == {"a/0", "a/1"}
    await health.pass_minutes(1)
    await health.pass_minutes(5, xids=(UNCONTAINED, 0))
    health.driver.put("ecc", 0, 2)
    await health.pass_minutes(5)
    assert await health.watch.look() == HealthReport()
    await health.pass_minutes(5, xids=(OFF_THE_BUS, 0))
    assert await health.watch.look() == HealthReport(quarantined=["a/0"])
    assert await health.watch.look() == HealthReport()

    assert (await health.states())["a/0"] == "quarantined"
    assert (await world.row(job)).status is JobStatus.RUNNING
    node = await health.node()
    assert node.quarantined == (0,)
    assert node.detail is not None
    assert "GPU 0 is quarantined since 2030-01-01T12:16:00Z (system: 3 errors within 1 h: Xid 95 at " in node.detail
    assert "2 uncorrected ECC at " in node.detail
    assert node.detail.endswith("it gets nothing new until `gpu-dev nodes release a/0`.")

    (alice, to_owner), (who, to_admin) = await health.notices()
    assert (alice, who) == ("alice", "root")
    assert to_owner.kind == to_admin.kind == "gpu_health"
    assert f"GPU a/0 of your job {job} is quarantined" in to_owner.text
    assert to_admin.about is None
    assert "GPU a/0 is quarantined: no new job or booking gets it." in to_admin.text
    assert f"The job {job} has it and goes on." in to_admin.text
    assert "3 errors within 1 h" in to_admin.text
    assert "gpu-dev nodes release a/0" in to_admin.text
    kinds = await world.kinds(job)
    assert kinds.count("gpu_of_job_quarantined") == 1

    async with world.uow() as uow:
        view = await release(uow, root, "a", 0, world.clock.now())
    assert (view.quarantined, view.detail) == ((), None)
    assert (await health.states())["a/0"] == "held"
    assert await health.watch.look() == HealthReport(), "errors from before the release"
    await health.pass_minutes(5, xids=(OFF_THE_BUS, 0))
    assert await health.watch.look() == HealthReport()


async def test_a_faulty_gpu_in_mig_mode_takes_its_instances_out_of_use(
    health: Health, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mig"
    folder.mkdir()
    with in_place(build(folder, "-DHEALTH", "-DMIG"), monkeypatch) as driver:
        driver.set("count", 1)
        driver.put("mig_mode", 0, 1)
        health.driver = driver
        await health.world.sql(
            "UPDATE gpus SET uuid = 'MIG-test-0-' || 2 * index FROM nodes n WHERE n.id = node_id AND n.name = 'a'"
        )
        await health.pass_minutes(1)
        for _ in range(3):
            await health.pass_minutes(5, xids=(OFF_THE_BUS, 0))
        assert await health.watch.look() == HealthReport(quarantined=["a/0", "a/1"])
    assert await health.value("SELECT count(DISTINCT gpu_id) FROM gpu_samples WHERE utilisation IS NULL") == 2


PEOPLE = [("root", Role.ADMIN), ("bob", Role.USER), ("alice", Role.USER)]


async def test_a_quarantined_gpu_goes_to_nothing_new_whatever_the_cluster_reports(health: Health) -> None:
    world = health.world
    root = await with_target(world, "root", Role.ADMIN)
    async with world.uow() as uow:
        view = await quarantine(uow, root, "a", 1, None, world.clock.now())
        assert await quarantine(uow, root, "a", 1, "Again.", world.clock.now()) == view
    assert "GPU 1 is quarantined since 2030-01-01T12:00:00Z (root: quarantined by hand)" in (view.detail or "")
    await update_inventory(world.uow, world.cluster, world.clock)
    jobs = [await world.submitted(gpus=1) for _ in range(4)]
    await world.plan()
    placed = [f"{card.node}/{card.index}" for job in jobs for card in await world.cards(job)]
    assert sorted(placed) == ["a/0", "b/0", "b/1"]
    async with world.uow() as uow:
        await release(uow, root, "a", 1, world.clock.now())
    await world.plan()
    assert [f"{card.node}/{card.index}" for card in await world.cards(jobs[3])] == ["a/1"]
    assert len(await health.notices()) == 1


async def test_faults_of_programs_and_missing_samples_are_no_reason(health: Health) -> None:
    await health.pass_minutes(1)
    for _ in range(5):
        await health.pass_minutes(3, xids=(OF_A_PROGRAM, 0))
    health.driver.put("lost", 0, 15)
    await health.pass_minutes(20)
    assert await health.watch.look() == HealthReport()
    # A count that was never seen lower says nothing of when it grew.
    health.driver.put("lost", 0, 0)
    for errors in (3, 5, 7):
        health.driver.put("ecc", 0, errors)
        await health.pass_minutes(1)
        health.driver.put("lost", 0, 15)
        await health.pass_minutes(7)
        health.driver.put("lost", 0, 0)
    assert await health.watch.look() == HealthReport()
    assert await health.value("SELECT count(*) FROM gpu_errors WHERE ecc_errors IS NOT NULL") == 0


async def test_another_gpu_at_the_place_does_not_answer_for_the_errors_before(health: Health) -> None:
    await health.pass_minutes(1)
    for _ in range(3):
        await health.pass_minutes(3, xids=(OFF_THE_BUS, 0))
    await health.world.sql("UPDATE gpus SET uuid = 'GPU-new' WHERE uuid = 'GPU-test-0'")
    assert await health.watch.look() == HealthReport()


async def test_two_looks_at_once_quarantine_once(health: Health) -> None:
    await with_target(health.world, "root", Role.ADMIN)
    await health.pass_minutes(1)
    for _ in range(3):
        await health.pass_minutes(3, xids=(OFF_THE_BUS, 0))
    other = HealthWatch(health.world.uow, health.world.clock, RULE)
    reports = await asyncio.gather(health.watch.look(), other.look())
    assert sorted(len(report.quarantined) for report in reports) == [0, 1]
    assert len(await health.notices()) == 1


async def test_only_administrators_quarantine_and_release(health: Health) -> None:
    world = health.world
    async with world.uow() as uow:
        with pytest.raises(ForbiddenError):
            await quarantine(uow, world.who, "a", 0, None, world.clock.now())
        with pytest.raises(ForbiddenError):
            await release(uow, world.who, "a", 0, world.clock.now())
        with pytest.raises(NotFoundError, match="no GPU 7"):
            await release(uow, replace(world.who, role=Role.ADMIN), "a", 7, world.clock.now())


async def test_a_gpu_that_throttles_for_an_hour_is_reported_until_it_does_not(health: Health) -> None:
    world = health.world
    await with_target(world, "root", Role.ADMIN)
    health.driver.put("throttle_reasons", 0, 0x40)
    await health.pass_minutes(60)
    assert await health.watch.look() == HealthReport()
    await health.pass_minutes(13)
    assert await health.watch.look() == HealthReport(slow=["a/0"])
    assert await health.watch.look() == HealthReport()
    node = await health.node()
    assert node.detail is not None
    assert "GPU 0 is slow since 2030-01-01T13:13:00Z: it throttled in 100% of the hour's busy samples." in node.detail
    assert (await health.states())["a/0"] == "free"
    [(_, notice)] = await health.notices()
    assert "GPU a/0 is slow." in notice.text
    assert "`gpu-dev nodes quarantine a/0`" in notice.text
    assert "still gets" not in notice.text, "it may be quarantined"
    health.driver.put("lost", 0, 15)
    await health.pass_minutes(90)
    assert await health.watch.look() == HealthReport(), "no data takes no report back"
    health.driver.put("lost", 0, 0)
    health.driver.put("throttle_reasons", 0, 0)
    await health.pass_minutes(83)
    assert await health.watch.look() == HealthReport(fast=["a/0"])
    assert (await health.node()).detail is None


async def test_old_errors_and_speeds_are_removed(health: Health) -> None:
    await health.pass_minutes(1)
    await health.pass_minutes(1, xids=(OFF_THE_BUS, 0))
    await health.pass_minutes(SLICE // MINUTE)
    counts = "SELECT (SELECT count(*) FROM gpu_errors) || ' ' || (SELECT count(*) FROM gpu_speeds)"
    await health.world.sql(make_partition("gpu_minutes"))
    await keep_use(health.world.uow)
    assert await health.value(counts) == "1 1"
    await health.go_on(ERRORS_KEPT)
    await keep_use(health.world.uow)
    assert await health.value(counts) == "0 0"
