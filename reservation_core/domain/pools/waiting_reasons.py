"""Why a job waits: what the inventory could ever give, and the reasons, each with a message that says what to do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from reservation_core.domain.model import GpuCondition, Node, Reason
from reservation_core.domain.pools.cpu_reasons import (
    behind_others,
    taken_by_others,
    unplaceable_without_gpus,
    waiting_for_cpus,
)
from reservation_core.domain.pools.node_shares import could_run
from reservation_core.domain.request_terms import CPU_JOB_SHARE, CPU_TYPE, Share, share_words
from reservation_core.domain.statuses import ReasonCode

_NAMED = 3
_LONGEST_DETAIL = 300
_KEPT = "It would fit if an administrator kept less for jobs without GPUs (GPU_DEV_CPU_JOB_SHARE). "


@dataclass(slots=True)
class TypeCapacity:
    """For one type of GPU, how many nodes have at least k GPUs: `whole[k]` of all GPUs, `usable[k]` of those that are
    usable on available nodes. `away` are the unavailable nodes with such GPUs."""

    whole: list[int] = field(default_factory=lambda: [0])
    usable: list[int] = field(default_factory=lambda: [0])
    away: list[Node] = field(default_factory=list)

    def add_node(self, gpus: int, usable: int) -> None:
        """Count a node."""
        for counts, number in ((self.whole, gpus), (self.usable, usable)):
            counts.extend([0] * (number + 1 - len(counts)))
            for at_least in range(1, number + 1):
                counts[at_least] += 1

    @property
    def largest(self) -> int:
        """The most GPUs of this type on one node."""
        return len(self.whole) - 1


def _fits(counts: list[int], gpus: int, nodes: int) -> bool:
    return gpus < len(counts) and counts[gpus] >= nodes


class Capacity:
    """What the inventory could give if nothing were held, by type of GPU."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        nodes = tuple(nodes)
        self.types: dict[str, TypeCapacity] = {}
        self._nodes = nodes
        for node in nodes:
            for gpu_type in {gpu.gpu_type for gpu in node.gpus}:
                gpus = [gpu for gpu in node.gpus if gpu.gpu_type == gpu_type]
                usable = sum(gpu.condition is GpuCondition.USABLE for gpu in gpus) if node.available else 0
                capacity = self.types.setdefault(gpu_type, TypeCapacity())
                capacity.add_node(len(gpus), usable)
                if not node.available:
                    capacity.away.append(node)

    def could_run_on(self, gpu_type: str, gpus: int, nodes: int, share: Share | None = None) -> bool:
        """Whether the usable GPUs of this type, on nodes with enough beside them, are enough for such a job."""
        if share is not None:
            return Capacity(could_run(self._nodes, share, gpus)).could_run_on(gpu_type, gpus, nodes)
        capacity = self.types.get(gpu_type)
        return capacity is not None and _fits(capacity.usable, gpus, nodes)

    def without_enough(self, gpus: int, share: Share) -> set[str]:
        """The names of nodes that have too little CPU or memory for such a job."""
        return {node.name for node in self._nodes} - {node.name for node in could_run(self._nodes, share, gpus)}

    def unplaceable(self, gpus: int, nodes: int, gpu_type: str | None, share: Share | None = None) -> Reason | None:
        """Why no such job could start even if nothing were held; None if it could."""
        if gpu_type == CPU_TYPE:
            return unplaceable_without_gpus(self._nodes, share or CPU_JOB_SHARE)
        if share is not None:
            if Capacity(could_run(self._nodes, share, gpus)).unplaceable(gpus, nodes, gpu_type) is None:
                return None
            whatever = self.unplaceable(gpus, nodes, gpu_type)
            return whatever or _too_little(self._nodes, gpus, nodes, gpu_type, share)
        wanted = self.types if gpu_type is None else {t: c for t, c in self.types.items() if t == gpu_type}
        if not wanted:
            return self._no_such_type(gpu_type)
        if any(_fits(capacity.usable, gpus, nodes) for capacity in wanted.values()):
            return None
        of_type = "" if gpu_type is None else f"{gpu_type} "
        if any(_fits(capacity.whole, gpus, nodes) for capacity in wanted.values()):
            return Reason(
                ReasonCode.NODE_UNAVAILABLE,
                f"{sized_words(gpus, nodes, of_type)} would fit, but nodes or GPUs that it needs are unavailable now. "
                "It waits until enough of them are back; `gpu-dev nodes` says why they are away."
                + _details_of([node for capacity in wanted.values() for node in capacity.away]),
            )
        able = max(c.whole[gpus] if gpus < len(c.whole) else 0 for c in wanted.values())
        if able:
            fewer = "one node" if able == 1 else f"at most {able} nodes"
            smaller = "" if gpus == 1 else ", or for fewer GPUs per node,"
            return Reason(
                ReasonCode.NOT_ENOUGH_NODES,
                f"It asks for {nodes} nodes with {_gpus(gpus, of_type)} each, and there {_nodes_are(able)}. "
                f"Only a request for {fewer}{smaller} can start.",
            )
        largest = max(capacity.largest for capacity in wanted.values())
        return Reason(
            ReasonCode.LARGER_THAN_ANY_NODE,
            f"It asks for {_gpus(gpus, of_type)} on one node, and the largest node has {largest}. "
            f"Only a request for at most {largest} per node can start: ask for fewer, or for several nodes.",
        )

    def _no_such_type(self, gpu_type: str | None) -> Reason:
        if not self.types:
            return Reason(
                ReasonCode.NO_SUCH_TYPE,
                "No GPUs are known here yet. It waits until a node with GPUs joins; "
                "ask an administrator when that will be.",
            )
        return Reason(
            ReasonCode.NO_SUCH_TYPE,
            f"There is no GPU of type {gpu_type!r} here; there are: {', '.join(sorted(self.types))}. "
            f"Only a request for one of these, or for any type, can start until a node with {gpu_type} GPUs joins.",
        )


