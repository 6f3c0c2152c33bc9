"""All pods, for the processes that end those of enforced namespaces: changes, marks and evictions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, assert_never

from pod_scheduling.adapters.kubernetes.namespace_sights import namespace_sight
from pod_scheduling.domain.enforcement import enforcement_marks as marks
from pod_scheduling.domain.enforcement.booking_rulings import written_end
from pod_scheduling.domain.enforcement.pod_gpus import need_of
from pod_scheduling.ports.pod_binding import NamespaceSeen, PodGone
from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ConflictError,
    ObjectNotFoundError,
    is_another_object,
)
from reservation_core.adapters.kubernetes.api_server.following_many import FollowedKind, ManyFollowing
from reservation_core.adapters.kubernetes.api_server.list_and_watch import list_all
from reservation_core.adapters.kubernetes.api_server.object_watch import ObjectWatch, ObservedObject
from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping, read_time
from reservation_core.adapters.kubernetes.api_server.refusals import explained
from reservation_core.adapters.kubernetes.api_server.requests import Query
from reservation_core.adapters.kubernetes.api_server.retries import MERGE_PATCH, ONLY_METADATA, Transport
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter, Regarding
from reservation_core.adapters.kubernetes.pods.mapped_cards import mapped_cards
from reservation_core.adapters.kubernetes.pods.pod_statuses import is_finished
from reservation_core.domain.cards.gpu_types import DEFAULT_NAMES, TypeNames
from reservation_core.domain.pods.map_marks import SCHEDULER_NAME
from reservation_core.domain.pods.pod_endings import GuardedPod
from reservation_core.domain.pods.reviews import annotations_of
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.pods.guarded_pods import BudgetRefusedError, EndRefusedError

_NAMESPACES, _PODS = "/api/v1/namespaces", "/api/v1/pods"
_DEFAULT_GRACE_S = 30
_MOST_WORDS = 253
_ANSWERED_ONCE = frozenset({429, 500})
"""A budget's refusal is one of these; when to ask again is for whoever asks to say."""
_BUDGET = "disruptionbudget"
"""What a budget's refusal has in its message, blanks aside; other answers of that kind are the server's trouble."""


_Sight = NamespaceSeen | GuardedPod | PodGone


@dataclass(frozen=True, slots=True)
class GuardRules:
    """In which namespaces bookings are enforced (`label`, as `name=value`), and by what pods' GPUs are known.

    `jobs_namespace` is where our own jobs run, which are nobody's to end here.
    """

    label: str = "gpu-dev/enforce-bookings=true"
    jobs_namespace: str = "gpu-dev"
    gpu_resources: Sequence[str] = ("nvidia.com/gpu", "amd.com/gpu")
    type_labels: Sequence[str] = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu-dev/gpu-type")
    words: TypeNames = DEFAULT_NAMES
    scheduler_name: str = SCHEDULER_NAME


