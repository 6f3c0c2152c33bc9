"""Which preemptible pods of a node to preempt when bookings need its GPUs: the least important ones, and no more.

Importance is the priority, then the run time: the less work is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Preemptible:
    """A preemptible pod. `cards` None: only the number `gpus` of its GPUs is known.

    `began` None: it has not begun, so no work is lost.
    """

    uid: str
    gpus: int
    priority: int
    began: datetime | None
    cards: frozenset[int] | None = None
    gpu_type: str | None = None


@dataclass(frozen=True, slots=True)
class NodeNeed:
    """What bookings need of a node: `cards` GPUs in total, the `needed` ones, and the types of these.

    `taken` is the number of other GPUs in use by pods that can't be ended.
    """

    cards: int
    needed: frozenset[int]
    types: frozenset[str]
    taken: int = 0


def victims(need: NodeNeed, pods: Iterable[Preemptible]) -> tuple[str, ...]:
    """The uids of the pods to preempt, the least important first, independent of the input's order.

    Pods known to be on a needed GPU are preempted. Of the others, the most important stay as long as there is room.
    """
    if not need.needed:
        return ()
    room = max(0, need.cards - len(need.needed) - need.taken)
    preempted = []
    for pod in sorted(pods, key=_importance_order):
        if pod.cards is not None:
            stays = not pod.cards & need.needed
        elif pod.gpu_type is not None and pod.gpu_type not in need.types:
            stays = True
        else:
            stays = pod.gpus <= room
            room -= pod.gpus if stays else 0
        if not stays:
            preempted.append(pod.uid)
    return tuple(reversed(preempted))


def _importance_order(pod: Preemptible) -> tuple[int, bool, float, str]:
    return -pod.priority, pod.began is None, 0.0 if pod.began is None else pod.began.timestamp(), pod.uid
