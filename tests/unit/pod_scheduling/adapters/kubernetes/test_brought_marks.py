"""What a pod had under an extender's names before it was bound says nothing, until somebody has written there."""

from typing import Any

from pod_scheduling.adapters.kubernetes.brought_marks import BroughtMarks
from pod_scheduling.adapters.kubernetes.card_sights import CardSightRules, pod_sight
from pod_scheduling.domain.extender.card_footprints import Taken
from pod_scheduling.ports.card_cluster import CardPodSeen
from pod_scheduling.ports.pod_binding import PodGone
from reservation_core.adapters.kubernetes.api_server.object_watch import ObservedObject
from tests.clusters.card_cluster import card_pod, container

CARDS, TIME, INDEX = "gpu-dev/cards", "tencent.com/predicate-time", "tencent.com/predicate-gpu-idx-0"


class Watched:
    """The result for each state that a watch tells of one pod."""

    def __init__(self) -> None:
        self.brought = BroughtMarks()

    def see(self, node: str | None, annotations: dict[str, str], *, gone: bool = False) -> CardPodSeen | PodGone:
        thing: dict[str, Any] = card_pod("p", container(core=30))
        thing["metadata"] |= {"uid": "u", "namespace": "a", "annotations": annotations}
        thing["spec"] |= {} if node is None else {"nodeName": node}
        sight = pod_sight(ObservedObject("a", "p", "u", thing, gone), CardSightRules(), self.brought.of("u"))
        self.brought.see("u", sight, thing)
        assert isinstance(sight, CardPodSeen | PodGone)
        return sight


def footprint(sight: CardPodSeen | PodGone) -> tuple[object, bool]:
    assert isinstance(sight, CardPodSeen)
    return sight.footprint, sight.marked


def test_what_was_brought_says_nothing_however_often_it_is_seen_on_the_node() -> None:
    watched, brought = Watched(), {CARDS: "0=300", INDEX: "0", TIME: "1", "other": "1"}
    watched.see(None, brought)
    for _ in range(2):
        assert footprint(watched.see("n", brought)) == (None, False)
    assert footprint(watched.see("n", {**brought, "other": "2"})) == (None, False)
    for _ in range(2):
        assert footprint(watched.see("n", {**brought, CARDS: "1=300", INDEX: "1"})) == ((Taken(1, 300),), True)
    assert footprint(watched.see("n", {**brought, TIME: "2"})) == ((Taken(0, 300),), True)


def test_what_counts_is_what_stood_there_last_before_the_binding() -> None:
    watched = Watched()
    watched.see(None, {CARDS: "0=300"})
    watched.see(None, {})
    assert footprint(watched.see("n", {CARDS: "0=300"})) == ((Taken(0, 300),), True)


def test_who_is_on_a_node_when_seen_first_has_brought_nothing_and_who_is_gone_is_forgotten() -> None:
    watched = Watched()
    assert footprint(watched.see("n", {CARDS: "0=300"})) == ((Taken(0, 300),), True)
    watched.see(None, {CARDS: "0=300"})
    watched.see(None, {CARDS: "0=300"}, gone=True)
    assert watched.brought.of("u") is None
