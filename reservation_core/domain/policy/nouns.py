"""The nouns of policies: rules, orders of the queue, and what reports are by. Only enums."""

from enum import StrEnum


class RuleName(StrEnum):
    """The fields of a rule. Stable: policy files, the API and `broken_rules` name them."""

    MAX_GPUS = "max_gpus"
    MAX_GPU_HOURS_PER_WEEK = "max_gpu_hours_per_week"
    MAX_DURATION = "max_duration"
    MAX_ADVANCE = "max_advance"
    MIN_NOTICE = "min_notice"
    MAX_OPEN_BOOKINGS = "max_open_bookings"
    COOLDOWN = "cooldown"
    PRIORITY = "priority"
    NO_SHOW_GRACE = "no_show_grace"
    INACTIVITY = "inactivity"
    COST_PER_GPU_HOUR = "cost_per_gpu_hour"
    ORDER = "order"
    IDLE = "idle"


LIFTABLE = frozenset(
    {
        RuleName.MAX_GPUS,
        RuleName.MAX_GPU_HOURS_PER_WEEK,
        RuleName.MAX_DURATION,
        RuleName.MIN_NOTICE,
        RuleName.MAX_OPEN_BOOKINGS,
        RuleName.COOLDOWN,
    }
)
"""The fields that an exception for bookings that start soon may lift."""

QUOTAS = (RuleName.MAX_GPUS, RuleName.MAX_GPU_HOURS_PER_WEEK, RuleName.MAX_OPEN_BOOKINGS)
"""The fields that count what is already held: for a project, by all its members."""


class QueueOrder(StrEnum):
    """The order of waiting jobs of equal priority and share: by the GPU-time that they ask for, or by arrival."""

    AREA = "area"
    ARRIVAL = "arrival"


class UsageBy(StrEnum):
    """What each line of a report is about."""

    USER = "user"
    PROJECT = "project"
    GPU_TYPE = "gpu_type"
