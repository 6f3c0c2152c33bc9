"""The kinds of events in the audit log, by what the event is about.

Stable: clients, webhooks and the table `notice_events` match on them. The log also holds kinds of older versions, so a
stored kind is text, and `known_kind` reads it.
"""

from enum import StrEnum
from typing import TypeVar, get_args

from reservation_core.domain.similar_names import similar


class JobEventKind(StrEnum):
    """Events of a job."""

    SUBMITTED = "submitted"
    ALLOCATED = "allocated"
    ADOPTED = "adopted"
    STARTED = "started"
    STARTED_LATE = "started_late"
    START_DELAYED = "start_delayed"
    START_FAILED = "start_failed"
    START_TIMED_OUT = "start_timed_out"
    START_PROMISE_MISSED = "start_promise_missed"
    REQUEUED = "requeued"
    DEPENDENCIES_MET = "dependencies_met"
    RETRIED = "retried"
    ELEMENTS_CHANGED = "elements_changed"
    EXTENDED = "extended"
    CANCEL_REQUESTED = "cancel_requested"
    END_WARNING = "end_warning"
    END_REACHED = "end_reached"
    IDLE_WARNING = "idle_warning"
    IDLE_WARNING_OVER = "idle_warning_over"
    IDLE_RELEASED = "idle_released"
    KEPT = "kept"
    END_SIGNALLED = "end_signalled"
    PREEMPTION_ASKED = "preemption_asked"
    PREEMPTED = "preempted"
    BOOKING_OVER = "booking_over"
    MAINTENANCE_AFFECTS = "maintenance_affects"
    NODE_FENCED = "node_fenced"
    POD_LOST = "pod_lost"
    FINISHED = "finished"
    EXITED = "exited"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    LOG_NOT_KEPT = "log_not_kept"
    ENTERED = "entered"
    SHARED = "shared"
    UNSHARED = "unshared"
    GPU_QUARANTINED = "gpu_of_job_quarantined"


class BookingEventKind(StrEnum):
    """Events of a booking."""

    WAITLISTED = "booking_waitlisted"
    OFFERED = "booking_offered"
    CONFIRMED = "booking_confirmed"
    CHANGED = "booking_changed"
    MOVED = "booking_moved"
    STARTING_SOON = "booking_starting_soon"
    STARTED = "booking_started"
    START_PROMISE_MISSED = "start_promise_missed"
    WORKLOAD_REFUSED = "workload_refused"
    WORKLOAD_FAILED = "workload_failed"
    NO_SHOW_WARNING = "no_show_warning"
    MAINTENANCE_AFFECTS = "maintenance_affects"
    ENDING_SOON = "booking_ending_soon"
    ENDED = "booking_ended"
    RELEASED = "booking_released"
    CANCELLED = "booking_cancelled"
    OFFER_EXPIRED = "booking_offer_expired"
    WAIT_EXPIRED = "booking_wait_expired"


class PodEventKind(StrEnum):
    """Events of pods that users create themselves, in a booking or without one."""

    ADMITTED = "pod_admitted"
    ENDED = "pod_ended"
    END_WARNED = "pod_end_warned"
    END_ASKED = "pod_end_asked"
    END_REFUSED = "pod_end_refused"
    DISPLACED = "pod_displaced"


class NodeEventKind(StrEnum):
    """Events of nodes, GPUs, maintenance windows and unknown pods."""

    NODE_ADDED = "node_added"
    NODE_CHANGED = "node_changed"
    NODE_RETURNED = "node_returned"
    NODE_REMOVED = "node_removed"
    NODE_CORDONED = "node_cordoned"
    NODE_UNCORDONED = "node_uncordoned"
    NODE_FENCED = "node_fenced"
    NODE_UNFENCED = "node_unfenced"
    GPU_ADDED = "gpu_added"
    GPU_CHANGED = "gpu_changed"
    GPU_QUARANTINED = "gpu_quarantined"
    GPU_RELEASED = "gpu_released"
    GPU_SLOW = "gpu_slow"
    GPU_SLOW_OVER = "gpu_slow_over"
    MAINTENANCE_PLANNED = "maintenance_planned"
    MAINTENANCE_CARDS_JOINED = "maintenance_cards_joined"
    MAINTENANCE_STARTED = "maintenance_started"
    MAINTENANCE_ENDED = "maintenance_ended"
    MAINTENANCE_CANCELLED = "maintenance_cancelled"
    UNKNOWN_POD = "unknown_pod"
    UNKNOWN_POD_END_REQUESTED = "unknown_pod_end_requested"
    UNKNOWN_POD_OVER = "unknown_pod_over"
    ORPHAN_REMOVED = "orphan_removed"


