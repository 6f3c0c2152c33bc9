"""The whole system for people at browsers: its address, who they are, and what they need no page for."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.systems.system_process import FINAL, SystemProcess
from tests.waiting import PATIENCE_S, eventually_sync

PEOPLE = {"alice": "user", "bob": "user", "root": "admin"}


class WebSystem:
    """A running system with four simulated cards (unless `settings` say others), and a token for each of PEOPLE."""

    def __init__(self, home: Path, database_url: str, settings: dict[str, str]) -> None:
        self._process = SystemProcess(home, forked=True, **{"GPU_DEV_DATABASE_URL": database_url, **settings})
        self.tokens: dict[str, str] = {}
        self._clients: dict[str, httpx.Client] = {}

    @property
    def url(self) -> str:
        """Where it is, without a slash at the end."""
        return self._process.url.rstrip("/")

    def start(self) -> None:
        """Start it, and make PEOPLE."""
        with self._process.start() as admin:
            for name, role in PEOPLE.items():
                admin.post("/v1/users", json={"name": name, "role": role}).raise_for_status()
                made = admin.post("/v1/tokens", json={"user": name}).raise_for_status().json()
                self.tokens[name] = made["token"]

    def rest(self, who: str) -> httpx.Client:
        """What one of them does over REST."""
        if who not in self._clients:
            headers = {"Authorization": f"Bearer {self.tokens[who]}"}
            self._clients[who] = httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S, trust_env=False)
        return self._clients[who]

    def submit(self, who: str, *command: str, **more: Any) -> str:
        """A job of one card for five minutes, unless `more` says otherwise; returns its id."""
        body = {"gpus": 1, "duration": 300, "workload": {"command": command}, **more}
        answer = self.rest(who).post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def job(self, job: str) -> dict[str, Any]:
        """A job as it is now."""
        found: dict[str, Any] = self.rest("root").get(f"/v1/jobs/{job}").raise_for_status().json()
        return found

    def end_all_jobs(self) -> None:
        """Cancel what is not over, and wait until no process of it is left."""
        for job in (jobs := self._unfinished()):
            self.rest("root").post(f"/v1/jobs/{job}/cancel")
        for job in jobs:
            eventually_sync(lambda job=job: self.job(job)["status"] in FINAL)  # type: ignore[misc]

    @contextmanager
    def away(self) -> Iterator[None]:
        """The server is gone while the block runs, and back after it where GPU_DEV_LISTEN names its address."""
        assert self._process.end(signal.SIGTERM) == 0, self._process.log
        yield
        self._process.start().close()

    def stop(self) -> None:
        """End it in order; whatever happened, nothing is left."""
        try:
            if self.tokens.keys() >= PEOPLE.keys():  # it had come up
                self._process.jobs += self._unfinished()
                self.end_all_jobs()
            assert self._process.end(signal.SIGTERM) == 0, self._process.log
        finally:
            for client in self._clients.values():
                client.close()
            self._process.clear()

    def _unfinished(self) -> list[str]:
        query: dict[str, Any] = {"limit": 100, "status": ["queued", "starting", "running", "ending"]}
        found = self.rest("root").get("/v1/jobs", params=query).raise_for_status().json()
        return [job["id"] for job in found["items"]]
