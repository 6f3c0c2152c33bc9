"""From the API's Node, Pod and ConfigMap objects to what an extender decides on. Nothing else of them is kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from sys import intern
from typing import Any

from pod_scheduling.adapters.kubernetes.requested_cards import requested
from pod_scheduling.domain.enforcement.enforcement_marks import BOOKING, OWNER, TERMINATE_AT
from pod_scheduling.domain.extender.asked_cards import CORE_OF_A_CARD, AskedCards, CardResources
from pod_scheduling.domain.extender.card_footprints import Footprint, Taken
from pod_scheduling.domain.extender.card_marks import ASSIGNED, CARDS, TIME, is_mark, read_footprint
from pod_scheduling.domain.extender.cards_in_use import CardNode, CardPod
from pod_scheduling.domain.extender.model_usage import Model, model_of
from pod_scheduling.domain.placement.tasks import WHOLE
from pod_scheduling.ports.card_cluster import CardNodeSeen, CardPodSeen, CardSight, QuotasGone, QuotasSeen
from pod_scheduling.ports.pod_binding import NodeGone, PodGone
from reservation_core.adapters.kubernetes.api_server.object_watch import ObservedObject
from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping, read_time
from reservation_core.adapters.kubernetes.nodes.node_wishes import has_preferences
from reservation_core.adapters.kubernetes.pods.marks import GPU_INDICES, NODE_LINKS, pod_name_of
from reservation_core.adapters.kubernetes.pods.pod_causes import condition
from reservation_core.adapters.kubernetes.pods.pod_requests import read_amounts
from reservation_core.adapters.kubernetes.pods.pod_statuses import is_finished
from reservation_core.domain.cards.gpu_types import DEFAULT_NAMES, TypeNames
from reservation_core.domain.cards.link_words import BadLinksError, Links, read_links
from reservation_core.domain.pods.gpu_resources import is_gpu_resource
from reservation_core.domain.pods.map_marks import MAP_DEVICES, SCHEDULER_NAME
from reservation_core.domain.pods.reviews import annotations_of

_MOST_CARDS = 1024
_MIB = 2**20
_MOST_OF_A_NODE = 2**40
"""Thousandths of cores, and MiB: more than there is, and little enough to be added up for thousands of pods."""

_LONGEST = 253


@dataclass(frozen=True, slots=True)
class CardSightRules:
    """Names of resources, labels, GPU types and of the namespace of our jobs, and the scheduler of pods with maps."""

    resources: CardResources = field(default_factory=CardResources)
    model_label: str = "nvidia.com/gpu.product"
    pool_label: str = "gpu-pool"
    quota_name: str = "gpuquota"
    quota_key: str = "gpu_quota"
    jobs_namespace: str = "gpu-dev"
    map_scheduler: str = SCHEDULER_NAME
    words: TypeNames = DEFAULT_NAMES


def quota_sight(seen: ObservedObject, rules: CardSightRules) -> CardSight:
    """Read the ConfigMap of quotas; QuotasGone without one."""
    if seen.gone:
        return QuotasGone()
    text = as_mapping(seen.thing.get("data")).get(rules.quota_key)
    return QuotasSeen(seen.uid, rules.quota_key, text if isinstance(text, str) else None)


def node_sight(seen: ObservedObject, rules: CardSightRules) -> CardSight:
    """Read a node; NodeGone for a deleted one."""
    if seen.gone:
        return NodeGone(seen.name)
    metadata, status = as_mapping(seen.thing.get("metadata")), as_mapping(seen.thing.get("status"))
    labels = as_mapping(metadata.get("labels"))
    capacity, allocatable = read_amounts(status.get("capacity")), read_amounts(status.get("allocatable"))
    plugin = sum(amount for name, amount in capacity.items() if is_gpu_resource(name, rules.resources.whole))
    shares = min(capacity.get(rules.resources.share, 0) // CORE_OF_A_CARD, _MOST_CARDS)
    memory = capacity.get(rules.resources.memory, 0)
    return CardNodeSeen(
        CardNode(
            name=intern(seen.name),
            model=_model(str(labels.get(rules.model_label) or ""), rules.words),
            pool=intern(str(labels.get(rules.pool_label) or "")),
            plugin_cards=min(plugin, _MOST_CARDS),
            share_cards=shares,
            card_memory=memory // shares if shares else 0,
            cpu_milli=min(allocatable.get("cpu", 0), _MOST_OF_A_NODE),
            memory_mib=min(allocatable.get("memory", 0) // _MIB, _MOST_OF_A_NODE),
            links=_links(as_mapping(metadata.get("annotations")).get(NODE_LINKS)),
        )
    )


def _links(text: object) -> Links | None:
    """How a node's cards are joined, where it says so in a way that can be read; `/v1/nodes` shows why it can't."""
    try:
        return read_links(text) if isinstance(text, str) else None
    except BadLinksError:
        return None


@lru_cache(maxsize=4096)
def _model(label: str, words: TypeNames) -> Model:
    return model_of(label, words)


def pod_sight(seen: ObservedObject, rules: CardSightRules, brought: Mapping[str, str] | None = None) -> CardSight:
    """Read a pod, on its node or waiting; PodGone for one that has ended.

    `brought` are annotations under an extender's names from before the pod was on a node: while these are unchanged, no
    extender has written any.
    """
    if seen.gone or is_finished(seen.thing):
        return PodGone(seen.uid)
    spec, metadata = as_mapping(seen.thing.get("spec")), as_mapping(seen.thing.get("metadata"))
    pod = card_pod(seen.thing, rules)
    node, version = spec.get("nodeName"), str(metadata.get("resourceVersion") or "")
    if not isinstance(node, str) or not node:
        nominated = _nominated(seen.thing)
        return CardPodSeen(pod, version=version, nominated=nominated, put_off=put_off_of(seen.thing))
    known = _known_beside(seen.thing, spec, rules)
    if known is not None and known[1] * WHOLE >= pod.asked.milli:  # what it asks a device plugin for, it has as well
        footprint, cards = known
        pod = _with_cards(pod, cards)
        return CardPodSeen(pod, intern(node), footprint, marked=True, version=version)
    marks = marks_on(seen.thing)
    if marks == brought:
        return CardPodSeen(pod, intern(node), version=version)
    marked = any(name in marks for name in (CARDS, TIME, ASSIGNED))
    return CardPodSeen(pod, intern(node), read_footprint(pod.asked, marks), marked, version)


def put_off_of(thing: Mapping[str, Any]) -> int | None:
    """A fingerprint of the scheduler's last failure to place the pod; None while a node is nominated."""
    said = condition(thing, "PodScheduled")
    if said.get("status") != "False" or _nominated(thing):
        return None
    return hash(tuple(str(said.get(name)) for name in ("reason", "message", "lastTransitionTime")))


