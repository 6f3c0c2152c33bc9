"""What rules and kinds of notifications mean, for the help of commands and the generated reference pages."""

from collections.abc import Mapping

from reservation_core.domain.notices import NoticeKind
from reservation_core.domain.policy.limits import RuleName

RULES: dict[RuleName, str] = {
    RuleName.MAX_GPUS: "GPUs held at the same time.",
    RuleName.MAX_GPU_HOURS_PER_WEEK: "GPU-hours in a week that begins on Monday, 00:00 UTC.",
    RuleName.MAX_DURATION: "The longest job or booking.",
    RuleName.MAX_ADVANCE: "How long before its start a booking may be made.",
    RuleName.MIN_NOTICE: "How long before its start a booking must be made.",
    RuleName.MAX_OPEN_BOOKINGS: "Bookings that are not over.",
    RuleName.COOLDOWN: "Time between a booking's end and the start of the user's next booking of that GPU type.",
    RuleName.PRIORITY: "The highest priority that a job may have.",
    RuleName.NO_SHOW_GRACE: "How long a booking stays unused before it is released.",
    RuleName.INACTIVITY: "How long a session may stay without a connection before it is ended.",
    RuleName.COST_PER_GPU_HOUR: "What a GPU-hour costs, such as `2.50 EUR`. Shown with usage; limits nothing.",
}

NOTIFICATIONS: dict[NoticeKind, str] = {
    NoticeKind.CONFIRMED: "A booking is confirmed.",
    NoticeKind.MOVED: "A booking has another time or other GPUs.",
    NoticeKind.CANCELLED: "A job or booking is cancelled.",
    NoticeKind.WAITLISTED: "A booking is put on the waitlist.",
    NoticeKind.OFFERED: "A slot is offered to a booking on the waitlist.",
    NoticeKind.OFFER_EXPIRED: "An offer expired without an answer.",
    NoticeKind.STARTING_SOON: "A booking starts soon.",
    NoticeKind.STARTED: "A job or booking started.",
    NoticeKind.ENDING_SOON: "A job or booking ends soon.",
    NoticeKind.ENDED: "A job or booking ended.",
    NoticeKind.NO_SHOW: "Nothing uses a booking; it is released soon.",
    NoticeKind.RELEASED: "A booking was released because nothing used it.",
    NoticeKind.FAILED: "A job failed, or a booking could not be kept.",
    NoticeKind.PROMISE_MISSED: "A job did not start at its promised start.",
    NoticeKind.MAINTENANCE: "A maintenance window affects a job or booking.",
}


def as_epilog(title: str, meanings: Mapping[RuleName, str] | Mapping[NoticeKind, str]) -> str:
    """A table of meanings, a line each, to stand below a command's help."""
    return "\n\n".join([title, *(f"  {name}: {meaning}" for name, meaning in meanings.items())])