class PeopleEventKind(StrEnum):
    """Events of users, tokens, sessions, SSH keys, secrets, disks, projects and notification targets."""

    USER_CREATED = "user_created"
    USER_DISABLED = "user_disabled"
    USER_ENABLED = "user_enabled"
    SIGNED_IN = "signed_in"
    SESSION_BEGUN = "session_begun"
    TOKEN_CREATED = "token_created"  # noqa: S105 - no secret
    TOKEN_RENEWED = "token_renewed"  # noqa: S105 - no secret
    TOKEN_REVOKED = "token_revoked"  # noqa: S105 - no secret
    TOKENS_REVOKED = "tokens_revoked"
    CALENDAR_FEED_MADE = "calendar_feed_made"
    CALENDAR_FEED_REMOVED = "calendar_feed_removed"
    SSH_KEY_ADDED = "ssh_key_added"
    SSH_KEY_REMOVED = "ssh_key_removed"
    SSH_CERTIFICATE_ISSUED = "ssh_certificate_issued"
    SECRET_SET = "secret_set"  # noqa: S105 - no secret
    SECRET_DELETED = "secret_deleted"  # noqa: S105 - no secret
    DISK_CREATED = "disk_created"
    DISK_CHANGED = "disk_changed"
    DISK_HANDED_OVER = "disk_handed_over"
    DISK_DELETED = "disk_deleted"
    DISK_RESTORED = "disk_restored"
    DISK_REMOVED = "disk_removed"
    SNAPSHOT_TAKEN = "snapshot_taken"
    SNAPSHOT_DELETED = "snapshot_deleted"
    NOTICE_TARGET_CREATED = "notice_target_created"
    NOTICE_TARGET_REMOVED = "notice_target_removed"
    NOTICE_PREFERENCES_CHANGED = "notice_preferences_changed"
    PROJECT_CREATED = "project_created"
    PROJECT_DELETED = "project_deleted"
    PROJECT_DIGEST = "project_digest"
    PROJECT_MEMBER_ADDED = "project_member_added"
    PROJECT_MEMBER_REMOVED = "project_member_removed"


class SystemEventKind(StrEnum):
    """Events of the policy, the queues and the clock."""

    POLICY_CHANGED = "policy_changed"
    DEAD_LETTERS_REDRIVEN = "dead_letters_redriven"
    CLOCK_STEPPED = "clock_stepped"


EventKind = JobEventKind | BookingEventKind | PodEventKind | NodeEventKind | PeopleEventKind | SystemEventKind
_NAMED = 8
K = TypeVar("K", JobEventKind, BookingEventKind, PodEventKind, NodeEventKind, PeopleEventKind, SystemEventKind)


def known_kind(kinds: type[K], kind: str) -> K | None:
    """A stored kind as one of `kinds`; None for another subject's, or another version's."""
    try:
        return kinds(kind)
    except ValueError:
        return None


def all_kinds() -> list[str]:
    """The names of all kinds of this version, in alphabetical order."""
    return sorted({member.value for kinds in get_args(EventKind) for member in kinds})


def near_kinds(kind: str) -> list[str]:
    """The kinds that an unknown one probably means: those that contain it, else the one that is most like it."""
    known = all_kinds()
    return [one for one in known if kind in one] or [one for one in [similar(kind, known)] if one is not None]


def unknown_kind_words(kind: str) -> str:
    """The answer to a filter by a kind that this version does not have."""
    near = near_kinds(kind)
    meant = f" Did you mean {', '.join(near[:_NAMED])}{' …' if len(near) > _NAMED else ''}?" if near else ""
    return f"There are no events of the kind {kind!r}.{meant}"
