"""The inventory of nodes and GPUs, brought up to date with the cluster's report.

Nothing is ever deleted: a node that is no longer reported is `removed`, a GPU that is no longer reported `lost`. A
condition that an administrator set (`quarantined`, `maintenance`) stays until an administrator changes it. GPUs of a
node that does not answer keep their condition: they are unavailable because the node is not `ready`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from reservation_core.domain.cards.gpu_types import is_instance, whole_gpu
from reservation_core.domain.cards.link_words import format_links
from reservation_core.domain.cards.node_reports import GpuReport, NodeReport
from reservation_core.domain.event_kinds import NodeEventKind
from reservation_core.domain.model import ForeignPod, GpuCondition
from reservation_core.domain.request_terms import CPU_JOB_SHARE

ADMINISTRATORS_CONDITIONS = frozenset({GpuCondition.QUARANTINED, GpuCondition.MAINTENANCE})
REMOVED_DETAIL = "The cluster no longer reports this node."

# The fields that the planner decides by; other changes don't wake it.
_PLANNED_BY = frozenset(
    {
        "ready",
        "schedulable",
        "removed",
        "gpu_links",
        "gpu_type",
        "uuid",
        "condition",
        "cpu_milli",
        "spare_cpu_milli",
        "spare_memory_bytes",
    }
)


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node as the inventory has it. `gpu_links` is the text of its GPUs' links (see `link_words`).

    `spare_cpu_milli` and `spare_memory_bytes` are kept for jobs without GPUs, and not part of the others. `is_asked`: a
    job there asks for amounts, so that what is kept stays as it is.
    """

    name: str
    ready: bool
    schedulable: bool
    detail: str | None
    labels: Mapping[str, str]
    removed: bool
    zone: str | None = None
    logical_name: str | None = None
    taints: tuple[str, ...] = ()
    gpu_resource: str | None = None
    gpu_links: str | None = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    spare_cpu_milli: int | None = None
    spare_memory_bytes: int | None = None
    is_asked: bool = field(default=False, compare=False)

    @property
    def word(self) -> str:
        """Its state in one word, for the audit log."""
        if self.removed:
            return "removed"
        if not self.ready:
            return "not_ready"
        return "ready" if self.schedulable else "not_schedulable"


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """A GPU as the inventory has it. `in_use`: a reservation of ours holds it, or has it in its range, now."""

    node: str
    index: int
    gpu_type: str
    uuid: str | None
    memory_bytes: int | None
    condition: GpuCondition
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class InventoryChange:
    """One difference: `before` and `after` hold only the fields that differ (all of them for a new object)."""

    kind: NodeEventKind
    node: str
    index: int | None
    word_before: str | None
    word_after: str
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def replan(self) -> bool:
        """Whether the planner could decide differently now."""
        # The memory of a node counts, that of a GPU does not.
        return not _PLANNED_BY.isdisjoint(self.after) or (self.index is None and "memory_bytes" in self.after)

    @property
    def subject(self) -> str:
        """The object that changed: a node, or a GPU as `node/index`."""
        return self.node if self.index is None else f"{self.node}/{self.index}"


@dataclass(slots=True)
class Reconciliation:
    """What to write: the nodes and GPUs that differ, and each difference."""

    nodes: list[KnownNode] = field(default_factory=list)
    gpus: list[KnownGpu] = field(default_factory=list)
    changes: list[InventoryChange] = field(default_factory=list)

    @property
    def replan(self) -> bool:
        """Whether to wake the planner."""
        return any(change.replan for change in self.changes)


