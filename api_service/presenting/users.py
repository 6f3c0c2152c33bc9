"""Disabled users as bodies of REST."""

from api_service.presenting import jobs_and_nodes
from reservation_core.contracts.people import BelongingOut, UserDisabled
from reservation_core.domain.statuses import BookingStatus, JobStatus, ReservationKind
from reservation_core.ports.people.identities import UserRecord
from reservation_core.usecases.people.disable_user import StillHeld


def disabled(record: UserRecord, cancelled: int, left: StillHeld) -> UserDisabled:
    """A disabled user, with the jobs and bookings that are left."""
    return UserDisabled(
        **jobs_and_nodes.user(record).model_dump(),
        cancelled=cancelled,
        left=[
            BelongingOut(
                id=belonging.id,
                kind="job" if belonging.kind is ReservationKind.JOB else "booking",
                status=JobStatus(belonging.status)
                if belonging.kind is ReservationKind.JOB
                else BookingStatus(belonging.status),
                name=belonging.name,
                starts_at=belonging.starts_at,
                ends_at=belonging.ends_at,
            )
            for belonging in left.belongings
        ],
        left_in_all=left.in_all,
    )
