"""Which preemptible jobs give their GPUs: the least loss of all choices, found by trying all of them."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.pools.least_loss import MOST_ACROSS, Offer, fewest_lost

MOST_NODES = 4
VICTIMS = ("a", "b", "c", "d", "e", "f")


def gives(offer: Offer, gpus: int, taken: Sequence[str]) -> bool:
    return offer.free + sum(offer.held.get(victim, 0) for victim in taken) >= gpus


def least_by_trying(offers: Sequence[Offer], gpus: int, nodes: int, losses: Mapping[str, int]) -> int | None:
    """The least loss over all sets of jobs; None when even all of them do not suffice."""
    victims = sorted({victim for offer in offers for victim in offer.held})
    sets = [taken for count in range(len(victims) + 1) for taken in combinations(victims, count)]
    enough = [taken for taken in sets if sum(gives(offer, gpus, taken) for offer in offers) >= nodes]
    return min((sum(losses[victim] for victim in taken) for taken in enough), default=None)


offered = st.builds(
    lambda free, held: (free, held),
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(VICTIMS), st.integers(1, 3), max_size=4),
)


@given(
    st.lists(offered, min_size=1, max_size=MOST_NODES),
    st.integers(1, 6),
    st.integers(1, MOST_NODES),
    st.fixed_dictionaries({victim: st.integers(0, 20) for victim in VICTIMS}),
)
def test_no_choice_loses_less(
    nodes: list[tuple[int, dict[str, int]]], gpus: int, count: int, losses: dict[str, int]
) -> None:
    offers = [Offer(number, free, held) for number, (free, held) in enumerate(nodes)]
    choice = fewest_lost(offers, gpus, count, losses)
    least = least_by_trying(offers, gpus, count, losses)
    assert (None if choice is None else choice.loss) == least
    if choice is not None:
        assert len(set(choice.nodes)) == count
        assert all(gives(offers[node], gpus, sorted(choice.victims)) for node in choice.nodes)
        assert sum(losses[victim] for victim in choice.victims) == choice.loss


def test_free_gpus_cost_nobody_anything() -> None:
    offers = [Offer(0, 0, {"a": 2}), Offer(1, 2, {"b": 2})]
    choice = fewest_lost(offers, 2, 1, {"a": 5, "b": 1})
    assert choice is not None
    assert (choice.loss, choice.victims, choice.nodes) == (0, frozenset(), (1,))


def test_a_gang_is_lost_once_however_many_nodes_it_gives() -> None:
    offers = [Offer(0, 0, {"gang": 4, "a": 4}), Offer(1, 0, {"gang": 4, "b": 4})]
    choice = fewest_lost(offers, 4, 2, {"gang": 10, "a": 6, "b": 6})
    assert choice is not None
    assert (choice.loss, choice.victims) == (10, frozenset({"gang"}))


def test_of_very_many_gangs_some_choice_is_found() -> None:
    gangs = {f"gang-{number:02}": 1 for number in range(2 * MOST_ACROSS)}
    choice = fewest_lost([Offer(0, 0, gangs), Offer(1, 0, gangs)], 8, 2, dict.fromkeys(gangs, 3))
    assert choice is not None
    assert (choice.loss, len(choice.victims)) == (24, 8)
