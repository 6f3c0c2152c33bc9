"""Run a task beside a block of code, which ends when the task fails."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], *, name: str) -> AsyncIterator[None]:
    """Run `work` as a task during the block, and cancel it afterwards.

    When the work fails first, the block is cancelled and the work's error raised. Unlike with a TaskGroup, errors are
    not wrapped in a group.
    """
    block = asyncio.current_task()
    assert block is not None  # noqa: S101 - a coroutine always runs in one
    inside, ended_block = True, False

    def end_block(ended: asyncio.Task[None]) -> None:
        nonlocal ended_block
        if inside and not ended.cancelled() and ended.exception() is not None:
            ended_block = block.cancel()

    task = asyncio.create_task(work, name=name)
    task.add_done_callback(end_block)
    try:
        yield
    except asyncio.CancelledError:
        if not ended_block:
            raise
        ended_block = False
        if block.uncancel() > 0:
            raise  # another caller has cancelled it as well
    finally:
        inside = False
        if ended_block:
            # The block has ended by itself meanwhile, so our pending cancellation must be absorbed.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            block.uncancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        error = None if task.cancelled() else task.exception()
        if error is not None:
            raise error
