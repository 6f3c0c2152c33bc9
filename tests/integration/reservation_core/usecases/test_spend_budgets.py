"""Budgets of tokens through whole lives of jobs and bookings, against a sum over all that was ever asked for."""

import random
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from reservation_core.contracts.bookings import BookingChange
from reservation_core.domain.errors import DomainError, NotPermittedError
from reservation_core.domain.model import PodPhase
from reservation_core.domain.people.token_budgets import Budget
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.cancel import cancel_booking
from reservation_core.usecases.bookings.change import change_booking
from reservation_core.usecases.jobs.arrays import RestingArrays, settle_arrays
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.jobs.submit import submit_on_budget
from reservation_core.usecases.spend_budgets import sum_up_refunds
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.world import LONGEST, pod

US_AN_HOUR = 3_600_000_000
FINAL = {"succeeded", "failed", "cancelled", "expired", "ended", "released"}


async def token(bookings: BookingWorld, name: str, hours: float | None, *, maker: Principal | None = None) -> Principal:
    """Alice's, with a budget of its own or (None) without one."""
    world = bookings.world
    own = None if hours is None else Budget(f"tok-{name}", int(hours * US_AN_HOUR), None)
    async with world.uow() as uow:
        made = await uow.identities.create_token(
            f"tok-{name}",
            world.who.user_id,
            None,
            name.encode().ljust(32),
            None,
            world.clock.now(),
            made_with=None if maker is None else maker.token_id,
            budget=own,
        )
    return replace(world.who, token_id=made.id, budget_id=None if made.budget is None else made.budget.token_id)


async def submitted(bookings: BookingWorld, who: Principal, **fields: object) -> str:
    new = bookings.world.new(**fields)
    stored = await submit_on_budget(bookings.world.uow, who, new, bookings.world.clock.now())
    return stored.reservation_id


async def charged(bookings: BookingWorld) -> dict[str, int]:
    """By token, as everybody is told."""
    found = await bookings.rows("SELECT id, charged_us FROM token_budgets_now")
    return {row["id"]: row["charged_us"] for row in found}


async def live(bookings: BookingWorld) -> None:
    """The planner plans, and pods do what they are told."""
    world = bookings.world
    await world.plan()
    await world.operate()
    for job in await jobs(bookings, "starting"):
        for rank in range(job["nodes"]):
            status = world.cluster.show(
                pod(job["id"], rank, job["attempt"]), PodPhase.RUNNING, started_at=world.clock.now()
            )
            await world.see(status)
    for job in await jobs(bookings, "running"):
        if job["ends_at"] <= world.clock.now():
            await finish(bookings, job)
    await bookings.look()
    await world.operate()
    for job in await jobs(bookings, "ending"):
        for rank in range(job["nodes"]):
            await world.see(world.cluster.show(pod(job["id"], rank, job["attempt"]), PodPhase.GONE))


async def jobs(bookings: BookingWorld, status: str) -> list[dict[str, Any]]:
    return await bookings.rows("SELECT * FROM reservations WHERE kind = 'job' AND status = :status", status=status)


async def finish(bookings: BookingWorld, job: dict[str, Any], exit_code: int = 0) -> None:
    world = bookings.world
    for rank in range(job["nodes"]):
        name = pod(job["id"], rank, job["attempt"])
        await world.see(world.cluster.show(name, PodPhase.FINISHED, exit_code=exit_code, finished_at=world.clock.now()))
    await world.operate()
    for rank in range(job["nodes"]):
        await world.see(world.cluster.show(pod(job["id"], rank, job["attempt"]), PodPhase.GONE))


async def test_a_job_that_ends_early_pays_for_what_it_held(bookings: BookingWorld) -> None:
    who = await token(bookings, "one", 10)
    job = await submitted(bookings, who, gpus=2, duration=4 * 3600)
    assert await charged(bookings) == {"tok-one": 8 * US_AN_HOUR}
    await live(bookings)
    await bookings.at(START + HOUR)
    [row] = await jobs(bookings, "running")
    await finish(bookings, row)
    assert (await bookings.world.row(job)).status is JobStatus.SUCCEEDED
    assert await charged(bookings) == {"tok-one": 2 * US_AN_HOUR}
    assert await sum_up_refunds(bookings.world.uow) == 1
    assert await charged(bookings) == {"tok-one": 2 * US_AN_HOUR}
    # Of what is over nothing is kept but the sum.
    for table in ("token_charges", "token_refunds"):
        assert await bookings.rows(f"SELECT * FROM {table}") == []


