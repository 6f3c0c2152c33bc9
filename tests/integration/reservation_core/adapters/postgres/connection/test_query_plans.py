"""The hot statements use the index that was made for them, on tables large enough for it to matter.

The statements are the program's own, from its `.sql` files. A plan that reads a whole large table fails here long
before it is slow in earnest.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queries import statement

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)

# 40,000 reservations: most have ended, 6,000 wait in three lines, 300 are alive; 20,000 released rows of the ledger.
FILL = """
INSERT INTO users (name, role, created_at) SELECT 'user' || i, 'user', now() FROM generate_series(1, 200) i;
INSERT INTO tokens (id, user_id, digest, created_at)
    SELECT 'tok-' || i, 1 + i % 200, sha256(CAST(CAST(i AS text) AS bytea)), now() FROM generate_series(1, 5000) i;
INSERT INTO nodes (name, ready, schedulable, last_seen_at)
    SELECT 'node-' || i, true, true, now() FROM generate_series(1, 250) i;
INSERT INTO gpus (node_id, index, gpu_type, updated_at)
    SELECT n, i, 'h100', now() FROM generate_series(1, 250) n, generate_series(0, 7) i;
INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                          workload, created_at, changed_at, attempt, outcome, started_at, ends_at, finished_at)
SELECT 'job-' || i, 'job', 1 + i % 200, s.status, 'submitted', 'A reason.', 1,
       CASE i % 3 WHEN 0 THEN 'h100' WHEN 1 THEN 'a100' END, 1, interval '1 hour', i % 7 - 3, '{}', now(), now(), 1,
       CASE WHEN s.status = 'ending' THEN 'failed' END,
       CASE WHEN s.status = 'running' THEN TIMESTAMPTZ '2030-01-01 11:00Z' END,
       CASE WHEN s.status = 'running' THEN TIMESTAMPTZ '2030-01-01 12:00Z' + i * interval '1 second' END,
       CASE WHEN s.status = 'succeeded' THEN now() END
FROM generate_series(1, 40000) i CROSS JOIN LATERAL (
    SELECT CASE WHEN i > 34000 THEN 'queued' WHEN i % 400 = 0 THEN 'starting' WHEN i % 400 = 1 THEN 'ending'
                WHEN i % 400 = 2 THEN 'running' ELSE 'succeeded' END AS status
) s;
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, released_at)
SELECT 'job-' || i, 1, 1 + i % 2000, 0,
       tstzrange(TIMESTAMPTZ '2029-01-01Z' + i * interval '1 minute',
                 TIMESTAMPTZ '2029-01-01Z' + (i + 9) * interval '1 minute'),
       false, now(), now()
