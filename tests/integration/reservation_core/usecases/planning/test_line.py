"""The waiting line as people page through it: all types together, in the order of priority and arrival."""

from reservation_core.ports.jobs.reservations import JobView
from tests.integration.reservation_core.usecases.world import World


async def page(world: World, after: tuple[int, int] | None, user_id: int | None = None) -> list[JobView]:
    async with world.uow() as uow:
        return await uow.reservations.waiting_views(user_id, limit=4, after=after)


async def test_pages_of_the_line_are_in_order_without_gaps_and_repeats(world: World) -> None:
    types = (None, "h100", "t4")
    ids = [await world.submitted(gpu_type=types[n % 3], priority=(0, -1, 5, -1, 0)[n % 5]) for n in range(15)]
    rows = [await world.row(job_id) for job_id in ids]
    wanted = [row.id for row in sorted(rows, key=lambda row: (-row.priority, row.seq))]
    for user_id in (None, world.who.user_id):
        seen: list[str] = []
        after = None
        while found := await page(world, after, user_id):
            seen += [view.reservation.id for view in found]
            last = found[-1].reservation
            after = (-last.priority, last.seq)
        assert seen == wanted
    assert await page(world, None, world.who.user_id + 1) == []
