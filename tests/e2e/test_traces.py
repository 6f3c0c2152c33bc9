"""Jobs leave traces at a collector: one for each, from the request until it runs, over API and processor."""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.e2e.systems.system_process import SystemProcess, ended
from tests.network.receivers import Receiver, receiving
from tests.waiting import eventually, eventually_sync

NAMES = ["submit job", "wait for GPUs", "create pods", "start pods"]


@pytest.fixture
def traced(database_url: str, tmp_path: Path) -> Iterator[Callable[[str], SystemProcess]]:
    """Makes a system that sends its traces to an address, not started yet."""
    systems: list[SystemProcess] = []

    def make(url: str) -> SystemProcess:
        settings = {"GPU_DEV_DATABASE_URL": database_url, "GPU_DEV_TRACES_URL": url}
        systems.append(SystemProcess(tmp_path / "home", forked=True, **settings))
        return systems[-1]

    yield make
    for system in systems:
        system.clear()


def all_spans_of(receiver: Receiver, trace_id: str) -> list[Any]:
    """The spans of a trace, as a collector reads them from what came."""
    found: list[Any] = []
    for got in receiver.got:
        assert got.path == "/v1/traces"
        assert got.headers["content-type"] == "application/x-protobuf"
        body = gzip.decompress(got.body) if got.headers.get("content-encoding") == "gzip" else got.body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                found += [span for span in scope.spans if span.trace_id.hex() == trace_id]
    return found


def spans_of(receiver: Receiver, trace_id: str) -> dict[str, Any]:
    """The spans of a trace with one attempt by their names."""
    found = all_spans_of(receiver, trace_id)
    assert len({span.name for span in found}) == len(found)
    return {span.name: span for span in found}


def attributes(span: Any) -> dict[str, str | int]:
    """What a span says about itself."""
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in span.attributes}


def play(system: SystemProcess) -> list[dict[str, Any]]:
    """Two jobs run, one of them on two nodes' worth of pods made one by one."""
    with system.start() as http:
        jobs = [system.submit(http, 1, "true"), system.submit(http, 2, "sleep", "300")]
        assert ended(http, jobs[0])["status"] == "succeeded"
        eventually_sync(lambda: http.get(f"/v1/jobs/{jobs[1]}").json()["status"] == "running")
        shown: list[dict[str, Any]] = [http.get(f"/v1/jobs/{job}").json() for job in jobs]
        http.post(f"/v1/jobs/{jobs[1]}/cancel")
    return shown


async def test_a_job_leaves_one_trace_from_its_request_to_its_first_run(
    traced: Callable[[str], SystemProcess],
) -> None:
    async with receiving() as receiver:
        system = traced(receiver.url("/v1/traces"))
        jobs = await asyncio.to_thread(play, system)
        ids = [job["trace_id"] for job in jobs]
        assert len({*ids}) == 2
        await eventually(lambda: all(len(spans_of(receiver, trace_id)) == len(NAMES) for trace_id in ids))
        for job in jobs:
            spans = spans_of(receiver, job["trace_id"])
            assert {*spans} == {*NAMES}
            root = spans["submit job"]
            assert not root.parent_span_id
            assert [spans[name].parent_span_id for name in NAMES[1:]] == [root.span_id] * 3
            assert {attributes(span)["gpu_dev.job"] for span in spans.values()} == {job["id"]}
            assert attributes(root)["gpu_dev.gpus"] == job["gpus"]
            assert root.start_time_unix_nano == spans["wait for GPUs"].start_time_unix_nano
            assert spans["wait for GPUs"].end_time_unix_nano == spans["start pods"].start_time_unix_nano
            assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans.values())
    lines = [json.loads(line) for line in system.log.splitlines() if line.startswith("{")]
    named = {line.get("trace_id") for line in lines}
    assert {*ids} <= named
    # A line of each span leads from a job to its trace; two loops write them, in the order in which they come to it.
    told = [line["span"] for line in lines if line.get("trace_id") == ids[0] and line["job"] == jobs[0]["id"]]
    assert sorted(told) == sorted(NAMES)


def test_a_collector_that_is_away_delays_no_job(traced: Callable[[str], SystemProcess]) -> None:
    system = traced("http://127.0.0.1:9/v1/traces")
    with system.start() as http:
        assert ended(http, system.submit(http, 1, "true"))["status"] == "succeeded"


