"""The extender's answers: which nodes would do, why not the others, which cards, and what is promised."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pod_scheduling.domain.extender.asked_cards import AskedCards, Part
from pod_scheduling.domain.extender.board import ExtenderBoard, Refused
from pod_scheduling.domain.extender.card_footprints import Placed, Taken
from pod_scheduling.domain.extender.cards_in_use import CardNode, CardPod, CardsInUse
from pod_scheduling.domain.extender.model_quotas import read_quotas
from pod_scheduling.domain.extender.model_usage import ModelUsage, model_of
from pod_scheduling.domain.maps.map_placement import Reserved
from pod_scheduling.domain.placement.rankings import ranking_of
from reservation_core.domain.cards.placement_policies import PlacementPolicy

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
H100 = model_of("NVIDIA-H100-80GB-HBM3")


def board(*nodes: CardNode, quotas: str = "{}") -> ExtenderBoard:
    usage = ModelUsage()
    usage.quotas = read_quotas(quotas)
    made = ExtenderBoard(CardsInUse(usage), ranking_of(PlacementPolicy.BINPACK))
    for node in nodes:
        made.cards.put_node(node)
    return made


def shares(name: str = "s", cards: int = 2, memory: int = 8) -> CardNode:
    return CardNode(name, H100, share_cards=cards, card_memory=memory, cpu_milli=8000, memory_mib=8000)


def plugin(name: str = "w", cards: int = 4) -> CardNode:
    return CardNode(name, H100, plugin_cards=cards, cpu_milli=8000, memory_mib=8000)


def whole(uid: str, cards: int, **more: object) -> CardPod:
    return CardPod(uid, "a", uid, AskedCards(plugin=cards, milli=1000 * cards), **more)  # type: ignore[arg-type]


def share(uid: str, milli: int, memory: int = 0, **more: object) -> CardPod:
    asked = AskedCards(parts=(Part(0, 1, milli, memory),), milli=milli)
    return CardPod(uid, "a", uid, asked, **more)  # type: ignore[arg-type]


def promise(reservation: str, hours: float) -> tuple[Reserved, ...]:
    return (Reserved(reservation, NOW + timedelta(hours=hours), "said"),)


@pytest.mark.parametrize(
    ("pod", "node", "words"),
    [
        (share("p", 300), plugin(), "offers no shares"),
        (whole("p", 1), shares(), "has 0 GPUs of a device plugin"),
        (whole("p", 5), plugin(), "has 4 GPUs of a device plugin, and the pod asks for 5"),
        (share("p", 300, 9), shares(), "has 8 units of memory, and a container of the pod asks for 9"),
    ],
)
def test_what_never_fits_is_unresolvable(pod: CardPod, node: CardNode, words: str) -> None:
    found = board(node).filter(pod, [node.name])
    assert found.fitting == ()
    assert words in found.unresolvable[node.name]


def test_what_is_full_now_is_said_with_what_is_free() -> None:
    made = board(shares(), plugin())
    made.cards.put_bound(whole("x", 3), "w", None)
    made.cards.put_bound(share("y", 900, 1), "s", (Taken(0, 900, 1),))
    made.cards.put_bound(share("z", 500, 7), "s", (Taken(1, 500, 7),))
    assert made.filter(whole("p", 2), ["w"]).failed == {"w": "1 GPUs are free and 2 are asked for; wait"}
    assert made.filter(share("p", 600), ["s"]).failed == {"s": "no GPU has a share of 0.6 free, the most is 0.5; wait"}
    assert "memory free, but 1; wait" in made.filter(share("p", 500, 2), ["s"]).failed["s"]
    assert "not seen this node" in made.filter(share("p", 500), ["elsewhere"]).failed["elsewhere"]


def test_decisions_name_the_cards_of_shares_and_none_of_a_device_plugin() -> None:
    made = board(shares(), plugin())
    assert made.decide(share("p", 300, 2), "s") == Placed((Taken(0, 300, 2),), ((0, (0,)),))
    assert made.decide(whole("q", 2), "w") == Placed((), ())
    assert isinstance(made.decide(whole("q", 2), "elsewhere"), Refused)


def test_a_pod_that_counts_already_does_not_stand_in_its_own_way() -> None:
    made = board(shares(cards=1), quotas='{"a": {"quota": {"h100": 1}}}')
    pod = share("p", 900, 8)
    made.cards.assume(pod, "s", (Taken(0, 900, 8),))
    assert made.filter(pod, ["s"]).fitting == ("s",)
    assert made.decide(pod, "s") == Placed((Taken(0, 900, 8),), ((0, (0,)),))
    assert made.filter(share("q", 900), ["s"]).fitting == ()
    made.cards.drop_assumed("p")
    assert made.filter(share("q", 900), ["s"]).fitting == ("s",)


def test_a_bound_pod_is_not_dropped_as_an_assumed_one() -> None:
    made = board(shares(cards=1))
    pod = share("p", 900)
    made.cards.assume(pod, "s", (Taken(0, 900),))
    made.cards.put_bound(pod, "s", None)
    made.cards.drop_assumed("p")
    assert made.filter(share("q", 900), ["s"]).fitting == ()
    made.cards.drop_pod("p")
    assert made.filter(share("q", 900), ["s"]).fitting == ("s",)


def test_a_node_that_changes_goes_on_without_the_cards_of_who_is_there() -> None:
    made = board(plugin(cards=8))
    made.cards.put_bound(whole("x", 6), "w", None)
    assert made.filter(whole("q", 2), ["w"]).fitting == ("w",)
    for cards, left in ((8, 2), (4, 0), (8, 2), (6, 0), (7, 1)):
        for model in (model_of("Tesla-T4"), H100):
            made.cards.put_node(replace(plugin(cards=cards), model=model))
            for asked in range(1, cards + 1):
                assert (made.filter(whole("q", asked), ["w"]).fitting == ("w",)) is (asked <= left), (cards, asked)


def test_cards_that_somebody_leaves_where_there_were_too_few_are_those_of_who_stays() -> None:
    made = board(plugin(cards=8))
    for uid, cards in (("x", 6), ("y", 4)):
        made.cards.put_bound(whole(uid, cards), "w", None)
        assert made.filter(whole("q", 8 - cards), ["w"]).fitting == (("w",) if uid == "x" else ())
    made.cards.drop_pod("x")
    made.cards.put_bound(whole("z", 1), "w", None)
    assert made.filter(whole("q", 4), ["w"]).fitting == ()
    assert made.filter(whole("q", 3), ["w"]).fitting == ("w",)


def test_a_share_that_had_too_little_has_no_more_than_it_asks_for_when_somebody_leaves() -> None:
    made = board(replace(shares(cards=1), plugin_cards=1))
    made.cards.put_bound(whole("x", 1), "s", None)
    made.cards.put_bound(share("y", 600), "s", None)
    assert made.filter(share("q", 1), ["s"]).fitting == ()
    made.cards.drop_pod("x")
    made.cards.put_bound(whole("z", 0), "s", None)  # one without cards comes in the same moment
    assert made.filter(share("q", 400), ["s"]).fitting == ("s",)
    assert made.filter(share("q", 401), ["s"]).fitting == ()


def test_what_the_ledger_has_promised_is_kept_free() -> None:
    made = board(shares(), plugin())
    made.cards.reserve({"s": {0: promise("bk-1", 5)}, "w": {0: promise("bk-1", 5), 1: promise("bk-1", 5)}})
    assert made.decide(share("p", 300), "s") == Placed((Taken(1, 300),), ((0, (1,)),))
    assert made.filter(whole("q", 3), ["w"]).failed == {
        "w": "2 GPUs are free and 3 are asked for, 2 GPUs being promised; wait"
    }
    made.cards.put_bound(whole("r", 2), "w", None)  # nobody says where it is: off what is promised
    assert made.filter(whole("q", 1), ["w"]).fitting == ()
    made.cards.reserve({})
    assert made.filter(whole("q", 2), ["w"]).fitting == ("w",)


def test_our_own_pods_and_their_reservations_count_once() -> None:
    made = board(plugin())
    made.cards.reserve({"w": {0: promise("job-1", 0), 1: promise("job-1", 0)}})
    made.cards.put_bound(whole("ours", 2), "w", (Taken(0, 1000), Taken(1, 1000)))
    assert made.filter(whole("q", 2), ["w"]).fitting == ("w",)
    assert made.filter(whole("q", 3), ["w"]).fitting == ()


@pytest.mark.parametrize(
    ("pod", "enforced", "fits"),
    [
        (whole("p", 4), True, False),
        (whole("p", 4, booking_id="bk-1"), True, True),
        (whole("p", 4, booking_id="bk-1"), False, False),
        (whole("p", 4, booking_id="bk-2"), True, False),
        (whole("p", 4, ends_at=NOW + timedelta(hours=5)), True, True),
        (whole("p", 4, ends_at=NOW + timedelta(hours=5)), False, False),
        (whole("p", 4, ends_at=NOW + timedelta(hours=6)), True, False),
        (whole("p", 2), True, True),
    ],
)
def test_promises_do_not_bind_their_own_pods_nor_those_that_end_before(
    pod: CardPod, enforced: bool, fits: bool
) -> None:
    made = board(plugin())
    made.cards.enforce("a", enforced=enforced)
    made.cards.reserve({"w": {0: promise("bk-1", 5), 1: promise("bk-1", 5)}})
    assert made.filter(pod, ["w"]).fitting == (("w",) if fits else ())
    assert isinstance(made.decide(pod, "w"), Placed) is fits


def test_a_pod_in_its_booking_is_thought_to_be_on_the_bookings_cards() -> None:
    made = board(plugin())
    made.cards.enforce("a", enforced=True)
    made.cards.reserve({"w": {0: promise("bk-1", -1), 1: promise("bk-1", -1)}})
    made.cards.put_bound(whole("in it", 2, booking_id="bk-1"), "w", None)
    assert made.filter(whole("q", 2), ["w"]).fitting == ("w",)


@pytest.mark.parametrize("before", [True, False])
def test_a_pod_that_comes_after_its_booking_or_after_a_promise_has_gone_is_where_it_may_be(before: bool) -> None:
    made = board(plugin())
    made.cards.enforce("a", enforced=True)
    if before:
        assert made.filter(whole("q", 4), ["w"]).fitting == ("w",)
    made.cards.reserve({"w": {0: promise("bk-2", 5), 3: promise("bk-1", -1)}})
    if before:
        assert made.filter(whole("q", 2), ["w"]).fitting == ("w",)
    made.cards.put_bound(whole("in it", 1, booking_id="bk-1"), "w", None)
    assert made.filter(whole("q", 2), ["w"]).fitting == ("w",)
    assert made.filter(whole("q", 3), ["w"]).fitting == ()
    made.cards.reserve({})
    made.cards.put_bound(whole("another", 1), "w", None)
    assert made.filter(whole("q", 2), ["w"]).fitting == ("w",)


def test_a_node_that_comes_back_has_what_is_on_it() -> None:
    made = board(shares(cards=1))
    made.cards.put_bound(share("p", 600), "s", (Taken(0, 600),))
    made.cards.drop_node("s")
    assert made.filter(share("q", 600), ["s"]).fitting == ()
    made.cards.put_node(shares(cards=1))
    assert made.filter(share("q", 600), ["s"]).fitting == ()
    assert made.filter(share("q", 400), ["s"]).fitting == ("s",)
    made.cards.put_node(shares(cards=2))
    assert made.filter(share("q", 600), ["s"]).fitting == ("s",)


def test_scores_are_0_to_10_and_the_best_stands_out() -> None:
    made = board(*(plugin(f"w{number}") for number in range(5)))
    for number, taken in enumerate([0, 1, 2, 3]):
        for other_number in range(taken):
            made.cards.put_bound(whole(f"x{number}-{other_number}", 1, cpu_milli=1000), f"w{number}", None)
    made.cards.put_bound(whole("full", 4), "w4", None)
    nodes = [f"w{number}" for number in range(5)] + ["elsewhere"]
    scores = made.scores(whole("p", 1), nodes)
    assert scores[3] == 10
    assert scores[0] == scores[4] == scores[5] == 0
    assert sorted(scores[:4]) == scores[:4]
    assert scores.count(10) == 1
    assert made.scores(CardPod("n", "a", "n", AskedCards()), nodes) == [0] * 6
    assert made.scores(whole("p", 1), ["w1"]) == [10]
    assert made.scores(whole("p", 9), nodes) == [0] * 6


def test_pods_of_several_containers_have_to_fit_altogether() -> None:
    made = board(shares(cards=2))
    asked = AskedCards(parts=(Part(0, 1, 600), Part(1, 1, 600), Part(2, 1, 400)), milli=1600)
    pod = CardPod("p", "a", "p", asked)
    assert made.filter(pod, ["s"]).fitting == ("s",)
    made.cards.put_bound(share("x", 100), "s", (Taken(1, 100),))
    made.cards.put_bound(share("y", 100), "s", (Taken(0, 100),))
    assert "all of the pod's containers together" in made.filter(pod, ["s"]).failed["s"]


def test_cards_that_a_node_does_not_have_are_not_looked_at() -> None:
    made = board(shares(cards=2))
    made.cards.put_bound(share("liar", 10), "s", tuple(Taken(card, 1000) for card in range(1, 1024)))
    assert made.filter(share("p", 990), ["s"]).fitting == ("s",)
    assert [key for key in made.cards.fleet._spots if key.startswith("liar/")] == ["liar/0"]
