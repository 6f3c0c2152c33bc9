"""One pod's life on a test kubelet's node, from being bound to being gone."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from tests.kubernetes.api_client import MERGE, ApiAnswerError, JsonObject
from tests.kubernetes.emulated.store import stamp, utc_now
from tests.kubernetes.node import pod_bodies
from tests.kubernetes.node.containers import Container
from tests.kubernetes.nodes import NodeSpec

if TYPE_CHECKING:
    from tests.kubernetes.node.kubelet import Kubelet

_DEADLINE = "Pod was active on the node longer than the specified deadline"
_LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi."


class Way(Enum):
    """How a pod may fare other than well."""

    NEVER_STARTS = "the kubelet says nothing about it"
    KEEPS_CREATING = "stays in ContainerCreating"
    IMAGE_PULL_FAILS = "ErrImagePull, then ImagePullBackOff, as the registry does not answer"
    IMAGE_NOT_FOUND = "ErrImagePull, then ImagePullBackOff, as the registry has no such image"
    IMAGE_NAME_INVALID = "InvalidImageName"
    CREATE_FAILS = "CreateContainerError"
    REFUSED = "UnexpectedAdmissionError: failed by the kubelet without a container"
    OUT_OF_MEMORY = "starts, and is OOMKilled"
    EVICTED = "starts, and is evicted by its node"
    VANISHES = "starts, and its processes end without a word: the status goes on saying Running"


_KEPT_BACK = (
    Way.NEVER_STARTS,
    Way.KEEPS_CREATING,
    Way.IMAGE_PULL_FAILS,
    Way.IMAGE_NOT_FOUND,
    Way.IMAGE_NAME_INVALID,
    Way.CREATE_FAILS,
)


class Node:
    """What pods of one node share."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.answering = asyncio.Event()
        self.answering.set()
        self.workers: set[PodWorker] = set()


