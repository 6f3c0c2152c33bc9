"""The scheduler of mapped pods: what it binds, what it tells, and what it waits for."""

import asyncio
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from pod_scheduling.domain.maps.map_placement import Reserved
from pod_scheduling.ports.map_cluster import NodeSeen, PodBound, PodWaiting, Sight
from pod_scheduling.ports.pod_binding import PodChangedError, PodRef
from pod_scheduling.usecases.maps.bind_mapped_pods import MapScheduler
from tests.unit.pod_scheduling.usecases.maps.mapped_pods import RULES, Candidate, node, pod, running
from tests.unit.pod_scheduling.usecases.maps.scripted_map_cluster import Truth, View
from tests.virtual_time import run_virtually


async def _full_node(pods: int) -> tuple[MapScheduler, View, Truth]:
    truth = Truth()
    view = View(truth, random.Random(1))
    truth.put_node(node(allocatable={"cpu": 0}))
    for number in range(pods):
        truth.add_pod(pod(number, devices=()))
    return MapScheduler(view, RULES, lambda: 100.0), view, truth


def test_of_many_that_wait_each_change_makes_linear_work_and_no_flood_of_words() -> None:
    async def work() -> None:
        scheduler, view, truth = await _full_node(5000)
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(200)
        assert len(view.told) == 5000
        looked = time.process_time()
        for number in range(1, 11):
            truth.put_node(node(allocatable={"cpu": number}))
            await asyncio.sleep(1)
        assert time.process_time() - looked < 10 * 2.5  # 5,000 looks each; 0.1 s on a machine that is not busy
        await asyncio.sleep(60)
        assert len(view.told) <= 10_000, "what changes in between is told once in 30 s"
        before = len(view.told)
        for _ in range(10):
            truth.put_node(node(allocatable={"cpu": 10}))
            await asyncio.sleep(1)
        assert len(view.told) == before, "a node that only says it lives wakes nobody"
        truth.put_node(node(allocatable={"cpu": 1000 * 7}))
        await asyncio.sleep(5)
        assert truth.binds == 7
        task.cancel()
        await asyncio.wait([task])

    run_virtually(work())


def test_what_is_told_does_not_keep_anybody_from_being_bound() -> None:
    async def work() -> None:
        scheduler, view, truth = await _full_node(1000)

        async def slow(ref: PodRef, reason: str, message: str) -> None:
            del ref, reason, message
            await asyncio.sleep(60)

        view.report_waiting = slow  # type: ignore[method-assign]
        truth.put_node(node("w1", "node1"))
        truth.add_pod(pod(1001, "node1"))
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(2)
        assert truth.pods["uid-1001"].node == "w1"
        task.cancel()
        await asyncio.wait([task])

    run_virtually(work())


def test_who_has_changed_is_told_as_it_is_then_and_nobody_who_was_bound() -> None:
    async def work() -> None:
        truth = Truth()
        view = View(truth, random.Random(1))
        scheduler = MapScheduler(view, RULES, lambda: 1000.0)
        tell, changing = view.report_waiting, [True]

        async def tell_as_seen(ref: PodRef, reason: str, message: str) -> None:
            if changing[0]:
                raise PodChangedError("it is another state")
            await tell(ref, reason, message)

        view.report_waiting = tell_as_seen  # type: ignore[method-assign]
        one, other = pod(0, "nowhere"), pod(1, "nowhere")
        truth.add_pod(one)
        truth.add_pod(other)
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(5)
        assert (view.told, view.events) == ([], [])
        changing[0] = False
        truth.bind("uid-1", "elsewhere")  # somebody else has
        scheduler.see(PodWaiting(one.ref, one.mapped))
        await asyncio.sleep(5)
        assert [uid for uid, _ in view.told] == ["uid-0"]
        assert view.events == [("uid-0", "FailedScheduling")]
        task.cancel()
        await asyncio.wait([task])

    run_virtually(work())


def test_a_bind_without_an_answer_keeps_its_cards_until_it_can_come_no_more() -> None:
    async def work() -> None:
        truth = Truth()
        view = View(truth, random.Random(1))
        truth.put_node(node())
        scheduler = MapScheduler(view, RULES, lambda: 3.0)
        held: list[PodRef] = []

        async def hang(ref: PodRef, to: str, _marks: object = None) -> None:
            del to
            held.append(ref)
            await asyncio.sleep(1000)

        view.bind = hang  # type: ignore[method-assign]
        truth.add_pod(pod(0, group="a"))
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(1)
        truth.add_pod(pod(1, group="b"))
        await asyncio.sleep(6)
        assert [bound_pod.name for bound_pod in held] == ["p-0"]  # given up after 3 s, kept for 5 more
        truth.drop_pod("uid-0")
        await asyncio.sleep(1)
        assert [bound_pod.name for bound_pod in held] == ["p-0", "p-1"]
        task.cancel()
        await asyncio.wait([task])

    run_virtually(work())


def test_who_is_to_end_waits_for_its_binds_and_says_whether_all_is_settled() -> None:
    async def work(bind_s: float) -> tuple[bool, int]:
        truth = Truth()
        view = View(truth, random.Random(1))
        truth.put_node(node())
        scheduler = MapScheduler(view, RULES, lambda: 3.0)

        async def bind(ref: PodRef, to: str, _marks: object = None) -> None:
            await asyncio.sleep(bind_s)
            truth.bind(ref.uid, to)

        view.bind = bind  # type: ignore[method-assign]
        for number in range(8):
            truth.add_pod(pod(number, devices=()))
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(0.6)
        assert not scheduler.settled
        await scheduler.settle()
        settled, bound = scheduler.settled, truth.binds
        await asyncio.sleep(20)
        assert truth.binds == bound, "nothing is begun any more"
        task.cancel()
        await asyncio.wait([task])
        return settled, bound

    assert run_virtually(work(1.0)) == (True, 4)
    assert run_virtually(work(100.0)) == (False, 0)


