"""Callers of the API in these tests, and what they ask for."""

from dataclasses import dataclass
from typing import Any

import httpx

from reservation_core.ports.people.identities import Principal

JOB: dict[str, Any] = {"gpus": 1, "duration": "PT1H", "workload": {"command": ["true"]}}
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMYb3q9Xj4YQ8F1W3QWp0aC4s0r1nF0wq9c0J9d6f3Jk"
NOBODIES = ("anonymous", "unknown", "expired", "revoked", "child of revoked", "session")


@dataclass(frozen=True)
class People:
    """Secrets by kind of caller: alice and bob (users), root (administrator), and those whose tokens don't work.

    `session` is what a browser's cookie holds, `child` a token of alice's that she made with hers."""

    secrets: dict[str, str | None]
    principals: dict[str, Principal]


async def submitted(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """A job that was accepted."""
    response = await client.post("/v1/jobs", json={**JOB, **fields})
    assert response.status_code == 202, response.text
    answer: dict[str, Any] = response.json()
    return answer
