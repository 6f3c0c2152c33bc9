"""A scheduler for tests: binds pods to nodes as kube-scheduler would, as far as these pods ask anything of it.

It honours required node affinity (`matchFields` on the name and `matchExpressions` on labels), node selectors, taints,
cordons, readiness by taint, and counts CPU, memory and extended resources. It prefers nothing.
"""

import asyncio
import re
from typing import Any

from tests.kubernetes.api_client import MERGE, ApiAnswerError, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.background import Background
from tests.kubernetes.emulated.store import stamp, utc_now

_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNITS |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_QUANTITY = re.compile(r"^([0-9.]+)([a-zA-Z]*)$")


class Scheduler(Background):
    """Binds the unbound pods of its name; with `namespace` only that namespace's."""

    def __init__(self, server: ApiServer, *, namespace: str | None = None, name: str = "default-scheduler") -> None:
        super().__init__("test scheduler")
        self._server = server
        self._scope = f"/namespaces/{namespace}" if namespace else ""
        self._scheduler = name
        self._pods: dict[str, JsonObject] = {}
        self._nodes: dict[str, JsonObject] = {}
        self._told: dict[str, str] = {}
        self._news = asyncio.Event()
        self._client: ApiClient | None = None

    async def _live(self) -> None:
        async with self._server.client() as client, asyncio.TaskGroup() as tasks:
            self._client = client
            tasks.create_task(self._follow(f"/api/v1{self._scope}/pods", self._pods))
            tasks.create_task(self._follow("/api/v1/nodes", self._nodes))
            self._is_up()
            while True:
                await self._news.wait()
                self._news.clear()
                for pod in [*self._pods.values()]:
                    if self._is_ours(pod):
                        await self._bind(pod)

    async def _follow(self, path: str, known: dict[str, JsonObject]) -> None:
        assert self._client is not None
        async for kind, pod in self._client.follow(path):
            if kind == "RELIST":
                known.clear()
            elif kind == "DELETED":
                known.pop(pod["metadata"]["uid"], None)
            elif kind != "LISTED":
                known[pod["metadata"]["uid"]] = pod
            self._news.set()

    def _is_ours(self, pod: JsonObject) -> bool:
        spec = pod["spec"]
        unbound = not spec.get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        return unbound and spec.get("schedulerName") == self._scheduler

    async def _bind(self, pod: JsonObject) -> None:
        assert self._client is not None
        metadata = pod["metadata"]
        objections = {node["metadata"]["name"]: self._objection(pod, node) for node in self._nodes.values()}
        node = next((name for name, objection in sorted(objections.items()) if objection is None), None)
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if node is None:
            await self._say_unschedulable(
                pod, path, [objection for objection in objections.values() if objection is not None]
            )
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": metadata["name"], "uid": metadata["uid"]}, "target": target}
        if await self._client.try_call("POST", f"{path}/binding", body):
            pod["spec"]["nodeName"] = node  # counts at once; the watch confirms it

    async def _say_unschedulable(self, pod: JsonObject, path: str, objections: list[str]) -> None:
        assert self._client is not None
        counted = [f"{objections.count(objection)} {objection}" for objection in sorted(set(objections))]
        none = f"0/{len(self._nodes)} nodes are available"
        unhelpful = f"preemption: {none}: {len(self._nodes)} Preemption is not helpful for scheduling."
        message = f"{none}: {', '.join(counted)}. no new claims to deallocate, {unhelpful}"
        if self._told.get(pod["metadata"]["uid"]) == message:
            return
        self._told[pod["metadata"]["uid"]] = message
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": stamp(utc_now()),
        }
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [condition]}}
        try:
            await self._client.call("PATCH", f"{path}/status", body, content_type=MERGE)
        except ApiAnswerError as problem:
            if problem.code not in (404, 409) and "metadata.uid" not in str(problem):
                raise  # those mean: gone, or another pod of that name

    def _objection(self, pod: JsonObject, node: JsonObject) -> str | None:
        """Why the pod can't go there, in kube-scheduler's words; None when it can."""
        if not _affine(pod["spec"], node):
            return "node(s) didn't satisfy plugin(s) [NodeAffinity]"
        if node["spec"].get("unschedulable"):
            return "node(s) were unschedulable"
        for taint in node["spec"].get("taints") or []:
            if taint["effect"] != "PreferNoSchedule" and not _tolerated(taint, pod["spec"].get("tolerations") or []):
                return "node(s) had untolerated taint(s)"
        allocatable = node["status"].get("allocatable") or {}
        there = [
            known_pod
            for known_pod in self._pods.values()
            if known_pod["spec"].get("nodeName") == node["metadata"]["name"]
            and known_pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]
        for resource, wanted in _requests(pod).items():
            used = sum(_requests(known_pod).get(resource, 0.0) for known_pod in there)
            if used + wanted > _quantity(allocatable.get(resource, "0")):
                return f"Insufficient {resource}"
        return None


def _affine(spec: JsonObject, node: JsonObject) -> bool:
    labels, name = node["metadata"].get("labels") or {}, node["metadata"]["name"]
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(
        all(_holds(field, {"metadata.name": name}) for field in term.get("matchFields") or [])
        and all(_holds(expression, labels) for expression in term.get("matchExpressions") or [])
        for term in required["nodeSelectorTerms"]
    )


def _holds(expression: JsonObject, values: JsonObject) -> bool:
    value: Any = values.get(expression["key"])
    listed = expression.get("values") or []
    answers = {
        "In": value in listed,
        "NotIn": value not in listed,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return answers[expression["operator"]]


def _tolerated(taint: JsonObject, tolerations: list[JsonObject]) -> bool:
    return any(
        toleration.get("effect") in (None, "", taint["effect"])
        and toleration.get("key") in (None, "", taint["key"])
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
        for toleration in tolerations
    )


def _requests(pod: JsonObject) -> dict[str, float]:
    total: dict[str, float] = {}
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        for key, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            total[key] = total.get(key, 0.0) + _quantity(value)
    return total


def _quantity(text: str) -> float:
    found = _QUANTITY.match(str(text))
    if found is None:
        raise ValueError(f"not a quantity: {text}")
    return float(found.group(1)) * _UNITS[found.group(2)]
