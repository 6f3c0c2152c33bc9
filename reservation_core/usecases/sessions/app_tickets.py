"""Tickets to apps of jobs: made for a user who may enter the job, used once by a browser."""

from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.sessions.app_passes import AppAddress, NewTicket
from reservation_core.usecases.sessions.enter import find_job_to_enter

TICKET_LASTS = timedelta(seconds=60)
_TICKET = "gpudevticket"
_PASSED = "gpudevapp"


async def make_ticket(
    uow: UnitOfWork, ids: IdSource, caller: Principal, reference: str, port: int, now: datetime
) -> tuple[AppAddress, str, datetime]:
    """The app, a ticket's secret and its end. Raises NotFoundError and JobNotRunningError."""
    job = await find_job_to_enter(uow, reference, caller.user_id)
    app = AppAddress(job.id, port)
    secret, expires_at = ids.new_secret(_TICKET), now + TICKET_LASTS
    await uow.app_passes.add(NewTicket(ids.digest(secret), app, caller.user_id, caller.token_id, expires_at), now)
    return app, secret, expires_at


async def use_ticket(
    uow: UnitOfWork, ids: IdSource, ticket: str, app: AppAddress, lasts: timedelta, now: datetime
) -> str | None:
    """The secret of the pass that a ticket becomes; None for a ticket that is not valid."""
    secret = ids.new_secret(_PASSED)
    used = await uow.app_passes.use(ids.digest(ticket), app, ids.digest(secret), now + lasts, now)
    return secret if used else None
