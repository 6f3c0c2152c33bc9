"""Report pods of namespaces with enforced bookings, and their ends, as use of their bookings."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.pods.pod_endings import GuardedPod, Memory
from reservation_core.domain.pods.pod_reports import PodReport
from reservation_core.domain.statuses import Role
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.pods.report_pods import report_pods

_REPORTER = Principal(0, "reservation_expiry", Role.SERVICE, "", None)
_AGAIN_AFTER = 12
_BATCH = 500
_MORE_THAN_ANY_BOOKING = 2**20


class PodReporter:
    """Reports a pod at its start, at its end and regularly in between, as it may continue in another booking."""

    def __init__(self) -> None:
        self._reported: dict[str, tuple[bool, int]] = {}
        self._written: dict[str, tuple[bool, int]] = {}
        self._runs = 0

    async def report(
        self, uow: UnitOfWork, pods: Sequence[GuardedPod], memories: Mapping[str, Memory], gone: Sequence[Memory]
    ) -> None:
        """Report changes since the last `committed` run; the first run reports everything."""
        self._runs += 1
        now = await uow.now()
        reports = [_of_gone(memory, memory.owner, now) for memory in gone if memory.owner is not None]
        self._written = {pod.uid: self._reported[pod.uid] for pod in pods if pod.uid in self._reported}
        for pod in pods:
            owner = _owner(pod, memories)
            if (
                owner is None
                or pod.began is None
                or pod.node is None
                or pod.gpus == 0
                or _is_preemptible(pod, memories)
            ):
                continue
            ended = pod.finished_at is not None
            last = self._reported.get(pod.uid)
            if last is None or last[0] != ended or (not ended and self._runs - last[1] >= _AGAIN_AFTER):
                self._written[pod.uid] = ended, self._runs
                reports.append(_of_pod(pod, owner, memories.get(pod.uid)))
        for start in range(0, len(reports), _BATCH):
            await report_pods(uow, _REPORTER, reports[start : start + _BATCH])

    def committed(self) -> None:
        """Confirm that the transaction of the last report has committed."""
        self._reported = self._written


def _owner(pod: GuardedPod, memories: Mapping[str, Memory]) -> str | None:
    memory = memories.get(pod.uid)
    return pod.owner if memory is None or memory.owner is None else memory.owner


def _is_preemptible(pod: GuardedPod, memories: Mapping[str, Memory]) -> bool:
    memory = memories.get(pod.uid)
    return pod.preemptible or (memory is not None and memory.preemptible)


def _of_pod(pod: GuardedPod, owner: str, memory: Memory | None) -> PodReport:
    booking_id = pod.booking_id if memory is None or memory.booking_id is None else memory.booking_id
    return PodReport(
        user=owner,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        gpus=pod.gpus,
        booking_id=booking_id,
        gpu_type=pod.gpu_type,
        since=pod.began,
        ended_at=pod.finished_at,
        node=pod.node,
    )


def _of_gone(memory: Memory, owner: str, now: datetime) -> PodReport:
    """The end, now, of a pod that has vanished. Its number of GPUs fits no booking, so the report begins no use."""
    return PodReport(
        user=owner,
        namespace=memory.namespace,
        name=memory.name,
        uid=memory.uid,
        gpus=_MORE_THAN_ANY_BOOKING,
        ended_at=now,
    )
