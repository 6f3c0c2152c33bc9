"""What no honest client sends: always a 4xx problem that says what is wrong, never what was sent, nothing stored."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from reservation_core.ports.jobs.reservations import JobFilter
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import asked
from tests.integration.api_service.callers import JOB, submitted

JSON = {"Content-Type": "application/json"}
SECRET = "hunter2-do-not-echo"


def job(**fields: Any) -> bytes:
    return json.dumps({**JOB, **fields}).encode()


def workload(**fields: Any) -> bytes:
    return job(workload={"command": ["true"], **fields})


BODIES: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 400),
    "not JSON": (b"gpus=1", 400),
    "cut off": (job()[:-1], 400),
    "two documents": (job() + job(), 400),
    "bad UTF-8": (b'{"gpus": 1, "name": "\xff\xfe"}', 400),
    "UTF-16": (job().decode().encode("utf-16"), 400),
    "byte order mark": (b"\xef\xbb\xbf" + job(), 400),
    "NaN": (b'{"gpus": NaN, "duration": 60, "workload": {}}', 400),
    "Infinity": (b'{"gpus": 1, "duration": Infinity, "workload": {}}', 400),
    "1e999": (b'{"gpus": 1, "duration": 1e999, "workload": {}}', 422),
    "a number of 10,000 digits": (b'{"gpus": ' + b"1" * 10_000 + b', "duration": 60, "workload": {}}', 400),
    "a name twice": (b'{"gpus": 1, "gpus": 2, "duration": 60, "workload": {}}', 400),
    "a name twice, deeper": (b'{"gpus": 1, "duration": 60, "workload": {"env": {"A": "1", "A": "2"}}}', 400),
    "nested lists": (b"[" * 30_000 + b"]" * 30_000, 400),
    "nested objects": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 400),
    "a list": (b"[1, 2]", 422),
    "null": (b"null", 422),
    "a string": (b'"job"', 422),
    "1 MB": (b'{"name": "' + b"x" * 2**20 + b'"}', 413),
    "missing fields": (b"{}", 422),
    "an unknown field": (job(hostPath="/etc"), 422),
    "an unknown field in the workload": (workload(privileged=True), 422),
    "status": (job(status="running"), 422),
    "another user": (job(user="root"), 422),
    "gpus 0": (job(gpus=0), 422),
    "gpus negative": (job(gpus=-1), 422),
    "gpus 10**9": (job(gpus=10**9), 422),
    "gpus 10**100": (job(gpus=10**100), 422),
    "gpus as text": (job(gpus="1"), 422),
    "gpus a float": (job(gpus=1.0), 422),
    "gpus true": (job(gpus=True), 422),
    "gpus a list": (job(gpus=[1]), 422),
    "nodes 0": (job(nodes=0), 422),
    "nodes 10**9": (job(nodes=10**9), 422),
    "duration negative": (job(duration=-5), 422),
    "duration negative ISO": (job(duration="-PT1H"), 422),
    "duration 0": (job(duration=0), 422),
    "duration true": (job(duration=True), 422),
    "duration half a second": (job(duration=0.5), 422),
    "duration 1,000 years": (job(duration="P365000D"), 422),
    "duration overflows": (job(duration="P" + "9" * 200 + "D"), 422),
    "duration above the limit": (job(duration="P60D"), 422),
    "duration by a clock": (job(duration="01:00:00"), 422),
    "priority 101": (job(priority=101), 422),
    "NUL in the name": (job(name="a\x00b"), 422),
    "NUL in a command": (workload(command=["a\x00"]), 422),
    "NUL in env": (workload(env={"A": "a\x00"}), 422),
    "NUL in an env name": (workload(env={"A\x00": "a"}), 422),
    "lone surrogate in the name": (b'{"name": "\\ud800", "gpus": 1, "duration": 60, "workload": {}}', 400),
    "lone surrogate as a field": (b'{"\\udfff": 1, "gpus": 1, "duration": 60, "workload": {}}', 400),
    "lone surrogate in env": (b'{"gpus": 1, "duration": 60, "workload": {"env": {"A": "\\ud800"}}}', 400),
    "10,000-character name": (job(name="n" * 10_000), 422),
    "empty name": (job(name=""), 422),
    "gpu_type injected": (job(gpu_type="h100'; DROP TABLE users; --"), 422),
    "gpu_type upper case": (job(gpu_type="H100"), 422),
    "gpu_type with a line end": (job(gpu_type="h100\n"), 422),
    "CUDA_VISIBLE_DEVICES": (workload(env={"CUDA_VISIBLE_DEVICES": SECRET}), 422),
    "NVIDIA_VISIBLE_DEVICES": (workload(env={"NVIDIA_VISIBLE_DEVICES": SECRET}), 422),
    "GPU_DEV_JOB_ID": (workload(env={"GPU_DEV_JOB_ID": SECRET}), 422),
    "env name with =": (workload(env={"A=B": SECRET}), 422),
    "env not text": (workload(env={"A": 1}), 422),
    "relative working_dir": (workload(working_dir="etc"), 422),
    "command of nothing": (workload(command=[""]), 422),
    "command as text": (workload(command="rm -rf /"), 422),
    "300 words": (workload(command=["x"] * 300), 422),
    "image with spaces": (workload(image="a b"), 422),
    "a booking of nobody's": (job(booking_id="bkg-00000000"), 422),
    "a broken secret": (workload(env={"TOKEN": [SECRET]}), 422),
}


async def _stored(runtime: Runtime) -> int:
    async with runtime.uow() as uow:
        views = await uow.reservations.views(JobFilter(None), limit=10, before_seq=None)
        depth = sum(metric.depth for metric in await uow.queue.metrics())
    return len(views) + depth


async def test_hostile_bodies_store_nothing(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    for name, (body, status) in BODIES.items():
        response = await alice.post("/v1/jobs", content=body, headers=JSON)
        assert response.status_code == status, (name, response.text)
        assert response.headers["content-type"] == "application/problem+json", name
        problem = response.json()
        assert problem["status"] == status
        assert problem["detail"], name
        assert SECRET not in response.text, name
        assert len(response.content) < 20_000, name
    assert await _stored(runtime) == 0


HEADERS: list[tuple[dict[str, str], int]] = [
    ({}, 415),
    ({"Content-Type": "text/plain"}, 415),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
    ({"Content-Type": "application/json", "Idempotency-Key": ""}, 400),
    ({"Content-Type": "application/json", "Idempotency-Key": "k" * 256}, 400),
    ({"Content-Type": "application/json", "Idempotency-Key": "a\tb"}, 400),
    ({"Content-Type": "application/json; charset=utf-8"}, 202),
    ({"Content-Type": "application/json", "Idempotency-Key": "k" * 255}, 202),
]


async def test_headers(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    for headers, status in HEADERS:
        before = await _stored(runtime)
        response = await alice.post("/v1/jobs", content=job(), headers=headers)
        assert response.status_code == status, (headers, response.text)
        assert (await _stored(runtime) > before) == (status == 202), headers


async def test_a_body_without_a_length_is_bounded_while_it_arrives(alice: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'{"name": "'
        while sent < 2**30:
            sent += 2**14
            yield b"x" * 2**14

    response = await alice.post("/v1/jobs", content=endless(), headers=JSON)
    assert response.status_code == 413
    assert sent <= 2**18


async def test_every_broken_field_is_named_at_once(alice: httpx.AsyncClient) -> None:
    response = await alice.post(
        "/v1/jobs", json={"gpus": -1, "duration": -1, "workload": {"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "colour": 1}
    )
    rules = response.json()["broken_rules"]
    assert {rule["detail"].split(":")[0] for rule in rules} == {"gpus", "duration", "workload.env", "colour"}
    assert all(rule["code"] for rule in rules)


ADDRESSES = [
    ("/v1/jobs/x", 404),
    ("/v1/jobs/job-ABC", 404),
    ("/v1/jobs/job-" + "a" * 5000, 404),
    ("/v1/jobs/job-%00", 404),
    ("/v1/jobs/job-a%0a", 404),
    ("/v1/jobs/..%2f..%2fetc", 404),
    ("/v1/jobs?limit=0", 422),
    ("/v1/jobs?limit=501", 422),
    ("/v1/jobs?limit=1e3", 422),
    ("/v1/jobs?limit=" + "9" * 400, 422),
    ("/v1/jobs?status=sleeping", 422),
    ("/v1/jobs?user=%00", 422),
    ("/v1/jobs?user=alice%00", 422),
    ("/v1/jobs?colour=red", 422),
    ("/v1/jobs?cursor=%00", 400),
    ("/v1/jobs?cursor=" + "A" * 513, 422),
    ("/v1/users/%00", 404),
    ("/v1/tokens?user=two%20words", 422),
    ("/v1/jobs/nosuch/elements", 404),
    ("/v1/jobs/nosuch/logs?follow=perhaps", 404),
    ("/v1/bookings/nosuch", 404),
    ("/v1/disks/No%20Such", 404),
    ("/v1/nodes/no%20such/metrics", 404),
    ("/v1/policy/nosuch", 422),
    ("/v1/nothing", 404),
    ("/nothing", 404),
    ("/v1/jobs/", 404),
]


async def test_hostile_addresses(alice: httpx.AsyncClient) -> None:
    for path, status in ADDRESSES:
        response = await alice.get(path)
        assert response.status_code == status, (path, response.text)
        assert response.headers["content-type"] == "application/problem+json", path


async def test_the_allow_header_names_every_method_of_an_address(alice: httpx.AsyncClient) -> None:
    response = await alice.put("/v1/jobs", json={})
    assert response.status_code == 405
    assert response.json()["detail"] == "This address takes GET, POST, not PUT. Look at /docs for all calls."
    assert response.headers["allow"] == "GET, POST"
    assert response.json()["type"] == "urn:gpu-dev:problem:method_not_allowed"
    page = await alice.delete("/now")
    assert (page.status_code, page.headers["allow"]) == (405, "GET, HEAD")
    assert page.json()["detail"] == "This address takes GET, HEAD, not DELETE."


CONTROL = "\x1b\x07\r\n\t\x7f\x9b\u202e\u2066\u2028"
"""Some of what steers a terminal or turns the order of what is read."""


async def test_other_bodies_are_as_strict(alice: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    made = await submitted(alice)
    for client, path, body in (
        (alice, f"/v1/jobs/{made['id']}/extend", {"by": -60}),
        (alice, f"/v1/jobs/{made['id']}/extend", {"by": 60, "to": 1}),
        (alice, "/v1/tokens", {"expires_in": "P91D"}),
        (alice, "/v1/tokens", {"name": "a\x00"}),
        *((alice, "/v1/tokens", {"name": f"a{c}b"}) for c in CONTROL),
        *((alice, "/v1/jobs", {**JOB, "name": f"a{c}b"}) for c in CONTROL),
        *((alice, "/v1/bookings", asked() | {"title": f"a{c}b"}) for c in CONTROL),
        *(
            (root, path, {"name": f"a{c}{end}"})
            for path in ("/v1/users", "/v1/projects")
            for c in CONTROL
            for end in ("b", "")
        ),
        *((root, "/v1/nodes/n/fence", {"reason": f"a{c}b"}) for c in CONTROL if c not in "\n\t"),
        (root, "/v1/users", {"name": "Alice Liddell"}),
        (root, "/v1/users", {"name": "x" * 255}),
        (root, "/v1/users", {"name": "carol", "role": "owner"}),
        (root, "/v1/dead-letters/gpu_jobs/redrive", {"ids": ["1"]}),
        (root, "/v1/dead-letters/gpu_jobs/redrive", {"ids": [2**64]}),
        (root, "/v1/dead-letters/users/redrive", {}),
    ):
        response = await client.post(path, json=body)
        assert response.status_code == 422, (path, body, response.text)
    for name in ("me", "alice"):
        assert (await root.post("/v1/users", json={"name": name})).status_code == 409


async def test_what_nobody_foresaw_says_nothing_of_the_inside(
    alice: httpx.AsyncClient, app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode() -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(type(app.state.services.runtime.clock), "now", lambda _self: explode())
    response = await alice.get("/v1/jobs")
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert SECRET not in response.text
    assert "Traceback" not in response.text
    assert response.json()["instance"].endswith(response.headers["x-request-id"])
