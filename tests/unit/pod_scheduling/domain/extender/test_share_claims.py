"""Shares that may come to a node: who counts there, and whether all get their cards in whatever order they come."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender import share_claims
from pod_scheduling.domain.extender.asked_cards import AskedCards, Earlier, Part
from pod_scheduling.domain.extender.card_footprints import FreeOnNode, place, place_beside_plugin
from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.domain.extender.model_usage import ModelUsage, model_of
from pod_scheduling.domain.extender.share_claims import ShareClaims, fit_in_any_order
from tests.examples import ledger_examples

MODEL = model_of("NVIDIA-H100-PCIe")


def share(milli: int, memory: int = 0, cards: int = 1) -> AskedCards:
    return AskedCards(parts=(Part(0, cards, milli, memory),))


def pod(uid: str, milli: int = 500) -> CardPod:
    return CardPod(uid, "a", uid, share(milli))


def test_who_claims_nothing_any_more_counts_on_no_node() -> None:
    usage = ModelUsage()
    claims = ShareClaims(usage)
    for uid, until_s in (("b", 10.0), ("a", 20.0)):
        usage.claim(uid, "a", [MODEL], 500, until_s)
        claims.put(pod(uid), ["n1", "n2"])
    claims.put(pod("never claimed"), ["n1"])
    usage.claim("whole", "a", [MODEL], 1000, 20.0)
    claims.put(CardPod("whole", "a", "whole", AskedCards(plugin=1)), ["n1"])
    assert [other_pod.uid for other_pod in claims.others("n1", "c")] == ["a", "b"]
    assert [other_pod.uid for other_pod in claims.others("n2", "a")] == ["b"]
    assert claims.others("n3", "c") == ()
    usage.end_claims(15)
    assert [other_pod.uid for other_pod in claims.others("n1", "c")] == ["a"]
    usage.use("a", "a", MODEL, 500)  # it is somewhere
    assert list(claims.others("n2", "c")) == []


def test_what_fits_in_one_order_and_not_in_another_does_not_fit() -> None:
    # 0.5 and 0.5 first share a card; 0.6 and 0.4 then share the other. 0.4 beside a 0.5 leaves no room for the 0.5.
    asked = [share(500), share(500), share(600), share(400)]
    free = FreeOnNode([1000, 1000], [8, 8], 8)
    assert all(place(asked_pod, free) is not None for asked_pod in asked)
    assert not fit_in_any_order(asked, FreeOnNode([1000, 1000], [8, 8], 8))
    assert fit_in_any_order(asked, FreeOnNode([1000, 1000, 1000], [8, 8, 8], 8))


def test_who_can_take_nothing_that_others_need_is_not_tried_in_all_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_claims, "_TRIED", 0)
    free = FreeOnNode([1000] * 8, [80] * 8, 80)
    assert fit_in_any_order([share(10 + number, 1) for number in range(30)], free)
    assert fit_in_any_order([share(600, 40)] * 8, free)
    assert fit_in_any_order([share(1000, cards=4), share(1000, cards=2), AskedCards(plugin=2)], free)
    assert not fit_in_any_order([share(300, 20)] * 17, free)  # that would have to be tried


def test_who_takes_one_unit_too_much_of_the_only_card_for_another_is_in_its_way() -> None:
    cards = FreeOnNode([1000, 400], [8, 0], 8)  # only the second one's memory keeps a small one off it
    assert fit_in_any_order([share(700), share(300, 1)], cards)
    assert not fit_in_any_order([share(700), share(301, 1)], cards)
    cards = FreeOnNode([1000, 50], [8, 8], 8)
    assert fit_in_any_order([share(100, 7), share(100, 1)], cards)
    assert not fit_in_any_order([share(100, 8), share(100, 1)], cards)


def test_nodes_that_are_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [share(500), share(490), share(510), share(400)]
    assert fit_in_any_order(asked, FreeOnNode([1000, 900], [8, 8], 8)) is False
    monkeypatch.delattr(share_claims, "place_beside_plugin")
    assert fit_in_any_order(asked[::-1], FreeOnNode([900, 1000], [8, 8], 8)) is False


def test_what_is_too_much_to_say_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    free = FreeOnNode([1000] * 8, [80] * 8, 80)
    assert fit_in_any_order([share(100)] * 80, free)
    assert fit_in_any_order([share(310, 20)] * 18, free)
    monkeypatch.setattr(share_claims, "_TRIED", 3)
    assert not fit_in_any_order([share(310, 20)] * 17, free)


_MILLI = st.sampled_from([200, 300, 400, 500, 600, 700])
_PART = st.builds(Part, st.just(0), st.just(1), _MILLI, st.integers(0, 3)) | st.builds(
    Part, st.just(0), st.integers(1, 2)
)
_SIMPLE = st.builds(lambda part: AskedCards(parts=(part,)), _PART)
_ANY = st.builds(
    lambda plugin, parts, earlier: AskedCards(
        plugin, tuple(parts), earlier=tuple(Earlier(part, 0) for part in earlier)
    ),
    st.integers(0, 1),
    st.lists(_PART, min_size=1, max_size=2),
    st.lists(_PART, max_size=1),
)
_FREE = st.lists(st.sampled_from([(1000, 4), (700, 3), (700, 1), (500, 4)]), min_size=1, max_size=3)


@given(st.lists(_SIMPLE, min_size=1, max_size=5) | st.lists(_ANY, min_size=1, max_size=3), _FREE)
@ledger_examples(300)
def test_it_is_what_trying_all_orders_finds(asked: list[AskedCards], cards: list[tuple[int, int]]) -> None:
    def free() -> FreeOnNode:
        return FreeOnNode([milli for milli, _ in cards], [memory for _, memory in cards], 4)

    def all_come(order: tuple[AskedCards, ...]) -> bool:
        there = free()
        return all(place_beside_plugin(listed_cards, there) is not None for listed_cards in order)

    some = [order for count in range(1, len(asked) + 1) for order in permutations(asked, count)]
    assert fit_in_any_order(asked, free()) == all(all_come(order) for order in some)
