"""A component on a machine whose clock a test sets: `python -m tests.faults.systems.stepped_program MODULE`.

The component's own reads of the wall clock, and those of the pods it starts, are moved by the seconds in the file
`clock-step` of its home.
"""

import os
import runpy
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.local import supervisor
from tests.faults.systems import stepped_supervisor

_really = time.time


def step_s(home: Path) -> float:
    """Return by how much the clock of this home's machine was set."""
    file = home / stepped_supervisor.STEP_FILE
    return float(file.read_text()) if file.exists() else 0.0


def install(home: Path) -> None:
    """From now on this process reads the clock of that machine."""

    def now(_clock: SystemClock) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=step_s(home))

    SystemClock.now = now  # type: ignore[method-assign]
    time.time = lambda: _really() + step_s(home)
    supervisor.__file__ = stepped_supervisor.__file__


if __name__ == "__main__":
    install(Path(os.environ["GPU_DEV_HOME"]))
    module = sys.argv[1]
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
