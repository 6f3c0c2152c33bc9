"""Pods of people in a world with bookings: a cluster that does what a test says, and who ends them there."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from reservation_core.domain.pods.pod_endings import GuardedPod
from reservation_core.ports.pods.guarded_pods import BudgetRefusedError
from reservation_core.usecases.pods.end_pods import PodEnder, PodEndReport, PodEndRules
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, BookingWorld

NINE = START + 24 * HOUR
POD = GuardedPod("u-1", "lab", "train-0", "a", "alice", gpus=1, began=NINE, grace_s=600)


class ScriptedPods:
    """See ports.pods.guarded_pods.GuardedPods. An evicted pod leaves; a pod that a budget keeps does not."""

    def __init__(self) -> None:
        self.pods: dict[str, GuardedPod] = {}
        self.kept: set[str] = set()
        self.asked: list[tuple[str, str, int]] = []
        self.told: list[tuple[str, str, str]] = []
        self.before: Callable[[GuardedPod], None] = lambda _: None

    def put(self, *pods: GuardedPod) -> None:
        self.pods |= {pod.uid: pod for pod in pods}

    async def list_pods(self) -> Mapping[str, GuardedPod]:
        return dict(self.pods)

    async def follow(self, show: Callable[[Mapping[str, GuardedPod]], None]) -> None:
        raise NotImplementedError

    async def mark_end(self, pod: GuardedPod, end: datetime) -> None:
        self.put(replace(self.pods[pod.uid], marked_end=end))

    async def evict(self, pod: GuardedPod, grace_s: int) -> None:
        self.before(pod)
        self.asked.append(("evict", pod.uid, grace_s))
        if pod.uid in self.kept:
            raise BudgetRefusedError("Cannot evict pod as it would violate the pod's disruption budget.")
        self.put(replace(pod, leaving=True))

    async def delete(self, pod: GuardedPod, grace_s: int) -> None:
        self.asked.append(("delete", pod.uid, grace_s))
        self.put(replace(pod, leaving=True))

    def add_event(self, pod: GuardedPod, reason: str, note: str) -> None:
        self.told.append((pod.name, reason, note))

    async def write_events(self) -> None:
        """Nothing waits."""


class Lab:
    """A world with bookings, and pods of people in it."""

    def __init__(self, bookings: BookingWorld, rules: PodEndRules) -> None:
        self.bookings = bookings
        self.pods = ScriptedPods()
        self.rules = rules
        self.ender = PodEnder(bookings.world.uow, self.pods, rules)

    def restart(self) -> None:
        """Another process."""
        self.ender = PodEnder(self.bookings.world.uow, self.pods, self.rules)

    async def look(self) -> PodEndReport:
        """As one run does."""
        await self.ender.begin()
        return await self.ender.run(await self.pods.list_pods())

    async def at(self, when: datetime) -> PodEndReport:
        await self.bookings.at(when)
        return await self.look()

    async def records(self, kind: str) -> list[dict[str, Any]]:
        found = await self.bookings.rows(
            "SELECT reservation_id, subject, data FROM events WHERE kind = :kind ORDER BY id", kind=kind
        )
        return [{**row["data"], "about": row["reservation_id"] or row["subject"]} for row in found]

    async def uses(self) -> list[tuple[str, str, datetime, datetime | None]]:
        found = await self.bookings.rows(
            "SELECT booking_id, pod_uid, admitted_at, ended_at FROM admissions ORDER BY admitted_at, pod_uid"
        )
        return [(row["booking_id"], row["pod_uid"], row["admitted_at"], row["ended_at"]) for row in found]
