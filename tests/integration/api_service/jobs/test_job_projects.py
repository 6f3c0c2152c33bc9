"""Jobs for a project over REST: members only, the booking's within a booking, and its rules beside one's own."""

import asyncio
from datetime import UTC, datetime

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import HOUR, add_nodes, asked, at, booked_now, execute, said
from tests.integration.api_service.callers import JOB, submitted

NOT_IN_IT = "You are in no project {}. Leave the project out, or ask to be made a member."


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime, root: httpx.AsyncClient) -> None:
    """Four h100; alice is in `vision` and in `speech`, bob in `vision`."""
    await add_nodes(runtime, a=("h100", 4))
    for project, members in {"vision": ("alice", "bob"), "speech": ("alice",)}.items():
        assert (await root.post("/v1/projects", json={"name": project})).status_code == 201
        for member in members:
            assert (await root.put(f"/v1/projects/{project}/members/{member}")).status_code == 200


async def put(root: httpx.AsyncClient, scope: str, **rules: object) -> None:
    """Rules that were set."""
    response = await root.put(f"/v1/policy/{scope}", json=rules)
    assert response.status_code == 200, response.text


def refused(answer: httpx.Response) -> list[tuple[str, str]]:
    """The rules that a refusal of a job names, and what it says of each."""
    assert answer.status_code == 409, answer.text
    assert answer.json()["type"] == "urn:gpu-dev:problem:not_permitted"
    return [(rule["code"], rule["detail"]) for rule in answer.json()["broken_rules"]]


async def test_a_job_says_for_which_project_it_is(alice: httpx.AsyncClient) -> None:
    job = await submitted(alice, project="vision")
    assert job["project"] == "vision"
    assert (await alice.get(f"/v1/jobs/{job['id']}")).json()["project"] == "vision"
    assert [one["project"] for one in (await alice.get("/v1/jobs")).json()["items"]] == ["vision"]
    assert [one["project"] for one in (await alice.get("/v1/queue")).json()["items"]] == ["vision"]


async def test_without_one_it_is_for_none_however_few_one_is_in(bob: httpx.AsyncClient) -> None:
    assert (await bob.get("/v1/projects")).json()["items"][0]["name"] == "vision"
    assert (await submitted(bob))["project"] is None
    assert (await submitted(bob, project=None))["project"] is None


@pytest.mark.parametrize("project", ["Vision", "", "a b", "x" * 64, "-x", 7, ["vision"]])
async def test_what_is_no_projects_name_is_told_at_the_field(alice: httpx.AsyncClient, project: object) -> None:
    answer = await alice.post("/v1/jobs", json={**JOB, "project": project})
    assert answer.status_code == 422
    assert answer.json()["broken_rules"][0]["detail"].startswith("project")


