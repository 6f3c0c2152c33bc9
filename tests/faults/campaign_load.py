"""The load of a campaign: jobs of all sorts over REST, and bookings; what was acknowledged must be there."""

import asyncio
import random
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.faults.system import System

WAITING = 16
_CLIENTS = 4
_BOOK_EVERY = 40
_PAUSE_S = 0.3
_MAY_BE = frozenset({201, 202, 401, 409, 422, 503})
"""422 and 409: a booking for which there is no room. 401 never: it is counted, and told below."""
# The witness is the kernel: a lock a GPU, for as long as any process of the pod lives.
_HEAD = """
for card in ${CUDA_VISIBLE_DEVICES//,/ }; do
    exec {lock}>>"$LOCKS/$GPU_DEV_NODE-$card"
    flock -n "$lock" || { echo "$GPU_DEV_JOB_ID $GPU_DEV_NODE $card" >>"$LOCKS/doubled"; exit 99; }
done
"""
_WORK = {
    "done": "sleep {seconds}",
    "told": "sleep 600",
    "killed": "trap '' TERM; while :; do sleep 0.2; done",
    "short": ":",
}


class Load:
    """Keeps some jobs waiting. An answer that no client should see goes into `violations`."""

    def __init__(self, system: System, apis: list[str], token: str, seed: int, violations: list[str]) -> None:
        self.acknowledged: set[str] = set()
        self.answers: Counter[int | str] = Counter()
        self._system = system
        self._apis = apis
        self._headers = {"Authorization": f"Bearer {token}"}
        self._dice = random.Random(seed)
        self._violations = violations
        self._stop = asyncio.Event()
        self._locks = system.home.parent / "locks"
        self._locks.mkdir()

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
        async with httpx.AsyncClient(headers=self._headers, timeout=30, trust_env=False) as client:
            while not self._stop.is_set():
                if await self._enough(client):
                    await asyncio.sleep(_PAUSE_S)
                    continue
                submitted += 1
                if submitted % _BOOK_EVERY == number:
                    await self._post(client, "/v1/bookings", self._booking())
                else:
                    answer = await self._post(client, "/v1/jobs", self._job())
                    if answer is not None:
                        self.acknowledged.add(answer["id"])

    async def _enough(self, client: httpx.AsyncClient) -> bool:
        try:
            answer = await client.get(f"{self._api()}/v1/jobs", params={"status": "queued", "limit": WAITING})
        except httpx.TransportError:
            return True
        self.answers[answer.status_code] += 1
        if answer.status_code not in (200, 503):
            self._violations.append(f"GET /v1/jobs answered {answer.status_code}: {answer.text[:300]}")
        return answer.status_code != 200 or len(answer.json()["items"]) >= WAITING

    def _api(self) -> str:
        return f"http://{self._dice.choice(self._apis)}"

    async def _post(self, client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Send under one key until it is answered, as a careful client does; None where it was refused."""
        key = {"Idempotency-Key": str(uuid.uuid4())}
        while True:
            try:
                answer = await client.post(f"{self._api()}{path}", json=body, headers=key)
            except httpx.TransportError as error:
                self.answers[type(error).__name__] += 1
                await asyncio.sleep(_PAUSE_S)
                continue
            self.answers[answer.status_code] += 1
            if answer.status_code not in _MAY_BE or answer.status_code == httpx.codes.UNAUTHORIZED:
                self._violations.append(f"POST {path} answered {answer.status_code}: {answer.text[:300]}")
            if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                if "retry-after" not in answer.headers:
                    self._violations.append(f"POST {path} answered 503 without Retry-After: {answer.text[:300]}")
                await asyncio.sleep(_PAUSE_S)
                continue
            return answer.json() if answer.is_success else None

    def _job(self) -> dict[str, Any]:
        kind = self._dice.choice([*_WORK])
        work = _WORK[kind].format(seconds=self._dice.choice((0.5, 2, 4)))
        shape = self._dice.choice(({"gpus": 1}, {"gpus": 1}, {"gpus": 2}, {"gpus": 4}, {"gpus": 4, "nodes": 2}))
        return {
            **shape,
            "duration": self._dice.choice((3, 5, 10)),
            "workload": self._system.records.workload(work=work),
            **self._terms(),
        }

    def _terms(self) -> dict[str, Any]:
        """What some jobs ask for besides GPUs."""
        asked = [
            {"preemptible": True, "min_runtime": 1},
            {"preemptible": True, "end_signal": {"signal": "USR1", "before": 1}},
            {"array": {"size": self._dice.randrange(1, 7), "parallel": self._dice.choice((1, 2, 3))}},
            {"retries": {"max": 2, "on": ["failed", "node_lost", "preempted"]}},
            {"resources": {"cpus": 0.1, "memory": "16Mi"}},
            *[{}] * 5,
        ]
        if self.acknowledged:
            when = self._dice.choice(("succeeded", "ended", "failed", "started"))
            asked.append({"after": [{"job": self._dice.choice(sorted(self.acknowledged)), "when": when}]})
        return self._dice.choice(asked)

    def _booking(self) -> dict[str, Any]:
        minute = datetime.now(UTC).replace(second=0, microsecond=0)
        start = minute + timedelta(minutes=self._dice.choice((0, 1, 2)))
        return {
            "gpus": 1, "gpu_type": "h100", "start": start.isoformat(),
            "end": (start + timedelta(minutes=1)).isoformat(),
            "workload": self._workload(_WORK["told"]),
        }  # fmt: skip

    def _workload(self, work: str) -> dict[str, Any]:
        return {"command": ["bash", "-c", _HEAD + work], "env": {"LOCKS": str(self._locks)}}
