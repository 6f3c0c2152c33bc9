"""When CronJobs last ended well: read of the emulator or a real API server, and told by a processor's /metrics."""

import httpx
import pytest

from reservation_core.runtime.cron_jobs import CronJobCollector, watch_cron_jobs
from reservation_core.runtime.http.health import create_app
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.wiring import Runtime
from tests.kubernetes.api_client import MERGE
from tests.kubernetes.api_server import ApiServer
from tests.waiting import eventually

NAME = "gpu_dev_cron_job_succeeded_timestamp_seconds"
AT = "2026-01-02T03:04:05Z"


def job(name: str) -> dict[str, object]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}},
    }


async def told(app_of: Runtime, loops: Loops, collectors: tuple[object, ...]) -> dict[str, float]:
    """By name, what /metrics says."""
    app = create_app(app_of.uow, loops, collectors)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://program") as client:
        lines = (await client.get("/metrics")).text.splitlines()
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines if line.startswith(f"{NAME}{{")}


async def test_metrics_tell_when_each_last_ended_well_and_of_a_new_one_when_it_was_made(
    api_server: ApiServer, namespace: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/cronjobs"
    monkeypatch.setenv("POD_NAMESPACE", namespace)
    settings = ProcessorSettings.model_validate(
        {"cron_jobs": "old,new,absent", "kubernetes": {"kubeconfig": str(api_server.kubeconfig)}}
    )
    loops = Loops()
    async with api_server.client() as client:
        for name in ("old", "new", "nobodys"):
            await client.call("POST", jobs, job(name))
        status = {"status": {"lastSuccessfulTime": AT, "lastScheduleTime": AT}}
        await client.call(
            "PATCH", f"{jobs}/old/status" if api_server.real else f"{jobs}/old", status, content_type=MERGE
        )
        async with watch_cron_jobs(settings, loops) as collectors:
            (collector,) = collectors
            assert isinstance(collector, CronJobCollector)
            await eventually(lambda: {*collector.succeeded} == {"old", "new"})
            said = await told(runtime, loops, collectors)
    assert said["old"] == 1767323045.0
    assert said["new"] > said["old"]
    assert {*said} == {"old", "new"}


async def test_where_none_is_named_nobody_is_asked() -> None:
    async with watch_cron_jobs(ProcessorSettings(), Loops()) as collectors:
        assert collectors == ()


async def test_without_a_way_to_kubernetes_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    settings = ProcessorSettings.model_validate({"cron_jobs": "old", "kubernetes": {"kubeconfig": "/nowhere"}})
    with pytest.raises(SettingsError, match="/nowhere"):
        async with watch_cron_jobs(settings, Loops()):
            pass
