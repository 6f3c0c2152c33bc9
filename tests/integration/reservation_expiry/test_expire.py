"""The expiry beside a processor that leads, and without one."""

from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from reservation_core.contracts.jobs import JobSubmit
from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.people.identities import Principal
from reservation_core.runtime.settings.components import StandaloneSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.jobs.submit import prepare, submit
from reservation_expiry.expire import run_once

SETTINGS = StandaloneSettings()


async def test_the_calendar_is_the_leaders_where_somebody_leads(runtime: Runtime, database_url: str) -> None:
    """One due change here: a user was disabled while their job was on its way in."""
    async with runtime.uow() as uow:
        user = await uow.identities.create_user("alice", Role.USER, runtime.clock.now())
        epoch = await uow.planning.acquire("somebody", timedelta(minutes=1))
    who = Principal(user.id, user.name, user.role, "tok-x", None)
    request = JobSubmit.model_validate({"gpus": 1, "duration": 60, "workload": {"command": ["true"]}})
    new = prepare(request, who, ids=runtime.ids, longest=timedelta(hours=1), now=runtime.clock.now())
    [stored] = await submit(runtime.uow, [new], runtime.clock.now())
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE users SET disabled_at = now()"))
    await engine.dispose()

    async def status() -> JobStatus:
        async with runtime.uow() as uow:
            return (await uow.reservations.get([stored.reservation_id]))[stored.reservation_id].status

    await run_once(runtime, SETTINGS)
    assert await status() is JobStatus.QUEUED
    assert epoch is not None
    async with runtime.uow() as uow:
        await uow.planning.release(epoch)
    await run_once(runtime, SETTINGS)
    assert await status() is JobStatus.CANCELLED
