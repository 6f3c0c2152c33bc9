"""What the database itself refuses, whatever the code does: the ledger's guards, bounds, the record's permanence."""

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError

LEDGER = "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "


async def two_jobs_one_card(seed):
    user = await seed.user()
    (card,) = await seed.node(cards=1)
    for job in ("job-a", "job-b"):
        await seed.job(job, user, "starting", attempt=1)
    return card


async def test_the_calendar_refuses_an_overlap(seed) -> None:
    card = await two_jobs_one_card(seed)
    await seed.allocate("job-a", card, held=False)
    with pytest.raises(IntegrityError, match="allocations_calendar"):
        await seed.allocate("job-b", card, seed.now + seed.hour / 2, seed.now + 2 * seed.hour, held=False)


async def test_the_calendar_counts_released_rows_too(seed) -> None:
    card = await two_jobs_one_card(seed)
    await seed.allocate("job-a", card, held=False)
    await seed.run("UPDATE allocations SET released_at = :now", now=seed.now + seed.hour)
    with pytest.raises(IntegrityError, match="allocations_calendar"):
        await seed.allocate("job-b", card, held=False)


async def test_ranges_that_touch_are_no_overlap(seed) -> None:
    card = await two_jobs_one_card(seed)
    await seed.allocate("job-a", card, held=False)
    await seed.allocate("job-b", card, seed.now + seed.hour, seed.now + 2 * seed.hour, held=False)


async def test_two_cards_have_two_calendars(seed) -> None:
    user = await seed.user()
    cards = await seed.node(cards=2)
    await seed.job("job-a", user, "starting", attempt=1)
    for card in cards:
        await seed.allocate("job-a", card)


async def a_booking_with_two_jobs(seed):
    """A booking of one card for an hour, and two jobs that may run in it; returns the card."""
    card = await two_jobs_one_card(seed)
    user = await seed.run("SELECT id FROM users")
    await seed.job("bkg-a", user, "active", kind="booking")
    await seed.allocate("bkg-a", card, held=False)
    return card


async def lay_within(seed, job: str, card: int, first: float, last: float) -> None:
    """A row of a job within the booking, in hours of it."""
    await seed.run(
        LEDGER.replace("created_at", "created_at, booking_id")
        + "VALUES (:job, 1, :gpu, 0, tstzrange(:start, :end), false, :start, 'bkg-a')",
        job=job, gpu=card, start=seed.now + first * seed.hour, end=seed.now + last * seed.hour,
    )  # fmt: skip


async def test_within_a_booking_no_two_have_a_card_at_once(seed) -> None:
    card = await a_booking_with_two_jobs(seed)
    await lay_within(seed, "job-a", card, 0, 0.5)
    with pytest.raises(IntegrityError, match="allocations_calendar_in_bookings"):
        await lay_within(seed, "job-b", card, 0.25, 0.75)
    await lay_within(seed, "job-b", card, 0.5, 1)


async def test_nothing_within_a_booking_lies_outside_its_time(seed) -> None:
    card = await a_booking_with_two_jobs(seed)
    with pytest.raises(IntegrityError, match="is not booked by bkg-a"):
        await lay_within(seed, "job-a", card, 0.5, 1.5)
    [other] = await seed.node("node-b", cards=1)
    with pytest.raises(IntegrityError, match="is not booked by bkg-a"):
        await lay_within(seed, "job-a", other, 0, 0.5)


async def test_a_booking_covers_what_lies_within_it(seed) -> None:
    card = await a_booking_with_two_jobs(seed)
    await lay_within(seed, "job-a", card, 0, 0.75)
    shrink = "UPDATE allocations SET during = tstzrange(:start, :end) WHERE reservation_id = 'bkg-a'"
    with pytest.raises(IntegrityError, match="would lie outside"):
        await seed.run(shrink, start=seed.now, end=seed.now + seed.hour / 2)
    with pytest.raises(IntegrityError, match="would lie outside"):
        await seed.run("DELETE FROM allocations WHERE reservation_id = 'bkg-a'")
    await seed.run(shrink, start=seed.now, end=seed.now + 0.75 * seed.hour)


async def test_a_card_is_held_once_even_in_different_ranges(seed) -> None:
    card = await two_jobs_one_card(seed)
    await seed.allocate("job-a", card)
    with pytest.raises(IntegrityError, match="allocations_hold"):
        await seed.allocate("job-b", card, seed.now + seed.hour, seed.now + 2 * seed.hour)


@pytest.mark.parametrize(
    "during",
    [
        "'empty'",
        "tstzrange('2030-01-01Z', NULL)",
        "tstzrange(NULL, '2030-01-01Z')",
        "tstzrange('2030-01-01Z', '2030-01-02Z', '[]')",
        "tstzrange('2030-01-01Z', '2030-01-02Z', '()')",
    ],
)
async def test_ranges_are_bounded_and_half_open(seed, during) -> None:
    card = await two_jobs_one_card(seed)
    with pytest.raises(IntegrityError, match="allocations_during_check"):
        await seed.run(f"{LEDGER} VALUES ('job-a', 1, :gpu, 0, {during}, false, now())", gpu=card)


