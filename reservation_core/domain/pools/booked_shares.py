"""CPUs and memory of jobs in bookings: at most the share of each node that a job's own GPUs are.

A booking has the share of its GPUs. No two jobs in it have a GPU at once, so that they never have more together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from reservation_core.domain.model import Node, Reason
from reservation_core.domain.plan import Waiting
from reservation_core.domain.pools.node_shares import Machine
from reservation_core.domain.pools.waiting_reasons import Capacity
from reservation_core.domain.request_terms import MILLI, Resources, Share, share_words, written_bytes
from reservation_core.domain.statuses import ReasonCode

_MEBI = 2**20
_SHM = "/dev/shm"  # noqa: S108 -- words for people


def too_small(job: Waiting, nodes: Iterable[Node]) -> frozenset[str]:
    """The names of nodes of which a job in a booking asks for more than its GPUs are."""
    share = job.share
    return frozenset() if share is None else frozenset(n.name for n in nodes if Machine(n).exceeds(share, job.gpus))


def placeable(job: Waiting, small: frozenset[str], booked: Sequence[Node]) -> Waiting | None:
    """A job in a booking as its GPUs are chosen: never on `small` nodes. None if none but these have enough GPUs.

    `booked` are the nodes with the GPUs of the booking alone.
    """
    plain = job if job.share is None else replace(job, share=None)
    if not small:
        return plain
    for avoided in (small | job.avoid_nodes, small):
        others = Capacity(node for node in booked if node.name not in avoided)
        if others.unplaceable(job.gpus, job.nodes, job.gpu_type) is None:
            return replace(plain, avoid_nodes=avoided)
    return None


def share_too_small(booking_id: str, share: Share) -> Reason:
    """The reason of a job in a booking of which too few nodes are large enough for it, and available."""
    return Reason(
        ReasonCode.LARGER_THAN_ANY_NODE,
        f"It asks for {share_words(share)} on each node. Too few available nodes of {booking_id} have "
        "that much for its GPUs. If that lasts, cancel it, and submit it again with less.",
    )


def beyond_share(booking_id: str, gpus: int, asked: Resources, least: Share) -> list[tuple[str, str]]:
    """What of a job is more than the `least` share of its GPUs in a booking: names of fields, with sentences.

    Nothing, or 0, is the least share where a node does not report what it has.
    """
    (cpus, memory), shm = asked
    size = shm if memory is None else memory
    most_cpus, most_memory = least.cpu_milli or 0, (least.memory_bytes or 0) // _MEBI * _MEBI
    own = f"{gpus} {'GPU' if gpus == 1 else 'GPUs'} of {booking_id}"
    found = []
    if cpus is not None and cpus > most_cpus:
        most = _cpus(most_cpus) if most_cpus else None
        found.append(("cpus", _sentence(_cpus(cpus), own, most, "CPUs")))
    if size is not None and size > (least.memory_bytes or 0):
        field, name = ("shm", _SHM) if memory is None else ("memory", "memory")
        most = written_bytes(most_memory) if most_memory else None
        found.append((field, _sentence(f"{written_bytes(size)} of {name}", own, most, name)))
    return found


def _sentence(asked: str, own: str, most: str | None, name: str) -> str:
    if most is None:
        return f"It asks for {asked}, and a node with {own} does not report how much it has. Leave {name} out."
    return (
        f"It asks for {asked} on each node, and the share of {own} is {most} on the smallest one. Ask for at most "
        f"{most}, or for more GPUs on each node, or leave {name} out."
    )


def _cpus(milli: int) -> str:
    number = f"{milli / MILLI:.3f}".rstrip("0").rstrip(".")
    return f"{number} {'CPU' if milli == MILLI else 'CPUs'}"
