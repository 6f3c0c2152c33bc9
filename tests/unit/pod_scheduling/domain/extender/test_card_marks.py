"""Marks on pods that were given cards, and read again after a restart."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.asked_cards import AskedCards, Earlier, Part
from pod_scheduling.domain.extender.card_footprints import Footprint, Placed, Taken
from pod_scheduling.domain.extender.card_marks import marks_of, read_footprint, written_footprint

NOW = datetime(2026, 11, 21, 12, 0, 0, 123456, UTC)
TWO = AskedCards(parts=(Part(0, 1, 500, 8), Part(2, 2)), milli=2500)


def test_gpu_manager_finds_what_it_looks_for() -> None:
    placed = Placed((Taken(0, 500, 8), Taken(3, 1000), Taken(4, 1000)), ((0, (0,)), (2, (3, 4))))
    assert marks_of(placed, "node-a", NOW) == {
        "tencent.com/predicate-gpu-idx-0": "0",
        "tencent.com/predicate-gpu-idx-2": "3,4",
        "tencent.com/predicate-node": "node-a",
        "tencent.com/predicate-time": "1795262400123456000",
        "tencent.com/gpu-assigned": "false",
        "gpu-dev/cards": "0=500/8,3=1000,4=1000",
    }


@given(st.timedeltas(timedelta(0), timedelta(days=36_500)))
@example(timedelta(days=36_000, microseconds=1))
@example(timedelta(days=36_000, microseconds=3))
def test_times_are_exact_to_the_microsecond(passed: timedelta) -> None:
    written = int(marks_of(Placed((), ()), "n", NOW + passed)["tencent.com/predicate-time"])
    assert written - 1795262400123456000 == passed // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, None),
        ({"gpu-dev/cards": "0=500/8,3=1000,4=1000"}, (Taken(0, 500, 8), Taken(3, 1000), Taken(4, 1000))),
        # What gpu-manager wrote afterwards is what is so.
        (
            {
                "gpu-dev/cards": "0=500/8,3=1000,4=1000",
                "tencent.com/predicate-gpu-idx-0": "0",
                "tencent.com/predicate-gpu-idx-2": "5,6",
            },
            (Taken(0, 500, 8), Taken(5, 1000), Taken(6, 1000)),
        ),
        # Less than is asked for, too much of one card, nonsense: nobody knows.
        ({"gpu-dev/cards": "0=500/8"}, None),
        ({"gpu-dev/cards": "0=2500"}, None),
        ({"gpu-dev/cards": "all of them"}, None),
        ({"tencent.com/predicate-gpu-idx-0": "0"}, None),
        ({"tencent.com/predicate-gpu-idx-0": "0", "tencent.com/predicate-gpu-idx-2": "1"}, None),
        ({"tencent.com/predicate-gpu-idx-0": "0", "tencent.com/predicate-gpu-idx-2": "1,1"}, None),
        ({"tencent.com/predicate-gpu-idx-0": "x", "tencent.com/predicate-gpu-idx-2": "1,2"}, None),
    ],
)
def test_what_stands_on_a_pod_counts_where_it_says_enough(
    annotations: dict[str, str], expected: Footprint | None
) -> None:
    assert read_footprint(TWO, annotations) == expected


def test_an_init_containers_cards_are_read_from_our_own_mark_alone() -> None:
    asked = AskedCards(parts=(Part(0, 1, 500),), earlier=(Earlier(Part(None, 1, 900), 0),), milli=900)
    assert read_footprint(asked, {"tencent.com/predicate-gpu-idx-0": "1"}) is None
    assert read_footprint(asked, {"gpu-dev/cards": "1=900"}) == (Taken(1, 900),)


def test_whole_cards_of_a_device_plugin_are_never_named() -> None:
    assert read_footprint(AskedCards(plugin=1, milli=1000), {"gpu-dev/cards": "0=1000"}) is None


@given(
    st.dictionaries(
        st.integers(0, 1023), st.tuples(st.integers(1, 1000), st.integers(0, 2**31)), min_size=1, max_size=8
    )
)
def test_a_footprint_survives_its_annotation(cards: dict[int, tuple[int, int]]) -> None:
    footprint = tuple(Taken(card, *cards[card]) for card in sorted(cards))
    asked = AskedCards(parts=(Part(None, 1, 1),), milli=1)
    assert read_footprint(asked, {"gpu-dev/cards": written_footprint(footprint)}) == footprint
