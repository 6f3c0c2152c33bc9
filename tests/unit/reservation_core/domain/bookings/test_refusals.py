"""Why a booking for any GPU type is refused: by the reasons of one type each, and never one type's beside another's."""

from datetime import UTC, datetime, timedelta

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import BookableGpu
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.bookings.refusals import Booker, Judge, rule_on
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.rules import UsageView

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SPAN = Span(NOW + timedelta(hours=1), NOW + timedelta(hours=2))
TAKEN = ((to_micros(SPAN.start), to_micros(SPAN.end)),)
ONE_H100 = Policy([PolicyRule(Scope(gpu_type="h100"), Rules(max_gpus=1))])


def node(gpu_type: str, count: int, busy: tuple[tuple[int, int], ...] = ()) -> list[BookableGpu]:
    first = 100 if gpu_type == "h100" else 0
    return [BookableGpu(first + index, gpu_type, index, gpu_type, True, busy) for index in range(count)]


def refusal(gpus: list[BookableGpu], count: int, policy: Policy = ONE_H100) -> list[tuple[str, str]]:
    judge = Judge(Booker(1, "alice", None), Wanted(count), policy, UsageView(), NOW)
    chosen, broken = rule_on(judge, gpus, SPAN, wait=False)
    assert chosen is None
    return [(breach.code, breach.detail) for breach in broken]


def test_a_type_that_is_only_taken_is_named_where_another_is_forbidden() -> None:
    ((code, detail),) = refusal([*node("a100", 2, TAKEN), *node("h100", 2)], 2)
    assert code == "no_free_gpus"
    assert detail.startswith("a100: 2 GPUs are not free for that whole time.")


def test_a_type_that_is_too_small_is_not_said_to_be_taken_where_another_is_forbidden() -> None:
    broken = refusal([*node("a100", 1), *node("h100", 2)], 2)
    assert [code for code, _ in broken] == ["larger_than_any_node", "max_gpus"]
    assert broken[0][1].startswith("a100: It asks for 2 GPUs on one node, and the largest has 1.")
    assert broken[1][1].startswith("h100: Asked for: 2 GPUs; the limit is 1")


def test_a_forbidden_type_is_not_said_to_be_taken_where_another_is() -> None:
    rules = [PolicyRule(Scope(gpu_type=gpu_type), Rules(max_gpus=1)) for gpu_type in ("a100", "h100")]
    broken = refusal([*node("a100", 2), *node("h100", 2, TAKEN)], 2, Policy(rules))
    assert [code for code, _ in broken] == ["max_gpus"]
    assert broken[0][1].startswith("a100: ")


def test_what_is_true_of_all_types_names_none() -> None:
    ((code, detail),) = refusal([*node("a100", 2, TAKEN), *node("h100", 2, TAKEN)], 2, Policy())
    assert code == "no_free_gpus"
    assert detail.startswith("2 GPUs are not free for that whole time.")


def test_a_rule_that_all_types_break_names_none_though_one_is_taken_besides() -> None:
    one_gpu = Policy([PolicyRule(Scope(), Rules(max_gpus=1))])
    ((code, detail),) = refusal([*node("a100", 2, TAKEN), *node("h100", 2)], 2, one_gpu)
    assert code == "max_gpus"
    assert detail.startswith("Asked for: 2 GPUs; the limit is 1")


def test_a_booking_that_begins_now_can_not_join_the_waitlist() -> None:
    judge = Judge(Booker(1, "alice", None), Wanted(2), Policy(), UsageView(), SPAN.start)
    chosen, broken = rule_on(judge, node("h100", 2, TAKEN), SPAN, wait=True)
    assert chosen is None
    assert [breach.code for breach in broken] == ["no_free_gpus"]
    assert "waitlist" not in broken[0].detail
    later = Judge(judge.who, judge.wanted, judge.policy, judge.usage, NOW)
    assert rule_on(later, node("h100", 2, TAKEN), SPAN, wait=True) == (None, [])


def test_a_request_that_fits_no_type_is_told_the_largest_node_of_all() -> None:
    ((code, detail),) = refusal([*node("a100", 1), *node("h100", 4)], 5, Policy())
    assert code == "larger_than_any_node"
    assert "the largest has 4" in detail
