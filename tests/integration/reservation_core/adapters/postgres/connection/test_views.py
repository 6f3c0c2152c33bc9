"""The views for people with `psql`: their columns, and what they say."""

from datetime import timedelta

import pytest

COLUMNS = {
    "queue_status": "place id user_name name asks_for duration priority reason since waited estimated_start nodes_out",
    "gpu_status": "node index gpu_type state holder user_name since free_at node_state node_detail uuid",
    "reservation_history": (
        "id user_name kind name asked_for gpus queued_at started_at finished_at waited ran outcome exit_code reason"
    ),
}


@pytest.mark.parametrize("view", COLUMNS)
async def test_columns(seed, view) -> None:
    names = await seed.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(:view) AND attnum > 0 ORDER BY attnum",
        view=view,
    )
    assert " ".join(str(row["attname"]) for row in names) == COLUMNS[view]
    assert await seed.run("SELECT obj_description(to_regclass(:view)) IS NOT NULL", view=view)


async def test_queue_status_shows_who_waits_in_order(seed) -> None:
    ada, bob = await seed.user("ada"), await seed.user("bob")
    await seed.job("job-run", ada, "starting", attempt=1)
    await seed.job("job-new", bob, gpus=2, nodes=3, gpu_type=None)
    await seed.job("job-new2", bob, priority=5)
    await seed.job("job-2nd", bob)
    await seed.job("job-1st", ada, name="train", gpus=4)
    await seed.job("job-cpu", ada, priority=-1, gpus=0, gpu_type="cpu", cpu_milli=1000, memory_bytes=2**30)
    await seed.job("job-asks", ada, priority=-2, cpu_milli=2500)
    for place, job in enumerate(("job-1st", "job-2nd"), 1):
        await seed.run(
            "INSERT INTO wait_estimates (reservation_id, position, reason_code, reason, estimated_start_at, planned_at)"
            " VALUES (:job, :place, 'waiting_for_gpus', 'Waits for cards.', :at, :at)",
            job=job, place=place, at=seed.now,
        )  # fmt: skip
    rows = await seed.rows("SELECT * FROM queue_status")
    assert [(r["place"], r["id"], r["user_name"], r["asks_for"]) for r in rows] == [
        (1, "job-1st", "ada", "4 x h100"),
        (2, "job-2nd", "bob", "1 x h100"),
        (None, "job-new2", "bob", "1 x h100"),
        (None, "job-new", "bob", "2 x any type on each of 3 nodes"),
        (None, "job-cpu", "ada", "no GPUs with 1 CPU and 1 GiB"),
        (None, "job-asks", "ada", "1 x h100 with 2.5 CPUs"),
    ]
    history = {r["id"]: r["asked_for"] for r in await seed.rows("SELECT id, asked_for FROM reservation_history")}
    assert (history["job-cpu"], history["job-2nd"]) == ("no GPUs with 1 CPU and 1 GiB", "1 x h100")
    first, last = rows[0], rows[-3]
    assert (first["name"], first["reason"], first["estimated_start"]) == ("train", "Waits for cards.", seed.now)
    assert (first["since"], first["duration"]) == (seed.now, timedelta(hours=1))
    assert (last["reason"], last["estimated_start"]) == ("Waits to be planned.", None)


async def test_gpu_status_shows_every_card_and_its_holder(seed) -> None:
    ada = await seed.user("ada")
    held, quarantined, free, released = await seed.node("node-b", cards=4)
    (lost,) = await seed.node("node-a", cards=1)
    await seed.run("UPDATE gpus SET condition = 'quarantined' WHERE id = :id", id=quarantined)
    await seed.run("UPDATE gpus SET condition = 'lost' WHERE id = :id", id=lost)
    await seed.run("UPDATE nodes SET ready = false, detail = 'Rebooting.' WHERE name = 'node-a'")
    await seed.job("job-a", ada, "starting", attempt=1)
    await seed.job("job-b", ada, "starting", attempt=1)
    # The holder overruns while the next one's range has begun: the holder is shown.
    await seed.run(
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) VALUES "
        "('job-b', 1, :gpu, 0, tstzrange(now() - interval '1 min', now() + interval '1 hour'), false, now()), "
        "('job-a', 1, :gpu, 0, tstzrange(now() - interval '2 hours', now() - interval '1 min'), true, now())",
        gpu=held,
    )
    await seed.allocate("job-a", released, held=False)
    await seed.run("UPDATE allocations SET released_at = now() WHERE gpu_id = :gpu", gpu=released)
    rows = await seed.rows("SELECT * FROM gpu_status")
    assert [(r["node"], r["index"], r["state"], r["holder"], r["user_name"], r["node_state"]) for r in rows] == [
        ("node-a", 0, "lost", None, None, "not ready"),
        ("node-b", 0, "held", "job-a", "ada", "ready"),
        ("node-b", 1, "quarantined", None, None, "ready"),
        ("node-b", 2, "free", None, None, "ready"),
        ("node-b", 3, "free", None, None, "ready"),
    ]
    assert rows[0]["node_detail"] == "Rebooting."
    assert rows[1]["free_at"] - rows[1]["since"] == timedelta(hours=1, minutes=59)
    assert free


