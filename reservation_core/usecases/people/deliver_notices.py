"""Deliver notifications at least once, with a bounded number of retries after growing pauses.

A slow or silent target delays no other one: a target gets one notification at a time, and after a failure its other
notifications wait without an attempt. No transaction is open during a delivery.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from weakref import WeakValueDictionary

import pydantic

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.contracts.notices import NoticeMessage
from reservation_core.domain.notices.kinds import NO_MAIL
from reservation_core.domain.notices.messages import Notice, trial_notice, verification_notice
from reservation_core.domain.notices.words import notice_of
from reservation_core.ports.clock import Clock
from reservation_core.ports.people.notices import Destination, NotDeliveredError, NoticeSenders, UndeliverableError
from reservation_core.ports.queues import MessageNotDueError, QueuedMessage, RetryLaterError, UnrecoverableMessageError

_LONGEST_REST = timedelta(seconds=60)
_SOON = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """At most `tries` attempts, with pauses from `first_pause` on that grow by a factor of four.

    A notification older than `oldest` is dropped.
    """

    tries: int
    first_pause: timedelta
    longest_pause: timedelta
    oldest: timedelta

    def pause(self, tried: int) -> timedelta:
        """The pause after failure number `tried`."""
        return min(self.first_pause * (1 << 2 * min(tried - 1, 12)), self.longest_pause)


@dataclass(frozen=True, slots=True)
class _Letter:
    to: Destination
    notice: Notice


class Deliveries:
    """Handles the messages of the queue `notifications`. `stopping`: begin no more deliveries."""

    def __init__(
        self,
        uow_factory: UnitOfWorkFactory,
        senders: NoticeSenders,
        clock: Clock,
        rules: DeliveryRules,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._uow = uow_factory
        self._senders = senders
        self._clock = clock
        self._rules = rules
        self._stopping = stopping
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._resting: dict[str, datetime] = {}

    async def handle(self, message: QueuedMessage) -> None:
        """Deliver a message's notification, unless it is no longer wanted.

        Raises MessageNotDueError, RetryLaterError, UnrecoverableMessageError, DatabaseUnavailableError.
        """
        try:
            body = NoticeMessage.model_validate(message.body)
        except pydantic.ValidationError as error:
            raise UnrecoverableMessageError(f"not a NoticeMessage: {error}") from error
        turn = self._turns.setdefault(body.target, asyncio.Lock())
        async with turn:
            if self._stopping():
                raise MessageNotDueError("this process is stopping", _SOON)
            await self._deliver(message, body)

    async def _deliver(self, message: QueuedMessage, body: NoticeMessage) -> None:
        now = self._clock.now()
        until = self._resting.get(body.target)
        if until is not None and until > now:
            raise MessageNotDueError(f"{body.target} failed a moment ago", until - now)
        async with self._uow() as uow:
            letter = await self._letter(uow, body)
        if letter is None:
            return
        try:
            await self._send(letter)
        except UndeliverableError as error:
            await self._note_failed(body.target, str(error), lost=True)
            raise UnrecoverableMessageError(f"{body.target}: {error}") from error
        except NotDeliveredError as error:
            await self._failed_for_now(message, body.target, str(error))
        self._resting.pop(body.target, None)
        async with self._uow() as uow:
            await uow.notices.store_delivery(body.target, self._clock.now())

    async def _send(self, letter: _Letter) -> None:
        sender = self._senders.get(letter.to.target.channel)
        if sender is None:
            raise UndeliverableError(NO_MAIL)  # the other channels need no setting
        await sender.send(letter.to, letter.notice)

    async def _letter(self, uow: UnitOfWork, body: NoticeMessage) -> _Letter | None:
        """The notification and its destination; None when the target is gone or no longer wants it."""
        to = await uow.notices.destination(body.target)
        if to is None:
            return None
        user, now = to.target.user, self._clock.now()
        match body.kind:
            case "event":
                if not to.target.told or body.event is None:
                    return None
                occasion = await uow.notices.occasion(body.event)
                if occasion is None:
                    raise UnrecoverableMessageError(
                        f"nobody is notified of an event {body.event}, or it is unknown here"
                    )
                occurrence, about = occasion
                delivery = f"evt-{body.event}-{body.target}"
                return _Letter(to, notice_of(occurrence, about, user=user, delivery=delivery))
            case "test":
                return _Letter(to, trial_notice(user=user, delivery=body.delivery or "", at=now))
            case "verification":
                if to.code is None:
                    return None
                delivery = body.delivery or ""
                return _Letter(
                    to, verification_notice(to.code, target=body.target, user=user, delivery=delivery, at=now)
                )

    async def _failed_for_now(self, message: QueuedMessage, target: str, why: str) -> None:
        now = self._clock.now()
        pause = self._rules.pause(message.read_count)
        self._resting = {name: until for name, until in self._resting.items() if until > now}
        self._resting[target] = now + min(pause, _LONGEST_REST)
        given_up = message.read_count >= self._rules.tries or now - message.enqueued_at >= self._rules.oldest
        await self._note_failed(target, why, lost=given_up)
        if given_up:
            raise UnrecoverableMessageError(f"{target}, try {message.read_count}: {why}")
        raise RetryLaterError(f"{target}: {why}", pause)

    async def _note_failed(self, target: str, why: str, *, lost: bool) -> None:
        async with self._uow() as uow:
            await uow.notices.store_failure(target, why, self._clock.now(), lost=lost)
