"""One installation under test: a database, a home, its cards and one user; its processors are processes."""

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.jobs.reservations import JobView, NewReservation
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.queues import QueueName
from reservation_core.runtime.settings.components import StandaloneSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.submit import prepare, submit
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_expiry.expire import run_once as expire_once
from reservation_processor.process import run as process
from tests.database.pools import BESIDE_SILENT_CLUSTERS
from tests.faults.systems.records import Records
from tests.programs.prepared_processes import started
from tests.waiting import PATIENCE_S, eventually, eventually_sync

LONGEST = timedelta(hours=1)
# Like the defaults, but quicker to notice: a test has no minute to wait for a repair.
QUICK = {
    "lease_s": 1, "sweep_s": 0.2, "resync_s": 0.5, "visibility_s": 2, "end_grace_s": 5, "estimate_s": 0.5,
    "database_pool": BESIDE_SILENT_CLUSTERS,
}  # fmt: skip

# Both halves are answered by the partial indexes: asking often must not slow down what is waited for.
_SOME_LEFT = """
SELECT EXISTS (SELECT FROM reservations WHERE status = 'queued')
    OR EXISTS (SELECT FROM reservations WHERE status IN ('starting', 'running', 'ending'))
"""


class ProcessorProcess:
    """A processor in a process of its own, with its log: `module` with arguments, forked or started from nothing."""

    def __init__(self, program: Sequence[str], environment: Mapping[str, str], log: Path, *, forked: bool) -> None:
        self.log = log
        self._process = started(program, environment, log, forked=forked)
        self.pid = self._process.pid

    def returncode(self) -> int | None:
        """How it ended, as subprocess says it (-9: killed); None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM, timeout: float = PATIENCE_S) -> int:
        """Send a signal and wait for its end; returns how it ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
        return self._process.wait(timeout)

    def said(self, words: str) -> bool:
        """Whether its log has these words."""
        return words in self.log.read_text(errors="replace")