def test_what_was_seen_before_it_led_does_not_count() -> None:
    async def work() -> None:
        truth = Truth()
        one, other = (Candidate(View(truth, random.Random(number))) for number in range(2))
        truth.put_node(node())
        other.view.lag_s = 1000  # its watch is all but dead
        async with running(one, other):
            await asyncio.sleep(1)
            one.lead_for(10)
            truth.add_pod(pod(0, group="a"))
            await asyncio.sleep(9)
            assert truth.pods["uid-0"].node == "w0"
            truth.add_pod(pod(1, group="b"))
            await asyncio.sleep(1)
            other.lead_for(100)
            await asyncio.sleep(50)
        assert truth.breaches == []
        assert truth.pods["uid-1"].node is None
        assert [uid for uid, _ in other.view.told] == ["uid-1"]

    run_virtually(work())


def test_what_the_ledger_lets_go_is_bound() -> None:
    async def work() -> None:
        truth = Truth()
        view = View(truth, random.Random(1))
        truth.put_node(node())
        scheduler = MapScheduler(view, RULES, lambda: 100.0)
        reserved = {"w0": {0: (Reserved("r-1", datetime(2026, 1, 1, tzinfo=UTC), "Card 0 of w0 is r-1's."),)}}
        scheduler.reserve(reserved)
        truth.add_pod(pod(0))
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(2)
        assert view.told == [("uid-0", "DeviceReserved: Card 0 of w0 is r-1's.")]
        scheduler.reserve({})
        await asyncio.sleep(2)
        assert truth.binds == 1
        task.cancel()
        await asyncio.wait([task])

    run_virtually(work())


@pytest.mark.parametrize("gone", [True, False])
def test_nothing_is_kept_of_who_is_gone(gone: bool) -> None:
    async def work() -> None:
        truth = Truth()
        view = View(truth, random.Random(1), harm=0.5)
        scheduler = MapScheduler(view, RULES, lambda: 3.0)
        truth.put_node(node(allocatable={"cpu": 10**9}))
        task = asyncio.create_task(scheduler.run())
        for number in range(300):
            truth.add_pod(pod(number, devices=()))
            await asyncio.sleep(0.1)
        await asyncio.sleep(3000)
        for uid in list(truth.pods):
            if gone:
                truth.drop_pod(uid)
        await asyncio.sleep(200)
        kept = {name: len(value) for name, value in vars(scheduler).items() if isinstance(value, dict | set)}
        assert all(amount == 0 for amount in kept.values()), kept
        assert len(scheduler._assumed) == 0
        task.cancel()
        await asyncio.wait([task])

    run_virtually(work())


def test_a_state_from_before_the_bind_does_not_undo_it() -> None:
    async def work() -> None:
        truth = Truth()
        view = View(truth, random.Random(1))
        scheduler = MapScheduler(view, RULES, lambda: 100.0)
        scheduler.see(NodeSeen(node()))
        task = asyncio.create_task(scheduler.run())
        truth.put_node(node())
        truth.add_pod(pod(0, group="a"))
        await asyncio.sleep(2)
        bound = truth.pods["uid-0"]
        calls = view.bind_calls
        scheduler.see(PodBound(bound.ref, "w0", bound.mapped.burden))
        scheduler.see(PodWaiting(pod(1, group="b").ref, pod(1, group="b").mapped))
        await asyncio.sleep(2)
        assert view.bind_calls == calls
        task.cancel()
        await asyncio.wait([task])

    run_virtually(work())


def test_a_late_bind_that_is_not_seen_yet_is_found_out() -> None:
    async def work() -> None:
        truth = Truth()
        view = View(truth, random.Random(1))
        truth.put_node(node())
        scheduler = MapScheduler(view, RULES, lambda: 3.0)
        really = view.bind

        async def late(ref: PodRef, to: str, _marks: object = None) -> None:
            view.lag_s = 10_000  # and from now on nothing is heard
            view.bind = really  # type: ignore[method-assign]
            view.late.add(asyncio.create_task(carried_out(ref.uid, to)))
            await asyncio.sleep(1000)

        async def carried_out(uid: str, to: str) -> None:
            await asyncio.sleep(3)
            truth.bind(uid, to)

        view.bind = late  # type: ignore[method-assign]
        truth.add_pod(pod(0, group="a"))
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(1)
        waits = pod(1, group="b")
        truth.pods["uid-1"] = waits
        scheduler.see(PodWaiting(waits.ref, waits.mapped))
        await asyncio.sleep(60)
        assert truth.breaches == []
        assert waits.node is None
        task.cancel()
        await asyncio.wait([task])

    run_virtually(work())


def test_who_was_looked_at_too_early_is_looked_at_when_all_is_seen() -> None:
    async def work() -> None:
        truth = Truth()
        view = View(truth, random.Random(1))
        truth.put_node(node())
        truth.add_pod(pod(0))
        scheduler = MapScheduler(view, RULES, lambda: 100.0)

        async def follow(handle: Callable[[Sight], None], listed: Callable[[], None]) -> None:
            await asyncio.sleep(1)
            listed()
            scheduler.lead()
            handle(PodWaiting(truth.pods["uid-0"].ref, truth.pods["uid-0"].mapped))
            handle(NodeSeen(node()))
            await asyncio.sleep(1)
            assert view.bind_calls == 0
            listed()
            await asyncio.sleep(1000)

        view.follow = follow  # type: ignore[method-assign]
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(3)
        assert truth.binds == 1
        task.cancel()
        await asyncio.wait([task])

    run_virtually(work())
