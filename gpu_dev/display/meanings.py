"""What rules mean, for the help of commands and the generated reference pages."""

from collections.abc import Mapping

from reservation_core.domain.notices.kinds import NoticeKind
from reservation_core.domain.policy.nouns import RuleName

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
    RuleName.ORDER: "The order of waiting jobs of a project, or of all: `area` (less GPU-time first) or `arrival`.",
    RuleName.IDLE: "When jobs are warned that their GPUs are idle, and ended: `10%,1h,30m,release`.",
}


def as_epilog(title: str, meanings: Mapping[RuleName, str] | Mapping[NoticeKind, str]) -> str:
    """A table of meanings, a line each, to stand below a command's help."""
    return "\n\n".join([title, *(f"  {name}: {meaning}" for name, meaning in meanings.items())])
