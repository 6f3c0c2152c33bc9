"""A small extender of its own: nodes with so many whole cards, and pods that ask for some."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pod_scheduling.ports.extender import Binding, Filtered, NotSyncedError
from pod_scheduling.ports.pod_binding import BindRefusedError

GPU = "nvidia.com/gpu"


def pod(name: str = "train-0", gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """A pod as kube-scheduler sends one."""
    resources = {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}
    containers = [{"name": "main", "image": "registry.test/workload:1", "resources": resources}]
    return {
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}"},
        "spec": {"containers": containers, **spec},
        "status": {"phase": "Pending"},
    }


def node(name: str, size: int = 0) -> dict[str, Any]:
    """A node as kube-scheduler sends one, with so much beside."""
    return {"metadata": {"name": name, "annotations": {"filler": "x" * size}}, "spec": {}, "status": {}}


@dataclass
class CountingExtender:
    """Free cards by node. `synced` and `fails` are for tests to turn."""

    free: dict[str, int]
    synced: bool = True
    fails: bool = False
    is_ready: bool = True
    is_busy: bool = False
    trouble: list[str] = field(default_factory=list)
    asking: dict[str, int] = field(default_factory=dict)
    allocated: dict[str, str] = field(default_factory=dict)
    asked: int = 0

    @property
    def extender(self) -> "CountingExtender":
        """Itself: it is both what answers and what tells how it is."""
        return self

    def ready(self) -> bool:
        return self.is_ready

    def problems(self) -> list[str]:
        return self.trouble

    def numbers(self) -> Mapping[str, float]:
        return {"free_cards": sum(self.free.values()), "questions_total": self.asked}

    @property
    def silence(self) -> str | None:
        return None if self.synced else "nodes and pods are being read; the pod is tried again"

    async def turn(self) -> None:
        """It is busy no longer."""
        self.is_busy = False

    def filter(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Filtered:
        self._check()
        wanted = self.asking[pod["metadata"]["uid"]] = _gpus(pod)
        fitting = tuple(name for name in nodes if self.free.get(name, -1) >= wanted)
        unknown = {name: f"{name} is not known" for name in nodes if name not in self.free}
        failed = {name: f"{name} has {self.free[name]} of {wanted}" for name in nodes if name in self.free}
        return Filtered(fitting, {name: why for name, why in failed.items() if name not in fitting}, unknown)

    def choose(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Filtered:
        return self.filter(pod, nodes)

    def prioritize(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Sequence[int]:
        self._check()
        return [max(0, 10 - self.free.get(name, 0)) for name in nodes]

    def allocate(self, pod: Mapping[str, Any], node: str, *, pipelined: bool = False) -> str | None:
        found = self.filter(pod, (node,))
        if node in found.fitting and not pipelined:
            self.free[node] -= _gpus(pod)
            self.allocated[pod["metadata"]["uid"]] = node
        return found.failed.get(node) or found.unresolvable.get(node)

    def deallocate(self, pod: Mapping[str, Any], *, waits: bool) -> None:
        if waits and (node := self.allocated.pop(pod["metadata"]["uid"], None)) is not None:
            self.free[node] += _gpus(pod)

    async def bind(self, binding: Binding) -> None:
        self._check()
        wanted = self.asking.get(binding.uid, 1)
        if self.free.get(binding.node, 0) < wanted:
            raise BindRefusedError(f"{binding.node} has no {wanted} cards any more; the pod is tried again")
        self.free[binding.node] -= wanted

    def _check(self) -> None:
        self.asked += 1
        if self.fails:
            raise RuntimeError("a secret that nobody may see")
        if not self.synced:
            raise NotSyncedError("nodes and pods are being read; the pod is tried again")


def _gpus(pod: Mapping[str, Any]) -> int:
    return sum(
        int(container.get("resources", {}).get("requests", {}).get(GPU, 0)) for container in pod["spec"]["containers"]
    )
