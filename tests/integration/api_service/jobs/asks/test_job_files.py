"""Folders for jobs over REST: possession, hostile lists, bounds, two clients at once, and the job's own token."""

import asyncio
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api_service.app import create_app
from reservation_core.domain.sessions.job_tokens import job_token
from reservation_core.domain.sync.frames import framed, read_pack
from reservation_core.runtime.settings.components import ApiSettings, ClusterKind
from reservation_core.runtime.settings.user_data import SyncSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.sessions.server_keys import job_token_key
from tests.database.sql import sql
from tests.integration.api_service.bookings.calendars import execute
from tests.integration.api_service.callers import JOB

Calling = Callable[[str], httpx.AsyncClient]
BYTES = {"Content-Type": "application/octet-stream"}


def pack(*chunks: bytes) -> bytes:
    return b"".join(framed(sha256(chunk).digest(), chunk) for chunk in chunks)


YET = "is queued. It keeps its files when its command has ended."


def listed(**files: bytes) -> dict[str, Any]:
    """A folder of small files by their names."""
    return {
        "entries": [
            {"path": name, "kind": "file", "size": len(data), "chunks": [sha256(data).hexdigest()]}
            for name, data in files.items()
        ]
    }


async def send(client: httpx.AsyncClient, **files: bytes) -> str:
    """Send a folder of small files; returns its id."""
    sent = await client.put("/v1/uploads", content=pack(*files.values()), headers=BYTES)
    assert sent.status_code == 200, sent.text
    answer = (await client.put("/v1/uploads/folders", json=listed(**files))).json()
    assert answer["missing"] == [], answer
    return str(answer["id"])


async def submitted(client: httpx.AsyncClient, **sync: Any) -> str:
    answer = await client.post("/v1/jobs", json={**JOB, "sync": sync})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def test_a_folder_goes_into_a_job_and_results_come_out(alice: httpx.AsyncClient) -> None:
    files = {"a": b"aaa", "b": b"bb", "c": b"aaa"}
    first = (await alice.put("/v1/uploads/folders", json=listed(**files))).json()
    assert (first["id"], first["size"]) == (None, 8)
    assert first["missing"] == [sha256(data).hexdigest() for data in (b"aaa", b"bb")]
    folder = await send(alice, **files)
    assert (await alice.put("/v1/uploads", content=pack(b"aaa"), headers=BYTES)).json() == {"stored": 0}
    job = await submitted(alice, folder=folder, fetch=["out"])
    found = (await alice.get(f"/v1/jobs/{job}/files")).json()
    assert (found["id"], found["chunks"], found["fetch"]) == (folder, 2, ["out"])
    assert found["entries"] == listed(**files)["entries"]
    assert found["most_bytes"] == SyncSettings().folder_bytes
    data = (await alice.get(f"/v1/jobs/{job}/files/data")).content
    assert [chunk for _, chunk in read_pack(data)] == [b"aaa", b"bb"]
    rest = (await alice.get(f"/v1/jobs/{job}/files/data", params={"skip": 1})).content
    assert [chunk for _, chunk in read_pack(rest)] == [b"bb"]
    none_yet = await alice.get(f"/v1/jobs/{job}/results")
    assert (none_yet.status_code, none_yet.json()["detail"]) == (404, f"{job} {YET}")
    kept = await send(alice, out=b"result")
    assert (await alice.put(f"/v1/jobs/{job}/results", json={"folder": kept})).status_code == 200
    assert (await alice.get(f"/v1/jobs/{job}/results")).json()["id"] == kept
    spec = (await alice.get(f"/v1/jobs/{job}/spec")).json()
    assert spec["sync"] == {"folder": folder, "fetch": ["out"]}
    assert (await alice.post("/v1/jobs", json=spec)).status_code == 202


