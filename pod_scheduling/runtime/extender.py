"""From settings to an extender that answers: the cluster, quotas, lease and ledger behind it."""

import asyncio
import copy
import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from pod_scheduling.adapters.kubernetes.card_cluster import KubernetesCardCluster
from pod_scheduling.adapters.kubernetes.card_sights import CardSightRules
from pod_scheduling.domain.extender.asked_cards import CardResources
from pod_scheduling.domain.extender.board import ExtenderBoard
from pod_scheduling.domain.extender.cards_in_use import CardsInUse
from pod_scheduling.domain.extender.model_usage import ModelUsage
from pod_scheduling.domain.placement.fleet import Fleet
from pod_scheduling.domain.placement.rankings import ranking_of
from pod_scheduling.ports.extender import Extender
from pod_scheduling.runtime.settings.admission import AdmissionSettings, ShareCards
from pod_scheduling.usecases.extender.rules import ExtendRules
from pod_scheduling.usecases.extender.scheduler_extender import SchedulerExtender
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import KubeconfigError
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter
from reservation_core.adapters.kubernetes.other_objects.leases import Lease, LeaseRules
from reservation_core.domain.cards.gpu_types import TypeNames
from reservation_core.runtime.kubernetes import open_transport
from reservation_core.runtime.lease_namespace import lease_namespace
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.settings.error import SettingsError

if TYPE_CHECKING:
    from pod_scheduling.runtime.reading.ledger_holdings import HoldingsReading
    from pod_scheduling.runtime.reading.promised_cards import PromisedCards

_CONTROLLER = "gpu-admission"
_FIRST_RECONSIDER_S = 1.0
_RECONSIDER_S = 300.0


@dataclass(frozen=True, slots=True)
class RunningExtender:
    """The extender and its state."""

    scheduling: SchedulerExtender
    lease: Lease | None
    events: EventWriter
    loops: Loops = field(default_factory=Loops)

    @property
    def extender(self) -> Extender:
        """What answers."""
        return self.scheduling

    def ready(self) -> bool:
        """Whether schedulers may be sent here: everything was seen, and this replica leads where one has to."""
        return self.scheduling.synced

    def problems(self) -> list[str]:
        """Problems that do not keep it from answering, such as an unreadable ConfigMap, in sentences."""
        found = []
        if (problem := self.scheduling.quotas.problem) is not None:
            found.append(f"The GPU quotas can't be read: {problem}.")
        if (problem := self.scheduling.who_binds.problem) is not None:
            found.append(problem)
        if (problem := self.scheduling.interruption) is not None:
            found.append(
                f"The known state of the cluster may be out of date: {problem.rstrip('.')}. It goes on trying."
            )
        found += [f"A loop fails and is tried again: {loop}." for loop in self.loops.failing()]
        return found

    def numbers(self) -> Mapping[str, float]:
        """Counters (`…_total`) and gauges for /metrics, by name without the prefix."""
        scheduling, counts = self.scheduling, self.scheduling.counts
        return {
            "synced": scheduling.synced,
            "leading": 1.0 if self.lease is None else self.lease.holds(),
            "quotas_invalid": scheduling.quotas.problem is not None,
            "quotas_rejected_total": scheduling.quotas.rejected,
            "waiting_pods": scheduling.waiting,
            "assumed_pods": scheduling.assumed,
            "claiming_pods": scheduling.claimed,
            "bound_total": counts.bound,
            "bound_beside_us_total": scheduling.who_binds.beside_us,
            "binds_refused_total": counts.refused,
            "binds_unanswered_total": counts.unanswered,
            "binds_given_up_total": counts.given_up,
            "nudged_total": scheduling.nudger.nudged,
            "nudges_given_up_total": scheduling.nudger.given_up,
            "marked_total": scheduling.marker.marked,
            "without_room_total": scheduling.marker.without_room,
            "events_left_out_total": self.events.left_out,
            "loop_failures_total": sum(loop.failures for loop in self.loops),
        }


