"""Events and logs as they happen, over a real connection."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest

from reservation_core.domain.changes import CancelRequested, PodsFinished, PodsGone, PodsRunning
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import PodName, PodSpec, PodWorkload
from reservation_core.ports.wakeups import Channel
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.api_service.callers import People, submitted
from tests.integration.api_service.served import Served, serving
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
async def served(runtime: Runtime, settings: ApiSettings) -> AsyncIterator[Served]:
    async with serving(runtime, settings) as api:
        yield api


@pytest.fixture
async def remote(served: Served, people: People) -> AsyncIterator[httpx.AsyncClient]:
    """Alice over the network."""
    headers = {"Authorization": f"Bearer {people.secrets['alice']}"}
    async with httpx.AsyncClient(base_url=served.base_url, headers=headers, timeout=PATIENCE_S) as client:
        yield client


class Stream:
    """What has arrived of a stream so far."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.text = ""
        self.ended = False
        self.broken = False

    @property
    def events(self) -> list[dict[str, Any]]:
        found = []
        for block in self.text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "data" in fields:
                event = json.loads(fields["data"])
                assert (fields["id"], fields["event"]) == (str(event["id"]), event["kind"])
                found.append(event)
        return found

    async def read(self) -> None:
        try:
            async for part in self.response.aiter_text():
                self.text += part
        except httpx.RemoteProtocolError:
            self.broken = True
        self.ended = True


@asynccontextmanager
async def streaming(client: httpx.AsyncClient, path: str, **headers: str) -> AsyncIterator[Stream]:
    async with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        stream = Stream(response)
        reading = asyncio.create_task(stream.read())
        try:
            yield stream
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def happen(runtime: Runtime, job_id: str, *events: Any) -> None:
    """Bring a job further, as the processor would."""
    for event in events:
        async with runtime.uow() as uow:
            row = (await uow.reservations.lock([job_id]))[job_id]
            change = decide(row, event, runtime.clock.now())
            assert change is not None
            await uow.reservations.apply([change])
            uow.wake(Channel.EVENTS)


async def start(runtime: Runtime, job_id: str) -> None:
    """Allocate nothing, but say that it was: what the planner's statement does to the row."""
    async with runtime.uow() as uow:
        await sql(
            uow,
            "UPDATE reservations SET status = 'starting', attempt = 1, version = version + 1 WHERE id = :id",
            id=job_id,
        )
        uow.wake(Channel.EVENTS)


async def test_events_come_as_they_happen_and_resume(remote: httpx.AsyncClient, runtime: Runtime) -> None:
    job_id = (await submitted(remote))["id"]
    path = f"/v1/jobs/{job_id}/events"
    async with streaming(remote, path) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        await eventually(lambda: [event["kind"] for event in stream.events] == ["submitted"])
        assert not stream.ended
        await start(runtime, job_id)
        await happen(runtime, job_id, PodsRunning(runtime.clock.now()))
        await eventually(lambda: [event["kind"] for event in stream.events] == ["submitted", "started"])
        seen = stream.events[-1]["id"]
    await happen(runtime, job_id, PodsFinished(runtime.clock.now(), 0))
    async with streaming(remote, path, **{"Last-Event-ID": str(seen)}) as stream:
        await eventually(lambda: [event["kind"] for event in stream.events] == ["finished"])
        await happen(runtime, job_id, PodsGone())
        await eventually(lambda: stream.ended)
        assert not stream.broken
        assert [event["after"] for event in stream.events] == ["ending", "succeeded"]
        last = stream.events[-1]["id"]
    for after, kinds in ((seen, ["finished", "succeeded"]), (last, [])):
        async with streaming(remote, path, **{"Last-Event-ID": str(after)}) as stream:
            await eventually(lambda stream=stream: stream.ended)
            assert [event["kind"] for event in stream.events] == kinds
    assert (await remote.get(path, headers={"Last-Event-ID": "x"})).status_code == 400


