"""Cards for the parts of a pod: enough for each, no more than there is; what runs earlier beside what runs later."""

from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.asked_cards import AskedCards, Earlier, Part
from pod_scheduling.domain.extender.card_footprints import FreeOnNode, Taken, lay_out, place, place_beside_plugin

MEMORY = 16


def free(*milli: int) -> FreeOnNode:
    return FreeOnNode(milli, [MEMORY if share == 1000 else MEMORY * share // 1000 for share in milli], MEMORY)


def test_a_share_goes_where_gpu_manager_would_put_it() -> None:
    asked = AskedCards(parts=(Part(0, 1, 300, 2),), milli=300)
    for milli, card in [((1000, 400, 300), 2), ((1000, 400, 200), 1), ((1000, 1000), 0), ((200, 400, 400), 1)]:
        placed = place(asked, free(*milli))
        assert placed is not None
        assert placed.containers == ((0, (card,)),)
    assert place(AskedCards(parts=(Part(0, 1, 300, 2),)), FreeOnNode((400, 400), (9, 3), MEMORY)) is not None
    fuller = place(asked, FreeOnNode((400, 400), (9, 3), MEMORY))
    assert fuller is not None
    assert fuller.containers == ((0, (1,)),)
    assert place(asked, FreeOnNode((400, 400), (1, 1), MEMORY)) is None


def test_containers_get_cards_of_their_own_or_share_one() -> None:
    placed = place(AskedCards(parts=(Part(0, 1, 600), Part(1, 1, 600), Part(2, 1, 400, 3))), free(1000, 1000))
    assert placed is not None
    assert placed.containers == ((0, (0,)), (1, (1,)), (2, (0,)))
    assert placed.footprint == (Taken(0, 1000), Taken(1, 600))
    assert place(AskedCards(parts=(Part(0, 1, 600),) * 3), free(1000, 1000)) is None


def test_a_share_keeps_off_the_cards_that_a_device_plugin_gives_to_the_same_pod() -> None:
    asked = AskedCards(plugin=1, parts=(Part(0, 1, 500),))
    placed = place_beside_plugin(asked, free(1000, 1000))
    assert placed is not None
    assert placed.footprint == (Taken(1, 500),)
    assert place_beside_plugin(asked, free(1000)) is None
    assert place_beside_plugin(asked, free(900, 900)) is None
    assert place_beside_plugin(AskedCards(plugin=2), free(1000, 900)) is None


def test_what_ends_before_the_others_begin_is_put_where_these_will_be() -> None:
    asked = AskedCards(parts=(Part(0, 1, 500, 4),), earlier=(Earlier(Part(None, 1, 700, 2), 0),), milli=700)
    placed = place(asked, free(1000, 1000))
    assert placed is not None
    assert placed.footprint == (Taken(0, 700, 4),)
    whole = AskedCards(parts=(Part(0, 2),), earlier=(Earlier(Part(None, 1, 700, 2), 0),), milli=2000)
    placed = place(whole, free(1000, 1000))
    assert placed is not None
    assert placed.footprint == (Taken(0, 1000), Taken(1, 1000))
    # Beside a sidecar that goes on, only what it leaves of its card.
    beside = AskedCards(
        parts=(Part(None, 1, 500), Part(0, 1, 100)), sidecars=1, earlier=(Earlier(Part(None, 1, 600), 1),), milli=1100
    )
    placed = place(beside, free(1000, 1000))
    assert placed is not None
    assert placed.footprint == (Taken(0, 600), Taken(1, 600))
    assert place(beside, free(1000)) is None


def test_who_is_somewhere_on_a_node_is_thought_to_be_off_what_is_promised() -> None:
    asked = AskedCards(plugin=2, milli=2000)
    assert lay_out(asked, free(1000, 1000, 1000, 500), {0}, ()) == (Taken(1, 1000), Taken(2, 1000))
    assert lay_out(asked, free(1000, 1000), {0}, ()) == (Taken(0, 1000), Taken(1, 1000))
    assert lay_out(asked, free(1000, 500), (), ()) == (Taken(0, 1000),)
    assert lay_out(asked, free(1000, 1000, 1000), (), {1, 2}) == (Taken(1, 1000), Taken(2, 1000))
    share = AskedCards(parts=(Part(0, 1, 300),), milli=300)
    assert lay_out(share, free(300, 1000), {0}, ()) == (Taken(1, 300),)
    assert lay_out(share, free(300, 200), {0}, ()) == (Taken(0, 300),)
    assert lay_out(share, free(200, 100), (), ()) == (Taken(0, 1000),)


PARTS = st.builds(
    lambda number, whole, cards, milli, memory: Part(number, cards) if whole else Part(number, 1, milli, memory),
    st.none() | st.integers(0, 3), st.booleans(), st.integers(1, 3),
    st.integers(1, 99).map(lambda core: core * 10), st.integers(0, MEMORY),
)  # fmt: skip
ASKED = st.builds(
    lambda parts, sidecars, earlier: AskedCards(
        parts=tuple(parts),
        sidecars=min(sidecars, len(parts)),
        earlier=tuple(Earlier(part, min(beside, sidecars, len(parts))) for part, beside in earlier),
        milli=1,
    ),
    st.lists(PARTS, max_size=4), st.integers(0, 3), st.lists(st.tuples(PARTS, st.integers(0, 3)), max_size=2),
)  # fmt: skip


@given(ASKED, st.lists(st.integers(0, 10).map(lambda tenths: tenths * 100), min_size=1, max_size=4))
def test_no_card_is_ever_given_beyond_what_is_free_and_every_part_has_its_own(
    asked: AskedCards, milli: list[int]
) -> None:
    before = free(*milli)
    memory = list(before.memory)
    placed = place(asked, before)
    if placed is None:
        return
    total: dict[int, int] = {}
    for taken in placed.footprint:
        assert taken.milli <= milli[taken.card]
        assert taken.memory <= memory[taken.card] or milli[taken.card] == 1000
        total[taken.card] = taken.milli
    at_the_end = sum(part.cards * part.milli for part in asked.parts)
    assert sum(total.values()) >= at_the_end
    named = {number for number, _ in placed.containers}
    assert named == {part.container for part in asked.parts if part.container is not None}
    for earlier in asked.earlier:
        beside = sum(part.cards * part.milli for part in asked.parts[: earlier.sidecars])
        assert sum(total.values()) >= beside + earlier.part.cards * earlier.part.milli


@given(ASKED, st.lists(st.sampled_from([0, 500, 1000]), min_size=1, max_size=4), st.sets(st.integers(0, 3)))
def test_a_layout_never_takes_more_than_is_free(asked: AskedCards, milli: list[int], promised: set[int]) -> None:
    here = free(*milli)
    found = lay_out(asked, here, promised, ())
    assert len({taken.card for taken in found}) == len(found)
    assert all(0 <= amount <= 1000 for amount in here.milli)
    assert all(amount >= 0 for amount in here.memory)
