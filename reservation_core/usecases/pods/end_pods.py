"""End foreign pods: after their time, or when bookings need the GPUs of preemptible ones.

Every run decides from the cluster, the ledger and the stored state of pods, so the next one makes up for a missed one.
The database's clock decides. A step is stored before it is taken, so a killed process loses no step. Several processes
may run at the same time.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby

import structlog

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.event_kinds import PodEventKind
from reservation_core.domain.pods.overbooked_pods import Occupant, too_many
from reservation_core.domain.pods.pod_endings import (
    BookedTime,
    Ending,
    EndingStep,
    EndRules,
    GuardedPod,
    Memory,
    ending,
    needed_by,
    overbooked,
    remembered,
)
from reservation_core.domain.pods.victims import NodeNeed, Preemptible, victims
from reservation_core.domain.statuses import BookingStatus
from reservation_core.domain.time_words import time_words
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.pods.guarded_pods import BudgetRefusedError, EndRefusedError, GuardedPods
from reservation_core.ports.pods.pod_endings import EndingRecord, NeededGpus
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.pods.report_guarded_pods import PodReporter

_NAMESPACES_AT_ONCE = 8
_MOST_NAMED = 20
_LEAST = -(2**40)
"""Below any pod's priority, which has 32 bits."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PodEndRules:
    """`lead`: how long before a booking its GPUs are freed. `grace_s`: the longest grace of pods in seconds."""

    ends: EndRules = field(default_factory=EndRules)
    lead: timedelta = timedelta(seconds=60)
    grace_s: int = 30


@dataclass(frozen=True, slots=True)
class PodEndReport:
    """The numbers of pods that were warned, asked to end, kept by a disruption budget, or not reachable."""

    warned: int = 0
    asked: int = 0
    kept: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _Due:
    pod: GuardedPod
    ending: Ending