async def test_a_job_with_retries_pays_for_all_its_runs_and_gets_back_those_that_it_did_not_need(
    bookings: BookingWorld,
) -> None:
    who = await token(bookings, "one", 30)
    job = await submitted(bookings, who, gpus=2, duration=4 * 3600, retries={"max": 2})
    assert await charged(bookings) == {"tok-one": 24 * US_AN_HOUR}
    for run, (exit_code, status) in enumerate(((1, JobStatus.QUEUED), (0, JobStatus.SUCCEEDED))):
        await live(bookings)
        await bookings.at(START + (run + 1) * HOUR)
        [row] = await jobs(bookings, "running")
        await finish(bookings, row, exit_code)
        assert (await bookings.world.row(job)).status is status
    assert await charged(bookings) == {"tok-one": 4 * US_AN_HOUR}


async def test_an_array_pays_for_all_elements_and_gets_back_what_they_did_not_hold(bookings: BookingWorld) -> None:
    world, who = bookings.world, await token(bookings, "t", 100)
    array_id = await submitted(bookings, who, duration=7200, array={"size": 3})
    assert await charged(bookings) == {"tok-t": 6 * US_AN_HOUR}
    await settle_arrays(world.uow, world.clock, RestingArrays())
    await live(bookings)
    await bookings.at(START + 30 * MINUTE)
    async with world.uow() as uow:
        await cancel(uow, world.who, array_id, None, world.clock.now())
    await live(bookings)
    await settle_arrays(world.uow, world.clock, RestingArrays())
    assert (await world.row(array_id)).status is JobStatus.CANCELLED
    held = await bookings.rows("SELECT sum(extract(epoch FROM upper(during) - lower(during))) AS s FROM allocations")
    assert await charged(bookings) == {"tok-t": round(1_000_000 * held[0]["s"])}
    assert 0 < held[0]["s"] < 3 * 3600
    with pytest.raises(NotPermittedError):
        await submitted(bookings, who, duration=7200, array={"size": 50})


async def test_a_booking_that_is_cancelled_in_its_slot_pays_for_its_time(bookings: BookingWorld) -> None:
    who = await token(bookings, "one", 10)
    booking = await bookings.booked(START + HOUR, 4 * HOUR, gpus=2, who=who)
    await bookings.at(START + HOUR)
    await bookings.at(START + 2 * HOUR)
    assert await charged(bookings) == {"tok-one": 8 * US_AN_HOUR}
    async with bookings.world.uow() as uow:
        await cancel_booking(uow, bookings.world.who, booking.id, "this", None)
    assert await charged(bookings) == {"tok-one": 2 * US_AN_HOUR}


async def test_a_job_that_lasts_to_its_end_gets_nothing_back(bookings: BookingWorld) -> None:
    who = await token(bookings, "one", 10)
    await submitted(bookings, who, gpus=1, duration=3600)
    await live(bookings)
    await bookings.at(START + 2 * HOUR)
    await live(bookings)
    assert await jobs(bookings, "running") == []
    assert await charged(bookings) == {"tok-one": US_AN_HOUR}


@dataclass
class Part:
    """Of a reservation's GPU time, who asked for it."""

    who: str
    start: int
    end: int


@dataclass
class Oracle:
    """All that was ever asked for, and nothing else: no counter."""

    bookings: BookingWorld
    lines: dict[str, list[str]]  # the budgets that pay, by token
    budgets: dict[str, int]
    asked: dict[str, list[Part]] = field(default_factory=dict)

    async def look(self) -> None:
        """A finished or shortened reservation counts for no more than it is."""
        held = {
            row["id"]: row
            for row in await self.bookings.rows(
                "SELECT r.id, r.status, r.gpus * r.nodes AS gpus, r.duration,"
                " (SELECT array_agg(ARRAY[lower(during), upper(during)]) FROM allocations a"
                "  WHERE a.reservation_id = r.id AND NOT a.planned) AS spans FROM reservations r"
            )
        }
        for name, parts in self.asked.items():
            row = held[name]
            if row["status"] in FINAL:
                kept = sum((end - start for start, end in row["spans"] or []), timedelta(0))
            else:
                kept = row["gpus"] * row["duration"]
            until = kept // timedelta(microseconds=1)
            for part in parts:
                part.start, part.end = min(part.start, until), min(part.end, until)

    def charged(self) -> dict[str, int]:
        """Of each budget."""
        sums = dict.fromkeys(self.budgets, 0)
        for part in (listed_part for parts in self.asked.values() for listed_part in parts):
            for budget in self.lines[part.who]:
                sums[budget] += part.end - part.start
        return sums

    def pays(self, who: str, asked: int) -> bool:
        """Whether every budget has so much left."""
        sums = self.charged()
        return all(sums[budget] + asked <= self.budgets[budget] for budget in self.lines[who])

    async def total(self, name: str) -> int:
        """GPU time that a reservation was asked for."""
        [row] = await self.bookings.rows(
            "SELECT gpus * nodes * duration AS total FROM reservations WHERE id = :id", id=name
        )
        return int(row["total"] / timedelta(microseconds=1))

    async def tried(self, who: str, deed: Awaitable[str], asked: int, of: str | None = None) -> None:
        """Do it, and see that the budgets let it pass if and only if they pay for it."""
        fits = self.pays(who, asked)
        before = 0 if of is None else await self.total(of)
        try:
            name = await deed
        except NotPermittedError as refusal:
            codes = [rule.code for rule in refusal.broken_rules]
            if codes != ["token_budget"] or fits:
                pytest.fail(f"{codes} for {who}, who may ask for it: {fits}")
            return
        except DomainError:
            return  # for other reasons
        assert fits or asked <= 0
        after = await self.total(name)
        if after > before:
            self.asked.setdefault(name, []).append(Part(who, before, after))


