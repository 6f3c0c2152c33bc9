"""Notification targets: create, test, verify and remove them. Administrators see that they exist."""

from datetime import datetime, timedelta
from urllib.parse import urlsplit

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.notices import NoticeMessage
from reservation_core.domain.errors import LimitExceededError, NotFoundError, UnreachableTargetError, WrongCodeError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.network.egress import egress_rules, refused_by_name
from reservation_core.domain.notices.kinds import NO_MAIL, NoticeChannel, TargetStatus
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.people.notices import NewTarget, NoticeTarget
from reservation_core.ports.queues import QueueName
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.jobs.visible_jobs import visible_user
from reservation_core.usecases.people.users import list_visible

MOST_TARGETS = 10
MOST_TARGETS_A_DAY = 30
BETWEEN_TESTS = timedelta(minutes=1)


async def create(
    uow: UnitOfWork,
    principal: Principal,
    *,
    channel: NoticeChannel,
    address: str,
    name: str | None,
    ids: IdSource,
    now: datetime,
) -> tuple[NoticeTarget, str | None]:
    """Create a target; returns it and, for a webhook, its signing secret.

    An e-mail address gets no notifications until its owner has verified it. Raises LimitExceededError,
    UnreachableTargetError.
    """
    await _check_reachable(uow, channel, address)
    secret = ids.new_secret("whsec") if channel is NoticeChannel.WEBHOOK else None
    code = ids.new_id("code") if channel is NoticeChannel.EMAIL else None
    new = NewTarget(ids.new_id("ntg"), principal.user_id, channel, name, address, secret, code)
    target = await uow.notices.add_target(new, most=MOST_TARGETS, most_a_day=MOST_TARGETS_A_DAY, now=now)
    if code is not None:
        await _send(uow, "verification", target, ids.new_id("ver"))
    await uow.events.append(
        actor=principal.user,
        kind=PeopleEventKind.NOTICE_TARGET_CREATED,
        at=now,
        subject=target.id,
        data={"channel": channel.value},
    )
    return target, secret


async def page(
    uow: UnitOfWork, principal: Principal, *, user: str | None, after: str | None, limit: int
) -> list[NoticeTarget]:
    """The caller's targets; for administrators those of all users, or of `user`."""
    return await list_visible(uow, principal, user, lambda owner: uow.notices.targets(owner, after=after, limit=limit))


async def remove(uow: UnitOfWork, principal: Principal, target_id: str, now: datetime) -> NoticeTarget:
    """Remove the caller's target, or as administrator anyone's. Raises NotFoundError."""
    target = await uow.notices.remove_target(target_id, visible_user(principal), now)
    if target is None:
        raise _no_such_target(target_id)
    await uow.events.append(actor=principal.user, kind=PeopleEventKind.NOTICE_TARGET_REMOVED, at=now, subject=target.id)
    return target


async def verify(uow: UnitOfWork, principal: Principal, target_id: str, code: str, now: datetime) -> NoticeTarget:
    """Verify the caller's e-mail address. Raises NotFoundError, WrongCodeError."""
    target = await _own(uow, principal, target_id)
    if target.status is not TargetStatus.UNVERIFIED:
        return target
    if not await uow.notices.verify_target(target_id, principal.user_id, code.strip(), now):
        raise WrongCodeError(
            f"That is not the code that was mailed for {target_id}. `gpu-dev notify test {target_id}` mails it again."
        )
    return await _own(uow, principal, target_id)


async def try_out(uow: UnitOfWork, principal: Principal, target_id: str, ids: IdSource, now: datetime) -> str:
    """Send a test to the caller's target, or the code again to an unverified address; returns the delivery's id.

    Raises NotFoundError, UnreachableTargetError, and LimitExceededError within a minute of the last one.
    """
    target = await _own(uow, principal, target_id)
    await _check_reachable(uow, target.channel, target.address)
    if not await uow.notices.claim_test(target_id, now, now - BETWEEN_TESTS):
        raise LimitExceededError(f"{target_id} was tried less than a minute ago. Wait a moment and send it again.")
    if target.status is TargetStatus.UNVERIFIED:
        delivery = ids.new_id("ver")
        await _send(uow, "verification", target, delivery)
    else:
        delivery = ids.new_id("tst")
        await _send(uow, "test", target, delivery)
    return delivery


async def unavailable_channels(uow: UnitOfWork) -> list[NoticeChannel]:
    """The channels by which the server can't send, as far as is known: mail without a mail server."""
    routes = await uow.notices.routes()
    return [] if routes is None or routes.mail else [NoticeChannel.EMAIL]


async def _check_reachable(uow: UnitOfWork, channel: NoticeChannel, address: str) -> None:
    """Raise UnreachableTargetError where no notification could arrive, as far as that shows without a connection."""
    if channel is NoticeChannel.EMAIL:
        if channel in await unavailable_channels(uow):
            raise UnreachableTargetError(NO_MAIL)
        return
    routes = await uow.notices.routes()
    if routes is None:
        return
    parts = urlsplit(address)
    rules = egress_rules(routes.allow, public=routes.public)
    why = refused_by_name(rules, host=parts.hostname, tls=parts.scheme == "https") if parts.hostname else None
    if why is not None:
        raise UnreachableTargetError(why)


async def _own(uow: UnitOfWork, principal: Principal, target_id: str) -> NoticeTarget:
    """The caller's own target: even administrators neither verify nor test targets of other users."""
    target = await uow.notices.target(target_id, principal.user_id)
    if target is None:
        raise _no_such_target(target_id)
    return target


async def _send(uow: UnitOfWork, kind: str, target: NoticeTarget, delivery: str) -> None:
    message = NoticeMessage.model_validate({"kind": kind, "target": target.id, "delivery": delivery})
    await uow.queue.send(QueueName.NOTIFICATIONS, [message.model_dump(exclude_none=True)])
    uow.wake(Channel.NOTIFICATIONS)


def _no_such_target(target_id: str) -> NotFoundError:
    return NotFoundError(f"You have no notification address {target_id}. `gpu-dev notify targets` shows yours.")
