"""Orderly shutdown: the first SIGTERM or SIGINT stops the process in order, the second at once."""

import asyncio
import os
import signal
from collections.abc import Callable


def stop_on_signals(at_once: Callable[[], None] | None = None) -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets. A second one ends the process with the signal's exit code.

    `at_once` is called just before, to clean up; it must not wait.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            if at_once is not None:
                at_once()
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stop
