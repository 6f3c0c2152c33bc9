"""Why a job without GPUs waits, and what would start."""

from collections.abc import Iterable

from reservation_core.domain.model import Node, Reason
from reservation_core.domain.pools.node_shares import could_run
from reservation_core.domain.request_terms import Share, share_words
from reservation_core.domain.statuses import ReasonCode

NOTHING_KEPT = (
    "A job without GPUs can't run here: no node keeps CPUs and memory for such jobs. Ask for 1 GPU, or ask an "
    "administrator to set GPU_DEV_CPU_JOB_SHARE."
)


def most_kept(nodes: Iterable[Node]) -> str:
    """What the largest nodes keep for jobs without GPUs, for people."""
    largest = {Share(node.cpu_milli, node.memory_bytes): node.name for node in nodes}
    most = [share for share in largest if not any(_is_less(share, other) for other in largest)]
    return " or ".join(f"{share_words(share)} (on {largest[share]})" for share in sorted(most, reverse=True)[:3])


def _is_less(share: Share, other: Share) -> bool:
    cpu, memory = share.cpu_milli or 0, share.memory_bytes or 0
    return share != other and cpu <= (other.cpu_milli or 0) and memory <= (other.memory_bytes or 0)


def unplaceable_without_gpus(nodes: tuple[Node, ...], share: Share) -> Reason | None:
    """Why no such job could start even if nothing ran; None if it could. `nodes` are what nodes keep for such jobs."""
    able = could_run(nodes, share, 1)
    if any(node.available for node in able):
        return None
    if able:
        return Reason(
            ReasonCode.NODE_UNAVAILABLE,
            f"{share_words(share)} would fit, but no node that keeps so much for jobs without GPUs is available now. "
            "It waits until one is back; `gpu-dev nodes` says why they are away.",
        )
    if not nodes:
        return Reason(ReasonCode.LARGER_THAN_ANY_NODE, NOTHING_KEPT)
    return Reason(
        ReasonCode.LARGER_THAN_ANY_NODE,
        f"It asks for {share_words(share)} without a GPU, and no node keeps so much for such jobs. The most is "
        f"{most_kept(nodes)}. Ask for less, or for a GPU: its share of a node may be larger.",
    )


def waiting_for_cpus(share: Share | None, *, first: bool) -> Reason:
    """The reason of a job that goes next: all that it could use is taken."""
    why = "Next in the queue" if first else "The jobs ahead of it can't start, or run elsewhere"
    return Reason(
        ReasonCode.WAITING_FOR_GPUS,
        f"{why}: it starts when {_words(share)} on one node are free for its whole duration. Fewer CPUs, less memory "
        "or a shorter duration may start sooner.",
    )


def behind_others() -> Reason:
    """The reason of all later jobs."""
    return Reason(
        ReasonCode.BEHIND_IN_LINE,
        "Jobs without GPUs that are ahead of it in the queue go first. A shorter job or one with fewer CPUs may start "
        "sooner.",
    )


def taken_by_others(share: Share | None) -> Reason:
    """The reason of a job beside its estimated start."""
    return Reason(
        ReasonCode.WAITING_FOR_GPUS,
        f"Until then, other jobs without GPUs have what it needs: {_words(share)} on one node for its whole duration. "
        "Less of them, or a shorter duration, may start sooner.",
    )


def _words(share: Share | None) -> str:
    return "a place" if share is None else share_words(share)
