"""One simulation at a time, in a child process that ends with its limit, its caller or its answer."""

import asyncio
import math
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from reservation_core.domain.simulation.comparison import Comparison, Question
from reservation_core.runtime.simulation.messages import ANSWER, QUESTION

MEMORY_BYTES = 768 * 2**20
"""Of address space. The container of the API may have 1 GiB in all."""

_CHILD = "reservation_core.runtime.simulation"
_PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG")
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_MOST_WORDS = 500
_log = structlog.get_logger(__name__)


class SimulatorBusyError(Exception):
    """Another simulation runs."""


class SimulationLimitError(Exception):
    """The simulation needs more time or memory than it may have."""


class Simulator:
    """Runs simulations for at most `limit_s` seconds each, of wall time and of CPU time."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._busy = False

    @contextmanager
    def place(self) -> Iterator[None]:
        """The one place for a simulation. Raises SimulatorBusyError while another one has it."""
        if self._busy:
            raise SimulatorBusyError
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    async def compare(self, question: Question) -> Comparison:
        """Let a child process compare. Raises SimulationLimitError; cancelling it ends the child."""
        sent = await asyncio.to_thread(QUESTION.dump_json, question)
        limits = (str(math.ceil(self.limit_s)), str(MEMORY_BYTES))
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _ONE_THREAD
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _CHILD, *limits, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment
        )
        try:
            async with asyncio.timeout(self.limit_s):
                answer, complaint = await child.communicate(sent)
        except TimeoutError as error:
            raise SimulationLimitError from error
        finally:
            await _end(child)
        if child.returncode == 0:
            return ANSWER.validate_json(answer)
        words = complaint.decode(errors="replace").strip()
        if child.returncode != -signal.SIGXCPU and "MemoryError" not in words:
            _log.error("simulation_failed", exit_code=child.returncode, error=words[-_MOST_WORDS:])
        raise SimulationLimitError


async def _end(child: Process) -> None:
    if child.returncode is None:
        child.kill()
        await child.wait()