def reconcile(
    known_nodes: Iterable[KnownNode],
    known_gpus: Iterable[KnownGpu],
    reports: Sequence[NodeReport],
    foreign: Sequence[ForeignPod],
    kept: float | None = 0.0,
) -> Reconciliation:
    """Compare the inventory with a complete report of the cluster (all its nodes) and of foreign GPU users.

    `kept` is the part of each node that is for jobs without GPUs; None: a tenth, and enough for one such job.
    """
    result = Reconciliation()
    nodes = {node.name: node for node in known_nodes}
    gpus: dict[str, dict[int, KnownGpu]] = {}
    for gpu in known_gpus:
        gpus.setdefault(gpu.node, {})[gpu.index] = gpu
    pods: dict[str, list[ForeignPod]] = {}
    for pod in foreign:
        pods.setdefault(pod.node, []).append(pod)
    reported = {report.name: report for report in reports}
    for name in sorted(nodes.keys() | reported.keys()):
        report = reported.get(name)
        node_after = (
            _removed(nodes[name])
            if report is None
            else _split(_node(report, pods.get(name, [])), nodes.get(name), kept)
        )
        _compare_node(result, nodes.get(name), node_after)
        known = gpus.get(name, {})
        cards = {} if report is None else {card.index: card for card in report.gpus}
        taken = _taken(known, cards, pods.get(name, []))
        for index in sorted(known.keys() | cards.keys()):
            before = known.get(index)
            _compare_gpu(result, before, _gpu(name, index, before, cards.get(index), index in taken))
    return result


def _removed(node: KnownNode) -> KnownNode:
    return node if node.removed else replace(node, ready=False, removed=True, detail=REMOVED_DETAIL)


def _node(report: NodeReport, pods: Sequence[ForeignPod]) -> KnownNode:
    details = [report.detail] if report.detail else []
    unknown = [pod for pod in sorted(pods, key=lambda pod: pod.description) if pod.gpu_indices is None]
    for pod in unknown:
        gpus = "1 GPU" if pod.gpu_count == 1 else f"{pod.gpu_count} GPUs"
        ending = (
            "that many fewer are given out" if pod.counted else "which ones is not known, so nothing new is placed here"
        )
        details.append(f"{pod.description} uses {gpus} here: {ending} until it ends.")
    return KnownNode(
        name=report.name,
        ready=report.ready,
        schedulable=report.schedulable and all(pod.counted for pod in unknown),
        detail=" ".join(details) or None,
        labels=dict(report.labels),
        removed=False,
        zone=report.zone,
        logical_name=report.logical_name,
        taints=report.taints,
        gpu_resource=report.gpu_resource,
        gpu_links=None if report.links is None else format_links(report.links),
        cpu_milli=report.cpu_milli,
        memory_bytes=report.memory_bytes,
    )


def _split(node: KnownNode, known: KnownNode | None, kept: float | None) -> KnownNode:
    """Set a part of a node aside for jobs without GPUs; the same as before while jobs there ask for amounts."""
    spare = (
        (known.spare_cpu_milli, known.spare_memory_bytes)
        if known is not None and known.is_asked
        else _aside(node.cpu_milli, node.memory_bytes, kept)
    )
    left = [
        None if whole is None else max(whole - (aside or 0), 0)
        for whole, aside in zip((node.cpu_milli, node.memory_bytes), spare, strict=True)
    ]
    return replace(node, cpu_milli=left[0], memory_bytes=left[1], spare_cpu_milli=spare[0], spare_memory_bytes=spare[1])


