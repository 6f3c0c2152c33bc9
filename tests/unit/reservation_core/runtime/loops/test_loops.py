"""Loops that go on whatever goes wrong in a step, and what is said of them meanwhile."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import asyncpg
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.planning.planning import LostLeadershipError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops import loops as loops_module
from reservation_core.runtime.loops.loop_metrics import LoopCollector
from reservation_core.runtime.loops.loops import FIRST_PAUSE_S, Loop, Loops
from tests.waiting import PATIENCE_S, eventually

DOWN = ClusterUnavailableError("down")
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
FAILURES = [
    DOWN,
    DatabaseUnavailableError("away"),
    ZeroDivisionError(),
    RuntimeError("a picture that is wrong"),
    TimeoutError(),
    MemoryError(),
    asyncpg.DataError("range lower bound must be less than or equal to range upper bound"),
    ExceptionGroup("tasks", [ExceptionGroup("inner", [DOWN]), KeyError("x")]),
]


class OverError(Exception):
    """What ends a loop here."""


class Counted:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def counted() -> Counted:
    """The clock of the loop's."""
    return Counted()


@pytest.fixture
def loop(counted: Counted) -> Loop:
    """A loop without pauses."""
    return Loops(lambda: NOW, counted)["planner"]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses after failures last no time."""
    monkeypatch.setattr(loops_module, "FIRST_PAUSE_S", 0.0)


def steps(outcomes: list[Exception | None], then: Callable[[], object]) -> Callable[[], "asyncio.Future[None]"]:
    """A step with these outcomes, one after another, and `then` each time after."""
    left = iter(outcomes)

    async def step() -> None:
        outcome = next(left, "over")
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == "over":
            then()

    return lambda: asyncio.ensure_future(step())


async def pauses(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, outcomes: list[Exception | None], longest_s: float
) -> list[float]:
    """The pauses between steps with these outcomes, each of which lasts no time."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    left = iter(outcomes)

    async def step() -> None:
        outcome = next(left, OverError())
        if outcome is not None:
            raise outcome

    with pytest.raises(OverError):
        await loop.repeat(step, longest_s=longest_s, ends=(OverError,))
    return made[1:]