@asynccontextmanager
async def run_extender(settings: AdmissionSettings) -> AsyncIterator[RunningExtender]:
    """An extender that follows the cluster as long as the block runs.

    Raises SettingsError for a kubeconfig that can't be used.
    """
    rules, loops = settings.admission, Loops()
    try:
        transport = open_transport(settings)
    except KubeconfigError as error:
        raise SettingsError(str(error)) from error
    host, clock = socket.gethostname(), SystemClock()
    events = EventWriter(transport, clock, _CONTROLLER, f"{_CONTROLLER}-{host}", per_s=rules.events_per_s)
    lease = _lease(transport, clock, settings, host) if rules.leader_elect else None
    async with AsyncExitStack() as closing:
        closing.push_async_callback(transport.close)
        ledger = await closing.enter_async_context(_open_ledger(settings))
        board = _board(settings)
        extender = SchedulerExtender(
            _cluster(transport, settings, events),
            board,
            ExtendRules(
                rules.assume_at,
                rules.candidates,
                assumed_s=rules.assumed_s,
                claim_s=rules.assumed_s,
                binding_s=rules.binding_s,
            ),
            clock,
            lease.left_s if lease is not None else lambda: inf,
            ledger.known if ledger is not None else lambda: True,
        )
        if ledger is not None:
            promised = ledger.promised.keep(loops["promised_cards"], extender.reserve, lambda: None)
            await closing.enter_async_context(beside(promised, name="promised"))
            holdings = ledger.holdings.keep(loops["holdings"], board.cards.owners.know, lambda: None)
            await closing.enter_async_context(beside(holdings, name="holdings"))
        await closing.enter_async_context(beside(loops.keep("events", events.run), name="events"))
        if lease is not None:
            keeping = loops.keep("lease", partial(lease.keep, extender.lead, lambda: extender.settled))
            await closing.enter_async_context(beside(keeping, name="lease"))
        reconsidering = loops.keep("reconsider", partial(_reconsider, board, extender))
        await closing.enter_async_context(beside(reconsidering, name="reconsider"))
        await closing.enter_async_context(beside(extender.run(loops.keep), name="extender"))
        closing.callback(extender.end)
        yield RunningExtender(extender, lease, events, loops)


def _board(settings: AdmissionSettings) -> ExtenderBoard:
    rules = settings.admission
    usage = ModelUsage(rules.model_label, rules.pool_label)
    by_policy = rules.share_cards is ShareCards.POLICY
    return ExtenderBoard(CardsInUse(usage), ranking_of(rules.policy), by_policy=by_policy)


def _cluster(transport: Transport, settings: AdmissionSettings, events: EventWriter) -> KubernetesCardCluster:
    rules = settings.admission
    sights = CardSightRules(
        CardResources(settings.gpu.resource_names, rules.share_resource, rules.memory_resource),
        rules.model_label,
        rules.pool_label,
        rules.quota_name,
        rules.quota_key,
        settings.kubernetes.namespace,
        words=TypeNames(settings.gpu.types),
    )
    return KubernetesCardCluster(transport, sights, events, rules.quota_namespace, rules.enforced_label)


def _lease(transport: Transport, clock: SystemClock, settings: AdmissionSettings, host: str) -> Lease:
    rules = settings.admission
    return Lease(
        transport, clock, lease_namespace(rules.lease_namespace), rules.lease_name, f"{host}_{secrets.token_hex(6)}",
        LeaseRules(rules.lease_s, rules.renew_within_s, rules.retry_s),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Ledger:
    """The ledger as read from the database. Nothing is answered while one of both is not known."""

    promised: "PromisedCards"
    holdings: "HoldingsReading"

    def known(self) -> bool:
        return self.promised.known() and self.holdings.known()


@asynccontextmanager
async def _open_ledger(settings: AdmissionSettings) -> "AsyncIterator[_Ledger | None]":
    """The ledger's promised cards and users' holdings, where there is a database."""
    if settings.database_url is None:
        yield None
        return
    # Loaded only where it is wanted: the database's libraries take 30 MB.
    from pod_scheduling.runtime.reading.ledger_holdings import HoldingsReading  # noqa: PLC0415
    from pod_scheduling.runtime.reading.promised_cards import PromisedCards  # noqa: PLC0415
    from reservation_core.adapters.postgres.connection.engine import open_engine  # noqa: PLC0415
    from reservation_core.runtime.database_urls import database_url_of  # noqa: PLC0415
    from reservation_core.runtime.reading.repeated_reading import LEDGER_STATEMENT_S  # noqa: PLC0415

    engine = open_engine(database_url_of(settings), pool=2, application=_CONTROLLER, statement_s=LEDGER_STATEMENT_S)
    try:
        times = settings.admission.ledger_s, settings.admission.ledger_patience_s
        yield _Ledger(PromisedCards(engine, *times), HoldingsReading(engine, *times))
    finally:
        await engine.dispose()


async def _reconsider(board: ExtenderBoard, extender: SchedulerExtender) -> None:
    """Let the policy reconsider in a thread, as that may take a second."""
    pause_s = _FIRST_RECONSIDER_S
    while True:
        await asyncio.sleep(pause_s)
        if extender.synced:
            await asyncio.to_thread(board.ranking.reconsider, _picture(board.cards.fleet))
            pause_s = _RECONSIDER_S


def _picture(fleet: Fleet) -> Fleet:
    """A copy of the fleet for another thread."""
    picture = copy.copy(fleet)
    for name, value in vars(fleet).items():
        if isinstance(value, np.ndarray | list | dict):
            setattr(picture, name, value.copy())
    return picture
