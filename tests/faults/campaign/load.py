"""The load of a campaign: jobs of all sorts over REST, and bookings; what was acknowledged must be there."""

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from tests.faults.campaign.calls import PAUSE_S, Calls
from tests.faults.campaign.disks import SCRIPT, DiskLife

WAITING = 16
_CLIENTS = 4
_BOOK_EVERY = 40
_WITH_DISKS = 0.7
_LARGE = 20
"""Elements of an array that is large: each of them is short, so that it leaves room for others."""
_MAY_BE = frozenset({201, 202, 409, 422})
"""422 and 409: a booking for which there is no room, or a disk that is not there or in use."""
# The witness is the kernel: a lock a GPU, for as long as any process of the pod lives.
_HEAD = """
for card in ${CUDA_VISIBLE_DEVICES//,/ }; do
    exec {lock}>>"$LOCKS/$GPU_DEV_NODE-$card"
    flock -E 77 -n "$lock"
    [ "$?" != 77 ] || { echo "$GPU_DEV_JOB_ID $GPU_DEV_NODE $card" >>"$LOCKS/doubled"; exit 99; }
done
"""
_WORK = {
    "done": "sleep {seconds}",
    "told": "sleep 600",
    "killed": "trap '' TERM; while :; do sleep 0.2; done",
    "short": ":",
}


_TERMS = ("disks", "array", "after", "retries", "preemptible", "end_signal", "resources", "booking_id")


class Load:
    """Keeps some jobs waiting. `with_terms` counts what the acknowledged jobs ask for, and what of it together."""

    def __init__(self, calls: Calls, disks: DiskLife, seed: int, locks: Path) -> None:
        self.acknowledged: set[str] = set()
        self.with_terms: Counter[str] = Counter()
        self._calls = calls
        self._disks = disks
        self._dice = random.Random(seed)
        self._stop = asyncio.Event()
        self._locks = locks
        self._bookings: list[str] = []

    def doubled(self) -> list[str]:
        """The jobs that met another on a GPU: id, node, index."""
        path = self._locks / "doubled"
        return path.read_text().splitlines() if path.exists() else []

    def stop(self) -> None:
        """Submit nothing more."""
        self._stop.set()

    async def keep(self) -> None:
        """Submit until `stop`."""
        async with asyncio.TaskGroup() as clients:
            for number in range(_CLIENTS):
                clients.create_task(self._client(number))

    async def _client(self, number: int) -> None:
        submitted = 0
        async with self._calls.client() as client:
            while not self._stop.is_set():
                if await self._enough(client):
                    await asyncio.sleep(PAUSE_S)
                    continue
                submitted += 1
                if submitted % _BOOK_EVERY == number:
                    await self._book(client)
                else:
                    await self._submit(client, self._job())

    async def _book(self, client: httpx.AsyncClient) -> None:
        answer = await self._calls.send(client, "POST", "/v1/bookings", self._booking(), allowed=_MAY_BE)
        if answer.is_success:
            self._bookings.append(answer.json()["id"])

    async def _submit(self, client: httpx.AsyncClient, job: dict[str, Any]) -> None:
        answer = await self._calls.send(client, "POST", "/v1/jobs", job, allowed=_MAY_BE)
        if answer.is_success:
            self.acknowledged.add(answer.json()["id"])
            terms = [term for term in _TERMS if term in job]
            self.with_terms.update(terms or ["nothing more"])
            if len(terms) > 1:
                self.with_terms[" + ".join(terms)] += 1

    async def _enough(self, client: httpx.AsyncClient) -> bool:
        asked = f"/v1/jobs?status=queued&limit={WAITING}"
        answer = await self._calls.send(client, "GET", asked, allowed=(200,))
        return answer.status_code != 200 or len(answer.json()["items"]) >= WAITING

    def _job(self) -> dict[str, Any]:
        kind = self._dice.choice([*_WORK])
        work = _WORK[kind].format(seconds=self._dice.choice((0.5, 2, 4)))
        shape = self._dice.choice(
            ({"gpus": 0}, {"gpus": 1}, {"gpus": 1}, {"gpus": 2}, {"gpus": 4}, {"gpus": 4, "nodes": 2})
        )
        terms = self._terms()
        if "booking_id" in terms:  # what can't be in a booking
            shape = {"gpus": 1}
            terms = {name: term for name, term in terms.items() if name not in ("array", "preemptible", "min_runtime")}
        if "preemptible" in terms and not shape["gpus"]:
            shape = {"gpus": 1}
        if terms.get("array", {}).get("size", 0) >= _LARGE:
            shape, work = self._dice.choice(({"gpus": 0}, {"gpus": 1})), _WORK["short"]
        disks = self._disks.asked() if self._dice.random() < _WITH_DISKS else []
        for disk in disks:
            disk["read_only"] |= "array" in terms  # elements would write at once
        return {
            **shape,
            **terms,
            "duration": self._dice.choice((3, 5, 10)),
            "workload": self._workload(work, disks),
            **({"disks": disks} if disks else {}),
        }

    def _terms(self) -> dict[str, Any]:
        """What a job asks for besides GPUs: each alone, or some of it together."""
        asked: list[dict[str, Any]] = [
            self._dice.choice(
                (
                    {"preemptible": True, "min_runtime": 1},
                    {"preemptible": True, "end_signal": {"signal": "USR1", "before": 1}},
                )
            ),
            self._dice.choice(
                (
                    {"array": {"size": self._dice.randrange(1, 7), "parallel": self._dice.choice((1, 2, 3))}},
                    {"array": {"size": self._dice.randrange(_LARGE, 100), "parallel": 8}},
                )
            ),
            {"retries": {"max": 2, "on": ["failed", "node_lost", "preempted"]}},
            {"resources": {"cpus": 0.1, "memory": "16Mi"}},
        ]
        if self.acknowledged:
            when = self._dice.choice(("succeeded", "ended", "failed", "started"))
            asked.append({"after": [{"job": self._dice.choice(sorted(self.acknowledged)), "when": when}]})
        if self._bookings:
            asked.append({"booking_id": self._bookings[-1]})
        chosen = self._dice.sample(asked, self._dice.choice((0, 0, 1, 1, 2, 3)))
        return {name: term for terms in chosen for name, term in terms.items()}

    def _booking(self) -> dict[str, Any]:
        minute = datetime.now(UTC).replace(second=0, microsecond=0)
        start = minute + timedelta(minutes=self._dice.choice((0, 1, 2)))
        return {
            "gpus": 1, "gpu_type": "h100", "start": start.isoformat(),
            "end": (start + timedelta(minutes=1)).isoformat(),
            "workload": self._workload(_WORK["told"], []),
        }  # fmt: skip

    def _workload(self, work: str, disks: list[dict[str, Any]]) -> dict[str, Any]:
        uses = " ".join(f"{disk['name']}:{'ro' if disk['read_only'] else 'rw'}" for disk in disks)
        env = {"LOCKS": str(self._locks), "DISKS": uses}
        return {"command": ["bash", "-c", _HEAD + (SCRIPT if disks else "") + work], "env": env}
