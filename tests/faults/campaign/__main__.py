"""A long trial of the deployed set of processes: kills, stalls, SQLSTATEs and clock steps under load, then the checks.

`python -m tests.faults.campaign --minutes 30 --seed 1` runs two APIs and two processors as programs, and the expiry and
the updater as often as the chart does, on a durable PostgreSQL of its own; it exits with 0 when nothing was violated.
One harm follows the other, with time to recover between some of them. Run by hand: it takes as long as it is told to.
"""

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError

from reservation_core.adapters.postgres.connection.migrating import upgrade
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from standalone.administrator import ensure_admin_token
from tests.faults.campaign.calls import PAUSE_S, Calls
from tests.faults.campaign.disk_checks import DiskChecks
from tests.faults.campaign.disks import DiskLife
from tests.faults.campaign.harms import Harms
from tests.faults.campaign.load import Load
from tests.faults.campaign.processes import Processes
from tests.faults.systems.invariants import HELD_TWICE, PROMISED_TWICE, SHORT, left_over
from tests.faults.systems.system import System, open_system
from tests.waiting import eventually

GPUS = "a=h100:8;b=h100:8"
SETTINGS: dict[str, object] = {"end_grace_s": 3, "start_allowance_s": 20, "cpu_job_share": 0.2}
DURABLE = {"fsync": "on", "full_page_writes": "on", "max_connections": "150"}
CONVERGES_WITHIN_S = 600.0
_LONGER_S = 3600.0
_LONGEST_REST_S = 300.0
_LEAST_WITH_DISKS = 0.25

_CHECKS = {
    # A step back of the clock that nobody lived to see closes rows before they began.
    "a GPU held twice": HELD_TWICE.replace(
        "coalesce(a.released_at,", "coalesce(greatest(a.released_at, a.created_at),"
    ).replace("coalesce(b.released_at,", "coalesce(greatest(b.released_at, b.created_at),")
    # The ledger's time went back by minutes: its stamps say nothing then, the kernel's locks do.
    + "AND NOT EXISTS (SELECT FROM events WHERE kind = 'clock_stepped' AND data ->> 'held' = 'false')",
    "a GPU promised twice": PROMISED_TWICE,
    "jobs with too few or too many GPUs": SHORT,
    "arrays that lost elements or count them wrongly": """
        SELECT a.id, a.size, a.made, e.elements, e.ended FROM job_arrays a JOIN reservations r ON r.id = a.id
        CROSS JOIN LATERAL (
            SELECT count(*) AS elements, count(*) FILTER (WHERE finished_at IS NOT NULL) AS ended
            FROM reservations WHERE array_id = a.id) AS e
        WHERE r.finished_at IS NOT NULL AND (a.made <> e.elements OR e.ended <> e.elements
              OR a.succeeded + a.failed + a.cancelled + a.expired <> e.elements)""",
    "preemptible jobs that were promised a start": """
        SELECT p.reservation_id FROM start_promises p JOIN reservations r ON r.id = p.reservation_id
        WHERE r.preemptible AND p.promised_start_at IS NOT NULL""",
    "missed promises without a word": """
        SELECT p.reservation_id, p.promised_start_at, r.started_at, r.finished_at
        FROM start_promises p JOIN reservations r ON r.id = p.reservation_id
        WHERE coalesce(r.started_at, r.finished_at) > p.promised_start_at + interval '5 seconds'
          AND NOT EXISTS (
            SELECT FROM events e WHERE e.reservation_id = p.reservation_id AND e.kind = 'start_promise_missed')""",
}


@dataclass(frozen=True, slots=True)
class Least:
    """What a campaign has to come to: it goes on until it has, an hour longer than its minutes at most."""

    minutes: float
    jobs: int = 0
    kills: int = 0

    def is_reached(self, load: Load, harms: Harms) -> bool:
        """Whether so many jobs were acknowledged and so many kills done."""
        return len(load.acknowledged) >= self.jobs and harms.kills >= self.kills


async def run(least: Least, seed: int, folder: Path, *, kills: bool) -> bool:
    """Whether nothing was violated."""
    server = EmbeddedPostgres(folder / "pg", settings=DURABLE)
    server.start()
    try:
        await upgrade(server.url)
        async with open_system(server.url, folder, GPUS) as system:
            return await _tried(system, server, least, seed, kills=kills)
    finally:
        server.destroy()


async def _tried(system: System, server: EmbeddedPostgres, least: Least, seed: int, *, kills: bool) -> bool:
    await ensure_admin_token(system.runtime.uow, system.runtime.ids, system.home, system.runtime.clock.now())
    token = (system.home / "admin-token").read_text().strip()
    violations: list[str] = []
    began = time.monotonic()
    processes = Processes(system, SETTINGS, violations)
    calls = Calls(processes.apis, token, random.Random(seed), violations)
    locks = system.home.parent / "locks"
    locks.mkdir()
    disks = DiskLife(system, calls, seed, locks)
    checks = DiskChecks(system, disks, locks, violations)
    load = Load(calls, disks, seed, locks)
    harms = Harms(system, server, processes, seed, kills=kills)
    await harms.prepare()
    async with processes.running():
        working = [asyncio.create_task(load.keep()), asyncio.create_task(disks.keep())]
        watching = [asyncio.create_task(processes.watch()), asyncio.create_task(checks.watch())]
        until = time.monotonic() + least.minutes * 60
        while not any(task.done() for task in [*working, *watching]):
            now = time.monotonic()
            if now >= until and (least.is_reached(load, harms) or now >= until + _LONGER_S):
                break
            await harms.next()
            await _catch_up(load, harms, least)
        await harms.over()
        load.stop()
        disks.stop()
        await asyncio.gather(*working)
        violations += [*await _judged(system, load), *await checks.judged(), *await checks.cleared()]
        violations += _uncovered(load, harms, least)
        for task in watching:
            task.cancel()
        ended = await asyncio.gather(*watching, return_exceptions=True)
        violations += [repr(error) for error in ended if not isinstance(error, asyncio.CancelledError)]
    told = {
        "minutes": (time.monotonic() - began) / 60, "seed": seed,
        "kills": harms.kills, "harms": dict(harms.done), "submitted": len(load.acknowledged),
        "answers": {str(status): count for status, count in sorted(calls.answers.items(), key=str)},
        "with": dict(load.with_terms.most_common()), "disks": dict(sorted(disks.done.items())),
        "files on disks": len(checks.files()), "looks at disks": checks.looks,
        "outcomes": dict(Counter(str(row.status) for row in await system.rows(_OUTCOMES))),
        "promises": [tuple(row) for row in await system.rows(_PROMISES)],
        "looks": dict(processes.looks), "violations": violations,
    }  # fmt: skip
    print(json.dumps(told, indent=1, default=str), flush=True)
    return not violations