def waiting_for_gpus(gpus: int, nodes: int, gpu_type: str | None, share: Share | None = None, *, first: bool) -> Reason:
    """The reason of a job that gets the next GPUs: all that it could use, or what it asks for beside, are taken.

    `first`: no job is ahead of it, not even one that can't start or gets other GPUs.
    """
    if gpu_type == CPU_TYPE:
        return waiting_for_cpus(share, first=first)
    of_type = "" if gpu_type is None else f"{gpu_type} "
    why = "Next in the queue" if first else "The jobs ahead of it can't start, or get other GPUs"
    beside = "" if share is None else f", with {share_words(share)} on the same node,"
    less = _less(gpus * nodes, gpu_type, share)
    sooner = f" {_any_of(less)} might be free sooner." if less else ""
    return Reason(
        ReasonCode.WAITING_FOR_GPUS,
        f"{why}: it starts when {sized_words(gpus, nodes, of_type)}{beside} {_are(gpus)} free for its whole "
        f"duration.{sooner}",
    )


def _less(gpus: int, gpu_type: str | None, share: Share | None) -> list[str]:
    """What a request could ask for instead: only what it can still have less or other of."""
    fewer = ["fewer GPUs"] if gpus > 1 else []
    smaller = [] if share is None else ["fewer CPUs"] * (share.cpu_milli is not None)
    smaller += [] if share is None else ["less memory"] * (share.memory_bytes is not None)
    return fewer + smaller + ([] if gpu_type is None else ["another type"])


def _any_of(words: Sequence[str]) -> str:
    """`Fewer GPUs, less memory or another type`, as a sentence begins."""
    text = " or ".join(([", ".join(words[:-1])] if words[1:] else []) + list(words[-1:]))
    return text[0].upper() + text[1:]


def behind_in_line(gpu_type: str | None, *, first: bool = False) -> Reason:
    """The reason of all later jobs: others in the queue go first. `first`: none of these asks for the same type."""
    if gpu_type == CPU_TYPE:
        return behind_others()
    pool = "GPUs" if gpu_type is None else f"{gpu_type} GPUs"
    ahead = "Jobs ahead of it in the queue"
    if first:
        ahead = f"Jobs ahead of it that ask for {'one type' if gpu_type is None else 'any type'}"
    return Reason(
        ReasonCode.BEHIND_IN_LINE,
        f"{ahead} get {pool} first when some come free. A shorter job or one with fewer GPUs may start sooner.",
    )


