"""Jobs to ask again, and when."""

from datetime import UTC, datetime, timedelta

from reservation_core.domain.jobs.repeated_asking import RepeatedEndRequests

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_the_time_between_doubles_up_to_a_quarter_of_an_hour() -> None:
    asked = RepeatedEndRequests(MINUTE)
    tried = [minute for minute in range(60) if asked.due(["job-a"], NOW + minute * MINUTE)]
    assert tried == [0, 1, 3, 7, 15, 30, 45]


def test_each_has_its_own_turn_and_who_ended_begins_anew() -> None:
    asked = RepeatedEndRequests(MINUTE)
    assert asked.due(["job-a"], NOW) == ["job-a"]
    assert asked.due(["job-a", "job-b"], NOW + MINUTE / 2) == ["job-b"]
    assert asked.due(["job-a", "job-b"], NOW + MINUTE) == ["job-a"]
    assert asked.due(["job-b"], NOW + 1.5 * MINUTE) == ["job-b"]
    assert asked.due(["job-a"], NOW + 1.5 * MINUTE) == ["job-a"]
