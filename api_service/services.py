"""The services of the routes: one object per application, reached through `request.app.state.services`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated

import structlog
from fastapi import Depends, Request

from api_service.access.access_log import EVERY_S, AccessLog
from api_service.access.auth import Authenticator
from api_service.access.dry_run_turns import DryRunTurns
from api_service.access.job_tokens import JobTokens
from api_service.access.sign_in_pace import SignInPace
from api_service.access.token_pace import TokenPace
from api_service.following import SharedWakeups
from api_service.known_types import KnownTypes
from api_service.metrics.gpu_metrics import GpuSeries
from api_service.metrics.metrics import ApiMetrics
from api_service.open_streams import OpenStreams
from api_service.policy_cache import PolicyCache
from api_service.submission import SubmissionWriter
from reservation_core.ports.jobs.reservations import NewReservation, Submitted
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.reading.reading import PrimaryReads, Reads, units_for_reads, units_for_requests
from reservation_core.runtime.reading.sign_in import SignInSetup, open_sign_in
from reservation_core.runtime.sessions.connections import Connections
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.simulation.simulator import Simulator
from reservation_core.runtime.ssh.door import SshDoor
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.bookings.waitlist import Waitlist
from reservation_core.usecases.jobs.submit import submit
from reservation_core.usecases.policy.read_plan import JobTerms, LikelyStarts

LAST_USED_EVERY_S = 30.0
_STREAM_READERS = 4
_FILE_BODIES = 8
"""So many bodies with files of jobs are in memory at once."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that lives as long as the application.

    `reads` is for lists and other large reads; `stream_reads` keeps streams from taking all connections. `streams`
    counts the open streams of programs, `page_streams` those of pages.
    """

    runtime: Runtime
    reads: Reads
    settings: ApiSettings
    authenticator: Authenticator
    token_pace: TokenPace
    job_tokens: JobTokens
    submissions: SubmissionWriter
    wakeups: SharedWakeups
    metrics: ApiMetrics
    policy: PolicyCache
    known_types: KnownTypes
    waitlist: Waitlist
    signing_in: SignInSetup
    sign_in_pace: SignInPace
    streams: OpenStreams
    page_streams: OpenStreams
    access_log: AccessLog
    connections: Connections
    ssh: SshDoor
    job_terms: JobTerms
    likely_starts: LikelyStarts
    simulator: Simulator
    dry_run_turns: DryRunTurns
    file_bodies: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_FILE_BODIES))
    stream_reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_STREAM_READERS))

    @classmethod
    def of(
        cls,
        runtime: Runtime,
        settings: ApiSettings,
        signing_in: SignInSetup | None = None,
        reads: Reads | None = None,
    ) -> "Services":
        """Make the services; nothing runs yet. Raises SettingsError."""
        reads = reads or PrimaryReads(units_for_reads(runtime.uow, settings))
        runtime = replace(runtime, uow=units_for_requests(runtime.uow, settings))

        async def store(batch: Sequence[NewReservation]) -> list[Submitted]:
            return await submit(runtime.uow, batch, runtime.clock.now())

        connections = Connections(runtime.uow, runtime.clock, settings.connections_per_user)
        authenticator = Authenticator(runtime.uow, runtime.ids, runtime.clock, settings.token_cache_s)
        terms = JobTerms(
            longest=settings.max_duration,
            beside=settings.start_allowance + settings.turnaround,
            promises=settings.promises,
            fair_share=bool(settings.fair_share_half_life_s),
            placement=settings.placement.policy,
            slack=timedelta(seconds=settings.promise_slack_s),
            estimates=settings.estimates,
        )
        pace = TokenPace(settings, authenticator)
        return cls(
            runtime=runtime,
            reads=reads,
            settings=settings,
            authenticator=authenticator,
            token_pace=pace,
            job_tokens=JobTokens(runtime.uow, runtime.clock, pace),
            submissions=SubmissionWriter(store, settings.submit_batch),
            wakeups=SharedWakeups(runtime.wakeups),
            metrics=ApiMetrics(reads, runtime.clock, loops=runtime.loops, gpu_series=GpuSeries.of(settings)),
            policy=PolicyCache(runtime.uow, settings.token_cache_s),
            known_types=KnownTypes(runtime.uow, settings.gpu.types.values()),
            waitlist=Waitlist(runtime.uow, runtime.ids, settings.offer),
            signing_in=signing_in or open_sign_in(settings, runtime),
            sign_in_pace=SignInPace(settings),
            streams=OpenStreams(settings.streams_per_user),
            page_streams=OpenStreams(settings.web.streams_per_user),
            access_log=AccessLog(settings, runtime.clock),
            connections=connections,
            ssh=SshDoor(runtime, settings.ssh, connections),
            job_terms=terms,
            likely_starts=LikelyStarts(terms, runtime.clock),
            simulator=Simulator(settings.simulation_s),
            dry_run_turns=DryRunTurns(),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the background tasks; at the end write the accepted submissions, then stop."""
        loops = self.runtime.loops
        writer = asyncio.create_task(loops.keep("submissions", self.submissions.run))
        token_uses = loops["token_uses"].repeat(
            self.authenticator.write_last_used, rest_s=LAST_USED_EVERY_S, rests_first=True
        )
        background = [
            asyncio.create_task(loops.keep("streams", self.wakeups.run)),
            asyncio.create_task(token_uses),
            asyncio.create_task(loops["access_log"].repeat(self.access_log.write, rest_s=EVERY_S, rests_first=True)),
            asyncio.create_task(self.policy.run(loops["policy"])),
            asyncio.create_task(self.connections.run(loops["connections"])),
        ]
        try:
            yield
        finally:
            self.wakeups.stop()
            self.submissions.close()
            await writer
            for task in background:
                task.cancel()
            for result in await asyncio.gather(*background, return_exceptions=True):
                if isinstance(result, Exception):
                    _log.error("background_task_failed", error=repr(result))
            await self.signing_in.close()
            try:
                await self.access_log.write()
            except Exception as error:  # noqa: BLE001 - without its last lines, stopping still goes on
                loops["access_log"].failed(error)
            self.access_log.close()
            with suppress(DatabaseUnavailableError):
                await self.authenticator.write_last_used()

    async def serve_waitlist(self) -> None:
        """Offer freed GPUs to the waitlist soon; what fails now is done by the expiry."""
        try:
            await self.waitlist.serve()
        except DatabaseUnavailableError as error:
            _log.warning("waitlist_not_served", error=str(error))


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def _services(request: Request) -> Services:
    return services_of(request)


async def _caller(request: Request) -> Principal:
    """The caller, which the gate has verified."""
    principal: Principal = request.scope["principal"]
    return principal


Served = Annotated[Services, Depends(_services)]
Caller = Annotated[Principal, Depends(_caller)]
