"""The disks of a campaign: made, renamed, resized, deleted and restored by one client, while jobs write and read them.

It takes snapshots, too, and clones disks and snapshots: a clone has what was written before it was asked for.

The client knows what was acknowledged, so that what the rows and the file system have can be compared with it. Jobs
are witnesses: a lock of the kernel a disk for the one that writes, and a list of all files that were written.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from tests.faults.campaign.calls import AWAY, PAUSE_S, Calls
from tests.faults.systems.system import System

NAMES = tuple("abcdefghijklmnopqrstuvwx")
_ROUTE = "/v1/disks"
_LEAST = 2**24
_MORE = 4096
_FEWEST = 8
_ANY_NAME = 0.1
_DELETED_ONE = 0.3
"""How often a name is that of a deleted disk: it can be restored, or given again."""
_AGED = 0.1
_NOT_FOUND, _CONFLICT, _UNPROCESSABLE = 404, 409, 422
_SNAPSHOTS = ("s", "t")
_OF_COPIES = (200, 201, _NOT_FOUND, _CONFLICT, _UNPROCESSABLE)

# Builtins alone: a command that a signal ended would look as if the disk or its file were missing.
SCRIPT = """
began=$PWD
for disk in $DISKS; do
    cd -P "$GPU_DEV_DISK_FOLDER/disks/${disk%:*}" || { echo "$GPU_DEV_JOB_ID lacks $disk" >>"$LOCKS/faults"; exit 98; }
    id=${PWD##*/}
    while read -r on file text; do
        [ "$on" = "$id" ] || continue
        has=; { read -r has <"$file"; } 2>/dev/null
        [ "$has" = "$text" ] || echo "$GPU_DEV_JOB_ID misses $file on $id" >>"$LOCKS/faults"
    done <"$LOCKS/written"
    [ "${disk#*:}" = rw ] && [ "${NODE_RANK:-0}" = 0 ] || continue
    exec {lock}>>"$LOCKS/$id"
    flock -E 77 -n "$lock"
    [ "$?" != 77 ] || { echo "$GPU_DEV_JOB_ID wrote to $id beside another" >>"$LOCKS/faults"; exit 97; }
    file=$GPU_DEV_JOB_ID-$GPU_DEV_ATTEMPT
    echo "$GPU_DEV_JOB_ID" >"$file"
    echo "$id $file $GPU_DEV_JOB_ID" >>"$LOCKS/written"
done
cd "$began"
"""


class DiskLife:
    """Changes disks until `stop`. `live` and `deleted` are what was acknowledged: disks by the time they were made.

    `aged` were deleted so long ago that they may be gone. `done` counts what was answered how.
    """

    def __init__(self, system: System, calls: Calls, seed: int, locks: Path) -> None:
        self.live: dict[str, tuple[datetime, int]] = {}
        self.deleted: dict[datetime, str] = {}
        self.aged: set[datetime] = set()
        self.done: Counter[str] = Counter()
        self._system = system
        self._calls = calls
        self._dice = random.Random(seed + 2)
        self._stop = asyncio.Event()
        self._sizes = _LEAST
        self._locks = locks
        self._clones: set[datetime] = set()
        self._snapshots: dict[tuple[datetime, str], list[str]] = {}
        (locks / "written").touch()

    def stop(self) -> None:
        """Change nothing more."""
        self._stop.set()

    def asked(self) -> list[dict[str, Any]]:
        """Disks for a job, perhaps such as another job writes to, and now and then such as nobody has."""
        there = NAMES if self._dice.random() < _ANY_NAME else sorted(self.live)
        names = self._dice.sample(there, min(len(there), self._dice.choice((1, 1, 2))))
        return [{"name": name, "read_only": self._dice.random() < 0.5} for name in names]

    def faults(self) -> list[str]:
        """Disks that jobs did not have, files they did not find, and writers that met."""
        path = self._locks / "faults"
        return path.read_text().splitlines() if path.exists() else []

    async def keep(self) -> None:
        """Change disks until `stop`."""
        steps: tuple[Callable[[httpx.AsyncClient, str], Awaitable[None]], ...] = (
            self._create, self._delete, self._delete, self._delete, self._restore,
            self._rename, self._resize, self._snapshot, self._clone, self._clone, self._drop,
        )  # fmt: skip
        async with self._calls.client() as client:
            while not self._stop.is_set():
                if len(self.live) < _FEWEST:
                    await self._create(client, self._dice.choice([name for name in NAMES if name not in self.live]))
                names = [*self.deleted.values()] if self._dice.random() < _DELETED_ONE else NAMES
                await self._dice.choice(steps)(client, self._dice.choice(names or NAMES))
                if self.deleted and self._dice.random() < _AGED:
                    await self._age(self._dice.choice([*self.deleted]))
                await asyncio.sleep(PAUSE_S)

    async def clear(self) -> None:
        """Delete all that is left, and let the time go by for which it is kept: nobody uses disks any more."""
        async with self._calls.client() as client:
            for name in [*self.live]:
                await self._delete(client, name)
        if self.live:
            self._calls.violations.append(f"disks that nobody has can't be deleted: {self.live}")
        for made in [*self.deleted]:
            await self._age(made)

    async def _create(self, client: httpx.AsyncClient, name: str) -> None:
        size = self._next_size()
        body = {"name": name, "size": size}
        answer = await self._calls.send(client, "POST", _ROUTE, body, allowed=(201, _CONFLICT))
        self._note("create", answer, (_CONFLICT, name in self.live))
        if answer.is_success:
            if name in self.live:
                self._calls.violations.append(
                    f"created {name}, which there was: {answer.text}; acknowledged: {self.live}"
                )
            self.live[name] = (_made(answer), size)

    async def _delete(self, client: httpx.AsyncClient, name: str) -> None:
        lost = self._lost()
        answer = await self._calls.send(client, "DELETE", f"{_ROUTE}/{name}", allowed=(200, _NOT_FOUND, _CONFLICT))
        # No key: a deletion whose answer was lost is not found when it is asked for again.
        was_repeated = self._lost() > lost
        self._note("delete", answer, (_NOT_FOUND, name not in self.live or was_repeated))
        if answer.status_code != _CONFLICT and name in self.live:
            made, _ = self.live.pop(name)
            self.deleted[made] = name
            if made in self._clones:
                await self._age(made)  # one that was not copied yet goes at once

    async def _restore(self, client: httpx.AsyncClient, name: str) -> None:
        answer = await self._calls.send(
            client, "POST", f"{_ROUTE}/{name}/restore", allowed=(200, _NOT_FOUND, _CONFLICT)
        )
        self._note("restore", answer, (_NOT_FOUND, name not in self.deleted.values()), (_CONFLICT, name in self.live))
        if answer.is_success:
            made = _made(answer)
            if self.deleted.pop(made, name if made in self.aged else None) != name:
                self._calls.violations.append(f"restored as {name}, which was not deleted: {answer.text}")
            self.aged.discard(made)
            self.live[name] = (made, answer.json()["size"])

    async def _rename(self, client: httpx.AsyncClient, name: str) -> None:
        to = self._dice.choice([other for other in NAMES if other != name])
        await self._change(client, name, {"name": to}, to in self.live)

    async def _resize(self, client: httpx.AsyncClient, name: str) -> None:
        await self._change(client, name, {"size": self._next_size()}, conflicts=False)

    async def _change(self, client: httpx.AsyncClient, name: str, body: dict[str, Any], conflicts: bool) -> None:
        answer = await self._calls.send(client, "PATCH", f"{_ROUTE}/{name}", body, allowed=(200, _NOT_FOUND, _CONFLICT))
        self._note(f"change {[*body]}", answer, (_NOT_FOUND, name not in self.live), (_CONFLICT, conflicts))
        if answer.is_success:
            made, size = self.live.pop(name)
            self.live[body.get("name", name)] = (made, body.get("size", size))

    async def _snapshot(self, client: httpx.AsyncClient, disk: str) -> None:
        written = await self._written(disk)
        name = self._dice.choice(_SNAPSHOTS)
        answer = await self._calls.send(
            client, "POST", f"{_ROUTE}/{disk}/snapshots", {"name": name}, allowed=_OF_COPIES
        )
        self._note("snapshot", answer, (_NOT_FOUND, disk not in self.live))
        if answer.is_success:
            self._snapshots[self.live[disk][0], name] = written

    async def _drop(self, client: httpx.AsyncClient, disk: str) -> None:
        name = self._dice.choice(_SNAPSHOTS)
        answer = await self._calls.send(client, "DELETE", f"{_ROUTE}/{disk}/snapshots/{name}", allowed=_OF_COPIES)
        self._note("delete a snapshot", answer)

    async def _clone(self, client: httpx.AsyncClient, disk: str) -> None:
        name, snapshot = self._dice.choice(NAMES), self._dice.choice((*_SNAPSHOTS, None, None))
        written, size = await self._written(disk), self._next_size()
        if snapshot is not None:
            made, _ = self.live.get(disk, (None, 0))
            written = [] if made is None else self._snapshots.get((made, snapshot), [])
        source = {"disk": disk} | ({} if snapshot is None else {"snapshot": snapshot})
        body = {"name": name, "size": size, "source": source}
        answer = await self._calls.send(client, "POST", _ROUTE, body, allowed=_OF_COPIES)
        self._note(f"clone {'a disk' if snapshot is None else 'a snapshot'}", answer)
        if answer.is_success:
            made = _made(answer)
            self.live[name] = (made, size)
            self._clones.add(made)
            [row] = await self._rows(_ID, made=made)
            with (self._locks / "written").open("a") as file:
                file.writelines(f"{row.id} {line}\n" for line in written)

    async def _written(self, disk: str) -> list[str]:
        """The files that a live disk has for sure, as jobs note them, without the disk."""
        if disk not in self.live:
            return []
        lines = (self._locks / "written").read_text().splitlines()
        ids = {row.id for row in await self._rows(_ID, made=self.live[disk][0])}
        return [line.partition(" ")[2] for line in lines if line.partition(" ")[0] in ids]

    async def _rows(self, statement: str, **values: object) -> list[Any]:
        while True:
            try:
                return [*await self._system.rows(statement, **values)]
            except AWAY:
                await asyncio.sleep(PAUSE_S)

    async def _age(self, made: datetime) -> None:
        """Let the time go by for which a deleted disk is kept."""
        del self.deleted[made]
        self.aged.add(made)
        await self._rows(_AGE, made=made)

    def _next_size(self) -> int:
        self._sizes += _MORE
        return self._sizes

    def _lost(self) -> int:
        """How many requests were not answered, of all clients."""
        return sum(count for status, count in self._calls.answers.items() if status not in _ANSWERED)

    def _note(self, what: str, answer: httpx.Response, *refusals: tuple[int, bool]) -> None:
        """Count an answer; a refusal of what should have been done is a violation."""
        self.done[f"{what}: {answer.status_code}"] += 1
        for status, may_be in refusals:
            if answer.status_code == status and not may_be:
                self._calls.violations.append(f"{what} of a disk was refused: {answer.text}; acknowledged: {self.live}")


_ANSWERED = frozenset({200, 201, 202, 401, _NOT_FOUND, _CONFLICT, _UNPROCESSABLE})
_AGE = """
UPDATE disks SET deleted_at = deleted_at - interval '40 days'
WHERE date_trunc('milliseconds', created_at) = :made AND deleted_at IS NOT NULL AND NOT removing
"""

_ID = "SELECT id FROM disks WHERE date_trunc('milliseconds', created_at) = :made"


def _made(answer: httpx.Response) -> datetime:
    made: str = answer.json()["created_at"]
    return datetime.fromisoformat(made)