def _nominated(thing: Mapping[str, Any]) -> str | None:
    return _text(as_mapping(thing.get("status")).get("nominatedNodeName")) or None


def marks_on(thing: Mapping[str, Any]) -> dict[str, str]:
    """A pod's annotations under an extender's names, whoever wrote them."""
    return {name: text for name, text in annotations_of(thing).items() if is_mark(name)}


def card_pod(thing: Mapping[str, Any], rules: CardSightRules) -> CardPod:
    """Read what the extender needs of a pod."""
    metadata, spec = as_mapping(thing.get("metadata")), as_mapping(thing.get("spec"))
    asked, cpu_milli, memory = requested(spec, rules.resources)
    annotations = annotations_of(thing)
    return CardPod(
        uid=_text(metadata.get("uid")),
        namespace=intern(_text(metadata.get("namespace"))),
        name=_text(metadata.get("name")),
        asked=asked,
        cpu_milli=min(cpu_milli, _MOST_OF_A_NODE),
        memory_mib=min(-(-memory // _MIB), _MOST_OF_A_NODE),
        booking_id=annotations.get(BOOKING),
        ends_at=read_time(annotations.get(TERMINATE_AT)),
        owner=annotations.get(OWNER),
        has_preferences=has_preferences(spec),
        scheduler=intern(_text(spec.get("schedulerName"))),
    )


def _known_beside(
    thing: Mapping[str, Any], spec: Mapping[str, Any], rules: CardSightRules
) -> tuple[Footprint | None, int] | None:
    """The cards of a pod that was not given them by an extender: one of our own jobs', or one with a scheduling map."""
    annotations = annotations_of(thing)
    devices: str | None = None
    if _text(as_mapping(thing.get("metadata")).get("namespace")) == rules.jobs_namespace and pod_name_of(thing):
        devices = annotations.get(GPU_INDICES)
    elif spec.get("schedulerName") == rules.map_scheduler:
        devices = annotations.get(MAP_DEVICES)
    named = {word.strip() for word in (devices or "").split(",") if word.strip()}
    if not named:
        return None
    if len(named) > _MOST_CARDS or not all(word.isascii() and word.isdigit() and len(word) < 5 for word in named):
        return None, min(len(named), _MOST_CARDS)
    return tuple(Taken(card, WHOLE) for card in sorted({int(word) for word in named})), len(named)


def _with_cards(pod: CardPod, cards: int) -> CardPod:
    asked = AskedCards(plugin=cards, milli=cards * WHOLE)
    return replace(pod, asked=asked)


def _text(value: object) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""
