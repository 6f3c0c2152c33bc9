"""When the planner does what it does from time to time."""

from datetime import UTC, datetime, timedelta

from reservation_core.usecases.planning.planner import Cadence, PlannerRules

SECOND = timedelta(seconds=1)
NOW = datetime(2030, 1, 1, tzinfo=UTC)
RULES = PlannerRules(
    start_allowance=SECOND,
    window=10,
    batch=10,
    messages=10,
    estimates=10,
    estimate_every=SECOND,
    reload_every=60 * SECOND,
    max_reads=3,
    slot_batches=2,
)


def test_a_turn_of_slots_has_so_many_batches_and_comes_so_often() -> None:
    cadence = Cadence(RULES)
    assert not cadence.take_batch()
    assert cadence.begin_slots(NOW)
    assert [cadence.take_batch() for _ in range(3)] == [True, True, False]
    assert not cadence.begin_slots(NOW + SECOND / 2)
    assert cadence.begin_slots(NOW + SECOND)
    cadence.rest_from_slots()
    assert not cadence.take_batch()


def test_rest_does_not_make_slots_to_come_of_none() -> None:
    cadence = Cadence(RULES)
    cadence.rest_from_slots()
    assert cadence.batches_left is None


def test_everything_is_read_anew_now_and_then_and_when_messages_come_too_fast() -> None:
    cadence = Cadence(RULES)
    assert cadence.is_reload_due(NOW)
    cadence.loaded_at = NOW
    assert not cadence.is_reload_due(NOW + 59 * SECOND)
    assert cadence.is_reload_due(NOW + 60 * SECOND)
    cadence.full_reads = 11
    assert cadence.is_reload_due(NOW)
