"""Which slots are offered to whom: those that the rules would have, also for who answers a minute later."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import BookableGpu
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.bookings.refusals import Booker, Judge, slots_near
from reservation_core.domain.policy.limits import NO_POLICY, Policy, PolicyRule, Relaxation, Rules
from reservation_core.domain.policy.membership import not_in_project
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.domain.policy.rules import Holding, UsageView
from reservation_core.domain.statuses import ReservationKind
from tests.examples import examples

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NOW = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
THIS_MINUTE = NOW.replace(second=0)
CARDS = [BookableGpu(number, "a", number, ("h100", "t4")[number % 2], True) for number in range(4)]


def judge(policy: Policy, gpus: int = 1, *, foreign: bool = False, usage: UsageView = UsageView()) -> Judge:  # noqa: B008
    who = Booker(1, "alice", "vision" if foreign else None, not_in_project("vision") if foreign else None)
    return Judge(who, Wanted(gpus), policy, usage, NOW)


def policy(rules: Rules, scope: Scope = Scope()) -> Policy:  # noqa: B008
    return Policy([PolicyRule(scope, rules)])


def near(who: Judge, wish: Span) -> list[Span]:
    broken = who.broken("h100", wish)
    return [Span(*bounds) for bounds in slots_near(who, CARDS, wish, broken)]


def span(start: datetime, length: timedelta = HOUR) -> Span:
    return Span(start, start + length)


times = st.integers(1, 600).map(lambda integer: integer * MINUTE)
maybe = st.none() | times
relaxed = st.none() | st.tuples(
    times, st.sets(st.sampled_from([RuleName.MIN_NOTICE, RuleName.MAX_DURATION]), min_size=1)
)


@examples(300)
@given(maybe, maybe, maybe, relaxed, st.integers(-120, 900), times, st.integers(0, 2))
def test_whatever_is_offered_can_be_had_for_a_minute(
    min_notice: timedelta | None,
    max_duration: timedelta | None,
    max_advance: timedelta | None,
    exception: tuple[timedelta, set[RuleName]] | None,
    start: int,
    length: timedelta,
    held: int,
) -> None:
    rules = Rules(
        min_notice=min_notice, max_duration=max_duration, max_advance=max_advance, max_gpus=2,
        relaxed_if_starts_within=None if exception is None else (Relaxation(exception[0], frozenset(exception[1])),),
    )  # fmt: skip
    holdings = [
        Holding(f"bkg-{n}", ReservationKind.BOOKING, "alice", None, "t4", 1, NOW + n * HOUR, NOW + (n + 2) * HOUR)
        for n in range(held)
    ]
    who = judge(policy(rules), usage=UsageView(tuple(holdings)))
    wish = span(THIS_MINUTE + start * MINUTE, length)
    found = near(who, wish)
    assert all(rule.length == length for rule in found)
    for rule in found:
        for answered in (NOW, NOW + 59 * MINUTE / 60):
            then = judge(policy(rules), usage=UsageView(tuple(holdings)))
            then = Judge(then.who, then.wanted, then.policy, then.usage, answered)
            assert any(not then.broken(gpu_type, rule) for gpu_type in ("h100", "t4"))
    if exception is None and max_duration is not None and length > max_duration:
        assert found == []
    if max_duration is None and max_advance is None:
        assert found


def test_the_first_slot_after_the_notice_is_offered_to_who_needs_a_moment() -> None:
    found = near(judge(policy(Rules(min_notice=5 * HOUR))), span(THIS_MINUTE + HOUR))
    assert found[0].start == THIS_MINUTE + 5 * HOUR + 2 * MINUTE


def test_only_the_distance_counts() -> None:
    wish = span(THIS_MINUTE + 10 * HOUR)
    busy = [BookableGpu(card.gpu_id, card.node, card.index, card.gpu_type, True, ()) for card in CARDS]
    found = slots_near(judge(NO_POLICY), busy, wish, [])
    assert [start for start, _ in found] == [wish.start + n * HOUR for n in (-2, -1, 0, 1)]


def test_a_type_on_which_it_is_too_long_is_not_looked_at() -> None:
    short = policy(Rules(max_duration=HOUR), Scope(gpu_type="h100"))
    assert judge(short).conceivable({"h100", "t4"}, 2 * HOUR) == {"t4"}
    assert judge(short).conceivable({"h100", "t4"}, HOUR) == {"h100", "t4"}
    # A rule that helps itself with time excludes nothing, and neither does one with an exception for now.
    assert judge(policy(Rules(min_notice=HOUR))).conceivable({"h100"}, HOUR) == {"h100"}
    excepted = Rules(
        max_duration=HOUR, relaxed_if_starts_within=(Relaxation(HOUR, frozenset({RuleName.MAX_DURATION})),)
    )
    assert judge(policy(excepted)).conceivable({"h100"}, 2 * HOUR) == {"h100"}


def test_who_is_not_in_the_project_is_offered_nothing() -> None:
    assert near(judge(NO_POLICY, foreign=True), span(THIS_MINUTE + HOUR)) == []
