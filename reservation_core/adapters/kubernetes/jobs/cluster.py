"""The Kubernetes cluster: pods of one namespace, pinned to the nodes and GPUs that the ledger assigned.

`built_pods` builds the objects; `pod_statuses`, `node_reports` and `foreign_pods` read them; this module sends the
requests. An API error never counts as a pod's end: a pod is gone when a consistent list lacks it.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, TypeVar
from urllib.parse import quote

import structlog

from reservation_core.adapters.kubernetes.api_server.create_pacing import CreatePacing
from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError, ConflictError, ObjectNotFoundError
from reservation_core.adapters.kubernetes.api_server.list_and_watch import IDLE_S, list_all
from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping, format_time, read_time
from reservation_core.adapters.kubernetes.api_server.refusals import explained, refusal_of_creation, refused
from reservation_core.adapters.kubernetes.api_server.retries import (
    MERGE_PATCH,
    ONLY_METADATA,
    STRATEGIC_PATCH,
    Transport,
)
from reservation_core.adapters.kubernetes.jobs.cluster_inventory import list_foreign, list_nodes
from reservation_core.adapters.kubernetes.jobs.foreign_pods import ForeignRules
from reservation_core.adapters.kubernetes.jobs.log_streams import read_log
from reservation_core.adapters.kubernetes.jobs.pod_events import PodEvents
from reservation_core.adapters.kubernetes.jobs.pod_places import place_of
from reservation_core.adapters.kubernetes.jobs.pod_secrets import put_secret
from reservation_core.adapters.kubernetes.jobs.pod_signals import send_signal
from reservation_core.adapters.kubernetes.jobs.pod_watch import PodWatch
from reservation_core.adapters.kubernetes.nodes.node_reports import NodeRules
from reservation_core.adapters.kubernetes.other_objects.event_writer import Regarding
from reservation_core.adapters.kubernetes.pods.built_pods import (
    PodRules,
    build_pod,
    build_service,
    master_address,
    service_name,
)
from reservation_core.adapters.kubernetes.pods.marks import (
    DEADLINE,
    MANAGED,
    NAME_KEPT,
    PODS,
    RESERVATION,
    attempt_labels,
    holding_of,
    pod_name_of,
)
from reservation_core.adapters.kubernetes.pods.pod_statuses import has_final_phase, is_finished, read_pod_status
from reservation_core.adapters.kubernetes.pods.secret_objects import has_secret
from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.domain.model import PodName, PodPhase, PodSpec, PodStatus, Reason
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import ClusterUnavailableError, PodListing, TrimmedLogs

_LEAST_GRACE_S = 1  # 0 would remove the object before the kubelet has ended the containers
_REMEMBERED = 10_000
_ASKED_ONE_BY_ONE = 8
_TRIES = 3

T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """How our objects in this cluster are written and read.

    `node_selector` is a label selector; empty means every node. `creates_per_s` 0 means no pacing. `watch_silence_s`
    is the longest silence of a watch, bookmarks included.
    """

    pods: PodRules
    nodes: NodeRules
    foreign: ForeignRules
    node_selector: str = ""
    creates_per_s: float = 50
    watch_silence_s: float = IDLE_S


@dataclass(frozen=True, slots=True)
class _Identity:
    """The object that has a name of ours: its uid, and what a deletion depends on.

    `leaving`: it is being deleted. `kept`: a finalizer keeps its name. `runs_on`: its phase says that it is over, but a
    container still runs, so that a deletion would remove the object at once. `finished`: all of it is over.
    """

    uid: str
    gang: bool
    leaving: bool
    kept: bool
    runs_on: bool
    finished: bool


class KubernetesCluster:
    """Runs pods in one namespace. `transport` is closed with it."""

    def __init__(self, transport: Transport, rules: ClusterRules, clock: Clock) -> None:
        self._transport = transport
        self._rules = rules
        self._clock = clock
        self._namespace = rules.pods.namespace
        self._pods = f"/api/v1/namespaces/{self._namespace}/pods"
        self._services = f"/api/v1/namespaces/{self._namespace}/services"
        self._pacing = CreatePacing(rules.creates_per_s)
        self._identities: dict[str, _Identity] = {}
        self._gone: dict[str, None] = {}
        self._events = PodEvents(transport, clock)

    async def list_nodes(self) -> list[NodeReport]:
        """The nodes that the selector matches, with their GPUs."""
        return await list_nodes(self._transport, self._rules.nodes, self._rules.node_selector)

    async def list_pods(self, *, foreign: bool = False) -> PodListing:
        """All our pods from one consistent list; `foreign` adds other pods that hold GPUs of our nodes."""
        with explained("list", "pods", self._namespace):
            pods, _ = await list_all(self._transport, self._pods, read_pod_status)
        if not foreign:
            return PodListing(tuple(pods))
        others = await list_foreign(self._transport, self._rules.foreign, self._rules.node_selector)
        return PodListing(tuple(pods), tuple(others))

    async def find_pods(self, reservation_id: str, named: Collection[PodName] = ()) -> list[PodStatus]:
        """One reservation's pods of every attempt: by label, and those of `named` that lost their labels."""
        query = {"labelSelector": f"{MANAGED}=true,{RESERVATION}={reservation_id}"}
        with explained("list", "pods", self._namespace):
            pods, _ = await list_all(self._transport, self._pods, self._read, query, paged=False)
        listed = {pod.name for pod in pods}
        unlisted = [name for name in named if name not in listed and str(name) not in self._gone]
        return pods + await self._find_by_name(unlisted) if unlisted else pods

    async def watch(self) -> AsyncIterator[PodStatus]:
        """Yield every existing pod, then every change, `gone` last, through interruptions of the API server.

        Raises ClusterUnavailableError only when this cluster is closed.
        """
        watch = PodWatch(self._transport, self._pods, idle_s=self._rules.watch_silence_s)
        async with aclosing(watch.statuses()) as statuses:
            async for status in statuses:
                if status.phase is PodPhase.GONE:
                    _remember(self._gone, str(status.name), None)
                else:
                    self._gone.pop(str(status.name), None)
                yield status

    async def create_pod(self, spec: PodSpec, unanswered: Callable[[], None] | None = None) -> None:
        """Create a pod, its secrets, and with rank 0 of a gang the service by which its pods meet; keep what exists.

        A pod that was removed leaves no trace, so it would be created again. Raises PodRefusedError for pods that the
        API server or its admission will never accept, and when something else has the name.
        """
        pod = build_pod(spec, self._rules.pods, self._clock.now())
        made, is_new = await self._create("pods", self._pods, pod, lambda there: _is_pod_of(there, spec), unanswered)
        if is_new:
            about = self._regarding(str(spec.name), _identity(made).uid)
            self._events.created(spec, about, self._rules.pods.attach)
        if has_secret(spec):
            await put_secret(self._transport, self._namespace, spec, _identity(made).uid)
        if spec.pods > 1 and spec.name.rank == 0:
            service = build_service(spec, self._rules.pods, _identity(made).uid)
            marks = attempt_labels(spec.name)
            await self._create("services", self._services, service, lambda existing: _has(existing, marks))

    async def delete_pod(
        self, name: str, grace: timedelta, *, keep_name: bool = False, why: Reason | None = None
    ) -> None:
        """Delete a pod with at least one second of grace. `why` is written as an Event.

        A finalizer keeps the object if `keep_name`, or while containers run though the phase says that they ended. The
        API server adds no finalizer to a pod that is being deleted.
        """
        await self._delete(name, max(_LEAST_GRACE_S, ceil(grace.total_seconds())), keep_name=keep_name, why=why)

    async def forget_pod(self, name: str) -> None:
        """Remove a pod's object without waiting for its kubelet. Only for nodes that are known to be fenced."""
        await self._delete(name, 0)

    async def extend_deadline(self, name: str, deadline: datetime) -> None:
        """Write the deadline to the pod's annotation; activeDeadlineSeconds can't grow and has room for extensions."""
        body = {"metadata": {"annotations": {DEADLINE: format_time(deadline)}}}
        with explained("patch", "pods", self._namespace):
            pod = await self._request_existing("PATCH", self._pods, name, body, MERGE_PATCH)
        if pod is None:
            return
        begun = read_time(as_mapping(pod.get("status")).get("startTime"))
        most = as_mapping(pod.get("spec")).get("activeDeadlineSeconds")
        if begun is not None and isinstance(most, int) and begun + timedelta(seconds=most) < deadline:
            _log.warning(
                "a pod will be ended before its deadline: raise GPU_DEV_KUBERNETES__EXTENSION_ROOM_S for pods to come",
                pod=name,
                ends_at=(begun + timedelta(seconds=most)).isoformat(),
                deadline=deadline.isoformat(),
            )

    async def signal_pod(self, name: str, signal: str) -> None:
        """As the port says. The image needs `sh`."""
        await send_signal(self._transport, self._pods, self._namespace, name, signal)

    def master_address(self, reservation_id: str, attempt: int) -> str:
        """The DNS name of rank 0's pod, within its namespace."""
        return master_address(reservation_id, attempt)

    @property
    def forgets_logs(self) -> bool:
        """The kubelet removes a pod's log with the pod."""
        return True

    async def pod_logs(self, name: str, *, follow: bool, tail_lines: int | None = None) -> AsyncIterator[bytes]:
        """Stream a pod's output; `follow` waits for a pod that has not started."""
        with explained("get", "pods/log", self._namespace):
            chunks = read_log(self._transport, self._pods, name, follow=follow, tail_lines=tail_lines)
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk

    async def trim_logs(self, *, written_before: datetime | None, most_bytes: int | None) -> TrimmedLogs:  # noqa: ARG002
        """The kubelet rotates logs, and removes them with their pods."""
        return TrimmedLogs()

    async def close(self) -> None:
        """Close all connections; pods go on, and watchers get ClusterUnavailableError."""
        await self._events.close()
        await self._transport.close()

    async def _create(
        self,
        resource: str,
        path: str,
        thing: Mapping[str, Any],
        is_it: Callable[[Mapping[str, Any]], bool],
        unanswered: Callable[[], None] | None = None,
    ) -> tuple[Mapping[str, Any], bool]:
        """Create an object unless it exists; return the object and whether it is new."""
        name = thing["metadata"]["name"]
        try:
            made = await self._transport.request(
                "POST", path, body=thing, accept=ONLY_METADATA, pacing=self._pacing, unanswered=unanswered
            )
        except ConflictError:
            with explained("get", resource, self._namespace):
                existing = await self._request_existing("GET", path, name)
        except ApiServerError as error:
            raise refusal_of_creation(error, resource, name, self._namespace) from error
        else:
            return made, True
        if existing is None:
            raise ClusterUnavailableError(f"{name} disappeared while it was being created. Try again.")
        if not is_it(existing):
            raise refused(f"Namespace {self._namespace} already has another object named {name} among its {resource}.")
        return existing, False

    async def _delete(self, name: str, grace_s: int, *, keep_name: bool = False, why: Reason | None = None) -> None:
        for _ in range(_TRIES):
            identity = self._identities.pop(name, None) or await self._identify(name)
            if identity is None:
                return
            keep = keep_name or (identity.runs_on and grace_s > 0)
            if identity.kept is not keep and not await self._keep(name, identity, keep):
                continue
            if await self._remove("pods", self._pods, name, identity.uid, grace_s):
                if why is not None and not identity.finished and not identity.leaving:
                    self._events.ending(self._regarding(name, identity.uid), why)
                if identity.gang and PodName.parse(name).rank == 0:
                    await self._remove_service(PodName.parse(name))
                return
        raise ClusterUnavailableError(f"Pod {name} was replaced again and again while it was being deleted. Try again.")

    def _regarding(self, name: str, uid: str) -> Regarding:
        return Regarding(self._namespace, name, uid)

    async def _keep(self, name: str, identity: _Identity, keep: bool) -> bool:
        """Add or remove the finalizer that keeps the pod's name; false when the name has another object by now."""
        if keep and identity.leaving:
            return True
        finalizers = {"finalizers" if keep else "$deleteFromPrimitiveList/finalizers": [NAME_KEPT]}
        body = {"metadata": {"uid": identity.uid, **finalizers}}
        try:
            await self._request_existing("PATCH", self._pods, name, body, STRATEGIC_PATCH)
        except ConflictError:
            return False
        except ApiServerError as refusal:  # the pod must end even if its name is not kept
            _log.warning("a pod's finalizer could not be changed", pod=name, keep=keep, problem=str(refusal))
        return True

    async def _remove(self, resource: str, path: str, name: str, uid: str, grace_s: int) -> bool:
        """Delete the object with this uid; false when the name has another object by now."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": grace_s,
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        with explained("delete", resource, self._namespace):
            try:
                await self._request_existing("DELETE", path, name, options)
            except ConflictError:
                return False
        return True

    async def _remove_service(self, name: PodName) -> None:
        """Remove the gang's service with its rank 0; the cluster also does so, by the owner reference."""
        service = service_name(name)
        with explained("get", "services", self._namespace):
            existing = await self._request_existing("GET", self._services, service)
        if existing is not None and _has(existing, attempt_labels(name)):
            await self._remove("services", self._services, service, _identity(existing).uid, 0)

    async def _identify(self, name: str) -> _Identity | None:
        with explained("get", "pods", self._namespace):
            pod = await self._request_existing("GET", self._pods, name)
        if pod is None:
            return None
        if pod_name_of(pod) is None:
            _log.warning("a pod that is not ours is left alone", pod=name, namespace=self._namespace)
            return None
        return _identity(pod)

    async def _find_by_name(self, names: Collection[PodName]) -> list[PodStatus]:
        """The pods of these names that exist, whatever their labels."""
        if len(names) > _ASKED_ONE_BY_ONE:
            wanted = frozenset(names)
            return [pod for pod in (await self.list_pods()).pods if pod.name in wanted]
        statuses = []
        for name in names:
            with explained("get", "pods", self._namespace):
                pod = await self._request_existing("GET", self._pods, str(name))
            status = None if pod is None else self._read(pod)
            if status is not None:
                statuses.append(status)
        return statuses

    def _read(self, pod: Mapping[str, Any]) -> PodStatus | None:
        """Read a pod of ours, and remember its identity for a later deletion."""
        status = read_pod_status(pod)
        if status is None:
            return None
        _remember(self._identities, str(status.name), _identity(pod))
        if status.holding is not None:
            return status
        rules = self._rules.foreign
        return replace(status, place=place_of(pod, rules.attach, rules.resource_names))

    async def _request_existing(
        self,
        method: str,
        path: str,
        name: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any] | None:
        """The answer about one object; None when it does not exist."""
        try:
            return await self._transport.request(
                method, f"{path}/{quote(name, safe='')}", body=body, content_type=content_type
            )
        except ObjectNotFoundError:
            return None


def _remember(known: dict[str, T], name: str, what: T) -> None:
    """Remember an entry as the newest, and forget the oldest of too many."""
    known.pop(name, None)
    known[name] = what
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]


def _identity(thing: Mapping[str, Any]) -> _Identity:
    metadata = as_mapping(thing.get("metadata"))
    pods = as_mapping(metadata.get("annotations")).get(PODS)
    return _Identity(
        str(metadata.get("uid")),
        gang=pods != "1",
        leaving=metadata.get("deletionTimestamp") is not None,
        kept=NAME_KEPT in as_list(metadata.get("finalizers")),
        runs_on=has_final_phase(thing) and not is_finished(thing),
        finished=is_finished(thing),
    )


def _is_pod_of(existing: Mapping[str, Any], spec: PodSpec) -> bool:
    """Whether a pod is the one of the spec, on the same GPUs: after a restored backup the ledger may name others."""
    holding = holding_of(existing)
    if pod_name_of(existing) != spec.name:
        return False
    return holding is None or (holding.node, holding.gpu_indices) == (spec.node, spec.gpu_indices)


def _has(existing: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    return labels.items() <= as_mapping(as_mapping(existing.get("metadata")).get("labels")).items()
