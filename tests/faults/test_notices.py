"""Notices, endpoints that fail and processors that die: each arrives at least once, or lies in the dead letters."""

import asyncio
import signal
from typing import Any

from aiohttp import web

from reservation_core.domain.notices.kinds import NoticeChannel, TargetStatus
from reservation_core.ports.people.notices import NoticeTarget
from reservation_core.ports.queues import DeadLetter, QueueName
from reservation_core.usecases.people import notice_targets
from tests.faults.systems.system import System
from tests.network.receivers import receiving
from tests.waiting import eventually

QUICK: dict[str, object] = {
    "notices__allow": "127.0.0.0/8",
    "notices__sweep_s": 0.1,
    "notices__visibility_s": 1,
    "notices__first_pause_s": 0.1,
    "notices__longest_pause_s": 1,
    "notices__timeout_s": 1,
}
NOTIFICATIONS = QueueName.NOTIFICATIONS


async def listening(system: System, url: str) -> NoticeTarget:
    """The owner is told there."""
    async with system.runtime.uow() as uow:
        target, _ = await notice_targets.create(
            uow, system.owner, channel=NoticeChannel.WEBHOOK, address=url, name=None, ids=system.runtime.ids,
            now=system.runtime.clock.now(),
        )  # fmt: skip
    return target


async def cancelled(system: System, jobs: int = 1) -> set[str]:
    """Jobs that wait (for more cards than there are) and are cancelled, of which their owner is told."""
    ids = await system.submit(*(system.new(system.records.workload(), gpus=64) for _ in range(jobs)))
    for job_id in ids:
        await system.cancel(job_id)
    return set(ids)


async def depth(system: System) -> int:
    async with system.runtime.uow() as uow:
        return {m.queue: m.depth for m in await uow.queue.metrics()}[NOTIFICATIONS.value]


async def letters(system: System) -> list[DeadLetter]:
    async with system.runtime.uow() as uow:
        return await uow.queue.dead_letters(NOTIFICATIONS, 100)


async def settled(system: System) -> bool:
    return await depth(system) == 0


async def test_a_processor_killed_between_sending_and_noting_sends_it_again_by_the_same_id(system: System) -> None:
    async with receiving() as receiver:
        await listening(system, receiver.url())
        with system.processor(**QUICK) as dying:

            async def kill(_request: web.Request) -> web.StreamResponse:
                dying.send(signal.SIGKILL)
                return web.Response(status=204)

            receiver.answer = kill
            [job_id] = await cancelled(system)
            await eventually(lambda: dying.returncode() is not None)
        receiver.answer = None
        assert len(receiver.got) == 1
        with system.processor(**QUICK):
            await eventually(lambda: settled(system))
        first, *again = receiver.got
        assert again
        assert {got.delivery for got in again} == {first.delivery}
        assert {got.json["reservation"]["id"] for got in receiver.got} == {job_id}


async def test_an_endpoint_that_errs_stalls_and_hangs_up_gets_all_in_the_end(system: System) -> None:
    async with receiving() as receiver:
        await listening(system, receiver.url())
        moods = iter(["err", "stall", "hang up", "err", "busy", "stall", "err"])

        async def moody(request: web.Request) -> web.StreamResponse:
            mood = next(moods, "fine")
            if mood == "stall":
                await asyncio.Event().wait()
            if mood == "hang up":
                transport = request.transport
                assert transport is not None
                transport.abort()
            return web.Response(status={"err": 500, "busy": 429}.get(mood, 204))

        receiver.answer = moody
        expected = await cancelled(system, 5)
        with system.processor(**QUICK):
            await eventually(lambda: settled(system))
        assert {got.json["reservation"]["id"] for got in receiver.got} == expected
        assert await letters(system) == []


async def test_a_dead_endpoint_leaves_dead_letters_that_can_be_sent_again(system: System) -> None:
    async with receiving() as gone:
        url = gone.url()
    target = await listening(system, url)
    expected = await cancelled(system, 2)
    with system.processor(**QUICK, notices__tries=2):

        async def given_up() -> Any:
            return len(await letters(system)) == 2 and await settled(system)

        await eventually(given_up)
        for letter in await letters(system):
            assert "No connection could be made" in letter.error
            assert "127.0.0.1" not in letter.error
        async with system.runtime.uow() as uow:
            found = await uow.notices.target(target.id, None)
        assert found is not None
        assert found.status is TargetStatus.FAILING
        # It is somewhere else now.
        async with receiving() as receiver:
            await system.rows("UPDATE notice_targets SET address = :url", url=receiver.url())
            async with system.runtime.uow() as uow:
                assert await uow.queue.redrive(NOTIFICATIONS, None) == 2

            async def all_here() -> bool:
                return {got.json["reservation"]["id"] for got in receiver.got} == expected

            await eventually(all_here)
            await eventually(lambda: settled(system))
        assert await letters(system) == []


async def test_every_processor_delivers_and_each_notice_goes_out_once_when_nothing_fails(system: System) -> None:
    async with receiving() as receiver:
        await listening(system, receiver.url())
        patient = {**QUICK, "notices__visibility_s": 120, "notices__timeout_s": 60}  # to be slow is not to fail
        with system.processor(**patient), system.processor(**patient):
            expected = await cancelled(system, 30)
            await eventually(lambda: len(receiver.got) >= len(expected))
            await eventually(lambda: settled(system))
        assert len(receiver.got) == len(expected)
        assert {got.json["reservation"]["id"] for got in receiver.got} == expected


async def test_a_processor_told_to_stop_while_an_endpoint_is_silent_ends_in_order(system: System) -> None:
    async with receiving() as receiver:
        await listening(system, receiver.url())

        async def silent(_request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        receiver.answer = silent
        with system.processor(**QUICK):
            await cancelled(system, 10)
            await eventually(lambda: receiver.got)
        # The block's end asked it to end and saw that it did so with 0; nothing is lost.
        assert await depth(system) == 10
