"""Logs whose pods are gone, on a cluster that forgets them: their kept ends stand in, and nothing comes twice."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import httpx
import pytest

from api_service import job_log
from api_service.app import create_app
from api_service.job_log import follow_log, read_log
from api_service.services import Services
from reservation_core.domain.model import PodName, PodPhase, Reservation
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.jobs.pod_logs import KeptLog
from reservation_core.ports.wakeups import Channel
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.clusters.scripted_cluster import ScriptedCluster
from tests.database.sql import sql
from tests.integration.api_service.callers import People, submitted


@dataclass
class Forgetful:
    """An API over a cluster that forgets a pod's log with the pod."""

    runtime: Runtime
    cluster: ScriptedCluster
    services: Services
    alice: httpx.AsyncClient
    bob: httpx.AsyncClient

    async def job(self, status: str, attempt: int = 1) -> str:
        """A job that is said to be that far."""
        job_id = str((await submitted(self.alice))["id"])
        await self.said(job_id, status, attempt)
        return job_id

    async def said(self, job_id: str, status: str, attempt: int = 1) -> None:
        """Say that a job is that far, as only its row is looked at here."""
        async with self.runtime.uow() as uow:
            await sql(
                uow,
                "UPDATE reservations SET status = :status, attempt = :attempt, version = version + 1,"
                " started_at = created_at, ends_at = created_at,"
                " finished_at = CASE WHEN :status IN ('succeeded', 'failed') THEN created_at END WHERE id = :id",
                id=job_id,
                status=status,
                attempt=attempt,
            )
            uow.wake(Channel.EVENTS)

    def prints(self, job_id: str, log: bytes, attempt: int = 1) -> None:
        """What its pod, which exists, has printed so far."""
        name = PodName(job_id, attempt, 0)
        self.cluster.show(name, PodPhase.RUNNING)
        self.cluster.logs[str(name)] = log

    async def goes(self, job_id: str, tail: bytes, attempt: int = 1) -> None:
        """Its pod is gone; this was kept of the log."""
        name = PodName(job_id, attempt, 0)
        self.cluster.show(name, PodPhase.GONE)
        async with self.runtime.uow() as uow:
            await uow.pod_logs.keep([KeptLog(name, tail, complete=True)], self.runtime.clock.now())

    async def row(self, job_id: str) -> Reservation:
        async with self.runtime.uow() as uow:
            return (await uow.reservations.get([job_id]))[job_id]


@pytest.fixture
async def forgetful(runtime: Runtime, settings: ApiSettings, people: People) -> AsyncIterator[Forgetful]:
    cluster = ScriptedCluster()
    cluster.forgetful = True
    runtime = replace(runtime, cluster=cluster)
    app = create_app(runtime, settings)

    def client(who: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {people.secrets[who]}"}
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=headers)

    async with app.router.lifespan_context(app), client("alice") as alice, client("bob") as bob:
        yield Forgetful(runtime, cluster, app.state.services, alice, bob)


async def test_what_was_kept_is_read_when_the_pod_is_gone_and_only_by_its_owner(forgetful: Forgetful) -> None:
    job_id = await forgetful.job("succeeded")
    await forgetful.goes(job_id, b"one\ntwo\n")
    for path in (f"/v1/jobs/{job_id}/logs", f"/v1/jobs/{job_id}/logs?follow=true"):
        assert (await forgetful.alice.get(path)).text == "one\ntwo\n"
        assert (await forgetful.bob.get(path)).status_code == 404


async def test_a_pod_that_is_there_is_read_itself(forgetful: Forgetful) -> None:
    job_id = await forgetful.job("running")
    await forgetful.goes(job_id, b"kept\n")
    forgetful.prints(job_id, b"one\ntwo\n")
    chunks = [chunk async for chunk in await read_log(forgetful.services, await forgetful.row(job_id))]
    assert b"".join(chunks) == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("before", "kept", "after"),
    [
        (b"one\ntwo\n", b"two\nthree\n", b"three\n"),
        (b"one\ntwo\n", b"one\ntwo\nthree\n", b"three\n"),
        (b"one\ntwo\n", b"o\n", b""),
        (b"one\ntwo\n", b"one\ntwo\n", b""),
        (b"one\ntwo\n", b"", b""),
    ],
)
async def test_a_reader_that_was_cut_off_gets_the_rest_once(
    forgetful: Forgetful, before: bytes, kept: bytes, after: bytes
) -> None:
    job_id = await forgetful.job("running")
    forgetful.prints(job_id, before)
    seen = b""
    async for chunk in follow_log(forgetful.services, await forgetful.row(job_id)):
        seen += chunk
        if seen == before:
            await forgetful.goes(job_id, kept)
            await forgetful.said(job_id, "succeeded")
    assert seen == before + after


async def test_who_follows_a_job_that_is_started_again_sees_its_new_attempt(forgetful: Forgetful) -> None:
    job_id = await forgetful.job("running")
    forgetful.prints(job_id, b"first\n")
    seen = []
    async for chunk in follow_log(forgetful.services, await forgetful.row(job_id)):
        seen.append(chunk)
        if len(seen) == 1:
            forgetful.prints(job_id, b"second\n", attempt=2)
            await forgetful.said(job_id, "running", attempt=2)
        else:
            await forgetful.said(job_id, "succeeded", attempt=2)
    assert seen == [b"first\n", b"second\n"]


async def test_a_log_that_does_not_begin_is_a_problem(forgetful: Forgetful, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "_FIRST_S", 0.1)
    job_id = await forgetful.job("running")
    forgetful.prints(job_id, b"one\n")
    forgetful.cluster.silent = True
    answer = await forgetful.alice.get(f"/v1/jobs/{job_id}/logs")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.json()["type"].endswith("cluster_unavailable")


async def test_the_log_of_an_ended_job_is_not_asked_for_without_end(
    forgetful: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "SWEEP_S", 0.01)
    job_id = await forgetful.job("succeeded")
    forgetful.cluster.down = True
    row = await forgetful.row(job_id)
    with pytest.raises(ClusterUnavailableError):
        await anext(follow_log(forgetful.services, row))


async def test_the_log_of_a_job_that_goes_on_is_waited_for(
    forgetful: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "SWEEP_S", 0.01)
    job_id = await forgetful.job("running")
    forgetful.prints(job_id, b"one\n")
    forgetful.cluster.down = True
    told: list[str] = []

    def warned(event: str, **_fields: object) -> None:
        told.append(event)
        forgetful.cluster.down = len(told) <= 2 * job_log._FAILURES

    monkeypatch.setattr(job_log, "_LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(job_log._log, "warning", warned)
    async for chunk in follow_log(forgetful.services, await forgetful.row(job_id)):
        assert chunk == b"one\n"
        break
    assert len(told) > job_log._FAILURES
