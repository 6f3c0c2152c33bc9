"""The local cluster: pods are processes on this machine, below a supervisor that outlives the control plane.

All state is on disk and in the process table (see `pod_directories`), so processes may share a home and be killed at
any time. Workloads run as the control plane's user: this cluster isolates GPUs, not users, who must trust each other.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from os import environ
from pathlib import Path
from signal import Signals
from typing import ParamSpec, TypeVar

from reservation_core.adapters.local import log_reading, supervisor
from reservation_core.adapters.local.inventory import LocalInventory
from reservation_core.adapters.local.limits.cgroups import PodCgroups
from reservation_core.adapters.local.log_trimming import trim_logs
from reservation_core.adapters.local.machine_times import MachineTimes
from reservation_core.adapters.local.pod_directories import PodDirectories, is_pod_name
from reservation_core.domain.cards.gpu_types import is_instance
from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.domain.model import PodName, PodPhase, PodSpec, PodStatus, Reason
from reservation_core.domain.request_terms import UNSAID, Share
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import (
    ClusterUnavailableError,
    OmittedOutput,
    PodListing,
    PodRefusedError,
    TimedOutput,
    TrimmedLogs,
)

P = ParamSpec("P")
T = TypeVar("T")

_POLL_EVERY_S = 0.1
_SWEEP_EVERY = 20  # polls between two polls of finished pods
_LAUNCH_PATIENCE_S = 30.0
_PRUNE_EVERY = timedelta(hours=1)
_LAUNCHERS = 8
# Variables with which an interpreter finds its libraries; supervisors inherit no others.
_INTERPRETER_ENV = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class LocalCluster:
    """Runs pods below `home` (GPU_DEV_HOME). `gpus` is GPU_DEV_LOCAL_GPUS, or None for the GPUs that NVML reports.

    `clock` is the machine's, for the times of files; pods report times by `ledger`, by default `clock`. `open_files` is
    the pods' soft limit of open files (None: this process's). `log_bytes_per_job` bounds the logs of one attempt, all
    its pods together; 0 means no bound. Jobs can have `has` of each node (see LocalInventory). Control groups below
    `cgroup` keep them to what they ask for, if it can be used. Raises BadGpusSettingError.
    """

    def __init__(
        self,
        home: Path,
        gpus: str | None,
        clock: Clock,
        ledger: Clock | None = None,
        *,
        open_files: int | None = None,
        log_bytes_per_job: int = 0,
        has: Share = UNSAID,
        cgroup: Path | None = None,
    ) -> None:
        self._inventory = LocalInventory(gpus, has=has)
        self._cgroups = PodCgroups.open(cgroup)
        self._log_bytes_per_job = log_bytes_per_job
        self._pods = PodDirectories(home, MachineTimes(clock, ledger or clock))
        self._clock = clock
        self._open_files = open_files
        self._launchers = ThreadPoolExecutor(_LAUNCHERS, thread_name_prefix="local-cluster-launch")
        self._workers = ThreadPoolExecutor(4, thread_name_prefix="local-cluster")
        self._watchers: set[_Watched] = set()
        self._pruned_at: datetime | None = None
        self._prepared = False
        self._closed = False

    @property
    def simulated(self) -> bool:
        """Whether the GPUs exist in the setting only."""
        return self._inventory.simulated

    async def list_nodes(self) -> list[NodeReport]:
        """This machine, or the nodes of the setting. The `detail` of a node without GPUs says what to set."""
        return await self._call(self._inventory.nodes)

    async def list_pods(self, *, foreign: bool = False) -> PodListing:
        """All our pods; `foreign` adds other processes that compute on our GPUs."""
        return await self._call(self._list_pods, foreign)

    async def find_pods(
        self,
        reservation_id: str,
        named: Collection[PodName] = (),  # noqa: ARG002 -- local pods can't lose their labels
    ) -> list[PodStatus]:
        """One reservation's pods of every attempt."""
        return await self._call(self._find_pods, reservation_id)

    async def watch(self) -> AsyncIterator[PodStatus]:
        """Yield every existing pod, then every change, `gone` last; a `gone` pod keeps its exit code and times."""
        watched = _Watched(self._pods)
        self._watchers.add(watched)
        clock = asyncio.get_running_loop().time
        try:
            while True:
                for status in await self._call(watched.poll):
                    yield status
                poll_at = clock() + _POLL_EVERY_S
                while await watched.hinted(poll_at - clock()):
                    for status in await self._call(watched.poll_pods, watched.take_hints()):
                        yield status
        finally:
            self._watchers.discard(watched)

    async def create_pod(
        self,
        spec: PodSpec,
        unanswered: Callable[[], None] | None = None,  # noqa: ARG002 -- never unanswered: it is done when this returns or raises
    ) -> None:
        """Start a pod unless it exists or ever ran. Returns once its supervisor owns it.

        Raises PodRefusedError for an unknown node and for text that no process can receive. A command that can't be run
        makes a finished pod with exit code 127 or 126.
        """
        if spec.node not in self._inventory.node_names():
            detail = f"This cluster has no node {spec.node!r}. Submit the job again: it will be placed again."
            raise PodRefusedError(Reason(ReasonCode.START_FAILED, detail))
        await self._run(self._launchers, self._create, spec)
        self._hint_watchers(str(spec.name))

    async def delete_pod(
        self,
        name: str,
        grace: timedelta,
        *,
        keep_name: bool = False,  # noqa: ARG002
        why: Reason | None = None,  # noqa: ARG002
    ) -> None:
        """Ask the pod's supervisor to end and remove it, which works even if this process ends."""
        if not is_pod_name(name):
            return
        await self._call(self._pods.request_removal, name, grace)
        self._hint_watchers(name)
        now = self._clock.now()
        if self._pruned_at is None or now - self._pruned_at > _PRUNE_EVERY:
            self._pruned_at = now
            await self._call(self._pods.prune, now)
            await self._call(self._cgroups.remove_empty)

    async def forget_pod(self, name: str) -> None:
        """End a pod without grace; on this machine, its end can be verified."""
        await self.delete_pod(name, timedelta(0))

    def master_address(self, reservation_id: str, attempt: int) -> str:  # noqa: ARG002
        """Every pod is on this machine."""
        return "127.0.0.1"

    @property
    def forgets_logs(self) -> bool:
        """Log files outlive their pods."""
        return False

    async def extend_deadline(self, name: str, deadline: datetime) -> None:
        """Change the supervisor's deadline; it notices an earlier one within 30 s."""
        if is_pod_name(name):
            await self._call(self._pods.move_deadline, name, deadline)

    async def signal_pod(self, name: str, signal: str) -> None:
        """Signal the command, which is the first process."""
        if is_pod_name(name):
            await self._call(self._pods.signal_workload, name, Signals[f"SIG{signal}"])

    async def pod_logs(self, name: str, *, follow: bool, tail_lines: int | None = None) -> AsyncIterator[bytes]:
        """Stream a pod's output in chunks of at most 64 KiB; with `follow` until the pod has ended."""
        known = is_pod_name(name)
        log = self._pods.log(name) if known else self._pods.logs
        times = log_reading.LogTimes(log)
        offset = 0 if tail_lines is None or not known else await self._call(log_reading.last_lines, log, tail_lines)
        ends_line = True
        while known:
            # Checked before reading: once the pod has ended, its log is complete.
            over = not follow or await self._call(self._is_over, name)
            while chunk := await self._call(log_reading.read_from, log, offset, ends_line):
                if isinstance(chunk, OmittedOutput):
                    offset += chunk.left_out
                    yield chunk
                else:
                    begin, offset = offset, offset + len(chunk)
                    yield TimedOutput(chunk, partial(times.between, begin, offset))
                ends_line = chunk.endswith(b"\n")
            if over:
                return
            await asyncio.sleep(_POLL_EVERY_S)

    async def trim_logs(self, *, written_before: datetime | None, most_bytes: int | None) -> TrimmedLogs:
        """Remove old logs, and shorten those of running pods if needed; supervisors notice within 30 s."""
        return await self._call(trim_logs, self._pods, written_before, most_bytes)

    async def close(self) -> None:
        """Release threads and the driver; pods go on, and watchers get ClusterUnavailableError."""
        self._closed = True
        await asyncio.to_thread(self._launchers.shutdown)
        await asyncio.to_thread(self._workers.shutdown)
        await asyncio.to_thread(self._inventory.close)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in a worker thread; an OSError becomes ClusterUnavailableError."""
        return await self._run(self._workers, function, *args, **kwargs)

    async def _run(self, pool: ThreadPoolExecutor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def guarded() -> T:
            try:
                if not self._prepared:
                    self._pods.prepare(self._clock.now())
                    self._prepared = True
                return function(*args, **kwargs)
            except OSError as problem:
                raise ClusterUnavailableError(
                    f"The local cluster could not do its work below {self._pods.home}: {problem}. "
                    "Look at the disk's space and permissions, and at the limits on processes and open files."
                ) from problem

        if self._closed:
            raise ClusterUnavailableError("The local cluster's adapter was closed; open a new one.")
        return await asyncio.get_running_loop().run_in_executor(pool, guarded)

    def _hint_watchers(self, name: str) -> None:
        for watched in self._watchers:
            watched.hint(name)

    def _list_pods(self, foreign: bool) -> PodListing:
        pods = (self._pods.observe(name) for name in self._pods.names())
        others = tuple(self._inventory.foreign()) if foreign else ()
        return PodListing(tuple(pod for pod in pods if pod is not None), others)

    def _find_pods(self, reservation_id: str) -> list[PodStatus]:
        names = [name for name in self._pods.names() if name.rsplit("-", 2)[0] == reservation_id]
        return [pod for pod in map(self._pods.observe, names) if pod is not None]

    def _is_over(self, name: str) -> bool:
        status = self._pods.observe(name)
        return status is None or status.phase is PodPhase.FINISHED

    def _naming_instances(self, spec: PodSpec) -> PodSpec:
        """With UUIDs in CUDA_VISIBLE_DEVICES if there are MIG instances: CUDA has other numbers then, or none."""
        named = [uuid for uuid in spec.gpu_uuids if uuid is not None]
        if not named or not (any(map(is_instance, named)) or self._inventory.is_in_parts()):
            return spec
        return replace(spec, env=(*spec.env, ("CUDA_VISIBLE_DEVICES", ",".join(named))))

    def _create(self, spec: PodSpec) -> None:
        if not self._pods.publish(self._naming_instances(spec)):
            return
        name = str(spec.name)
        arguments = [str(self._pods.pods / name), str(self._pods.tombstones / name), str(self._pods.log(name))]
        log_limit = max(1, self._log_bytes_per_job // spec.pods) if self._log_bytes_per_job else 0
        cgroup = self._cgroups.make(name, spec.resources)
        arguments += [str(log_limit), str(self._open_files or 0), "" if cgroup is None else str(cgroup)]
        try:
            launched = subprocess.run(  # our own program, and no text of a user's in argv
                [sys.executable, "-I", "-S", supervisor.__file__, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd="/",
                env={key: environ[key] for key in _INTERPRETER_ENV if key in environ},
                timeout=_LAUNCH_PATIENCE_S,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as problem:
            raise ClusterUnavailableError(
                f"Pod {name} was not started within {_LAUNCH_PATIENCE_S:.0f} s. The machine may be busy; try again."
            ) from problem
        answer = launched.stdout.decode("utf-8", "replace")
        if answer == "gone":
            self._pods.observe(name)  # removes a directory that was created after the pod's removal
        elif answer not in ("started", "exists"):
            why = answer.removeprefix("failed ") or launched.stderr.decode("utf-8", "replace")[-500:]
            raise ClusterUnavailableError(f"Pod {name} could not be started: {why}. Try again.")


class _Watched:
    """The last status of every pod that one watcher received."""

    def __init__(self, pods: PodDirectories) -> None:
        self._pods = pods
        self._known: dict[str, PodStatus] = {}
        self._polls = 0
        self._hints: set[str] = set()
        self._hint = asyncio.Event()

    def hint(self, name: str) -> None:
        """Poll this pod now, as it has just changed."""
        self._hints.add(name)
        self._hint.set()

    def take_hints(self) -> set[str]:
        """The hinted pods since the last call."""
        hints, self._hints = self._hints, set()
        self._hint.clear()
        return hints

    async def hinted(self, seconds: float) -> bool:
        """Wait for a hint; false after so many seconds without one."""
        if seconds <= 0:
            return False
        try:
            async with asyncio.timeout(seconds):
                return await self._hint.wait()
        except TimeoutError:
            return False

    def poll(self) -> list[PodStatus]:
        """The changes of all pods since the last poll."""
        changes: list[PodStatus] = []
        present: set[str] = set()
        self._polls += 1
        for name in self._pods.names():
            present.add(name)
            known = self._known.get(name)
            if known is not None and known.phase is PodPhase.FINISHED and self._polls % _SWEEP_EVERY:
                continue  # a finished pod changes only by its removal
            changes += self.poll_pods([name])
        for name in self._known.keys() - present:
            changes += self._gone(name)
        return changes

    def poll_pods(self, names: Iterable[str]) -> list[PodStatus]:
        """The changes of these pods since their last poll."""
        changes: list[PodStatus] = []
        for name in names:
            status = self._pods.observe(name)
            if status is None:
                changes += self._gone(name)
            elif status != self._known.get(name):
                self._known[name] = status
                changes.append(status)
        return changes

    def _gone(self, name: str) -> list[PodStatus]:
        known = self._known.pop(name, None)
        if known is None:
            return []
        last = self._pods.final_status(name)
        if last is None or known.phase is PodPhase.FINISHED:
            return [replace(known, phase=PodPhase.GONE)]
        return [last, replace(last, phase=PodPhase.GONE)]