class KubernetesGuardedPods:
    """See ports.pods.guarded_pods.GuardedPods. While it follows, `events` is run by whoever made it."""

    def __init__(self, transport: Transport, rules: GuardRules, events: EventWriter) -> None:
        self._transport = transport
        self._rules = rules
        self._events = events

    async def list_pods(self) -> dict[str, GuardedPod]:
        """List all pods, by uid."""
        with explained("list", "namespaces"):
            enforced, _ = await list_all(self._transport, _NAMESPACES, _name, self._labelled())
        with explained("list", "pods"):
            found, _ = await list_all(self._transport, _PODS, self._read)
        return {pod.uid: replace(pod, enforced=pod.namespace in enforced) for pod in found}

    async def follow(self, show: Callable[[Mapping[str, GuardedPod]], None]) -> None:
        """Show all pods, and again after every change, until cancelled."""
        pods: dict[str, GuardedPod] = {}
        enforced: set[str] = set()
        listed = False

        def show_all() -> None:
            nonlocal listed
            listed = True
            show(pods)

        def handle(sight: _Sight) -> None:
            match sight:
                case NamespaceSeen(name, is_enforced):
                    (enforced.add if is_enforced else enforced.discard)(name)
                    for uid, pod in pods.items():
                        if pod.namespace == name:
                            pods[uid] = replace(pod, enforced=is_enforced)
                case PodGone(uid):
                    if pods.pop(uid, None) is None:
                        return
                case GuardedPod():
                    pods[sight.uid] = replace(sight, enforced=sight.namespace in enforced)
                case _:
                    assert_never(sight)
            if listed:
                show(pods)

        def pod_sight(seen: ObservedObject) -> _Sight:
            pod = None if seen.gone else self._read(seen.thing)
            return PodGone(seen.uid) if pod is None else pod

        kinds: list[FollowedKind[_Sight]] = [
            FollowedKind(ObjectWatch(self._transport, _NAMESPACES, self._labelled()), namespace_sight),
            FollowedKind(ObjectWatch(self._transport, _PODS), pod_sight),
        ]
        await ManyFollowing[_Sight]().follow(kinds, handle, show_all)

    async def mark_end(self, pod: GuardedPod, end: datetime) -> None:
        """Write the pod's end as an annotation."""
        body = {"metadata": {"uid": pod.uid, "annotations": {marks.TERMINATE_AT: written_end(end)}}}
        with explained("patch", "pods", pod.namespace):
            try:
                await self._transport.request(
                    "PATCH", _path(pod), body=body, content_type=MERGE_PATCH, accept=ONLY_METADATA
                )
            except ObjectNotFoundError:
                return
            except ApiServerError as problem:
                if not is_another_object(problem):
                    raise

    async def evict(self, pod: GuardedPod, grace_s: int) -> None:
        """Evict a pod; the API server respects disruption budgets."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": _options(pod, grace_s),
        }
        try:
            await self._transport.request("POST", f"{_path(pod)}/eviction", body=body, final=_ANSWERED_ONCE)
        except (ObjectNotFoundError, ConflictError):
            return  # gone, or another pod by now
        except ApiServerError as problem:
            if _BUDGET in problem.message.replace(" ", "").lower():
                raise BudgetRefusedError(problem.message) from problem
            if problem.status in _ANSWERED_ONCE:
                raise ClusterUnavailableError(f"Pod {pod} could not be evicted now: {problem}") from problem
            raise EndRefusedError(f"Pod {pod} could not be evicted: {problem}") from problem

    async def delete(self, pod: GuardedPod, grace_s: int) -> None:
        """Delete a pod, whatever its disruption budget says."""
        try:
            await self._transport.request("DELETE", _path(pod), body=_options(pod, grace_s))
        except (ObjectNotFoundError, ConflictError):
            return
        except ApiServerError as problem:
            raise EndRefusedError(f"Pod {pod} could not be deleted: {problem}") from problem

    def add_event(self, pod: GuardedPod, reason: str, note: str) -> None:
        """Queue an Event."""
        self._events.add(Regarding(pod.namespace, pod.name, pod.uid), reason, note, action="Ending", warning=True)

    async def write_events(self) -> None:
        """Write the queued Events."""
        await self._events.write_all()

    def _labelled(self) -> Query:
        return {"labelSelector": self._rules.label}

    def _read(self, thing: Mapping[str, Any]) -> GuardedPod | None:
        """What matters of a pod; None for what neither uses GPUs nor is marked, and for our own jobs' pods."""
        metadata, spec, status = (as_mapping(thing.get(part)) for part in ("metadata", "spec", "status"))
        uid, name, namespace = (metadata.get(part) for part in ("uid", "name", "namespace"))
        if not (isinstance(uid, str) and isinstance(name, str) and isinstance(namespace, str)):
            return None
        annotations, rules = annotations_of(thing), self._rules
        need = need_of(thing, rules.gpu_resources, rules.type_labels, rules.scheduler_name, rules.words)
        mapped = mapped_cards(thing, rules.scheduler_name)
        marked = any(mark in annotations for mark in marks.ENFORCEMENT_MARKS)
        if namespace == rules.jobs_namespace or (need.gpus == 0 and mapped is None and not marked):
            return None
        node, priority = spec.get("nodeName"), spec.get("priority")
        grace = spec.get("terminationGracePeriodSeconds")
        return GuardedPod(
            uid=uid,
            namespace=namespace,
            name=name,
            node=node if isinstance(node, str) and node else None,
            owner=_words(annotations.get(marks.OWNER)),
            booking_id=_words(annotations.get(marks.BOOKING)),
            marked_end=read_time(annotations.get(marks.TERMINATE_AT)),
            preemptible=annotations.get(marks.PREEMPTIBLE) == "true",
            gpus=need.gpus if mapped is None else mapped.count,
            gpu_type=need.gpu_type,
            cards=None if mapped is None else mapped.indices,
            priority=priority if isinstance(priority, int) else 0,
            began=read_time(status.get("startTime")),
            finished_at=_finished_at(thing),
            leaving=metadata.get("deletionTimestamp") is not None,
            grace_s=grace if isinstance(grace, int) else _DEFAULT_GRACE_S,
        )


def _path(pod: GuardedPod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def _options(pod: GuardedPod, grace_s: int) -> dict[str, Any]:
    """Never a grace of 0: that would take the pod away before its node has ended it."""
    return {"preconditions": {"uid": pod.uid}, "gracePeriodSeconds": max(1, min(pod.grace_s, grace_s))}


def _name(thing: Mapping[str, Any]) -> str | None:
    name = as_mapping(thing.get("metadata")).get("name")
    return name if isinstance(name, str) else None


def _words(text: str | None) -> str | None:
    """What can be a name, and be stored as one."""
    return text if text and text.isprintable() and len(text) <= _MOST_WORDS else None


def _finished_at(pod: Mapping[str, Any]) -> datetime | None:
    """When the last of its containers ended; None while any may run."""
    if not is_finished(pod):
        return None
    status = as_mapping(pod.get("status"))
    ends = [
        read_time(as_mapping(as_mapping(container_status.get("state")).get("terminated")).get("finishedAt"))
        for container_status in map(as_mapping, as_list(status.get("containerStatuses")))
    ]
    known = [end for end in ends if end is not None]
    created = read_time(as_mapping(pod.get("metadata")).get("creationTimestamp"))
    return max(known) if known else read_time(status.get("startTime")) or created
