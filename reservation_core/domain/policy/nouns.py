"""The nouns of policies: rules and their scopes, orders of the queue, and what reports are by."""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a rule: `user` or `project` (never both) or everybody; one `gpu_type` or all."""

    user: str | None = None
    project: str | None = None
    gpu_type: str | None = None

    def __post_init__(self) -> None:
        if self.user is not None and self.project is not None:
            raise ValueError("a scope names a user or a project, not both")

    def __str__(self) -> str:
        parts = [
            f"{word}:{value}"
            for word, value in (("user", self.user), ("project", self.project), ("gpu_type", self.gpu_type))
            if value is not None
        ]
        return ",".join(parts) or "default"

    @classmethod
    def parse(cls, text: str) -> "Scope":
        """Read `str(scope)` back: `default`, or `user:`, `project:` and `gpu_type:` with a name, joined by commas.

        Raises ValueError for a malformed scope; names are not checked.
        """
        if text == "default":
            return cls()
        parts: dict[str, str] = {}
        for part in text.split(","):
            word, _, name = part.partition(":")
            if word not in ("user", "project", "gpu_type") or word in parts or not name:
                raise ValueError("write `default`, or like `user:ann`, `project:lab,gpu_type:h100`, `gpu_type:h100`")
            parts[word] = name
        return cls(**parts)

    @property
    def specificity(self) -> tuple[bool, bool, bool]:
        """Greater is more specific."""
        return (self.user is not None, self.project is not None, self.gpu_type is not None)

    @property
    def has_order(self) -> bool:
        """Whether the rules of this scope may set the order of waiting jobs: all of them stand in one queue."""
        return self.user is None and self.gpu_type is None
