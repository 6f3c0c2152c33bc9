"""A kubelet for tests: it speaks only the API, and really runs what containers say, as processes of this machine.

One `Kubelet` stands for all nodes of a test. It lives in a thread of its own; every public method may be called from
any thread. What goes wrong on demand is a `Way`, see `let`.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tests.kubernetes.api_client import MERGE, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.background import Background
from tests.kubernetes.node.containers import Container, PretendedContainer, ProcessContainer, Reaper
from tests.kubernetes.node.logs import LogServer
from tests.kubernetes.node.pods import Node, PodWorker, Way
from tests.kubernetes.node.streams import Streams
from tests.kubernetes.nodes import NodeSpec, ready_condition

_SILENT = [
    {"key": "node.kubernetes.io/unreachable", "effect": effect, "timeAdded": None}
    for effect in ("NoSchedule", "NoExecute")
]


_FIELDS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "spec.nodeName": ("spec", "nodeName"),
}


def _with_fields(pod: JsonObject) -> JsonObject:
    """The pod's first container, its variables from fields of the pod looked up (downward API)."""
    container = dict(pod["spec"]["containers"][0])
    variables = []
    for variable in container.get("env") or []:
        path = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        if path in _FIELDS:
            part, name = _FIELDS[path]
            variable = {"name": variable["name"], "value": pod[part][name]}
        variables.append(variable)
    return {**container, "env": variables}


