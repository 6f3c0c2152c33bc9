"""No event is overlooked, in whichever order transactions commit."""

from hypothesis import given
from hypothesis import strategies as st

from api_service.web.event_ids import MOST, PATIENCE_S, SeenIds


def test_what_was_passed_over_is_looked_for_until_it_comes() -> None:
    seen = SeenIds(10)
    seen.saw([11, 14], 0.0)
    assert (seen.newest, sorted(seen.missing)) == (14, [12, 13])
    seen.saw([13, 15], 1.0)
    assert (seen.newest, sorted(seen.missing)) == (15, [12])


def test_what_never_comes_is_given_up_in_time_and_not_before() -> None:
    seen = SeenIds(0)
    seen.saw([3], 100.0)
    seen.saw([5], 130.0)
    seen.give_up(100.0 + PATIENCE_S)
    assert sorted(seen.missing) == [1, 2, 4]
    seen.give_up(101.0 + PATIENCE_S)
    assert sorted(seen.missing) == [4]


def test_ids_that_were_never_used_are_not_kept_by_the_million() -> None:
    seen = SeenIds(0)
    seen.saw([10**9], 0.0)
    assert len(seen.missing) == MOST
    assert max(seen.missing) == 10**9 - 1
    seen.saw([2 * 10**9], 0.0)
    seen.give_up(0.0)
    assert len(seen.missing) == MOST
    assert max(seen.missing) == 2 * 10**9 - 1


@given(st.permutations(list(range(1, 25))), st.lists(st.integers(0, 24), max_size=24))
def test_every_event_is_seen_once_however_commits_come(order: list[int], cuts: list[int]) -> None:
    """What a look reads is what the query answers: all after the newest, and those that are missing."""
    committed: set[int] = set()
    seen = SeenIds(0)
    found: list[int] = []
    at = 0.0
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(order)], strict=True):
        committed |= set(order[begin:end])
        read = sorted(event_id for event_id in committed if event_id > seen.newest or event_id in seen.missing)
        found += read
        seen.saw(read, at)
        seen.give_up(at)
        at += 1.0
    assert sorted(found) == sorted(order)