class PodEnder:
    """Ends pods; `begin` must precede the first list of pods."""

    def __init__(self, uow: UnitOfWorkFactory, pods: GuardedPods, rules: PodEndRules) -> None:
        self._uow = uow
        self._pods = pods
        self._rules = rules
        self._reporter = PodReporter()
        self._since: datetime | None = None
        self._seen: set[str] = set()

    async def begin(self) -> None:
        """Start listing pods: a pod that was known before and is not listed afterwards is gone."""
        async with self._uow(one_statement=True) as uow:
            self._since = await uow.now()
        self._seen.clear()

    async def run(self, pods: Mapping[str, GuardedPod]) -> PodEndReport:
        """Take all due steps for all pods, by uid. Raises DatabaseUnavailableError."""
        due = await self._decide(pods)
        for due_pod in due:
            self._notify(due_pod)
        marked = [due_pod for due_pod in due if due_pod.ending.mark]
        going = [due_pod for due_pod in due if due_pod.ending.step is not EndingStep.NOTHING]
        gate = asyncio.Semaphore(_NAMESPACES_AT_ONCE)
        outcomes = await asyncio.gather(
            *(self._end(of_namespace, gate) for of_namespace in _by_namespace(going)),
            *(self._mark(of_namespace, gate) for of_namespace in _by_namespace(marked)),
        )
        kept = [memory for outcome in outcomes for memory in outcome[0]]
        if kept:
            await self._note_kept(kept)
        warned = sum(due_pod.ending.warn for due_pod in due)
        asked = sum(due_pod.ending.asks for due_pod in due)
        return PodEndReport(warned, asked, len(kept), sum(outcome[1] for outcome in outcomes))

    async def _decide(self, pods: Mapping[str, GuardedPod]) -> list[_Due]:
        """Read, decide and store steps in one transaction."""
        enforced = [pod for pod in pods.values() if pod.enforced]
        async with self._uow() as uow:
            await uow.pod_endings.take_turn()
            memories = {memory.uid: memory for memory in await uow.pod_endings.memories()}
            gone = [memory for memory in memories.values() if memory.uid not in pods and self._was_seen(memory)]
            if not enforced and not gone:
                return []
            await self._reporter.report(uow, enforced, memories, gone)
            now = await uow.now()
            read = {pod.uid: remembered(pod, memories.get(pod.uid), now) for pod in enforced}
            booked = await uow.pod_endings.booked(
                {pod_end.booking_id for pod_end in read.values() if pod_end.booking_id}
            )
            bookings = {booking.booking_id: booking for booking in booked}
            displaced = await self._needed(uow, pods, read)
            displaced |= await self._overbooked(uow, enforced, read, bookings, now)
            due = [
                _Due(
                    pod,
                    ending(
                        pod,
                        memories.get(pod.uid),
                        bookings.get(read[pod.uid].booking_id or ""),
                        displaced.get(pod.uid),
                        self._rules.ends,
                        now,
                    ),
                )
                for pod in sorted(enforced, key=lambda pod: (pod.namespace, pod.name, pod.uid))
            ]
            changed = [due_pod.ending.after for due_pod in due if memories.get(due_pod.pod.uid) != due_pod.ending.after]
            await uow.pod_endings.remember(changed)
            await uow.pod_endings.forget({memory.uid for memory in gone})
            records = _records(due, bookings)
            await uow.pod_endings.record(records, now)
            if records:
                uow.wake(Channel.EVENTS)
        self._reporter.committed()
        self._seen = set(pods)
        return due

    def _was_seen(self, memory: Memory) -> bool:
        """Whether a missing pod is gone: it may also be a newer one that another process has stored."""
        return memory.uid in self._seen or (self._since is not None and memory.seen_at < self._since)

    async def _needed(
        self, uow: UnitOfWork, pods: Mapping[str, GuardedPod], read: Mapping[str, Memory]
    ) -> dict[str, str]:
        """Why preemptible pods end whose GPUs are needed, by uid."""
        preemptible = [
            pod
            for pod in pods.values()
            if pod.enforced and pod.node is not None and read[pod.uid].preemptible and pod.finished_at is None
        ]
        needs = await uow.pod_endings.needed_cards({pod.node for pod in preemptible if pod.node}, self._rules.lead)
        reasons = {}
        for need in needs:
            here = [pod for pod in preemptible if pod.node == need.node]
            for uid in victims(_need(need, pods, here), [_preemptible(pod) for pod in here]):
                reasons[uid] = needed_by(min(need.needed.values()))
        return reasons

    async def _overbooked(
        self,
        uow: UnitOfWork,
        pods: Sequence[GuardedPod],
        read: Mapping[str, Memory],
        bookings: Mapping[str, BookedTime],
        now: datetime,
    ) -> dict[str, str]:
        """Why pods end that together use more than their booking has, by uid."""
        by_booking: dict[str, list[Occupant]] = {}
        for pod in pods:
            booking = bookings.get(read[pod.uid].booking_id or "")
            if booking is None or not _uses(pod, booking, read[pod.uid], now):
                continue
            by_booking.setdefault(booking.booking_id, []).append(_occupant(pod, read[pod.uid]))
        reasons = {}
        for use in await uow.pod_endings.booked_cards(by_booking):
            for uid in too_many(use.cards, [*use.jobs, *by_booking[use.booking_id]]):
                reasons[uid] = overbooked(use.booking_id, use.cards)
        return reasons

    def _notify(self, due: _Due) -> None:
        end = due.ending
        if end.warn and end.end is not None:
            note = f"This pod will be ended at {time_words(end.end, UTC)}: {end.why} Save your work."
            self._pods.add_event(due.pod, "EndingSoon", f"{note} A longer booking lets it stay longer.")
        if end.asks:
            self._pods.add_event(due.pod, "Ending", f"This pod is ended. {end.why}")
        if end.tells_refusal:
            what = "it is deleted" if end.step is EndingStep.DELETE else "it keeps GPUs that are not its own"
            self._pods.add_event(due.pod, "EndingRefused", f"A PodDisruptionBudget keeps this pod: {what}. {end.why}")
            _log.warning("a disruption budget keeps a pod past its end", pod=str(due.pod), why=end.why)

    async def _mark(self, of_namespace: Sequence[_Due], gate: asyncio.Semaphore) -> tuple[list[Memory], int]:
        failed = 0
        async with gate:
            for due_pod in of_namespace:
                try:
                    assert due_pod.ending.end is not None  # noqa: S101 - marked endings have an end
                    await self._pods.mark_end(due_pod.pod, due_pod.ending.end)
                except ClusterUnavailableError as problem:
                    failed += 1
                    _log.warning("could not mark a pod's end; trying again", pod=str(due_pod.pod), why=str(problem))
        return [], failed

    async def _end(self, of_namespace: Sequence[_Due], gate: asyncio.Semaphore) -> tuple[list[Memory], int]:
        """End a namespace's pods one after the other; those that a budget kept, and the number of failures.

        When the cluster does not answer, the rest is left to the next run, which decides again.
        """
        kept, failed = [], 0
        async with gate:
            for due_pod in of_namespace:
                try:
                    if due_pod.ending.step is EndingStep.DELETE:
                        await self._pods.delete(due_pod.pod, self._rules.grace_s)
                    else:
                        await self._pods.evict(due_pod.pod, self._rules.grace_s)
                except BudgetRefusedError:
                    kept.append(due_pod.ending.after)
                except EndRefusedError as problem:
                    failed += 1
                    _log.warning("could not end a pod; trying again", pod=str(due_pod.pod), why=str(problem))
                except ClusterUnavailableError as problem:
                    failed += 1
                    _log.warning("the cluster ends no pods now; trying again", why=str(problem))
                    break
        return kept, failed

    async def _note_kept(self, kept: Sequence[Memory]) -> None:
        """Store since when disruption budgets keep pods."""
        async with self._uow() as uow:
            await uow.pod_endings.take_turn()
            now = await uow.now()
            known = {memory.uid: memory for memory in await uow.pod_endings.memories()}
            since = [known[memory.uid] for memory in kept if memory.uid in known]
            await uow.pod_endings.remember(
                [replace(memory, refused_at=now) for memory in since if memory.refused_at is None]
            )


