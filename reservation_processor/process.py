"""The processor's parts: every processor carries out pod operations; one of them leads (plans and follows pods)."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import pydantic
import structlog

from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.sessions.job_tokens import JobAccess
from reservation_core.ports.queues import QueuedMessage, QueueName
from reservation_core.ports.sessions.ssh_keys import ServerKeyUnreadableError
from reservation_core.ports.wakeups import Channel
from reservation_core.runtime.loops.consumer import Consumer, ConsumerRules
from reservation_core.runtime.loops.notices import notice_senders
from reservation_core.runtime.loops.token_bucket import TokenBucket
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.running.create_pods_together import create_together
from reservation_core.usecases.running.last_output import LastOutput
from reservation_core.usecases.running.perform_pod_operations import LaunchRules, perform
from reservation_core.usecases.sessions.server_keys import job_token_key
from reservation_processor.belts import BELT
from reservation_processor.leading import lead, log_differences, resync_of
from reservation_processor.notifying import notify

_log = structlog.get_logger(__name__)


async def run(runtime: Runtime, settings: ProcessorSettings, stop: asyncio.Event) -> None:
    """Work until `stop` is set; then finish what is under way. Raises SettingsError."""
    senders = notice_senders(settings, runtime.clock)
    if not await _accounted(runtime, settings, stop):
        return
    async with asyncio.TaskGroup() as group:
        group.create_task(_operate(runtime, settings, stop), name="pod operations")
        group.create_task(notify(runtime, settings.notices, senders, stop), name="notices")
        group.create_task(lead(runtime, settings, stop), name="leadership")


async def _accounted(runtime: Runtime, settings: ProcessorSettings, stop: asyncio.Event) -> bool:
    """List once the pods that the ledger does not know, before any is made; false when `stop` came first.

    Messages in the queues of a ledger from a backup may ask for pods on GPUs that are held.
    """
    comparison = resync_of(runtime, settings)
    seen = False

    async def once() -> None:
        nonlocal seen
        log_differences(await comparison.account())
        seen = True

    await runtime.loops["first_look"].keep(once, stop=stop)
    return seen and not stop.is_set()


async def _job_access(runtime: Runtime, settings: ProcessorSettings, stop: asyncio.Event) -> JobAccess | None:
    """How programs in jobs reach the server; None where the key of their tokens can't be read, or at `stop`."""
    access: JobAccess | None = None

    async def load() -> None:
        nonlocal access
        try:
            async with runtime.uow() as uow:
                access = JobAccess(await job_token_key(uow, runtime.clock.now()), settings.job_server)
        except ServerKeyUnreadableError as error:
            _log.error("jobs_get_no_token", error=str(error))

    await runtime.loops["job_tokens"].keep(load, stop=stop)
    return access


async def _operate(runtime: Runtime, settings: ProcessorSettings, stop: asyncio.Event) -> None:
    rules = LaunchRules(
        settings.end_grace,
        BELT,
        settings.log_keep_lines,
        max_starts=settings.max_starts,
        late=settings.unanswered_create_lasts,
        access=await _job_access(runtime, settings, stop),
    )
    last_output = LastOutput(runtime.uow, runtime.cluster, runtime.clock, settings.log_keep_lines)

    async def handle(message: QueuedMessage) -> None:
        try:
            operation = PodOperation.model_validate(message.body)
        except pydantic.ValidationError as error:
            raise ValueError(f"not a PodOperation: {error}") from error
        # All lines of this message name the job, and so its trace: also those of the cluster and the queue.
        structlog.contextvars.bind_contextvars(job=operation.id)
        await perform(runtime.uow, runtime.cluster, operation, runtime.clock, rules, runtime.traces, last_output)

    async def handle_together(messages: Sequence[QueuedMessage]) -> Sequence[QueuedMessage]:
        operations: dict[int, PodOperation] = {}
        for message in messages:
            with suppress(pydantic.ValidationError):  # reported when it is handled by itself
                operations[message.id] = PodOperation.model_validate(message.body)
        created = await create_together(
            runtime.uow, runtime.cluster, [*operations.values()], runtime.clock, rules, runtime.traces
        )
        return [message for message in messages if message.id in operations and operations[message.id].id in created]

    consumer = Consumer(
        runtime.uow,
        QueueName.POD_OPERATIONS,
        handle,
        ConsumerRules(
            parallel=settings.pod_operations_parallel,
            visibility=timedelta(seconds=settings.visibility_s),
            max_reads=settings.max_reads,
            sweep=timedelta(seconds=settings.sweep_s),
        ),
        TokenBucket(settings.pod_operations_per_s, burst=settings.pod_operations_parallel),
        handle_together,
        runtime.loops,
    )
    try:
        await consumer.run(runtime.wakeups, Channel.POD_OPERATIONS, stop)
    finally:
        await last_output.close()