async def test_what_goes_on_failing_is_tried_less_and_less_often(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await pauses(loop, monkeypatch, [DOWN] * 8, 5)
    assert 0 < made[0] <= FIRST_PAUSE_S
    assert all(2.5 <= pause <= 5 for pause in made[4:])
    assert len(set(made)) == len(made), "all processes at the same time would be tried together"


async def test_a_success_lets_pauses_begin_anew(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await pauses(loop, monkeypatch, [*[DOWN] * 5, None, DOWN], 60)
    assert made[4] > 4 * FIRST_PAUSE_S
    assert made[5] == 0
    assert 0 < made[6] <= FIRST_PAUSE_S


async def test_a_step_that_went_for_long_lets_them_begin_anew(
    loop: Loop, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    async def step() -> None:
        counted.s += 61
        raise DOWN if len(made) < 8 else OverError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(OverError):
        await loop.repeat(step, longest_s=60, ends=(OverError,))
    assert all(pause <= FIRST_PAUSE_S for pause in made)


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.usefixtures("at_once")
async def test_no_error_of_a_step_ends_it(loop: Loop, error: Exception, kept: bool) -> None:
    stop = asyncio.Event()
    failures = [error] * 3
    tried: list[int] = []

    async def step() -> None:
        tried.append(1)
        if failures:
            raise failures.pop()
        stop.set()

    await (loop.keep(step) if kept else loop.repeat(step, stop=stop))
    assert len(tried) == 4
    assert loop.failures == 3
    assert loop.failing_since is None


@pytest.mark.parametrize(
    "error", [LostLeadershipError("over"), ExceptionGroup("tasks", [DOWN, LostLeadershipError("over")])]
)
async def test_only_what_was_named_as_its_end_ends_it(loop: Loop, error: Exception) -> None:
    with pytest.raises(type(error)):
        await loop.repeat(steps([error], lambda: None), ends=(LostLeadershipError,))
    assert loop.failing_since is None


async def test_a_cancellation_that_is_told_as_an_error_ends_it_too(loop: Loop) -> None:
    """A group of tasks that was cancelled tells only what failed while it ended."""
    begun: list[asyncio.Task[None]] = []

    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise DOWN

    async def step() -> None:
        async with asyncio.TaskGroup() as group:
            begun.append(group.create_task(child()))

    task = asyncio.create_task(loop.repeat(step))
    await eventually(lambda: begun)
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_S)
    assert task.cancelled()
    assert len(begun) == 1


@pytest.mark.parametrize("kept", [False, True])
async def test_it_ends_as_cancelled_while_it_pauses(loop: Loop, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not with a group of errors, which would end the process."""
    monkeypatch.setattr(loops_module, "FIRST_PAUSE_S", 60.0)

    async def step() -> None:
        raise ZeroDivisionError

    task = asyncio.create_task(loop.keep(step, longest_s=60) if kept else loop.repeat(step, longest_s=60))
    await eventually(lambda: loop.failures)
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_S)
    assert task.cancelled()
    assert loop.failing_since is None, "what does not run does not fail"


@pytest.mark.parametrize("fails", [False, True])
async def test_stop_ends_it_in_the_middle_of_a_rest(loop: Loop, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops_module, "FIRST_PAUSE_S", 600.0)
    stop = asyncio.Event()
    done: list[int] = []

    async def step() -> None:
        done.append(1)
        if fails:
            raise DOWN

    task = asyncio.create_task(loop.repeat(step, rest_s=600, longest_s=600, stop=stop))
    await eventually(lambda: done)
    stop.set()
    await asyncio.wait_for(task, PATIENCE_S)
    assert done == [1]


async def test_a_loop_that_rests_first_does_nothing_before(loop: Loop) -> None:
    stop = asyncio.Event()
    stop.set()
    await loop.repeat(steps([], lambda: pytest.fail("too early")), rest_s=600, rests_first=True, stop=stop)


def test_it_says_since_when_what_is_wrong(loop: Loop, counted: Counted) -> None:
    assert str(loop) == "planner: well"
    loop.failed(DOWN)
    counted.s += 61
    away = DatabaseUnavailableError("away")
    away.__cause__ = asyncpg.ReadOnlySQLTransactionError("cannot execute UPDATE of hunter2")
    loop.failed(ExceptionGroup("tasks", [away]))
    assert loop.failing_s == 61
    assert str(loop) == (
        "planner: failing since 2030-01-01T12:00:00Z (DatabaseUnavailableError, SQLSTATE 25006; 2 failures)"
    )
    loop.note_success()
    assert (str(loop), loop.failing_s, loop.failures) == ("planner: well", 0, 2)


def test_those_that_fail_are_told_the_longest_first(counted: Counted) -> None:
    loops = Loops(lambda: NOW, counted)
    loops["fine"].note_success()
    for name in ("old", "new"):
        loops[name].failed(DOWN)
        counted.s += 30
    assert [loop.name for loop in loops.failing()] == ["old", "new"]
    assert [loop.name for loop in loops.failing(60)] == ["old"]
    assert loops["old"] is loops["old"]


def test_prometheus_is_told_of_each(counted: Counted) -> None:
    loops = Loops(lambda: NOW, counted)
    registry = CollectorRegistry()
    registry.register(LoopCollector(loops))
    loops["planner"].failed(DOWN)
    loops["lease"].note_success()
    counted.s += 7
    found = {
        (name, loop): registry.get_sample_value(name, {"loop": loop})
        for name in ("gpu_dev_loop_failures_total", "gpu_dev_loop_failing_seconds")
        for loop in ("planner", "lease")
    }
    assert [*found.values()] == [1, 0, 7, 0]


async def test_an_endless_run_is_well_again_when_it_has_not_failed_for_a_while(loop: Loop) -> None:
    runs: list[int] = []

    async def run() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise DOWN
        await asyncio.Event().wait()

    loop.failed(DOWN)
    task = asyncio.create_task(loop.keep(run, settled_s=0.01))
    await eventually(lambda: len(runs) == 2)
    await eventually(lambda: loop.failing_since is None)
    task.cancel()
    await asyncio.wait([task])


def test_what_nobody_foresaw_is_logged_with_its_traceback_but_not_each_time(loop: Loop, counted: Counted) -> None:
    def fail() -> BaseException:
        with pytest.raises(ValueError, match="hunter2") as caught:
            int("hunter2")
        return caught.value

    with capture_logs() as told:
        for _ in range(1000):
            loop.failed(fail())
            counted.s += 0.5
    traced = [line for line in told if "exc_info" in line]
    assert len(traced) == 2
    assert len(told) < 30
    assert "hunter2" not in str([line for line in told if "exc_info" not in line])


def test_trouble_that_passes_is_logged_without_a_traceback(loop: Loop, counted: Counted) -> None:
    with capture_logs() as told:
        for _ in range(1000):
            loop.failed(DOWN, again_s=0.5)
            counted.s += 0.5
        loop.note_success()
    assert not [line for line in told if "exc_info" in line]
    assert len(told) < 30
    assert told[0] == {
        "event": "a step is postponed; trying again",
        "log_level": "warning",
        "loop": "planner",
        "error": "down",
        "failures": 1,
        "again_s": 0.5,
    }
    assert (told[-1]["event"], told[-1]["failures"]) == ("a loop has recovered", 1000)


@pytest.mark.usefixtures("at_once")
async def test_a_cancellation_of_what_a_step_waits_for_does_not_end_it(loop: Loop) -> None:
    """Somebody else's: this task was not cancelled."""
    reached = asyncio.Event()

    async def step() -> None:
        if loop.failures == 0:
            waited_for: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waited_for.cancel()
            await waited_for
        reached.set()

    going = asyncio.ensure_future(loop.repeat(step))
    async with asyncio.timeout(PATIENCE_S):
        await reached.wait()
    assert (loop.failures, going.done()) == (1, False)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
