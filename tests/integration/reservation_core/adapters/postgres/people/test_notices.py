"""Notifications: the trigger on events, preferences, targets, and words that database and program share."""

from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind
from tests.integration.reservation_core.adapters.postgres.conftest import Seed

EVENT = "INSERT INTO events (reservation_id, at, actor, kind) VALUES (:id, :now, 'system', :kind) RETURNING id"


async def target(
    seed: Seed, name: str, user: int, channel: str = "slack", *, verified: bool = True, lost: int = 0
) -> str:
    await seed.run(
        "INSERT INTO notice_targets (id, user_id, channel, address, secret, code, created_at, verified_at, lost) "
        "VALUES (:id, :user, CAST(:channel AS text), 'https://h.example', "
        "CASE WHEN :channel = 'webhook' THEN 'whsec_0123456789' END, "
        "CASE WHEN :channel = 'email' AND NOT :verified THEN 'code-12345678' END, "
        "now(), CASE WHEN :verified THEN now() END, :lost)",
        id=name, user=user, channel=channel, verified=verified, lost=lost,
    )  # fmt: skip
    return name


async def event(seed: Seed, job: str, kind: str = "failed") -> int:
    return await seed.run(EVENT, id=job, kind=kind, now=seed.now)


async def sent(seed: Seed) -> list[dict[str, Any]]:
    rows = await seed.rows("SELECT message FROM pgmq.q_notifications ORDER BY msg_id")
    return [dict(row["message"]) for row in rows]  # type: ignore[call-overload]


@pytest.fixture
async def job(seed: Seed) -> str:
    """A job of ada's."""
    return await seed.job("job-a", await seed.user())


async def users(seed: Seed) -> int:
    return await seed.run("SELECT id FROM users WHERE name = 'ada'")


async def test_an_event_is_told_to_each_target_of_its_owner_and_nobody_else(seed: Seed, job: str) -> None:
    ada = await users(seed)
    await target(seed, "ntg-b", ada, "webhook")
    await target(seed, "ntg-a", ada)
    await target(seed, "ntg-c", await seed.user("bob"))
    number = await event(seed, job)
    told = {"v": 1, "kind": "event", "event": number}
    messages = sorted(await sent(seed), key=lambda message: str(message["target"]))
    assert messages == [told | {"target": "ntg-a"}, told | {"target": "ntg-b"}]


async def test_without_targets_nothing_is_sent(seed: Seed, job: str) -> None:
    await target(seed, "ntg-c", await seed.user("bob"))
    await event(seed, job)
    assert await sent(seed) == []


@pytest.mark.parametrize(
    "spoils",
    [
        "UPDATE users SET disabled_at = now()",
        "UPDATE notice_targets SET removed_at = now(), address = NULL",
        "UPDATE notice_targets SET verified_at = NULL",
        "UPDATE notice_targets SET lost = 20",
        "INSERT INTO notice_preferences VALUES (1, 'failed', 'slack', false)",
    ],
)
async def test_who_can_not_or_will_not_be_told_is_not(seed: Seed, job: str, spoils: str) -> None:
    await target(seed, "ntg-a", await users(seed))
    await event(seed, job)
    await seed.run(spoils)
    await event(seed, job)
    assert len(await sent(seed)) == 1


async def test_what_is_off_by_default_can_be_wanted(seed: Seed, job: str) -> None:
    ada = await users(seed)
    await target(seed, "ntg-a", ada)
    await event(seed, job, "started")
    assert await sent(seed) == []
    await seed.run("INSERT INTO notice_preferences VALUES (:user, 'started', 'slack', true)", user=ada)
    await event(seed, job, "started")
    assert len(await sent(seed)) == 1


@pytest.mark.parametrize("kind", ["submitted", "allocated", "requeued", "exited", "finished", "policy_changed"])
async def test_what_means_nothing_to_people_is_not_told(seed: Seed, job: str, kind: str) -> None:
    await target(seed, "ntg-a", await users(seed))
    await event(seed, job, kind)
    assert await sent(seed) == []


