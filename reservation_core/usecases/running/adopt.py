"""Pods that no live row accounts for: remove orphans, adopt pods that the ledger forgot, and report unknown pods.

A pod is ended only when its row has ended or is past its attempt. A pod that the ledger does not know may be a user's
work (an old backup knows less than the cluster): an administrator or the operators' policy ends it, and its GPUs are
not assigned while it exists.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.changes import SYSTEM, Adopted
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.event_kinds import NodeEventKind
from reservation_core.domain.jobs.adoption import PodStanding, adoption_of, standing
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import PodName, PodPhase, PodStatus, Reservation
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.jobs.reservations import UnknownGpuError
from reservation_core.ports.jobs.unknown_pods import UnknownPod
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.nodes.fence_node import without_power

NOT_IN_LEDGER = "The ledger has no reservation of this name."
NOT_AS_ITS_ROW = "Its reservation is not at an attempt that could have led to this pod."
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class AccountRules:
    """The grace of pods that are ended, and whether unknown pods are ended automatically."""

    grace: timedelta
    end_unknown: bool


@dataclass(slots=True)
class AccountReport:
    """The numbers of removed orphans, of ended and of newly reported unknown pods, and the adopted pods."""

    removed: int = 0
    ended: int = 0
    reported: int = 0
    adopted: list[PodStatus] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Unknown:
    """An unknown pod, and why; `may_be_known_yet`: the ledger may still adopt it."""

    pod: PodStatus
    why: str
    may_be_known_yet: bool


@dataclass(slots=True)
class _Verdict:
    """One reservation's pods by their standing; `adoption` is the event that adopts the `forgotten` ones."""

    left_over: list[PodStatus] = field(default_factory=list)
    forgotten: list[PodStatus] = field(default_factory=list)
    adoption: Adopted | None = None
    unknown: list[_Unknown] = field(default_factory=list)
    ended: list[PodStatus] = field(default_factory=list)
    powerless: set[str] = field(default_factory=set)
    reported: int = 0


class Accounts:
    """Accounts for pods repeatedly; remembers only the orphans whose removal is recorded."""

    def __init__(self, uow_factory: UnitOfWorkFactory, cluster: Cluster, clock: Clock, rules: AccountRules) -> None:
        self._uow = uow_factory
        self._cluster = cluster
        self._clock = clock
        self._rules = rules
        self._recorded: set[str] = set()

    async def settle(self, there: Sequence[PodStatus], unaccounted: Sequence[PodStatus]) -> AccountReport:
        """Account for pods once. `there` are all pods, `unaccounted` those that no live row seems to want.

        A reservation's pods are judged under its pod lock, after reading its row and pods again; a locked reservation
        is left to the next run. Raises ClusterUnavailableError; earlier results stay.
        """
        self._recorded &= {str(pod.name) for pod in there}
        report = AccountReport()
        ids = {pod.name.reservation_id for pod in unaccounted} | await self._reported_before()
        names: dict[str, list[PodName]] = {reservation_id: [] for reservation_id in sorted(ids)}
        for pod in there:
            if pod.name.reservation_id in names:
                names[pod.name.reservation_id].append(pod.name)
        for reservation_id, named in names.items():
            try:
                verdict = await self._judge(reservation_id, named, refused=None)
            except (CalendarConflictError, UnknownGpuError) as refusal:
                verdict = await self._judge(reservation_id, named, refused=str(refusal))
            await self._end(verdict)
            report.removed += len(verdict.left_over)
            report.ended += len(verdict.ended)
            report.reported += verdict.reported
            if verdict.adoption is not None:
                report.adopted += verdict.forgotten
        return report

    async def _reported_before(self) -> set[str]:
        """The reservations of all unknown pods so far, which may be gone or known by now."""
        ids: set[str] = set()
        after: str | None = None
        while True:
            async with self._uow() as uow:
                page = await uow.unknown_pods.page(after=after, limit=_PAGE)
            ids |= {pod.reservation_id for pod in page}
            if len(page) < _PAGE:
                return ids
            after = page[-1].name

    async def _judge(self, reservation_id: str, named: Sequence[PodName], *, refused: str | None) -> _Verdict:
        """Judge a reservation's pods, and write the result. `refused` is why the ledger can't adopt them.

        `named` are its pods in the last list. Raises CalendarConflictError or UnknownGpuError, with nothing written,
        when the ledger refuses an adoption.
        """
        now = self._clock.now()
        async with self._uow.hold_pods([reservation_id]) as held:
            if not held.ids:
                # Another process creates or finalises its pods, which may take long: try again in the next run.
                return _Verdict()
            pods = await self._cluster.find_pods(reservation_id, named)
            async with held.work() as uow:
                row = (await uow.reservations.get([reservation_id])).get(reservation_id)
                if any(standing(row, pod.name.attempt) is PodStanding.FORGOTTEN for pod in pods):
                    row = (await uow.reservations.lock([reservation_id])).get(reservation_id)
                known = await uow.unknown_pods.of([reservation_id])
                verdict = _verdict(row, pods, known, refused)
                if verdict.adoption is not None and row is not None:
                    change = decide(row, verdict.adoption, now)
                    await carry_out(uow, [] if change is None else [change])
                await self._write_left_over(uow, verdict, now)
                await self._write_unknown(uow, verdict, known, now)
                verdict.powerless = await without_power(uow, row, [*verdict.left_over, *verdict.ended])
        return verdict

    async def _write_left_over(self, uow: UnitOfWork, verdict: _Verdict, now: datetime) -> None:
        for name in (str(pod.name) for pod in verdict.left_over):
            if name not in self._recorded:
                await uow.events.append(actor=SYSTEM, kind=NodeEventKind.ORPHAN_REMOVED, at=now, subject=name)
                self._recorded.add(name)

    async def _write_unknown(
        self, uow: UnitOfWork, verdict: _Verdict, known: Mapping[str, UnknownPod], now: datetime
    ) -> None:
        rows = [await _reported(uow, unknown_pod, now) for unknown_pod in verdict.unknown]
        new = set(await uow.unknown_pods.report(rows))
        for row in rows:
            if row.name in new:
                data = {"node": row.node, "gpus": row.gpu_indices, "detail": row.detail}
                await uow.events.append(
                    actor=SYSTEM, kind=NodeEventKind.UNKNOWN_POD, at=now, subject=row.name, data=data
                )
        for unknown_pod in verdict.unknown:
            name = str(unknown_pod.pod.name)
            asked = name in known and known[name].end_requested_at is not None
            if not asked and self._rules.end_unknown and not unknown_pod.may_be_known_yet:
                await uow.unknown_pods.request_end(name, SYSTEM, now)
                await uow.events.append(
                    actor=SYSTEM, kind=NodeEventKind.UNKNOWN_POD_END_REQUESTED, at=now, subject=name
                )
                asked = True
            if asked:
                verdict.ended.append(unknown_pod.pod)
        over = await uow.unknown_pods.forget(sorted(known.keys() - {row.name for row in rows}))
        for name in over:
            await uow.events.append(actor=SYSTEM, kind=NodeEventKind.UNKNOWN_POD_OVER, at=now, subject=name)
        verdict.reported = len(new)
        if new or over:
            uow.wake(Channel.GPU_JOBS)

    async def _end(self, verdict: _Verdict) -> None:
        """Delete pods that no create can bring back: their row is final, at another attempt, or missing."""
        for name in (str(pod.name) for pod in (*verdict.left_over, *verdict.ended)):
            if name in verdict.powerless:
                await self._cluster.forget_pod(name)
            else:
                await self._cluster.delete_pod(name, self._rules.grace)


