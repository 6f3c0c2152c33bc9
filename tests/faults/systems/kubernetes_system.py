"""An installation under test on Kubernetes: all of ours reaches the API server through a proxy that does harm."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import structlog

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.domain.statuses import Role
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.people.identities import Principal
from reservation_core.runtime.settings.components import StandaloneSettings
from reservation_core.runtime.wiring import open_runtime
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_processor.leading import pause
from tests.faults.systems.invariants import assert_never_doubled, waiting_messages
from tests.faults.systems.records import Records
from tests.faults.systems.system import QUICK, System
from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.nodes import NodeSpec
from tests.waiting import eventually

TIMEOUT_S = 2.0
"""How long a request may take. All attempts of one together take at most 2.5 times that."""

LATE_S = 3.0
"""How much later than it was given up a request is carried out at most."""

START_ALLOWANCE_S = 8.0
LONGER_S = float(os.environ.get("FAULTS_PARTITION_S", "12"))
"""Longer than any patience of an installation here: requests, lease, visibility, starts, silence of a watch."""

PATIENCE = {"visibility_s": 2, "end_grace_s": 5, "ending_patience_s": 2}
_OPEN = "SELECT reservation_id FROM allocations WHERE held OR released_at IS NULL"
_LEFT = "SELECT id, status, reason_code, outcome, attempt FROM reservations WHERE finished_at IS NULL"

_log = structlog.get_logger(__name__)
_numbers = count()


@dataclass(frozen=True, slots=True)
class KubernetesInstallation(System):
    """A System whose cluster is Kubernetes. `variables` are what its processes are given of that."""

    variables: Mapping[str, str]
    server: ApiServer
    proxy: FaultProxy
    kubelet: Kubelet
    namespace: str

    def environment(self, **settings: object) -> dict[str, str]:
        """What a process of this installation is given."""
        return {**System.environment(self, **{**PATIENCE, **settings}), **self.variables}

    async def objects(self, plural: str) -> list[JsonObject]:
        """What there is of `pods` or `services`, asked of the API server itself."""
        async with self.server.client() as client:
            return list((await client.call("GET", f"/api/v1/namespaces/{self.namespace}/{plural}"))["items"])

    @asynccontextmanager
    async def at_work(self, **settings: object) -> AsyncIterator[None]:
        """A processor in a process of its own, and expiry and updater again and again, while the block runs."""
        stop = asyncio.Event()

        async def expire() -> None:
            await self.expire(**{**PATIENCE, **settings})

        async def update() -> None:
            await update_inventory(self.runtime.uow, self.runtime.cluster, self.runtime.clock)

        with self.processor(**settings):
            tasks = [asyncio.create_task(_again_and_again(step, stop)) for step in (expire, update)]
            try:
                yield
            finally:
                stop.set()
                await asyncio.gather(*tasks)


async def _again_and_again(step: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            await step()
        except ClusterUnavailableError as problem:
            _log.info("not now", problem=str(problem))
        await pause(stop, 0.5)


@asynccontextmanager
async def open_kubernetes_installation(
    url: str, folder: Path, server: ApiServer, namespace: str, nodes: Mapping[str, int], late_s: float = LATE_S
) -> AsyncIterator[KubernetesInstallation]:
    """An installation on a migrated database, on nodes of its own (name to cards), with one administrator."""
    pool = f"faults-{next(_numbers)}"
    specs = [NodeSpec(name, gpus=gpus, labels={"gpu-dev/pool": pool}) for name, gpus in nodes.items()]
    async with server.client() as client:
        body = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        await client.try_call("POST", "/apis/node.k8s.io/v1/runtimeclasses", body)
    with FaultProxy(server) as proxy, Kubelet(server, specs, namespace=namespace) as kubelet:
        kubernetes: dict[str, Any] = {
            "kubeconfig": proxy.kubeconfig(name=f"proxied-{pool}"),
            "namespace": namespace,
            "node_selector": f"gpu-dev/pool={pool}",
            "default_image": "registry.test/workload:1",
            "request_timeout_s": TIMEOUT_S,
            "watch_silence_s": TIMEOUT_S * 1.5,
            "call_limit_s": TIMEOUT_S * 2.5,
            "late_s": late_s,
        }
        variables = {f"GPU_DEV_KUBERNETES__{name.upper()}": str(value) for name, value in kubernetes.items()}
        variables |= {"GPU_DEV_CLUSTER": "kubernetes", "GPU_DEV_GPU__PIN": "nodeName"}
        home = folder / "home"
        home.mkdir()
        settings = StandaloneSettings.model_validate(
            {**QUICK, "home": home, "cluster": "kubernetes", "gpu": {"pin": "nodeName"}, "kubernetes": kubernetes}
        )
        async with open_runtime(settings, url, application="faults") as runtime:
            engine = open_engine(url, pool=2, application="faults")
            async with runtime.uow() as uow:
                user = await uow.identities.create_user("ada", Role.ADMIN, runtime.clock.now())
            await update_inventory(runtime.uow, runtime.cluster, runtime.clock)
            owner = Principal(user.id, user.name, user.role, "tok-x", None)
            records = Records(folder / "records")
            try:
                yield KubernetesInstallation(
                    runtime, engine, url, home, "", records, owner, variables, server, proxy, kubelet, namespace
                )
            finally:
                proxy.behave()
                await engine.dispose()


async def assert_nothing_left(system: KubernetesInstallation) -> None:
    """Everything has ended and is closed: jobs, ledger, pods, services, processes, messages; no card was held twice."""

    async def over() -> bool:
        return not await left_over(system)

    try:
        await eventually(over)
    except AssertionError:
        raise AssertionError(str(await left_over(system))) from None
    await assert_never_doubled(system)
    assert system.kubelet.double_use == []


async def left_over(system: KubernetesInstallation) -> dict[str, object]:
    """What has not come to its end; empty when all has."""
    found: dict[str, object] = {
        "jobs": [tuple(row) for row in await system.rows(_LEFT)],
        "ledger": [tuple(row) for row in await system.rows(_OPEN)],
        "pods": [(pod["metadata"]["name"], pod["status"].get("phase")) for pod in await system.objects("pods")],
        "services": [service["metadata"]["name"] for service in await system.objects("services")],
        "processes": system.kubelet.running(),
        "workloads": sorted(system.records.open()),
        "messages": await waiting_messages(system),
    }
    return {name: value for name, value in found.items() if value}
