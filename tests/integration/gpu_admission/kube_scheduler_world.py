"""A real kube-scheduler that calls the extender, set up by hand or as the chart has it, and questions to both."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.chart.rendering import one, render
from tests.clusters.card_cluster import CardCluster, card_pod
from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.real.kube_scheduler import started_kube_scheduler
from tests.programs.admission_process import PATIENCE_S, AdmissionProcess, admission
from tests.programs.ports import own_port
from tests.read_yaml import read_yaml
from tests.waiting import eventually

_KEPT_BACK_S = 15


def here(cards: CardCluster, name: str, *containers: JsonObject, **spec: Any) -> JsonObject:
    return card_pod(name, *containers, nodeSelector={"test-nodes": cards.prefix}, **spec)


async def add_all(cards: CardCluster, *pods: JsonObject) -> None:
    await asyncio.gather(*(cards.add(pod) for pod in pods))


async def why(cards: CardCluster, name: str) -> str:
    conditions = (await cards.read(name))["status"].get("conditions") or []
    return next((str(condition.get("message")) for condition in conditions if condition["type"] == "PodScheduled"), "")


async def everybody_was_judged(cards: CardCluster, pods: int) -> None:
    """Wait until each is bound or was told why not."""

    async def judged() -> bool:
        listed = (await cards.client.call("GET", cards.path))["items"]
        told = [
            listed_pod
            for listed_pod in listed
            if listed_pod["spec"].get("nodeName") or listed_pod["status"].get("conditions")
        ]
        return len(told) == pods

    await eventually(judged, PATIENCE_S)


async def nobody_asks(running: AdmissionProcess) -> None:
    """Wait until kube-scheduler has asked nothing for longer than it keeps back who failed (10 s)."""
    last, since = "", time.monotonic()

    async def quiet() -> bool:
        nonlocal last, since
        text = (await running.get("/metrics"))[1]
        asked = "".join(re.findall(r'^gpu_dev_admission_calls_total\{call="filter",.*', text, re.MULTILINE))
        if asked != last:
            last, since = asked, time.monotonic()
        return time.monotonic() - since > _KEPT_BACK_S

    await eventually(quiet, PATIENCE_S)


def own_scheduler(cards: CardCluster) -> str:
    """The name by which pods choose the kube-scheduler of a test."""
    return f"gpu-{cards.prefix}"


@dataclass(frozen=True)
class ChartSetUp:
    """The very options, variables and configuration that the chart renders, for a test's API server."""

    server: ApiServer
    program: Path
    cards: CardCluster
    port: int
    options: tuple[str, ...]
    settings: dict[str, str]
    configuration: Path

    def extender(self) -> AbstractAsyncContextManager[AdmissionProcess]:
        """It runs, and is killed at the block's end."""
        settings = {**self.settings, "QUOTA_NAME": self.cards.quota_name}
        return admission(self.server, self.port, *self.options, **settings)

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[None]:
        """The kube-scheduler that asks it runs while the block does."""
        try:
            with started_kube_scheduler(self.server, self.program, self.configuration):
                yield
        finally:
            lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{own_scheduler(self.cards)}"
            await self.cards.client.try_call("DELETE", lease, {})


def chart_set_up(
    server: ApiServer, program: Path, cards: CardCluster, bind: str, client: Mapping[str, float] | None = None
) -> ChartSetUp:
    """`client`: how often its kube-scheduler may ask the API server."""
    port, name = own_port(), own_scheduler(cards)
    values = {"extender": {"port": port}, "scheduler": {"name": name, "bind": bind}}
    documents = render("gpu-admission", values, namespace="kube-system")
    containers = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    (extender,) = [listed_container for listed_container in containers if listed_container["name"] == "gpu-admission"]
    known = "GPU_DEV_ADMISSION__"
    settings = {
        variable["name"].removeprefix(known): variable["value"]
        for variable in extender["env"]
        if known in variable["name"]
    }
    config = read_yaml(one(documents, "ConfigMap")["data"]["gpu-scheduler-config.yaml"])
    config["clientConnection"] = {**config.get("clientConnection", {}), "kubeconfig": str(server.kubeconfig)}
    config["clientConnection"] |= client or {}
    file = server.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    return ChartSetUp(server, program, cards, port, tuple(extender["command"][3:]), settings, file)


@asynccontextmanager
async def as_the_chart_has_it(
    server: ApiServer, program: Path, cards: CardCluster, bind: str
) -> AsyncIterator[AdmissionProcess]:
    """Extender and kube-scheduler, set up by the chart."""
    chart = chart_set_up(server, program, cards, bind)
    async with chart.extender() as running, chart.scheduler():
        yield running


async def bound_by_us(running: AdmissionProcess) -> int:
    text = (await running.get("/metrics"))[1]
    return int(float(re.findall(r"^gpu_dev_admission_bound_total (\S+)$", text, re.MULTILINE)[0]))


async def amounts_by_node(cards: CardCluster, resource: str) -> Counter[str]:
    """How much of a resource the pods on each node ask for."""
    found: Counter[str] = Counter()
    for manifest in (await cards.client.call("GET", cards.path))["items"]:
        for one_of in manifest["spec"]["containers"]:
            amount = one_of.get("resources", {}).get("limits", {}).get(resource, 0)
            found[manifest["spec"].get("nodeName", "")] += int(amount)
    return found
