"""Service of the waitlist, against trying every card."""

from datetime import UTC, datetime, timedelta
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import BookableGpu, choose, with_booked
from reservation_core.domain.bookings.free_cards import FreedTimes, FreeGpus
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.bookings.waitlist import WaitingRequest, WaitlistPass, WaitlistState
from reservation_core.domain.calendar import Range, to_micros
from tests.examples import examples

T0 = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hours(first: int, last: int) -> Range:
    return to_micros(T0 + first * HOUR), to_micros(T0 + last * HOUR)


def card(number: int, *busy: tuple[int, int], gpu_type: str = "h100", node: str = "a") -> BookableGpu:
    return BookableGpu(number, node, number, gpu_type, True, tuple(hours(*hours_taken) for hours_taken in sorted(busy)))


def request(name: str, gpus: int, first: int, last: int, gpu_type: str | None = None) -> WaitingRequest:
    return WaitingRequest(name, 1, "alice", None, Wanted(gpus, 1, gpu_type), Span(T0 + first * HOUR, T0 + last * HOUR))


def served(
    line: list[WaitingRequest], cards: list[BookableGpu], not_allowed: frozenset[str] = frozenset()
) -> list[str]:
    return served_in(WaitlistPass(line, cards, T0), not_allowed)


def served_in(turns: WaitlistPass, not_allowed: frozenset[str] = frozenset()) -> list[str]:
    """A whole pass: who has something after it."""
    found = []
    while not turns.over:
        turn = turns.try_next()
        if turn is None:
            continue
        if turn.request.id in not_allowed:
            turns.pass_over()
        else:
            found.append(turn.request.id)
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


def fits(cards: list[BookableGpu], wish: WaitingRequest) -> bool:
    """Whether some choice of cards would do."""
    start, end = to_micros(wish.span.start), to_micros(wish.span.end)
    able = [
        card
        for card in cards
        if wish.wanted.gpu_type in (None, card.gpu_type) and not any(s < end and start < e for s, e in card.busy)
    ]
    return any(
        len({listed_card.node for listed_card in some}) == 1
        and len({listed_card.gpu_type for listed_card in some}) == 1
        for some in combinations(able, wish.wanted.gpus)
    )


RANGES = st.tuples(st.integers(0, 8), st.integers(1, 4)).map(
    lambda drawn_pair: (drawn_pair[0], drawn_pair[0] + drawn_pair[1])
)
CARDS = st.lists(st.tuples(st.lists(RANGES, max_size=2), st.sampled_from(["h100", "t4"])), min_size=1, max_size=5)
LINE = st.lists(st.tuples(st.integers(1, 3), RANGES, st.sampled_from([None, "h100", "t4"])), max_size=6)


@examples(400)
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


KINDS = ["h100", "t4"]
WANTED = st.builds(
    Wanted,
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([None, *KINDS]),
    st.sampled_from([None, None, "a", "b"]),
)


@st.composite
def cards_of_nodes(draw: st.DrawFn) -> list[BookableGpu]:
    found: list[BookableGpu] = []
    for node in "abc"[: draw(st.integers(1, 3))]:
        for index in range(draw(st.integers(1, 3))):
            busy: list[tuple[int, int]] = []
            for first, last in sorted(draw(st.lists(RANGES, max_size=3))):
                if not busy or first >= busy[-1][1]:
                    busy.append((first, last))
            found.append(
                BookableGpu(
                    len(found),
                    node,
                    index,
                    draw(st.sampled_from(KINDS)),
                    draw(st.sampled_from([True, True, True, False])),
                    tuple(hours(*hours_taken) for hours_taken in busy),
                )
            )
    return found


@examples(500)
@given(cards_of_nodes(), st.lists(st.tuples(WANTED, RANGES), min_size=1, max_size=5))
def test_a_quick_look_says_what_the_choice_would(
    cards: list[BookableGpu], wishes: list[tuple[Wanted, tuple[int, int]]]
) -> None:
    free, slow = FreeGpus(cards), cards
    for wanted, when in wishes:
        chosen = choose(slow, wanted, *hours(*when))
        assert free.could_serve(wanted, *hours(*when)) == (chosen is not None)
        assert choose(free.free_for(*hours(*when)), wanted, *hours(*when)) == chosen
        if chosen is not None:
            free, slow = free.booked(chosen, *hours(*when)), with_booked(slow, chosen, *hours(*when))
        assert free.cards == slow


