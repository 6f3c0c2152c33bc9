"""Read the audit log: administrators all of it, users events about their own subjects."""

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import ForbiddenError, NotFoundError
from reservation_core.ports.history.audit import EventFilter, EventOrder, EventPage, Place
from reservation_core.ports.people.identities import Principal


async def read_record(
    uow: UnitOfWork,
    principal: Principal,
    which: EventFilter,
    *,
    order: EventOrder = EventOrder.NEWEST_FIRST,
    behind: Place | None,
    limit: int,
) -> EventPage:
    """A page of the audit log.

    Raises ForbiddenError for users who name no subject, NotFoundError when the subject is not theirs.
    """
    if not principal.is_admin:
        if which.subject is None:
            raise ForbiddenError(
                "The whole audit log is for administrators. Ask for one subject: a job, booking or token of yours, "
                f"or yourself: `gpu-dev audit --subject user:{principal.user}`."
            )
        oneself = which.subject == f"user:{principal.user}"
        if not oneself and not await uow.audit.is_about(which.subject, principal.user_id):
            raise NotFoundError(f"You have nothing called {which.subject!r}. Name a job, booking or token.")
    return await uow.audit.page(which, order, behind=behind, limit=limit)
