"""Which replica may be read, against what a reader of histories would say; and how lag is counted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reservation_core.domain.network.replica_lag import (
    CLOCKS_DIFFER,
    ReplicaStanding,
    ReplicationLag,
    ServerProgress,
    standing,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
PRIMARY = ServerProgress(follows=False, position=100, system=7, timeline="00000001", at=AT)
REPLICA = replace(PRIMARY, follows=True)
SOON = timedelta(milliseconds=3)


def test_one_that_shows_all_that_the_primary_had_may_be_read() -> None:
    for position, found in ((99, ReplicaStanding.BEHIND), (100, ReplicaStanding.WHOLE), (101, ReplicaStanding.WHOLE)):
        assert standing(replace(REPLICA, position=position), PRIMARY, SOON) is found


@pytest.mark.parametrize(
    "replica",
    [
        replace(REPLICA, follows=False, position=200),
        replace(REPLICA, system=8, position=200),
        replace(REPLICA, timeline="00000002", position=200),
        replace(REPLICA, position=None),
        replace(REPLICA, at=AT - CLOCKS_DIFFER - timedelta(microseconds=1)),
        replace(REPLICA, at=AT + SOON + CLOCKS_DIFFER + timedelta(microseconds=1)),
    ],
    ids=["promoted", "another system", "another timeline", "nothing replayed", "clock behind", "clock ahead"],
)
def test_what_is_no_replica_of_it_may_not(replica: ServerProgress) -> None:
    assert standing(replica, PRIMARY, SOON) is ReplicaStanding.OTHER


def test_a_primary_that_follows_is_no_measure() -> None:
    assert standing(REPLICA, replace(PRIMARY, follows=True), SOON) is ReplicaStanding.OTHER
    assert standing(REPLICA, replace(PRIMARY, position=None), SOON) is ReplicaStanding.OTHER


def test_the_clock_may_go_on_as_long_as_the_question_took() -> None:
    late = replace(REPLICA, at=AT + timedelta(seconds=30))
    assert standing(late, PRIMARY, timedelta(seconds=30)) is ReplicaStanding.WHOLE


STEPS = st.lists(
    # Mostly nothing is written, and the replica catches up.
    st.tuples(st.sampled_from(["primary", "replica"]), st.sampled_from([0, 0, 1, 9]), st.floats(0.01, 5)),
    max_size=40,
)


@given(STEPS)
@example([("primary", 1, 1.0), ("replica", 1, 1.0), ("primary", 0, 1.0), ("primary", 0, 1.0)])
def test_lag_is_the_age_of_the_oldest_that_is_missing(steps: list[tuple[str, int, float]]) -> None:
    lag = ReplicationLag()
    now, written, shown = 0.0, 0, 0
    seen: list[tuple[float, int]] = []
    for who, by, later in steps:
        now += later
        if who == "primary":
            written += by
            seen.append((now, written))
            lag.note_primary(replace(PRIMARY, position=written), now)
        else:
            shown = min(written, shown + by)
            lag.note_replica(shown)
        # What was shown once is shown for good, also when the primary is looked at later.
        missing = [at for at, position in seen if position > shown]
        assert lag.seconds(now) == pytest.approx(now - missing[0] if missing else 0.0)


def test_positions_of_another_history_are_forgotten() -> None:
    lag = ReplicationLag()
    lag.note_primary(PRIMARY, 0)
    assert lag.seconds(10) == 10
    lag.note_primary(replace(PRIMARY, timeline="00000002", position=50), 10)
    assert lag.seconds(12) == 2


def test_a_replica_that_is_away_for_days_takes_no_memory() -> None:
    lag = ReplicationLag()
    for second in range(10_000):
        lag.note_primary(replace(PRIMARY, position=second + 1), second)
    assert lag.seconds(10_000) == 10_000
    assert len(lag._marks) <= 3600
