"""Which pods of a booking go when they use more than it has."""

from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.pods.overbooked_pods import Occupant, too_many

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@st.composite
def occupants(draw: st.DrawFn) -> list[Occupant]:
    made = []
    for number in range(draw(st.integers(0, 7))):
        cards = draw(st.none() | st.frozensets(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=1))
        began = draw(st.none() | st.integers(0, 3).map(lambda minutes: NOON + timedelta(minutes=minutes)))
        gpus = draw(st.integers(1, 4)) if cards is None else len(cards)
        goes, leaves = draw(st.booleans()), draw(st.booleans())
        made.append(Occupant(f"u-{number}", gpus, began, cards, goes=goes, leaves=leaves and goes))
    return made


def used(those: list[Occupant]) -> int:
    known = {card for occupant in those for card in occupant.cards or ()}
    return len(known) + sum(occupant.gpus for occupant in those if occupant.cards is None)


def older(one: Occupant, other: Occupant) -> bool:
    if one.leaves != other.leaves:
        return other.leaves
    if (one.began is None) != (other.began is None):
        return other.began is None
    assert one.began is None or other.began is not None
    return one.began is not None and other.began is not None and one.began < other.began


@given(occupants(), st.integers(0, 6), st.randoms())
def test_what_stays_fits_nobody_goes_in_vain_and_the_young_go_first(
    those: list[Occupant], cards: int, any_: Random
) -> None:
    going = too_many(cards, those)
    goes = [occupant for occupant in those if occupant.uid in going]
    stays = [occupant for occupant in those if occupant.uid not in going]
    assert all(occupant.goes for occupant in goes)
    assert used([stay for stay in stays if stay.goes]) <= cards
    for occupant in goes:
        before = [other for other in stays if not older(occupant, other)]
        assert used([*before, occupant]) > cards, "it could stay beside those that are not younger"
    shuffled = list(those)
    any_.shuffle(shuffled)
    assert too_many(cards, shuffled) == going


def test_the_youngest_go_first() -> None:
    pods = [Occupant(f"u-{number}", 1, NOON + timedelta(minutes=number)) for number in range(4)]
    assert too_many(2, pods) == ("u-3", "u-2")
    assert too_many(4, pods) == ()


def test_who_was_asked_to_go_is_asked_again_before_anybody_else() -> None:
    """A disruption budget may keep it for a while; meanwhile the times of others become known."""
    asked = Occupant("a", 1, NOON, leaves=True)
    assert too_many(1, [asked, Occupant("b", 1, NOON + timedelta(hours=1))]) == ("a",)
