"""What people say in confidence is nowhere in the database, and they get it back."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.statuses import JobStatus
from reservation_core.runtime.sealing_keys import ensure_key_file
from reservation_core.runtime.settings.components import StandaloneSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_core.usecases.running.perform_pod_operations import LaunchRules, perform
from tests.database.sql import connection_of, everything
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at
from tests.pods import end_all_pods

WORD = "hunter2-in-confidence"
WORKLOAD = {"command": ["true"], "env": {"PASSWORD": WORD}}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return ensure_key_file(tmp_path)


@pytest.fixture
async def runtime(database_url: str, tmp_path: Path, key_file: Path) -> AsyncIterator[Runtime]:
    settings = StandaloneSettings(home=tmp_path / "home", local_gpus="h100:4", seal_key_file=key_file)
    async with open_runtime(settings, database_url) as opened:
        try:
            yield opened
        finally:
            await end_all_pods(opened.cluster)


def hidden(word: str) -> tuple[str, str]:
    return word, word.encode().hex()


async def test_nothing_of_it_is_in_the_database(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await add_nodes(runtime, titan=("h100", 4))
    job = (await alice.post("/v1/jobs", json={"gpus": 1, "duration": 60, "workload": WORKLOAD})).json()
    key = {"Idempotency-Key": "k1"}
    body = asked(at(3), workload=WORKLOAD)
    booking = await alice.post("/v1/bookings", json=body, headers=key)
    assert booking.status_code == 201, booking.text
    made = [
        (await alice.post("/v1/notifications/targets", json={"channel": channel, "address": address})).json()
        for channel, address in (
            ("slack", f"https://hooks.example.org/{WORD}"),
            ("webhook", f"https://lab.example.org/{WORD}"),
        )
    ]
    async with runtime.uow() as uow:
        stored = await everything(connection_of(uow))
    assert job["id"] in stored
    for word in (*hidden(WORD), *hidden(made[1]["secret"])):
        assert word not in stored

    assert (await alice.get(f"/v1/jobs/{job['id']}/spec")).json()["workload"]["env"] == {"PASSWORD": WORD}
    assert (await alice.get(f"/v1/bookings/{booking.json()['id']}")).json()["workload"]["env"] == {"PASSWORD": WORD}
    again = await alice.post("/v1/bookings", json=body, headers=key)
    assert (again.status_code, again.json()) == (201, booking.json())
    async with runtime.uow() as uow:
        destinations = [await uow.notices.destination(target["id"]) for target in made]
        [read] = (await uow.reservations.get([job["id"]])).values()
    assert [None if to is None else to.target.address.rpartition("/")[2] for to in destinations] == [WORD, WORD]
    assert [None if to is None else to.secret for to in destinations] == [None, made[1]["secret"]]
    assert read.workload.env == (("PASSWORD", WORD),)


async def test_without_its_key_a_job_waits_and_says_so(
    alice: httpx.AsyncClient, runtime: Runtime, database_url: str, tmp_path: Path
) -> None:
    target = {"channel": "slack", "address": "https://hooks.example.org/x"}
    ours = (await alice.post("/v1/notifications/targets", json=target)).json()["id"]
    job = (await alice.post("/v1/jobs", json={"gpus": 1, "duration": 60, "workload": WORKLOAD})).json()["id"]
    async with runtime.uow() as uow:
        connection = connection_of(uow)
        await connection.execute(
            text("UPDATE reservations SET status = 'starting', attempt = 1, ends_at = :ends WHERE id = :id"),
            {"id": job, "ends": runtime.clock.now() + timedelta(hours=1)},
        )
    (tmp_path / "another").mkdir()
    settings = StandaloneSettings(
        home=tmp_path / "home", local_gpus="h100:4", seal_key_file=ensure_key_file(tmp_path / "another")
    )
    async with open_runtime(settings, database_url) as without:
        operation = PodOperation(op="create", id=job, attempt=1)
        rules = LaunchRules(timedelta(seconds=10), timedelta(minutes=1))
        with pytest.raises(Exception, match="sealed with a key that the server does not have"):
            await perform(without.uow, without.cluster, operation, without.clock, rules)
        async with without.uow() as uow:
            [read] = (await uow.reservations.get([job])).values()
            assert read.status is JobStatus.STARTING
            assert "GPU_DEV_SEAL_KEY_FILE" in read.reason.detail
            [shown] = [
                listed_target
                for listed_target in await uow.notices.targets(None, after=None, limit=10)
                if listed_target.id == ours
            ]
            assert shown.address == ""
