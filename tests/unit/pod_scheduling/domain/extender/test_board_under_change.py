"""Whatever has come and gone in between: the board answers what each node alone says, and what a new board does.

The board remembers where nodes stand, and what it has worked out about those that have not changed.
"""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.asked_cards import AskedCards, Earlier, Part
from pod_scheduling.domain.extender.board import BEST, ExtenderBoard, FilterVerdict, Refused
from pod_scheduling.domain.extender.card_footprints import Footprint, Placed, Taken
from pod_scheduling.domain.extender.cards_in_use import CardNode, CardPod, CardsInUse
from pod_scheduling.domain.extender.model_quotas import read_quotas
from pod_scheduling.domain.extender.model_usage import ModelUsage, model_of
from pod_scheduling.domain.extender.refusal_reasons import UNKNOWN_NODE
from pod_scheduling.domain.maps.map_placement import ReservedCards
from pod_scheduling.domain.placement.rankings import ranking_of
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from tests.examples import examples
from tests.unit.pod_scheduling.domain.extender.test_board import promise

NAMES = [f"n{number}" for number in range(4)]
UIDS = [f"u{number}" for number in range(4)]
MODELS = [model_of("H100"), model_of("T4")]
QUOTAS = ["{}", '{"a": {"quota": {"H100": 3}}}', '{"a": {"quota": {"H100": 2, "T4": 1}, "pool": ["x"]}}']
ASKED = [
    AskedCards(),
    AskedCards(plugin=1, milli=1000),
    AskedCards(plugin=2, milli=2000),
    AskedCards(parts=(Part(0, 1, 300, 2),), milli=300),
    AskedCards(parts=(Part(0, 1, 700),), milli=700),
    AskedCards(parts=(Part(0, 2),), milli=2000),
    AskedCards(parts=(Part(0, 1, 400, 1), Part(1, 1, 700)), milli=1100),
    AskedCards(plugin=1, parts=(Part(0, 1, 500),), milli=1500),
    AskedCards(parts=(Part(0, 1, 200),), earlier=(Earlier(Part(None, 1, 600), 0),), milli=600),
    AskedCards(refused="nobody gets 150"),
]

nodes = st.builds(
    CardNode,
    name=st.sampled_from(NAMES),
    model=st.sampled_from(MODELS),
    pool=st.sampled_from(["x", "y"]),
    plugin_cards=st.sampled_from([0, 2, 4]),
    share_cards=st.sampled_from([0, 1, 2]),
    card_memory=st.sampled_from([0, 4]),
    cpu_milli=st.sampled_from([0, 4000]),
    memory_mib=st.just(8000),
)
pods = st.builds(
    CardPod,
    uid=st.sampled_from(UIDS),
    namespace=st.sampled_from(["a", "b"]),
    name=st.just("p"),
    asked=st.sampled_from(ASKED),
    cpu_milli=st.sampled_from([0, 1000]),
)
footprints = st.none() | st.tuples(st.builds(Taken, st.integers(0, 3), st.sampled_from([300, 1000])))
reserved = st.dictionaries(
    st.sampled_from(NAMES), st.dictionaries(st.integers(0, 3), st.just(promise("bk-1", 5)), max_size=2), max_size=2
)
questions = st.tuples(pods, st.lists(st.sampled_from([*NAMES, "unheard-of"]), min_size=1, max_size=7).map(tuple))
events = st.one_of(
    nodes,
    st.sampled_from(NAMES),
    st.tuples(pods, st.sampled_from(NAMES), footprints, st.booleans()),
    st.tuples(pods, st.sampled_from(NAMES), footprints, st.booleans()),
    st.sampled_from(UIDS),
    reserved,
    st.sampled_from(QUOTAS).map(lambda text: ("quotas", text)),
)


@dataclass
class World:
    """The present state, without any memory of how it came to be; but of which model a node was that is gone stays
    known of the pods that were there with it (`counted`)."""

    nodes: dict[str, CardNode] = field(default_factory=dict)
    gone: dict[str, CardNode] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    pods: dict[str, tuple[CardPod, str, Footprint | None]] = field(default_factory=dict)
    reserved: ReservedCards = field(default_factory=dict)
    quotas: str = "{}"

    def board(self, policy: PlacementPolicy) -> ExtenderBoard:
        usage = ModelUsage()
        usage.quotas = read_quotas(self.quotas)
        made = ExtenderBoard(CardsInUse(usage), ranking_of(policy))
        former = [held for uid, held in self.pods.items() if uid in self.counted and held[1] in self.gone]
        for node in self.gone.values():
            made.cards.put_node(node)
        for pod, where, footprint in former:
            made.cards.put_bound(pod, where, footprint)
        for name in self.gone:
            made.cards.drop_node(name)
        for node in self.nodes.values():
            made.cards.put_node(node)
        for held in self.pods.values():
            if held not in former:
                made.cards.put_bound(*held)
        made.cards.reserve(self.reserved)
        return made

    def take_in(self, event: object, board: ExtenderBoard) -> None:
        match event:
            case CardNode():
                self.nodes[event.name] = event
                self.gone.pop(event.name, None)
                self.counted |= {uid for uid, held in self.pods.items() if held[1] == event.name}
                board.cards.put_node(event)
            case str() if event in NAMES:
                if (node := self.nodes.pop(event, None)) is not None:
                    self.gone[event] = node
                board.cards.drop_node(event)
            case str():
                self.pods.pop(event, None)
                self.counted.discard(event)
                board.cards.drop_pod(event)
            case dict():
                self.reserved = event
                board.cards.reserve(event)
            case ("quotas", str(text)):
                self.quotas = text
                board.cards.usage.quotas = read_quotas(text)
            case (CardPod() as pod, str(where), footprint, bool(bound)):
                if pod.uid not in self.pods:
                    self.pods[pod.uid] = pod, where, footprint
                    if where in self.nodes:
                        self.counted.add(pod.uid)
                    (board.cards.put_bound if bound else board.cards.assume)(pod, where, footprint)


