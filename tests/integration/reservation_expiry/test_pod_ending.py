"""The expiry as a process, on a real database and an API server: pods that people made, ended in a run or watched."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from reservation_core.runtime.wiring import Runtime
from tests.integration.admission_webhook.control_plane import control_plane
from tests.kubernetes.api_client import MERGE
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm
from tests.kubernetes.node.kubelet import Kubelet
from tests.programs.prepared_processes import PreparedProcess, started
from tests.waiting import PATIENCE_S, eventually


@dataclass
class Program:
    """A process that runs."""

    process: PreparedProcess | subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> list[str]:
        return self.log.read_text().splitlines()

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.said if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE_S)


Starter = Callable[..., Awaitable[Program]]


@pytest.fixture
async def start(api_server: ApiServer, namespace: str, database_url: str, tmp_path: Path) -> AsyncIterator[Starter]:
    """Start the expiry, without `forked` as a person would; all end with the test."""
    programs: list[Program] = []

    async def starter(
        *arguments: str, kubeconfig: Path = api_server.kubeconfig, forked: bool = True, **variables: str
    ) -> Program:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
        environment |= {
            "GPU_DEV_DATABASE_URL": database_url,
            "GPU_DEV_CLUSTER": "kubernetes",
            "GPU_DEV_KUBERNETES__KUBECONFIG": str(kubeconfig),
            "GPU_DEV_ENFORCEMENT__ENABLED": "true",
            "GPU_DEV_ENFORCEMENT__NAMESPACE_LABEL": f"test.example/enforced={namespace}",
            "GPU_DEV_ENFORCEMENT__LEASE_NAMESPACE": namespace,
            "GPU_DEV_ENFORCEMENT__LEASE_S": "3",
            "GPU_DEV_ENFORCEMENT__RENEW_WITHIN_S": "2",
            "GPU_DEV_ENFORCEMENT__RETRY_S": "0.3",
            "GPU_DEV_ENFORCEMENT__LOOK_S": "0.5",
            **variables,
        }
        log = tmp_path / f"expiry-{len(programs)}.log"
        program = Program(started(("reservation_expiry", *arguments), environment, log, forked=forked), log)
        programs.append(program)
        return program

    async with api_server.client() as client:
        body = {"metadata": {"labels": {"test.example/enforced": namespace}}}
        await client.call("PATCH", f"/api/v1/namespaces/{namespace}", body, content_type=MERGE)
    yield starter
    for program in programs:
        program.process.send_signal(signal.SIGKILL)
        await program.ended()


@dataclass
class Pods:
    """The pods of the test's namespace."""

    server: ApiServer
    namespace: str

    async def make(self, name: str, end: datetime, **more: str) -> None:
        """A pod that has to go then; with an `owner` and a `booking` one that uses a GPU of it."""
        marks = {"gpu-dev/owner": "alice", "gpu-dev/terminate-at": end.strftime("%Y-%m-%dT%H:%M:%SZ")}
        marks |= {f"gpu-dev/{mark}": value for mark, value in more.items()}
        container: dict[str, Any] = {"name": "c", "image": "registry.test/c:1", "command": ["sleep", "600"]}
        if "booking" in more:
            container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        body = {
            "metadata": {"name": name, "annotations": marks},
            "spec": {"nodeName": "node-a", "terminationGracePeriodSeconds": 1, "containers": [container]},
        }
        async with self.server.client() as client:
            await client.call("POST", f"/api/v1/namespaces/{self.namespace}/pods", body)

    async def there(self) -> list[str]:
        """Those that nobody has asked to go."""
        async with self.server.client() as client:
            found = (await client.call("GET", f"/api/v1/namespaces/{self.namespace}/pods"))["items"]
        return sorted(pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"])

    async def events(self) -> list[tuple[str, str]]:
        async with self.server.client() as client:
            path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
            found = (await client.call("GET", path))["items"]
        ours = [event for event in found if event.get("reportingController") == "reservation-expiry"]
        return sorted((event["regarding"]["name"], event["reason"]) for event in ours)


@pytest.fixture
def pods(api_server: ApiServer, namespace: str, kubelet: Kubelet) -> Pods:
    return Pods(api_server, namespace)


async def recorded(database_url: str, kind: str) -> list[str]:
    engine = create_async_engine(database_url)
    async with engine.connect() as connection:
        found = await connection.execute(text("SELECT subject FROM events WHERE kind = :kind"), {"kind": kind})
        subjects = sorted(str(row.subject) for row in found)
    await engine.dispose()
    return subjects


def now() -> datetime:
    return datetime.now(UTC)


async def test_a_run_ends_what_is_due_and_leaves_the_rest(
    start: Starter, pods: Pods, namespace: str, database_url: str
) -> None:
    await pods.make("due", now() - timedelta(minutes=1))
    await pods.make("soon", now() + timedelta(minutes=10))
    await pods.make("later", now() + timedelta(hours=2))
    assert await (await start(forked=False)).ended() == 0
    assert await pods.there() == ["later", "soon"]
    assert await recorded(database_url, "pod_end_asked") == [f"pod:{namespace}/due"]
    assert await pods.events() == [("due", "Ending")]


async def test_a_watch_ends_pods_as_soon_as_they_are_due_and_ends_in_order(start: Starter, pods: Pods) -> None:
    watching = await start("--watch", forked=False)
    await eventually(lambda: watching.logged("leading"))
    end = now() + timedelta(seconds=3)
    await pods.make("short", end)
    await pods.make("later", end + timedelta(hours=1))

    async def short_is_gone() -> bool:
        return await pods.there() == ["later"]

    await eventually(short_is_gone)
    assert now() >= end.replace(microsecond=0)

    async def told() -> bool:
        return ("short", "Ending") in await pods.events()

    await eventually(told)
    watching.process.send_signal(signal.SIGTERM)
    assert await watching.ended() == 0


async def test_a_watch_ends_the_youngest_of_pods_that_were_let_in_at_once(
    start: Starter, pods: Pods, runtime: Runtime, database_url: str
) -> None:
    async with control_plane(runtime) as control:
        booking = await control.book("ann@lab.org", gpus=2, gpu_type="h100")
        watching = await start("--watch")
        await eventually(lambda: watching.logged("leading"))
        end = now() + timedelta(hours=1)
        names = [f"race-{number}" for number in range(6)]
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(pods.make(name, end, owner="ann@lab.org", booking=booking["id"]))

        async def two_left() -> bool:
            return len(await pods.there()) == 2 and len(watching.logged("pods ended")) > 0

        await eventually(two_left)
        left = await pods.there()
        # Pods are made in whole seconds: of the same second, `late` would not be the youngest.
        second = now().replace(microsecond=0)
        await eventually(lambda: now() >= second + timedelta(seconds=1))
        await pods.make("late", end, owner="ann@lab.org", booking=booking["id"])

        async def late_was_asked() -> bool:
            return "late" not in await pods.there()

        await eventually(late_was_asked)
        assert await pods.there() == left
        assert len(await recorded(database_url, "pod_displaced")) == 5
        ended = {*names, "late"} - {*left}

        async def told() -> bool:
            return {name for name, reason in await pods.events() if reason == "Ending"} == ended

        await eventually(told)


async def test_when_the_one_that_watches_is_killed_another_goes_on(
    start: Starter, pods: Pods, namespace: str, database_url: str
) -> None:
    first = await start("--watch")
    await eventually(lambda: first.logged("leading"))
    second = await start("--watch")
    await pods.make("one", now())
    await eventually(lambda: gone(pods, "one"))
    first.process.send_signal(signal.SIGKILL)
    await first.ended()
    await pods.make("two", now())
    await eventually(lambda: gone(pods, "two"))
    assert second.logged("leading")
    expected = [f"pod:{namespace}/one", f"pod:{namespace}/two"]
    assert await recorded(database_url, "pod_end_asked") == expected

    async def forgotten() -> bool:
        return await remembered(database_url) == 0

    await eventually(forgotten)


async def gone(pods: Pods, name: str) -> bool:
    return name not in await pods.there()


async def remembered(database_url: str) -> int:
    engine = create_async_engine(database_url)
    async with engine.connect() as connection:
        count = (await connection.execute(text("SELECT count(*) FROM pod_endings"))).scalar_one()
    await engine.dispose()
    return int(count)


async def test_killed_between_the_note_and_the_eviction(
    start: Starter, pods: Pods, namespace: str, database_url: str, fault_proxy: FaultProxy
) -> None:
    """It is noted once, and the next run does it."""
    await pods.make("due", now() - timedelta(minutes=1))
    hung = fault_proxy.inject(Harm.HANG, "POST", "/eviction")
    first = await start(kubeconfig=fault_proxy.kubeconfig())
    await eventually(lambda: hung.used)
    first.process.send_signal(signal.SIGKILL)
    await first.ended()
    assert await pods.there() == ["due"]
    assert await recorded(database_url, "pod_end_asked") == [f"pod:{namespace}/due"]
    fault_proxy.behave()
    assert await (await start(kubeconfig=fault_proxy.kubeconfig())).ended() == 0
    assert await pods.there() == []
    assert await recorded(database_url, "pod_end_asked") == [f"pod:{namespace}/due"]


async def test_an_eviction_whose_answer_is_lost_is_done_once(
    start: Starter, pods: Pods, namespace: str, database_url: str, fault_proxy: FaultProxy
) -> None:
    await pods.make("due", now() - timedelta(minutes=1))
    lost = fault_proxy.inject(Harm.DROP_ANSWER, "POST", "/eviction", times=1)
    assert await (await start(kubeconfig=fault_proxy.kubeconfig())).ended() == 0
    assert lost.used == 1
    assert await pods.there() == []
    assert await recorded(database_url, "pod_end_asked") == [f"pod:{namespace}/due"]


async def test_a_watch_answers_whoever_watches_over_it(start: Starter) -> None:
    watching = await start("--watch", GPU_DEV_HEALTH_LISTEN="127.0.0.1:0")
    await eventually(lambda: watching.logged("health_listening"))
    [listening] = watching.logged("health_listening")
    async with httpx.AsyncClient(base_url=listening["address"], trust_env=False, timeout=60) as asked:
        assert (await asked.get("/healthz")).status_code == 200
        assert (await asked.get("/readyz")).status_code == 200
    watching.process.send_signal(signal.SIGTERM)
    assert await watching.ended() == 0


async def test_a_watch_where_nothing_is_enforced_says_so(start: Starter) -> None:
    program = await start("--watch", GPU_DEV_ENFORCEMENT__ENABLED="false")
    assert await program.ended() == 2
    assert any("GPU_DEV_ENFORCEMENT__ENABLED=true" in line for line in program.said)