class Kubelet(Background):
    """Registers `nodes` and runs the pods bound to them; with `namespace` only that namespace's.

    `pretend_s` runs nothing: a container is said to run for so many seconds (0 or less: until it is told to end). With
    `resolve` a container's variable whose value is a gang's address says 127.0.0.1, as there is no cluster DNS here.
    """

    def __init__(
        self,
        server: ApiServer,
        nodes: Sequence[NodeSpec] = (NodeSpec("node-a"),),
        *,
        namespace: str | None = None,
        pretend_s: float | None = None,
        resolve: bool = False,
    ) -> None:
        super().__init__("test kubelet")
        self.server = server
        self.namespace = namespace
        self.pretend_s = pretend_s
        self.report_delay_s = 0.0  # how much later than it happens a node agent says that a container runs or is over
        self.started: list[str] = []
        self.double_use: list[str] = []
        self._specs = {spec.name: spec for spec in nodes}
        self.nodes: dict[str, Node] = {}
        self.workers: dict[str, PodWorker] = {}
        self._rules: list[tuple[str, Way]] = []
        self._resolve = resolve
        self._folder = Path(tempfile.mkdtemp(prefix="kubelet-", dir=server.folder))
        self._reaper = Reaper()
        self._port = 0
        self._client: ApiClient | None = None
        self._streams: Streams | None = None
        self._failure: BaseException | None = None

    # What tests ask for.

    def let(self, pods: str, way: Way) -> None:
        """From now on, pods whose name matches the pattern go that way: those that run now too."""
        self._rules.append((pods, way))
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def let_be(self, *but: tuple[str, Way]) -> None:
        """Forget all that `let` said `but` these, with no moment between; what was waiting goes on."""
        self._rules[:] = but
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def silence(self, node: str) -> None:
        """The node stops answering: processes go on unreported, and the control plane marks it unreachable."""
        self.call(self._silence(node))

    def answer_again(self, node: str) -> None:
        """The node is back and reports what has become of its pods meanwhile."""
        self.call(self._answer_again(node))

    def power_off(self, node: str) -> None:
        """Silence the node and end its processes unreported; what comes back with it has lost them."""
        self.call(self._power_off(node))

    def add_node(self, spec: NodeSpec) -> None:
        """Register a node, or change what one reports (its cards, say)."""
        self.call(self._register(spec))

    def remove_node(self, name: str) -> None:
        """Delete the Node object; its pods' processes go on until their objects go."""
        self.call(self.api.call("DELETE", f"/api/v1/nodes/{name}"))

    def running(self) -> list[str]:
        """Names of the pods whose processes exist now, on silent nodes too."""
        return sorted(worker.name for worker in [*self.workers.values()] if worker.holds)

    async def cut_streams(self) -> None:
        """End the connections to programs and ports; programs run on. To be run by `call`."""
        assert self._streams is not None
        await self._streams.cut()

    # The rest is for the thread of its own.

    @property
    def api(self) -> ApiClient:
        """Open while the thread lives."""
        assert self._client is not None
        return self._client

    @property
    def reaper(self) -> Reaper:
        """What ends processes when nobody else does."""
        return self._reaper

    def way_of(self, pod: str) -> Way | None:
        """The newest rule that matches."""
        return next((way for pattern, way in reversed(self._rules) if fnmatchcase(pod, pattern)), None)

    def container_for(self, pod: JsonObject) -> Container:
        """What will run the pod's first container."""
        if self.pretend_s is not None:
            return PretendedContainer(self.pretend_s if self.pretend_s > 0 else None)
        hostname = pod["spec"].get("hostname") or pod["metadata"]["name"]
        names: dict[str, str] = {}
        subdomain = pod["spec"].get("subdomain")
        if self._resolve and subdomain:
            for variable in pod["spec"]["containers"][0].get("env", []):
                value = variable.get("value", "")
                if value.split(".")[1:2] == [subdomain]:
                    names[value] = "127.0.0.1"
        folder = self._folder / pod["metadata"]["uid"]
        return ProcessContainer(_with_fields(pod), folder, hostname, self.reaper, names)

    async def _live(self) -> None:
        try:
            logs = LogServer(self._find_log, tls_folder=self._tls())
            async with self.server.client() as client, logs as port:
                self._client, self._port, self._streams = client, port, logs.streams
                try:
                    for spec in [*self._specs.values()]:
                        await self._register(spec)
                    await self._follow()
                finally:  # while their connections are still open
                    await self._abandon_all()
        except asyncio.CancelledError:
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            try:
                async with self.server.client() as client:
                    for name in self._specs:
                        await client.try_call("DELETE", f"/api/v1/nodes/{name}")
            finally:
                await asyncio.to_thread(self.reaper.close)
                await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _abandon_all(self) -> None:
        workers = [*self.workers.values()]
        for worker in workers:
            worker.abandon()
        await asyncio.gather(*(worker.task for worker in workers), return_exceptions=True)

    def _tls(self) -> Path | None:
        """A real API server reaches kubelets over TLS only."""
        return self._folder if self.server.real else None

    async def _register(self, spec: NodeSpec) -> None:
        body = spec.body(self._port)
        self._specs[spec.name] = spec
        self.nodes.setdefault(spec.name, Node(spec)).spec = spec
        path = f"/api/v1/nodes/{spec.name}"
        if not await self.api.try_call("POST", "/api/v1/nodes", body):
            await self.api.call("PATCH", path, {key: body[key] for key in ("metadata", "spec")}, content_type=MERGE)
        for status in ({"capacity": None, "allocatable": None}, body["status"]):  # a merge alone keeps what went
            await self.api.call("PATCH", f"{path}/status", {"status": status}, content_type=MERGE)
        untainted = {"spec": {"taints": [dict(taint) for taint in spec.taints] or None}}
        await self.api.call("PATCH", path, untainted, content_type=MERGE)  # admission marks a new node not-ready

    async def _follow(self) -> None:
        scope = f"/namespaces/{self.namespace}" if self.namespace else ""
        listed: set[str] | None = None
        async for kind, pod in self.api.follow(f"/api/v1{scope}/pods"):
            if kind == "RELIST":
                listed = set()
            elif kind == "LISTED":
                for uid in self.workers.keys() - (listed or set()):
                    self.workers[uid].gone()
                listed = None
                self._is_up()
            else:
                if listed is not None:
                    listed.add(pod["metadata"]["uid"])
                self._see(kind, pod)

    def _see(self, kind: str, pod: JsonObject) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        worker = self.workers.get(uid)
        if worker is not None:
            if kind == "DELETED":
                worker.gone()
            else:
                worker.see(pod)
        elif kind != "DELETED" and node in self.nodes:
            self.workers[uid] = worker = PodWorker(self, self.nodes[node], pod)
            worker.task.add_done_callback(self._notice)

    def _notice(self, over: "asyncio.Task[None]") -> None:
        """A worker that fails is a fault of the test cluster: end loudly."""
        if not over.cancelled() and (problem := over.exception()) is not None and self._task is not None:
            self._failure = problem
            self._task.cancel()

    def _wake(self) -> None:
        for worker in self.workers.values():
            worker.changed.set()

    def _find_log(self, namespace: str, pod: str) -> Container | str | None:
        """The container, why there is no log yet, or None for a pod that is not here."""
        found = [worker for worker in self.workers.values() if (worker.namespace, worker.name) == (namespace, pod)]
        if not found or not found[-1].node.answering.is_set():
            return None
        worker = found[-1]
        if worker.container is None:
            name = worker.pod["spec"]["containers"][0]["name"]
            return f'container "{name}" in pod "{pod}" is waiting to start: ContainerCreating'
        return worker.container

    async def _silence(self, node: str) -> None:
        self.nodes[node].answering.clear()
        path = f"/api/v1/nodes/{node}"
        status = {"status": {"conditions": [ready_condition("Unknown")]}}
        await self.api.call("PATCH", f"{path}/status", status, content_type=MERGE)
        taints = [*(dict(taint) for taint in self._specs[node].taints), *_SILENT]
        await self.api.call("PATCH", path, {"spec": {"taints": taints}}, content_type=MERGE)

    async def _answer_again(self, node: str) -> None:
        await self._register(self._specs[node])
        self.nodes[node].answering.set()
        self._wake()

    async def _power_off(self, node: str) -> None:
        await self._silence(node)
        for worker in self.workers.values():
            if worker.node.spec.name == node and worker.container is not None:
                worker.container.kill()