def node_by_node(board: ExtenderBoard, pod: CardPod, names: tuple[str, ...]) -> FilterVerdict:
    """What the decision for each node alone says."""
    if pod.asked.none:
        return FilterVerdict(names, {}, {})
    fitting, failed, unresolvable = [], {}, {}
    for name in names:
        match board.decide(pod, name):
            case Placed():
                fitting.append(name)
            case Refused(reason):
                node = board.cards.nodes.get(name)
                denied = pod.asked.refused or (node is not None and board._denial(pod, pod.owned, node))
                (unresolvable if denied else failed)[name] = reason
    return FilterVerdict(tuple(fitting), failed, unresolvable)


@examples(150)
@given(
    st.lists(nodes, min_size=2, max_size=5),
    st.lists(events, min_size=3, max_size=15),
    st.lists(questions, min_size=2, max_size=4),
    st.sampled_from([PlacementPolicy.BINPACK, PlacementPolicy.PRICED]),
)
def test_what_is_remembered_changes_no_answer(
    there: list[CardNode],
    happening: list[object],
    asked: list[tuple[CardPod, tuple[str, ...]]],
    policy: PlacementPolicy,
) -> None:
    world = World()
    board = world.board(policy)
    for event in [*there, *happening]:
        world.take_in(event, board)
        for pod, names in asked:  # the same tuples again and again, as the reader of questions gives them
            verdict = board.filter(pod, names)
            expected = node_by_node(world.board(policy), pod, names)
            assert (verdict.fitting, verdict.failed.keys()) == (expected.fitting, expected.failed.keys())
            assert verdict.unresolvable == expected.unresolvable
            scores = board.scores(pod, names)
            assert scores == world.board(policy).scores(pod, names)
            assert all(0 <= score <= BEST for score in scores)
            _require_best(pod, board.choose(pod, names), verdict, dict(zip(names, scores, strict=True)))


def _require_best(pod: CardPod, chosen: FilterVerdict, verdict: FilterVerdict, scores: dict[str, int]) -> None:
    if pod.asked.none or not verdict.fitting:
        assert chosen == verdict
        return
    (best,) = chosen.fitting
    assert best in verdict.fitting
    assert scores[best] == max(scores[name] for name in verdict.fitting)


def test_a_node_that_takes_anothers_place_is_not_taken_for_it() -> None:
    world = World()
    board = world.board(PlacementPolicy.BINPACK)
    names, pod = ("n0", "n1"), CardPod("u", "b", "p", ASKED[1])
    world.take_in(CardNode("n0", MODELS[0], plugin_cards=1), board)
    assert board.filter(pod, names).fitting == ("n0",)
    world.take_in("n0", board)
    world.take_in(CardNode("n1", MODELS[0], plugin_cards=1), board)
    assert board.filter(pod, names) == FilterVerdict(("n1",), {"n0": UNKNOWN_NODE}, {})
    assert board.scores(pod, names) == [0, BEST]


def test_a_pod_on_cards_that_its_node_has_only_now_is_on_them() -> None:
    world = World()
    board = world.board(PlacementPolicy.BINPACK)
    names, pod = ("n0",), CardPod("u", "b", "p", ASKED[2])
    world.take_in(CardNode("n0", MODELS[0], plugin_cards=2), board)
    world.take_in((CardPod("u0", "b", "q", ASKED[1]), "n0", (Taken(3, 1000),), True), board)
    assert board.filter(pod, names).fitting == names
    world.take_in(CardNode("n0", MODELS[0], plugin_cards=4), board)
    three = CardPod("u", "b", "p", AskedCards(plugin=3, milli=3000))
    four = CardPod("u", "b", "p", AskedCards(plugin=4, milli=4000))
    assert (board.filter(three, names).fitting, board.filter(four, names).fitting) == (names, ())