def play_twice(system: SystemProcess) -> dict[str, Any]:
    """A job fails, waits until another one has ended, and fails again."""
    with system.start() as http:
        body = {"gpus": 4, "duration": 300, "workload": {"command": ["false"]}, "retries": {"max": 1, "on": ["failed"]}}
        job: str = http.post("/v1/jobs", json=body).raise_for_status().json()["id"]
        system.jobs.append(job)
        assert ended(http, job)["status"] == "failed"
        shown: dict[str, Any] = http.get(f"/v1/jobs/{job}").json()
    return shown


async def test_each_attempt_of_a_job_has_its_wait_in_the_trace(traced: Callable[[str], SystemProcess]) -> None:
    async with receiving() as receiver:
        system = traced(receiver.url("/v1/traces"))
        job = await asyncio.to_thread(play_twice, system)
        expected = [("submit job", None), *((name, attempt) for attempt in (1, 2) for name in NAMES[1:])]
        await eventually(lambda: len(all_spans_of(receiver, job["trace_id"])) == len(expected))
        found = all_spans_of(receiver, job["trace_id"])
    spans = {(span.name, attributes(span).get("gpu_dev.attempt")): span for span in found}
    assert {*spans} == {*expected}
    waits = [spans["wait for GPUs", attempt] for attempt in (1, 2)]
    # It waits again from the moment on at which its GPUs were free.
    assert waits[0].end_time_unix_nano < waits[1].start_time_unix_nano <= waits[1].end_time_unix_nano
    assert spans["start pods", 1].end_time_unix_nano <= waits[1].start_time_unix_nano
    assert [span.parent_span_id for span in waits] == [spans["submit job", None].span_id] * 2


def play_cancelled(system: SystemProcess) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job is cancelled that got no GPUs, and one that got GPUs and no pods."""
    with system.start() as http:
        holder = system.submit(http, 4, "sleep", "300")
        eventually_sync(lambda: http.get(f"/v1/jobs/{holder}").json()["status"] == "running")
        waiting = system.submit(http, 4, "true")
        http.post(f"/v1/jobs/{waiting}/cancel").raise_for_status()
        shown: dict[str, Any] = http.get(f"/v1/jobs/{waiting}").json()
        http.post(f"/v1/jobs/{holder}/cancel").raise_for_status()
        ended(http, holder)
        return shown, cancel_without_folder(system, http)


async def test_a_wait_that_led_to_no_pods_is_in_the_trace(traced: Callable[[str], SystemProcess]) -> None:
    async with receiving() as receiver:
        jobs = await asyncio.to_thread(play_cancelled, traced(receiver.url("/v1/traces")))
        await eventually(lambda: all(len(spans_of(receiver, job["trace_id"])) == 2 for job in jobs))
        for job, gpus in zip(jobs, (None, 1), strict=True):
            spans = spans_of(receiver, job["trace_id"])
            assert {*spans} == {*NAMES[:2]}
            wait = spans["wait for GPUs"]
            assert wait.start_time_unix_nano == spans["submit job"].start_time_unix_nano <= wait.end_time_unix_nano
            assert attributes(wait).get("gpu_dev.gpus") == gpus
            assert wait.status.message == ("The job was cancelled." if gpus is None else "")


def play_without_folder(system: SystemProcess) -> dict[str, Any]:
    """A job is asked for whose disk has no folder, and is then cancelled."""
    with system.start() as http:
        return cancel_without_folder(system, http)


def cancel_without_folder(system: SystemProcess, http: httpx.Client) -> dict[str, Any]:
    """Cancel a job that has its GPUs, but no pods for want of its disk's folder."""
    http.post("/v1/disks", json={"name": "data", "size": "1Mi"}).raise_for_status()
    eventually_sync(lambda: http.get("/v1/disks/data").json()["state"] == "ready")
    [folder] = (system.home / "disks").iterdir()
    folder.rmdir()
    body = {"gpus": 1, "duration": 300, "workload": {"command": ["true"]}, "disks": [{"name": "data"}]}
    job: str = http.post("/v1/jobs", json=body).raise_for_status().json()["id"]
    eventually_sync(lambda: "a message is not due yet" in system.log)
    http.post(f"/v1/jobs/{job}/cancel").raise_for_status()
    return ended(http, job)


def test_log_lines_that_name_a_job_name_its_trace(traced: Callable[[str], SystemProcess]) -> None:
    system = traced("http://127.0.0.1:9/v1/traces")
    job = play_without_folder(system)
    lines = [json.loads(line) for line in system.log.splitlines() if line.startswith("{")]
    about = [line for line in lines if line.get("job") == job["id"]]
    assert {"traced", "a message is not due yet"} <= {line["event"] for line in about}
    assert {line.get("trace_id") for line in about} == {job["trace_id"]}