def _verdict(
    row: Reservation | None, pods: Sequence[PodStatus], known: Mapping[str, UnknownPod], refused: str | None
) -> _Verdict:
    verdict = _Verdict()
    for pod in pods:
        what = standing(row, pod.name.attempt)
        match what:
            case PodStanding.KNOWN:
                pass
            case PodStanding.LEFT_OVER:
                verdict.left_over.append(pod)
            case PodStanding.FORGOTTEN:
                verdict.forgotten.append(pod)
            case PodStanding.UNKNOWN:
                why = NOT_IN_LEDGER if row is None else NOT_AS_ITS_ROW
                verdict.unknown.append(_Unknown(pod, why, may_be_known_yet=False))
            case _:
                assert_never(what)
    if verdict.forgotten and row is not None:
        adoption = _adoption(row, verdict.forgotten, pods, known, refused)
        if isinstance(adoption, Adopted):
            verdict.adoption = adoption
        else:
            verdict.unknown += [_Unknown(pod, adoption, may_be_known_yet=True) for pod in verdict.forgotten]
    return verdict


def _adoption(
    row: Reservation,
    forgotten: Sequence[PodStatus],
    pods: Sequence[PodStatus],
    known: Mapping[str, UnknownPod],
    refused: str | None,
) -> Adopted | str:
    """The event that adopts the forgotten pods, or why they can't be adopted now."""
    if any(str(pod.name) in known and known[str(pod.name)].end_requested_at is not None for pod in forgotten):
        return "Its end was asked for."
    if any(pod not in forgotten and pod.phase is not PodPhase.FINISHED for pod in pods):
        return "A pod of another attempt of its reservation is there, too."
    if refused is not None:
        return refused
    adoption = adoption_of(row, forgotten)
    return adoption if isinstance(adoption, Adopted) else adoption.detail


async def _reported(uow: UnitOfWork, unknown: _Unknown, now: datetime) -> UnknownPod:
    pod = unknown.pod
    node, gpu_indices, detail = await _claimed(uow, pod)
    return UnknownPod(
        name=str(pod.name),
        reservation_id=pod.name.reservation_id,
        node=node,
        gpu_indices=gpu_indices,
        detail=" ".join(filter(None, (unknown.why, detail))),
        first_seen_at=now,
    )


async def _claimed(uow: UnitOfWork, pod: PodStatus) -> tuple[str | None, tuple[int, ...] | None, str]:
    """The node and GPUs that are blocked while an unknown pod exists, and an explanation."""
    if pod.phase is PodPhase.FINISHED:
        return None, None, "It has finished."  # and holds no GPU any more
    if pod.holding is not None:
        return pod.holding.node, pod.holding.gpu_indices, ""
    if pod.place is None:
        return None, None, "It does not say which GPUs it holds, and it is on no node yet."
    cards = await uow.unknown_pods.cards_for(str(pod.name), pod.place.node)
    if pod.place.gpus is None:
        return pod.place.node, tuple(sorted(cards)), "It does not say which GPUs it holds: it may be any of its node."
    counted = tuple(sorted(cards[: pod.place.gpus]))
    return pod.place.node, counted, f"It does not say which GPUs it holds: {pod.place.gpus} of its node are counted."
