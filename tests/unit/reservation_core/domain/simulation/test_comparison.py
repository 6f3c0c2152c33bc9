"""The same jobs as today and changed."""

from dataclasses import replace

import pytest

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.planning.standings import BY_ARRIVAL
from reservation_core.domain.policy.limits import PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.simulation.answer_words import answer_text, change_text, table, wait_text
from reservation_core.domain.simulation.comparison import (
    POINTS,
    Question,
    Terms,
    compare,
    more_nodes,
    quotas_of,
    types_of,
)
from reservation_core.domain.simulation.replay import TraceJob
from reservation_core.domain.simulation.trace_bookings import TraceBooking
from tests.unit.reservation_core.domain.simulation.test_replay import HOUR, T0, nodes, trace_job


def asked(jobs: list[TraceJob], today: Terms, changed: Terms) -> Question:
    return Question(tuple(jobs), {0: "ann"}, today, changed)


def test_a_curve_has_few_points_and_ends_with_all_jobs() -> None:
    jobs = [trace_job(seq, 0, 1, 1, 1) for seq in range(250)]
    terms = Terms(tuple(nodes(1)), BY_ARRIVAL)
    found = compare(asked(jobs, terms, terms)).today
    assert found is not None
    assert len(found.curve) == POINTS
    assert list(found.curve) == sorted(found.curve)
    assert found.curve[-1] == (249 * 3600, 1)


def test_jobs_that_run_on_one_side_alone_are_on_neither() -> None:
    small, large = Terms(tuple(nodes(1)), BY_ARRIVAL), Terms(tuple(nodes(2)), BY_ARRIVAL)
    found = compare(asked([trace_job(1, 0, 1, 1, 1), trace_job(2, 0, 2, 1, 1)], small, large))
    assert found.never == 1
    assert found.today is not None
    assert found.changed is not None
    assert found.today.waits.jobs == found.changed.waits.jobs == 1
    assert compare(asked([trace_job(2, 0, 4, 1, 1)], small, large)).today is None


def test_a_quota_holds_jobs_back_until_one_ends_early() -> None:
    rules = (PolicyRule(Scope(user="ann"), Rules(max_gpus=1)),)
    free = Terms(tuple(nodes(4)), BY_ARRIVAL)
    bound = Terms(tuple(nodes(4)), BY_ARRIVAL, rules)
    found = compare(asked([trace_job(seq, 0, 1, asked=10, ran=1) for seq in range(3)], free, bound))
    assert found.today is not None
    assert found.changed is not None
    assert (found.today.waits.longest, found.changed.waits.longest) == (0, 2 * 3600)
    assert found.changed.waits.broken == 0


def test_only_quotas_are_read_of_rules() -> None:
    kept = PolicyRule(Scope(), Rules(max_gpus=4, max_gpu_hours_per_week=9.0, max_duration=HOUR))
    assert quotas_of([kept, PolicyRule(Scope(user="ann"), Rules(priority=3))]) == (
        PolicyRule(Scope(), Rules(max_gpus=4, max_gpu_hours_per_week=9.0)),
    )


def test_bookings_for_which_too_few_gpus_are_free_are_counted_on_each_side() -> None:
    small, large = Terms(tuple(nodes(1)), BY_ARRIVAL), Terms(tuple(nodes(2)), BY_ARRIVAL)
    span = Span(T0 + HOUR, T0 + 3 * HOUR)
    booked = TraceBooking("bkg-1", Wanted(1, 1, "h100"), span, T0 + HOUR, span.end)
    found = compare(replace(asked([trace_job(1, 0, 1, 10, 10)], small, large), bookings=(booked,)))
    assert found.today is not None
    assert found.changed is not None
    assert (found.today.refused, found.changed.refused) == (1, 0)


def test_added_nodes_are_like_most_of_their_type_and_have_gpus_of_their_own() -> None:
    more = more_nodes(nodes(4, 4, 2), {"gpu": 2})
    assert [len(node.gpus) for node in more] == [4, 4, 2, 4, 4]
    ids = [gpu.id for node in more for gpu in node.gpus]
    assert len(set(ids)) == len(ids)
    assert types_of(more) == {"h100"}
    with pytest.raises(KeyError, match="t4"):
        more_nodes(nodes(4), {"t4": 1})


@pytest.mark.parametrize(
    ("added", "order", "half_life", "has_policy", "words"),
    [
        ({}, None, None, False, "Unchanged"),
        ({"gpu": 1}, None, None, False, "With 1 more node"),
        ({"h100": 2, "t4": 1}, "area", None, False, "With 2 more h100 nodes, 1 more t4 node and small jobs first"),
        ({}, "arrival", 0 * HOUR, True, "With first come, first served, no fair shares and the given rules"),
        ({}, None, 24 * HOUR, False, "With fair shares with a half-life of 1d"),
    ],
)
def test_what_is_changed_in_words(
    added: dict[str, int], order: str | None, half_life: object, has_policy: bool, words: str
) -> None:
    assert change_text(added, order, half_life, has_policy=has_policy) == words  # type: ignore[arg-type]


class Side:
    gpus, median_s, p90_s, longest_s, used, broken, ahead_s = 8, 0.0, 60.0, 90_000.0, 0.756, 0, 4000.0
    refused_bookings = 2

    def __init__(self, mean_s: float) -> None:
        self.mean_s = mean_s


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (7200, 3600, "jobs would have waited 1h on average: 50% less than the 2h of today."),
        (3600, 7200, "jobs would have waited 2h on average: 100% more than the 1h of today."),
        (3600, 3610, "jobs would have waited as long as today: 1h on average."),
        (0, 3600, "jobs would have waited 1h on average; today no job waits."),
        (3600, 0, "no job would have waited; today jobs wait 1h on average."),
        (0, 0, "no job would have waited, as today."),
    ],
)
def test_the_answer_is_a_sentence(before: float, after: float, words: str) -> None:
    assert answer_text("Unchanged", Side(before), Side(after)) == f"Unchanged, {words}"


def test_the_table_has_both_sides() -> None:
    assert table(Side(30), Side(60), bookings=9)[0] == ("Bookings", "7", "7")
    rows = table(Side(30), Side(60))
    assert rows[1] == ("Mean wait", "30s", "1m")
    assert rows[2] == ("Half waited less than", "1s", "1s")
    assert ("Use of GPUs", "76%", "76%") in rows
    assert wait_text(90_000) == "1d1h"
    assert wait_text(3630) == "1h"
    assert (wait_text(0), wait_text(0.3)) == ("none", "less than 1s")
