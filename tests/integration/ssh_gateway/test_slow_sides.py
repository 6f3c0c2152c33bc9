"""A side of an SSH connection that takes nothing makes the other one wait."""

import asyncio
import os
from pathlib import Path

from tests.integration.sessions.pod_worlds import is_steady
from tests.integration.ssh_gateway.ssh_clients import SshClient
from tests.waiting import PATIENCE_S

_BLOCK = 100_000
_MOST_BLOCKS = 200
_ALL_BLOCKS = 800


async def test_a_client_that_takes_no_output_makes_the_program_wait(alice: SshClient, job: str, tmp_path: Path) -> None:
    count = tmp_path / "count"
    ours, its = os.pipe()  # asyncio would read ahead, and wait for the rest
    script = f"for n in $(seq {_ALL_BLOCKS}); do head -c {_BLOCK} /dev/zero; echo >>{count}; done"
    process = await alice.start("box@gw", script, stdout=its)
    os.close(its)

    async def written() -> int:
        await asyncio.sleep(0.05)
        return len(count.read_bytes()) if count.exists() else 0

    assert await is_steady(written) < _MOST_BLOCKS
    os.close(ours)
    process.kill()
    await process.wait()


async def test_a_program_that_takes_no_input_makes_the_client_wait(alice: SshClient, job: str) -> None:
    process = await alice.start("box@gw", "echo in; exec sleep 600")
    assert process.stdin is not None
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), PATIENCE_S) == b"in\n"
    sent = 0

    async def feed() -> None:
        nonlocal sent
        while sent < _ALL_BLOCKS:
            process.stdin.write(bytes(_BLOCK))  # type: ignore[union-attr]
            await process.stdin.drain()  # type: ignore[union-attr]
            sent += 1

    async def taken() -> int:
        await asyncio.sleep(0.05)
        return sent

    feeding = asyncio.create_task(feed())
    assert await is_steady(taken) < _MOST_BLOCKS
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    process.kill()
    await process.wait()
