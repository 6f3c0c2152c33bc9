"""Work beside the requests, that has to go on as long as the application does."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

AGAIN_S = 1.0
_log = structlog.get_logger(__name__)


async def kept_going(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run it until it ends by itself or is cancelled; what it fails with is in the log, and it is begun again.

    Without it requests would be answered on and on, and nobody would see what is missing.
    """
    while True:
        try:
            return await run()
        except Exception:  # noqa: BLE001 - it is in the log, whatever it is, and what has to go on goes on
            _log.exception("background_work_failed", work=name)
            await asyncio.sleep(AGAIN_S)
