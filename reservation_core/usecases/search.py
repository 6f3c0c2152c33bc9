"""Search everything that a caller may open."""

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.search import Found
from reservation_core.usecases.jobs.visible_jobs import visible_user


async def search(uow: UnitOfWork, caller: Principal, text: str, limit: int) -> list[Found]:
    """The best matches, at most `limit` of a kind: the caller's jobs, those shared with the caller, and the caller's
    bookings (administrators: everybody's), nodes, and for administrators users."""
    wanted, user_id = text.lower(), visible_user(caller)
    found = [
        *await uow.search.jobs(wanted, user_id, limit),
        *await uow.search.bookings(wanted, user_id, limit),
        *await uow.search.nodes(wanted, limit),
    ]
    return [*found, *await uow.search.users(wanted, limit)] if caller.is_admin else found
