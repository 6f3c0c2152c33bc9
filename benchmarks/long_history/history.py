"""A database with a long history: a present of a given size, and behind it years of jobs, bookings and events.

The rows are consistent (no GPU twice, every reservation with its ledger rows and events), and sums are brought up by
the product's own use cases. Triggers don't fire while the past is written, which takes a superuser.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks.measuring.databases import engine
from benchmarks.measuring.figures import Figure
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queries import load
from reservation_core.adapters.postgres.policy.usage import Usage

_GPUS_PER_NODE = 8
_AT_ONCE = 2_000
_HOURS_AT_ONCE = 500_000
_STATEMENTS = load([Path(__file__).with_suffix(".sql")])


@dataclass(frozen=True, slots=True)
class Present:
    """What there is now, and is there without a history as well."""

    nodes: int = 125
    users: int = 200
    running: int = 500
    active: int = 300
    waiting: int = 2_000
    bookings: int = 10_000
    ended: int = 1_212

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * _GPUS_PER_NODE


@dataclass(frozen=True, slots=True)
class Past:
    """How much there was. `days`: over how long; every `jobs // bookings`-th job ran within a booking."""

    jobs: int = 1_000_000
    bookings: int = 200_000
    events: int = 5_000_000
    days: int = 365


SMALL_PRESENT = Present(nodes=25, users=50, running=100, active=50, waiting=300, bookings=2_000)
SMALL_PAST = Past(jobs=100_000, bookings=20_000, events=500_000)
"""A tenth of everything: for tests, built within seconds."""


async def add_present(url: str, present: Present, now: datetime | None = None) -> None:
    """Users, nodes, GPUs, jobs that run, wait or ended lately, and bookings ahead, into an empty migrated database.

    The users are `person-1` (an administrator) to `person-<users>`; `now` is the current time (UTC) by default.
    """
    values = {
        "now": now or datetime.now(UTC),
        "users": present.users,
        "nodes": present.nodes,
        "gpus": present.gpus,
        "running": present.running,
        "active": present.active,
        "waiting": present.waiting,
        "bookings": present.bookings,
        "ended": present.ended,
    }
    await _execute(
        url,
        [
            "history_people",
            "history_nodes",
            "present_running",
            "present_waiting",
            "present_active",
            "present_bookings",
            "present_ended",
        ],
        values,
    )


async def add_past(url: str, present: Present, past: Past, now: datetime | None = None) -> None:
    """Jobs, bookings, events, promises and pods of others that are over, behind a present (see `add_present`).

    The last ended two hours before `now`. Needs a superuser.
    """
    until = (now or datetime.now(UTC)) - timedelta(hours=2)
    begin = until - timedelta(days=past.days)
    values = {
        "from": begin,
        "until": until,
        "slot": (until - begin) / -(-past.jobs // present.gpus),
        "users": present.users,
        "gpus": present.gpus,
        "jobs": past.jobs,
        "one_in": max(1, past.jobs // past.bookings),
        "of_nodes": max(0, past.events - 4 * past.jobs - 3 * past.bookings),
    }
    await _execute(
        url,
        [
            "past_slots",
            "past_bookings",
            "past_jobs",
            "past_events",
            "past_event_chain",
            "past_given_back",
            "past_usage_pending",
            "past_tokens",
            "past_shares",
        ],
        values,
        without_triggers=True,
    )


async def _execute(url: str, names: list[str], values: dict[str, object], *, without_triggers: bool = False) -> None:
    """The statements in one transaction; then statistics and visibility, as autovacuum would bring them up."""
    opened = engine(url)
    try:
        async with opened.begin() as connection:
            if without_triggers:
                await connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            await connection.exec_driver_sql("SET LOCAL work_mem = '256MB'")
            for name in names:
                await _one(connection, name, values)
    finally:
        await opened.dispose()
    await _vacuum(url)


async def _vacuum(url: str) -> None:
    opened = engine(url)
    async with opened.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        # All of the past was written at once: index entries, too, are as years of cleaning up would have left them.
        await autocommit.exec_driver_sql("VACUUM (ANALYZE, INDEX_CLEANUP ON)")
    await opened.dispose()


async def _one(connection: AsyncConnection, name: str, values: dict[str, object]) -> None:
    statement = _STATEMENTS[name]
    wanted = statement.compile().params
    await connection.execute(statement, {key: value for key, value in values.items() if key in wanted})


async def sum_up(url: str) -> None:
    """Bring up the sums that quotas and reports of usage read, as the leader does it."""
    opened = open_engine(url, pool=1, application="benchmarks")
    before = datetime.now(UTC)
    try:
        summed = 1
        while summed:
            async with opened.begin() as connection:
                usage = Usage(connection)
                summed = await usage.sum_up_given_back(before, _AT_ONCE)
                summed += await usage.sum_up_usage(before, _AT_ONCE, _HOURS_AT_ONCE)
    finally:
        await opened.dispose()
    await _vacuum(url)


async def build(url: str, present: Present, past: Past | None, now: datetime | None = None) -> None:
    """A present, and a past behind it unless that is None, with sums: everything at once."""
    await add_present(url, present, now)
    if past is not None:
        await add_past(url, present, past, now)
    await sum_up(url)


def measure() -> list[Figure]:
    """The benchmark `history`."""
    from benchmarks.long_history.figures import measure as figures  # noqa: PLC0415 - it builds with this module

    return figures()