async def test_a_job_without_results_says_the_one_reason(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    unasked = (await alice.post("/v1/jobs", json=JOB)).json()["id"]
    assert "was not asked to keep files." in (await alice.get(f"/v1/jobs/{unasked}/results")).json()["detail"]
    wanted = {**JOB, "sync": {"fetch": ["out"]}, "retries": {"max": 1}}
    job = (await alice.post("/v1/jobs", json=wanted)).json()["id"]
    ended = "was ended before it sent its files."
    for status, changes, words in (
        ("cancelled", "started_at = NULL", "has never started, so it has no files."),
        ("cancelled", "retried = 1", ended),
        ("cancelled", "retried = 0, preemptions = 1", ended),
        ("expired", "preemptions = 0, started_at = now()", ended),
        ("succeeded", "started_at = now()", "could not send its files, or they were removed after some days."),
    ):
        await execute(
            runtime,
            f"UPDATE reservations SET status = :status, finished_at = now(), {changes} WHERE id = :id",
            id=job, status=status,
        )  # fmt: skip
        assert (await alice.get(f"/v1/jobs/{job}/results")).json()["detail"].startswith(f"{job} {words}")


async def test_a_digest_alone_gives_nobody_the_content(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    folder = await send(alice, secret=b"the plan")
    for other in (bob, root):
        asked = (await other.put("/v1/uploads/folders", json=listed(secret=b"the plan"))).json()
        assert (asked["id"], asked["missing"]) == (None, [sha256(b"the plan").hexdigest()])
        refused = await other.post("/v1/jobs", json={**JOB, "sync": {"folder": folder}})
        assert (refused.status_code, "no_such_folder" in refused.text) == (422, True)
    job = await submitted(alice, folder=folder, fetch=["secret"])
    await alice.put(f"/v1/jobs/{job}/results", json={"folder": folder})
    for other in (bob, root):
        for path in ("files", "files/data", "results", "results/data"):
            answer = await other.get(f"/v1/jobs/{job}/{path}")
            never = await other.get(f"/v1/jobs/job-zzzzzzzz/{path}")
            assert answer.status_code == 404
            assert answer.json()["detail"].replace(job, "job-zzzzzzzz") == never.json()["detail"]
        mine = await send(other, x=b"x")
        assert (await other.put(f"/v1/jobs/{job}/results", json={"folder": mine})).status_code == 404


async def test_a_job_keeps_nothing_that_was_not_asked_for(alice: httpx.AsyncClient) -> None:
    """Its owner's files would be written over."""
    job = await submitted(alice, fetch=["out"])
    kept = await send(alice, out=b"result")
    assert (await alice.put(f"/v1/jobs/{job}/results", json={"folder": kept})).status_code == 200
    for hostile in ({"Makefile": b"all:"}, {"out/.git/hooks/pre-commit": b"#!/bin/sh"}):
        folder = await send(alice, **hostile)
        refused = await alice.put(f"/v1/jobs/{job}/results", json={"folder": folder})
        assert (refused.status_code, next(iter(hostile)) in refused.json()["detail"]) == (422, True), refused.text
    assert (await alice.get(f"/v1/jobs/{job}/results")).json()["id"] == kept


FILE = {"path": "a", "kind": "file", "size": 0}
HOSTILE: list[Any] = [
    [{**FILE, "path": "/etc/passwd"}],
    [{**FILE, "path": "../x"}],
    [{"path": "a", "kind": "link", "target": "../../x"}],
    [{"path": "a", "kind": "link", "target": "/etc"}],
    [{"path": "a", "kind": "device"}],
    [{"path": "a", "kind": "fifo", "mode": 0o4755}],
    [FILE, FILE],
    [FILE, {**FILE, "path": "A"}],
    [{"path": "a", "kind": "link", "target": "b"}, {**FILE, "path": "a/x"}],
    [{**FILE, "mode": 0o4755}],
    [{**FILE, "size": -1}],
    [{**FILE, "size": 1.5}],
    [{**FILE, "size": "0"}],
    [{**FILE, "size": 10**30}],
    [{**FILE, "size": 2**50, "chunks": []}],
    [{**FILE, "size": 1, "chunks": ["xyz"]}],
    [{**FILE, "size": 1, "chunks": ["A" * 64]}],
    [{**FILE, "size": 1, "chunks": "a"}],
    [{**FILE, "size": 1, "chunks": 3}],
    [{"path": ["a"], "kind": "file"}],
    [{"kind": "file"}],
    [{}],
    [{**FILE, "path": "a\u0000b"}],
    [{**FILE, "size": 4 * 2**20 * 1000, "chunks": ["0" * 64] * 1000}],  # few bytes of list, a disk full of file
]


@pytest.mark.parametrize("entries", HOSTILE)
async def test_a_hostile_list_is_refused(alice: httpx.AsyncClient, entries: list[Any], runtime: Runtime) -> None:
    refused = await alice.put("/v1/uploads/folders", json={"entries": entries})
    assert refused.status_code == 422, refused.text
    assert refused.json()["detail"]
    async with runtime.uow() as uow:
        assert (await sql(uow, "SELECT count(*) FROM sent_folders")).scalar_one() == 0


async def test_a_chunk_has_the_size_that_its_file_says(alice: httpx.AsyncClient) -> None:
    await send(alice, a=b"aaa")
    entry = {"path": "a", "kind": "file", "size": 2, "chunks": [sha256(b"aaa").hexdigest()]}
    refused = await alice.put("/v1/uploads/folders", json={"entries": [entry]})
    assert (refused.status_code, "other bytes than the size" in refused.text) == (422, True)


@pytest.mark.parametrize("body", [b"x", pack(b"a")[:-1], framed(sha256(b"b").digest(), b"a"), b"\xff" * 40])
async def test_what_are_no_chunks_is_refused(alice: httpx.AsyncClient, body: bytes, runtime: Runtime) -> None:
    refused = await alice.put("/v1/uploads", content=body, headers=BYTES)
    assert (refused.status_code, refused.json()["type"]) == (400, "urn:gpu-dev:problem:malformed_chunks")
    assert (await alice.put("/v1/uploads", content=pack(b"a"))).status_code == 415
    async with runtime.uow() as uow:
        assert (await sql(uow, "SELECT count(*) FROM sent_chunks")).scalar_one() == 0


@pytest.mark.parametrize(
    ("sync", "field"),
    [
        ({}, "sync"),
        ({"folder": "x"}, "sync.folder"),
        ({"folder": "A" * 64}, "sync.folder"),
        ({"fetch": ["/etc"]}, "sync.fetch"),
        ({"fetch": ["../x"]}, "sync.fetch"),
        ({"fetch": ["a", "a"]}, "sync.fetch"),
        ({"fetch": [str(number) for number in range(17)]}, "sync.fetch"),
        ({"fetch": ["a"], "more": 1}, "sync.more"),
        (3, "sync"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_by_name(alice: httpx.AsyncClient, sync: Any, field: str) -> None:
    refused = await alice.post("/v1/jobs", json={**JOB, "sync": sync})
    assert (refused.status_code, field in refused.text) == (422, True), refused.text
    assert (await alice.get("/v1/jobs")).json()["items"] == []


async def test_a_job_that_can_have_no_files_is_refused(alice: httpx.AsyncClient) -> None:
    for command in (["x"], []):
        workload = {"command": command, "working_dir": "/"}
        refused = await alice.post("/v1/jobs", json={**JOB, "workload": workload, "sync": {"fetch": ["a"]}})
        assert (refused.status_code, "works in their" in refused.json()["detail"]) == (422, True), refused.text


@pytest.fixture
async def bounded(runtime: Runtime, settings: ApiSettings) -> AsyncIterator[FastAPI]:
    small = SyncSettings(folder_bytes=1000, user_bytes=2000, all_bytes=3000)
    made = create_app(runtime, settings.model_copy(update={"sync": small, "cluster": ClusterKind.KUBERNETES}))
    async with made.router.lifespan_context(made):
        yield made


async def test_bounds_hold_also_for_many_at_once(bounded: FastAPI, calling: Calling, runtime: Runtime) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(bounded), base_url="http://api") as client:
        client.headers["Authorization"] = calling("alice").headers["Authorization"]
        large = [{"path": "a", "kind": "file", "size": 1001, "chunks": ["0" * 64]}]
        refused = await client.put("/v1/uploads/folders", json={"entries": large})
        assert (refused.status_code, "at most 1000" in refused.json()["detail"]) == (422, True)
        answers = await asyncio.gather(
            *(client.put("/v1/uploads", content=pack(bytes([n]) * 300), headers=BYTES) for n in range(12))
        )
        assert sorted(answer.status_code for answer in answers) == [200] * 6 + [422] * 6
        async with runtime.uow() as uow:
            stored = (await sql(uow, "SELECT sum(bytes) FROM sent_chunks")).scalar_one()
            counted = (await sql(uow, "SELECT sum(bytes) FROM sent_bytes")).scalar_one()
        assert stored == counted == 1800
        client.headers["Authorization"] = calling("bob").headers["Authorization"]
        answers = [await client.put("/v1/uploads", content=pack(bytes([n]) * 500), headers=BYTES) for n in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 422]
        assert "no room" in answers[2].json()["detail"]
        refused = await client.post("/v1/jobs", json={**JOB, "sync": {"fetch": ["a"]}})
        assert (refused.status_code, "GPU_DEV_JOB_SERVER" in refused.json()["detail"]) == (422, True)


async def test_two_clients_send_the_same_at_once(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    chunks = [bytes([number]) * 1000 for number in range(100)]
    bodies = [pack(*chunks), pack(*reversed(chunks)), pack(*chunks[50:], *chunks[:50])] * 3
    answers = await asyncio.gather(*(alice.put("/v1/uploads", content=body, headers=BYTES) for body in bodies))
    assert [answer.status_code for answer in answers] == [200] * 9
    assert sum(answer.json()["stored"] for answer in answers) == 100
    async with runtime.uow() as uow:
        assert (await sql(uow, "SELECT bytes FROM sent_bytes")).scalar_one() == 100_000


async def test_a_jobs_token_passes_the_files_of_its_job_alone(
    alice: httpx.AsyncClient, app: FastAPI, runtime: Runtime
) -> None:
    folder = await send(alice, a=b"aaa")
    job, plain = (
        await submitted(alice, folder=folder, fetch=["out"]),
        (await alice.post("/v1/jobs", json=JOB)).json()["id"],
    )
    async with runtime.uow() as uow:
        key = await job_token_key(uow, runtime.clock.now())
        await sql(uow, "UPDATE reservations SET status = 'starting', attempt = 1, reason_code = 'allocated'")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as inside:
        inside.headers["Authorization"] = f"Bearer {job_token(key, job, 1)}"
        assert (await inside.get(f"/v1/jobs/{job}/files")).status_code == 200
        assert (await inside.get(f"/v1/jobs/{job}/files/data")).status_code == 200
        kept = await send(inside, out=b"result")
        assert (await inside.put(f"/v1/jobs/{job}/results", json={"folder": kept})).status_code == 200
        for path in (f"/v1/jobs/{job}/results", f"/v1/jobs/{plain}/files", f"/v1/jobs/{job}", "/v1/jobs"):
            assert (await inside.get(path)).status_code == 403, path
        inside.headers["Authorization"] = f"Bearer {job_token(key, plain, 1)}"
        assert (await inside.put("/v1/uploads", content=pack(b"x"), headers=BYTES)).status_code == 403
        async with runtime.uow() as uow:
            await sql(uow, "UPDATE reservations SET attempt = 2")
        inside.headers["Authorization"] = f"Bearer {job_token(key, job, 1)}"
        assert (await inside.get(f"/v1/jobs/{job}/files")).status_code == 409
