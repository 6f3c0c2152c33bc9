"""Reading and writing the append-only record."""

from reservation_core.adapters.postgres.history.events import Events
from reservation_core.domain.model import Reason
from reservation_core.domain.statuses import ReasonCode


async def test_a_reservations_events_come_in_order_and_resume(engine, seed) -> None:
    user = await seed.user()
    for job in ("job-a", "job-b"):
        await seed.job(job, user)
    for job, kind in (("job-a", "submitted"), ("job-b", "submitted"), ("job-a", "allocated"), ("job-a", "started")):
        await seed.run(
            "INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data) "
            "VALUES (:job, :now, 'ada', :kind, 'queued', 'starting', 'allocated', 'Has cards.', "
            "jsonb_build_object('n', 1))",
            job=job, now=seed.now, kind=kind,
        )  # fmt: skip
    async with engine.begin() as connection:
        events = Events(connection)
        found = await events.of_reservation("job-a", 0, 2)
        rest = await events.of_reservation("job-a", found[-1].id, 2)
        assert [e.kind for e in found + rest] == ["submitted", "allocated", "started"]
        assert await events.of_reservation("job-a", rest[-1].id, 2) == []
        assert await events.of_reservation("job-z", 0, 2) == []
    event = found[0]
    assert (event.at, event.actor, event.before, event.after) == (seed.now, "ada", "queued", "starting")
    assert (event.reason, event.data) == (Reason(ReasonCode.ALLOCATED, "Has cards."), {"n": 1})


async def test_what_is_not_about_a_reservation_is_recorded_with_its_subject(engine, seed) -> None:
    async with engine.begin() as connection:
        events = Events(connection)
        await events.append(actor="ada", kind="token_revoked", at=seed.now, subject="tok-1", data={"user": "bob"})
        await events.append(actor="system", kind="started", at=seed.now)
    rows = await seed.rows("SELECT reservation_id, subject, actor, kind, at, data FROM events ORDER BY id")
    assert rows == [
        {
            "reservation_id": None,
            "subject": "tok-1",
            "actor": "ada",
            "kind": "token_revoked",
            "at": seed.now,
            "data": {"user": "bob"},
        },
        {"reservation_id": None, "subject": None, "actor": "system", "kind": "started", "at": seed.now, "data": {}},
    ]
