"""What must hold of a campaign's disks, while it runs and at its end."""

import asyncio
from pathlib import Path
from typing import Any

from tests.faults.campaign.calls import AWAY
from tests.faults.campaign.disks import DiskLife
from tests.faults.systems.system import System
from tests.waiting import eventually

_EVERY_S = 0.5
_SETTLED_WITHIN_S = 180.0

# What jobs have is in their own rows, too: these say it independently of the table that the constraints are on.
_CHECKS = {
    "disks taken from open jobs": """
        SELECT r.id, use->>'disk_id' FROM reservations r
        CROSS JOIN LATERAL jsonb_array_elements(r.workload->'disks') AS use
        WHERE r.finished_at IS NULL AND NOT EXISTS (
            SELECT FROM disk_uses u JOIN disks d ON d.id = u.disk_id
            WHERE u.reservation_id IN (r.id, r.array_id) AND u.disk_id = use->>'disk_id' AND d.deleted_at IS NULL)""",
    "disks with two writers": """
        SELECT use->>'disk_id', array_agg(r.id) FROM reservations r
        CROSS JOIN LATERAL jsonb_array_elements(r.workload->'disks') AS use
        WHERE r.finished_at IS NULL AND NOT (use->>'read_only')::boolean GROUP BY 1 HAVING count(*) > 1""",
}
_ROWS = """
SELECT id, name, size_bytes, made_bytes, deleted_at, removing, date_trunc('milliseconds', created_at) AS made
FROM disks
"""
_SNAPSHOTS = "SELECT id, made, removing FROM disk_snapshots"
_COPIES = "SELECT clone_id, into_snapshot_id FROM disk_copies"
_USES_LEFT = """
SELECT u.disk_id, u.reservation_id FROM disk_uses u JOIN reservations r ON r.id = u.reservation_id
WHERE r.finished_at IS NOT NULL
"""


class DiskChecks:
    """Looks at rows, folders and files. Faults go into `violations`; `looks` counts the complete looks."""

    def __init__(self, system: System, life: DiskLife, locks: Path, violations: list[str]) -> None:
        self.looks = 0
        self._system = system
        self._life = life
        self._written = locks / "written"
        self._violations = violations
        self._folder = system.home / "disks"

    async def watch(self) -> None:
        """Look again and again until cancelled; not while the database is down."""
        while True:
            try:
                await self._look()
                self.looks += 1
            except AWAY:
                pass
            await asyncio.sleep(_EVERY_S)

    async def judged(self) -> list[str]:
        """The faults once all jobs have ended and nobody changes disks any more."""
        try:
            await eventually(self._settled, timeout=_SETTLED_WITHIN_S)
        except AssertionError:
            left = [[*map(tuple, await self._system.rows(one))] for one in (_ROWS, _SNAPSHOTS, _COPIES, _USES_LEFT)]
            return [f"disks are not settled: rows, snapshots, copies, uses {left}, folders {self._folders()}"]
        await self._look()
        rows = await self._system.rows(_ROWS)
        found = [f"what jobs say of disks: {faults}"] if (faults := self._life.faults()) else []
        live = {row.name: (row.made, row.size_bytes) for row in rows if row.deleted_at is None}
        if live != self._life.live:
            found.append(f"disks that are there: {live}; acknowledged: {self._life.live}")
        kept = {row.made: row.name for row in rows if row.deleted_at is not None}
        if kept != self._life.deleted:
            found.append(f"deleted disks that are kept: {kept}; acknowledged: {self._life.deleted}")
        return found

    async def cleared(self) -> list[str]:
        """The orphans of disks, once all disks were deleted and are not kept any longer."""
        await self._life.clear()
        try:
            await eventually(self._is_empty, timeout=_SETTLED_WITHIN_S)
        except AssertionError:
            left = [[*map(tuple, await self._system.rows(one))] for one in (_ROWS, _SNAPSHOTS, _COPIES)]
            return [f"orphans of disks: rows, snapshots, copies {left}, folders {self._folders() | self._parts()}"]
        return []

    async def _is_empty(self) -> bool:
        rows = [await self._system.rows(one) for one in (_ROWS, _SNAPSHOTS, _COPIES)]
        return not any(rows) and not self._folders() and not self._parts()

    async def _settled(self) -> bool:
        """Whether the cluster has what the rows say, nobody's disks are in use, and what is to go is gone."""
        rows = await self._system.rows(_ROWS)
        aged = [row.id for row in rows if row.removing or row.made in self._life.aged]
        unmade = [row.id for row in rows if row.deleted_at is None and row.made_bytes != row.size_bytes]
        snapshots = await self._system.rows(_SNAPSHOTS)
        made = {row.id for row in rows if row.made_bytes is not None} | {row.id for row in snapshots if row.made}
        # A disk that was deleted before it was made has no folder.
        right = made <= self._folders() <= {row.id for row in (*rows, *snapshots)}
        begun = [*await self._system.rows(_COPIES), *self._parts()]
        begun += [row.id for row in snapshots if row.removing]
        return right and not aged and not unmade and not begun and not await self._system.rows(_USES_LEFT)

    async def _look(self) -> None:
        for what, statement in _CHECKS.items():
            if rows := await self._system.rows(statement):
                self._say(f"{what}: {sorted(tuple(map(str, row)) for row in rows)}")
        before, written = self._folders(), self.files()
        rows = await self._system.rows(_ROWS)
        known = {row.id for row in (*rows, *await self._system.rows(_SNAPSHOTS))}
        missing = self._missing(rows, written)
        after = self._folders()
        # A folder that was there before and after, while no row was.
        if orphans := (before & after) - known:
            self._say(f"folders without a row: {sorted(orphans)}")
        if missing and (lost := missing & self._missing(await self._system.rows(_ROWS), written)):
            self._say(f"files that were written and are missing: {sorted(lost)}")

    def _missing(self, rows: list[Any], written: list[tuple[str, str, str]]) -> set[str]:
        """Files of disks that were made and are not removed, and the folders of these, which are not there."""
        disks = {row.id for row in rows if row.made_bytes is not None and not row.removing}
        files = {f"{disk}/{file}" for disk, file, text in written if disk in disks and self._has(disk, file) != text}
        return files | {disk for disk in disks if not (self._folder / disk).is_dir()}

    def _has(self, disk: str, file: str) -> str | None:
        try:
            return (self._folder / disk / file).read_text().strip()
        except FileNotFoundError:
            return None

    def files(self) -> list[tuple[str, str, str]]:
        """Disk, name and content of all files that jobs say they have written."""
        lines = (line.split() for line in self._written.read_text().splitlines())
        return [(disk, file, text) for disk, file, text in lines]

    def _folders(self) -> set[str]:
        """Disks and snapshots; the names of what is not whole begin with a point."""
        found = self._folder.iterdir() if self._folder.exists() else ()
        return {path.name for path in found if not path.name.startswith(".")}

    def _parts(self) -> set[str]:
        return {path.name for path in self._folder.glob(".part-*")}

    def _say(self, problem: str) -> None:
        if problem not in self._violations:
            self._violations.append(problem)
