"""A token never reaches farther than the one that it is made with, whatever is asked for."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.people.token_scopes import EVERYTHING, LONGEST_LINE, TokenReach
from reservation_core.domain.statuses import TokenScope

NOW = datetime(2030, 1, 1, tzinfo=UTC)
some_scopes = st.frozensets(st.sampled_from(list(TokenScope)), min_size=1)
times = st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=3))


@given(some_scopes, st.none() | times, st.none() | some_scopes, st.none() | times, st.none() | times)
def test_it_gets_what_is_asked_for_within_its_makers_reach_or_nothing(
    has: frozenset[TokenScope],
    left: timedelta | None,
    scopes: frozenset[TokenScope] | None,
    expires_in: timedelta | None,
    longest: timedelta | None,
) -> None:
    maker = TokenReach(has, None if left is None else NOW + left)
    bounds = [bound for bound in (left, longest) if bound is not None]
    fits = (scopes or has) <= has and all(expires_in is not None and expires_in <= bound for bound in bounds)
    if not fits:
        with pytest.raises(ForbiddenError):
            maker.passed_on(scopes, expires_in, longest, NOW)
        return
    made = maker.passed_on(scopes, expires_in, longest, NOW)
    assert made == TokenReach(scopes or has, None if expires_in is None else NOW + expires_in, 1)


def test_a_line_of_tokens_is_bounded() -> None:
    reach = TokenReach(EVERYTHING, None)
    for _ in range(LONGEST_LINE):
        reach = reach.passed_on(None, None, None, NOW)
    with pytest.raises(ForbiddenError, match="earlier one"):
        reach.passed_on(None, None, None, NOW)
