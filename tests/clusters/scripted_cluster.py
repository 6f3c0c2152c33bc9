"""A cluster that does what a test says, for orders of events that a real one shows only by chance."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta

from reservation_core.domain.cards.node_reports import GpuReport, NodeReport
from reservation_core.domain.model import PodHolding, PodName, PodPhase, PodSpec, PodStatus, Reason
from reservation_core.ports.cluster import (
    ClusterUnavailableError,
    PodListing,
    PodNotNowError,
    PodRefusedError,
    TrimmedLogs,
)


class ScriptedCluster:
    """See ports.cluster.Cluster. Pods are what `pods` says; a delete is only noted unless `obedient`."""

    def __init__(self, cards: dict[str, int] | None = None, gpu_type: str = "h100") -> None:
        self.cards = {"a": 2, "b": 2} if cards is None else cards
        self.gpu_type = gpu_type
        self.pods: dict[PodName, PodStatus] = {}
        self.created: list[PodSpec] = []
        self.deleted: list[str] = []
        self.kept: list[str] = []
        self.forgotten: list[str] = []
        self.forgetful = False
        self.logs: dict[str, bytes] = {}
        self.silent = False
        self.on_create: Callable[[PodSpec], Awaitable[None]] | None = None
        self.deadlines: dict[str, datetime] = {}
        self.signals: list[tuple[str, str]] = []
        self.refusal: Reason | None = None
        self.not_now: Reason | None = None
        self.down = False
        self.loses_answers = False
        self.away: set[str] = set()
        self.obedient = True

    def show(self, name: PodName, phase: PodPhase, **more: object) -> PodStatus:
        """Make a pod look like this from now on; answers what a watcher would see. It goes on to hold what it held."""
        if name in self.pods:
            more.setdefault("holding", self.pods[name].holding)
        status = PodStatus(name, phase, **more)  # type: ignore[arg-type]
        if phase is PodPhase.GONE:
            self.pods.pop(name, None)
        else:
            self.pods[name] = status
        return status

    def _ask(self) -> None:
        if self.down:
            raise ClusterUnavailableError("the scripted cluster is down")

    async def list_nodes(self) -> list[NodeReport]:
        """The cards of the script."""
        self._ask()
        return [
            NodeReport(
                node, node not in self.away, True, tuple(GpuReport(i, self.gpu_type, None, None) for i in range(count))
            )
            for node, count in self.cards.items()
        ]

    async def list_pods(self, *, foreign: bool = False) -> PodListing:
        """All that there are."""
        self._ask()
        return PodListing(tuple(self.pods.values()))

    async def find_pods(self, reservation_id: str, named: Collection[PodName] = ()) -> list[PodStatus]:
        """One reservation's."""
        self._ask()
        return [status for name, status in self.pods.items() if name.reservation_id == reservation_id]

    async def watch(self) -> AsyncIterator[PodStatus]:
        """Every pod once."""
        for status in list(self.pods.values()):
            yield status

    async def create_pod(self, spec: PodSpec, unanswered: Callable[[], None] | None = None) -> None:
        """Note it, and show it as pending."""
        self._ask()
        if self.loses_answers and unanswered is not None:
            unanswered()
        if self.on_create is not None:
            await self.on_create(spec)
        if self.refusal is not None:
            raise PodRefusedError(self.refusal)
        if self.not_now is not None:
            raise PodNotNowError(self.not_now)
        self.created.append(spec)
        self.pods.setdefault(spec.name, PodStatus(spec.name, PodPhase.PENDING, holding=_holding(spec)))

    async def delete_pod(
        self, name: str, grace: timedelta, *, keep_name: bool = False, why: Reason | None = None
    ) -> None:
        """Note it, and do it when obedient."""
        self._ask()
        self.deleted.append(name)
        if keep_name:
            self.kept.append(name)
        if self.obedient:
            self.pods.pop(PodName.parse(name), None)

    async def forget_pod(self, name: str) -> None:
        """Note it, and do it."""
        self._ask()
        self.forgotten.append(name)
        self.pods.pop(PodName.parse(name), None)

    def master_address(self, reservation_id: str, attempt: int) -> str:
        """One for each attempt."""
        return f"{reservation_id}-{attempt}.test"

    @property
    def forgets_logs(self) -> bool:
        """As the script says."""
        return self.forgetful

    async def extend_deadline(self, name: str, deadline: datetime) -> None:
        """Note it."""
        self._ask()
        self.deadlines[name] = deadline

    async def signal_pod(self, name: str, signal: str) -> None:
        """Note it."""
        self._ask()
        self.signals.append((name, signal))

    async def pod_logs(self, name: str, *, follow: bool, tail_lines: int | None = None) -> AsyncIterator[bytes]:
        """What `logs` says of pods that exist, or of all unless `forgetful`; never anything while `silent`."""
        self._ask()
        if self.silent:
            await asyncio.Event().wait()
        if PodName.parse(name) in self.pods or not self.forgetful:
            text = self.logs.get(name, b"")
            yield b"".join(text.splitlines(keepends=True)[-tail_lines:]) if tail_lines else text

    async def trim_logs(self, *, written_before: datetime | None, most_bytes: int | None) -> TrimmedLogs:
        """It keeps none."""
        self._ask()
        return TrimmedLogs()

    async def close(self) -> None:
        """Nothing to let go of."""


def _holding(spec: PodSpec) -> PodHolding | None:
    if spec.starts_at is None or spec.ends_at is None:
        return None
    return PodHolding(spec.node, spec.gpu_indices, spec.pods, spec.starts_at, spec.ends_at)


def former(name: PodName) -> PodName:
    """The same pod of the attempt before."""
    return replace(name, attempt=name.attempt - 1)
