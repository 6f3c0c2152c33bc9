"""Nodes with cards, pods that ask for them, and quotas, on a test's API server; names that no other test uses."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.api_client import MERGE, ApiClient, JsonObject
from tests.waiting import eventually

CORE = "tencent.com/vcuda-core"
MEMORY = "tencent.com/vcuda-memory"
WHOLE = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
H100 = "NVIDIA-H100-80GB-HBM3"


def container(name: str = "main", **amounts: int) -> JsonObject:
    """A container that asks for `gpu`, `core` and `memory`."""
    names = {"gpu": WHOLE, "core": CORE, "memory": MEMORY}
    limits = {names[key]: str(amount) for key, amount in amounts.items()}
    return {"name": name, "image": "registry.test/workload:1", "resources": {"limits": limits} if limits else {}}


def card_pod(name: str, *containers: JsonObject, **spec: Any) -> JsonObject:
    """A pod of these containers."""
    return {"metadata": {"name": name}, "spec": {"containers": list(containers) or [container()], **spec}}


@dataclass
class CardCluster:
    """Nodes of its own, pods in one namespace, and a ConfigMap of quotas of its own in kube-system."""

    client: ApiClient
    namespace: str
    prefix: str = field(default_factory=lambda: f"c{uuid.uuid4().hex[:8]}")
    nodes: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Of the namespace's pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def quota_name(self) -> str:
        """Of the ConfigMap."""
        return f"{self.prefix}-gpuquota"

    async def add_node(
        self, *, gpus: int = 0, shared: int = 0, memory: int = 0, product: str = H100, pool: str | None = None
    ) -> str:
        """A node with cards of a device plugin, or `shared` ones of so many units of `memory` each; its name."""
        name = f"{self.prefix}-{len(self.nodes)}"
        self.nodes.append(name)
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "200"}
        if gpus:
            amounts[WHOLE] = str(gpus)
        if shared:
            amounts |= {CORE: str(100 * shared), MEMORY: str(memory * shared)}
        labels = {PRODUCT: product, "test-nodes": self.prefix, **({"gpu-pool": pool} if pool is not None else {})}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        await self.client.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": {}})
        await self.client.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=MERGE)
        await self.client.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, content_type=MERGE)
        return name

    async def add(self, thing: JsonObject, namespace: str | None = None) -> JsonObject:
        """Make a pod; returns it as it is stored."""
        path = self.path if namespace is None else f"/api/v1/namespaces/{namespace}/pods"
        return await self.client.call("POST", path, thing)

    async def read(self, name: str) -> JsonObject:
        """A pod as it is now."""
        return await self.client.call("GET", f"{self.path}/{name}")

    async def bound(self) -> dict[str, str]:
        """The pods that are on nodes, and these."""
        listed = (await self.client.call("GET", self.path))["items"]
        return {
            listed_pod["metadata"]["name"]: listed_pod["spec"]["nodeName"]
            for listed_pod in listed
            if listed_pod["spec"].get("nodeName")
        }

    async def eventually_bound(self, count: int) -> dict[str, str]:
        """The same, once there are so many."""

        async def there() -> bool:
            return len(await self.bound()) >= count

        await eventually(there)
        return await self.bound()

    async def cards_by_node(self) -> dict[str, dict[int, int]]:
        """What shares stand in the pods' annotations, in thousandths, by node and card."""
        found: dict[str, dict[int, int]] = {}
        for manifest in (await self.client.call("GET", self.path))["items"]:
            noted = (manifest["metadata"].get("annotations") or {}).get("gpu-dev/cards")
            if noted and manifest["spec"].get("nodeName"):
                of_node = found.setdefault(manifest["spec"]["nodeName"], {})
                for word in noted.split(","):
                    card, amount = word.split("=")
                    of_node[int(card)] = of_node.get(int(card), 0) + int(amount.partition("/")[0])
        return found

    async def put_quotas(self, quotas: Mapping[str, Any] | str | None) -> None:
        """Write the ConfigMap: quotas, or a text as it is, or without its key."""
        text = json.dumps(quotas) if isinstance(quotas, Mapping) else quotas
        path, data = "/api/v1/namespaces/kube-system/configmaps", {"gpu_quota": text}
        if not await self.client.try_call("PATCH", f"{path}/{self.quota_name}", {"data": data}, content_type=MERGE):
            await self.client.call("POST", path, {"metadata": {"name": self.quota_name}, "data": data})

    async def drop_quotas(self) -> None:
        """Remove the ConfigMap."""
        await self.client.try_call("DELETE", f"/api/v1/namespaces/kube-system/configmaps/{self.quota_name}", {})

    async def quota_events(self) -> list[JsonObject]:
        """The Events about the ConfigMap."""
        listed = await self.client.call("GET", "/apis/events.k8s.io/v1/namespaces/kube-system/events")
        return [event for event in listed["items"] if event["regarding"]["name"] == self.quota_name]

    async def clean_up(self) -> None:
        """Remove what is not in the namespace."""
        await self.drop_quotas()
        for name in self.nodes:
            await self.client.try_call("DELETE", f"/api/v1/nodes/{name}", {})
