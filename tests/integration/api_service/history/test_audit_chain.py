"""The chain of the audit log over REST: for administrators, page by page, and as it was written."""

from typing import Any

import httpx
import pytest

from reservation_core.contracts.audit_log import ChainLineOut
from reservation_core.domain.history.audit_chain import ChainCheck
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.history.audit_chain import chain_events
from tests.integration.api_service.bookings.calendars import add_nodes, execute
from tests.integration.api_service.callers import submitted


async def _lines(client: httpx.AsyncClient, **params: Any) -> list[dict[str, Any]]:
    """All of them, two at a time."""
    found: list[dict[str, Any]] = []
    asked = {**params, "limit": 2}
    while True:
        response = await client.get("/v1/events/chain", params=asked)
        assert response.status_code == 200, response.text
        page = response.json()
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        asked["cursor"] = page["next_cursor"]


async def test_an_administrator_reads_all_of_it_and_where_it_stands(
    root: httpx.AsyncClient, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, a=("h100", 2))
    job = await submitted(alice)
    standing = (await root.get("/v1/events/chain/head")).json()
    assert (standing["position"], standing["digest"], standing["first_position"]) == (0, "0" * 64, 1)
    assert standing["unchained_since"] is not None
    assert await _lines(root) == []
    while await chain_events(runtime.uow):
        pass
    found = await _lines(root)
    events = (await root.get("/v1/events")).json()["items"]
    assert [line["event"]["id"] for line in found] == sorted(event["id"] for event in events)
    assert job["id"] in [line["event"]["reservation_id"] for line in found]
    check = ChainCheck()
    for line in found:
        check.take(ChainLineOut.model_validate(line).line())
    assert (check.problems, check.events) == ([], len(events))
    standing = (await root.get("/v1/events/chain/head")).json()
    assert (standing["position"], standing["digest"], standing["unchained_since"]) == (*(check.head or ()), None)
    metrics = (await root.get("/metrics")).text
    assert f"gpu_dev_audit_chain_position {len(events)}.0" in metrics
    assert "gpu_dev_audit_unchained_seconds 0.0" in metrics


@pytest.mark.parametrize("path", ["/v1/events/chain", "/v1/events/chain/head"])
async def test_nobody_else_reads_it(root: httpx.AsyncClient, alice: httpx.AsyncClient, calling: Any, path: str) -> None:
    assert (await alice.get(path)).status_code == 403
    made = (await root.post("/v1/tokens", json={"scopes": ["read", "submit", "book"]})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    refused = await calling("anonymous").get(path, headers=headers)
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:gpu-dev:problem:forbidden")


async def test_what_can_not_be_asked(root: httpx.AsyncClient) -> None:
    for params in (
        {"from": "yesterday"},
        {"limit": 501},
        {"kind": "x"},
        {"from": "2030-01-02T00:00:00Z", "to": "2030-01-02T00:00:00Z"},
    ):
        assert (await root.get("/v1/events/chain", params=params)).status_code == 422, params
    assert (await root.get("/v1/events/chain", params={"cursor": "bm9wZQ"})).status_code == 400


async def test_where_retention_has_removed_the_beginning_a_page_says_so(
    root: httpx.AsyncClient, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    for _ in range(3):
        await submitted(alice)
    await chain_events(runtime.uow)
    cursor = (await root.get("/v1/events/chain", params={"limit": 1})).json()["next_cursor"]
    await execute(runtime, "ALTER TABLE event_chain DISABLE TRIGGER USER")
    await execute(runtime, "DELETE FROM event_chain WHERE position < 2")
    refused = await root.get("/v1/events/chain", params={"cursor": cursor})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gpu-dev:problem:chain_trimmed")