async def test_a_job_that_ends_with_its_booking_is_told_once(seed: Seed, job: str) -> None:
    await target(seed, "ntg-a", await users(seed))
    ended = (
        "INSERT INTO events (reservation_id, at, actor, kind, after) VALUES ('job-a', now(), 'system', :kind, :after)"
    )
    for kind, after in (("booking_over", "ending"), ("cancelled", "cancelled"), ("booking_over", "expired")):
        await seed.run(ended, kind=kind, after=after)
    assert len(await sent(seed)) == 2


async def test_events_about_no_reservation_are_not_told(seed: Seed, job: str) -> None:
    await target(seed, "ntg-a", await users(seed))
    await seed.run("INSERT INTO events (subject, at, actor, kind) VALUES ('node:a', now(), 'root', 'failed')")
    assert await sent(seed) == []


async def test_many_events_of_one_statement_are_told_in_order(seed: Seed, job: str) -> None:
    await target(seed, "ntg-a", await users(seed))
    await seed.run(
        "INSERT INTO events (reservation_id, at, actor, kind) "
        "SELECT 'job-a', now(), 'system', CASE WHEN i % 2 = 0 THEN 'failed' ELSE 'submitted' END "
        "FROM generate_series(1, 400) i"
    )
    told = [message["event"] for message in await sent(seed)]
    assert len(told) == 200
    assert told == sorted(told)


async def test_what_is_rolled_back_is_not_told(seed: Seed, job: str) -> None:
    await target(seed, "ntg-a", await users(seed))
    with pytest.raises(IntegrityError):
        await seed.run(
            "WITH x AS (INSERT INTO events (reservation_id, at, actor, kind) VALUES ('job-a', now(), 'x', 'failed')) "
            "INSERT INTO tokens (id, user_id, digest, created_at) VALUES ('tok-a', 999, sha256('x'), now())"
        )
    assert await sent(seed) == []


async def test_what_the_trigger_does_not_even_look_at_would_tell_nobody(seed: Seed) -> None:
    """Its WHEN keeps the hottest events from it; a kind that people are told of must not be among them."""
    asked = "SELECT pg_get_triggerdef(oid) AS it FROM pg_trigger WHERE tgname = 'events_notify'"
    definitions = [str(row["it"]) for row in await seed.rows(asked)]
    assert definitions
    told = await seed.rows("SELECT event FROM notice_events")
    assert not [row["event"] for row in told for text in definitions if f"'{row['event']}'" in text]


async def test_database_and_program_know_the_same_kinds_and_channels(seed: Seed) -> None:
    kinds = await seed.rows("SELECT kind FROM notice_kinds")
    assert {row["kind"] for row in kinds} == {kind.value for kind in NoticeKind}
    used = await seed.rows("SELECT DISTINCT kind FROM notice_events")
    assert {row["kind"] for row in used} == {kind.value for kind in NoticeKind}
    user = await seed.user()
    for channel in NoticeChannel:
        await target(seed, f"ntg-{channel.value}", user, channel.value)
    with pytest.raises(IntegrityError):
        await target(seed, "ntg-pigeon", user, "pigeon")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE notice_targets SET secret = NULL WHERE id = 'ntg-w'",
        "UPDATE notice_targets SET secret = 'whsec_0123456789' WHERE id = 'ntg-s'",
        "UPDATE notice_targets SET removed_at = now(), address = NULL WHERE id = 'ntg-w'",  # its secret stays
        "UPDATE notice_targets SET removed_at = now() WHERE id = 'ntg-s'",  # its address stays
        "UPDATE notice_targets SET verified_at = now() WHERE id = 'ntg-e'",  # its code stays
        "UPDATE notice_targets SET failed_at = now() WHERE id = 'ntg-s'",  # nobody says why
    ],
)
async def test_what_a_target_must_have_is_a_constraint(seed: Seed, change: str) -> None:
    user = await seed.user()
    await target(seed, "ntg-w", user, "webhook")
    await target(seed, "ntg-s", user)
    await target(seed, "ntg-e", user, "email", verified=False)
    with pytest.raises(IntegrityError):
        await seed.run(change)