async def test_others_projects_and_those_there_are_not_look_the_same(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    # What a project allows is not for others to know.
    await put(root, "project:speech", max_duration=60, max_gpus=1, priority=50)
    for project in ("speech", "nothing"):
        body = {**JOB, "gpus": 4, "project": project}
        answer = await bob.post("/v1/jobs", json=body)
        assert refused(answer) == [("no_such_project", NOT_IN_IT.format(project))]
        booking = await bob.post("/v1/bookings", json=asked(gpus=4, duration="PT10M", project=project))
        assert booking.json()["broken_rules"][0] == answer.json()["broken_rules"][0]
        assert (await bob.post("/v1/jobs", json={**body, "priority": 7})).status_code == 403
    # Administrators are in no project that they are not in, either.
    assert [code for code, _ in refused(await root.post("/v1/jobs", json={**JOB, "project": "speech"}))] == [
        "no_such_project"
    ]
    # Rules of one's own are told along with it.
    await put(root, "user:bob", max_gpus=2)
    assert [code for code, _ in refused(await bob.post("/v1/jobs", json={**JOB, "gpus": 3, "project": "speech"}))] == [
        "no_such_project",
        "max_gpus",
    ]
    assert (await alice.post("/v1/jobs", json={**JOB, "duration": 60, "project": "speech"})).status_code == 202
    assert (await bob.get("/v1/jobs")).json()["items"] == []


async def test_a_mistyped_project_is_compared_with_ones_own(bob: httpx.AsyncClient) -> None:
    meant = "You are in no project vison. Did you mean vision? Leave"
    for body in (JOB, {**JOB, "priority": 7}):
        job = await bob.post("/v1/jobs", json={**body, "project": "vison"})
        assert meant in job.json()["detail"]
    booking = await bob.post("/v1/bookings", json=asked(project="vison"))
    assert booking.json()["broken_rules"][0]["detail"].startswith(meant)
    explained = await bob.post("/v1/policy/explain", json={**JOB, "project": "vison"})
    assert explained.json()["reasons"][0]["detail"].startswith(meant)
    # Others' projects are not named.
    assert "Did you mean" not in (await bob.post("/v1/jobs", json={**JOB, "project": "speach"})).json()["detail"]


async def test_who_joins_and_leaves_elsewhere_is_known_at_once(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    async with runtime.uow() as uow:
        user = await uow.identities.user("bob")
    assert user is not None
    assert (await bob.post("/v1/jobs", json={**JOB, "project": "speech"})).status_code == 409
    async with runtime.uow() as uow:
        await uow.projects.add_member("speech", user.id)
    job = await bob.post("/v1/jobs", json={**JOB, "project": "speech"}, headers={"Idempotency-Key": "one"})
    assert job.status_code == 202
    # By another process: this one remembers that he is in it, and the database has the last word.
    async with runtime.uow() as uow:
        await uow.projects.remove_member("speech", user.id)
    gone = await bob.post("/v1/jobs", json={**JOB, "project": "speech"})
    assert refused(gone) == [("no_such_project", NOT_IN_IT.format("speech"))]
    assert gone.json()["detail"] == NOT_IN_IT.format("speech")
    # What was accepted stays so, and asking again with its key gets the same answer.
    again = await bob.post("/v1/jobs", json={**JOB, "project": "speech"}, headers={"Idempotency-Key": "one"})
    assert (again.status_code, again.json()) == (202, job.json())
    other = await bob.post("/v1/jobs", json={**JOB, "project": "vision"}, headers={"Idempotency-Key": "one"})
    assert other.status_code == 409
    assert other.json()["type"] == "urn:gpu-dev:problem:idempotency_conflict"
    assert len((await bob.get("/v1/jobs")).json()["items"]) == 1


async def test_a_refused_job_does_not_fail_those_of_its_batch(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    assert (await submitted(bob, project="vision"))["project"] == "vision"
    async with runtime.uow() as uow:
        user = await uow.identities.user("bob")
        assert user is not None
        await uow.projects.remove_member("vision", user.id)
    calls = [client.post("/v1/jobs", json={**JOB, "project": "vision"}) for client in (alice, bob) * 8]
    answers = await asyncio.gather(*calls)
    assert [answer.status_code for answer in answers] == [202, 409] * 8


async def test_rules_of_the_project_hold_beside_ones_own(alice: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    await put(root, "project:vision", max_duration="PT2H", max_gpus=2, max_gpu_hours_per_week=3, priority=5)
    answer = await alice.post(
        "/v1/jobs", json={**JOB, "gpus": 3, "duration": "PT3H", "priority": 6, "project": "vision"}
    )
    codes = ["max_gpus", "max_gpu_hours_per_week", "max_duration", "priority"]
    assert [code for code, _ in refused(answer)] == codes
    assert all("(project vision)" in detail for _, detail in refused(answer))
    assert (await submitted(alice, priority=5, project="vision"))["priority"] == 5
    # Without it they are nobody's, and with another project neither.
    assert (await alice.post("/v1/jobs", json={**JOB, "priority": 5})).status_code == 403
    await submitted(alice, gpus=3, duration="PT3H")
    await submitted(alice, gpus=3, duration="PT3H", project="speech")
    explained = await alice.post("/v1/policy/explain", json={**JOB, "gpus": 3, "project": "vision"})
    assert [rule["code"] for rule in explained.json()["broken_rules"]] == ["max_gpus"]
    assert explained.json()["kind"] == "job"


async def test_a_job_in_a_booking_is_for_the_bookings_project(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    vision = (await booked_now(alice, gpus=2, project="vision"))["id"]
    none = (await booked_now(alice, gpus=2))["id"]
    assert (await submitted(alice, booking_id=vision))["project"] == "vision"
    assert (await submitted(alice, booking_id=vision, project="vision"))["project"] == "vision"
    assert (await submitted(alice, booking_id=none))["project"] is None
    key = {"Idempotency-Key": "one"}
    first = await alice.post("/v1/jobs", json={**JOB, "booking_id": vision}, headers=key)
    assert (first.status_code, first.json()["project"]) == (202, "vision")
    again = await alice.post("/v1/jobs", json={**JOB, "booking_id": vision}, headers=key)
    assert (again.status_code, again.json()) == (202, first.json())
    for booking, project, booked_for in ((vision, "speech", "project vision"), (none, "vision", "no project")):
        answer = await alice.post("/v1/jobs", json={**JOB, "booking_id": booking, "project": project})
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:gpu-dev:problem:booking_not_usable")
        assert answer.json()["detail"] == (
            f"{booking} was booked for {booked_for}, and so is what runs in it. Leave the project out, or the booking."
        )
    # A former member of the project still uses what they booked for it.
    assert (await root.delete("/v1/projects/vision/members/alice")).status_code == 200
    assert (await submitted(alice, booking_id=vision))["project"] == "vision"


async def test_nothing_is_learnt_of_projects_through_bookings(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await put(root, "project:speech", max_duration=60)
    hers = (await booked_now(alice, gpus=1, duration="PT1M", project="speech"))["id"]
    own = (await booked_now(bob, gpus=1, project="vision"))["id"]
    for project in (None, "speech", "vision"):
        answer = await bob.post("/v1/jobs", json={**JOB, "booking_id": hers, "project": project})
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:gpu-dev:problem:no_such_booking")
    answer = await bob.post("/v1/jobs", json={**JOB, "booking_id": own, "project": "speech"})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:gpu-dev:problem:booking_not_usable")


async def test_what_was_booked_beyond_a_quota_can_be_used(alice: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    soon = [{"within": 7200, "lifts": ["max_gpus", "max_gpu_hours_per_week"]}]
    await put(root, "default", max_gpus=1, max_gpu_hours_per_week=1, priority=1, relaxed_if_starts_within=soon)
    booking = (await booked_now(alice, gpus=4, project="vision"))["id"]
    assert (await submitted(alice, gpus=4, booking_id=booking))["project"] == "vision"
    # Limits that are no quotas hold for jobs in bookings, too.
    raised = await alice.post("/v1/jobs", json={**JOB, "booking_id": booking, "priority": 2})
    assert [code for code, _ in refused(raised)] == ["priority"]


async def test_bookings_and_jobs_of_a_project_share_its_quota(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await put(root, "project:vision", max_gpus=2)
    job = (await submitted(alice, project="vision"))["id"]
    start = datetime.now(UTC).replace(second=0, microsecond=0)
    await execute(
        runtime,
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
        "SELECT :job, 0, id, 0, tstzrange(:start, :end), false, now() FROM gpus ORDER BY id LIMIT 1",
        job=job, start=start, end=start + 5 * HOUR,
    )  # fmt: skip
    answer = await bob.post("/v1/bookings", json=asked(at(1), gpus=2, project="vision"))
    [broken] = answer.json()["broken_rules"]
    assert broken["code"] == "max_gpus"
    assert "beside 1 of project vision from " in broken["detail"]
    assert "Z on; the limit is 2 at once (project vision)" in broken["detail"]
    explained = await bob.post("/v1/policy/explain", json={**JOB, "gpus": 2, "project": "vision"})
    [limit] = explained.json()["limits"]
    assert (limit["value"], limit["used"], limit["scope"]) == (2, 1, "project:vision")
    # What alice holds for it is not what bob holds for himself.
    assert (await bob.post("/v1/bookings", json=asked(at(1), gpus=2))).status_code == 201


async def test_usage_by_project_counts_jobs_and_sums_up_to_the_ledger(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    start = datetime.now(UTC).replace(second=0, microsecond=0)
    booking = (await booked_now(alice, gpus=1, project="vision"))["id"]
    jobs = {
        (await submitted(client, **fields))["id"]: (card, hours)
        for card, hours, client, fields in (
            (0, 2, alice, {"project": "vision"}),
            (1, 3, bob, {"project": "vision"}),
            (2, 4, alice, {"project": "speech"}),
            (3, 5, alice, {}),
        )
    }
    within = (await submitted(alice, booking_id=booking))["id"]
    cards = [row.id for row in await execute(runtime, "SELECT id FROM gpus ORDER BY id")]
    for job, (card, hours) in jobs.items():
        await execute(
            runtime,
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
            "VALUES (:job, 0, :gpu, 0, tstzrange(:start, :end), false, now())",
            job=job, gpu=cards[card], start=start - 20 * HOUR, end=start - (20 - hours) * HOUR,
        )  # fmt: skip
    # It is some time later; the job in the booking ran for half of it.
    await execute(
        runtime,
        "UPDATE allocations SET during = tstzrange(:start, :end) WHERE reservation_id = :id",
        id=booking, start=start - 9 * HOUR, end=start - 8 * HOUR,
    )  # fmt: skip
    await execute(
        runtime,
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, booking_id) "
        "SELECT :job, 0, gpu_id, 0, tstzrange(:start, :end), false, now(), :id FROM allocations "
        "WHERE reservation_id = :id",
        job=within, id=booking, start=start - 9 * HOUR, end=start - 8.5 * HOUR,
    )  # fmt: skip
    await execute(runtime, "UPDATE reservations SET started_at = :at WHERE id = :job", job=within, at=start - 9 * HOUR)
    week = {"from": said(start - 200 * HOUR), "to": said(start), "by": "project"}
    report = (await root.get("/v1/usage", params=week)).json()
    assert [(line["key"], line["held_gpu_hours"], line["used_gpu_s"]) for line in report["items"]] == [
        ("speech", 4.0, 0.0),
        ("vision", 6.0, 1800.0),
        (None, 5.0, 0.0),
    ]
    [ledger] = await execute(
        runtime,
        "SELECT extract(epoch FROM sum(upper(during) - lower(during))) AS s FROM allocations WHERE booking_id IS NULL",
    )
    assert report["total"]["held_gpu_s"] == float(ledger.s) == sum(line["held_gpu_s"] for line in report["items"])
    mine = (await bob.get("/v1/usage", params=week)).json()
    assert [(line["key"], line["held_gpu_hours"]) for line in mine["items"]] == [("vision", 3.0)]
