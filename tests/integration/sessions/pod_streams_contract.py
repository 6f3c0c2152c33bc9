"""What the ways into pods do, whatever runs the pods. An implementation's own tests inherit `PodStreamsContract`.

They provide one fixture, `world`, a `PodWorld`: `ClusterWorld` for a cluster whose pods run on this machine.
`GPU_DEV_TESTS_STREAM_MIB` says how much passes through `cat` (64).
"""

import asyncio
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from reservation_core.domain.model import PodName
from reservation_core.ports.sessions.pod_streams import (
    InputClosedError,
    NoTerminalError,
    PodNotReachableError,
    PortClosedError,
    Program,
    ProgramEnd,
    SignalRefusedError,
    Terminal,
    TerminalSize,
)
from tests.integration.sessions.pod_worlds import (
    PodWorld,
    Reader,
    content_of,
    echoing,
    is_steady,
    ran,
    random_pieces,
    read_all,
    result_of,
    running,
    sh,
)
from tests.programs.ports import own_port
from tests.waiting import eventually

MIB = 2**20
STREAM_BYTES = int(os.environ.get("GPU_DEV_TESTS_STREAM_MIB", "64")) * MIB
AT_ONCE = 200


def _kept_by_the_kernel() -> int:
    """The most bytes of a TCP connection that this machine's kernel keeps, on both sides together."""
    return sum(int(Path(f"/proc/sys/net/ipv4/tcp_{side}").read_text().split()[2]) for side in ("rmem", "wmem"))


_MOST_ON_THE_WAY = 16 * MIB + 4 * _kept_by_the_kernel()
"""On a real cluster there are four connections one after another."""

_MOST_MEMORY = 48 * MIB
_KILLED = (None, 129, 137, 143)
_BOTH = pytest.mark.parametrize("terminal", [None, Terminal()], ids=["pipes", "terminal"])