@examples(500)
@given(cards_of_nodes(), cards_of_nodes(), WANTED, RANGES)
def test_who_could_not_be_served_can_be_only_where_something_came_free(
    before: list[BookableGpu], after: list[BookableGpu], wanted: Wanted, when: tuple[int, int]
) -> None:
    could = choose(before, wanted, *hours(*when)) is not None
    can = choose(after, wanted, *hours(*when)) is not None
    assert could or not can or FreedTimes(before, after).concerns(wanted, *hours(*when))
    assert not FreedTimes(before, before)


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 4), RANGES), max_size=2),  # booked by others
        st.lists(st.integers(0, 9), max_size=2),  # given back
        st.lists(st.tuples(st.integers(1, 2), RANGES), max_size=3),  # come to wait
        st.booleans(),  # somebody leaves
    ),
    max_size=7,
)


@examples(400)
@given(STEPS)
def test_who_is_served_is_the_same_as_if_everybody_were_looked_at_each_time(steps: list[object]) -> None:
    taken: list[tuple[int, int, int]] = []  # card, from, until
    line: list[WaitingRequest] = []
    known, number, looked_at, all_of_them = WaitlistState(), 0, 0, 0

    def calendar() -> list[BookableGpu]:
        return [
            card(listed_number, *sorted((s, e) for c, s, e in taken if c == listed_number))
            for listed_number in range(5)
        ]

    for booked, back, come, leaves in steps:  # type: ignore[misc]
        for number_of_card, (first, last) in booked:
            if not any(c == number_of_card and s < last + 1 and first + 1 < e for c, s, e in taken):
                taken.append((number_of_card, first + 1, last + 1))
        for position in back:
            if position < len(taken):
                taken.pop(position)
        for gpus, (first, last) in come:
            line.append(request(f"r{number}", gpus, first + 1, last + 1))
            number += 1
        if leaves and line:
            line.pop(0)
        turns = known.begin(line, calendar(), T0, everybody=False)
        looked_at, all_of_them = looked_at + len(turns._left), all_of_them + len(line)
        found = served_in(turns)
        known.end(turns)
        assert found == served(line, calendar())
        for other_waiting_request in [waiting_request for waiting_request in line if waiting_request.id in found]:
            start, end = to_micros(other_waiting_request.span.start), to_micros(other_waiting_request.span.end)
            chosen = choose(calendar(), other_waiting_request.wanted, start, end)
            assert chosen is not None
            first, last = other_waiting_request.span.start - T0, other_waiting_request.span.end - T0
            taken += [(one.gpu_id, first // HOUR, last // HOUR) for one in chosen]
            line.remove(other_waiting_request)
    assert looked_at <= all_of_them


def test_what_was_given_and_given_back_between_two_looks_is_seen() -> None:
    known = WaitlistState()
    line = [request("first", 1, 1, 3), request("second", 1, 1, 3)]
    turns = known.begin(line, [card(0)], T0, everybody=False)
    assert served_in(turns) == ["first"]
    known.end(turns)
    # The first declines before anybody has looked again: the calendar is as it was when the last look began.
    turns = known.begin(line[1:], [card(0)], T0, everybody=False)
    assert served_in(turns) == ["second"]


def test_nobody_is_looked_at_again_while_nothing_comes_free_for_them() -> None:
    known = WaitlistState()
    line = [request("a", 1, 1, 3), request("b", 1, 5, 7, "t4"), request("c", 1, 9, 10)]
    full = [card(0, (0, 20)), card(1, (0, 20), gpu_type="t4", node="b")]
    known.end(known.begin(line, full, T0, everybody=False))
    assert known.begin(line, full, T0, everybody=False).over
    assert known.begin(line, [card(0, (0, 20), (21, 22)), full[1]], T0, everybody=False).over
    freed = known.begin(line, [card(0, (0, 6), (7, 20)), card(1, (0, 5), (6, 20), gpu_type="t4", node="b")], T0,
                        everybody=False)  # fmt: skip
    assert served_in(freed) == []
    assert known.begin(line, full, T0, everybody=True).over is False
