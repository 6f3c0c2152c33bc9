"""Pods with shares that were told of nodes where they would do, one node after another, and are on none yet.

Where they go is decided elsewhere, and told late. So each counts on every one of these nodes: a scheduler knows only
the sum of a node's shares, and would put more there than its cards can be cut into.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

from pod_scheduling.domain.extender.asked_cards import AskedCards
from pod_scheduling.domain.extender.card_footprints import FreeOnNode, place_beside_plugin
from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.domain.extender.model_usage import ModelUsage
from pod_scheduling.domain.placement.tasks import WHOLE

_TRIED = 200
"""So many times a pod is laid on a node where nothing simpler tells: some milliseconds, and nobody is answered
meanwhile."""

_Cards = tuple[tuple[int, int], ...]


class ShareClaims:
    """Claims of pods with shares on nodes. One lasts as long as the pod's claim in `usage`."""

    def __init__(self, usage: ModelUsage) -> None:
        self._usage = usage
        self._on_node: dict[str, dict[str, CardPod]] = {}

    def put(self, pod: CardPod, nodes: Iterable[str]) -> None:
        """Add claims of a pod on these nodes."""
        if pod.asked.shares:
            for node in nodes:
                self._on_node.setdefault(node, {})[pod.uid] = pod

    def forget_node(self, node: str) -> None:
        """Drop all claims on a deleted node."""
        self._on_node.pop(node, None)

    def others(self, node: str, uid: str) -> Sequence[CardPod]:
        """Other pods with a claim on a node, in the order of their uids."""
        there = self._on_node.get(node)
        if there is None:
            return ()
        for over in [claimed_uid for claimed_uid in there if not self._usage.has_claim(claimed_uid)]:
            del there[over]
        if not there:
            del self._on_node[node]
        return [there[claimed_uid] for claimed_uid in sorted(there) if claimed_uid != uid]


def fit_in_any_order(pods: Sequence[AskedCards], free: FreeOnNode) -> bool:
    """Whether each gets its cards, whoever of them comes, one after another; False also where that is too much to say.

    A search card by card finds room in one order, and in another does not.
    """
    return _fit_in_any_order(_sorted(free), free.card_memory, frozenset(Counter(pods).items()))


@lru_cache(maxsize=4096)
def _fit_in_any_order(start: _Cards, card_memory: int, pods: frozenset[tuple[AskedCards, int]]) -> bool:
    """Remembered: a scheduler asks about one node after another, and many are alike."""
    known: set[tuple[_Cards, frozenset[tuple[AskedCards, int]]]] = set()
    tried = 0

    def fit(cards: _Cards, left: Counter[AskedCards]) -> bool:
        nonlocal tried
        state = (cards, frozenset(left.items()))
        if state in known or _none_is_in_the_way(left, cards, card_memory):
            return True
        known.add(state)
        for asked in left:
            tried += 1
            if tried > _TRIED:
                return False
            here = FreeOnNode([milli for milli, _ in cards], [memory for _, memory in cards], card_memory)
            if place_beside_plugin(asked, here) is None or not fit(_sorted(here), left - Counter([asked])):
                return False
        return True

    left = Counter(dict(pods))
    _, milli, memory = _sum(left, card_memory)
    there = milli <= sum(has for has, _ in start) and memory <= sum(has for _, has in start)
    return there and fit(start, left)


def _none_is_in_the_way(pods: Counter[AskedCards], cards: _Cards, card_memory: int) -> bool:
    """Whether the others of them can't take so much of so many cards that there is none for one of them."""
    if any(asked.earlier for asked in pods):
        return False
    count, milli, memory = _sum(pods, card_memory)
    for wanted, of_card, units in {part for asked in pods for part in _parts(asked, card_memory)}:
        able = [(has - of_card + 1, more - units + 1) for has, more in cards if has >= of_card and more >= units]
        by_milli = _payable((needed for needed, _ in able), milli - wanted * of_card)
        by_memory = _payable((needed for _, needed in able), memory - wanted * units)
        if len(able) - min(by_milli + by_memory, count - wanted) < wanted:
            return False
    return True


def _sum(pods: Counter[AskedCards], card_memory: int) -> tuple[int, int, int]:
    """How many cards they take all in all, how many thousandths and how much memory of these."""
    parts = [(times * part[0], part) for asked, times in pods.items() for part in _parts(asked, card_memory)]
    return (
        sum(cards for cards, _ in parts),
        sum(cards * milli for cards, (_, milli, _) in parts),
        sum(cards * memory for cards, (_, _, memory) in parts),
    )


def _parts(asked: AskedCards, card_memory: int) -> Iterator[tuple[int, int, int]]:
    """Cards, and the thousandths and the memory of each, that it takes at the same time."""
    if asked.plugin:
        yield asked.plugin, WHOLE, card_memory
    for part in asked.parts:
        yield part.cards, part.milli, part.memory if part.milli < WHOLE else card_memory


def _payable(prices: Iterable[int], amount: int) -> int:
    """How many of these can be paid with so much."""
    return sum(spent <= amount for spent in accumulate(sorted(prices)))


def _sorted(free: FreeOnNode) -> _Cards:
    return tuple(sorted(zip(free.milli, free.memory, strict=True)))
