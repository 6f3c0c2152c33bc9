"""Read Node objects: their GPUs with number and type, and whether pods may be placed there.

An unreadable part of a node becomes that node's detail, never an error, so that other nodes are not affected.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.nodes.node_gpus import (
    MOST_CARDS,
    BadAnnotationError,
    Card,
    annotated_cards,
    sliced_cards,
)
from reservation_core.adapters.kubernetes.nodes.node_links import annotated_links
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.adapters.kubernetes.pods.marks import NODE_GPUS, NODE_LINKS
from reservation_core.adapters.kubernetes.pods.pod_causes import condition, quoted
from reservation_core.adapters.kubernetes.pods.pod_defaults import PodDefaults, Toleration
from reservation_core.adapters.kubernetes.pods.quantities import read_quantity
from reservation_core.domain.cards.gpu_types import UNKNOWN, TypeNames
from reservation_core.domain.cards.link_words import Links
from reservation_core.domain.cards.node_reports import GpuReport, NodeReport
from reservation_core.domain.model import GpuCondition
from reservation_core.domain.request_terms import MILLI, MOST_MEMORY

LOGICAL_NAME_LABEL = "gpu-node-name"
_ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_MIB_LABEL = "nvidia.com/gpu.memory"
_VRAM_LABEL = "amd.com/gpu.vram"
_MIB = 2**20
_AGENT = "run the node agent there (`python -m availability_updater --node-agent`)"
# The node's readiness and cordon report these.
_REPORTED_OTHERWISE = frozenset(
    {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable"}
)


@dataclass(frozen=True, slots=True)
class NodeRules:
    """How GPUs are read from nodes. `types` maps products (lower case) to gpu_type, before the built-in table."""

    attach: GpuAttach = GpuAttach.ENV
    resource_names: Sequence[str] = ("nvidia.com/gpu", "amd.com/gpu")
    type_labels: Sequence[str] = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu-dev/gpu-type")
    types: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Toleration] = PodDefaults().tolerations


def read_nodes(
    nodes: Iterable[Mapping[str, Any]], slices: Iterable[Mapping[str, Any]], rules: NodeRules
) -> list[NodeReport]:
    """Every node with its GPUs, by name. `slices` are ResourceSlice objects, none where the API lacks them."""
    sliced = sliced_cards(slices)
    types = _Types(rules)
    reports = []
    for node in nodes:
        name = as_mapping(node.get("metadata")).get("name")
        if isinstance(name, str) and name:
            reports.append(_report(name, node, sliced.get(name, ()), rules, types))
    return sorted(reports, key=lambda report: report.name)


class _Types:
    """GPU types of products, as users request them."""

    def __init__(self, rules: NodeRules) -> None:
        self._labels = rules.type_labels
        self._words = TypeNames(rules.types)
        self._known: dict[str, str] = {}

    def labelled(self, labels: Mapping[str, str]) -> str | None:
        """The product that a node's labels name."""
        return next((labels[key] for key in self._labels if labels.get(key)), None)

    def of(self, product: str | None) -> str:
        """A product's type, cached: a cluster has few products and many GPUs."""
        if not product:
            return UNKNOWN
        if product not in self._known:
            self._known[product] = self._words.of(product)
        return self._known[product]


