"""Health, readiness and metrics, also while the database is away."""

import asyncio
from datetime import timedelta
from importlib.metadata import version

import httpx
import pytest
from fastapi import FastAPI

from api_service.metrics.metrics import ApiMetrics
from reservation_core.domain.changes import PodsFinished, PodsGone, PodsRunning
from reservation_core.ports.jobs.unknown_pods import UnknownPod
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.http.serving import ListenError, open_socket
from reservation_core.runtime.reading.reading import PrimaryReads
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import execute
from tests.integration.api_service.callers import JOB, submitted
from tests.integration.api_service.jobs.test_streams import happen, start


class _Away:
    """A database that can't be reached."""

    def __call__(self, *, one_statement: bool = False) -> "_Away":
        return self

    async def __aenter__(self) -> None:
        raise DatabaseUnavailableError("away")

    async def __aexit__(self, *_: object) -> None:
        return None


async def test_ready_means_that_the_database_answers(
    calling: object, app: FastAPI, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as nobody:
        assert (await nobody.get("/readyz")).status_code == 200
        assert (await alice.get("/v1/jobs")).status_code == 200
        runtime = app.state.services.runtime
        monkeypatch.setattr(type(runtime), "uow", property(lambda _self: _Away()))
        unready = await nobody.get("/readyz")
        assert (unready.status_code, unready.headers["retry-after"]) == (503, "1")
        assert unready.headers["content-type"] == "application/problem+json"
        assert (await nobody.get("/healthz")).status_code == 200
        # Alice's token is remembered, so her call gets as far as the database.
        refused = await alice.get("/v1/tokens")
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:gpu-dev:problem:database_unavailable")
        lost = await alice.post("/v1/jobs", json=JOB)
        assert lost.status_code == 503


async def test_a_stopping_server_is_not_ready(app: FastAPI, alice: httpx.AsyncClient) -> None:
    app.state.services.wakeups.stop()
    assert (await alice.get("/readyz")).json()["type"] == "urn:gpu-dev:problem:stopping"


async def test_what_was_handed_in_is_written_before_the_end(app: FastAPI, alice: httpx.AsyncClient) -> None:
    services = app.state.services
    posts = [asyncio.create_task(alice.post("/v1/jobs", json=JOB)) for _ in range(20)]
    while not services.submissions._waiting:
        await asyncio.sleep(0)
    services.submissions.close()
    answers = await asyncio.gather(*posts)
    taken = [answer.json()["id"] for answer in answers if answer.status_code == 202]
    assert taken
    assert {answer.status_code for answer in answers} <= {202, 503}
    listed = {job["id"] for job in (await alice.get("/v1/jobs?limit=500")).json()["items"]}
    assert listed == set(taken)


async def test_metrics_count_jobs_as_they_end(runtime: Runtime, alice: httpx.AsyncClient, app: FastAPI) -> None:
    metrics = ApiMetrics(PrimaryReads(runtime.uow), runtime.clock, settled=timedelta(0))
    before = (await metrics.text()).decode()
    assert "gpu_dev_job_wait_seconds_count 0.0" in before
    done = (await submitted(alice))["id"]
    await start(runtime, done)
    await happen(runtime, done, PodsRunning(runtime.clock.now()), PodsFinished(runtime.clock.now(), 0), PodsGone())
    waiting = await submitted(alice)
    await alice.post(f"/v1/jobs/{(await submitted(alice))['id']}/cancel")
    metrics._fresh_until = 0
    text = (await metrics.text()).decode()
    assert waiting["id"] not in text
    for line in (
        'gpu_dev_jobs{status="queued"} 1.0',
        'gpu_dev_jobs{status="running"} 0.0',
        'gpu_dev_jobs_ended_total{status="succeeded"} 1.0',
        'gpu_dev_jobs_ended_total{status="cancelled"} 1.0',
        "gpu_dev_job_wait_seconds_count 1.0",
        "gpu_dev_job_run_seconds_count 1.0",
        'gpu_dev_queue_depth{queue="gpu_jobs_dlq"} 0.0',
        "gpu_dev_unknown_pods 0.0",
        "gpu_dev_database_up 1.0",
    ):
        assert line in text, line
    metrics._fresh_until = 0
    assert 'gpu_dev_jobs_ended_total{status="succeeded"} 1.0' in (await metrics.text()).decode()
    served = (await alice.get("/metrics")).text
    assert 'gpu_dev_http_requests_total{method="POST",route="/v1/jobs",status="202"} 3.0' in served


async def test_metrics_count_how_right_predicted_starts_were(runtime: Runtime, alice: httpx.AsyncClient) -> None:
    metrics = ApiMetrics(PrimaryReads(runtime.uow), runtime.clock, settled=timedelta(0))
    line = 'gpu_dev_start_predictions_total{{quantile="{}",right="{}"}} {}'
    before = (await metrics.text()).decode()
    assert all(line.format(quantile, right, 0.0) in before for quantile in ("p50", "p90") for right in ("yes", "no"))
    predicted, at_once = [(await submitted(alice))["id"] for _ in range(2)]
    await execute(
        runtime,
        "INSERT INTO start_promises (reservation_id, promised_start_at, made_at, first_p50, first_p90) "
        "VALUES (:id, now() + interval '2 hours', now(), now() - interval '1 hour', now() + interval '1 hour')",
        id=predicted,
    )
    allocated = "INSERT INTO events (reservation_id, at, actor, kind) VALUES (:id, now(), 'planner', 'allocated')"
    for job_id in (predicted, at_once):
        await execute(runtime, allocated, id=job_id)
    for _ in range(2):
        metrics._fresh_until = 0
        text = (await metrics.text()).decode()
        for quantile, yes, no in (("p50", 0.0, 1.0), ("p90", 1.0, 0.0)):
            assert line.format(quantile, "yes", yes) in text
            assert line.format(quantile, "no", no) in text


async def test_metrics_count_pods_that_nobody_knows(runtime: Runtime) -> None:
    async with runtime.uow() as uow:
        for name in ("job-x-1-0", "job-x-1-1"):
            unknown = UnknownPod(name, "job-x", None, None, "Who knows.", runtime.clock.now())
            await uow.unknown_pods.report([unknown])
    assert "gpu_dev_unknown_pods 2.0" in (await ApiMetrics(PrimaryReads(runtime.uow), runtime.clock).text()).decode()


async def test_metrics_without_a_database(runtime: Runtime) -> None:
    metrics = ApiMetrics(PrimaryReads(_Away()), runtime.clock)  # type: ignore[arg-type]
    assert "gpu_dev_database_up 0.0" in (await metrics.text()).decode()


def test_addresses_that_cant_be_listened_on_are_refused_with_the_remedy() -> None:
    with open_socket("127.0.0.1:0") as taken:
        taken.listen()
        for listen in (
            "8080",
            "127.0.0.1:x",
            ":80",
            "127.0.0.1:70000",
            f"127.0.0.1:{taken.getsockname()[1]}",
        ):
            with pytest.raises(ListenError, match="GPU_DEV_LISTEN"):
                open_socket(listen)


async def test_what_fails_in_the_background_is_named_and_the_api_stays_ready(
    app: FastAPI, alice: httpx.AsyncClient
) -> None:
    app.state.services.runtime.loops["something"].failed(DatabaseUnavailableError("away"))
    ready = await alice.get("/readyz")
    assert (ready.status_code, ready.text.splitlines()[0]) == (200, "ready")
    assert "something: failing since" in ready.text
    assert 'gpu_dev_loop_failures_total{loop="something"} 1.0' in (await alice.get("/metrics")).text


async def test_the_version_is_said_to_who_is_signed_in(app: FastAPI, alice: httpx.AsyncClient) -> None:
    for path in ("/v1/jobs", "/v1/jobs/job-nowhere0"):
        assert (await alice.get(path)).headers["gpu-dev-version"] == version("gpu-dev-server")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as nobody:
        for path in ("/v1/jobs", "/healthz"):
            assert "gpu-dev-version" not in (await nobody.get(path)).headers
