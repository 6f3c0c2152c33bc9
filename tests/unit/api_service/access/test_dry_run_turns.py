"""Only so many dry runs hold a picture of the queue at once."""

import pytest

from api_service.access.dry_run_turns import DryRunTurns
from api_service.problems import ProblemError


def test_a_turn_is_refused_while_all_are_taken_and_given_back_after_an_error() -> None:
    turns = DryRunTurns(most=1)
    with turns.take(), pytest.raises(ProblemError) as refused, turns.take():
        pass
    assert refused.value.status == 503
    assert "Try again" in refused.value.detail
    with pytest.raises(ValueError, match="no"), turns.take():
        raise ValueError("no")
    with turns.take():
        pass