def _report(
    name: str, node: Mapping[str, Any], sliced: tuple[Card, ...], rules: NodeRules, types: _Types
) -> NodeReport:
    labels = {str(key): str(value) for key, value in as_mapping(as_mapping(node.get("metadata")).get("labels")).items()}
    taints = [taint for taint in map(as_mapping, as_list(as_mapping(node.get("spec")).get("taints"))) if taint]
    unready = _why_not_ready(node)
    details = [] if unready is None else [unready]
    closed = _why_closed(node, taints, rules)
    resource, others = _resources(node, rules)
    if resource is not None and rules.attach is GpuAttach.DEVICE_PLUGIN:
        # A pod requests one resource, so GPUs of two resources can't be counted together.
        rules = replace(rules, resource_names=(resource,))
        if others:
            details.append(f"Its GPUs of {' and '.join(others)} are not given out, only the GPUs of {resource}.")
    cards, complaint = _known_cards(node, sliced)
    gpus = _gpus(node, labels, cards, rules, types)
    if complaint:
        details.append(complaint)
    links, complaint = _known_links(node, gpus)
    if complaint:
        details.append(complaint)
    if not gpus:
        details.append(_why_no_gpus(node, rules))
    elif rules.attach is GpuAttach.UUID and not any(gpu.uuid for gpu in gpus):
        closed.append(f"Pods get their GPUs by UUID here, and this node's are not known: {_AGENT}.")
    if any(gpu.gpu_type == UNKNOWN for gpu in gpus):
        details.append("The type of its GPUs is not known: set the label gpu-dev/gpu-type.")
    return NodeReport(
        name=name,
        ready=unready is None,
        schedulable=not closed,
        gpus=gpus,
        labels=tuple(sorted(labels.items())),
        detail=" ".join([*details, *closed]) or None,
        zone=next((labels[key] for key in _ZONE_LABELS if labels.get(key)), None),
        logical_name=labels.get(LOGICAL_NAME_LABEL) or None,
        taints=tuple(_written(taint) for taint in taints),
        gpu_resource=resource,
        links=links,
        cpu_milli=_allocatable(node, "cpu", MILLI),
        memory_bytes=_allocatable(node, "memory", 1),
    )


def _allocatable(node: Mapping[str, Any], kind: str, times: int) -> int | None:
    """What pods can have of a node, as its kubelet says."""
    amount = as_mapping(as_mapping(node.get("status")).get("allocatable")).get(kind)
    try:
        return None if amount is None else min(int(read_quantity(amount) * times), MOST_MEMORY)
    except ValueError:
        return None


def _why_not_ready(node: Mapping[str, Any]) -> str | None:
    ready = condition(node, "Ready")
    match ready.get("status"):
        case "True":
            return None
        case "Unknown":
            since = ready.get("lastTransitionTime")
            return f"The node has not answered since {since}." if since else "The node does not answer."
        case "False":
            return f"The node is not ready{quoted(ready.get('message'))}"
        case _:
            return "The node has not reported yet whether it is ready."


def _why_closed(node: Mapping[str, Any], taints: Iterable[Mapping[str, Any]], rules: NodeRules) -> list[str]:
    """Why no pod may be placed on a node, one sentence for each cause."""
    causes = []
    if as_mapping(node.get("spec")).get("unschedulable") is True:
        name = as_mapping(node.get("metadata")).get("name")
        causes.append(f"It is cordoned; `kubectl uncordon {name}` gives it back.")
    for taint in taints:
        key, value, effect = (str(taint.get(part) or "") for part in ("key", "value", "effect"))
        if effect not in ("NoSchedule", "NoExecute") or key in _REPORTED_OTHERWISE:
            continue
        if not any(toleration.tolerates(key, value, effect) for toleration in rules.tolerations):
            causes.append(f"It has the taint {_written(taint)}, which our pods do not tolerate.")
    return causes


