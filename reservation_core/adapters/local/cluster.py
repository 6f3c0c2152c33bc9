"""The local cluster: pods are processes on this machine, each below a supervisor that outlives the control plane.

Whatever is true is on disk and in the process table (see `pod_directories`), so several processes may share a home, and
one that is killed loses nothing. Workloads run as the control plane's own user: this cluster keeps GPUs apart, not
people, and belongs on a machine whose users trust each other.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from os import environ
from pathlib import Path
from typing import ParamSpec, TypeVar

from reservation_core.adapters.local import log_reading, supervisor
from reservation_core.adapters.local.inventory import LocalInventory
from reservation_core.adapters.local.log_trimming import trim_logs
from reservation_core.adapters.local.machine_times import MachineTimes
from reservation_core.adapters.local.pod_directories import PodDirectories, is_pod_name
from reservation_core.domain.model import NodeReport, PodName, PodPhase, PodSpec, PodStatus, Reason, ReasonCode
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import ClusterUnavailableError, LeftOut, PodListing, PodRefusedError, TrimmedLogs

P = ParamSpec("P")
T = TypeVar("T")

_LOOK_EVERY_S = 0.1
_SWEEP_EVERY = 20  # looks between two looks at pods that have finished
_LAUNCH_PATIENCE_S = 30.0
_PRUNE_EVERY = timedelta(hours=1)
_LAUNCHERS = 8
# What an interpreter may need to find its own libraries; nothing else of this process reaches a supervisor.
_INTERPRETER_ENV = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class LocalCluster:
    """Runs pods below `home` (GPU_DEV_HOME). `gpus` is GPU_DEV_LOCAL_GPUS, or None for the cards that NVML reports.

    `clock` is the machine's own, for the times of files. Pods report their times by `ledger`, by default `clock`.
    `open_files`: the soft limit of open files that pods start with; None: this process's own.
    `log_bytes_per_job` is how much is kept of what one attempt of a job prints, all its pods together; 0: all of it.
    Raises BadGpusSettingError for a setting that can't be understood.
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
    ) -> None:
        self._inventory = LocalInventory(gpus)
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
        """Whether the cards exist in the setting only."""
        return self._inventory.simulated

    async def list_nodes(self) -> list[NodeReport]:
        """This machine, or the nodes of the setting. A node without cards says in `detail` what to set."""
        return await self._call(self._inventory.nodes)

    async def list_pods(self, *, foreign: bool = False) -> PodListing:
        """All our pods that exist, and with `foreign` processes of others that compute on our cards."""
        return await self._call(self._list_pods, foreign)

    async def find_pods(
        self,
        reservation_id: str,
        named: Collection[PodName] = (),  # noqa: ARG002 -- nobody can take a pod's name from it here
    ) -> list[PodStatus]:
        """One reservation's pods that exist now, of every attempt."""
        return await self._call(self._find_pods, reservation_id)

    async def watch(self) -> AsyncIterator[PodStatus]:
        """Every existing pod once, then every change, `gone` last; a `gone` pod keeps its exit code and times."""
        watched = _Watched(self._pods)
        self._watchers.add(watched)
        clock = asyncio.get_running_loop().time
        try:
            while True:
                for status in await self._call(watched.look):
                    yield status
                look_at = clock() + _LOOK_EVERY_S
                while await watched.hinted(look_at - clock()):
                    for status in await self._call(watched.look_at, watched.take_hints()):
                        yield status
        finally:
            self._watchers.discard(watched)

    async def create_pod(
        self,
        spec: PodSpec,
        unanswered: Callable[[], None] | None = None,  # noqa: ARG002 -- it has been done when this returns or raises
    ) -> None:
        """Start a pod; one that exists or ever ran is left alone. Returns once its supervisor owns it.

        Raises PodRefusedError for a node that is not ours and for text that no process can be given. A command that
        can't be run makes a finished pod with exit code 127 or 126.
        """
        if spec.node not in self._inventory.node_names():
            detail = f"This cluster has no node {spec.node!r}. Submit the job again: it will be placed anew."
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
        """Ask for a pod's end; its supervisor sees to it and removes the pod, whatever becomes of this process.

        A name runs once here anyway.
        """
        if not is_pod_name(name):
            return
        await self._call(self._pods.ask_for_end, name, grace)
        self._hint_watchers(name)
        now = self._clock.now()
        if self._pruned_at is None or now - self._pruned_at > _PRUNE_EVERY:
            self._pruned_at = now
            await self._call(self._pods.prune, now)

    async def forget_pod(self, name: str) -> None:
        """End a pod without grace: this machine answers for itself, so nothing is removed on anybody's word."""
        await self.delete_pod(name, timedelta(0))

    def master_address(self, reservation_id: str, attempt: int) -> str:  # noqa: ARG002 -- every pod is here
        """Every pod is on this machine."""
        return "127.0.0.1"

    @property
    def forgets_logs(self) -> bool:
        """A log file outlives its pod."""
        return False

    async def extend_deadline(self, name: str, deadline: datetime) -> None:
        """Move the second belt. An earlier one is noticed within 30 s."""
        if is_pod_name(name):
            await self._call(self._pods.move_deadline, name, deadline)

    async def pod_logs(self, name: str, *, follow: bool, tail_lines: int | None = None) -> AsyncIterator[bytes]:
        """What the pod has printed, in chunks of at most 64 KiB; with `follow` until it has ended."""
        known = is_pod_name(name)
        log = self._pods.log(name) if known else self._pods.logs
        offset = 0 if tail_lines is None or not known else await self._call(log_reading.last_lines, log, tail_lines)
        ends_line = True
        while known:
            # Asked before reading: what is printed before the end is there to be read after it.
            over = not follow or await self._call(self._is_over, name)
            while chunk := await self._call(log_reading.read_from, log, offset, ends_line):
                offset += chunk.left_out if isinstance(chunk, LeftOut) else len(chunk)
                ends_line = chunk.endswith(b"\n")
                yield chunk
            if over:
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def trim_logs(self, *, written_before: datetime | None, most_bytes: int | None) -> TrimmedLogs:
        """Remove old logs, and cut those of running pods where these alone are too much; noticed within 30 s."""
        return await self._call(trim_logs, self._pods, written_before, most_bytes)

    async def close(self) -> None:
        """Let go of threads and the driver; pods go on, watchers end with ClusterUnavailableError."""
        self._closed = True
        await asyncio.to_thread(self._launchers.shutdown)
        await asyncio.to_thread(self._workers.shutdown)
        await asyncio.to_thread(self._inventory.close)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what blocks in a thread of ours; what the system refuses says nothing about any pod."""
        return await self._run(self._workers, function, *args, **kwargs)

    async def _run(self, pool: ThreadPoolExecutor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def guarded() -> T:
            try:
                if not self._prepared:
                    self._pods.prepare()
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

    def _create(self, spec: PodSpec) -> None:
        if not self._pods.publish(spec):
            return
        name = str(spec.name)
        arguments = [str(self._pods.pods / name), str(self._pods.tombstones / name), str(self._pods.log(name))]
        log_limit = max(1, self._log_bytes_per_job // spec.pods) if self._log_bytes_per_job else 0
        arguments += [str(log_limit), str(self._open_files or 0)]
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
            self._pods.observe(name)  # a directory made after the pod's removal goes away again
        elif answer not in ("started", "exists"):
            why = answer.removeprefix("failed ") or launched.stderr.decode("utf-8", "replace")[-500:]
            raise ClusterUnavailableError(f"Pod {name} could not be started: {why}. Try again.")


class _Watched:
    """What one watcher was told of each pod."""

    def __init__(self, pods: PodDirectories) -> None:
        self._pods = pods
        self._told: dict[str, PodStatus] = {}
        self._looks = 0
        self._hints: set[str] = set()
        self._hint = asyncio.Event()

    def hint(self, name: str) -> None:
        """This pod has just changed: look at it now rather than with all others."""
        self._hints.add(name)
        self._hint.set()

    def take_hints(self) -> set[str]:
        """The pods hinted at since the last call."""
        hints, self._hints = self._hints, set()
        self._hint.clear()
        return hints

    async def hinted(self, seconds: float) -> bool:
        """Wait for a hint, at most that long."""
        if seconds <= 0:
            return False
        try:
            async with asyncio.timeout(seconds):
                return await self._hint.wait()
        except TimeoutError:
            return False

    def look(self) -> list[PodStatus]:
        """What has changed since the last look."""
        changes: list[PodStatus] = []
        there: set[str] = set()
        self._looks += 1
        for name in self._pods.names():
            told = self._told.get(name)
            if told is not None and told.phase is PodPhase.FINISHED and self._looks % _SWEEP_EVERY:
                there.add(name)  # nothing changes any more but its removal
                continue
            changes += self.look_at([name])
            there.add(name)
        for name in self._told.keys() - there:
            changes += self._farewell(name)
        return changes

    def look_at(self, names: Iterable[str]) -> list[PodStatus]:
        """What has changed about these pods since they were last looked at."""
        changes: list[PodStatus] = []
        for name in names:
            status = self._pods.observe(name)
            if status is None:
                changes += self._farewell(name)
            elif status != self._told.get(name):
                self._told[name] = status
                changes.append(status)
        return changes

    def _farewell(self, name: str) -> list[PodStatus]:
        told = self._told.pop(name, None)
        if told is None:
            return []
        last = self._pods.last_words(name)
        if last is None or told.phase is PodPhase.FINISHED:
            return [replace(told, phase=PodPhase.GONE)]
        return [last, replace(last, phase=PodPhase.GONE)]
