"""The cluster, which runs pods."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, Self

from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.domain.model import ForeignPod, PodName, PodSpec, PodStatus, Reason


class ClusterUnavailableError(Exception):
    """The cluster could not be asked or did not answer. This says nothing about any pod: try again."""


class PodNotNowError(ClusterUnavailableError):
    """The cluster can't take this pod now, but may later. It was not created; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.detail)
        self.reason = reason


class PodRefusedError(Exception):
    """The cluster will never run this pod as specified."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PodListing:
    """Our pods, and foreign pods that use GPUs."""

    pods: tuple[PodStatus, ...]
    foreign: tuple[ForeignPod, ...] = ()


class OmittedOutput(bytes):
    """A log line in place of `left_out` bytes of output that were not kept."""

    left_out: int

    def __new__(cls, left_out: int, *, begins_line: bool = True, prefix: str = "") -> Self:
        """`begins_line`: the output before it ends with a line break. `prefix`: the line begins with this."""
        text = f"{prefix}gpu-dev: {left_out} bytes of output are left out here: the log had reached its size limit.\n"
        line = super().__new__(cls, ("" if begins_line else "\n").encode() + text.encode())
        line.left_out = left_out
        return line


class TimedOutput(bytes):
    """Output of which is known when it was printed.

    `find_times` returns rising offsets, and the time of the output from there to the next one, None where it is not
    known; before the first one it is not. It blocks. Unless it is called, times cost nothing.
    """

    find_times: Callable[[], Sequence[tuple[int, datetime | None]]]

    def __new__(cls, output: bytes, find_times: Callable[[], Sequence[tuple[int, datetime | None]]]) -> Self:
        timed = super().__new__(cls, output)
        timed.find_times = find_times
        return timed


@dataclass(frozen=True, slots=True)
class TrimmedLogs:
    """The result of trimming the logs that the cluster keeps. Sizes are in bytes.

    `oldest_at`: when the oldest remaining log was last written.
    """

    removed: int = 0
    removed_bytes: int = 0
    kept_bytes: int = 0
    oldest_at: datetime | None = None


class Cluster(Protocol):
    """The cluster. Any method may raise ClusterUnavailableError; none takes an error for a missing pod."""

    async def list_nodes(self) -> list[NodeReport]:
        """Our nodes, with their GPUs."""

    async def list_pods(self, *, foreign: bool = False) -> PodListing:
        """All our existing pods (finished ones until they are deleted); with `foreign` also foreign pods that use GPUs.

        The view is consistent: a pod that is missing did not exist at some time during the call.
        """

    async def find_pods(self, reservation_id: str, named: Collection[PodName] = ()) -> list[PodStatus]:
        """One reservation's existing pods, of every attempt.

        Pods of `named` are found whatever their metadata, and certainly gone if missing. Others are found only while
        they carry their reservation's mark.
        """

    def watch(self) -> AsyncIterator[PodStatus]:
        """Every existing pod once, then every change, `gone` last. Ends only with an exception or `aclose`."""

    async def create_pod(self, spec: PodSpec, unanswered: Callable[[], None] | None = None) -> None:
        """Create and start a pod; idempotent by name: an existing or former pod is left alone.

        `unanswered` is called when a request got no answer: it may be carried out later, whether this raises or not.

        Raises PodRefusedError when the pod can never run, PodNotNowError when the cluster can't take it yet.
        """

    async def delete_pod(
        self, name: str, grace: timedelta, *, keep_name: bool = False, why: Reason | None = None
    ) -> None:
        """Ask a pod to end: SIGTERM, `grace`, SIGKILL; returns at once. Unknown names are ignored.

        `why` is for people who look at the cluster.

        A finished pod is removed, as `watch` and `find_pods` show. With `keep_name` it stays as a finished one until it
        is deleted without: meanwhile no late create can run under its name.
        """

    async def forget_pod(self, name: str) -> None:
        """Remove a pod whose node is fenced (without power, say), without waiting for the node."""

    async def signal_pod(self, name: str, signal: str) -> None:
        """Send a running pod's command a signal, such as USR1. Nothing for other pods, and where it can't be sent."""

    async def extend_deadline(self, name: str, deadline: datetime) -> None:
        """Move the deadline (see PodSpec)."""

    def master_address(self, reservation_id: str, attempt: int) -> str:
        """The address of a gang's rank 0."""

    @property
    def forgets_logs(self) -> bool:
        """Whether a pod's log is deleted with the pod, and must be read before."""

    def pod_logs(self, name: str, *, follow: bool, tail_lines: int | None = None) -> AsyncIterator[bytes]:
        """The pod's output so far (its last `tail_lines`); with `follow` also its further output.

        An OmittedOutput stands for output that was not kept, and a TimedOutput knows when its lines were printed.
        Works for deleted pods while their output is kept; empty for a pod that never existed.
        """

    async def trim_logs(self, *, written_before: datetime | None, most_bytes: int | None) -> TrimmedLogs:
        """Remove logs of deleted pods: those last written before a time, and the oldest until all fit.

        If running pods alone have printed too much, their logs are cut, but no pod is ended. None: no bound.
        """

    async def close(self) -> None:
        """Close connections and watches; pods continue."""
