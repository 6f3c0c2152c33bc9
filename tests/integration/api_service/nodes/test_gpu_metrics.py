"""Metrics of each GPU and of the live jobs on them: bounded, of recent samples, and without names for strangers."""

import re
from datetime import datetime, timedelta

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api_service.metrics.gpu_metrics import GpuSeries
from api_service.metrics.metrics import ApiMetrics
from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.runtime.reading.reading import PrimaryReads
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.gpu_use.store_samples import store_samples
from tests.integration.api_service.bookings.calendars import add_nodes
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.jobs.test_streams import start
from tests.integration.api_service.nodes.test_gpu_use import had

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
HELD = {"job": "", "user": "", "project": ""}


@pytest.fixture
def now(runtime: Runtime) -> datetime:
    return runtime.clock.now().replace(microsecond=0)


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Two GPUs on node `a`, one on `b`."""
    await add_nodes(runtime, a=("h100", 2), b=("a100", 1))


async def scraped(runtime: Runtime, series: GpuSeries | None = None) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and value of each line, by metric."""
    text = await ApiMetrics(PrimaryReads(runtime.uow), runtime.clock, gpu_series=series).text()
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text.decode())
    }


async def sample(runtime: Runtime, uuid: str, at: datetime, **values: float | None) -> None:
    await store_samples(runtime.uow, [GpuSample(uuid, at, **values)])  # type: ignore[arg-type]


async def test_a_live_job_s_gpu_shows_its_newest_sample(
    runtime: Runtime, alice: httpx.AsyncClient, now: datetime
) -> None:
    job = (await submitted(alice))["id"]
    await had(runtime, job, 1, now - HOUR, now + HOUR, over=False)
    await sample(runtime, "GPU-a-1", now - 20 * SECOND, utilisation=0.2)
    await sample(
        runtime, "GPU-a-1", now - 10 * SECOND, utilisation=0.875, memory_used=2**30, power_w=412.5, temperature_c=61,
        ecc_uncorrected=3,
    )  # fmt: skip
    found = await scraped(runtime)
    place, held = {"node": "a", "gpu": "1"}, {"job": job, "user": "alice", "project": ""}
    assert found["gpu_dev_gpu_utilization_ratio"] == [({**place, **held}, 0.875)]
    assert found["gpu_dev_gpu_memory_used_bytes"] == [({**place, **held}, 2**30)]
    assert found["gpu_dev_gpu_power_watts"] == [({**place, **held}, 412.5)]
    assert found["gpu_dev_gpu_temperature_celsius"] == [(place, 61)]
    assert found["gpu_dev_gpu_ecc_uncorrected_errors"] == [(place, 3)]
    assert found["gpu_dev_gpu_xid"] == [(place, 0)]
    assert found["gpu_dev_gpu_processes"] == []
    assert found["gpu_dev_job_gpus"] == [({**held, "gpu_type": "h100"}, 1)]
    states = [(labels["node"], labels["gpu"], labels["state"]) for labels, _ in found["gpu_dev_gpu_state"]]
    assert states == [("a", "0", "free"), ("a", "1", "held"), ("b", "0", "free")]
    assert found["gpu_dev_node_available"] == [({"node": "a"}, 1), ({"node": "b"}, 1)]
    assert found["gpu_dev_gpu_series_left_out"] == [({}, 0)]


async def test_old_samples_and_those_of_another_holder_are_no_data(
    runtime: Runtime, alice: httpx.AsyncClient, now: datetime
) -> None:
    job = (await submitted(alice))["id"]
    await had(runtime, job, 0, now - 5 * SECOND, now + HOUR, over=False)
    await sample(runtime, "GPU-a-0", now - 10 * SECOND, utilisation=1.0)  # before the job had it
    await sample(runtime, "GPU-a-1", now - 2 * MINUTE, utilisation=1.0)
    assert (await scraped(runtime))["gpu_dev_gpu_utilization_ratio"] == []
    longer = GpuSeries(samples_last=10 * MINUTE)
    assert (await scraped(runtime, longer))["gpu_dev_gpu_utilization_ratio"] == [
        ({"node": "a", "gpu": "1", **HELD}, 1.0)
    ]


async def test_ended_jobs_are_not_named(runtime: Runtime, alice: httpx.AsyncClient, now: datetime) -> None:
    job = (await submitted(alice))["id"]
    await had(runtime, job, 0, now - HOUR, now - 5 * SECOND)
    await sample(runtime, "GPU-a-0", now - SECOND, utilisation=0.5)
    found = await scraped(runtime)
    assert found["gpu_dev_gpu_utilization_ratio"] == [({"node": "a", "gpu": "0", **HELD}, 0.5)]
    assert found["gpu_dev_job_gpus"] == []