async def test_reservation_history_shows_what_was_given_and_how_it_ended(seed) -> None:
    ada = await seed.user("ada")
    first = await seed.node("node-a", cards=3)
    second = await seed.node("node-b", cards=1)
    await seed.job(
        "job-a", ada, "failed", attempt=2, gpus=2, reason_code="command_failed", reason="Exit code 3.", exit_code=3,
        started_at=seed.now + seed.hour, finished_at=seed.now + 3 * seed.hour,
    )  # fmt: skip
    await seed.job("job-b", ada)
    for attempt, card in ((1, first[0]), (2, first[0]), (2, first[2]), (2, second[0])):
        await seed.run(
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
            "VALUES ('job-a', :attempt, :gpu, 0, tstzrange(:start, :end), false, :start)",
            attempt=attempt, gpu=card, start=seed.now + attempt * seed.hour, end=seed.now + (attempt + 1) * seed.hour,
        )  # fmt: skip
    newest, oldest = await seed.rows("SELECT * FROM reservation_history")
    assert (newest["id"], newest["outcome"], newest["gpus"], newest["ran"]) == ("job-b", "queued", None, None)
    assert (oldest["asked_for"], oldest["gpus"]) == ("2 x h100", "node-a:0,2 node-b:0")
    assert (oldest["waited"], oldest["ran"]) == (timedelta(hours=1), timedelta(hours=2))
    assert (oldest["outcome"], oldest["exit_code"], oldest["reason"]) == ("failed", 3, "Exit code 3.")


async def test_the_views_say_why_a_node_gets_nothing_new(seed) -> None:
    ada = await seed.user("ada")
    for name, cards in (("node-a", 1), ("node-b", 2), ("node-c", 1), ("node-d", 1)):
        await seed.node(name, cards=cards)
    await seed.node("node-t", cards=1, gpu_type="t4")
    await seed.run("UPDATE nodes SET ready = false WHERE name IN ('node-a', 'node-t')")
    await seed.run("UPDATE nodes SET schedulable = false, detail = 'Cordoned.' WHERE name = 'node-c'")
    await seed.run(
        "UPDATE gpus SET condition = 'maintenance' WHERE node_id = (SELECT id FROM nodes WHERE name = 'node-d')"
    )
    await seed.run(
        "INSERT INTO unknown_pods (name, reservation_id, node, gpu_indices, detail, first_seen_at) "
        "VALUES ('job-x-1-0', 'job-x', 'node-b', '{1}', 'Who knows.', now())"
    )
    await seed.job("job-1", ada)
    await seed.job("job-2", ada, gpu_type=None)
    first, second = await seed.rows("SELECT nodes_out FROM queue_status")
    assert first["nodes_out"].splitlines() == [
        "node-a: It does not answer: its GPUs are quarantined until it is back.",
        "node-c: Cordoned.",
        "node-d: It has no card that can be given out.",
    ]
    assert second["nodes_out"].splitlines()[-1].startswith("node-t: It does not answer")
    await seed.run("UPDATE nodes SET fenced_at = :now, fenced_by = 'root' WHERE name = 'node-a'", now=seed.now)
    rows = await seed.rows("SELECT node, index, state, node_state, node_detail FROM gpu_status")
    assert [(r["node"], r["index"], r["state"], r["node_state"]) for r in rows] == [
        ("node-a", 0, "quarantined", "fenced"),
        ("node-b", 0, "free", "ready"),
        ("node-b", 1, "foreign", "ready"),
        ("node-c", 0, "free", "not schedulable"),
        ("node-d", 0, "maintenance", "ready"),
        ("node-t", 0, "quarantined", "not ready"),
    ]
    assert "holds GPUs 1 here" in rows[1]["node_detail"]


async def test_gpu_status_shows_a_maintenance_window_whatever_else_is_known_of_the_card(seed) -> None:
    root = await seed.user("root", "admin")
    cards = await seed.node("node-a", cards=3)
    now = (await seed.rows("SELECT now() AS at"))[0]["at"]
    await seed.job("mnt-a", root, "active", kind="maintenance", gpus=3)
    await seed.job("job-a", root, "ending", outcome="expired", attempt=1)
    for card in cards:
        await seed.allocate("mnt-a", card, now - seed.hour, now + seed.hour, held=False)
    await seed.allocate("job-a", cards[1], now - 2 * seed.hour, now - seed.hour)
    await seed.run("UPDATE gpus SET condition = 'lost' WHERE id = :id", id=cards[2])
    rows = await seed.rows("SELECT state, holder FROM gpu_status")
    # A pod that is still there goes first: the card is nobody's yet.
    assert [(row["state"], row["holder"]) for row in rows] == [
        ("maintenance", "mnt-a"),
        ("held", "job-a"),
        ("maintenance", "mnt-a"),
    ]