class PodStreamsContract:
    """The port's promises, one by one."""

    @pytest.fixture
    async def pod(self, world: PodWorld) -> PodName:
        return await world.start()

    async def test_outputs_are_apart_and_the_exit_code_is_the_programs(self, world: PodWorld, pod: PodName) -> None:
        out, err, end = await ran(world, pod, sh("echo out; echo err >&2; exit 7"))
        assert (out, err, end.exit_code) == (b"out\n", b"err\n", 7)
        assert (await ran(world, pod, Program(("true",))))[2] == ProgramEnd(0)

    async def test_arguments_are_passed_on_as_they_are(self, world: PodWorld, pod: PodName) -> None:
        arguments = ("", " a  b ", "'\"$HOME`id`\\", "--", "-n", "ä\nö", "*", "=", "a=b&c=d;%20+")
        out, _, _ = await ran(world, pod, sh('for word; do printf "%s|" "$word"; done', *arguments))
        assert out.decode() == "".join(f"{argument}|" for argument in arguments)

    async def test_a_program_has_the_pods_variables_folder_and_its_own_variables(self, world: PodWorld) -> None:
        where = world.file()
        # Programs may start at home where a pod names no folder.
        env = (("OF_POD", "spaces, 'quotes' and\nlines"), ("BOTH", "pod"), ("HOME", "/"))
        pod = await world.start("sh", "-c", 'pwd >"$0.new"; mv "$0.new" "$0"; exec sleep 600', where, env=env)
        await eventually(lambda: content_of(world, pod, where))
        script = 'printf "%s|%s|%s|" "$OF_POD" "$BOTH" "$OWN"; pwd'
        program = replace(sh(script), variables=(("BOTH", "program"), ("OWN", "a 'b'\n$c")))
        out, _, _ = await ran(world, pod, program)
        assert out.decode() == f"{env[0][1]}|program|a 'b'\n$c|{await content_of(world, pod, where)}"

    async def test_a_command_that_is_not_there_is_said_on_standard_error(self, world: PodWorld, pod: PodName) -> None:
        out, err, end = await ran(world, pod, Program(("there-is-no-such-command",)))
        assert (out, end.exit_code) == (b"", 127)
        assert b"there-is-no-such-command" in err
        _, err, end = await ran(world, pod, Program(("/etc/passwd",)))
        assert end.exit_code == 126
        assert b"/etc/passwd" in err

    async def test_bytes_pass_unchanged_both_ways(self, world: PodWorld, pod: PodName) -> None:
        sent, received, size = hashlib.sha256(), hashlib.sha256(), 0
        async with running(world, pod, Program(("cat",))) as program:

            async def feed() -> None:
                for piece in random_pieces(STREAM_BYTES):
                    sent.update(piece)
                    await program.write(piece)
                await program.close_input()

            feeding = asyncio.create_task(feed())
            async for output in program.output():
                received.update(output.data)
                size += len(output.data)
            await feeding
            assert await program.wait() == ProgramEnd(0)
        assert (size, received.hexdigest()) == (STREAM_BYTES, sent.hexdigest())

    async def test_output_goes_on_after_the_end_of_input(self, world: PodWorld, pod: PodName) -> None:
        async with running(world, pod, sh("cat >/dev/null; seq 1 100000; exit 4")) as program:
            await program.write(b"input")
            await program.close_input()
            out, _, end = await result_of(program)
        assert out == "".join(f"{number}\n" for number in range(1, 100_001)).encode()
        assert end.exit_code == 4

    async def test_a_slow_reader_makes_the_program_wait(self, world: PodWorld, pod: PodName) -> None:
        file, block = world.file(), 64 * 1024
        script = 'i=0; while :; do head -c "$1" /dev/zero; i=$((i+1)); echo $i >"$2.new"; mv "$2.new" "$2"; done'
        before = psutil.Process().memory_info().rss
        async with running(world, pod, sh(script, str(block), file)) as program:

            async def blocks() -> int:
                return int(await content_of(world, pod, file) or 0)

            written = await is_steady(blocks) * block
            assert written < _MOST_ON_THE_WAY
            assert psutil.Process().memory_info().rss - before < _MOST_MEMORY
            more = written + MIB  # it goes on
            async for output in program.output():
                more -= len(output.data)
                if more <= 0:
                    break

    async def test_a_slow_program_makes_the_writer_wait(self, world: PodWorld, pod: PodName) -> None:
        file, written, digest = world.file(), 0, hashlib.sha256()
        script = 'while [ ! -e "$1" ]; do sleep 0.02; done; sha256sum'
        async with running(world, pod, sh(script, file)) as program:

            async def feed() -> None:
                nonlocal written
                for piece in random_pieces(_MOST_ON_THE_WAY + MIB):
                    await program.write(piece)
                    digest.update(piece)
                    written += len(piece)
                await program.close_input()

            async def taken() -> int:
                await ran(world, pod, Program(("true",)))
                return written

            feeding = asyncio.create_task(feed())
            assert await is_steady(taken) < _MOST_ON_THE_WAY
            await ran(world, pod, sh('echo go >"$1"', file))
            out, _, _ = await result_of(program)
            await feeding
        assert out.split()[0].decode() == digest.hexdigest()

    async def test_input_of_an_ended_program_is_refused(self, world: PodWorld, pod: PodName) -> None:
        async with running(world, pod, Program(("true",))) as program:
            await result_of(program)

            async def refused() -> bool:
                try:
                    await program.write(b"more")
                except InputClosedError:
                    return True
                return False

            await eventually(refused)
            await program.close_input()
            await program.send_signal("TERM")

    async def test_signals_reach_the_programs_group(self, world: PodWorld, pod: PodName) -> None:
        async with running(
            world, pod, sh("trap 'echo got; exit 3' INT; echo ready; while :; do sleep 0.05; done")
        ) as program:
            reader = Reader(program)
            await reader.has("ready")
            await program.send_signal("INT")
            assert (await reader.end()).exit_code == 3
            assert reader.text == "ready\ngot\n"
        # The output ends only with the child, which has it open, too.
        async with running(world, pod, sh("sleep 600 & echo ready; wait")) as program:
            reader = Reader(program)
            await reader.has("ready")
            await program.send_signal("TERM")
            assert (await reader.end()).exit_code == 143

    async def test_a_signal_that_is_none_is_refused(self, world: PodWorld, pod: PodName) -> None:
        async with running(world, pod, Program(("cat",))) as program:
            for name in ("NOSUCH", "", "9; id"):
                with pytest.raises(SignalRefusedError):
                    await program.send_signal(name)

    async def test_a_terminal_has_its_size_and_kind(self, world: PodWorld, pod: PodName) -> None:
        terminal = Terminal(TerminalSize(101, 37), "vt220")
        script = 'test -t 0 && test -t 1 && test -t 2 && echo "$TERM"; stty size; while read line; do stty size; done'
        async with running(world, pod, sh(script, terminal=terminal)) as program:
            reader = Reader(program)
            await reader.has("37 101")
            assert reader.text.split()[:3] == ["vt220", "37", "101"]
            await program.resize(TerminalSize(120, 50))

            async def resized() -> bool:
                await program.write(b"\n")
                return "50 120" in reader.text

            await eventually(resized)
            await program.close_input()
            assert (await reader.end()).exit_code == 0

    async def test_a_terminal_turns_keys_into_signals(self, world: PodWorld, pod: PodName) -> None:
        script = "trap 'echo got; exit 3' INT; echo ready; while :; do sleep 0.05; done"
        async with running(world, pod, sh(script, terminal=Terminal())) as program:
            reader = Reader(program)
            await reader.has("ready")
            await program.write(b"\x03")
            assert (await reader.end()).exit_code == 3

    async def test_without_a_command_there_is_a_login_shell(self, world: PodWorld, pod: PodName) -> None:
        for terminal in (Terminal(), None):
            async with running(world, pod, Program((), terminal)) as program:
                reader = Reader(program)
                await program.write(b"echo sta''rted; exit 5\n")
                assert (await reader.end()).exit_code == 5
                assert "started" in reader.text

    @_BOTH
    async def test_a_program_that_is_left_is_hung_up(
        self, world: PodWorld, pod: PodName, terminal: Terminal | None
    ) -> None:
        file = world.file()
        # What shells say of the child that is hung up, too, would end this one before its trap.
        script = "trap 'echo hup >\"$1\"; exit' HUP; echo ready; exec 2>/dev/null; while :; do sleep 0.05; done"
        program = await world.streams.run(pod, sh(script, file, terminal=terminal))
        await Reader(program).has("ready")
        await program.close()
        await program.close()
        await eventually(lambda: content_of(world, pod, file))
        # Neither input nor a trap ends this one, and nobody reads what it writes.
        program = await world.streams.run(pod, sh('echo $$ >"$1.pid"; exec yes', file, terminal=terminal))
        number = await eventually(lambda: content_of(world, pod, f"{file}.pid"))
        await program.close()

        async def is_over() -> bool:
            return (await ran(world, pod, sh('kill -0 "$1"', number.strip())))[2].exit_code != 0

        await eventually(is_over)

    async def test_many_programs_at_once(self, world: PodWorld, pod: PodName) -> None:
        script = 'read line; echo "$line $1"; exit $(($1 % 100))'
        numbers = range(AT_ONCE)
        programs = await asyncio.gather(*(world.streams.run(pod, sh(script, str(number))) for number in numbers))
        try:
            await asyncio.gather(*(program.write(b"hello\n") for program in programs))
            results = await asyncio.gather(*(result_of(program) for program in programs))
        finally:
            await asyncio.gather(*(program.close() for program in programs))
        assert [out for out, _, _ in results] == [f"hello {number}\n".encode() for number in numbers]
        assert [end.exit_code for _, _, end in results] == [number % 100 for number in numbers]

    async def test_many_programs_left_at_once(self, world: PodWorld, pod: PodName) -> None:
        """Containers must stay enterable while many programs of theirs end."""
        script = 'echo $$ >>"$1"; exec cat'
        file = world.file()
        programs = await asyncio.gather(*(world.streams.run(pod, sh(script, file)) for _ in range(AT_ONCE // 2)))

        async def all_have_begun() -> bool:
            return len((await content_of(world, pod, file)).split()) == len(programs)

        await eventually(all_have_begun)
        await asyncio.gather(*(program.close() for program in programs))

        async def all_are_over() -> bool:
            left = 'while read number; do kill -0 "$number" 2>/dev/null && echo "$number"; done <"$1"'
            return (await ran(world, pod, sh(left, file)))[0] == b""

        await eventually(all_are_over)

    @_BOTH
    async def test_programs_end_with_their_pod(self, world: PodWorld, pod: PodName, terminal: Terminal | None) -> None:
        async with running(world, pod, sh("echo ready; exec sleep 600", terminal=terminal)) as program:
            reader = Reader(program)
            await reader.has("ready")
            await world.end(pod)
            assert (await reader.end()).exit_code in _KILLED
        await eventually(lambda: world.ended(pod))
        with pytest.raises(PodNotReachableError):
            await world.streams.run(pod, Program(("true",)))
        with pytest.raises((PodNotReachableError, PortClosedError)):
            await world.streams.connect(pod, 1)

    async def test_a_pod_that_never_was_is_not_reachable(self, world: PodWorld) -> None:
        pod = PodName("job-neverwas", 1, 0)
        with pytest.raises(PodNotReachableError):
            await world.streams.run(pod, Program(("true",)))
        with pytest.raises((PodNotReachableError, NoTerminalError)):
            await world.streams.attach(pod, TerminalSize())
        with pytest.raises((PodNotReachableError, PortClosedError)):
            await world.streams.connect(pod, 1)

    async def test_a_port_passes_bytes_unchanged_both_ways(self, world: PodWorld, pod: PodName) -> None:
        port, server = await echoing(world, pod)
        connection = await world.streams.connect(pod, port)
        digest = hashlib.sha256()

        async def feed() -> None:
            for piece in random_pieces(STREAM_BYTES // 4):
                digest.update(piece)
                await connection.write(piece)

        feeding = asyncio.create_task(feed())
        received = await read_all(connection, STREAM_BYTES // 4)
        await feeding
        await connection.close()
        assert received == (STREAM_BYTES // 4, digest.hexdigest())
        await server.close()

    async def test_a_slow_reader_of_a_port_makes_the_other_side_wait(self, world: PodWorld, pod: PodName) -> None:
        port, server = await echoing(world, pod)
        connection = await world.streams.connect(pod, port)
        written, total = 0, _MOST_ON_THE_WAY + MIB
        digest = hashlib.sha256()
        before = psutil.Process().memory_info().rss

        async def feed() -> None:
            nonlocal written
            for piece in random_pieces(total):
                await connection.write(piece)
                digest.update(piece)
                written += len(piece)

        async def taken() -> int:
            await ran(world, pod, Program(("true",)))
            return written

        feeding = asyncio.create_task(feed())
        assert await is_steady(taken) < _MOST_ON_THE_WAY
        assert psutil.Process().memory_info().rss - before < _MOST_MEMORY
        assert await read_all(connection, total) == (total, digest.hexdigest())
        await feeding
        await connection.close()
        await server.close()

    async def test_the_other_side_of_a_port_sees_the_end_of_input(self, world: PodWorld, pod: PodName) -> None:
        port, server = await echoing(world, pod)
        connection = await world.streams.connect(pod, port)
        await connection.write(b"all")
        await connection.close_input()
        assert (await read_all(connection, 100))[1] == hashlib.sha256(b"allend").hexdigest()
        await connection.close()
        await server.close()

    async def test_many_connections_at_once(self, world: PodWorld, pod: PodName) -> None:
        port, server = await echoing(world, pod)

        async def ask(number: int) -> bytes:
            connection = await world.streams.connect(pod, port)
            try:
                await connection.write(b"%03d" % number)
                return await connection.read()
            finally:
                await connection.close()

        answers = await asyncio.gather(*(ask(number) for number in range(50)))
        assert answers == [b"%03d" % number for number in range(50)]
        await server.close()

    async def test_a_port_at_which_nothing_listens_is_closed(self, world: PodWorld, pod: PodName) -> None:
        """A cluster that learns it late raises it when the connection is read."""
        port = own_port()

        async def use() -> None:
            connection = await world.streams.connect(pod, port)
            await connection.read()

        with pytest.raises(PortClosedError, match=str(port)):
            await use()