class PodWorker:
    """Looks after one pod. `holds` while processes of it exist."""

    def __init__(self, kubelet: "Kubelet", node: Node, pod: JsonObject) -> None:
        self.kubelet = kubelet
        self.node = node
        self.pod = pod
        self.changed = asyncio.Event()
        self.container: Container | None = None
        self.holds = False
        self._gone = False
        self._started_at: str | None = None
        node.workers.add(self)
        self.task = asyncio.create_task(self._live(), name=self.name)

    @property
    def name(self) -> str:
        """Of the pod."""
        return str(self.pod["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Of the pod."""
        return str(self.pod["metadata"]["namespace"])

    @property
    def cards(self) -> set[str]:
        """What CUDA_VISIBLE_DEVICES names."""
        env = {
            variable["name"]: variable.get("value", "") for variable in self.pod["spec"]["containers"][0].get("env", [])
        }
        return {card for card in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if card}

    def see(self, pod: JsonObject) -> None:
        """What the watch shows; it may be behind what this worker wrote itself."""
        if int(pod["metadata"]["resourceVersion"]) < int(self.pod["metadata"]["resourceVersion"]):
            return
        self.pod = pod
        self.changed.set()

    def gone(self) -> None:
        """The object exists no more."""
        self._gone = True
        self.changed.set()

    def abandon(self) -> None:
        """End what runs, without a word to anybody."""
        self.task.cancel()
        if self.container is not None:
            self.container.kill()

    async def _live(self) -> None:
        try:
            if self.pod["status"].get("phase") in ("Pending", None):
                await self._start()
            if self.holds and self.container is not None:
                await self._look_after(self.container)
            await self._until(self._unwanted)
            await self._remove()
        finally:
            if self.holds and self.container is not None:  # it has started, and that could not be said any more
                self.container.kill()
                await self.container.wait()
            self.node.workers.discard(self)
            if self._gone:
                self.kubelet.workers.pop(self.pod["metadata"]["uid"], None)

    @property
    def _deleted(self) -> bool:
        return bool(self.pod["metadata"].get("deletionTimestamp"))

    def _unwanted(self) -> bool:
        return self._gone or self._deleted

    @property
    def _way(self) -> Way | None:
        return self.kubelet.way_of(self.name)

    def _way_has_changed(self, since: Way | None) -> bool:
        return self._way is not since or self._unwanted()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def _start(self) -> None:
        """Until the container runs, or never will."""
        if (refusal := self._refusal()) is not None:
            await self._say(refusal)
            return
        while (way := self._way) in _KEPT_BACK and not self._unwanted():
            await self._say_why_not(way)
            await self._until(partial(self._way_has_changed, way))
        if self._unwanted():
            return
        await self._say(pod_bodies.pending(self.pod, "ContainerCreating"))
        await self.node.answering.wait()
        if self._unwanted():
            return
        self.container = container = self.kubelet.container_for(self.pod)
        self._note_double_use()
        try:
            await container.start()
        except OSError as problem:
            container.log.close()
            await self._say(_start_error(self.pod, problem))
            return
        self.holds = True
        self.kubelet.started.append(self.name)
        self._started_at = stamp(utc_now())
        await self._say(pod_bodies.running(self.pod, self._started_at))

    def _refusal(self) -> JsonObject | None:
        """What the kubelet's own admission says against the pod."""
        if self._way is Way.REFUSED:
            why = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
            message = f"{why}{self.node.spec.resource}, which is unexpected"
            return pod_bodies.refused(self.pod, "UnexpectedAdmissionError", message)
        resource = self.node.spec.resource
        used = sum(_requested(neighbour.pod, resource) for neighbour in self._neighbours())
        wanted = _requested(self.pod, resource)
        if wanted and used + wanted > self.node.spec.gpus:
            why = f"Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, "
            return pod_bodies.refused(self.pod, f"OutOf{resource}", f"{why}capacity: {self.node.spec.gpus}")
        return None

    def _neighbours(self) -> list["PodWorker"]:
        return [other for other in self.node.workers if other is not self and other.holds]

    def _note_double_use(self) -> None:
        for other in self._neighbours():
            if shared := self.cards & other.cards:
                self.kubelet.double_use.append(
                    f"{self.name} and {other.name}: {sorted(shared)} of {self.node.spec.name}"
                )

    async def _say_why_not(self, way: Way | None) -> None:
        image = self.pod["spec"]["containers"][0]["image"]
        match way:
            case Way.KEEPS_CREATING:
                await self._say(pod_bodies.pending(self.pod, "ContainerCreating"))
            case Way.IMAGE_PULL_FAILS | Way.IMAGE_NOT_FOUND:
                answer = "not found" if way is Way.IMAGE_NOT_FOUND else "dial tcp 192.0.2.1:443: i/o timeout"
                why = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {answer}'
                await self._say(pod_bodies.pending(self.pod, "ErrImagePull", why))
                backing_off = f'Back-off pulling image "{image}": ErrImagePull: {why}'
                await self._say(pod_bodies.pending(self.pod, "ImagePullBackOff", backing_off))
            case Way.IMAGE_NAME_INVALID:
                why = (
                    f'Failed to apply default image tag "{image}": couldn\'t parse image name: invalid reference format'
                )
                await self._say(pod_bodies.pending(self.pod, "InvalidImageName", why))
            case Way.CREATE_FAILS:
                why = "failed to generate container spec: failed to apply OCI options: no command specified"
                await self._say(pod_bodies.pending(self.pod, "CreateContainerError", why))
            case _:
                return

    async def _look_after(self, container: Container) -> None:
        """Until the container has terminated and that was said."""
        end = asyncio.create_task(container.wait())
        try:
            ended = await self._wait_for_end(container, end)
        finally:
            if not end.done():
                container.kill()
                await end
            self.holds = False
        if ended is not None:
            await self._say(ended)

    async def _wait_for_end(self, container: Container, end: "asyncio.Task[int]") -> JsonObject | None:
        """The status to write, None to write none."""
        while True:
            self.changed.clear()
            if end.done():
                return pod_bodies.ended(self.pod, end.result(), self._started_at)
            if self._gone and self.node.answering.is_set():
                return None
            if self._deleted and self.node.answering.is_set():
                return pod_bodies.ended(self.pod, await self._shut_down(container, end), self._started_at)
            if self._overdue():
                code = await self._shut_down(container, end)
                why = "DeadlineExceeded"
                return pod_bodies.ended(self.pod, code, self._started_at, reason=why, message=_DEADLINE)
            match self._way:
                case Way.OUT_OF_MEMORY:
                    container.kill()
                    return pod_bodies.ended(self.pod, await end, self._started_at, container_reason="OOMKilled")
                case Way.EVICTED:
                    code = await self._shut_down(container, end, grace=0)
                    why = "Evicted"
                    return pod_bodies.ended(self.pod, code, self._started_at, reason=why, message=_LOW, disruption=True)
                case Way.VANISHES:
                    container.kill()
                    await end
                    self.holds = False
                    await self._until(lambda: self._unwanted() or self._way is not Way.VANISHES)
                    return pod_bodies.ended(self.pod, end.result(), self._started_at)
                case _:
                    await self._wait_for_news(end)

    async def _wait_for_news(self, end: "asyncio.Task[int]") -> None:
        news = asyncio.create_task(self.changed.wait())
        try:
            due = self._due_at()
            left = None if due is None else max(0.0, (due - utc_now()).total_seconds())
            await asyncio.wait({end, news}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()

    def _due_at(self) -> datetime | None:
        seconds, start = self.pod["spec"].get("activeDeadlineSeconds"), self.pod["status"].get("startTime")
        if seconds is None or start is None:
            return None
        return datetime.fromisoformat(start) + timedelta(seconds=seconds)

    def _overdue(self) -> bool:
        due = self._due_at()
        return due is not None and utc_now() >= due

    async def _shut_down(self, container: Container, end: "asyncio.Task[int]", grace: float | None = None) -> int:
        """SIGTERM, the grace that the object says (which may shrink meanwhile), SIGKILL; the exit code."""
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        container.terminate()
        while not end.done():
            self.changed.clear()
            seconds = grace
            if seconds is None:
                whole = self.pod["spec"]["terminationGracePeriodSeconds"]
                seconds = float(self.pod["metadata"].get("deletionGracePeriodSeconds", whole))
            left = asked_at + seconds - clock()
            if self._gone or left <= 0:
                container.kill()
                break
            news = asyncio.create_task(self.changed.wait())
            await asyncio.wait({end, news}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        return await end

    async def _say(self, status: JsonObject) -> None:
        """Write the pod's status, once the node answers; a pod that is not there any more has none."""
        await asyncio.sleep(self.kubelet.report_delay_s)
        await self.node.answering.wait()
        if self._gone:
            return
        body = {"metadata": {"uid": self.pod["metadata"]["uid"]}, "status": status}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/status"
        try:
            self.see(await self.kubelet.api.call("PATCH", path, body, content_type=MERGE))
        except ApiAnswerError as problem:
            if problem.code not in (404, 409) and "metadata.uid" not in str(problem):
                raise  # those mean: gone, or another pod of that name

    async def _remove(self) -> None:
        """Let the API server forget a deleted pod whose containers are over."""
        await self.node.answering.wait()
        if not self._gone:
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod["metadata"]["uid"]}}
            path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
            await self.kubelet.api.try_call("DELETE", path, options)
            await self._until(lambda: self._gone)


def _requested(pod: JsonObject, resource: str) -> int:
    resources = pod["spec"]["containers"][0].get("resources") or {}
    return int((resources.get("limits") or {}).get(resource, 0))


def _start_error(pod: JsonObject, problem: OSError) -> JsonObject:
    """What a container runtime says of a command that it can't run."""
    command = (pod["spec"]["containers"][0].get("command") or [""])[0]
    why = "permission denied" if isinstance(problem, PermissionError) else "executable file not found in $PATH"
    message = (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        f'unable to start container process: error during container init: exec: "{command}": {why}: unknown'
    )
    return pod_bodies.ended(pod, 128, None, container_reason="StartError", container_message=message)
