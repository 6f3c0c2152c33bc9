"""All cards at this moment: the same that the list of cards says, and who comes next."""

from datetime import UTC, datetime, timedelta
from operator import attrgetter

from reservation_core.adapters.postgres.nodes.inventory import Inventory
from reservation_core.domain.statuses import GpuState, ReservationKind

HOUR = timedelta(hours=1)


async def _nodes(engine, before=None):
    async with engine.begin() as connection:
        inventory = Inventory(connection, None)
        return await inventory.nodes_now(HOUR, before or {}), await inventory.gpus(after=None, limit=1000)


async def _all_kinds(seed) -> datetime:
    """Two nodes with a card of every kind; the moment from which their times count."""
    now = datetime.now(UTC).replace(microsecond=123456)
    ada, bob = await seed.user(), await seed.user("bob")
    cards = await seed.node("node-a", 8)
    others = await seed.node("node-b", 2, "a100")
    for job, user, card, start, end, held in (
        ("job-held", ada, cards[0], -HOUR, 2 * HOUR, True),
        ("job-over", bob, cards[1], -2 * HOUR, -HOUR, True),
        ("job-soon", bob, cards[2], HOUR / 2, 3 * HOUR, False),
        ("job-later", bob, cards[3], 3 * HOUR, 4 * HOUR, False),
        ("job-lost", ada, cards[4], -HOUR, HOUR, True),
    ):
        await seed.job(job, user)
        await seed.allocate(job, card, now + start, now + end, held=held)
    await seed.job("job-first", ada)
    await seed.allocate("job-first", cards[3], now + HOUR / 4, now + HOUR / 2, held=False)
    await seed.job("mnt-1", ada, "active", kind="maintenance")
    await seed.allocate("mnt-1", cards[5], now - HOUR, now + HOUR, held=False)
    await seed.run("UPDATE gpus SET condition = 'lost' WHERE id = :id RETURNING id", id=cards[4])
    await seed.run("UPDATE gpus SET condition = 'quarantined' WHERE id = :id RETURNING id", id=cards[6])
    await seed.run("UPDATE nodes SET schedulable = false, detail = 'Cordoned.' WHERE name = 'node-b' RETURNING id")
    assert others
    return now


async def test_a_holder_ends_when_its_time_is_over_though_its_gpu_is_free_later(engine, seed) -> None:
    """As on the job's own page: its pod has some seconds more to end."""
    now = datetime.now(UTC)
    [card] = await seed.node("node-a", 1)
    await seed.job("job-runs", await seed.user(), "running", attempt=1, started_at=now, ends_at=now + HOUR)
    await seed.allocate("job-runs", card, now, now + HOUR + timedelta(seconds=10), held=True)
    [node], [gpu] = await _nodes(engine)
    assert node.cards[0].holder.ends_at == now + HOUR
    assert gpu.free_at == now + HOUR + timedelta(seconds=10)


async def test_they_say_what_the_list_of_cards_says(engine, seed) -> None:
    await _all_kinds(seed)
    nodes, gpus = await _nodes(engine)
    told = [
        (
            *(c.node, c.index, c.uuid, c.gpu_type, c.memory_bytes, c.state),
            *((None,) * 4 if c.holder is None else (c.holder.id, c.holder.user, c.holder.user_id, c.holder.ends_at)),
            c.follower.starts_at if c.state is GpuState.FREE and c.follower is not None else None,
        )
        for node in nodes
        for c in node.cards
    ]
    listed = attrgetter(
        "node", "index", "uuid", "gpu_type", "memory_bytes", "state", "holder_id", "holder_user", "holder_user_id",
        "free_at", "taken_at",
    )  # fmt: skip
    assert told == [listed(gpu) for gpu in gpus]
    async with engine.begin() as connection:
        listed_nodes = await Inventory(connection, None).nodes(after=None, limit=10)
    free = [[c.follower is not None for c in node.cards if c.state is GpuState.FREE] for node in nodes]
    assert [(one.free, one.taken_soon) for one in listed_nodes] == [(len(free[0]), sum(free[0])), (0, 0)]
    assert sum(free[0]) == 2
    assert {state for *_, state in (card_row[:6] for card_row in told)} >= {GpuState.FREE, GpuState.HELD, GpuState.LOST}


async def test_they_say_who_comes_next_within_the_time_that_is_asked_for(engine, seed) -> None:
    now = await _all_kinds(seed)
    (first, second), _ = await _nodes(engine)
    followers = {card.index: card.follower.id for card in first.cards if card.follower is not None}
    assert followers == {2: "job-soon", 3: "job-first"}
    soon = first.cards[2].follower
    assert soon is not None
    assert (soon.kind, soon.user, soon.starts_at, soon.ends_at) == (
        ReservationKind.JOB, "bob", now + HOUR / 2, now + 3 * HOUR
    )  # fmt: skip
    assert first.cards[5].holder is not None
    assert (first.cards[5].state, first.cards[5].holder.kind) == (GpuState.MAINTENANCE, ReservationKind.MAINTENANCE)
    assert (first.available, first.detail, second.available) == (True, None, False)
    assert "Cordoned." in second.detail


async def test_what_is_as_before_is_not_taken_apart_again(engine, seed) -> None:
    await _all_kinds(seed)
    before, _ = await _nodes(engine)
    known = {node.name: node for node in before}
    again, _ = await _nodes(engine, known)
    assert [a is b for a, b in zip(before, again, strict=True)] == [True, True]
    await seed.run("UPDATE gpus SET condition = 'usable' WHERE condition = 'lost' RETURNING id")
    changed, _ = await _nodes(engine, known)
    assert [a is b for a, b in zip(before, changed, strict=True)] == [False, True]
    assert changed[0].cards[4].state is GpuState.HELD


async def test_a_removed_node_is_there_while_somebody_holds_a_card_of_it(engine, seed) -> None:
    await _all_kinds(seed)
    await seed.run("UPDATE nodes SET removed_at = now() RETURNING id")
    (only,), gpus = await _nodes(engine)
    assert [card.index for card in only.cards] == [gpu.index for gpu in gpus]
    assert [card.index for card in only.cards] == [0, 1, 4, 5]


async def test_a_node_without_cards_is_there(engine, seed) -> None:
    await seed.node("bare", 0)
    (bare,), _ = await _nodes(engine)
    assert (bare.name, bare.cards) == ("bare", ())