async def test_a_released_card_is_not_held(seed) -> None:
    card = await two_jobs_one_card(seed)
    await seed.allocate("job-a", card)
    with pytest.raises(IntegrityError, match="allocations_check"):
        await seed.run("UPDATE allocations SET released_at = now()")


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "sleeping"},
        {"status": "ending"},
        {"outcome": "failed"},
        {"status": "succeeded"},
        {"status": "ending", "outcome": "running"},
        {"status": "running", "attempt": 1},
        {"status": "starting"},
        {"job_id": "JOB 1"},
        {"job_id": "tok-1"},
        {"kind": "lease"},
        {"gpus": 0},
        {"nodes": 0},
        {"gpu_type": "H100"},
        {"name": ""},
        {"priority": 1001},
        {"version": 0},
        {"warned_s": -1},
    ],
    ids=str,
)
async def test_reservations_out_of_bounds_are_refused(seed, fields) -> None:
    user = await seed.user()
    with pytest.raises(IntegrityError, match="CheckViolation"):
        await seed.job(**{"job_id": "job-a", "user_id": user, **fields})


async def test_a_job_needs_a_user(seed) -> None:
    with pytest.raises(IntegrityError, match="ForeignKeyViolation"):
        await seed.job("job-a", 4711)


@pytest.mark.parametrize("table", ["reservations", "gpus", "nodes", "users"])
async def test_what_the_ledger_names_cannot_be_deleted(seed, table) -> None:
    card = await two_jobs_one_card(seed)
    await seed.allocate("job-a", card)
    with pytest.raises(IntegrityError, match=r"foreign key|RESTRICT"):
        await seed.run(f"DELETE FROM {table}")


@pytest.mark.parametrize(
    "change", ["UPDATE events SET actor = 'nobody'", "DELETE FROM events", "TRUNCATE events", "TRUNCATE events CASCADE"]
)
async def test_the_record_is_append_only(seed, change) -> None:
    await seed.run("INSERT INTO events (at, actor, kind) VALUES (:now, 'system', 'user_created')", now=seed.now)
    with pytest.raises(DBAPIError, match="append-only"):
        await seed.run(change)
    assert await seed.run("SELECT count(*) FROM events WHERE actor = 'system'") == 1


async def test_a_token_is_stored_as_a_digest(seed) -> None:
    user = await seed.user()
    with pytest.raises(IntegrityError, match="tokens_digest_check"):
        await seed.run(
            "INSERT INTO tokens (id, user_id, digest, created_at) VALUES ('tok-1', :user, 'secret', :now)",
            user=user, now=seed.now,
        )  # fmt: skip


async def test_there_is_one_planner_lease(seed) -> None:
    with pytest.raises(IntegrityError):
        await seed.run("INSERT INTO planner_lease (epoch, expires_at) VALUES (1, now())")
    with pytest.raises(IntegrityError):
        await seed.run("INSERT INTO planner_lease (singleton, epoch, expires_at) VALUES (false, 1, now())")


POLICY = "INSERT INTO policies (changed_at, changed_by, {columns}) VALUES (now(), 'root', {values})"


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("user_name, project", "'ann', 'vision'"),
        ("user_name", "'Ann Lee'"),
        ("max_gpus", "-1"),
        ("max_gpu_hours_per_week", "-0.5"),
        ("max_duration", "interval '0'"),
        ("max_advance", "interval '500 days'"),
        ("no_show_grace", "interval '1 second'"),
        ("cost_per_gpu_hour", "'2.50'"),
        ("cost_per_gpu_hour", "'-1 EUR'"),
        ('"order"', "'size'"),
        ('user_name, "order"', "'ann', 'area'"),
        ('project, gpu_type, "order"', "'vision', 'h100', 'area'"),
        ("lifted", "ARRAY['everything']"),
        ("relaxed", "'{}'"),
    ],
)
async def test_a_rule_that_means_nothing_is_refused(seed, columns: str, values: str) -> None:
    with pytest.raises(IntegrityError, match="check"):
        await seed.run(POLICY.format(columns=columns, values=values))


async def test_a_scope_has_one_rule_and_every_change_is_counted(seed) -> None:
    await seed.run(POLICY.format(columns="gpu_type", values="'h100'"))
    await seed.run(POLICY.format(columns="max_gpus", values="1"))
    for columns, values in (("gpu_type", "'h100'"), ("max_gpus", "2")):
        with pytest.raises(IntegrityError, match="policies_user_name_project_gpu_type_key"):
            await seed.run(POLICY.format(columns=columns, values=values))
    before = await seed.run("SELECT revision FROM policy_state")
    await seed.run("UPDATE policies SET max_gpus = 3")
    await seed.run("DELETE FROM policies")
    assert await seed.run("SELECT revision FROM policy_state") == before + 2


async def test_who_is_in_which_project_counts_as_a_change(seed) -> None:
    user = await seed.user()
    await seed.run("INSERT INTO projects (name, created_at) VALUES ('vision', now())")
    before = await seed.run("SELECT revision FROM policy_state")
    await seed.run("INSERT INTO project_members VALUES ('vision', :user)", user=user)
    await seed.run("DELETE FROM projects")
    assert await seed.run("SELECT count(*) FROM project_members") == 0
    assert await seed.run("SELECT revision FROM policy_state") > before + 1
