"""The record over REST: newest first, by page and filter, and to whom what of it is shown."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.history import audit
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import connection_of
from tests.integration.api_service.bookings.calendars import add_nodes, booked, execute
from tests.integration.api_service.callers import People, submitted

_START = datetime(2025, 3, 1, tzinfo=UTC)
_DRAWN = 20_250_301


async def _all(client: httpx.AsyncClient, limit: int = 500, **params: Any) -> list[dict[str, Any]]:
    """Every line, page by page."""
    found: list[dict[str, Any]] = []
    asked = {**params, "limit": limit}
    while True:
        response = await client.get("/v1/events", params=asked)
        assert response.status_code == 200, response.text
        page = response.json()
        assert len(page["items"]) <= limit
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        asked["cursor"] = page["next_cursor"]


async def test_what_was_done_is_on_record(root: httpx.AsyncClient, alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await add_nodes(runtime, a=("h100", 2))
    job, booking = await submitted(alice), await booked(alice)
    await root.post("/v1/users", json={"name": "carol"})
    found = await _all(root)
    assert found == sorted(found, key=lambda event: (event["at"], event["id"]), reverse=True)
    seen = {(event["actor"], event["kind"], event["subject"]) for event in found}
    assert {
        ("alice", "submitted", job["id"]),
        ("alice", "booking_confirmed", booking["id"]),
        ("root", "user_created", "user:carol"),
        ("system", "node_added", "a"),
        ("system", "gpu_added", "a/1"),
    } <= seen
    [line] = [event for event in found if event["subject"] == booking["id"]]
    assert (line["after"], line["reason_code"]) == ("confirmed", "booked")
    assert [event["subject"] for event in await _all(root, kind=["user_created", "submitted"])] == [
        "user:carol", job["id"],
    ]  # fmt: skip


async def test_pages_and_filters_agree_with_a_look_at_everything(
    root: httpx.AsyncClient, alice: httpx.AsyncClient, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times need not grow with the ids, many are equal, and a search looks at seven lines, of one thing at three."""
    drawn, job = random.Random(_DRAWN), await submitted(alice)
    lines = [
        {
            "at": _START + timedelta(minutes=drawn.randrange(40)),
            "actor": drawn.choice(["ann", "ben", "system"]),
            "kind": drawn.choice(["one", "two", "three"]),
            "subject": subject if (subject := drawn.choice(["n1", "n2", job["id"]])) != job["id"] else None,
            "job": job["id"] if subject == job["id"] else None,
        }
        for _ in range(120)
    ]
    for line in lines:
        await execute(
            runtime,
            "INSERT INTO events (reservation_id, subject, at, actor, kind) VALUES (:job, :subject, :at, :actor, :kind)",
            **line,
        )
    rows = await execute(
        runtime,
        "SELECT id, at, actor, kind, coalesce(reservation_id, subject) AS subject FROM events "
        "ORDER BY at DESC, id DESC",
    )
    everything = rows.all()
    monkeypatch.setattr(audit, "LOOKED_AT", 7)
    monkeypatch.setattr(audit, "LOOKED_AT_OF_ONE", 3)
    for _ in range(40):
        since, until = sorted(_START + timedelta(minutes=drawn.randrange(-1, 42)) for _ in range(2))
        params: dict[str, Any] = {}
        if drawn.random() < 0.5:
            params |= {"from": since.isoformat(), "to": (until + timedelta(minutes=1)).isoformat()}
        if drawn.random() < 0.4:
            params["kind"] = drawn.sample(["one", "two", "three", "submitted"], 2)
        if drawn.random() < 0.4:
            params["actor"] = drawn.choice(["ann", "ben", "nobody"])
        if drawn.random() < 0.3:
            params["subject"] = drawn.choice(["n1", job["id"], "n3"])
        if drawn.random() < 0.5:
            params["order"] = drawn.choice(["newest", "oldest"])
        wanted = [
            row.id
            for row in everything
            if ("from" not in params or since <= row.at <= until)
            and ("kind" not in params or row.kind in params["kind"])
            and ("actor" not in params or row.actor == params["actor"])
            and ("subject" not in params or row.subject == params["subject"])
        ]
        if params.get("order") == "oldest":
            wanted.reverse()
        assert [event["id"] for event in await _all(root, drawn.randrange(1, 30), **params)] == wanted, params