class Acts:
    """One random act after the other."""

    def __init__(self, bookings: BookingWorld, oracle: Oracle, tokens: dict[str, Principal], number: int) -> None:
        self.bookings, self.oracle, self.tokens = bookings, oracle, tokens
        self.chance = random.Random(number)

    async def act(self) -> None:
        chance, world = self.chance, self.bookings.world
        who = chance.choice(sorted(self.tokens))
        caller, name = self.tokens[who], chance.choice([*self.oracle.asked, None])
        minutes = chance.randrange(1, 200)
        match chance.choice(["submit", "submit", "book", "change", "change", "cancel", "time", "time", "end", "sum"]):
            case "submit":
                size = {"gpus": chance.choice([1, 2]), "nodes": chance.choice([1, 2])}
                deed = submitted(self.bookings, caller, duration=minutes * 60, **size)
                await self.oracle.tried(who, deed, size["gpus"] * size["nodes"] * minutes * 60_000_000)
            case "book":
                start = world.clock.now().replace(second=0) + chance.randrange(30, 600) * MINUTE
                await self.oracle.tried(who, self._booked(caller, start, minutes), minutes * 60_000_000)
            case "change" if name is not None:
                await self._change(who, caller, name, minutes)
            case "cancel" if name is not None:
                await self._cancel(caller, name)
            case "end":
                running = await jobs(self.bookings, "running")
                if running:
                    await finish(self.bookings, chance.choice(running))
            case "sum":
                await sum_up_refunds(world.uow)
            case _:
                await self.bookings.at(world.clock.now() + chance.randrange(1, 90) * MINUTE)
                await live(self.bookings)

    async def _booked(self, who: Principal, start: Any, minutes: int) -> str:
        return (await self.bookings.booked(start, minutes * MINUTE, wait=self.chance.random() < 0.3, who=who)).id

    async def _change(self, who: str, caller: Principal, name: str, minutes: int) -> None:
        [row] = await self.bookings.rows(
            "SELECT gpus * nodes AS gpus, duration FROM reservations WHERE id = :id", id=name
        )
        length = minutes * MINUTE if name.startswith("bkg-") else row["duration"] + minutes * MINUTE

        async def deed() -> str:
            async with self.bookings.world.uow() as uow:
                if name.startswith("bkg-"):
                    wanted = BookingChange.model_validate({"duration": minutes * 60})
                    await change_booking(uow, caller, name, wanted, None)
                else:
                    now = self.bookings.world.clock.now()
                    await extend(uow, caller, name, minutes * MINUTE, None, LONGEST, now)
            return name

        asked = row["gpus"] * ((length - row["duration"]) // timedelta(microseconds=1))
        await self.oracle.tried(who, deed(), asked, of=name)

    async def _cancel(self, caller: Principal, name: str) -> None:
        try:
            async with self.bookings.world.uow() as uow:
                if name.startswith("bkg-"):
                    await cancel_booking(uow, caller, name, "this", None)
                else:
                    await cancel(uow, caller, name, None, self.bookings.world.clock.now())
        except DomainError:
            pass  # it is over


@pytest.mark.parametrize("number", range(6))
async def test_the_counters_are_what_all_that_was_asked_for_comes_to(bookings: BookingWorld, number: int) -> None:
    first = await token(bookings, "first", 40)
    second = await token(bookings, "second", 15, maker=first)
    tokens = {
        "first": first,
        "second": second,
        "third": await token(bookings, "third", None, maker=second),
        "fourth": await token(bookings, "fourth", 8, maker=second),
        "free": await token(bookings, "free", None),
    }
    line = ["tok-first", "tok-second", "tok-fourth"]
    lines = {"first": line[:1], "second": line[:2], "third": line[:2], "fourth": line, "free": []}
    budgets = {"tok-first": 40 * US_AN_HOUR, "tok-second": 15 * US_AN_HOUR, "tok-fourth": 8 * US_AN_HOUR}
    oracle = Oracle(bookings, lines, budgets)
    acts = Acts(bookings, oracle, tokens, number)
    for _ in range(60):
        await acts.act()
        await oracle.look()
        assert await charged(bookings) == oracle.charged()
    assert any(oracle.charged().values())
