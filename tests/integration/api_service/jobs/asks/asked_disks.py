"""Disks that tests ask for over REST."""

from typing import Any

import httpx

DISKS = "/v1/disks"


MIB = 2**20


async def created(client: httpx.AsyncClient, name: str = "data", size: object = "1Gi") -> dict[str, Any]:
    answer = await client.post(DISKS, json={"name": name, "size": size})
    assert answer.status_code == 201, answer.text
    shown: dict[str, Any] = answer.json()
    return shown
