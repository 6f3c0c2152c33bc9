"""Statements that are repeated cost the same however long the history is: on timers, at scrapes, for lists.

The statements are the program's own, from its `.sql` files, with the plans that the program uses. Each is executed
without a history and then on one that is large enough for it to matter: it must not read a large table whole, and must
look at about as many rows as before.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from benchmarks.browser import pages_calendar
from benchmarks.long_history.history import Past, Present, add_past, add_present, build, sum_up
from benchmarks.long_history.reads import BY_KEY, repeated
from benchmarks.measuring.databases import add_cluster
from benchmarks.waiting.explaining import Explained, explain
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queries import names

PRESENT = Present(nodes=25, users=50, running=100, active=50, waiting=300, bookings=1_000)
PAST = Past(jobs=40_000, bookings=8_000, events=200_000)
NEWEST = PAST.events
LARGE = {
    "reservations", "allocations", "bookings", "events", "start_promises", "admissions", "idempotency_keys",
    "tokens", "given_back", "usage_pending", "event_chain", "job_shares",
}  # fmt: skip
READ_BY_INDEX = LARGE - {"usage_pending", "given_back"} | {"usage_sums"}
# A page and what is joined to it, where there was nothing before.
PAGE = 2_500
MOST_BUFFERS = 5_000
MOST_COMPARED = 100_000
"""Pairs of rows: what is few now may be many on a larger installation, and pairs are its square."""

Read = dict[tuple[str, int], Explained]


def test_every_statement_is_repeated_or_by_key() -> None:
    listed = repeated(datetime.now(UTC), PRESENT.gpus, NEWEST).keys()
    assert names() - BY_KEY - listed == set(), "say how often these run: benchmarks/long_history/reads.py"
    assert (BY_KEY | listed) - names() == set(), "these are no statements any more"
    assert BY_KEY & listed == set()


async def read_all(url: str, now: datetime) -> Read:
    """Execute every statement with each set of values, in a transaction that is taken back."""
    engine = open_engine(url, pool=1, application="tests")
    found: Read = {}
    async with engine.connect() as connection, connection.begin() as taken_back:
        for name, cases in repeated(now, PRESENT.gpus, NEWEST).items():
            for number, values in enumerate(cases):
                found[name, number] = await explain(connection, name, values)
        await taken_back.rollback()
    await engine.dispose()
    return found


def table_of(node: dict[str, Any]) -> str | None:
    """The table that a node reads; of a partition, the whole."""
    name: str | None = node.get("Relation Name")
    return "events" if name is not None and name.startswith("events_") else name


def visited(node: dict[str, Any]) -> float:
    """Rows of large tables that a node looked at, whether it took them or not."""
    if table_of(node) not in LARGE:
        return 0.0
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


def compared(read: Explained) -> float:
    """Pairs of rows that loops have looked at in vain."""
    return sum(float(node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"]) for node in read.nodes)


def faults(name: str, values: dict[str, Any], without: Explained, on_history: Explained) -> list[str]:
    """The faults of a statement's second execution, in words."""
    wrong = []
    whole = {
        table
        for node in on_history.nodes
        if node["Node Type"] == "Seq Scan"
        and node["Actual Loops"]
        and (table := table_of(node)) in READ_BY_INDEX
        and (node["Relation Name"] == table or visited(node) > 1)  # partitions of months to come are empty
    }
    if whole:
        wrong.append(f"reads all of {sorted(whole)}")
    if any(
        node.get("Index Name", "").startswith("allocations_calendar") and "gpu_id" not in node.get("Index Cond", "")
        for node in on_history.nodes
        if node["Actual Loops"]
    ):
        wrong.append("searches the calendar's index, which has all history in it, without a card")
    before, after = (sum(visited(node) for node in read.nodes) for read in (without, on_history))
    if after > 3 * before + PAGE + values.get("scanned", 0):
        wrong.append(f"looks at {after:.0f} rows, {before:.0f} without a history")
    if compared(on_history) > MOST_COMPARED:
        wrong.append(f"compares {compared(on_history):.0f} pairs of rows that don't match")
    if on_history.buffers > MOST_BUFFERS:
        wrong.append(f"reads {on_history.buffers} buffers")
    return wrong


