"""Statuses, kinds, roles, scopes and reasons, as messages and rows name them. Only enums: most commands load them."""

from enum import StrEnum


class JobStatus(StrEnum):
    """Where a reservation stands in its life; only `lifecycle.transition` changes it."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


FINAL_STATUSES = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.EXPIRED})
LIVE_STATUSES = frozenset({JobStatus.STARTING, JobStatus.RUNNING, JobStatus.ENDING})


class BookingStatus(StrEnum):
    """Where a booking stands: on the waitlist, offered, confirmed, in its slot, or over."""

    WAITING = "waiting"
    OFFERED = "offered"
    CONFIRMED = "confirmed"
    ACTIVE = "active"
    ENDED = "ended"
    RELEASED = "released"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class ReservationKind(StrEnum):
    """A job waits for GPUs and then runs; a booking holds GPUs for a slot; maintenance keeps GPUs from everybody."""

    JOB = "job"
    BOOKING = "booking"
    MAINTENANCE = "maintenance"


class Role(StrEnum):
    """What a user may do: `admin` sees and changes everything, `service` only asks who may use GPUs now."""

    USER = "user"
    ADMIN = "admin"
    SERVICE = "service"


class SignInMethod(StrEnum):
    """How an identity is proved."""

    AWS = "aws"
    OIDC = "oidc"
    KUBERNETES = "kubernetes"


class TokenScope(StrEnum):
    """What a token may be used for, within its user's rights."""

    READ = "read"
    SUBMIT = "submit"
    BOOK = "book"
    SESSIONS = "sessions"
    ADMIN = "admin"


class RequestVerdict(StrEnum):
    """What becomes of a request: it starts at once, is accepted and starts later, or is refused."""

    STARTS_NOW = "starts_now"
    ACCEPTED = "accepted"
    REFUSED = "refused"


class GpuState(StrEnum):
    """The state of a GPU for users: its condition, or else whether it is held."""

    FREE = "free"
    HELD = "held"
    QUARANTINED = "quarantined"
    FOREIGN = "foreign"
    LOST = "lost"
    MAINTENANCE = "maintenance"


class ReasonCode(StrEnum):
    """Why a reservation has its status. Stable: clients and tests match on it."""

    SUBMITTED = "submitted"
    WAITING_FOR_GPUS = "waiting_for_gpus"
    BEHIND_IN_LINE = "behind_in_line"
    NO_SUCH_TYPE = "no_such_type"
    LARGER_THAN_ANY_NODE = "larger_than_any_node"
    NOT_ENOUGH_NODES = "not_enough_nodes"
    NODE_UNAVAILABLE = "node_unavailable"
    REQUEUED = "requeued"
    QUOTA_REACHED = "quota_reached"
    WAITING_FOR_JOBS = "waiting_for_jobs"
    # holding GPUs
    ALLOCATED = "allocated"
    RUNNING = "running"
    # ending and final
    COMPLETED = "completed"
    COMMAND_FAILED = "command_failed"
    KILLED_BY_SIGNAL = "killed_by_signal"
    OUT_OF_MEMORY = "out_of_memory"
    CANCELLED_BY_USER = "cancelled_by_user"
    CANCELLED_BY_ADMIN = "cancelled_by_admin"
    DURATION_REACHED = "duration_reached"
    START_FAILED = "start_failed"
    START_TIMEOUT = "start_timeout"
    UNSCHEDULABLE = "unschedulable"
    IMAGE_PULL_FAILED = "image_pull_failed"
    POD_LOST = "pod_lost"
    POD_DELETED = "pod_deleted"
    EVICTED = "evicted"
    NODE_LOST = "node_lost"
    MAINTENANCE = "maintenance"
    BOOKING_OVER = "booking_over"
    INACTIVE = "inactive"
    DEPENDENCY_FAILED = "dependency_failed"
    IDLE = "idle"
    ELEMENTS_FAILED = "elements_failed"
    ELEMENTS_CANCELLED = "elements_cancelled"
    PREEMPTED = "preempted"


class BookingReason(StrEnum):
    """Why a booking has its status. Stable: clients and tests match on it."""

    WAITING_FOR_SLOT = "waiting_for_slot"
    OFFERED = "offered"
    BOOKED = "booked"
    MOVED = "moved"
    IN_SLOT = "in_slot"
    WORKLOAD_REFUSED = "workload_refused"
    SLOT_OVER = "slot_over"
    NOT_USED = "not_used"
    WAITED_IN_VAIN = "waited_in_vain"
    OFFER_RAN_OUT = "offer_ran_out"
    DECLINED = "declined"
    CANCELLED_BY_USER = "cancelled_by_user"
    CANCELLED_BY_ADMIN = "cancelled_by_admin"
    MAINTENANCE = "maintenance"
