"""Disabled users, as the wire shows them."""

from api_service.presenting import jobs_and_nodes
from reservation_core.contracts.users import BelongingOut, UserDisabled
from reservation_core.domain.model import BookingStatus, JobStatus, ReservationKind
from reservation_core.ports.people.identities import UserRecord
from reservation_core.usecases.people.disable_user import StillHeld


def disabled(record: UserRecord, cancelled: int, left: StillHeld) -> UserDisabled:
    """A user who is disabled, and what they still have."""
    return UserDisabled(
        **jobs_and_nodes.user(record).model_dump(),
        cancelled=cancelled,
        left=[
            BelongingOut(
                id=each.id,
                kind="job" if each.kind is ReservationKind.JOB else "booking",
                status=JobStatus(each.status) if each.kind is ReservationKind.JOB else BookingStatus(each.status),
                name=each.name,
                starts_at=each.starts_at,
                ends_at=each.ends_at,
            )
            for each in left.belongings
        ],
        left_in_all=left.in_all,
    )
