"""Why a pod does not get cards on a node, in sentences that its user understands. Alike for nodes that are alike."""

from functools import lru_cache
from typing import Final

from pod_scheduling.domain.extender.asked_cards import AskedCards
from pod_scheduling.domain.extender.cards_in_use import CardNode, LeftOnNode
from pod_scheduling.domain.extender.model_usage import shown
from pod_scheduling.domain.placement.tasks import WHOLE

UNKNOWN_NODE: Final = "gpu-admission has not seen this node yet; the pod is tried again"


def is_simple(asked: AskedCards) -> bool:
    """Whether one question about cards says all that a pod asks for."""
    return not asked.earlier and (len(asked.parts) + (1 if asked.plugin else 0)) == 1


def never_fits(asked: AskedCards, node: CardNode) -> str | None:
    """Why a pod can't have its cards on a node even when nobody else is there."""
    if asked.plugin > node.plugin_cards:
        return f"the node has {node.plugin_cards} GPUs of a device plugin, and the pod asks for {asked.plugin}"
    if not asked.shares:
        return None
    if not node.share_cards:
        return "the node offers no shares of GPUs"
    most = max((part.cards for part in asked.parts), default=0)
    most = max(most, *(earlier_part.part.cards for earlier_part in asked.earlier), 0)
    if most > node.share_cards:
        return f"the node has {node.share_cards} GPUs, and a container of the pod asks for {most}"
    memory = max((part.memory for part in asked.parts), default=0)
    memory = max(memory, *(earlier_part.part.memory for earlier_part in asked.earlier), 0)
    if memory > node.card_memory:
        return f"a GPU of the node has {node.card_memory} units of memory, and a container of the pod asks for {memory}"
    return _never_together(asked, node)


def _never_together(asked: AskedCards, node: CardNode) -> str | None:
    """The same where each of its containers alone would find room.

    Only what no way of dealing out could mend: two of more than half a card each are never on one.
    """
    whole = asked.plugin + sum(part.cards for part in asked.parts if part.milli == WHOLE)
    shared = [part for part in asked.parts if part.milli < WHOLE]
    milli = max(asked.milli, whole * WHOLE + sum(part.milli for part in shared))
    alone = whole + sum(2 * part.milli > WHOLE for part in shared)
    if max(alone * WHOLE, milli) > node.cards * WHOLE:
        return f"the node has {node.cards} GPUs, too few for all of the pod's containers together"
    there = (node.cards - whole) * node.card_memory
    wanted = sum(part.memory for part in shared)
    if wanted > there:
        beside = f" beside {whole} whole ones" if whole else ""
        return f"the GPUs of the node{beside} have {there} units of memory, and the pod's containers ask for {wanted}"
    return None


def lacking(asked: AskedCards, left: LeftOnNode, promised: int) -> str:
    """What a node has too little of now: by what is left there, and how many of its cards are promised."""
    if asked.shares and not is_simple(asked):
        return _no_room(left.whole, promised)
    part = asked.parts[0] if asked.parts else None
    if part is None or part.milli == WHOLE:
        return _no_cards(left.whole, asked.plugin if part is None else part.cards, promised)
    if left.most < part.milli:
        return _no_share(part.milli, left.most, promised)
    return _no_memory(part.memory, left.roomy, promised)


@lru_cache(maxsize=1024)
def may_be_taken(pods: int) -> str:
    """Where there is room only if others that are just being scheduled go elsewhere."""
    who = "another pod that is" if pods == 1 else f"{pods} other pods that are"
    return f"the GPUs have no room for the pod beside {who} just being scheduled; wait"


def share_of(asked: AskedCards) -> int:
    """The thousandths of one card that a pod asks for, if it asks for nothing else; else of a whole one."""
    return asked.parts[0].milli if asked.parts else WHOLE


def _beside(promised: int) -> str:
    return f", {promised} {'GPU' if promised == 1 else 'GPUs'} being promised" if promised else ""


@lru_cache(maxsize=1024)
def _no_room(whole: int, promised: int) -> str:
    return f"the GPUs have no room for all of the pod's containers together, {whole} are free{_beside(promised)}; wait"


@lru_cache(maxsize=1024)
def _no_cards(whole: int, wanted: int, promised: int) -> str:
    return f"{whole} GPUs are free and {wanted} are asked for{_beside(promised)}; wait"


@lru_cache(maxsize=8192)
def _no_share(wanted: int, most: int, promised: int) -> str:
    return f"no GPU has a share of {shown(wanted)} free, the most is {shown(most)}{_beside(promised)}; wait"


@lru_cache(maxsize=8192)
def _no_memory(wanted: int, most: int, promised: int) -> str:
    return f"no GPU with room for the share has {wanted} units of memory free, but {most}{_beside(promised)}; wait"
