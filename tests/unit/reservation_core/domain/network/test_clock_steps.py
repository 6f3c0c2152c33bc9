"""What a difference between the database's time and the counted time means."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.network.clock_steps import (
    HELD_AT_MOST,
    LONGEST_QUESTION,
    PATIENCE,
    PATIENCE_AFTER_RECORD,
    STEP,
    StepVerdict,
    verdict,
)

QUICK = timedelta(milliseconds=1)
NONE = timedelta(0)
FIVE_MINUTES = timedelta(minutes=5)


@pytest.mark.parametrize("off", [FIVE_MINUTES, -FIVE_MINUTES, STEP, -STEP, 2 * HELD_AT_MOST])
def test_a_step_is_made_up_for(off: timedelta) -> None:
    assert verdict(off, QUICK, NONE, leads=True, recorded=False) is StepVerdict.MAKE_UP
    assert verdict(off, QUICK, NONE, leads=False, recorded=False) is StepVerdict.MAKE_UP


@pytest.mark.parametrize("off", [FIVE_MINUTES, -FIVE_MINUTES])
def test_a_step_that_nobody_makes_up_for_is_adopted(off: timedelta) -> None:
    assert verdict(off, QUICK, PATIENCE, leads=False, recorded=False) is StepVerdict.ADOPT


def test_who_differs_from_what_another_has_recorded_goes_by_it_unless_that_passes() -> None:
    assert verdict(FIVE_MINUTES, QUICK, NONE, leads=True, recorded=True) is StepVerdict.ADOPT
    assert verdict(FIVE_MINUTES, QUICK, NONE, leads=False, recorded=True) is StepVerdict.COUNT_ON
    assert verdict(FIVE_MINUTES, QUICK, PATIENCE_AFTER_RECORD, leads=False, recorded=True) is StepVerdict.ADOPT


def test_a_process_that_stood_still_makes_up_for_nothing_and_adopts_in_the_end() -> None:
    assert verdict(FIVE_MINUTES, QUICK, NONE, leads=False, recorded=False, behind=True) is StepVerdict.COUNT_ON
    assert verdict(FIVE_MINUTES, QUICK, PATIENCE, leads=False, recorded=False, behind=True) is StepVerdict.ADOPT


def test_drift_is_adopted_and_what_a_measurement_leaves_open_is_not() -> None:
    assert verdict(timedelta(milliseconds=30), QUICK, NONE, leads=True, recorded=False) is StepVerdict.ADOPT
    unclear = timedelta(milliseconds=80)
    assert verdict(timedelta(milliseconds=30), unclear, NONE, leads=True, recorded=False) is StepVerdict.IGNORE


@given(
    st.timedeltas(),
    st.timedeltas(min_value=LONGEST_QUESTION + QUICK, max_value=FIVE_MINUTES),
    st.booleans(),
    st.booleans(),
)
def test_a_slow_answer_decides_nothing(off: timedelta, took: timedelta, leads: bool, recorded: bool) -> None:
    assert verdict(off, took, PATIENCE, leads=leads, recorded=recorded) is StepVerdict.IGNORE


@given(st.timedeltas(), st.timedeltas(NONE, LONGEST_QUESTION), st.timedeltas(NONE, FIVE_MINUTES))
def test_only_the_leader_makes_up_for_what_has_lasted(off: timedelta, took: timedelta, pending: timedelta) -> None:
    late = PATIENCE + pending
    assert verdict(off, took, late, leads=False, recorded=False) in {StepVerdict.ADOPT, StepVerdict.IGNORE}
    assert verdict(off, took, late, leads=True, recorded=False) is not StepVerdict.COUNT_ON
