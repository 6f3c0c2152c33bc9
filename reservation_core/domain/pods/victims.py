"""Which preemptible pods of a node go when bookings need its cards: those that matter least, and no more than needed.

A pod matters more the higher its priority is, and of equals the longer it has run: the less work is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Preemptible:
    """A pod that has no right to stay. `cards` None: it is on `gpus` cards of which only the number is known.

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
    """What a node has and has to give: `cards` in all, those that are `needed`, and of which types these are.

    `taken` are cards, by number, that pods use which can't be ended and for which nothing is reserved here.
    """

    cards: int
    needed: frozenset[int]
    types: frozenset[str]
    taken: int = 0


def victims(need: NodeNeed, pods: Iterable[Preemptible]) -> tuple[str, ...]:
    """The uids of those that go, those that matter least first; the same for the same pods in any order.

    Pods known to be on a needed card go. Of the others, those that matter most stay as long as there is room: nobody
    goes who could stay beside those who matter more.
    """
    if not need.needed:
        return ()
    room = max(0, need.cards - len(need.needed) - need.taken)
    going = []
    for pod in sorted(pods, key=_what_matters_most_first):
        if pod.cards is not None:
            stays = not pod.cards & need.needed
        elif pod.gpu_type is not None and pod.gpu_type not in need.types:
            stays = True
        else:
            stays = pod.gpus <= room
            room -= pod.gpus if stays else 0
        if not stays:
            going.append(pod.uid)
    return tuple(reversed(going))


def _what_matters_most_first(pod: Preemptible) -> tuple[int, bool, float, str]:
    return -pod.priority, pod.began is None, 0.0 if pod.began is None else pod.began.timestamp(), pod.uid
