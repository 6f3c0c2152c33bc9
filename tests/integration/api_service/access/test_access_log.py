"""The access log: every request leaves a line, also one that was refused."""

import asyncio
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from reservation_core.runtime.settings.components import ApiSettings
from tests.integration.api_service.callers import People, submitted


@pytest.fixture
def settings(tmp_path: Path) -> ApiSettings:
    return ApiSettings(home=tmp_path, access_log="access.log", trusted_proxies=("127.0.0.1",))


async def lines(app: FastAPI, settings: ApiSettings) -> list[dict[str, Any]]:
    """All that was written so far."""
    await app.state.services.access_log.write()
    return [json.loads(line) for line in (settings.home / "access.log").read_text().splitlines()]


async def test_every_request_leaves_a_line(
    app: FastAPI,
    settings: ApiSettings,
    calling: Callable[[str], httpx.AsyncClient],
    people: People,
) -> None:
    alice, root = calling("alice"), calling("root")
    job = (await submitted(alice))["id"]
    # An administrator's look at somebody else's log; another user's try; nobody's try.
    assert (await root.get(f"/v1/jobs/{job}/logs", headers={"X-Forwarded-For": "2001:db8::7"})).status_code == 200
    assert (await calling("bob").get(f"/v1/jobs/{job}/logs")).status_code == 404
    assert (await calling("unknown").get(f"/v1/jobs/{job}?token=secret")).status_code == 401
    assert (await calling("unknown").get("/v1/nothing")).status_code == 401
    assert (await calling("anonymous").post("/v1/login", json={"method": "oidc"})).status_code == 422
    assert (await calling("anonymous").get("/healthz")).status_code == 200
    found = await lines(app, settings)
    said = [(line["user"], line["role"], line["method"], line["route"], line["path"], line["status"]) for line in found]
    assert said == [
        ("alice", "user", "POST", "/v1/jobs", "/v1/jobs", 202),
        ("root", "admin", "GET", "/v1/jobs/{job_id}/logs", f"/v1/jobs/{job}/logs", 200),
        ("bob", "user", "GET", "/v1/jobs/{job_id}/logs", f"/v1/jobs/{job}/logs", 404),
        (None, None, "GET", "/v1/jobs/{job_id}", f"/v1/jobs/{job}", 401),
        (None, None, "GET", "unmatched", "/v1/nothing", 401),
        (None, None, "POST", "/v1/login", "/v1/login", 422),
    ]
    assert [line["token"] for line in found[:2]] == [people.principals[name].token_id for name in ("alice", "root")]
    assert [line["address"] for line in found] == ["127.0.0.1", "2001:db8::7", *["127.0.0.1"] * 4]
    written = (settings.home / "access.log").read_text()
    for secret in ("secret", *filter(None, people.secrets.values())):
        assert secret not in written
    assert stat.S_IMODE((settings.home / "access.log").stat().st_mode) == 0o600


async def test_whose_disks_an_administrator_looked_at_is_written_down(
    app: FastAPI, settings: ApiSettings, calling: Callable[[str], httpx.AsyncClient]
) -> None:
    root = calling("root")
    assert (await calling("alice").post("/v1/disks", json={"name": "data", "size": "1Gi"})).status_code == 201
    for path in ("/v1/disks", "/v1/disks/data", "/v1/disks/none"):
        await root.get(path, params={"user": "alice"})
    await root.get("/v1/disks", params={"user": "root"})
    await calling("bob").get("/v1/disks", params={"user": "alice"})
    found = [(line["user"], line["status"], line.get("of_user", "")) for line in await lines(app, settings)]
    assert found == [
        ("alice", 201, ""),
        *(("root", status, "alice") for status in (200, 200, 404)),
        ("root", 200, ""),
        ("bob", 403, ""),
    ]


async def test_who_lacks_a_scope_is_written_down_too(
    app: FastAPI, settings: ApiSettings, calling: Callable[[str], httpx.AsyncClient]
) -> None:
    made = (await calling("alice").post("/v1/tokens", json={"scopes": ["read"]})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    assert (await calling("anonymous").post("/v1/jobs", json={}, headers=headers)).status_code == 403
    last = (await lines(app, settings))[-1]
    assert (last["user"], last["token"], last["route"], last["status"]) == ("alice", made["id"], "/v1/jobs", 403)


async def test_sign_ins_at_the_pages_say_who(app: FastAPI, settings: ApiSettings, people: People) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://pages") as browser:
        assert (await browser.post("/sign-in", data={"token": "gpudev_wrong"})).status_code == 401
        assert (await browser.post("/sign-in", data={"token": people.secrets["alice"] or ""})).status_code == 303
        assert (await browser.get("/jobs")).status_code == 200
    found = await lines(app, settings)
    assert [(line["user"], line["route"], line["status"]) for line in found] == [
        (None, "/sign-in", 401),
        ("alice", "/sign-in", 303),
        ("alice", "/jobs", 200),
    ]
    assert found[1]["token"] == found[2]["token"]  # the session


async def test_what_a_calendar_program_reads_has_its_owner(
    app: FastAPI, settings: ApiSettings, calling: Callable[[str], httpx.AsyncClient], people: People
) -> None:
    feed = (await calling("alice").post("/v1/bookings/feed")).json()["path"]
    assert (await calling("anonymous").get(feed)).status_code == 200
    last = (await lines(app, settings))[-1]
    maker = people.principals["alice"].token_id
    assert (last["user"], last["token"], last["path"]) == ("alice", maker, "/v1/bookings.ics")


async def test_a_write_that_is_cancelled_loses_no_line(app: FastAPI, settings: ApiSettings) -> None:
    scope = {"request_id": "1-1", "client": None, "headers": [], "method": "GET"}
    for number in range(120):
        app.state.services.access_log.note(scope | {"path": f"/nothing/{number}"}, "unmatched", 404, 0.1)
    writing = asyncio.create_task(app.state.services.access_log.write())
    await asyncio.sleep(0)  # it formats some of them, and lets others go before
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert [line["path"] for line in await lines(app, settings)] == [f"/nothing/{number}" for number in range(120)]


async def test_what_can_not_be_written_is_counted(
    app: FastAPI, settings: ApiSettings, calling: Callable[[str], httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = app.state.services.access_log

    def full(_lines: list[str]) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(log._destination, "write", full)
        for _ in range(3):
            assert (await calling("alice").get("/v1/jobs")).status_code == 200
        with pytest.raises(OSError, match="No space"):
            await log.write()
    monkeypatch.setattr("api_service.access.access_log.MOST_LINES", 1)
    for _ in range(2):
        assert (await calling("alice").get("/v1/jobs")).status_code == 200
    access, dropped = await lines(app, settings)
    assert (access["event"], dropped["event"], dropped["lines"]) == ("access", "access_dropped", 4)


async def test_a_full_file_makes_room(
    app: FastAPI, settings: ApiSettings, calling: Callable[[str], httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.state.services.access_log._destination, "maxBytes", 100)
    for _ in range(3):
        assert (await calling("alice").get("/v1/jobs")).status_code == 200
        await app.state.services.access_log.write()
    kept = sorted(path.name for path in settings.home.glob("access.log*"))
    assert kept[:3] == ["access.log", "access.log.1", "access.log.2"]
    assert all(stat.S_IMODE((settings.home / name).stat().st_mode) == 0o600 for name in kept)
