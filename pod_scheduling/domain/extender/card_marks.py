"""Marks on a pod that was given cards, written and read again: gpu-manager's annotations, and one of ours.

Facts about gpu-manager: `N` counts `spec.containers` from 0, init containers have none; the index is the device's minor
number, several with commas; the time is in nanoseconds since 1970; it looks only where `gpu-assigned` is `false`, and
writes there and in the indices what it has done.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from pod_scheduling.domain.extender.asked_cards import AskedCards
from pod_scheduling.domain.extender.card_footprints import Footprint, Placed, Taken
from pod_scheduling.domain.placement.tasks import WHOLE

INDEX_OF: Final = "tencent.com/predicate-gpu-idx-"
"""With a container's number behind it: its cards, by index."""

NODE: Final = "tencent.com/predicate-node"
TIME: Final = "tencent.com/predicate-time"
ASSIGNED: Final = "tencent.com/gpu-assigned"

CARDS: Final = "gpu-dev/cards"
"""All that the pod has, as `0=500/8,3=1000`: card, thousandths, units of memory."""

ASKED_AGAIN: Final = "gpu-dev/asked-again"
"""On a waiting pod: when its scheduler was last made to look at it again. It says nothing of cards."""

_NAMES: Final = frozenset({NODE, TIME, ASSIGNED, CARDS})
_MOST = 1024
_INDICES = re.compile(r"[0-9]{1,4}(,[0-9]{1,4}){0,63}")
_TAKEN = re.compile(r"([0-9]{1,4})=([0-9]{1,4})(?:/([0-9]{1,10}))?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def marks_of(placed: Placed, node: str, now: datetime) -> dict[str, str]:
    """The annotations of a pod that gets these cards of a node."""
    marks = {f"{INDEX_OF}{number}": ",".join(map(str, cards)) for number, cards in placed.containers}
    microseconds = (now - _EPOCH) // timedelta(microseconds=1)
    return {
        **marks,
        NODE: node,
        TIME: str(microseconds * 1000),
        ASSIGNED: "false",
        CARDS: written_footprint(placed.footprint),
    }


def is_mark(name: str) -> bool:
    """Whether an annotation of this name is one of these."""
    return name in _NAMES or name.startswith(INDEX_OF)


def written_footprint(footprint: Footprint) -> str:
    """The text of the annotation."""
    return ",".join(f"{taken.card}={taken.milli}" + (f"/{taken.memory}" if taken.memory else "") for taken in footprint)


def read_footprint(asked: AskedCards, annotations: Mapping[str, str]) -> Footprint | None:
    """Which cards a pod that is on a node has, by what stands on it; None where that does not say enough.

    What was written last counts: gpu-manager writes the indices anew where it chose itself.
    """
    if not asked.shares:
        return None
    noted = _noted(annotations.get(CARDS, ""))
    by_container = _by_container(asked, annotations)
    if noted is not None and sum(taken.milli for taken in noted) >= _least(asked):
        cards = {taken.card for taken in noted}
        if by_container is None or all(taken.card in cards for taken in by_container):
            return noted
    return by_container


def _least(asked: AskedCards) -> int:
    return sum(part.cards * part.milli for part in asked.parts)


def _noted(text: str) -> Footprint | None:
    found: dict[int, Taken] = {}
    for word in text.split(",") if text else ():
        match = _TAKEN.fullmatch(word)
        if match is None or len(found) >= _MOST or not 0 < int(match[2]) <= WHOLE:
            return None
        found[int(match[1])] = Taken(int(match[1]), int(match[2]), int(match[3] or 0))
    return tuple(found[card] for card in sorted(found)) or None


def _by_container(asked: AskedCards, annotations: Mapping[str, str]) -> Footprint | None:
    """By the containers' indices alone: where every part has one, and nothing else does."""
    if asked.earlier or not asked.parts:
        return None
    total: dict[int, tuple[int, int]] = {}
    for part in asked.parts:
        text = annotations.get(f"{INDEX_OF}{part.container}", "") if part.container is not None else ""
        cards = {int(word) for word in text.split(",")} if _INDICES.fullmatch(text) else set()
        if len(cards) != part.cards:
            return None
        for card in cards:
            milli, memory = total.get(card, (0, 0))
            total[card] = min(WHOLE, milli + part.milli), memory + part.memory
    return tuple(Taken(card, milli, memory if milli < WHOLE else 0) for card, (milli, memory) in sorted(total.items()))