async def test_others_read_what_is_about_something_of_theirs(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime, people: People
) -> None:
    await add_nodes(runtime, a=("h100", 2))
    job, booking = await submitted(alice), await booked(alice)
    token = (await alice.post("/v1/tokens", json={"name": "laptop"})).json()["id"]
    await root.delete(f"/v1/tokens/{token}")
    about = [job["id"], booking["id"], token]
    for subject in about:
        assert await _all(alice, subject=subject) == await _all(root, subject=subject) != []
        refused = await bob.get("/v1/events", params={"subject": subject})
        assert (refused.status_code, refused.json()["type"]) == (404, "urn:gpu-dev:problem:not_found")
    assert [event["kind"] for event in await _all(alice, subject=token)] == ["token_revoked", "token_created"]
    assert await _all(alice, subject="user:alice") == []
    for subject in ("user:bob", "a", "policy:default", "job-none", "user:", "alice"):
        assert (await alice.get("/v1/events", params={"subject": subject})).status_code == 404
    for params in ({}, {"actor": "alice"}, {"kind": "submitted"}):
        assert (await alice.get("/v1/events", params=params)).status_code == 403


async def test_secrets_are_in_no_event(root: httpx.AsyncClient, alice: httpx.AsyncClient, people: People) -> None:
    token = (await alice.post("/v1/tokens", json={})).json()["token"]
    feed = (await alice.post("/v1/bookings/feed")).json()["path"].split("token=")[1]
    hook = {"channel": "webhook", "address": "https://hooks.example.org/a-secret-path"}
    target = (await alice.post("/v1/notifications/targets", json=hook)).json()
    await submitted(alice, workload={"command": ["echo", "a-secret-word"], "env": {"KEY": "a-secret-value"}})
    await root.put("/v1/policy/user:alice", json={"max_gpus": 3})
    text = str(await _all(root))
    assert "max_gpus" in text
    for secret in (
        token,
        feed,
        target["secret"],
        "a-secret",
        *(listed_secret for listed_secret in people.secrets.values() if listed_secret),
    ):
        assert secret not in text


async def test_what_can_not_be_asked(root: httpx.AsyncClient) -> None:
    for params in (
        {"kind": "NO"},
        {"kind": ["k"] * 17},
        {"actor": ""},
        {"subject": "x" * 301},
        {"subject": "a\x00b"},
        {"from": "yesterday"},
        {"from": "2030-01-02T00:00:00Z", "to": "2030-01-02T00:00:00Z"},
        {"limit": 501},
        {"order": "random"},
        {"page": 2},
    ):
        assert (await root.get("/v1/events", params=params)).status_code == 422, params
    assert (await root.get("/v1/events", params={"cursor": "bm9wZQ"})).status_code == 400
    for name in ("dora", "emil"):
        await root.post("/v1/users", json={"name": name})
    for order, other in (("newest", "oldest"), ("oldest", "newest")):
        cursor = (await root.get("/v1/events", params={"order": order, "limit": 1})).json()["next_cursor"]
        for asked, status in ((order, 200), (other, 400)):
            assert (await root.get("/v1/events", params={"order": asked, "cursor": cursor})).status_code == status


@pytest.mark.parametrize(
    ("search", "places", "direction"),
    [
        ("events_newest_first", ("before_at", "before_id"), " Backward"),
        ("events_oldest_first", ("after_at", "after_id"), ""),
    ],
)
async def test_the_record_is_read_along_its_index(
    runtime: Runtime, search: str, places: tuple[str, str], direction: str
) -> None:
    """Whatever is asked for: a sort of millions would be noticed by everybody."""
    async with runtime.uow() as uow:
        connection = connection_of(uow)
        await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        await connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
        asked = statement(search).text
        for name in ("kinds", "actor", "from", "to", *places, "scanned", "limit"):
            asked = asked.replace(f":{name}", "NULL" if name not in ("scanned", "limit") else "100")
        plan = "\n".join(row[0] for row in await connection.exec_driver_sql(f"EXPLAIN {asked}"))
    # Partition by partition, each along its own index on (at, id).
    assert f"Index Scan{direction} using events_" in plan
    assert "Seq Scan" not in plan
    assert "Sort  (" not in plan
