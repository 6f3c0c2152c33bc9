"""The use of GPUs over REST: of a job while it had them, of a node, in steps within bounds."""

import csv
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.gpu_use.keep_use import keep_use
from reservation_core.usecases.gpu_use.store_samples import store_samples
from tests.database.sql import sql
from tests.integration.api_service.bookings.calendars import add_nodes
from tests.integration.api_service.callers import submitted

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def now(runtime: Runtime) -> datetime:
    return runtime.clock.now().replace(microsecond=0)


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Two GPUs on node `a`."""
    await add_nodes(runtime, a=("h100", 2))


async def had(runtime: Runtime, job: str, index: int, start: datetime, end: datetime, *, over: bool = True) -> None:
    """A job had a GPU in that time; it still has it unless that is over."""
    async with runtime.uow() as uow:
        await sql(
            uow,
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, released_at) "
            "SELECT :job, 1, g.id, 0, tstzrange(:start, :end), :held, :start, CAST(:released AS timestamptz) "
            "FROM gpus g WHERE g.index = :index",
            job=job, index=index, start=start, end=end, held=not over, released=end if over else None,
        )  # fmt: skip


async def sampled(runtime: Runtime, index: int, *samples: tuple[datetime, float | None]) -> None:
    await store_samples(runtime.uow, [GpuSample(f"GPU-a-{index}", at, value) for at, value in samples])


async def use(client: httpx.AsyncClient, path: str, **query: Any) -> dict[str, Any]:
    answer = await client.get(f"{path}/metrics", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_job_shows_its_gpus_while_it_had_them(
    runtime: Runtime, alice: httpx.AsyncClient, now: datetime
) -> None:
    job = (await submitted(alice))["id"]
    await had(runtime, job, 0, now - HOUR, now - 30 * MINUTE)
    await sampled(
        runtime, 0, (now - HOUR - MINUTE, 1.0), (now - HOUR, 0.2), (now - 40 * MINUTE, 0.4), (now - 30 * MINUTE, 1.0)
    )
    found = await use(alice, f"/v1/jobs/{job}")
    [gpu] = found["gpus"]
    assert (gpu["node"], gpu["index"], gpu["uuid"], gpu["gpu_type"]) == ("a", 0, "GPU-a-0", "h100")
    assert [point["utilisation"] for point in gpu["points"]] == [
        {"mean": 0.2, "max": 0.2},
        {"mean": 0.4, "max": 0.4},
    ]
    assert gpu["points"][0]["memory_bytes"] is None
    assert datetime.fromisoformat(found["start"]) == now - HOUR
    assert datetime.fromisoformat(found["end"]) == now - 30 * MINUTE
    assert found["simulated"] is False


async def test_a_gpu_without_samples_has_no_points(runtime: Runtime, alice: httpx.AsyncClient, now: datetime) -> None:
    job = (await submitted(alice))["id"]
    assert (await use(alice, f"/v1/jobs/{job}"))["gpus"] == []
    await had(runtime, job, 1, now - HOUR, now + HOUR, over=False)
    [gpu] = (await use(alice, f"/v1/jobs/{job}"))["gpus"]
    assert gpu["points"] == []


async def test_a_second_attempt_on_the_same_gpu_is_the_same_line(
    runtime: Runtime, alice: httpx.AsyncClient, now: datetime
) -> None:
    job = (await submitted(alice))["id"]
    await had(runtime, job, 0, now - 50 * MINUTE, now - 40 * MINUTE)
    await had(runtime, job, 0, now - 20 * MINUTE, now + HOUR, over=False)
    await sampled(runtime, 0, *((now - minutes * MINUTE, minutes / 100) for minutes in (45, 30, 15)))
    [gpu] = (await use(alice, f"/v1/jobs/{job}"))["gpus"]
    assert [point["utilisation"]["mean"] for point in gpu["points"]] == [0.45, 0.15]


async def test_a_node_in_steps(runtime: Runtime, bob: httpx.AsyncClient, now: datetime) -> None:
    start = now.replace(second=0) - 30 * MINUTE
    await sampled(runtime, 1, (start, 0.5), (start + timedelta(seconds=10), 1.0), (start + MINUTE, 0.0))
    query = {"from": start.isoformat(), "to": (start + 10 * MINUTE).isoformat(), "step": "PT1M"}
    found = await use(bob, "/v1/nodes/a", **query)
    assert [(gpu["index"], len(gpu["points"])) for gpu in found["gpus"]] == [(0, 0), (1, 2)]
    assert [(point["samples"], point["utilisation"]) for point in found["gpus"][1]["points"]] == [
        (2, {"mean": 0.75, "max": 1.0}),
        (1, {"mean": 0.0, "max": 0.0}),
    ]
    assert found["step"] == "PT1M"
    assert (await bob.get("/v1/nodes/z/metrics")).status_code == 404


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"step": "5"}, "step"),
        ({"step": "90"}, "step"),
        ({"step": "PT90M"}, "step"),
        ({"step": "x"}, "step"),
        ({"step": "10"}, "step"),  # a day of two GPUs
        ({"from": "yesterday"}, "from"),
        ({"to": "2020-01-01T00:00:00Z"}, "must end after it begins"),
        ({"speed": "1"}, "speed"),
    ],
)
async def test_bounds(alice: httpx.AsyncClient, now: datetime, query: dict[str, str], named: str) -> None:
    asked = {"from": (now - 23 * HOUR).isoformat(), **query}
    answer = await alice.get("/v1/nodes/a/metrics", params=asked)
    assert answer.status_code == 422, answer.text
    assert named in answer.text


async def test_older_times_have_longer_steps(runtime: Runtime, alice: httpx.AsyncClient, now: datetime) -> None:
    for age, step in ((timedelta(minutes=10), "PT10S"), (timedelta(days=2), "PT1M"), (timedelta(days=40), "PT1H")):
        start, end = now - age, now - age + 5 * MINUTE
        found = await use(alice, "/v1/nodes/a", **{"from": start.isoformat(), "to": end.isoformat(), "step": "10"})
        assert found["step"] == step


async def test_the_default_step_makes_a_graph(alice: httpx.AsyncClient, now: datetime) -> None:
    for days in (1, 30, 3000):
        found = await use(alice, "/v1/nodes/a", **{"from": (now - timedelta(days=days)).isoformat()})
        assert found["gpus"]


async def test_a_long_time_is_cut_to_what_may_have_samples(
    runtime: Runtime, alice: httpx.AsyncClient, now: datetime
) -> None:
    await add_nodes(runtime, big=("h100", 16))
    query = {"from": "1970-01-01T00:00:00Z", "to": "2199-01-01T00:00:00Z"}
    found = await use(alice, "/v1/nodes/big", **query)
    assert len(found["gpus"]) == 16
    assert now - timedelta(days=31) < datetime.fromisoformat(found["start"]) < now
    assert now <= datetime.fromisoformat(found["end"]) <= now + HOUR
    hour = now.replace(minute=0, second=0) - timedelta(days=20_000)
    async with runtime.uow() as uow:
        await sql(
            uow,
            "INSERT INTO gpu_hours (at, gpu_id, samples, utilisation_mean, utilisation) "
            "SELECT :hour, g.id, 360, 500, 500 FROM gpus g JOIN nodes n ON n.id = g.node_id WHERE n.name = 'big'",
            hour=hour,
        )  # fmt: skip
    found = await use(alice, "/v1/nodes/big", **query)
    assert (datetime.fromisoformat(found["start"]), found["step"]) == (hour, "P128D")
    assert [len(gpu["points"]) for gpu in found["gpus"]] == [1] * 16


async def test_a_job_is_shown_from_its_first_gpu_on(runtime: Runtime, alice: httpx.AsyncClient, now: datetime) -> None:
    job = (await submitted(alice))["id"]
    await had(runtime, job, 0, now - HOUR, now - 30 * MINUTE)
    found = await use(alice, f"/v1/jobs/{job}", **{"from": "1970-01-01T00:00:00Z"})
    assert datetime.fromisoformat(found["start"]) == now - HOUR
    assert found["step"] == "PT10S"


async def test_a_time_after_the_end_has_no_points(runtime: Runtime, alice: httpx.AsyncClient, now: datetime) -> None:
    job = (await submitted(alice))["id"]
    await had(runtime, job, 0, now - 2 * HOUR, now - HOUR)
    await sampled(runtime, 0, (now - 90 * MINUTE, 0.5), (now - 10 * MINUTE, 0.5))
    since = (now - 30 * MINUTE).isoformat()
    for more in ({}, {"step": "60"}):
        found = await use(alice, f"/v1/jobs/{job}", **{"from": since, **more})
        assert [gpu["points"] for gpu in found["gpus"]] == [[]]
        assert datetime.fromisoformat(found["start"]) == datetime.fromisoformat(found["end"]) == now - HOUR
    refused = await alice.get(f"/v1/jobs/{job}/metrics", params={"from": since, "to": (now - HOUR).isoformat()})
    assert refused.status_code == 422


async def test_a_job_is_summed_up_by_what_it_used_of_its_gpus(
    runtime: Runtime, alice: httpx.AsyncClient, now: datetime
) -> None:
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE gpus SET memory_bytes = :memory", memory=80 * 2**30)
    job = (await submitted(alice, gpus=2))["id"]
    assert (await use(alice, f"/v1/jobs/{job}"))["summary"] is None
    for index, utilisation in ((0, 0.5), (1, 0.25)):
        await had(runtime, job, index, now - 10 * MINUTE, now - 8 * MINUTE)
        samples = [
            GpuSample(f"GPU-a-{index}", now - 10 * MINUTE + n * timedelta(seconds=10), utilisation, 2**33, 2**36)
            for n in range(12)
        ]
        await store_samples(runtime.uow, samples)
    assert (await use(alice, f"/v1/jobs/{job}"))["summary"] == {
        "gpus": 2, "used": 0.75, "memory_peak": 2**33, "memory_bytes": 80 * 2**30, "enough": 1, "sampled": 1.0,
    }  # fmt: skip
    assert (await use(alice, "/v1/nodes/a"))["summary"] is None


async def test_usage_says_how_busy_gpus_were_and_no_data_is_not_zero(
    runtime: Runtime, alice: httpx.AsyncClient, root: httpx.AsyncClient, now: datetime
) -> None:
    assert (await root.post("/v1/projects", json={"name": "vision"})).is_success
    assert (await root.put("/v1/projects/vision/members/alice")).is_success
    job, silent = (await submitted(alice, project="vision"))["id"], (await submitted(alice))["id"]
    hour = now.replace(minute=0, second=0) - 3 * HOUR
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE gpu_use_state SET minutes_until = :at, hours_until = :at", at=hour)
    # A whole hour, the begin of the next one, and the minutes around it in which others have the GPU.
    begin, end = hour + 30 * MINUTE, hour + 130 * MINUTE
    await had(runtime, job, 0, begin, end)
    await had(runtime, silent, 1, begin, end)
    samples = [
        GpuSample("GPU-a-0", at, 0.5 if begin <= at < end else 1.0, (n + 1) * 2**20)
        for n in range(180)
        if (at := hour + n * MINUTE + timedelta(seconds=5)) < now
    ]
    await store_samples(runtime.uow, samples)
    await keep_use(runtime.uow)

    async def usage(by: str, start: datetime, until: datetime) -> dict[str | None, tuple[float | None, int | None]]:
        query = {"by": by, "from": start.isoformat(), "to": until.isoformat()}
        answer = await alice.get("/v1/usage", params=query)
        assert answer.status_code == 200, answer.text
        lines = [*answer.json()["items"], answer.json()["total"] | {"key": "altogether"}]
        return {line["key"]: (line["utilised"], line["memory_peak"]) for line in lines}

    found = await usage("project", hour, hour + 3 * HOUR)
    assert found == {"vision": (0.5, 130 * 2**20), None: (None, None), "altogether": (0.5, 130 * 2**20)}
    assert await usage("user", hour, hour + 40 * MINUTE) == {
        "alice": (0.5, 40 * 2**20), "altogether": (0.5, 40 * 2**20),
    }  # fmt: skip
    assert (await usage("gpu_type", hour + 125 * MINUTE, hour + 3 * HOUR))["h100"] == (0.5, 130 * 2**20)
    # Late samples are summed up, too, and once.
    await store_samples(runtime.uow, [GpuSample("GPU-a-0", hour + 70 * MINUTE + timedelta(seconds=15), 0.5, 2**30)])
    await keep_use(runtime.uow)
    assert (await usage("project", hour, hour + 3 * HOUR))["vision"] == (0.5, 2**30)
    csv = await alice.get("/v1/usage", params={"by": "project", "from": hour.isoformat(), "format": "csv"})
    assert csv.text.splitlines()[0].endswith(",utilised,memory_peak")
    assert csv.text.splitlines()[1].endswith(f",0.5000,{2**30}")
    assert csv.text.splitlines()[2].endswith(",,")


async def test_the_same_as_csv(runtime: Runtime, alice: httpx.AsyncClient, now: datetime) -> None:
    start = now - 10 * MINUTE
    sample = GpuSample("GPU-a-0", start, 0.5, 2**30, None, 400.0, 60, 3, 79, ())
    await store_samples(runtime.uow, [sample, GpuSample("GPU-a-0", start + MINUTE)])
    job = (await submitted(alice))["id"]
    await had(runtime, job, 0, now - HOUR, now + HOUR, over=False)
    for path in (f"/v1/jobs/{job}", "/v1/nodes/a"):
        for query, headers in (({"format": "csv"}, {}), ({}, {"Accept": "text/csv"})):
            answer = await alice.get(f"{path}/metrics", params={**query, "step": "10"}, headers=headers)
            assert answer.headers["content-type"] == "text/csv; charset=utf-8"
            table = csv.DictReader(answer.text.splitlines())
            first, second = table
            assert list(table.fieldnames or ())[:6] == ["node", "gpu", "uuid", "gpu_type", "at", "samples"]
            assert (first["node"], first["gpu"], first["uuid"], first["samples"]) == ("a", "0", "GPU-a-0", "1")
            assert (first["utilisation_mean"], first["memory_bytes_max"], first["xid"]) == ("0.5", str(2**30), "79")
            assert datetime.fromisoformat(first["at"]) <= start
            assert (second["utilisation_mean"], second["xid"], second["ecc_uncorrected"]) == ("", "", "")
    assert (await alice.get("/v1/nodes/a/metrics", params={"format": "xml"})).status_code == 422
