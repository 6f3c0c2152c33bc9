"""The child process: one at a time, within its limits, and ended with its caller."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import psutil
import pytest

from reservation_core.domain.planning.standings import BY_AREA, BY_ARRIVAL
from reservation_core.domain.policy.limits import UNLIMITED, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.simulation.comparison import Question, Terms, compare
from reservation_core.runtime.simulation import simulator as simulator_module
from reservation_core.runtime.simulation.simulator import SimulationLimitError, Simulator, SimulatorBusyError
from tests.unit.reservation_core.domain.simulation.test_replay import nodes, trace_job
from tests.waiting import eventually

_LONG = 20_000


def question(jobs: int) -> Question:
    rules = (PolicyRule(Scope(), Rules(max_gpus=UNLIMITED)), PolicyRule(Scope(user="ann"), Rules(max_gpus=3)))
    today = Terms(tuple(nodes(4, 4)), BY_ARRIVAL)
    changed = Terms(tuple(nodes(4, 4, 4)), BY_AREA, rules, timedelta(days=7))
    trace = tuple(trace_job(seq, seq / 50, 1 + seq % 4, 2, 1) for seq in range(jobs))
    return Question(trace, {0: "ann"}, today, changed)


def children() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it may have ended meanwhile
            if "reservation_core.runtime.simulation" in child.cmdline():
                found.append(child)
    return found


async def test_the_child_answers_what_the_domain_does() -> None:
    asked = question(30)
    assert await Simulator(60).compare(asked) == compare(asked)
    assert children() == []


async def test_the_child_ends_when_its_caller_is_cancelled() -> None:
    task = asyncio.create_task(Simulator(600).compare(question(_LONG)))
    await eventually(children)
    [child] = children()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not child.is_running()


async def test_the_child_yields_and_has_bounds_and_none_of_the_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEV_DATABASE_PASSWORD", "secret")
    task = asyncio.create_task(Simulator(600).compare(question(_LONG)))
    await eventually(children)
    [child] = children()
    await eventually(lambda: child.nice() >= 10 and child.rlimit(psutil.RLIMIT_AS)[0] == simulator_module.MEMORY_BYTES)
    assert child.rlimit(psutil.RLIMIT_CPU)[0] in (600, psutil.RLIM_INFINITY)
    assert "GPU_DEV_DATABASE_PASSWORD" not in child.environ()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_too_long_and_too_large_are_said() -> None:
    with pytest.raises(SimulationLimitError):
        await Simulator(0.01).compare(question(_LONG))
    assert children() == []


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator_module, "MEMORY_BYTES", 100 * 2**20)
    with pytest.raises(SimulationLimitError):
        await Simulator(60).compare(question(_LONG))


def test_there_is_one_place() -> None:
    simulator = Simulator(1)
    with simulator.place(), pytest.raises(SimulatorBusyError), simulator.place():
        pass
    with simulator.place():
        pass
