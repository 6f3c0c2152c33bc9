"""Terminals that local pods keep: whose they are, and which one is joined."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reservation_core.adapters.local.sessions.wire import DESCRIPTION, TERMINALS
from reservation_core.domain.model import PodName
from reservation_core.ports.sessions.pod_streams import (
    NoTerminalError,
    Program,
    RunningProgram,
    Terminal,
    TerminalSize,
)
from tests.integration.sessions.pod_worlds import ClusterWorld, Reader, sh
from tests.waiting import PATIENCE_S, eventually

_SHELL = "echo $0 is ready; read line; echo $0 $line"


async def opened(world: ClusterWorld, pod: PodName, name: str, person: str) -> RunningProgram:
    """A terminal that says its name, and once more with each line that is typed."""
    program = await world.streams.run(pod, Program(("sh", "-c", _SHELL, name), Terminal(), person=person))
    await shows(program, f"{name} is ready")
    return program


async def shows(program: RunningProgram, text: str) -> None:
    """Wait until a program has written a text."""
    seen = b""

    async def read() -> None:
        nonlocal seen
        async for output in program.output():
            seen += output.data
            if text.encode() in seen:
                return
        raise AssertionError(f"it ended after {seen!r}")

    await asyncio.wait_for(read(), PATIENCE_S)


async def joined(world: ClusterWorld, pod: PodName, person: str = "", name: str | None = None) -> str:
    """The first word of the terminal that is joined."""
    program = await world.streams.attach(pod, TerminalSize(), person=person, name=name)
    try:
        async for output in program.output():
            return output.data.split()[0].decode()
    finally:
        await program.close(keep=True)
    raise AssertionError("it showed nothing")


@pytest.fixture
async def pod(world: ClusterWorld) -> PodName:
    return await world.start()


async def test_the_newest_terminal_of_the_same_person_is_joined(world: ClusterWorld, pod: PodName) -> None:
    with pytest.raises(NoTerminalError):
        await joined(world, pod, "ann")
    for name, person in (("first", "ann"), ("second", "ann"), ("third", "ben")):
        await (await opened(world, pod, name, person)).close(keep=True)
    assert [await joined(world, pod, person) for person in ("ann", "ben", "eve", "")] == [
        "second",
        "third",
        "third",
        "third",
    ]


async def test_terminals_are_listed_and_joined_by_name(world: ClusterWorld, pod: PodName) -> None:
    assert await world.streams.terminals(pod) == []
    before = datetime.now(UTC) - timedelta(seconds=1)
    first = await opened(world, pod, "first", "ann")
    second = await opened(world, pod, "second", "ben/with a slash")
    newest, oldest = await world.streams.terminals(pod)
    assert (newest.person, oldest.person) == ("ben/with a slash", "ann")
    assert before <= oldest.opened_at <= newest.opened_at <= datetime.now(UTC)
    assert oldest.program == f"sh -c {_SHELL} first"
    assert [await joined(world, pod, "eve", one.name) for one in (newest, oldest)] == ["second", "first"]
    await second.write(b"ends\n")
    await shows(second, "second ends")
    await second.wait()
    await second.close()
    with pytest.raises(NoTerminalError, match=f"no open terminal {newest.name}"):
        await joined(world, pod, "ben", newest.name)
    assert await joined(world, pod, "ben") == "first"
    await first.close()


async def test_who_is_told_of_a_terminals_end_finds_it_no_more(world: ClusterWorld, pod: PodName) -> None:
    """Not even while another connection does not take what the program has written last."""
    script = "echo ready; read line; head -c 800000 /dev/zero | tr '\\0' x; exit 3"
    program = await world.streams.run(pod, sh(script, terminal=Terminal()))
    reader = Reader(program)
    await reader.has("ready")
    slow = await world.streams.attach(pod, TerminalSize())
    await program.write(b"\n")
    assert (await reader.end()).exit_code == 3
    assert await world.streams.terminals(pod) == []
    with pytest.raises(NoTerminalError):
        await world.streams.attach(pod, TerminalSize())
    for one in (slow, program):
        await one.close()


async def test_the_name_is_that_of_the_device_and_the_program_the_foreground_one(
    world: ClusterWorld, pod: PodName
) -> None:
    shell = await world.streams.run(pod, Program(("bash", "--norc", "-i"), Terminal(), person="ann"))
    (started,) = await world.streams.terminals(pod)
    await shell.write(b"echo at=$(tty)=\n")
    await shows(shell, f"at=/dev/pts/{started.name}=")
    (terminal,) = await world.streams.terminals(pod)
    assert terminal.program == "bash --norc -i"
    await shell.write(b"sleep 600\n")

    async def sleeps() -> bool:
        return [one.program for one in await world.streams.terminals(pod)] == ["sleep 600"]

    await eventually(sleeps)
    await shell.close()


async def test_nothing_is_left_of_a_terminal_that_has_ended(world: ClusterWorld, pod: PodName, home: Path) -> None:
    program = await opened(world, pod, "first", "ann")
    folder = home / "pods" / str(pod) / TERMINALS
    assert len([*folder.iterdir()]) == 2
    await program.close()
    await eventually(lambda: [*folder.iterdir()] == [])


async def test_a_terminal_of_an_earlier_version_is_nobodys(world: ClusterWorld, pod: PodName, home: Path) -> None:
    await (await opened(world, pod, "first", "ann")).close(keep=True)
    await (await opened(world, pod, "second", "ann")).close(keep=True)
    *_, newest = sorted((home / "pods" / str(pod) / TERMINALS).glob(f"*{DESCRIPTION}"))
    newest.unlink()
    assert [await joined(world, pod, person) for person in ("ann", "ben")] == ["first", "second"]
    assert [terminal.person for terminal in await world.streams.terminals(pod)] == ["ann"]


async def test_pipes_make_no_terminal(world: ClusterWorld, pod: PodName) -> None:
    program = await world.streams.run(pod, sh("echo ready; cat"))
    await shows(program, "ready")
    assert await world.streams.terminals(pod) == []
    await program.close()
