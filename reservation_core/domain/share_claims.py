"""Pods with shares that were told of nodes where they would do, one node after another, and are on none yet.

Where they go is decided elsewhere, and told late. So each counts on every one of these nodes: a scheduler knows only
the sum of a node's shares, and would put more there than its cards can be cut into.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from reservation_core.domain.asked_cards import AskedCards
from reservation_core.domain.card_footprints import FreeCards, place_beside_plugin
from reservation_core.domain.cards_in_use import CardPod
from reservation_core.domain.model_usage import ModelUsage

_LOOKED_AT = 400
"""So many states of a node are looked at: enough for any dozen pods of which most ask for the same."""

_Cards = tuple[tuple[int, int], ...]


class ShareClaims:
    """Lasts as long as the pod's claim in `usage` does."""

    def __init__(self, usage: ModelUsage) -> None:
        self._usage = usage
        self._on_node: dict[str, dict[str, CardPod]] = {}

    def put(self, pod: CardPod, nodes: Iterable[str]) -> None:
        """A pod may come to be on any of these, too."""
        if pod.asked.shares:
            for node in nodes:
                self._on_node.setdefault(node, {})[pod.uid] = pod

    def others(self, node: str, uid: str) -> Sequence[CardPod]:
        """Who but this pod may come to be on a node, in the order of their uids."""
        there = self._on_node.get(node)
        if there is None:
            return ()
        for over in [each for each in there if not self._usage.has_claim(each)]:
            del there[over]
        if not there:
            del self._on_node[node]
        return [there[each] for each in sorted(there) if each != uid]


def fit_in_any_order(pods: Sequence[AskedCards], free: FreeCards) -> bool:
    """Whether each gets its cards, whoever of them comes, one after another; False also where that is too much to say.

    What is looked for cards one by one finds them in one order, and in another does not.
    """
    known: set[tuple[_Cards, frozenset[tuple[AskedCards, int]]]] = set()

    def fit(cards: _Cards, left: Counter[AskedCards]) -> bool:
        state = (cards, frozenset(left.items()))
        if state in known:
            return True
        if len(known) == _LOOKED_AT:
            return False
        known.add(state)
        for asked in left:
            here = FreeCards([milli for milli, _ in cards], [memory for _, memory in cards], free.card_memory)
            if place_beside_plugin(asked, here) is None or not fit(_sorted(here), left - Counter([asked])):
                return False
        return True

    return fit(_sorted(free), Counter(pods))


def _sorted(free: FreeCards) -> _Cards:
    return tuple(sorted(zip(free.milli, free.memory, strict=True)))
