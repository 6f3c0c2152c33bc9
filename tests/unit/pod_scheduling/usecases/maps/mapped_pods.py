"""Nodes and pods with a scheduling map, and who may lead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from pod_scheduling.domain.maps.map_placement import Burden, DeviceUse, MapNode, MappedPod
from pod_scheduling.domain.maps.scheduling_map import MapEntry
from pod_scheduling.ports.pod_binding import PodRef
from pod_scheduling.usecases.maps.bind_mapped_pods import BindRules, MapScheduler
from reservation_core.domain.pods.node_choice_terms import Terms
from tests.unit.pod_scheduling.usecases.maps.scripted_map_cluster import Pod, View

RULES = BindRules(parallel=4)
SWEEP_S = 30.0


def node(name: str = "w0", label: str = "node0", **changes: object) -> MapNode:
    made = MapNode(name, {"gpu-node-name": label}, ready=True, cordoned=False, taints=(), allocatable={"cpu": 8000})
    return replace(made, **changes)  # type: ignore[arg-type]


def pod(number: int, word: str = "node0", devices: tuple[str, ...] = ("0",), group: str = "a", cpu: int = 1000) -> Pod:
    name = f"ns/p-{number}"
    burden = Burden({"cpu": cpu}, DeviceUse(devices, group, name) if devices else None)
    mapped = MappedPod(name, MapEntry(number, word, devices), burden, Terms())
    return Pod(PodRef("ns", f"p-{number}", f"uid-{number}"), mapped)


@dataclass
class Candidate:
    """A scheduler that leads while it is let."""

    view: View
    until: float = 0.0

    def __post_init__(self) -> None:
        self.scheduler = MapScheduler(self.view, RULES, self.left_s)
        self.view.leads = lambda: self.left_s() > 0

    def left_s(self) -> float:
        return self.until - asyncio.get_running_loop().time()

    def lead_for(self, seconds: float) -> None:
        anew = self.left_s() <= 0
        self.until = asyncio.get_running_loop().time() + seconds
        if anew:
            self.scheduler.lead()


@asynccontextmanager
async def running(*candidates: Candidate) -> AsyncIterator[None]:
    async def sweep(scheduler: MapScheduler) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            scheduler.requeue_all()

    tasks = [asyncio.create_task(candidate.scheduler.run()) for candidate in candidates]
    tasks += [asyncio.create_task(sweep(candidate.scheduler)) for candidate in candidates]
    try:
        yield
    finally:
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
        for task in [*tasks, *(late for candidate in candidates for late in candidate.view.late)]:
            task.cancel()
            await asyncio.wait([task])
