"""However nodes, pods, promises and namespaces have changed: what is free is what it would be if all had been known at
once, in any order."""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.board import ExtenderBoard
from pod_scheduling.domain.extender.card_footprints import Footprint, Taken
from pod_scheduling.domain.extender.cards_in_use import CardNode, CardPod, CardsInUse
from pod_scheduling.domain.extender.model_usage import ModelUsage
from pod_scheduling.domain.maps.map_placement import ReservedCards
from pod_scheduling.domain.placement.rankings import ranking_of
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from tests.examples import ledger_examples
from tests.unit.pod_scheduling.domain.extender.test_board import promise
from tests.unit.pod_scheduling.domain.extender.test_board_under_change import ASKED, MODELS

NAMES = ("n0", "n1")
UIDS = ("u0", "u1", "u2", "u3", "u4")
SOON = datetime(2026, 11, 21, 13, tzinfo=UTC)
FOOTPRINTS: tuple[Footprint | None, ...] = (
    None, None, None, (Taken(0, 300),), (Taken(1, 1000),), (Taken(0, 1000), Taken(1, 1000)), (Taken(3, 300, 2),),
)  # fmt: skip


def some_node(chance: random.Random) -> CardNode:
    return CardNode(
        chance.choice(NAMES), chance.choice(MODELS), chance.choice("xy"),
        plugin_cards=chance.choice([0, 2, 3, 4]), share_cards=chance.choice([0, 2, 3, 4]),
        card_memory=chance.choice([0, 4]), cpu_milli=chance.choice([0, 4000]), memory_mib=8000,
    )  # fmt: skip


def some_pod(chance: random.Random) -> CardPod:
    return CardPod(
        chance.choice(UIDS), chance.choice("ab"), "p", chance.choice(ASKED), chance.choice([0, 1000]),
        booking_id=chance.choice([None, "bk-1"]),
        ends_at=chance.choice([None, None, SOON + timedelta(hours=chance.choice([0, 9]))]),
    )  # fmt: skip


@dataclass
class Known:
    """The present state, without any memory of how it came to be."""

    nodes: dict[str, CardNode] = field(default_factory=dict)
    pods: dict[str, tuple[CardPod, str, Footprint | None, bool]] = field(default_factory=dict)
    reserved: ReservedCards = field(default_factory=dict)
    enforced: set[str] = field(default_factory=set)

    def all_at_once(self, chance: random.Random) -> CardsInUse:
        cards = CardsInUse(ModelUsage())
        for node in self.nodes.values():
            cards.put_node(node)
        for pod, node_name, footprint, bound in chance.sample([*self.pods.values()], len(self.pods)):
            (cards.put_bound if bound else cards.assume)(pod, node_name, footprint)
        cards.reserve(self.reserved)
        for namespace in self.enforced:
            cards.enforce(namespace, enforced=True)
        return cards

    def change(self, cards: CardsInUse, chance: random.Random) -> None:
        match chance.choice(["node", "node gone", "bound", "bound", "assumed", "assumed", "gone", "gone", "not bound"]):
            case "node":
                node = some_node(chance)
                self.nodes[node.name] = node
                cards.put_node(node)
            case "node gone":
                name = chance.choice(NAMES)
                self.nodes.pop(name, None)
                cards.drop_node(name)
            case "bound":
                pod, name, footprint = some_pod(chance), chance.choice(NAMES), chance.choice(FOOTPRINTS)
                cards.put_bound(pod, name, footprint)
                former = self.pods.get(pod.uid)
                if footprint is None and former is not None and former[1] == name:
                    footprint = former[2]
                self.pods[pod.uid] = pod, name, footprint, True
            case "assumed":
                pod, name, footprint = some_pod(chance), chance.choice(NAMES), chance.choice(FOOTPRINTS)
                cards.assume(pod, name, footprint)
                if pod.uid not in self.pods or not self.pods[pod.uid][3]:
                    self.pods[pod.uid] = pod, name, footprint, False
            case "gone":
                uid = chance.choice(UIDS)
                self.pods.pop(uid, None)
                cards.drop_pod(uid)
            case _:
                uid = chance.choice(UIDS)
                if uid in self.pods and not self.pods[uid][3]:
                    del self.pods[uid]
                cards.drop_assumed(uid)

    def promise(self, cards: CardsInUse, chance: random.Random) -> None:
        self.reserved = {
            name: {
                card: promise(chance.choice(["bk-1", "bk-1", "bk-2"]), chance.choice([0, 5]))
                for card in some_cards(chance)
            }
            for name in chance.sample(NAMES, chance.randrange(3))
        }
        cards.reserve(self.reserved)

    def enforce(self, cards: CardsInUse, chance: random.Random) -> None:
        namespace = chance.choice("ab")
        self.enforced ^= {namespace}
        cards.enforce(namespace, enforced=namespace in self.enforced)


def some_cards(chance: random.Random) -> list[int]:
    return chance.sample(range(4), 2)


def free(cards: CardsInUse, node: CardNode) -> tuple[list[tuple[int, int]], int, int]:
    """What the fleet knows: of which card may differ, as nobody knows that, but not of how many how much."""
    fleet, at = cards.fleet, cards.fleet.positions[node.name]
    of_cards = zip(fleet.milli_free[at].tolist(), fleet.card_memory_free[at].tolist(), strict=True)
    return sorted([*of_cards][: node.cards]), int(fleet.whole_free[at]), int(fleet.cpu_free[at])


@ledger_examples(150)
@given(st.integers(0, 2**32))
def test_what_is_free_is_what_it_would_be_if_all_had_been_known_at_once(seed: int) -> None:
    chance = random.Random(seed)
    known, cards = Known(), CardsInUse(ModelUsage())
    board = ExtenderBoard(cards, ranking_of(PlacementPolicy.BINPACK))
    for _ in range(12):
        for _ in range(chance.randrange(1, 4)):  # between two looks
            chance.choice([known.change] * 4 + [known.promise, known.enforce])(cards, chance)
        cards.settle()
        anew = known.all_at_once(chance)
        anew.settle()
        for node in known.nodes.values():
            assert free(cards, node) == free(anew, node)
        other, pod = ExtenderBoard(anew, ranking_of(PlacementPolicy.BINPACK)), some_pod(chance)
        assert board.filter(pod, NAMES) == other.filter(pod, NAMES)
        for name in NAMES:
            assert type(board.decide(pod, name)) is type(other.decide(pod, name))