def _need(need: NeededGpus, pods: Mapping[str, GuardedPod], candidates: Collection[GuardedPod]) -> NodeNeed:
    """The need of a node, with GPUs of other pods as taken, unless they use a booking that needs GPUs there."""
    candidate_uids = {pod.uid for pod in candidates}
    booking_ids = set(need.needed.values())
    taken = sum(
        pod.gpus
        for pod in pods.values()
        if pod.node == need.node
        and pod.uid not in candidate_uids
        and pod.cards is None
        and pod.finished_at is None
        and pod.booking_id not in booking_ids
    )
    return NodeNeed(need.cards, frozenset(need.needed), need.types, taken)


def _uses(pod: GuardedPod, booking: BookedTime, memory: Memory, now: datetime) -> bool:
    """Whether a pod uses GPUs of its booking and is not leaving."""
    running = pod.node is not None and pod.gpus > 0 and pod.finished_at is None and not pod.leaving
    held = booking.status in (BookingStatus.CONFIRMED, BookingStatus.ACTIVE) and booking.begins <= now < booking.ends
    return running and held and booking.user == memory.owner and not memory.preemptible


def _occupant(pod: GuardedPod, memory: Memory) -> Occupant:
    cards = None if pod.cards is None else frozenset((str(pod.node), card) for card in pod.cards)
    return Occupant(pod.uid, pod.gpus, pod.began, cards, leaves=memory.asked_at is not None)


def _preemptible(pod: GuardedPod) -> Preemptible:
    """A pod as a victim; one that is leaving anyway is chosen first."""
    cards = None if pod.cards is None else frozenset(pod.cards)
    priority, began = (_LEAST, None) if pod.leaving else (pod.priority, pod.began)
    return Preemptible(pod.uid, pod.gpus, priority, began, cards, pod.gpu_type)


def _by_namespace(due: Sequence[_Due]) -> list[list[_Due]]:
    return [list(due_pods) for _, due_pods in groupby(due, lambda due_pod: due_pod.pod.namespace)]


def _records(due: Sequence[_Due], bookings: Collection[str]) -> list[EndingRecord]:
    """An event for every pod that is asked to end or kept, and one for all warned pods of a booking."""
    records: dict[tuple[str, str, str], EndingRecord] = {}
    for due_pod in due:
        pod, end = due_pod.pod, due_pod.ending
        booking_id = end.after.booking_id if end.after.booking_id in bookings else None
        data: dict[str, object] = {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "gpus": pod.gpus,
            "owner": end.after.owner,
        }
        if end.end is not None:
            data["ends_at"] = end.end.isoformat()
        for kind, happened in (
            (PodEventKind.END_WARNED, end.warn),
            (PodEventKind.END_ASKED, end.asks and not end.displaced),
            (PodEventKind.DISPLACED, end.asks and end.displaced),
            (PodEventKind.END_REFUSED, end.tells_refusal),
        ):
            if not happened:
                continue
            about = booking_id if kind is PodEventKind.END_WARNED and booking_id is not None else pod.uid
            key = (kind, about, str(data.get("ends_at")) if about == booking_id else "")
            if key in records:
                named = records[key].data.setdefault("others", [])
                if len(named) < _MOST_NAMED:
                    named.append(str(pod))
            else:
                records[key] = EndingRecord(kind, end.why, f"pod:{pod}", booking_id, dict(data))
    return list(records.values())