FROM generate_series(1, 20000) i;
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT 'job-' || i * 400, 1, i, 0, tstzrange('2030-01-01 11:00Z', '2030-01-01 13:00Z'), true, now()
FROM generate_series(1, 80) i;
INSERT INTO start_promises (reservation_id, promised_start_at, made_at) SELECT id, now(), now() FROM reservations;
INSERT INTO events (reservation_id, at, actor, kind)
SELECT 'job-' || 1 + i % 34000, now(), 'system', 'started' FROM generate_series(1, 60000) i;
INSERT INTO notice_targets (id, user_id, channel, address, created_at, verified_at)
SELECT 'ntg-' || i, 1 + i % 200, 'slack', 'https://h.example', now(), now() FROM generate_series(1, 2000) i;
INSERT INTO wait_estimates (reservation_id, position, reason_code, reason, planned_at)
SELECT 'job-' || 34000 + i, i, 'behind_in_line', 'A reason.', now() FROM generate_series(1, 500) i;
INSERT INTO idempotency_keys (user_id, key, request_hash, created_at)
SELECT 1 + i % 200, 'key-' || i, sha256('x'), now() FROM generate_series(1, 20000) i;
ANALYZE;
"""

ONE_LINE = {"line_type": "h100", "after_priority": -4, "after_seq": 0, "limit": 100}
CASES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("more_waiting", ONE_LINE, {"reservations_line"}),
    ("waiting_windows", {"limit": 100}, {"reservations_line"}),
    ("waiting_dependants", {"limit": 10_000}, {"reservations_dependants"}),
    ("dependants_with_slot", {"limit": 200}, {"reservations_dependants"}),
    ("waiting_totals", {}, {"reservations_line"}),
    (
        "places_behind_the_told",
        {
            "ids": ["job-39999"],
            "types": ["h100"],
            "priorities": [0],
            "seqs": [39_999],
            "from_priorities": [-9],
            "from_seqs": [0],
            "slotted": [False],
        },
        {"reservations_line", "reservations_pkey"},
    ),
    ("view_waiting", {"user_id": None, "after_priority": -9, "after_seq": 0, "limit": 5}, {"reservations_line"}),
    ("due_reservations", {"now": NOW, "limit": 100}, {"reservations_ends"}),
    ("next_end", {}, {"reservations_ends"}),
    (
        "record_missed_starts",
        {
            "ids": [f"job-{number}" for number in range(20)],
            "ats": [NOW] * 20,
            "starteds": [True] * 20,
            "now": NOW,
            "slack_s": 2.0,
            "pods_slack_s": 5.0,
            "given_late": "a",
            "ran_late": "b",
            "never_started": "c",
        },
        {"start_promises_pkey"},
    ),
    (
        "warnable_reservations",
        {"now": NOW, "thresholds": [300, 900], "farthest_s": 900.0, "limit": 100},
        {"reservations_ends"},
    ),
    (
        "stuck_reservations",
        {"starting_before": NOW, "ending_before": NOW, "limit": 100},
        {"reservations_live"},
    ),
    ("live_reservations", {}, {"reservations_live"}),
    (
        "view_reservations",
        {"user_id": 7, "before_seq": 10**9, "statuses": None, "limit": 50},
        {"reservations_listed_of_user"},
    ),
    ("view_reservation", {"id": "job-77", "user_id": 7}, {"reservations_pkey"}),
    ("lock_reservations", {"ids": ["job-77", "job-78"]}, {"reservations_pkey"}),
    ("reservation_allocations", {"ids": ["job-77", "job-78"]}, {"allocations_reservation"}),
    ("open_allocations", {}, {"allocations_open_from"}),
    ("nearest_open_allocations", {"limit": 100}, {"allocations_open_from"}),
    ("open_allocations_of", {"ids": ["job-400", "job-800"]}, {"allocations_reservation"}),
    ("known_gpus", {"now": NOW}, {"allocations_open_from"}),
    (
        "gpu_views",
        {"after_node": "node-2", "after_index": 3, "limit": 50, "within_s": 3600.0},
        {"nodes_name_key", "allocations_open_from"},
    ),
    ("nodes_now", {"within_s": 3600.0}, {"allocations_open_from", "reservations_pkey"}),
    ("events_after", {"after_id": 59_990, "limit": 2000, "late": [59_000, 59_900]}, {"events_pkey"}),
    ("events_standing", {}, {"events_pkey"}),
    ("events_of_reservation", {"reservation_id": "job-77", "after_id": 5, "limit": 100}, {"events_reservation"}),
    ("principal_of_digest", {"digest": b"x" * 32, "now": NOW}, {"tokens_digest_key"}),
    ("tokens_of_user", {"user_id": 7, "after": "", "limit": 10}, {"tokens_user"}),
    ("notice_occasion", {"event_id": 77}, {"events_pkey", "reservations_pkey"}),
    ("notice_targets_of_user", {"user_id": 7, "after": "", "limit": 10}, {"notice_targets_user"}),
    ("answer_of_key", {"user_id": 7, "key": "key-6"}, {"idempotency_keys_pkey"}),
    (
        "quota_holdings",
        {"user_id": 7, "project": None, "known_from": NOW.replace(day=1), "now": NOW},
        {"given_back_user", "reservations_unended"},
    ),
    (
        "quota_spent_of_these",
        {"since": NOW.replace(year=2028), "now": NOW, "user_ids": [7], "projects": ["vision"]},
        {"given_back_user", "given_back_project"},
    ),
    ("remove_keys", {"before": NOW.replace(year=2000), "limit": 100}, {"idempotency_keys_age"}),
]
# The line is walked from a place in it and in its order: the index answers both, nothing is sorted or filtered away.
WALKS = {"more_waiting", "waiting_windows"}
# A page of each line is sorted with those of the others, never the lines themselves (6,000 jobs here).
PAGES = {"view_waiting"}
LARGE = {"reservations", "events", "tokens", "idempotency_keys", "allocations", "given_back", "start_promises"}


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


async def explain(engine: AsyncEngine, name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    async with engine.begin() as connection:
        found = (await connection.execute(text(f"EXPLAIN (FORMAT json) {statement(name)}"), values)).scalar_one()
    document = json.loads(found) if isinstance(found, str) else found
    return list(nodes_of(document[0]["Plan"]))


async def test_hot_statements_use_their_index(database_url) -> None:
    # One database for all: filling it takes longer than asking for every plan.
    engine = open_engine(database_url, pool=1, application="tests")
    async with engine.connect() as connection:
        raw = await connection.get_raw_connection()
        await raw.driver_connection.execute(FILL)
        # An index of a partition counts as that of its table; primary keys are the partitions' own.
        whole = dict(
            await raw.driver_connection.fetch(
                "SELECT part.relname, coalesce(parent.relname, 'events_pkey') FROM pg_class part "
                "LEFT JOIN pg_inherits ON inhrelid = part.oid LEFT JOIN pg_class parent ON parent.oid = inhparent "
                "WHERE part.relkind = 'i' AND (inhparent IS NOT NULL OR part.relname LIKE 'events%pkey')"
            )
        )
    wrong = []
    for name, values, wanted in CASES:
        nodes = await explain(engine, name, values)
        used = {whole.get(node["Index Name"], node["Index Name"]) for node in nodes if "Index Name" in node}
        read_whole = {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"} & LARGE
        found_by = " ".join(node.get("Index Cond", "") for node in nodes)
        walked = "line_type" in found_by and not any("Sort" in node["Node Type"] for node in nodes)
        most_sorted = max((node["Plan Rows"] for node in nodes if "Sort" in node["Node Type"]), default=0)
        paged = "line_type" in found_by and most_sorted < 1000
        out_of_order = (name in WALKS and not walked) or (name in PAGES and not paged)
        if not wanted <= used or read_whole or out_of_order:
            wrong.append(f"{name}: wants {sorted(wanted)}, uses {sorted(used)}, reads all of {sorted(read_whole)}")
    await engine.dispose()
    assert not wrong, "\n".join(wrong)