async def look_at_sums_of_much(url: str, now: datetime) -> None:
    """Where all of the past is to be summed up, a batch looks at its own rows, also if reading all seems shorter."""
    engine = open_engine(url, pool=1, application="tests")
    async with engine.connect() as connection, connection.begin() as taken_back:
        await connection.exec_driver_sql("SET LOCAL enable_nestloop = off")
        for name in ("settled_usage", "sum_up_given_back"):
            read = await explain(connection, name, {"before": now, "limit": 1_000})
            rows = sum(visited(node) for node in read.nodes)
            assert rows <= 10 * 1_000, f"{name} looks at {rows:.0f} rows"
        await taken_back.rollback()
    await engine.dispose()


async def test_repeated_statements_do_not_walk_through_history(database_url: str) -> None:
    now = datetime.now(UTC)
    await add_present(database_url, PRESENT, now)
    await sum_up(database_url)
    without = await read_all(database_url, now)
    await add_past(database_url, PRESENT, PAST, now)
    await look_at_sums_of_much(database_url, now)
    await sum_up(database_url)
    on_history = await read_all(database_url, now)
    cases = repeated(now, PRESENT.gpus, NEWEST)
    wrong = [
        f"{name} {dict(cases[name][number])!s:.300}: {found}"
        for (name, number), read in on_history.items()
        if (found := faults(name, dict(cases[name][number]), without[name, number], read))
    ]
    assert not wrong, "\n".join(wrong)


async def test_a_calendar_compares_no_row_with_every_booking(database_url: str) -> None:
    await add_cluster(database_url, nodes=125, gpus_per_node=8)
    await pages_calendar.fill(database_url)
    start = datetime.now(UTC)
    values = {
        "start": start, "end": start + timedelta(days=14), "only_of": None, "gpu_ids": list(range(1, 201)),
        "limit": 5_000, "merged_above": None, "places": list(range(200)), "steps": [], "step_s": 0.0, "viewer": None,
        "named": 0,
    }  # fmt: skip
    engine = open_engine(database_url, pool=1, application="tests")
    async with engine.connect() as connection, connection.begin() as taken_back:
        read = await explain(connection, "calendar_entries", values)
        await taken_back.rollback()
    await engine.dispose()
    assert read.plan["Actual Rows"] > 800
    assert compared(read) <= MOST_COMPARED


async def test_a_past_is_built_behind_what_ended_lately(database_url: str) -> None:
    """All at once, as the benchmark does it: what triggers note of the present is there already."""
    present = Present(nodes=2, users=10, running=4, active=4, waiting=5, bookings=10, ended=20)
    await build(database_url, present, Past(jobs=200, bookings=20, events=1_000))
    engine = open_engine(database_url, pool=1, application="tests")
    async with engine.connect() as connection:
        ended = await connection.scalar(text("SELECT count(*) FROM reservations WHERE finished_at IS NOT NULL"))
    await engine.dispose()
    assert ended is not None
    assert ended >= 200


async def test_who_makes_room_is_found_among_those_that_run(database_url: str) -> None:
    """Also where so many jobs run that a walk through all of them by id seems short."""
    now = datetime.now(UTC)
    present = Present(nodes=250, users=50, running=2_000, active=50, waiting=300, bookings=100)
    await add_present(database_url, present, now)
    await add_past(database_url, present, Past(jobs=10_000, bookings=500, events=50_000), now)
    engine = open_engine(database_url, pool=1, application="tests")
    async with engine.connect() as connection, connection.begin() as taken_back:
        await connection.exec_driver_sql("UPDATE reservations SET preemptible = true WHERE status = 'running'")
        await connection.exec_driver_sql("ANALYZE reservations")
        for name in ("end_signals_due", "gpus_needed", "leases_due"):
            for values in repeated(now, present.gpus, NEWEST)[name]:
                read = await explain(connection, name, values)
                rows = sum(visited(node) for node in read.nodes if table_of(node) == "reservations")
                assert rows <= present.running, (name, rows)
        await taken_back.rollback()
    await engine.dispose()