async def _catch_up(load: Load, harms: Harms, least: Least) -> None:
    """Let jobs come to their part of what is wanted, while kills are ahead of them."""
    until = time.monotonic() + _LONGEST_REST_S
    while harms.kills * least.jobs > len(load.acknowledged) * least.kills and time.monotonic() < until:
        await asyncio.sleep(PAUSE_S)


def _uncovered(load: Load, harms: Harms, least: Least) -> list[str]:
    """What a campaign has not tried often enough to mean anything."""
    found = []
    if not least.is_reached(load, harms):
        found.append(f"too little was tried: {len(load.acknowledged)} jobs and {harms.kills} kills")
    if (with_disks := load.with_terms["disks"]) < _LEAST_WITH_DISKS * len(load.acknowledged):
        found.append(f"too few jobs with disks: {with_disks} of {len(load.acknowledged)}")
    return found


_OUTCOMES = "SELECT status FROM reservations WHERE kind = 'job'"
_PROMISES = """
SELECT count(*) AS promised,
       (SELECT count(*) FROM events WHERE kind = 'start_promise_missed') AS recorded_as_missed
FROM start_promises
"""


# The time that a job was given, by its row: between two stamps of its events the clock may have stepped. A job whose
# booking ended before any processor saw the job run had what was left of the booking, which its row does not say.
_EXPIRED = """
SELECT id, attempt, nodes, extract(epoch FROM least(duration, ends_at - started_at)) AS allotted_s FROM reservations
WHERE status = 'expired' AND (booking_id IS NULL OR started_at IS NOT NULL)
"""


def _ran_s(said: Mapping[str, Any]) -> float | None:
    """For how long a pod's processes ran, by the machine's own count, which nobody sets; None where none began."""
    began, ended = said.get("started_at_boot"), said.get("finished_at_boot")
    return None if began is None or ended is None else float(ended) - float(began)


async def _expired_early(system: System) -> list[str]:
    """Jobs that were ended more than a second before they had had their time."""
    found = []
    for row in await system.rows(_EXPIRED):
        for index in range(row.nodes):
            record = system.home / "tombstones" / f"{row.id}-{row.attempt}-{index}" / "exit.json"
            said = json.loads(record.read_text()) if record.exists() else {}
            ran = _ran_s(said)
            # Of a gang, one may be done while the others go on.
            by_itself = row.nodes > 1 and said.get("exit_code") == 0
            if ran is not None and ran < float(row.allotted_s) - 1 and not by_itself:
                events = await system.rows(
                    "SELECT kind, at FROM events WHERE reservation_id = :id ORDER BY id", id=row.id
                )
                told = ", ".join(f"{event.at:%T} {event.kind}" for event in events)
                found.append(f"{row.id} {ran:.1f} s of {row.allotted_s} s, exit {said.get('exit_code')}: {told}")
    return found


async def _nothing_left(system: System) -> bool:
    return not any((await left_over(system)).values())


async def _judged(system: System, load: Load) -> list[str]:
    """The problems left now that everything has had time to end."""
    found = []
    try:
        await eventually(lambda: _nothing_left(system), timeout=CONVERGES_WITHIN_S)
    except AssertionError:
        found.append(f"not converged; left: {await left_over(system)}")
    if doubled := load.doubled():
        found.append(f"jobs met another on their GPU: {doubled}")
    stored = {row.id for row in await system.rows("SELECT id FROM reservations WHERE kind = 'job'")}
    if lost := load.acknowledged - stored:
        found.append(f"acknowledged and lost: {sorted(lost)}")
    if early := await _expired_early(system):
        found.append(f"expired early: {early}")
    for name, sql in _CHECKS.items():
        try:
            rows = await system.rows(sql)
        except DBAPIError as error:
            found.append(f"{name}: the check failed: {error.orig}")
        else:
            if rows:
                found.append(f"{name}: {[tuple(map(str, row)) for row in rows]}")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run; 0 when nothing was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--jobs", type=int, default=0, help="go on until so many jobs were acknowledged")
    parser.add_argument("--killed", type=int, default=0, help="go on until so many kills were done")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kills", action="store_true", help="kill processes and the database, and harm in no other way"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    chosen = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    folder.chmod(0o711)
    print(f"logs in {folder}", flush=True)
    passed = False
    least = Least(chosen.minutes, chosen.jobs, chosen.killed)
    try:
        passed = asyncio.run(run(least, chosen.seed, folder, kills=chosen.kills))
    finally:
        if passed and not chosen.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if passed else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
