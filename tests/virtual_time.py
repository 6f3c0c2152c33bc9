"""An event loop whose time jumps to whatever comes next: nobody waits, and every run is the same."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingLoop(asyncio.SelectorEventLoop):
    """Where nothing is ready its time moves on to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_now = 0.0
        selector = self._selector  # type: ignore[attr-defined]
        really = selector.select

        def select(timeout: float | None = None) -> Any:
            found = really(0)
            if not found:
                if timeout is None:
                    raise RuntimeError("everybody waits, and nothing will ever come")
                self._virtual_now += timeout
            return found

        selector.select = select

    def time(self) -> float:
        """Seconds since it was made."""
        return self._virtual_now


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run to its end, however long that would take."""
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(work)
