"""Notifications: every processor delivers notices, whether it leads or not."""

import asyncio
from datetime import timedelta

from reservation_core.domain.notices.kinds import NoticeChannel
from reservation_core.ports.people.notices import NoticeRoutes, NoticeSenders
from reservation_core.ports.queues import QueueName
from reservation_core.ports.wakeups import Channel
from reservation_core.runtime.loops.consumer import Consumer, ConsumerRules
from reservation_core.runtime.loops.token_bucket import TokenBucket
from reservation_core.runtime.settings.notices import NoticeSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.people.deliver_notices import Deliveries, DeliveryRules


async def notify(runtime: Runtime, settings: NoticeSettings, senders: NoticeSenders, stop: asyncio.Event) -> None:
    """Say where notifications can go, and deliver until `stop`; finish what is being sent then."""
    routes = NoticeRoutes(NoticeChannel.EMAIL in senders, settings.allow, settings.public)

    async def say_where() -> None:
        async with runtime.uow() as uow:
            await uow.notices.set_routes(routes)

    rules = DeliveryRules(
        tries=settings.tries,
        first_pause=timedelta(seconds=settings.first_pause_s),
        longest_pause=timedelta(seconds=settings.longest_pause_s),
        oldest=timedelta(seconds=settings.oldest_s),
    )
    deliveries = Deliveries(runtime.uow, senders, runtime.clock, rules, stop.is_set)
    consumer = Consumer(
        runtime.uow,
        QueueName.NOTIFICATIONS,
        deliveries.handle,
        ConsumerRules(
            parallel=settings.parallel,
            visibility=timedelta(seconds=settings.visibility_s),
            max_reads=settings.tries,
            sweep=timedelta(seconds=settings.sweep_s),
        ),
        TokenBucket(settings.per_s, burst=settings.parallel),
        loops=runtime.loops,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(runtime.loops["notice_routes"].keep(say_where, stop=stop), name="notice routes")
        group.create_task(consumer.run(runtime.wakeups, Channel.NOTIFICATIONS, stop), name="deliveries")
