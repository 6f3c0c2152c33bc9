"""What runs pods."""

from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, Self

from reservation_core.domain.model import ForeignPod, NodeReport, PodName, PodSpec, PodStatus, Reason


class ClusterUnavailableError(Exception):
    """The cluster could not be asked or did not answer. Says nothing about any pod: try again."""


class PodNotNowError(ClusterUnavailableError):
    """The cluster does not take this pod now, and may later. It was not created; `reason` says why."""

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
    """Our pods, and GPU users that are not ours."""

    pods: tuple[PodStatus, ...]
    foreign: tuple[ForeignPod, ...] = field(default=())


class LeftOut(bytes):
    """A line of a log that stands for `left_out` bytes which the pod printed and which are not kept."""

    left_out: int

    def __new__(cls, left_out: int, *, begins_line: bool = True) -> Self:
        """Write the line; `begins_line`: what comes before it ends with one."""
        text = f"gpu-dev: {left_out} bytes of output are left out here: the log had reached its size limit.\n"
        line = super().__new__(cls, ("" if begins_line else "\n").encode() + text.encode())
        line.left_out = left_out
        return line


@dataclass(frozen=True, slots=True)
class TrimmedLogs:
    """What became of the logs that the cluster itself keeps. Sizes are in bytes.

    `oldest_at`: when the oldest of those that are left was last written.
    """

    removed: int = 0
    removed_bytes: int = 0
    kept_bytes: int = 0
    oldest_at: datetime | None = None


class Cluster(Protocol):
    """What runs pods. Any method may raise ClusterUnavailableError; none takes an error for «gone»."""

    async def list_nodes(self) -> list[NodeReport]:
        """Nodes that are ours, with their GPUs."""
        ...

    async def list_pods(self, *, foreign: bool = False) -> PodListing:
        """All our pods that exist (finished ones until they are deleted), and with `foreign` also foreign GPU users.

        A consistent view: a pod that is missing from it did not exist at some time during the call.
        """
        ...

    async def find_pods(self, reservation_id: str, named: Collection[PodName] = ()) -> list[PodStatus]:
        """One reservation's pods that exist now, of every attempt.

        Those of `named` are found whatever was done to them, and are gone when they are not in the list. Of others that
        holds only as long as nobody takes from a pod what a cluster finds a reservation's pods by.
        """
        ...

    def watch(self) -> AsyncIterator[PodStatus]:
        """Every existing pod once, then every change, `gone` last. Ends only with an exception or `aclose`."""
        ...

    async def create_pod(self, spec: PodSpec, unanswered: Callable[[], None] | None = None) -> None:
        """Create and start a pod; idempotent by name: one that exists or ever ran is left alone.

        `unanswered` is called when a try of it got no answer: it may be carried out later, whatever is raised or not.

        Raises PodRefusedError when it can never run, PodNotNowError when the cluster does not take it yet.
        """
        ...

    async def delete_pod(
        self, name: str, grace: timedelta, *, keep_name: bool = False, why: Reason | None = None
    ) -> None:
        """Ask for a pod's end: SIGTERM, `grace`, SIGKILL; returns at once. Unknown names are nothing.

        `why` is for people who look at the cluster.

        A finished pod is removed; removal is seen through `watch` and `find_pods`. With `keep_name` it stays as a
        finished one until it is deleted without: nothing that is created late can run under its name meanwhile.
        """
        ...

    async def forget_pod(self, name: str) -> None:
        """Remove a pod whose node is known to be fenced (without power, say), without waiting for that node's word."""
        ...

    async def extend_deadline(self, name: str, deadline: datetime) -> None:
        """Move the second belt (see PodSpec.deadline)."""
        ...

    def master_address(self, reservation_id: str, attempt: int) -> str:
        """Where the pods of a gang reach their rank 0."""
        ...

    @property
    def forgets_logs(self) -> bool:
        """Whether a pod's log goes with the pod: who wants it later must read it before."""
        ...

    def pod_logs(self, name: str, *, follow: bool, tail_lines: int | None = None) -> AsyncIterator[bytes]:
        """What the pod has printed so far (its last `tail_lines`); with `follow` also what it goes on to print.

        A LeftOut stands where the cluster did not keep everything.
        Works for pods that are gone as long as their output is kept; empty for a pod that never was.
        """
        ...

    async def trim_logs(self, *, written_before: datetime | None, most_bytes: int | None) -> TrimmedLogs:
        """Remove logs of pods that are gone: those last written before a time, and the oldest until all fit.

        Where running pods alone have printed too much, their logs are cut; no pod is ended for it. None: no bound.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and watchers; pods go on."""
        ...