def taken_until_then(
    gpus: int, nodes: int, gpu_type: str | None, share: Share | None = None, until: str = "then"
) -> Reason:
    """The reason of a job beside its estimated start: until then, or another time, others have what it could use."""
    if gpu_type == CPU_TYPE:
        return taken_by_others(share)
    of_type = "" if gpu_type is None else f"{gpu_type} "
    wanted = sized_words(gpus, nodes, of_type)
    held = "GPUs" if share is None else "GPUs, CPUs or memory"
    beside = "" if share is None else f" with {share_words(share)}"
    less = _any_of([*_less(gpus * nodes, gpu_type, share), "a shorter duration"])
    return Reason(
        ReasonCode.WAITING_FOR_GPUS,
        f"Until {until}, other jobs or bookings hold {held} that it needs: {wanted}{beside} for its whole duration. "
        f"{less} may start sooner.",
    )


def booking_begins_then(booking_id: str) -> Reason:
    """The reason of a job within a booking that has not begun, beside its estimated start."""
    return Reason(ReasonCode.WAITING_FOR_GPUS, f"It runs on the GPUs of {booking_id}, which begins then.")


def booking_too_full(booking_id: str) -> Reason:
    """The reason of a job that could start only when its booking is over."""
    return Reason(
        ReasonCode.WAITING_FOR_GPUS,
        f"The GPUs of {booking_id} are not enough for it before the booking ends. "
        "Cancel another job in it, ask for less, or extend the booking.",
    )


def _too_little(nodes: Iterable[Node], gpus: int, count: int, gpu_type: str | None, share: Share) -> Reason:
    """Why no nodes with enough GPUs have enough CPUs and memory."""
    of_type = "" if gpu_type is None else f"{gpu_type} "
    able = [
        node
        for node in nodes
        if sum(gpu_type in (None, gpu.gpu_type) for gpu in node.gpus) >= gpus
        and (node.cpu_milli is not None or node.memory_bytes is not None)
    ]
    most = Share(
        max((node.cpu_milli for node in able if node.cpu_milli is not None), default=None),
        max((node.memory_bytes for node in able if node.memory_bytes is not None), default=None),
    )
    has = share_words(most)
    return Reason(
        ReasonCode.LARGER_THAN_ANY_NODE,
        f"It asks for {sized_words(gpus, count, of_type)} with {share_words(share)}{' each' if count > 1 else ''}, and "
        + ("no node has " if count == 1 else "too few nodes have ")
        + (f"that. The most on one node is {has}. " if has else "that. No node reports how much it has. ")
        + (
            _KEPT
            if Capacity(could_run(map(_whole, able), share, gpus)).unplaceable(gpus, count, gpu_type) is None
            else ""
        )
        + "Only a request for fewer CPUs or less memory can start.",
    )


def _whole(node: Node) -> Node:
    """A node that keeps nothing for jobs without GPUs."""
    if node.spare is None:
        return node
    cpu = node.cpu_milli and node.cpu_milli + node.spare.cpu_milli
    memory = node.memory_bytes and node.memory_bytes + node.spare.memory_bytes
    return replace(node, cpu_milli=cpu, memory_bytes=memory, spare=None)


def _details_of(away: Sequence[Node]) -> str:
    """Why the first few unavailable nodes are so."""
    details = [f"{node.name}: {node.unavailable_detail[:_LONGEST_DETAIL]}" for node in away if node.unavailable_detail]
    return "".join(f" {detail}" for detail in details[:_NAMED])


def _gpus(gpus: int, of_type: str) -> str:
    return f"{gpus} {of_type}{'GPU' if gpus == 1 else 'GPUs'}"


def _are(gpus: int) -> str:
    return "is" if gpus == 1 else "are"


def sized_words(gpus: int, nodes: int, of_type: str) -> str:
    """`2 h100 GPUs on one node`; `of_type` ends with a space, or is empty."""
    where = "on one node" if nodes == 1 else f"on each of {nodes} nodes"
    return f"{_gpus(gpus, of_type)} {where}"


def _nodes_are(able: int) -> str:
    return "is 1 such node" if able == 1 else f"are {able} such nodes"