def _written(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _known_cards(node: Mapping[str, Any], sliced: tuple[Card, ...]) -> tuple[tuple[Card, ...], str | None]:
    """The GPUs with UUIDs, and a complaint about an unusable annotation."""
    if sliced:
        return sliced, None
    try:
        return annotated_cards(node), None
    except BadAnnotationError as problem:
        return (), f"The annotation {NODE_GPUS} can't be used, {problem}: {_AGENT}."


def _known_links(node: Mapping[str, Any], gpus: Sequence[GpuReport]) -> tuple[Links | None, str | None]:
    """The links between GPUs, and a complaint about an unusable annotation."""
    try:
        return annotated_links(node, max((gpu.index for gpu in gpus), default=-1) + 1), None
    except BadAnnotationError as problem:
        return None, (
            f"The annotation {NODE_LINKS} can't be used, {problem}: GPUs with neighbouring indices are given together."
        )


def _resources(node: Mapping[str, Any], rules: NodeRules) -> tuple[str | None, list[str]]:
    """The first resource name of which a node has GPUs, and the other ones."""
    capacity = as_mapping(as_mapping(node.get("status")).get("capacity"))
    present = [name for name in rules.resource_names if _pieces(capacity.get(name)) > 0]
    return (present[0], present[1:]) if present else (None, [])


def _count(amounts: object, rules: NodeRules) -> int | None:
    """The GPUs in a node's capacity or allocatable; None when it has no entry for GPUs."""
    counts = [as_mapping(amounts)[name] for name in rules.resource_names if name in as_mapping(amounts)]
    if not counts:
        return None
    return min(sum(_pieces(amount) for amount in counts), MOST_CARDS)


def _pieces(amount: object) -> int:
    try:
        return int(min(read_quantity(amount), Decimal(MOST_CARDS)))
    except ValueError:
        return 0


def _gpus(
    node: Mapping[str, Any], labels: Mapping[str, str], cards: tuple[Card, ...], rules: NodeRules, types: _Types
) -> tuple[GpuReport, ...]:
    """A node's GPUs by index.

    The kubelet's capacity bounds the known GPUs. Without an entry for GPUs in the capacity, the known GPUs count,
    except with `device-plugin`.
    """
    status = as_mapping(node.get("status"))
    count = _count(status.get("capacity"), rules)
    if count is None:
        count = 0 if rules.attach is GpuAttach.DEVICE_PLUGIN else len(cards)
    known = {card.index: card for card in cards[:count]}
    unnamed = (index for index in range(MOST_CARDS + count) if index not in known)
    indices = sorted([*known, *(next(unnamed) for _ in range(count - len(known)))])
    healthy = count
    if rules.attach is GpuAttach.DEVICE_PLUGIN:
        # The plugin reports the number of healthy GPUs, not which ones.
        allocatable = _count(status.get("allocatable"), rules)
        healthy = count if allocatable is None else min(count, allocatable)
    products = {card.product for card in known.values() if card.product}
    named_uuid = any(card.uuid for card in known.values())
    gpus = []
    for position, index in enumerate(indices):
        card = known.get(index)
        product = card.product if card is not None and len(products) > 1 else None
        lost = position >= healthy or (card is not None and card.lost)
        if rules.attach is GpuAttach.UUID and card is None and named_uuid:
            lost = True  # without a UUID no pod can get it
        gpus.append(
            GpuReport(
                index=index,
                gpu_type=types.of(product or types.labelled(labels) or (card.product if card else None)),
                uuid=None if card is None else card.uuid,
                memory_bytes=(card.memory_bytes if card is not None else None) or _labelled_memory(labels),
                condition=GpuCondition.LOST if lost else GpuCondition.USABLE,
            )
        )
    return tuple(gpus)


def _labelled_memory(labels: Mapping[str, str]) -> int | None:
    mib, vram = labels.get(_MIB_LABEL, ""), labels.get(_VRAM_LABEL, "")
    if re.fullmatch(r"[0-9]{1,9}", mib):
        return int(mib) * _MIB or None
    if re.fullmatch(r"[0-9]{1,6}G", vram):
        return int(vram[:-1]) * 1024 * _MIB or None
    return None


def _why_no_gpus(node: Mapping[str, Any], rules: NodeRules) -> str:
    names = " or ".join(rules.resource_names)
    if _count(as_mapping(node.get("status")).get("capacity"), rules) is None:
        return f"No GPUs: the node's capacity does not list {names}. Look at its device plugin and its driver."
    return f"No GPUs: the node's capacity says that it has 0 of {names}. Look at its device plugin and its driver."
