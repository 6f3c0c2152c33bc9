"""Ending pods that people made: past their time, or when bookings need the cards of those without a right to stay.

Each look decides anew from what the cluster shows, the ledger and what is remembered, so a missed one is made up by the
next. The database's clock decides. Each step is noted first and taken then: a process killed in between has noted it
once, and the next look takes it. Several processes may look beside each other.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

import structlog

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.event_kinds import PodEventKind
from reservation_core.domain.model import BookingStatus
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
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.pods.guarded_pods import BudgetRefusedError, EndRefusedError, GuardedPods
from reservation_core.ports.pods.pod_endings import EndingRecord, NeededCards
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.pods.report_guarded_pods import PodReporter

_NAMESPACES_AT_ONCE = 8
_MOST_NAMED = 20
_LEAST = -(2**40)
"""Less than any pod's priority, which has 32 bits."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PodEndRules:
    """`lead`: so long before a booking begins its cards are made free. `grace_s`: what pods get at most to end."""

    ends: EndRules = field(default_factory=EndRules)
    lead: timedelta = timedelta(seconds=60)
    grace_s: int = 30


@dataclass(frozen=True, slots=True)
class PodEndReport:
    """What one look did: pods that were warned, asked to go, kept by a budget, or could not be asked."""

    warned: int = 0
    asked: int = 0
    kept: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _Due:
    pod: GuardedPod
    ending: Ending


class PodEnder:
    """One who ends pods; `begin` before it sees any."""

    def __init__(self, uow: UnitOfWorkFactory, pods: GuardedPods, rules: PodEndRules) -> None:
        self._uow = uow
        self._pods = pods
        self._rules = rules
        self._reporter = PodReporter()
        self._since: datetime | None = None
        self._seen: set[str] = set()

    async def begin(self) -> None:
        """From now on pods are looked for: whoever was known before, and is not found then, is gone."""
        async with self._uow(one_statement=True) as uow:
            self._since = await uow.now()
        self._seen.clear()

    async def run(self, pods: Mapping[str, GuardedPod]) -> PodEndReport:
        """Look once at all there are, by uid, and do what is due. Raises DatabaseUnavailableError."""
        due = await self._decide(pods)
        for due_pod in due:
            self._tell(due_pod)
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
        """Read, decide and note, in one transaction."""
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
        """Whether its absence says that it is gone: others may have seen a pod that was made since."""
        return memory.uid in self._seen or (self._since is not None and memory.seen_at < self._since)

    async def _needed(
        self, uow: UnitOfWork, pods: Mapping[str, GuardedPod], read: Mapping[str, Memory]
    ) -> dict[str, str]:
        """Why those go whose cards are needed, by uid."""
        preemptible = [
            pod
            for pod in pods.values()
            if pod.enforced and pod.node is not None and read[pod.uid].preemptible and pod.finished_at is None
        ]
        needs = await uow.pod_endings.needed_cards({pod.node for pod in preemptible if pod.node}, self._rules.lead)
        found = {}
        for need in needs:
            here = [pod for pod in preemptible if pod.node == need.node]
            for uid in victims(_need(need, pods, here), [_preemptible(pod) for pod in here]):
                found[uid] = needed_by(min(need.needed.values()))
        return found

    async def _overbooked(
        self,
        uow: UnitOfWork,
        pods: Sequence[GuardedPod],
        read: Mapping[str, Memory],
        bookings: Mapping[str, BookedTime],
        now: datetime,
    ) -> dict[str, str]:
        """Why those go that use more together than their booking has, by uid."""
        by_booking: dict[str, list[Occupant]] = {}
        for pod in pods:
            booking = bookings.get(read[pod.uid].booking_id or "")
            if booking is None or not _uses(pod, booking, read[pod.uid], now):
                continue
            by_booking.setdefault(booking.booking_id, []).append(_occupant(pod, read[pod.uid]))
        found = {}
        for card in await uow.pod_endings.booked_cards(by_booking):
            for uid in too_many(card.cards, [*card.jobs, *by_booking[card.booking_id]]):
                found[uid] = overbooked(card.booking_id, card.cards)
        return found

    def _tell(self, due: _Due) -> None:
        end = due.ending
        if end.warn and end.end is not None:
            note = f"This pod will be ended at {end.end:%Y-%m-%d %H:%M} UTC: {end.why} Save your work."
            self._pods.tell(due.pod, "EndingSoon", f"{note} A longer booking lets it stay longer.")
        if end.asks:
            self._pods.tell(due.pod, "Ending", f"This pod is ended. {end.why}")
        if end.tells_refusal:
            what = "it is deleted" if end.step is EndingStep.DELETE else "it keeps cards that are not its own"
            self._pods.tell(due.pod, "EndingRefused", f"A PodDisruptionBudget keeps this pod: {what}. {end.why}")
            _log.warning("a disruption budget keeps a pod past its end", pod=str(due.pod), why=end.why)

    async def _mark(self, of_namespace: Sequence[_Due], gate: asyncio.Semaphore) -> tuple[list[Memory], int]:
        failed = 0
        async with gate:
            for due_pod in of_namespace:
                try:
                    assert due_pod.ending.end is not None  # noqa: S101 - there is nothing to mark without
                    await self._pods.mark_end(due_pod.pod, due_pod.ending.end)
                except ClusterUnavailableError as problem:
                    failed += 1
                    _log.warning("an end could not be marked; trying again", pod=str(due_pod.pod), why=str(problem))
        return [], failed

    async def _end(self, of_namespace: Sequence[_Due], gate: asyncio.Semaphore) -> tuple[list[Memory], int]:
        """One after the other; answers those that a budget kept, and how many could not be asked.

        A cluster that does not answer is not asked about the others: the next look decides anew, and not on what was
        decided long ago.
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
                    _log.warning("a pod could not be ended; trying again", pod=str(due_pod.pod), why=str(problem))
                except ClusterUnavailableError as problem:
                    failed += 1
                    _log.warning("the cluster does not end pods now; trying again", why=str(problem))
                    break
        return kept, failed

    async def _note_kept(self, kept: Sequence[Memory]) -> None:
        """Since when their budgets keep them."""
        async with self._uow() as uow:
            await uow.pod_endings.take_turn()
            now = await uow.now()
            known = {memory.uid: memory for memory in await uow.pod_endings.memories()}
            since = [known[memory.uid] for memory in kept if memory.uid in known]
            await uow.pod_endings.remember(
                [replace(memory, refused_at=now) for memory in since if memory.refused_at is None]
            )


def _need(need: NeededCards, pods: Mapping[str, GuardedPod], candidates: Collection[GuardedPod]) -> NodeNeed:
    """What others of the node have is taken, but for those whose booking's cards there are needed anyway."""
    ours = {pod.uid for pod in candidates}
    theirs = set(need.needed.values())
    taken = sum(
        pod.gpus
        for pod in pods.values()
        if pod.node == need.node
        and pod.uid not in ours
        and pod.cards is None
        and pod.finished_at is None
        and pod.booking_id not in theirs
    )
    return NodeNeed(need.cards, frozenset(need.needed), need.types, taken)