@dataclass(frozen=True, slots=True)
class System:
    """See the module. `owner` may do everything."""

    runtime: Runtime
    engine: AsyncEngine
    url: str
    home: Path
    gpus: str
    records: Records
    owner: Principal

    def environment(self, **settings: object) -> dict[str, str]:
        """What a process of this installation is given; a setting that is None is left as delivered."""
        given = {**QUICK, "home": self.home, "local_gpus": self.gpus, "database_url": self.url, **settings}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
        return kept | {f"GPU_DEV_{name.upper()}": str(value) for name, value in given.items() if value is not None}

    def settings(self, **settings: object) -> StandaloneSettings:
        """The same for components in this process."""
        return StandaloneSettings.model_validate({**QUICK, "home": self.home, "local_gpus": self.gpus, **settings})

    @contextmanager
    def processor(
        self, *, program: Sequence[str] = ("reservation_processor",), forked: bool = True, **settings: object
    ) -> Iterator[ProcessorProcess]:
        """A processor while the block runs; it must end in order afterwards unless it has ended before.

        `program` is a module with its arguments; not `forked`, it is started as a person would (seconds).
        """
        logs = self.home.parent / "processor-logs"
        logs.mkdir(exist_ok=True)
        log = logs / f"{len(list(logs.iterdir()))}.log"
        process = ProcessorProcess(program, self.environment(**settings), log, forked=forked)
        try:
            yield process
            if process.returncode() is None:
                assert process.end() == 0, process.log.read_text()
        finally:
            if process.returncode() is None:
                process.end(signal.SIGKILL)

    def new(self, workload: Mapping[str, object], *, who: Principal | None = None, **fields: object) -> NewReservation:
        """A job as it would be stored, of the owner or somebody else."""
        request = JobSubmit.model_validate({"gpus": 1, "duration": 600, "workload": dict(workload), **fields})
        runtime = self.runtime
        return prepare(request, who or self.owner, ids=runtime.ids, longest=LONGEST, now=runtime.clock.now())

    async def submit(self, *jobs: NewReservation) -> list[str]:
        """Store jobs in one transaction; returns their ids."""
        answers = await submit(self.runtime.uow, jobs, self.runtime.clock.now())
        return [answer.reservation_id for answer in answers]

    async def job(self, job_id: str) -> JobView:
        """How it stands."""
        async with self.runtime.uow() as uow:
            view = await uow.reservations.view(job_id, None)
        assert view is not None
        return view

    async def status(self, job_id: str) -> JobStatus:
        """Its status now."""
        return (await self.job(job_id)).reservation.status

    async def reaches(self, job_id: str, *wanted: JobStatus, timeout: float = PATIENCE_S) -> JobView:
        """Wait until a job has one of these statuses."""

        async def there() -> JobView | None:
            view = await self.job(job_id)
            return view if view.reservation.status in wanted else None

        found = await eventually(there, timeout)
        assert found is not None
        return found

    async def cancel(self, job_id: str) -> JobStatus:
        """Ask for its end; returns its status then. Raises AlreadyFinalError."""
        async with self.runtime.uow() as uow:
            view = await cancel(uow, self.owner, job_id, None, self.runtime.clock.now())
        return view.reservation.status

    async def expire(self, **settings: object) -> None:
        """One run of the expiry."""
        await expire_once(self.runtime, self.settings(**settings))

    @asynccontextmanager
    async def working(self, runtime: Runtime | None = None, **settings: object) -> AsyncIterator[None]:
        """A processor in this process, on this or another runtime, while the block runs."""
        stop = asyncio.Event()
        task = asyncio.create_task(process(runtime or self.runtime, self.settings(**settings), stop))
        try:
            yield
        finally:
            stop.set()
            await task

    async def send(self, queue: QueueName, bodies: Sequence[object]) -> None:
        """Put anything that is JSON into a queue."""
        texts = [json.dumps(body) for body in bodies]
        await self.rows("SELECT pgmq.send_batch(:queue, CAST(:texts AS jsonb[]))", queue=queue.value, texts=texts)

    async def rows(self, sql: str, **parameters: Any) -> list[Any]:
        """What a statement answers."""
        async with self.engine.begin() as connection:
            result = await connection.execute(text(sql), parameters)
            return list(result.all()) if result.returns_rows else []

    async def all_final(self) -> bool:
        """Whether every job has ended."""
        [[left]] = await self.rows(_SOME_LEFT)
        return not left


@asynccontextmanager
async def open_system(url: str, folder: Path, gpus: str, *, pods_go_on: bool = False) -> AsyncIterator[System]:
    """An installation in `folder` on a migrated database, with its inventory and one administrator.

    With `pods_go_on` its pods are left alone at the end: it is going to be opened again.
    """
    home = folder / "home"
    settings = StandaloneSettings(home=home, local_gpus=gpus)
    async with open_runtime(settings, url, application="faults") as runtime:
        engine = open_engine(url, pool=2, application="faults")
        async with runtime.uow() as uow:
            user = await uow.identities.user("ada") or await uow.identities.create_user(
                "ada", Role.ADMIN, runtime.clock.now()
            )
        await update_inventory(runtime.uow, runtime.cluster, runtime.clock)
        owner = Principal(user.id, user.name, user.role, "tok-x", None)
        try:
            yield System(runtime, engine, url, home, gpus, Records(folder / "records"), owner)
        finally:
            await engine.dispose()
            if not pods_go_on:
                await _end_pods(runtime, home)


async def _end_pods(runtime: Runtime, home: Path) -> None:
    """A test that failed leaves nothing running."""
    for pod in (await runtime.cluster.list_pods()).pods:
        await runtime.cluster.delete_pod(str(pod.name), timedelta(0))
    eventually_sync(lambda: not processes_below(home))


def processes_below(home: Path) -> list[str]:
    """Supervisors of this home and whatever a pod of it left running, as command lines."""
    place = str(home.parent).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            ours = b"supervisor.py" in command and place in command
            if ours or (b"GPU_DEV_POD=" in (environ := (entry / "environ").read_bytes()) and place in environ):
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has just gone
    return found


def mixed(seed: int) -> random.Random:
    """A source of variety that is the same at every run."""
    return random.Random(seed)
