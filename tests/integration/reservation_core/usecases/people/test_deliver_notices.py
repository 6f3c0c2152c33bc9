"""Delivering: each notice at least once, failures again and not for ever, one silent target holding up nobody."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.contracts.bookings import BookingChange
from reservation_core.contracts.notices import NoticeMessage
from reservation_core.domain.changes import CancelRequested
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind, TargetStatus
from reservation_core.domain.notices.messages import Notice
from reservation_core.domain.notices.words import notice_of
from reservation_core.ports.people.notices import Destination, NotDeliveredError, NoticeTarget, UndeliverableError
from reservation_core.ports.queues import (
    MessageNotDueError,
    QueuedMessage,
    QueueName,
    RetryLaterError,
    UnrecoverableMessageError,
)
from reservation_core.usecases.bookings.change import change_booking
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.people import notice_preferences, notice_targets
from reservation_core.usecases.people.deliver_notices import Deliveries, DeliveryRules
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, BookingWorld
from tests.integration.reservation_core.usecases.world import World
from tests.waiting import eventually

RULES = DeliveryRules(
    tries=3, first_pause=timedelta(seconds=5), longest_pause=timedelta(hours=1), oldest=timedelta(days=1)
)
ADDRESS = {"email": "ada@example.org", "slack": "https://slack.example/x", "webhook": "https://hooks.example/x"}


@dataclass
class Sender:
    """Takes notices, or raises what it was told to."""

    got: list[tuple[str, Notice]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    hold: asyncio.Event | None = None
    at_once: int = 0
    most_at_once: int = 0

    async def send(self, to: Destination, notice: Notice) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.hold is not None:
                await self.hold.wait()
            if self.errors:
                raise self.errors.pop(0)
        finally:
            self.at_once -= 1
        self.got.append((to.target.id, notice))


@dataclass
class Post:
    """A world with a sender, and what delivers there."""

    world: World
    sender: Sender
    deliveries: Deliveries

    async def target(self, channel: str = "webhook") -> NoticeTarget:
        async with self.world.uow() as uow:
            target, _ = await notice_targets.create(
                uow, self.world.who, channel=NoticeChannel(channel), address=ADDRESS[channel], name=None,
                ids=RandomIds(), now=self.world.clock.now(),
            )  # fmt: skip
        return target

    async def status(self, target: NoticeTarget) -> TargetStatus:
        async with self.world.uow() as uow:
            found = await uow.notices.target(target.id, None)
        assert found is not None
        return found.status

    async def messages(self) -> list[QueuedMessage]:
        async with self.world.uow() as uow:
            found = await uow.queue.read(QueueName.NOTIFICATIONS, visibility=timedelta(seconds=60), limit=100)
            await uow.queue.delete(QueueName.NOTIFICATIONS, [message.id for message in found])
        # The queue's clock is the database's; this world has one of its own.
        return [replace(message, enqueued_at=self.world.clock.now()) for message in found]

    async def cancelled(self) -> str:
        """A job whose owner is told that it was cancelled."""
        job_id = await self.world.submitted(name="<b>")
        await self.cancel(job_id)
        return job_id

    async def cancel(self, job_id: str) -> None:
        async with self.world.uow() as uow:
            row = (await uow.reservations.lock([job_id]))[job_id]
            change = decide(row, CancelRequested("alice"), self.world.clock.now())
            assert change is not None
            await carry_out(uow, [change])


@pytest.fixture
def post(world: World) -> Post:
    sender = Sender()
    senders = {NoticeChannel.WEBHOOK: sender, NoticeChannel.SLACK: sender}
    return Post(world, sender, Deliveries(world.uow, senders, world.clock, RULES))


async def test_a_cancelled_job_is_told_with_an_id_that_stays(post: Post) -> None:
    target = await post.target()
    job_id = await post.cancelled()
    [message] = await post.messages()
    for _ in range(2):  # delivered once more, as after a crash
        await post.deliveries.handle(message)
    [(there, first), (_, second)] = post.sender.got
    assert there == target.id
    assert first.id == second.id == f"evt-{message.body['event']}-{target.id}"
    assert (first.kind, first.user) == ("cancelled", "alice")
    assert job_id in first.text
    assert first.about is not None
    assert first.about.id == job_id
    assert await post.status(target) is TargetStatus.READY


async def test_what_a_workload_is_given_is_in_no_notice(post: Post) -> None:
    await post.target()
    workload = {"command": ["train", "--key=hunter2"], "env": {"TOKEN": "hunter2"}}
    await post.cancel(await post.world.submitted(workload=workload))
    [message] = await post.messages()
    await post.deliveries.handle(message)
    assert "hunter2" not in repr(post.sender.got)


async def test_a_failure_is_tried_again_after_growing_pauses_and_then_given_up(post: Post) -> None:
    target = await post.target()
    await post.cancelled()
    [message] = await post.messages()
    pauses = []
    for tried in (1, 2):
        post.sender.errors = [NotDeliveredError("It answered with status 500.")]
        with pytest.raises(RetryLaterError) as again:
            await post.deliveries.handle(replace(message, read_count=tried))
        pauses.append(again.value.after)
        assert await post.status(target) is TargetStatus.FAILING
        post.world.clock.go_on(again.value.after)
    assert pauses == [timedelta(seconds=5), timedelta(seconds=20)]
    post.sender.errors = [NotDeliveredError("It answered with status 500.")]
    with pytest.raises(UnrecoverableMessageError, match="500"):
        await post.deliveries.handle(replace(message, read_count=3))
    assert post.sender.got == []


async def test_what_is_too_old_is_given_up_whatever_the_tries(post: Post) -> None:
    await post.target()
    await post.cancelled()
    [message] = await post.messages()
    post.world.clock.go_on(timedelta(days=2))
    post.sender.errors = [NotDeliveredError("no")]
    with pytest.raises(UnrecoverableMessageError):
        await post.deliveries.handle(message)


async def test_a_refusal_is_given_up_at_once(post: Post) -> None:
    target = await post.target()
    await post.cancelled()
    [message] = await post.messages()
    post.sender.errors = [UndeliverableError("It refused the notification with status 404.")]
    with pytest.raises(UnrecoverableMessageError, match="404"):
        await post.deliveries.handle(message)
    async with post.world.uow() as uow:
        found = await uow.notices.target(target.id, None)
    assert found is not None
    assert "404" in (found.failure or "")


async def test_after_a_failure_the_others_of_that_target_rest_and_those_of_others_do_not(post: Post) -> None:
    failing, fine = await post.target(), await post.target("slack")
    await post.cancelled()
    await post.cancelled()
    messages = await post.messages()
    mine = [message for message in messages if message.body["target"] == failing.id]
    theirs = [message for message in messages if message.body["target"] == fine.id]
    post.sender.errors = [NotDeliveredError("no")]
    with pytest.raises(RetryLaterError):
        await post.deliveries.handle(mine[0])
    with pytest.raises(MessageNotDueError) as later:
        await post.deliveries.handle(mine[1])
    assert later.value.after == timedelta(seconds=5)
    for message in theirs:
        await post.deliveries.handle(message)
    post.world.clock.go_on(later.value.after)
    for message in mine:
        await post.deliveries.handle(message)
    assert [there for there, _ in post.sender.got] == [fine.id, fine.id, failing.id, failing.id]
    assert await post.status(failing) is TargetStatus.READY


async def test_a_target_gets_one_at_a_time(post: Post) -> None:
    target = await post.target()
    for _ in range(5):
        await post.cancelled()
    messages = await post.messages()
    post.sender.hold = asyncio.Event()
    tasks = [asyncio.create_task(post.deliveries.handle(message)) for message in messages]
    await eventually(lambda: post.sender.at_once)
    for _ in range(20):  # longer than the others would need to read what they have to send
        await post.status(target)
    post.sender.hold.set()
    await asyncio.gather(*tasks)
    assert post.sender.most_at_once == 1
    assert len(post.sender.got) == 5


async def test_twenty_lost_in_a_row_suspend_a_target_until_a_test_arrives(post: Post) -> None:
    target = await post.target()
    for _ in range(21):
        await post.cancelled()
    *lost, last = await post.messages()
    for message in lost:
        post.sender.errors = [UndeliverableError("gone")]
        with pytest.raises(UnrecoverableMessageError):
            await post.deliveries.handle(message)
    assert await post.status(target) is TargetStatus.SUSPENDED
    await post.deliveries.handle(last)  # it was on its way already, and is not tried
    assert post.sender.got == []
    await post.cancelled()
    assert await post.messages() == []
    async with post.world.uow() as uow:
        delivery = await notice_targets.try_out(uow, post.world.who, target.id, RandomIds(), post.world.clock.now())
    [message] = await post.messages()
    await post.deliveries.handle(message)
    assert post.sender.got[0][1].id == delivery
    assert await post.status(target) is TargetStatus.READY
    await post.cancelled()
    assert len(await post.messages()) == 1


async def test_who_has_gone_meanwhile_is_not_told(post: Post) -> None:
    target = await post.target()
    await post.cancelled()
    messages = await post.messages()
    async with post.world.uow() as uow:
        await notice_targets.remove(uow, post.world.who, target.id, post.world.clock.now())
    for message in messages:
        await post.deliveries.handle(message)
    assert post.sender.got == []


@pytest.mark.parametrize(
    "body",
    [
        None, 7, [], {}, {"v": 2, "kind": "event", "target": "ntg-a", "event": 1},
        {"v": 1, "kind": "event", "target": "x"},
        {"v": 1, "kind": "test", "target": "ntg-a"}, {"v": 1, "kind": "pigeon", "target": "ntg-a", "delivery": "x"},
        {"v": 1, "kind": "event", "target": "ntg-a", "event": "1"},
    ],
)  # fmt: skip
async def test_what_is_no_message_is_given_up(post: Post, body: object) -> None:
    message = QueuedMessage(1, 1, post.world.clock.now(), body)
    with pytest.raises(UnrecoverableMessageError, match="not a NoticeMessage"):
        await post.deliveries.handle(message)


async def test_an_event_that_nobody_knows_is_given_up(post: Post) -> None:
    target = await post.target()
    body = NoticeMessage(kind="event", target=target.id, event=10**9).model_dump()
    with pytest.raises(UnrecoverableMessageError, match="unknown"):
        await post.deliveries.handle(QueuedMessage(1, 1, post.world.clock.now(), body))


async def test_a_channel_that_is_not_set_up_says_so(post: Post) -> None:
    target = await post.target("email")
    [message] = await post.messages()
    with pytest.raises(UnrecoverableMessageError, match="GPU_DEV_SMTP__HOST"):
        await post.deliveries.handle(message)
    assert await post.status(target) is TargetStatus.UNVERIFIED


async def test_who_is_stopping_begins_nothing(post: Post) -> None:
    target = await post.target()
    deliveries = Deliveries(post.world.uow, {}, post.world.clock, RULES, stopping=lambda: True)
    body = NoticeMessage(kind="test", target=target.id, delivery="tst-1").model_dump()
    with pytest.raises(MessageNotDueError):
        await deliveries.handle(QueuedMessage(1, 1, post.world.clock.now(), body))


async def test_preferences_are_kept_and_kinds_that_are_left_out_have_their_default(post: Post) -> None:
    world, email = post.world, NoticeChannel.EMAIL
    async with world.uow() as uow:
        before = await notice_preferences.read(uow, world.who)
        after = await notice_preferences.replace(
            uow, world.who, {NoticeKind.STARTED: [email], NoticeKind.ENDED: []}, before.version, world.clock.now()
        )
        again = await notice_preferences.replace(
            uow, world.who, {NoticeKind.ENDED: [email]}, after.version, world.clock.now()
        )
    assert before.kinds[NoticeKind.STARTED] == frozenset()
    assert before.kinds[NoticeKind.ENDED] == frozenset(NoticeChannel)
    assert (after.kinds[NoticeKind.STARTED], after.kinds[NoticeKind.ENDED]) == (frozenset({email}), frozenset())
    assert again.kinds == before.kinds | {NoticeKind.ENDED: frozenset({email})}


@asynccontextmanager
async def racing(count: int, act: Callable[[], object]) -> AsyncIterator[list[object]]:
    yield await asyncio.gather(*(act() for _ in range(count)), return_exceptions=True)  # type: ignore[call-overload]


async def test_ten_targets_are_enough_also_when_asked_for_at_once(post: Post) -> None:
    async with racing(15, post.target) as results:
        made = [result for result in results if isinstance(result, NoticeTarget)]
    assert len(made) == notice_targets.MOST_TARGETS
    async with post.world.uow() as uow:
        assert len(await uow.notices.targets(post.world.who.user_id, after=None, limit=100)) == 10


async def test_what_is_told_late_is_the_slot_as_it_was_then(bookings: BookingWorld) -> None:
    made = await bookings.booked(START + 24 * HOUR)
    async with bookings.world.uow() as uow:
        later = BookingChange(start=(START + 30 * HOUR).isoformat())
        await change_booking(uow, bookings.world.who, made.id, later, None)
    slots = [
        "from Wed 2 Jan 2030 12:00 to 13:00 UTC",
        "from Wed 2 Jan 2030 18:00 to 19:00 UTC",
    ]
    events = await bookings.rows("SELECT id FROM events WHERE reservation_id = :id ORDER BY id", id=made.id)
    for event, slot in zip(events, slots, strict=True):
        async with bookings.world.uow() as uow:
            found = await uow.notices.occasion(event["id"])
        assert found is not None
        assert slot in notice_of(*found, user="alice", delivery="d").text
