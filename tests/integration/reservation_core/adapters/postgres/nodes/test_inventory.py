"""The inventory's tables: batches in, history kept, one message to the planner if it matters, and what readers see."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError

from reservation_core.adapters.postgres.connection.queues import Queue, open_client
from reservation_core.adapters.postgres.nodes.inventory import Inventory
from reservation_core.adapters.postgres.planning.planning import Planning
from reservation_core.domain.cards.link_words import Links, format_links, read_links
from reservation_core.domain.cards.node_reports import GpuReport, NodeReport
from reservation_core.domain.model import ForeignPod
from reservation_core.domain.statuses import GpuState
from tests.waiting import PATIENCE_S

GIB = 2**30
SOMEBODY_WAITS = text(
    "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def report(name: str = "node-a", cards: int = 2, **fields) -> NodeReport:
    gpus = tuple(GpuReport(index, "h100", f"GPU-{name}-{index}", 80 * GIB) for index in range(cards))
    return NodeReport(name, **{"ready": True, "schedulable": True, "gpus": gpus, "labels": (("zone", "1"),), **fields})


@pytest.fixture
async def update(engine, seed):
    client = await open_client(engine)

    async def update(*nodes: NodeReport, foreign: tuple[ForeignPod, ...] = (), at=seed.now):
        async with engine.begin() as connection:
            inventory = Inventory(connection, Queue(client, connection))
            return await inventory.update(nodes, foreign, at)

    return update


@pytest.fixture
async def read(engine):
    client = await open_client(engine)

    async def read(what: str, **values):
        async with engine.begin() as connection:
            inventory = Inventory(connection, Queue(client, connection))
            return await getattr(inventory, what)(**values)

    return read


async def links_known(seed) -> dict[str, Links]:
    async with seed.engine.begin() as connection:
        return {node.name: node.links for node in await Planning(connection).nodes() if node.links is not None}


async def messages(seed) -> list[object]:
    """Takes what was sent to the planner."""
    rows = await seed.rows("SELECT message FROM pgmq.q_gpu_jobs ORDER BY msg_id")
    await seed.run("DELETE FROM pgmq.q_gpu_jobs")
    return [row["message"] for row in rows]


async def test_a_new_node_is_stored_recorded_and_told(seed, update, read) -> None:
    changes = await update(report())
    assert [(c["kind"], c["node"], c["index"]) for c in changes] == [
        ("node_added", "node-a", None),
        ("gpu_added", "node-a", 0),
        ("gpu_added", "node-a", 1),
    ]
    assert await messages(seed) == [{"v": 1, "kind": "inventory", "id": None}]
    cards = await read("gpus", after=None, limit=10)
    assert [(c.node, c.index, c.uuid, c.memory_bytes, c.state) for c in cards] == [
        ("node-a", 0, "GPU-node-a-0", 80 * GIB, GpuState.FREE),
        ("node-a", 1, "GPU-node-a-1", 80 * GIB, GpuState.FREE),
    ]
    (node,) = await read("nodes", after=None, limit=10)
    assert (node.gpu_types, node.gpus, node.free, node.labels) == (("h100",), 2, 2, {"zone": "1"})
    assert (node.last_seen_at, node.removed_at) == (seed.now, None)
    recorded = await seed.rows("SELECT subject, actor, kind, before, after, data, at FROM events ORDER BY id")
    assert [(e["subject"], e["kind"], e["before"], e["after"]) for e in recorded] == [
        ("node-a", "node_added", None, "ready"),
        ("node-a/0", "gpu_added", None, "usable"),
        ("node-a/1", "gpu_added", None, "usable"),
    ]
    assert recorded[1]["data"]["after"]["uuid"] == "GPU-node-a-0"
    assert {(e["actor"], e["at"]) for e in recorded} == {("system", seed.now)}


async def test_by_which_resource_a_nodes_cards_are_asked_for_is_kept(seed, update) -> None:
    await update(report(gpu_resource="amd.com/gpu"))
    assert await update(report(gpu_resource="amd.com/gpu")) == []
    assert (await seed.rows("SELECT gpu_resource FROM nodes"))[0]["gpu_resource"] == "amd.com/gpu"
    [change] = await update(report())
    assert (change["before"], change["after"]) == ({"gpu_resource": "amd.com/gpu"}, {"gpu_resource": None})


async def test_how_cards_are_joined_is_kept_told_and_read(seed, update, read) -> None:
    links = read_links("NV18 0-1 2-3")
    await update(report("node-a", 4, links=links), report("node-b", 4, links=links), report("node-c", 4))
    assert await messages(seed) == [{"v": 1, "kind": "inventory", "id": None}]
    assert await update(report("node-a", 4, links=links), report("node-b", 4, links=links), report("node-c", 4)) == []
    assert [node.links for node in await read("nodes", after=None, limit=10)] == [links, links, None]
    assert await links_known(seed) == {"node-a": links, "node-b": links}
    apart = read_links("0-3")
    [change] = await update(report("node-a", 4, links=apart), report("node-b", 4, links=links), report("node-c", 4))
    assert (change["before"]["gpu_links"], change["after"]["gpu_links"]) == (format_links(links), format_links(apart))
    assert await messages(seed) == [{"v": 1, "kind": "inventory", "id": None}]
    await update(report("node-a", 4))
    assert await links_known(seed) == {}


async def test_the_widest_links_are_stored_and_nothing_else(seed, update) -> None:
    widest = tuple(tuple(0 if one == other else 104 for other in range(64)) for one in range(64))
    await update(report("node-a", 64, links=widest))
    for wrong in ("", "NV4 X", "X NV0", "X NV100", "X;", "X SYS;sys X", "X\nX", "X  X"):
        with pytest.raises(IntegrityError):
            await seed.run("UPDATE nodes SET gpu_links = :wrong", wrong=wrong)


async def test_nothing_new_writes_nothing_but_the_time_once_a_minute(seed, update) -> None:
    await update(report())
    await messages(seed)
    before = await seed.rows("SELECT CAST(xmin AS text) FROM gpus ORDER BY id")
    for seconds, seen in ((30, 0), (59, 0), (60, 60), (90, 60)):
        assert await update(report(), at=seed.now + timedelta(seconds=seconds)) == []
        last = await seed.rows("SELECT last_seen_at FROM nodes")
        assert last == [{"last_seen_at": seed.now + timedelta(seconds=seen)}]
    assert await seed.rows("SELECT CAST(xmin AS text) FROM gpus ORDER BY id") == before
    assert await seed.run("SELECT count(*) FROM events") == 3
    assert await messages(seed) == []


async def test_a_node_that_is_gone_is_kept_as_removed(seed, update, read) -> None:
    await update(report(), report("node-b", 1))
    await messages(seed)
    later = seed.now + seed.hour
    await update(report("node-b", 1), at=later)
    assert await messages(seed) == [{"v": 1, "kind": "inventory", "id": None}]
    rows = await seed.rows("SELECT name, ready, removed_at, last_seen_at FROM nodes ORDER BY name")
    assert rows[0] == {"name": "node-a", "ready": False, "removed_at": later, "last_seen_at": seed.now}
    assert await seed.run("SELECT count(*) FROM gpus WHERE condition = 'lost'") == 2
    assert [n.name for n in await read("nodes", after=None, limit=10)] == ["node-b"]
    assert [c.node for c in await read("gpus", after=None, limit=10)] == ["node-b"]
    assert await read("gpu_counts") == [("h100", GpuState.FREE, 1)]
    await update(report("node-b", 1), at=later + seed.hour)
    assert await messages(seed) == []
    ids = await seed.rows("SELECT id FROM gpus ORDER BY id")
    await update(report(), report("node-b", 1), at=later + seed.hour)
    assert await seed.rows("SELECT id FROM gpus ORDER BY id") == ids
    assert await seed.run("SELECT count(*) FROM gpus WHERE condition = 'usable'") == 3
    assert await seed.run("SELECT count(*) FROM nodes WHERE removed_at IS NULL AND ready") == 2


async def test_cards_of_a_removed_node_are_shown_while_held(seed, update, read) -> None:
    await update(report())
    user = await seed.user()
    await seed.job("job-a", user, "starting", attempt=1)
    await seed.allocate("job-a", await seed.run("SELECT id FROM gpus WHERE index = 1"))
    await update()
    (card,) = await read("gpus", after=None, limit=10)
    assert (card.index, card.state, card.holder_id, card.holder_user, card.holder_user_id, card.free_at) == (
        1, GpuState.LOST, "job-a", "ada", user, seed.now + seed.hour,
    )  # fmt: skip
    (node,) = await read("nodes", after=None, limit=10)
    assert (node.removed_at, node.free) == (seed.now, 0)
    assert await read("gpu_counts") == [("h100", GpuState.LOST, 1)]


async def test_what_an_administrator_sets_between_read_and_write_stands(seed, engine, update) -> None:
    await update(report())
    async with engine.begin() as administrator:
        await administrator.exec_driver_sql("UPDATE gpus SET condition = 'maintenance' WHERE index = 0")
        # The updater has read `usable` by now, wants `lost`, and waits for this row.
        racing = asyncio.create_task(update(report(cards=0), at=seed.now + seed.hour))
        async with engine.connect() as other, asyncio.timeout(PATIENCE_S):
            while not await other.scalar(SOMEBODY_WAITS):
                await other.rollback()
    await racing
    found = await seed.rows("SELECT condition FROM gpus ORDER BY index")
    assert [row["condition"] for row in found] == ["maintenance", "lost"]


async def test_updaters_at_the_same_time_record_a_change_once(seed, update) -> None:
    changes = await asyncio.gather(*(update(report(), report("node-b")) for _ in range(4)))
    assert sorted(map(len, changes)) == [0, 0, 0, 6]
    assert await seed.run("SELECT count(*) FROM events") == 6
    assert len(await messages(seed)) == 1


async def test_foreign_pods_take_cards(seed, update, read) -> None:
    await update(report(), report("node-b"))
    user = await seed.user()
    await seed.job("job-a", user, "starting", attempt=1)
    await seed.allocate("job-a", await seed.run("SELECT min(id) FROM gpus WHERE uuid = 'GPU-node-b-0'"))
    pods = (ForeignPod("node-a", "their/known", 1, (1,)), ForeignPod("node-b", "their/unknown", 1, None))
    await messages(seed)
    await update(report(), report("node-b"), foreign=pods)
    states = [(c.node, c.index, c.state.value) for c in await read("gpus", after=None, limit=10)]
    assert states == [
        ("node-a", 0, "free"),
        ("node-a", 1, "foreign"),
        ("node-b", 0, "held"),
        ("node-b", 1, "foreign"),
    ]
    known, unknown = await read("nodes", after=None, limit=10)
    assert known.detail is None
    assert "their/unknown uses 1 GPU here: which ones is not known" in unknown.detail
    assert len(await messages(seed)) == 1
    assert await update(report(), report("node-b"), foreign=pods) == []
    await update(report(), report("node-b"))
    assert {c.state.value for c in await read("gpus", after=None, limit=10)} == {"free", "held"}


async def test_lists_go_on_after_the_last_seen(update, read) -> None:
    await update(report(), report("node-b"), report("node-c", 1))
    first = await read("gpus", after=None, limit=3)
    rest = await read("gpus", after=(first[-1].node, first[-1].index), limit=3)
    assert [(c.node, c.index) for c in first + rest] == [
        ("node-a", 0), ("node-a", 1), ("node-b", 0), ("node-b", 1), ("node-c", 0),
    ]  # fmt: skip
    assert [n.name for n in await read("nodes", after="node-a", limit=1)] == ["node-b"]
    assert await read("gpu_counts") == [("h100", GpuState.FREE, 5)]


async def test_a_node_that_changes_says_what_was_and_is(seed, update) -> None:
    await update(report())
    (change,) = await update(report(ready=False, detail="Disk is full."))
    assert change == {
        "kind": "node_changed",
        "node": "node-a",
        "index": None,
        "before": {"ready": True, "detail": None},
        "after": {"ready": False, "detail": "Disk is full."},
    }
    swapped = replace(report(ready=False, detail="Disk is full."), gpus=(GpuReport(0, "a100", None, None),))
    changes = await update(swapped)
    assert [(c["index"], c["after"]) for c in changes] == [
        (0, {"gpu_type": "a100", "uuid": None, "memory_bytes": None}),
        (1, {"condition": "lost"}),
    ]


async def test_a_large_cluster_is_few_statements(seed, engine, update) -> None:
    nodes = [report(f"node-{number}", 8) for number in range(300)]
    seen = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
    assert len(await update(*nodes)) == 300 * 9
    assert len(seen) <= 8


async def test_where_a_node_is_and_what_keeps_pods_off_it_is_stored(seed, update, read) -> None:
    where = {"zone": "eu-1", "logical_name": "rack-7", "taints": ("gpu=only:NoSchedule", 'odd="quo,ted":NoExecute')}
    await update(report(**where))
    (node,) = await read("nodes", after=None, limit=10)
    assert (node.zone, node.logical_name, node.taints) == tuple(where.values())
    assert await update(report(**where)) == []
    (change,) = await update(report(**{**where, "taints": ()}))
    assert (change["before"], change["after"]) == ({"taints": where["taints"]}, {"taints": ()})
    (change,) = [change for change in await update() if change["index"] is None]
    node = await read("node", name="node-a")
    assert (change["kind"], node.zone, node.removed_at) == ("node_removed", "eu-1", seed.now)
    assert await read("node", name="node-z") is None


async def test_a_node_that_shrinks_and_grows_keeps_the_history_of_its_cards(seed, update, read) -> None:
    await update(report(cards=4))
    ids = await seed.rows("SELECT id FROM gpus ORDER BY index")
    user = await seed.user()
    await seed.job("job-a", user, "starting", attempt=1)
    await seed.allocate("job-a", ids[3]["id"])
    await update(report(cards=2))
    states = [(c.index, c.state.value, c.holder_id) for c in await read("gpus", after=None, limit=10)]
    assert states == [(0, "free", None), (1, "free", None), (2, "lost", None), (3, "lost", "job-a")]
    await update(report(cards=4))
    states = [(c.index, c.state.value, c.holder_id) for c in await read("gpus", after=None, limit=10)]
    assert states == [(0, "free", None), (1, "free", None), (2, "free", None), (3, "held", "job-a")]
    assert await seed.rows("SELECT id FROM gpus ORDER BY index") == ids


async def test_what_keeps_a_card_from_being_given_out_comes_in_this_order(seed, update, read) -> None:
    """Its own condition, then a pod that nobody knows, then its node's absence; the holder is shown all the same."""
    await update(report(cards=4))
    ids = [row["id"] for row in await seed.rows("SELECT id FROM gpus ORDER BY index")]
    user = await seed.user()
    await seed.job("job-a", user, "starting", attempt=1)
    await seed.allocate("job-a", ids[3])
    await seed.run("UPDATE gpus SET condition = 'maintenance' WHERE index = 0")
    await seed.run(
        "INSERT INTO unknown_pods (name, reservation_id, node, gpu_indices, detail, first_seen_at) "
        "VALUES ('job-x-1-0', 'job-x', 'node-a', '{0,1}', 'Who knows.', now())"
    )
    told = ["maintenance", "foreign", "free", "held"]
    assert [card.state.value for card in await read("gpus", after=None, limit=10)] == told
    await update(report(cards=4, ready=False))
    told = ["maintenance", "foreign", "quarantined", "quarantined"]
    cards = await read("gpus", after=None, limit=10)
    assert [card.state.value for card in cards] == told
    assert cards[3].holder_id == "job-a"
    counts = {state.value: count for _, state, count in await read("gpu_counts")}
    assert counts == {"maintenance": 1, "foreign": 1, "quarantined": 2}
    # What was written down is untouched: it all follows from elsewhere.
    assert await seed.run("SELECT count(*) FROM gpus WHERE condition = 'usable'") == 3
    await update(report(cards=4))
    await seed.run("DELETE FROM unknown_pods")
    told = ["maintenance", "free", "free", "held"]
    assert [card.state.value for card in await read("gpus", after=None, limit=10)] == told


async def test_a_removed_node_that_is_fenced_is_shown_until_it_is_not(seed, update, read) -> None:
    await update(report())
    await update()
    assert await read("nodes", after=None, limit=10) == []
    await read("fence", name="node-a", by="root", reason=None, now=seed.now)
    (node,) = await read("nodes", after=None, limit=10)
    assert (node.fenced_by, node.fenced_at) == ("root", seed.now)
    assert node.detail.startswith("Fenced by root at 2030-01-01T12:00:00Z: nothing new is started here")
    await read("unfence", name="node-a")
    assert await read("nodes", after=None, limit=10) == []
