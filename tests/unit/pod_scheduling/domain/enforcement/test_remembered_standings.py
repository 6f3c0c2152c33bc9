"""Remembered standings, and a circuit that stops asking."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.enforcement.booking_rulings import Standing
from pod_scheduling.domain.enforcement.remembered_standings import KnownStandings, MemoryRules, StandingQuestion
from reservation_core.domain.network.circuit import Circuit

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
YES = Standing(schedulable=True, reason="booked", until=NOW + timedelta(hours=1))
NO = Standing(schedulable=False, reason="not booked")
RULES = MemoryRules(fresh_s=5, kept_s=600, most_users=3, most_of_a_user=2)


def asked(user: str = "ada", gpus: int = 1) -> StandingQuestion:
    return StandingQuestion(user, "lab", "h100", gpus)


def known(standing: Standing = YES, at_s: float = 100) -> KnownStandings:
    memory = KnownStandings(RULES)
    memory.hear(asked(), standing, at_s)
    return memory


def test_an_answer_is_fresh_then_the_last_that_is_known_then_forgotten() -> None:
    for age, expected in ((0, (True, True)), (5, (True, True)), (5.1, (False, False)), (600, (False, False))):
        recalled = known().recall(asked(), 100 + age, NOW)
        assert recalled is not None
        assert (recalled.standing.fresh, recalled.settled) == expected
    assert known().recall(asked(), 700.1, NOW) is None
    for other in (asked("bob"), asked(gpus=2), StandingQuestion("ada", "other", "h100", 1)):
        assert known().recall(other, 100, NOW) is None


def test_a_booking_that_is_over_is_asked_about_again() -> None:
    recalled = known().recall(asked(), 100, NOW + timedelta(hours=1))
    assert recalled is not None
    assert (recalled.standing.fresh, recalled.settled) == (False, False)


def test_a_no_is_asked_about_again_soon_and_holds_until_then() -> None:
    for age, settled in ((0.5, True), (0.6, False), (5, False)):
        recalled = known(NO).recall(asked(), 100 + age, NOW)
        assert recalled is not None
        assert (recalled.standing.fresh, recalled.settled) == (True, settled)


def test_what_is_wanted_is_due_before_it_is_stale_and_forgotten_when_nobody_wants_it() -> None:
    memory = known()
    assert memory.due(102.4) == []
    assert memory.due(102.5) == [asked()]
    memory.hear(asked(gpus=2), YES, 101)
    assert memory.due(110) == [asked(), asked(gpus=2)]
    for at_s in (110.0, 300.0, 600.0):  # refreshed, though no pod comes: known all the same
        memory.hear(asked(), YES, at_s)
    assert memory.due(605) == [asked(gpus=2), asked()]
    assert memory.due(700.1) == [asked(gpus=2)]
    assert memory.recall(asked(), 700.2, NOW) is not None


@given(
    st.lists(
        st.tuples(st.sampled_from(["ada", "bob", "cyd", "dan", "eve"]), st.integers(1, 4), st.booleans()), max_size=60
    )
)
def test_its_size_is_bounded_and_nobody_pushes_out_what_is_known_of_others(
    steps: list[tuple[str, int, bool]],
) -> None:
    memory = KnownStandings(RULES)
    of_user: dict[str, int] = {}
    memory.hear(asked("root"), YES, 0)
    for at_s, (_, gpus, recalled) in enumerate(steps):
        if recalled:
            memory.recall(asked("mallory", gpus), at_s, NOW)
        else:
            memory.hear(asked("mallory", gpus), YES, at_s)
        assert memory.recall(asked("root"), at_s, NOW) is not None
    for at_s, (user, gpus, _) in enumerate(steps):
        memory.hear(asked(user, gpus), YES, 100 + at_s)
        of_user = {}
        for question in memory.due(400):
            of_user[question.user] = of_user.get(question.user, 0) + 1
        assert len(of_user) <= 3
        assert max(of_user.values()) <= 2
        assert user in of_user


def test_a_circuit_opens_after_failures_in_a_row_and_lets_one_at_a_time_try() -> None:
    circuit = Circuit(failures=3, pause_s=1)
    for _ in range(5):
        circuit.failed(0)
        circuit.failed(0)
        assert circuit.may_ask(0)
        circuit.answered()
    for _ in range(3):
        circuit.failed(10)
    assert circuit.open
    assert [circuit.may_ask(at) for at in (10, 10.9, 11, 11, 11.9, 12)] == [False, False, True, False, False, True]
    circuit.failed(12.5)
    assert [circuit.may_ask(at) for at in (13.4, 13.5)] == [False, True]
    circuit.answered()
    assert not circuit.open
    assert circuit.may_ask(13.5)
    circuit.failed(14)
    assert circuit.may_ask(14)
