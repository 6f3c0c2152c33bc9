"""Whether a notification reaches its user, and what to tell a user whom it does not reach."""

from collections.abc import Collection, Iterable

from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind, TargetStatus

_SENT_TO = frozenset({TargetStatus.READY, TargetStatus.FAILING})


def kind_at_turn(*, auto_accept: bool) -> NoticeKind:
    """The notification of a booking on the waitlist whose GPUs become free."""
    return NoticeKind.CONFIRMED if auto_accept else NoticeKind.OFFERED


def why_not_notified(
    chosen: Collection[NoticeChannel],
    unavailable: Collection[NoticeChannel],
    targets: Iterable[tuple[NoticeChannel, TargetStatus]],
) -> str | None:
    """Why notifications do not reach a user, or None if they do.

    `chosen`: the user's channels for the kind; `unavailable`: channels by which the server can't send; `targets`: the
    user's addresses.
    """
    addresses = list(targets)
    if not addresses:
        return "You are not notified of it: you have no notification address."
    if any(channel in chosen and channel not in unavailable and status in _SENT_TO for channel, status in addresses):
        return None
    return "You are not notified of it: none of your notification addresses gets this kind of event."
