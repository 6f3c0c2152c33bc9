"""Shares that may come to a node: who counts there, and whether all get their cards in whatever order they come."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from reservation_core.domain.asked_cards import AskedCards, Part
from reservation_core.domain.card_footprints import FreeCards, place
from reservation_core.domain.cards_in_use import CardPod
from reservation_core.domain.model_usage import ModelUsage, model_of
from reservation_core.domain.share_claims import ShareClaims, fit_in_any_order

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
    claims.put(CardPod("whole", "a", "whole", AskedCards(plugin=1)), ["n1"])
    assert [each.uid for each in claims.others("n1", "c")] == ["a", "b"]
    assert [each.uid for each in claims.others("n2", "a")] == ["b"]
    assert claims.others("n3", "c") == ()
    usage.end_claims(15)
    assert [each.uid for each in claims.others("n1", "c")] == ["a"]
    usage.use("a", "a", MODEL, 500)  # it is somewhere
    assert list(claims.others("n2", "c")) == []


def test_what_fits_in_one_order_and_not_in_another_does_not_fit() -> None:
    # 0.5 and 0.5 first share a card; 0.6 and 0.4 then share the other. 0.4 beside a 0.5 leaves no room for the 0.5.
    asked = [share(500), share(500), share(600), share(400)]
    free = FreeCards([1000, 1000], [8, 8], 8)
    assert all(place(each, free) is not None for each in asked)
    assert not fit_in_any_order(asked, FreeCards([1000, 1000], [8, 8], 8))
    assert fit_in_any_order(asked, FreeCards([1000, 1000, 1000], [8, 8, 8], 8))


def test_what_is_too_much_to_say_does_not_fit() -> None:
    many = [share(10 + number) for number in range(30)]
    assert not fit_in_any_order(many, FreeCards([1000] * 8, [8] * 8, 8))
    alike = [share(100)] * 60
    assert fit_in_any_order(alike, FreeCards([1000] * 8, [8] * 8, 8))


_ASKED = st.builds(share, st.sampled_from([200, 300, 400, 500, 600, 700, 1000]), st.integers(0, 3))


@given(st.lists(_ASKED, min_size=1, max_size=5), st.lists(st.sampled_from([1000, 700, 500]), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_it_is_what_trying_all_orders_finds(asked: list[AskedCards], cards: list[int]) -> None:
    def all_come(order: tuple[AskedCards, ...]) -> bool:
        free = FreeCards(cards, [4] * len(cards), 4)
        return all(place(each, free) is not None for each in order)

    some = [order for count in range(1, len(asked) + 1) for order in permutations(asked, count)]
    assert fit_in_any_order(asked, FreeCards(cards, [4] * len(cards), 4)) == all(all_come(order) for order in some)
