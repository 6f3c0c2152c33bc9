"""What budgets of tokens pay for, and what a token that is made with one may get."""

from datetime import timedelta

import pytest

from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.people.token_budgets import (
    FARTHEST_UNTIL,
    MICROS_AN_HOUR,
    Ask,
    Budget,
    ask_for,
    passed_on,
    refused,
)
from tests.clocks import START

HOUR = timedelta(hours=1)
H = MICROS_AN_HOUR
SECOND = H // 3600


def test_an_ask_is_the_part_that_comes_to_what_was_asked_for_before() -> None:
    assert ask_for("job-a", 4, 2 * HOUR) == Ask("job-a", 0, 8 * H)
    assert ask_for("job-a", 4, 3 * HOUR, 2 * HOUR) == Ask("job-a", 8 * H, 12 * H)


def test_every_budget_of_a_line_has_to_pay() -> None:
    line = [Budget("tok-a", 10 * H, None, 4 * H), Budget("tok-b", 8 * H, START + HOUR, 3 * H)]
    assert refused(line, 5 * H, START) is None
    beyond = refused(line, 5 * H + 1, START)
    assert beyond is not None
    assert (beyond.code, "token tok-b has 5 of 8 left until 2030-01-01T13:00Z" in beyond.detail) == (
        "token_budget",
        True,
    )
    first = refused(line, 7 * H, START)
    assert first is not None
    assert "token tok-a has 6 of 10 left. " in first.detail
    over = refused(line, 0, START + HOUR)
    assert over is not None
    assert (over.code, "ended at 2030-01-01T13:00Z" in over.detail) == ("token_budget_over", True)


def test_what_is_asked_for_is_never_told_as_if_there_was_enough() -> None:
    found = refused([Budget("tok-a", 8 * H, None, SECOND)], 8 * H, START)
    assert found is not None
    assert "asks for 8 GPU-hours" in found.detail
    assert "has 7.99 of 8 left" in found.detail
    found = refused([Budget("tok-a", 8 * H, None)], 8 * H + SECOND, START)
    assert found is not None
    assert "asks for 8.01 GPU-hours" in found.detail


def test_a_child_gets_no_more_than_its_maker() -> None:
    maker = Budget("tok-a", 8 * H, START + HOUR, 7 * H)
    assert passed_on(maker, "tok-b", 8, None, START) == Budget("tok-b", 8 * H, START + HOUR)
    assert passed_on(maker, "tok-b", 0.5, START + HOUR / 2, START) == Budget("tok-b", H // 2, START + HOUR / 2)
    for hours, until in ((8.1, None), (1, START + 2 * HOUR)):
        with pytest.raises(ForbiddenError, match="budget of 8 GPU-hours until 2030-01-01T13:00Z"):
            passed_on(maker, "tok-b", hours, until, START)
    with pytest.raises(ForbiddenError, match="in the future"):
        passed_on(maker, "tok-b", 1, None, START + HOUR)


@pytest.mark.parametrize("ahead", [timedelta(0), -HOUR, FARTHEST_UNTIL + HOUR])
def test_a_budget_ends_in_the_future_and_not_too_far_ahead(ahead: timedelta) -> None:
    with pytest.raises(ForbiddenError, match="in the future"):
        passed_on(None, "tok-b", 1, START + ahead, START)
    assert passed_on(None, "tok-b", 1, None, START).until is None
    assert passed_on(None, "tok-b", 1, START + FARTHEST_UNTIL, START).until == START + FARTHEST_UNTIL


def test_the_smallest_budget_is_one() -> None:
    assert passed_on(None, "tok-b", 1e-12, None, START).gpu_us == 1
