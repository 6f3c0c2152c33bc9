"""Who on the waitlist is served, against trying every card."""

from datetime import UTC, datetime, timedelta
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from reservation_core.domain.bookings import Span, Wanted
from reservation_core.domain.calendar import Range, to_micros
from reservation_core.domain.card_choice import BookableCard, choose, with_booked
from reservation_core.domain.waitlist import Turns, WaitingRequest

T0 = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hours(first: int, last: int) -> Range:
    return to_micros(T0 + first * HOUR), to_micros(T0 + last * HOUR)


def card(number: int, *busy: tuple[int, int], gpu_type: str = "h100", node: str = "a") -> BookableCard:
    return BookableCard(number, node, number, gpu_type, True, tuple(hours(*each) for each in sorted(busy)))


def request(name: str, gpus: int, first: int, last: int, gpu_type: str | None = None) -> WaitingRequest:
    return WaitingRequest(name, 1, "alice", None, Wanted(gpus, 1, gpu_type), Span(T0 + first * HOUR, T0 + last * HOUR))


def served(
    line: list[WaitingRequest], cards: list[BookableCard], not_allowed: frozenset[str] = frozenset()
) -> list[str]:
    turns, found = Turns(line, cards, T0), []
    while (turn := turns.next()) is not None:
        if turn.id in not_allowed:
            turns.pass_over()
        else:
            found.append(turn.id)
    return found


def test_first_come_first_served() -> None:
    assert served([request("one", 1, 1, 3), request("two", 1, 2, 4)], [card(0)]) == ["one"]


def test_one_that_does_not_fit_holds_nobody_up() -> None:
    assert served([request("large", 2, 1, 3), request("small", 1, 1, 3)], [card(0), card(1, (1, 2))]) == ["small"]


def test_one_that_may_not_have_it_holds_nobody_up() -> None:
    line = [request("first", 1, 1, 3), request("barred", 2, 1, 3), request("small", 1, 1, 3), request("late", 1, 1, 3)]
    cards = [card(0), card(1), card(2)]
    assert served(line, cards) == ["first", "barred"]
    assert served(line, cards, frozenset({"barred"})) == ["first", "small", "late"]


def test_who_could_have_it_is_before_who_came_later() -> None:
    line = [request("typed", 1, 1, 3, "t4"), request("any", 1, 1, 3), request("late", 1, 1, 3)]
    assert served(line, [card(0), card(1, gpu_type="t4", node="b")]) == ["typed", "any"]


def test_what_has_begun_is_not_served() -> None:
    assert served([request("begun", 1, 0, 3)], [card(0)]) == []


def fits(cards: list[BookableCard], wish: WaitingRequest) -> bool:
    """Whether some choice of cards would do."""
    start, end = to_micros(wish.span.start), to_micros(wish.span.end)
    able = [
        each
        for each in cards
        if wish.wanted.gpu_type in (None, each.gpu_type) and not any(s < end and start < e for s, e in each.busy)
    ]
    return any(
        len({each.node for each in some}) == 1 and len({each.gpu_type for each in some}) == 1
        for some in combinations(able, wish.wanted.gpus)
    )


RANGES = st.tuples(st.integers(0, 8), st.integers(1, 4)).map(lambda each: (each[0], each[0] + each[1]))
CARDS = st.lists(st.tuples(st.lists(RANGES, max_size=2), st.sampled_from(["h100", "t4"])), min_size=1, max_size=5)
LINE = st.lists(st.tuples(st.integers(1, 3), RANGES, st.sampled_from([None, "h100", "t4"])), max_size=6)


@settings(max_examples=400, deadline=None)
@given(CARDS, LINE)
def test_nobody_gets_what_somebody_before_them_could_have_had(
    world: list[tuple[list[tuple[int, int]], str]], wishes: list[tuple[int, tuple[int, int], str | None]]
) -> None:
    cards = [card(number, *busy, gpu_type=kind, node=kind) for number, (busy, kind) in enumerate(world)]
    line = [
        request(f"r{number}", gpus, first + 1, last + 1, kind)
        for number, (gpus, (first, last), kind) in enumerate(wishes)
    ]
    found = set(served(line, cards))
    free = cards
    for wish in line:
        # In its turn each is served exactly if it fits into what those before it have left.
        assert (wish.id in found) == fits(free, wish)
        if wish.id in found:
            start, end = to_micros(wish.span.start), to_micros(wish.span.end)
            chosen = choose(free, wish.wanted, start, end)
            assert chosen is not None
            free = with_booked(free, chosen, start, end)