async def test_without_wakeups_the_sweep_finds_events(remote: httpx.AsyncClient, runtime: Runtime) -> None:
    job_id = (await submitted(remote))["id"]
    async with streaming(remote, f"/v1/jobs/{job_id}/events") as stream:
        await eventually(lambda: stream.events)
        async with runtime.uow() as uow:  # as `happen`, but nobody is woken
            row = (await uow.reservations.lock([job_id]))[job_id]
            change = decide(row, CancelRequested("alice"), runtime.clock.now())
            assert change is not None
            await uow.reservations.apply([change])
        await eventually(lambda: stream.ended)
        assert stream.events[-1]["after"] == "cancelled"


async def test_nobody_has_more_streams_open_than_their_share(
    served: Served, remote: httpx.AsyncClient, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    for streams in (served.app.state.services.streams, served.app.state.services.page_streams):
        monkeypatch.setattr(streams, "_most", 2)
    job_id = (await submitted(remote))["id"]
    events, log = f"/v1/jobs/{job_id}/events", f"/v1/jobs/{job_id}/logs?follow=true"
    async with streaming(remote, events):
        async with streaming(remote, log):
            for path in (events, log):
                refused = await remote.get(path)
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
                assert refused.json()["type"] == "urn:gpu-dev:problem:too_many_streams"
                assert "Close pages, or end programs" in refused.json()["detail"]
            other = {"Authorization": f"Bearer {people.secrets['root']}"}
            async with streaming(remote, events, **other):
                pass
        # What has ended makes room.
        await eventually(lambda: _is_let_in(remote, events))
    # Pages have places of their own, and their scripts are told in words, too.
    await remote.post("/sign-in", data={"token": str(people.secrets["alice"])}, headers={"Accept": "text/html"})
    live = {"Accept": "text/event-stream"}
    async with streaming(remote, "/live?topics=now", **live), streaming(remote, f"/jobs/{job_id}/log", **live):
        for path in ("/live?topics=now", f"/jobs/{job_id}/log", f"/jobs/{job_id}/log.txt"):
            refused = await remote.get(path, headers=live)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
            assert "You have 2 streams open" in refused.json()["detail"]
        page = await remote.get(f"/jobs/{job_id}/log.txt", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["retry-after"]) == (429, "30")
        assert "You have 2 streams open" in page.text


async def _is_let_in(client: httpx.AsyncClient, path: str) -> bool:
    async with client.stream("GET", path) as response:
        return response.status_code == 200


async def test_streams_end_when_the_server_stops(served: Served, remote: httpx.AsyncClient) -> None:
    job_id = (await submitted(remote))["id"]
    async with (
        streaming(remote, f"/v1/jobs/{job_id}/events") as events,
        streaming(remote, f"/v1/jobs/{job_id}/logs?follow=true") as log,
    ):
        await eventually(lambda: events.events)
        served.stop.set()
        await eventually(lambda: events.ended and log.ended)
        # What was cut short must not look whole: a reader would take the log for complete.
        assert (events.broken, log.broken) == (True, True)
        await asyncio.wait_for(asyncio.shield(served.serving), PATIENCE_S)


async def test_a_stream_ends_with_its_token(
    remote: httpx.AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api_service.following.RECHECK_S", 0.05)
    job_id = (await submitted(remote))["id"]
    made = (await remote.post("/v1/tokens", json={})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with streaming(remote, f"/v1/jobs/{job_id}/events", **headers) as stream:
        await eventually(lambda: stream.events)
        assert (await remote.delete(f"/v1/tokens/{made['id']}")).status_code == 200
        await eventually(lambda: stream.ended)


async def test_a_stream_ends_with_its_share(
    remote: httpx.AsyncClient, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api_service.following.RECHECK_S", 0.05)
    job_id = (await submitted(remote))["id"]
    share = f"/v1/jobs/{job_id}/shares/bob"
    assert (await remote.put(share)).status_code == 200
    headers = {"Authorization": f"Bearer {people.secrets['bob']}"}
    async with (
        streaming(remote, f"/v1/jobs/{job_id}/events") as own,
        streaming(remote, f"/v1/jobs/{job_id}/events", **headers) as events,
        streaming(remote, f"/v1/jobs/{job_id}/logs?follow=true", **headers) as log,
    ):
        await eventually(lambda: events.events)
        assert (await remote.delete(share)).status_code == 200
        await eventually(lambda: events.ended and log.ended)
        assert not own.ended


async def test_a_reader_that_leaves_takes_its_stream_along(served: Served, remote: httpx.AsyncClient) -> None:
    job_id = (await submitted(remote))["id"]
    async with (
        httpx.AsyncClient(base_url=served.base_url, headers=remote.headers, timeout=PATIENCE_S) as other,
        streaming(other, f"/v1/jobs/{job_id}/logs?follow=true"),
    ):
        await eventually(_pumps)
    await eventually(lambda: not _pumps())


def _pumps() -> list[object]:
    """The tasks that feed open streams."""
    return [task for task in asyncio.all_tasks() if "LiveStream._pump" in repr(task.get_coro())]


async def _run_pod(runtime: Runtime, job_id: str, rank: int, script: str) -> None:
    await runtime.cluster.create_pod(
        PodSpec(
            name=PodName(job_id, 1, rank),
            user="alice",
            node=(await runtime.cluster.list_nodes())[0].name,
            gpu_indices=(rank,),
            gpu_uuids=(None,),
            workload=PodWorkload(command=("/bin/sh", "-c", script)),
            env=(("PATH", "/usr/bin:/bin"),),
            deadline=runtime.clock.now() + timedelta(minutes=5),
            grace=timedelta(seconds=1),
        )
    )


async def test_a_log_is_followed_from_the_line_to_the_end(
    remote: httpx.AsyncClient, runtime: Runtime, tmp_path: Any
) -> None:
    job_id = (await submitted(remote))["id"]
    path = f"/v1/jobs/{job_id}/logs"
    assert (await remote.get(path)).text == ""
    go = tmp_path / "go"
    async with streaming(remote, f"{path}?follow=true") as log:
        await start(runtime, job_id)
        await _run_pod(runtime, job_id, 0, f"echo one; while [ ! -e {go} ]; do sleep 0.05; done; echo two")
        await happen(runtime, job_id, PodsRunning(runtime.clock.now()))
        await eventually(lambda: log.text == "one\n")
        assert (await remote.get(path)).text == "one\n"
        go.touch()
        await eventually(lambda: log.text == "one\ntwo\n")
        await happen(runtime, job_id, PodsFinished(runtime.clock.now(), 0))
        assert not log.ended
        await happen(runtime, job_id, PodsGone())
        await eventually(lambda: log.ended)
        assert log.text == "one\ntwo\n"
    assert (await remote.get(path)).text == "one\ntwo\n"
    assert (await remote.get(f"{path}?follow=true")).text == "one\ntwo\n"


async def test_a_gangs_lines_carry_their_rank(remote: httpx.AsyncClient, runtime: Runtime) -> None:
    job_id = (await submitted(remote, nodes=2))["id"]
    await start(runtime, job_id)
    await _run_pod(runtime, job_id, 0, "echo a; echo b")
    await _run_pod(runtime, job_id, 1, "echo c; printf d")
    await happen(runtime, job_id, PodsRunning(runtime.clock.now()))
    async with streaming(remote, f"/v1/jobs/{job_id}/logs?follow=true") as log:
        await eventually(lambda: len(log.text.splitlines()) == 4)
        await happen(runtime, job_id, PodsFinished(runtime.clock.now(), 0), PodsGone())
        await eventually(lambda: log.ended)
    lines = log.text.splitlines()
    assert [line for line in lines if line.startswith("[0]")] == ["[0] a", "[0] b"]
    assert [line for line in lines if line.startswith("[1]")] == ["[1] c", "[1] d"]


async def test_a_job_cancelled_in_the_line_has_an_empty_log_that_ends(remote: httpx.AsyncClient) -> None:
    job_id = (await submitted(remote))["id"]
    async with streaming(remote, f"/v1/jobs/{job_id}/logs?follow=true") as log:
        await remote.post(f"/v1/jobs/{job_id}/cancel")
        await eventually(lambda: log.ended)
        assert log.text == ""