def _aside(cpu_milli: int | None, memory_bytes: int | None, kept: float | None) -> tuple[int | None, int | None]:
    """The parts of these that are kept; by default none where one job without GPUs would not fit into half of them."""
    amounts = [cpu_milli or 0, memory_bytes or 0]
    one_job = [CPU_JOB_SHARE.cpu_milli or 0, CPU_JOB_SHARE.memory_bytes or 0]
    if kept is not None:
        aside = [int(whole * kept) for whole in amounts]
    elif any(0 < whole < 2 * least for whole, least in zip(amounts, one_job, strict=True)):
        aside = [0, 0]
    else:
        aside = [min(max(whole // 10, least), whole) for whole, least in zip(amounts, one_job, strict=True)]
    return aside[0] or None, aside[1] or None


def _taken(known: Mapping[int, KnownGpu], gpus: Mapping[int, GpuReport], pods: Sequence[ForeignPod]) -> set[int]:
    """The GPUs of a node that foreign pods use; of GPUs that we use, only those that foreign pods certainly have."""
    free = [index for index in gpus if index not in known or not known[index].in_use]
    taken = {index for pod in pods for index in pod.gpu_indices or () if pod.certain or index in free}
    taken |= _moved(known, gpus) | _recut(known, gpus)
    if any(pod.gpu_indices is None and not pod.counted and pod.gpu_count > 0 for pod in pods):
        taken.update(free)
    # If only their number is known, any GPU counts as taken. Keep those taken before, so that the choice is stable.
    count = sum(pod.gpu_count for pod in pods if pod.gpu_indices is None and pod.counted)
    conditions = {index: known[index].condition if index in known else GpuCondition.USABLE for index in free}
    available = [
        index
        for index in free
        if index not in taken
        and gpus[index].condition is GpuCondition.USABLE
        and conditions[index] not in ADMINISTRATORS_CONDITIONS
    ]
    available.sort(key=lambda index: (conditions[index] is not GpuCondition.FOREIGN, -index))
    return taken.union(available[:count])


def _moved(known: Mapping[int, KnownGpu], gpus: Mapping[int, GpuReport]) -> set[int]:
    """The new indices of GPUs that we use under another index: a driver that skips one renumbers the rest."""
    used = {gpu.uuid: index for index, gpu in known.items() if gpu.in_use and gpu.uuid is not None}
    return {index for index, gpu in gpus.items() if gpu.uuid is not None and used.get(gpu.uuid, index) != index}


def _recut(known: Mapping[int, KnownGpu], gpus: Mapping[int, GpuReport]) -> set[int]:
    """Instances of a whole GPU that we still use, and a whole GPU of whose instances we use one: MIG mode was changed.

    By its number or UUID, a job that has the whole GPU would reach an instance.
    """
    used = {(whole_gpu(index, gpu.uuid), is_instance(gpu.uuid)) for index, gpu in known.items() if gpu.in_use}
    return {index for index, gpu in gpus.items() if (whole_gpu(index, gpu.uuid), not is_instance(gpu.uuid)) in used}


def _gpu(node: str, index: int, known: KnownGpu | None, gpu: GpuReport | None, foreign: bool) -> KnownGpu:
    """The new state of a GPU, which is known, reported, or both."""
    if gpu is None:
        if known is None:
            raise ValueError(f"{node}/{index} is neither known nor reported; ask only for GPUs of one of the two.")
        after = replace(known, condition=GpuCondition.LOST)
    else:
        in_use = known is not None and known.in_use
        condition = GpuCondition.FOREIGN if foreign else gpu.condition
        after = KnownGpu(node, index, gpu.gpu_type, gpu.uuid, gpu.memory_bytes, condition, in_use)
        if known is not None and in_use and known.uuid not in (None, gpu.uuid):
            # Its user holds the GPU that had this index, and keeps it under its new index (see _moved).
            after = replace(known, condition=condition)
    if known is not None and known.condition in ADMINISTRATORS_CONDITIONS:
        return replace(after, condition=known.condition)
    return after


def _compare_node(result: Reconciliation, before: KnownNode | None, after: KnownNode) -> None:
    if before == after:
        return
    result.nodes.append(after)
    if before is None:
        kind = NodeEventKind.NODE_ADDED
    elif after.removed:
        kind = NodeEventKind.NODE_REMOVED
    else:
        kind = NodeEventKind.NODE_RETURNED if before.removed else NodeEventKind.NODE_CHANGED
    result.changes.append(
        InventoryChange(
            kind, after.name, None, None if before is None else before.word, after.word, *_difference(before, after)
        )
    )


def _compare_gpu(result: Reconciliation, before: KnownGpu | None, after: KnownGpu) -> None:
    if before == after:
        return
    result.gpus.append(after)
    result.changes.append(
        InventoryChange(
            NodeEventKind.GPU_ADDED if before is None else NodeEventKind.GPU_CHANGED,
            after.node,
            after.index,
            None if before is None else before.condition.value,
            after.condition.value,
            *_difference(before, after),
        )
    )


def _difference(
    before: KnownNode | KnownGpu | None, after: KnownNode | KnownGpu
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that differ, before and after, as plain data."""
    new = _fields(after)
    if before is None:
        return {}, new
    old = _fields(before)
    differing = [key for key in new if new[key] != old[key]]
    return {key: old[key] for key in differing}, {key: new[key] for key in differing}


def _fields(known: KnownNode | KnownGpu) -> dict[str, Any]:
    """The fields that can differ: neither names nor use. Enums become their values."""
    left_out = {"name", "node", "index", "in_use", "is_asked"}
    return {
        key: value.value if isinstance(value, Enum) else value
        for key, value in asdict(known).items()
        if key not in left_out
    }
