"""What must be true whatever happened: of the ledger, of the workloads' own records, and of what is left behind."""

from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.queues import QueueName
from tests.faults.systems.system import System, processes_below
from tests.waiting import eventually

HELD_TWICE = """
SELECT a.gpu_id, a.reservation_id, b.reservation_id FROM allocations a JOIN allocations b
ON a.gpu_id = b.gpu_id AND a.id < b.id AND a.reservation_id LIKE 'job-%' AND b.reservation_id LIKE 'job-%'
AND tstzrange(a.created_at, coalesce(a.released_at, 'infinity'))
    && tstzrange(b.created_at, coalesce(b.released_at, 'infinity'))
"""
PROMISED_TWICE = """
SELECT a.gpu_id, a.reservation_id, b.reservation_id FROM allocations a JOIN allocations b
ON a.gpu_id = b.gpu_id AND a.id < b.id AND a.during && b.during
AND a.booking_id IS DISTINCT FROM b.reservation_id AND b.booking_id IS DISTINCT FROM a.reservation_id
"""
_OPEN = "SELECT reservation_id FROM allocations WHERE held OR (released_at IS NULL AND reservation_id NOT LIKE 'bkg-%')"
_UNFINISHED = """
SELECT id, status, reason_code, outcome, attempt, ends_at FROM reservations WHERE finished_at IS NULL AND kind = 'job'
"""
SHORT = """
SELECT r.id FROM reservations r WHERE r.attempt > 0 AND greatest(r.gpus, 1) * r.nodes <>
(SELECT count(*) FROM allocations a WHERE a.reservation_id = r.id AND a.attempt = r.attempt)
"""


async def assert_never_doubled(system: System) -> None:
    """No GPU had two holders at any instant, says the ledger, and independently say the workloads; none ran twice."""
    assert await system.rows(HELD_TWICE) == []
    assert await system.rows(PROMISED_TWICE) == []
    assert await system.rows(SHORT) == []
    assert system.records.doubly_held() == []
    assert system.records.started_again() == []


async def assert_nothing_left(system: System, *, dead_letters: bool = False) -> None:
    """Everything has ended and is closed: jobs, ledger, pods, processes, messages."""
    assert await system.all_final()
    assert await system.rows(_OPEN) == []
    assert system.records.open() == set()
    await eventually(lambda: not processes_below(system.home))
    assert [path.name for path in (system.home / "pods").iterdir()] == []

    async def queues_empty() -> bool:
        return not await waiting_messages(system, dead_letters=not dead_letters)

    await eventually(queues_empty)


async def waiting_messages(system: System, *, dead_letters: bool = True) -> dict[str, int]:
    """How many messages each queue that is not empty has."""
    async with system.runtime.uow() as uow:
        metrics = await uow.queue.metrics()
    dead = {queue.dead_letters for queue in QueueName}
    return {m.queue: m.depth for m in metrics if m.depth and (dead_letters or m.queue not in dead)}


async def left_over(system: System) -> dict[str, object]:
    """What has not come to its end, for an error's text."""
    return {
        "jobs": [tuple(row) for row in await system.rows(_UNFINISHED)],
        "ledger": [tuple(row) for row in await system.rows(_OPEN)],
        "pods": sorted(path.name for path in (system.home / "pods").iterdir()),
        "processes": processes_below(system.home),
        "messages": await waiting_messages(system),
    }


async def outcomes(system: System) -> dict[str, tuple[JobStatus, int | None]]:
    """How every job stands: id to (status, exit code)."""
    rows = await system.rows("SELECT id, status, exit_code FROM reservations WHERE kind = 'job'")
    return {row.id: (JobStatus(row.status), row.exit_code) for row in rows}
