"""From the API's Node and Pod objects to what the scheduler of mapped pods decides on. Nothing else of them is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pod_scheduling.domain.enforcement.enforcement_marks import BOOKING, TERMINATE_AT
from pod_scheduling.domain.maps.admitted_maps import NotAdmittedError, admitted_entry
from pod_scheduling.domain.maps.map_placement import Burden, DeviceUse, MapNode, MappedPod
from pod_scheduling.domain.maps.remembered_maps import KnownMaps
from pod_scheduling.ports.map_cluster import NodeSeen, PodBound, PodWaiting, Sight
from pod_scheduling.ports.pod_binding import NodeGone, PodGone, PodRef
from reservation_core.adapters.kubernetes.api_server.object_watch import ObservedObject
from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping, read_time
from reservation_core.adapters.kubernetes.nodes.node_gpus import BadAnnotationError, annotated_cards
from reservation_core.adapters.kubernetes.pods.marks import GPU_INDICES, pod_name_of
from reservation_core.adapters.kubernetes.pods.pod_causes import condition
from reservation_core.adapters.kubernetes.pods.pod_requests import host_ports, pod_requests, read_amounts
from reservation_core.adapters.kubernetes.pods.pod_statuses import is_finished
from reservation_core.domain.pods.cards_in_containers import node_devices
from reservation_core.domain.pods.gpu_resources import is_gpu_resource
from reservation_core.domain.pods.map_marks import MAP_DIGEST, MAP_OWNER, SCHEDULER_NAME
from reservation_core.domain.pods.node_choice_terms import Requirement, Taint, Terms, Tolerated
from reservation_core.domain.pods.reviews import annotations_of

_SOME_CARD = "?"
"""A card of which nobody says which it is: what the kubelet gave to a pod that asked for GPUs."""


@dataclass(frozen=True, slots=True)
class SightRules:
    """Our scheduler's name, the namespace of our jobs, GPU resources, and the label of enforced namespaces."""

    scheduler_name: str = SCHEDULER_NAME
    jobs_namespace: str = "gpu-dev"
    gpu_resources: Sequence[str] = ("nvidia.com/gpu", "amd.com/gpu")
    enforced_label: str = "gpu-dev/enforce-bookings=true"
    maps: KnownMaps = field(default_factory=KnownMaps)


def node_sight(seen: ObservedObject, rules: SightRules) -> Sight:
    """Read a node; NodeGone for a deleted one."""
    if seen.gone:
        return NodeGone(seen.name)
    metadata, spec, status = (as_mapping(seen.thing.get(part)) for part in ("metadata", "spec", "status"))
    labels = {str(key): str(value) for key, value in as_mapping(metadata.get("labels")).items()}
    capacity = read_amounts(status.get("capacity"))
    count = sum(capacity.get(name, 0) for name in rules.gpu_resources)
    try:
        cards = annotated_cards(seen.thing)
    except BadAnnotationError:
        cards = ()  # what can't be read says nothing; `/v1/nodes` shows why
    return NodeSeen(
        MapNode(
            name=seen.name,
            labels=labels,
            ready=condition(seen.thing, "Ready").get("status") == "True",
            cordoned=spec.get("unschedulable") is True,
            taints=tuple(
                Taint(*(str(taint.get(part) or "") for part in ("key", "value", "effect")))
                for taint in map(as_mapping, as_list(spec.get("taints")))
            ),
            allocatable=read_amounts(status.get("allocatable")),
            uuids={card.index: card.uuid.lower() for card in cards if card.uuid},
            card_count=count or None,
        )
    )


def pod_sight(seen: ObservedObject, rules: SightRules) -> Sight:
    """Read a pod: on its node, waiting for us, or gone."""
    spec = as_mapping(seen.thing.get("spec"))
    if seen.gone or is_finished(seen.thing):
        return PodGone(seen.uid)
    version = as_mapping(seen.thing.get("metadata")).get("resourceVersion")
    pod = PodRef(seen.namespace, seen.name, seen.uid, version if isinstance(version, str) else "")
    node = spec.get("nodeName")
    if isinstance(node, str) and node:
        return PodBound(pod, node, _burden(seen, rules))
    deleting = as_mapping(seen.thing.get("metadata")).get("deletionTimestamp")
    if spec.get("schedulerName") != rules.scheduler_name or deleting:
        return PodGone(seen.uid)
    return _waiting(seen, pod, rules)


