"""The programs of a campaign, as the chart deploys them; each is started again after it was killed."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.systems.system import QUICK, ProcessorProcess, System
from tests.programs.ports import own_port

_EACH_MINUTE = ("reservation_expiry", "availability_updater")
_EVERY_S = 60.0
_LOOK_S = 0.2
_STOP_S = 60.0


class Processes:
    """Two processors and two APIs. One that ends without having been killed goes into `violations`."""

    def __init__(self, system: System, settings: dict[str, object], violations: list[str]) -> None:
        self.looks: Counter[str] = Counter()
        self.apis = [f"127.0.0.1:{own_port()}" for _ in range(2)]
        self._system = system
        self._settings = {**dict.fromkeys(QUICK), **settings}
        self._violations = violations
        self._programs: dict[str, tuple[tuple[str, ...], dict[str, object]]] = {
            **{f"processor-{number}": (("reservation_processor",), {}) for number in range(2)},
            **{f"api-{number}": (("api_service",), {"listen": listen}) for number, listen in enumerate(self.apis)},
        }
        self._running: dict[str, ProcessorProcess] = {}
        self._killed: set[str] = set()
        self._started = 0

    @property
    def names(self) -> list[str]:
        """What can be killed or stopped."""
        return [*self._programs]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all while the block runs; afterwards each has to end in order when it is asked to."""
        for name in self._programs:
            self._start(name)
        try:
            yield
        finally:
            for name, process in self._running.items():
                code = await asyncio.to_thread(process.end, signal.SIGTERM, _STOP_S)
                if code != 0:
                    self._violations.append(f"{name} ended with {code} when it was asked to end; see {process.log}")

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal; one that was killed is started again by `watch`."""
        if number is signal.SIGKILL:
            self._killed.add(name)
        self._running[name].send(number)

    async def watch(self) -> None:
        """Start again whatever was killed, and run the chart's CronJobs, until cancelled."""
        due = time.monotonic() + _EVERY_S
        async with asyncio.TaskGroup() as looking:
            while True:
                await asyncio.sleep(_LOOK_S)
                for name, process in [*self._running.items()]:
                    code = process.returncode()
                    if code is None:
                        continue
                    if name not in self._killed:
                        self._violations.append(f"{name} ended by itself with {code}; see {process.log}")
                    self._killed.discard(name)
                    self._start(name)
                if time.monotonic() >= due:
                    due += _EVERY_S
                    for program in _EACH_MINUTE:
                        looking.create_task(self._look(program))

    async def _look(self, program: str) -> None:
        process = self._new((program,), {})
        while (code := process.returncode()) is None:
            await asyncio.sleep(_LOOK_S)
        self.looks[f"{program} ended with {code}"] += 1

    def _start(self, name: str) -> None:
        self._running[name] = self._new(*self._programs[name])

    def _new(self, program: tuple[str, ...], settings: dict[str, object]) -> ProcessorProcess:
        logs = self._system.home.parent / "logs"
        logs.mkdir(exist_ok=True)
        self._started += 1
        log = logs / f"{self._started:03}-{program[0]}.log"
        environment = self._system.environment(**self._settings, **settings)
        return ProcessorProcess(program, environment, log, forked=False)
