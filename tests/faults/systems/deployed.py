"""The set of processes that the chart deploys: two APIs, two processors, and each minute one expiry and one updater."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx

from standalone.administrator import ensure_admin_token
from tests.faults.systems.machine_reference import MachineReference
from tests.faults.systems.system import QUICK, ProcessorProcess, System
from tests.programs.ports import own_port
from tests.programs.prepared_processes import started
from tests.waiting import PATIENCE_S, eventually

_MINUTE_S = 60
_EACH_MINUTE = ("reservation_expiry", "availability_updater")
_AS_DELIVERED: dict[str, object] = dict.fromkeys(QUICK)


@dataclass(slots=True)
class Deployment:
    """See the module. `settings` are what every process has beside the defaults, as the chart's `settings` are."""

    system: System
    settings: dict[str, object]
    reference: MachineReference
    processors: list[ProcessorProcess] = field(default_factory=list)
    apis: list[httpx.AsyncClient] = field(default_factory=list)
    looks: int = 0
    _turns: Iterator[httpx.AsyncClient] = field(default_factory=lambda: iter(()))

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send a request to the API, the two processes by turns."""
        return await next(self._turns).post(path, json=body)

    def kill_processors(self) -> None:
        """`kill -9`, all of them at once."""
        for processor in self.processors:
            processor.send(signal.SIGKILL)
        for processor in self.processors:
            assert processor.end(signal.SIGKILL) == -signal.SIGKILL
        self.processors.clear()

    async def start_processors(self, stack: ExitStack) -> None:
        """Start two, and wait until one of them leads."""
        self.processors = [stack.enter_context(self.system.processor(**self.settings)) for _ in range(2)]
        processors = self.processors
        await eventually(lambda: any(processor.said('"leading"') for processor in processors))

    async def start_apis(self, stack: ExitStack) -> None:
        """Start two, and wait until both are ready."""
        await ensure_admin_token(
            self.system.runtime.uow, self.system.runtime.ids, self.system.home, self.system.runtime.clock.now()
        )
        headers = {"Authorization": f"Bearer {(self.system.home / 'admin-token').read_text().strip()}"}
        for _ in range(2):
            listen = f"127.0.0.1:{own_port()}"
            stack.enter_context(self.system.processor(program=("api_service",), listen=listen, **self.settings))
            url = f"http://{listen}"
            self.apis.append(httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S, trust_env=False))
        for api in self.apis:
            await eventually(lambda api=api: _is_ready(api))
        self._turns = cycle(self.apis)

    async def look_each_minute(self) -> None:
        """Be the chart's CronJobs: at each full minute one run of each, which has to end well."""
        logs = self.system.home.parent
        while True:
            await asyncio.sleep(_MINUTE_S - time.time() % _MINUTE_S)
            environment = self.system.environment(**self.settings)
            runs = [started((name,), environment, logs / f"{name}.log", forked=True) for name in _EACH_MINUTE]
            for name, run in zip(_EACH_MINUTE, runs, strict=True):
                await eventually(lambda run=run: run.poll() is not None)
                assert run.poll() == 0, (logs / f"{name}.log").read_text()
            self.looks += 1


async def _is_ready(api: httpx.AsyncClient) -> bool:
    try:
        return (await api.get("/readyz")).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@asynccontextmanager
async def deployed(system: System, folder: Path, **settings: object) -> AsyncIterator[Deployment]:
    """The chart's set of processes while the block runs, with its settings but for these."""
    deployment = Deployment(system, {**_AS_DELIVERED, **settings}, MachineReference(folder / "machine-reference"))
    with ExitStack() as stack:
        program = ("tests.faults.systems.machine_reference", str(deployment.reference.path))
        reference = started(program, system.environment(), folder / "machine-reference.log", forked=False)
        stack.callback(reference.wait, PATIENCE_S)
        stack.callback(reference.send_signal, signal.SIGTERM)
        await deployment.start_processors(stack)
        await deployment.start_apis(stack)
        looking = asyncio.create_task(deployment.look_each_minute())
        try:
            yield deployment
        finally:
            for api in deployment.apis:
                await api.aclose()
            failed = looking.done()
            looking.cancel()
            if failed:
                looking.result()