def _waiting(seen: ObservedObject, pod: PodRef, rules: SightRules) -> PodWaiting:
    spec = as_mapping(seen.thing.get("spec"))
    entry = refused = None
    try:
        entry = admitted_entry(seen.thing, rules.maps.read)
    except NotAdmittedError as problem:
        refused = str(problem)
    told = condition(seen.thing, "PodScheduled")
    annotations = annotations_of(seen.thing)
    mapped = MappedPod(
        str(pod),
        entry,
        _burden(seen, rules),
        _terms(spec),
        refused,
        annotations.get(BOOKING),
        read_time(annotations.get(TERMINATE_AT)),
    )
    message = told.get("message") if told.get("status") == "False" else None
    return PodWaiting(
        pod,
        mapped,
        gated=bool(as_list(spec.get("schedulingGates"))),
        told=message if isinstance(message, str) else None,
    )


def _burden(seen: ObservedObject, rules: SightRules) -> Burden:
    spec = as_mapping(seen.thing.get("spec"))
    return Burden(pod_requests(spec, as_mapping(seen.thing.get("status"))), _use(seen, rules), host_ports(spec))


def _use(seen: ObservedObject, rules: SightRules) -> DeviceUse | None:
    """The cards that a pod sees: by its map, or as one of our own jobs' pods.

    A pod of our scheduler's sees what its environment says, whoever has taken its annotations away since.
    """
    annotations = annotations_of(seen.thing)
    ours = as_mapping(seen.thing.get("spec")).get("schedulerName") == rules.scheduler_name
    devices = _devices_seen(seen.thing) if ours or MAP_DIGEST in annotations else None
    # Anybody may name any controller in a pod: who asked for it counts as well.
    owner = _controller(seen.thing), annotations.get(MAP_OWNER)
    group = repr((seen.namespace, *owner, annotations.get(MAP_DIGEST)))
    if devices is None and seen.namespace == rules.jobs_namespace and pod_name_of(seen.thing) is not None:
        devices, group = annotations.get(GPU_INDICES), f"job/{seen.uid}"
    named = tuple(dict.fromkeys(part.strip() for part in (devices or "").split(",") if part.strip()))
    if any(is_gpu_resource(name, rules.gpu_resources) for name in pod_requests(as_mapping(seen.thing.get("spec")))):
        named, group = (_SOME_CARD,), f"pod/{seen.uid}"
    return DeviceUse(named, group, f"{seen.namespace}/{seen.name}") if named else None


def _devices_seen(pod: Mapping[str, Any]) -> str | None:
    """The devices that all containers see; None where no container says."""
    spec = as_mapping(pod.get("spec"))
    said = [
        devices
        for container in map(as_mapping, [*as_list(spec.get("containers")), *as_list(spec.get("initContainers"))])
        for devices in node_devices(container)
        if devices is not None
    ]
    return ",".join(said) if said else None


def _controller(pod: Mapping[str, Any]) -> str:
    for owner in map(as_mapping, as_list(as_mapping(pod.get("metadata")).get("ownerReferences"))):
        if owner.get("controller") is True:
            return str(owner.get("uid"))
    return ""


def _terms(spec: Mapping[str, Any]) -> Terms:
    selector = tuple((str(key), str(value)) for key, value in sorted(as_mapping(spec.get("nodeSelector")).items()))
    node_affinity = as_mapping(as_mapping(spec.get("affinity")).get("nodeAffinity"))
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    alternatives = None
    if isinstance(required, Mapping):
        alternatives = tuple(_term(term) for term in map(as_mapping, as_list(required.get("nodeSelectorTerms"))))
    tolerations = tuple(
        Tolerated(
            str(toleration.get("key") or ""),
            str(toleration.get("operator") or "Equal"),
            str(toleration.get("value") or ""),
            str(toleration.get("effect") or ""),
        )
        for toleration in map(as_mapping, as_list(spec.get("tolerations")))
    )
    return Terms(selector, alternatives, tolerations)


def _term(term: Mapping[str, Any]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(
            str(requirement.get("key")),
            str(requirement.get("operator")),
            tuple(str(value) for value in as_list(requirement.get("values"))),
            field,
        )
        for part, field in (("matchExpressions", False), ("matchFields", True))
        for requirement in map(as_mapping, as_list(term.get(part)))
    )
