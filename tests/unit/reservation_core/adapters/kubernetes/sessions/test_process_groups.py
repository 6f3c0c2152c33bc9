"""Programs are hung up together, and later where their pod can't be reached."""

import asyncio
from collections.abc import Collection

import pytest

from reservation_core.adapters.kubernetes.sessions.process_groups import HangUps
from reservation_core.domain.model import PodName
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import PodNotReachableError
from tests.virtual_time import run_virtually

POD = PodName("job-7f3k9q2m", 1, 0)


class Execs:
    """Notes the groups that are signalled; the first ones fail with these errors."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = [*errors]
        self.signalled: list[list[int]] = []

    async def send(self, pod: PodName, groups: Collection[int], names: tuple[str, ...]) -> None:
        assert (pod, names) == (POD, ("HUP", "CONT"))
        self.signalled.append(sorted(groups))
        await asyncio.sleep(1)
        if self.errors:
            raise self.errors.pop(0)


async def left(hang_ups: HangUps, group: int) -> None:
    """As a program is left: with little patience."""
    try:
        async with asyncio.timeout(10):
            await hang_ups.hang_up(POD, group)
    except TimeoutError:
        return


def test_programs_that_are_left_meanwhile_share_the_next_exec() -> None:
    execs = Execs()

    async def leave() -> None:
        hang_ups = HangUps(execs.send)
        first = asyncio.create_task(left(hang_ups, 1))
        await asyncio.sleep(0.5)
        await asyncio.gather(first, left(hang_ups, 2), left(hang_ups, 3))

    run_virtually(leave())
    assert execs.signalled == [[1], [2, 3]]


def test_a_pod_that_cannot_be_reached_is_tried_until_it_can() -> None:
    execs = Execs(*(ClusterUnavailableError("away") for _ in range(6)))

    async def leave() -> float:
        hang_ups = HangUps(execs.send)
        await left(hang_ups, 1)
        assert asyncio.get_running_loop().time() == 10
        await hang_ups.hang_up(POD, 2)
        return asyncio.get_running_loop().time()

    assert run_virtually(leave()) < 120
    assert execs.signalled[-2:] == [[1, 2], [1, 2]]


def test_an_exec_that_never_answers_holds_up_no_others() -> None:
    execs = Execs()
    stuck = [asyncio.sleep(3600)]

    async def send(pod: PodName, groups: Collection[int], names: tuple[str, ...]) -> None:
        if stuck:
            await stuck.pop()
        await execs.send(pod, groups, names)

    async def leave() -> float:
        hang_ups = HangUps(send)
        await left(hang_ups, 1)
        await hang_ups.hang_up(POD, 2)
        return asyncio.get_running_loop().time()

    assert run_virtually(leave()) < 60
    assert execs.signalled == [[1, 2]]


def test_a_pod_that_has_ended_is_not_tried_again() -> None:
    execs = Execs(ClusterUnavailableError("away"), PodNotReachableError("ended"))
    run_virtually(left(HangUps(execs.send), 1))
    assert execs.signalled == [[1], [1]]


@pytest.mark.parametrize("times", [1, 2])
def test_closing_tries_no_more(times: int) -> None:
    execs = Execs(*(ClusterUnavailableError("away") for _ in range(100)))

    async def leave() -> None:
        hang_ups = HangUps(execs.send)
        await left(hang_ups, 1)
        for _ in range(times):
            await hang_ups.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(leave())
