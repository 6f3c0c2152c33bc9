"""The processor's parts: every processor carries out pod operations; one of them leads (plans and follows pods)."""

import asyncio
from datetime import timedelta

import pydantic

from reservation_core.contracts import PodOperation
from reservation_core.ports.queues import QueuedMessage, QueueName
from reservation_core.ports.transactions import UnitOfWork
from reservation_core.ports.wakeups import Channel
from reservation_core.runtime.consumer import Consumer, ConsumerRules
from reservation_core.runtime.garbage import calm_garbage_collector
from reservation_core.runtime.pacing import TokenBucket
from reservation_core.runtime.settings import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.launch import LaunchRules, perform
from reservation_processor.belts import BELT
from reservation_processor.leading import lead


async def run(runtime: Runtime, settings: ProcessorSettings, stop: asyncio.Event) -> None:
    """Work until `stop` is set; then finish what is under way. Any error that can't be handled ends it."""
    calm_garbage_collector()
    async with asyncio.TaskGroup() as group:
        group.create_task(_operate(runtime, settings, stop), name="pod operations")
        group.create_task(lead(runtime, settings, stop), name="leadership")


async def _operate(runtime: Runtime, settings: ProcessorSettings, stop: asyncio.Event) -> None:
    rules = LaunchRules(settings.end_grace, BELT, settings.log_keep_lines)

    async def handle(uow: UnitOfWork, message: QueuedMessage) -> None:
        try:
            operation = PodOperation.model_validate(message.body)
        except pydantic.ValidationError as error:
            raise ValueError(f"not a PodOperation: {error}") from error
        await perform(uow, runtime.cluster, operation, runtime.clock, rules)

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
    )
    await consumer.run(runtime.wakeups, Channel.POD_OPERATIONS, stop)
