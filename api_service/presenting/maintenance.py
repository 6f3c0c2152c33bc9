"""Maintenance windows as bodies of REST: all users see times and GPUs, and only themselves among the affected."""

from reservation_core.contracts.maintenance import AffectedOut, GpuPlace, MaintenanceOut
from reservation_core.domain.bookings.maintenance import Window
from reservation_core.ports.people.identities import Principal


def window(found: Window, caller: Principal, *, planned_only: bool = False) -> MaintenanceOut:
    """A window; `planned_only`: from a dry run."""
    return MaintenanceOut(
        id=None if planned_only else found.id,
        status=None if planned_only else found.status,
        gpus=[GpuPlace.model_construct(node=card.node, index=card.index) for card in found.cards],
        start=found.span.start,
        end=found.span.end,
        reason=found.reason,
        created_by=found.user,
        created_at=found.created_at,
        finished_at=found.finished_at,
        affected=[
            AffectedOut(
                id=affected_use.id,
                kind=affected_use.kind,
                user=affected_use.user,
                fate=affected_use.fate,
                ends_at=affected_use.ends_at,
                resumes_at=affected_use.resumes_at,
                goes_on_as=None if planned_only else affected_use.goes_on_as,
            )
            for affected_use in found.affected
            if caller.is_admin or affected_use.user == caller.user
        ],
    )