async def test_an_xid_error_is_shown_for_some_minutes(runtime: Runtime, now: datetime) -> None:
    await sample(runtime, "GPU-a-0", now - 4 * MINUTE, xid=79)
    await sample(runtime, "GPU-a-0", now - 10 * SECOND, utilisation=0.5)
    await sample(runtime, "GPU-a-1", now - 6 * MINUTE, xid=48)
    await sample(runtime, "GPU-b-0", now - 3 * MINUTE, xid=31)  # and no sample since
    assert (await scraped(runtime))["gpu_dev_gpu_xid"] == [
        ({"node": "a", "gpu": "0"}, 79),
        ({"node": "b", "gpu": "0"}, 31),
    ]


async def test_only_so_many_gpus_are_shown_one_by_one(runtime: Runtime, now: datetime) -> None:
    found = await scraped(runtime, GpuSeries(gpus=2))
    assert [(labels["node"], labels["gpu"]) for labels, _ in found["gpu_dev_gpu_state"]] == [("a", "0"), ("a", "1")]
    assert found["gpu_dev_gpu_series_left_out"] == [({}, 1)]
    none = await scraped(runtime, GpuSeries(gpus=0))
    assert (none["gpu_dev_gpu_state"], none["gpu_dev_gpu_series_left_out"]) == ([], [({}, 3)])


async def test_where_strangers_may_read_no_job_is_named(
    runtime: Runtime, alice: httpx.AsyncClient, now: datetime
) -> None:
    job = (await submitted(alice))["id"]
    await start(runtime, job)
    await sample(runtime, "GPU-a-0", now + SECOND, utilisation=0.5)
    found = await scraped(runtime, GpuSeries(names_jobs=False))
    assert [labels for labels, _ in found["gpu_dev_gpu_utilization_ratio"]] == [{"node": "a", "gpu": "0", **HELD}]
    assert found["gpu_dev_job_gpus"] == []
    assert {value for lines in found.values() for labels, _ in lines for value in labels.values()}.isdisjoint(
        {job, "alice"}
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, True),
        ({"listen": "localhost:80"}, True),
        ({"listen": "[::1]:80"}, True),
        ({"listen": "0.0.0.0:8080"}, False),
        ({"listen": "gpus.example.org:8080"}, False),
        ({"trusted_proxies": ("10.0.0.0/8",)}, False),
        ({"holders": "members"}, False),
        ({"listen": "0.0.0.0:8080", "metrics_listen": "0.0.0.0:9090"}, True),
        ({"listen": "0.0.0.0:8080", "holders": "members", "metrics_listen": "0.0.0.0:9090"}, False),
        ({"listen": "0.0.0.0:8080", "holders": "self", "metrics_listen": "0.0.0.0:9090"}, False),
        ({"listen": "0.0.0.0:8080", "holders": "self", "metrics_listen": "127.0.0.1:9090"}, True),
    ],
)
def test_jobs_are_named_on_this_machine_or_where_everybody_may_see_holders(
    settings: dict[str, object], named: bool
) -> None:
    assert GpuSeries.of(ApiSettings.model_validate(settings)).names_jobs is named


@pytest.mark.parametrize(
    ("settings", "gpus"),
    [
        ({}, 5000),
        ({"listen": "0.0.0.0:8080"}, 0),
        ({"listen": "gpus.example.org:8080"}, 0),
        ({"listen": "0.0.0.0:8080", "metrics_gpus": 5000}, 5000),
        ({"listen": "0.0.0.0:8080", "metrics_listen": "0.0.0.0:9090"}, 5000),
        ({"metrics_gpus": 0}, 0),
    ],
)
def test_gpus_have_no_lines_at_an_address_for_everybody_unless_asked_for(
    settings: dict[str, object], gpus: int
) -> None:
    assert GpuSeries.of(ApiSettings.model_validate(settings)).gpus == gpus


def test_a_sample_counts_for_a_minute_or_three_samples() -> None:
    assert GpuSeries.of(ApiSettings(sample_every_s=10)).samples_last == MINUTE
    assert GpuSeries.of(ApiSettings(sample_every_s=600)).samples_last == 30 * MINUTE


async def test_names_can_t_add_lines(runtime: Runtime) -> None:
    await add_nodes(runtime, **{'"} 1\\': ("h100", 1)})
    text = (await ApiMetrics(PrimaryReads(runtime.uow), runtime.clock).text()).decode()
    assert re.search(r'^gpu_dev_node_available\{node="\\"} 1\\\\"} 1$', text, re.MULTILINE)