def _uses(pod: GuardedPod, booking: BookedTime, memory: Memory, now: datetime) -> bool:
    """Whether it is on cards of its booking now, and goes on to be."""
    running = pod.node is not None and pod.gpus > 0 and pod.finished_at is None and not pod.leaving
    held = booking.status in (BookingStatus.CONFIRMED, BookingStatus.ACTIVE) and booking.begins <= now < booking.ends
    return running and held and booking.user == memory.owner and not memory.preemptible


def _occupant(pod: GuardedPod, memory: Memory) -> Occupant:
    cards = None if pod.cards is None else frozenset((str(pod.node), card) for card in pod.cards)
    return Occupant(pod.uid, pod.gpus, pod.began, cards, leaves=memory.asked_at is not None)


def _preemptible(pod: GuardedPod) -> Preemptible:
    """A pod that is leaving anyway is counted on first."""
    cards = None if pod.cards is None else frozenset(pod.cards)
    priority, began = (_LEAST, None) if pod.leaving else (pod.priority, pod.began)
    return Preemptible(pod.uid, pod.gpus, priority, began, cards, pod.gpu_type)


def _by_namespace(due: Sequence[_Due]) -> list[list[_Due]]:
    return [list(due_pods) for _, due_pods in groupby(due, lambda one: one.pod.namespace)]


def _records(due: Sequence[_Due], bookings: Collection[str]) -> list[EndingRecord]:
    """A line for each pod that is asked to go or kept, and one for all of a booking that are warned together."""
    records: dict[tuple[str, str, str], EndingRecord] = {}
    for due_pod in due:
        pod, end = due_pod.pod, due_pod.ending
        booking_id = end.after.booking_id if end.after.booking_id in bookings else None
        said = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "gpus": pod.gpus}
        data: dict[str, object] = {**said, "owner": end.after.owner}
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
