"""Requests of a campaign's clients, sent until they are answered; answers that no client should see are violations."""

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx
from sqlalchemy.exc import DBAPIError

PAUSE_S = 0.3
AWAY = (DBAPIError, asyncpg.InternalClientError, OSError)
"""What a statement of the campaign's own raises while the database is down. SQLAlchemy does not wrap the second one."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The APIs under test, and what they answered: `answers` counts statuses and errors of the transport."""

    apis: list[str]
    token: str
    dice: random.Random
    violations: list[str]
    answers: Counter[int | str] = field(default_factory=Counter)

    def client(self) -> httpx.AsyncClient:
        """A client with the token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.AsyncClient(headers=headers, timeout=30, trust_env=False)

    def api(self) -> str:
        """The address of any of the APIs."""
        return f"http://{self.dice.choice(self.apis)}"

    async def send(
        self,
        client: httpx.AsyncClient,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        allowed: Collection[int],
    ) -> httpx.Response:
        """Send under one key until it is answered, as a careful client does.

        Statuses other than `allowed` and 503, which is sent again, are violations.
        """
        key = {"Idempotency-Key": str(uuid.uuid4())}
        while True:
            try:
                answer = await client.request(method, f"{self.api()}{path}", json=body, headers=key)
            except httpx.TransportError as error:
                self.answers[type(error).__name__] += 1
                await asyncio.sleep(PAUSE_S)
                continue
            self.answers[answer.status_code] += 1
            if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                if "retry-after" not in answer.headers:
                    self.violations.append(f"{method} {path} answered 503 without Retry-After: {answer.text[:300]}")
                await asyncio.sleep(PAUSE_S)
                continue
            if answer.status_code not in allowed:
                self.violations.append(f"{method} {path} answered {answer.status_code}: {answer.text[:300]}")
            return answer
