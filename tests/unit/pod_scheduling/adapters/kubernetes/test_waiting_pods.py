"""Pods on no node: known to be the ones that a scheduler asks about by uid and version, and by nothing else."""

from typing import Any

from pod_scheduling.adapters.kubernetes.waiting_pods import WaitingPods
from pod_scheduling.domain.extender.asked_cards import AskedCards
from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.card_cluster import CardPodSeen
from pod_scheduling.ports.pod_binding import PodGone

POD = CardPod("u", "team-a", "p", AskedCards(plugin=1, milli=1000))


def sent(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", "resourceVersion": "7", **metadata}}


def test_a_pod_is_known_in_the_version_that_was_told() -> None:
    waiting = WaitingPods()
    assert waiting.known(sent()) is None
    waiting.see("u", CardPodSeen(POD, version="7"))
    assert waiting.known(sent()) is POD
    for other in (sent(resourceVersion="8"), sent(uid="v"), sent(uid=["u"]), sent(resourceVersion=None), {}):
        assert waiting.known(other) is None
    waiting.see("u", CardPodSeen(POD, version="8"))
    assert waiting.known(sent()) is None
    assert waiting.known(sent(resourceVersion="8")) is POD


def test_who_is_on_a_node_or_gone_is_forgotten() -> None:
    waiting = WaitingPods()
    for sight in (CardPodSeen(POD, "node-1", version="7"), PodGone("u")):
        waiting.see("u", CardPodSeen(POD, version="7"))
        waiting.see("u", sight)
        assert waiting.known(sent()) is None
        assert not waiting._by_uid


def test_without_a_version_nothing_is_known() -> None:
    waiting = WaitingPods()
    waiting.see("u", CardPodSeen(POD))
    assert waiting.known(sent(resourceVersion="")) is None
