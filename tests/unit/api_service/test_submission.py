"""How submissions share commits."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from api_service import submission
from api_service.problems import ProblemError
from api_service.submission import SubmissionWriter
from reservation_core.ports.jobs.reservations import NewReservation, Submitted
from reservation_core.ports.transactions import DatabaseUnavailableError
from tests.unit.api_service.presenting.test_jobs_and_nodes import JOB


class Store:
    """Keeps the batches it was given; the first waits for `go`."""

    def __init__(self) -> None:
        self.batches: list[list[NewReservation]] = []
        self.go = asyncio.Event()

    async def __call__(self, batch: Sequence[NewReservation]) -> list[Submitted]:
        self.batches.append(list(batch))
        await self.go.wait()
        if any(new.reservation.name == "bad" for new in batch):
            raise ValueError("refused")
        if any(new.reservation.name == "away" for new in batch):
            raise DatabaseUnavailableError("away")
        return [Submitted(new.reservation.id) for new in batch]


def _new(number: int, *, key: str | None = None, user_id: int = 1, name: str | None = None) -> NewReservation:
    return NewReservation(replace(JOB, id=f"job-{number}", user_id=user_id, name=name), "alice", idempotency_key=key)


async def _submit_all(store: Store, news: list[NewReservation], limit: int = 100) -> list[Submitted | BaseException]:
    writer = SubmissionWriter(store, limit)
    running = asyncio.create_task(writer.run())
    submits = [asyncio.create_task(writer.submit(new)) for new in news]
    await asyncio.sleep(0)
    store.go.set()
    answers = await asyncio.gather(*submits, return_exceptions=True)
    writer.close()
    await running
    return answers


async def test_batches_keep_the_order_and_the_limit() -> None:
    store = Store()
    answers = await _submit_all(store, [_new(i) for i in range(25)], limit=10)
    assert [answer.reservation_id for answer in answers if isinstance(answer, Submitted)] == [
        f"job-{i}" for i in range(25)
    ]
    assert [new.reservation.id for batch in store.batches for new in batch] == [f"job-{i}" for i in range(25)]
    assert max(len(batch) for batch in store.batches) == 10


async def test_one_users_key_is_never_twice_in_a_batch() -> None:
    store = Store()
    await _submit_all(store, [_new(0), _new(1, key="k"), _new(2, key="k"), _new(3, key="k", user_id=2), _new(4)])
    for batch in store.batches:
        owned = [(new.reservation.user_id, new.idempotency_key) for new in batch if new.idempotency_key]
        assert len(set(owned)) == len(owned)
    assert sum(len(batch) for batch in store.batches) == 5
    assert len(store.batches) == 2


async def test_a_bad_row_fails_alone() -> None:
    answers = await _submit_all(Store(), [_new(0), _new(1, name="bad"), _new(2)])
    assert [type(answer) for answer in answers] == [Submitted, ValueError, Submitted]


async def test_without_a_database_nothing_is_tried_again() -> None:
    store = Store()
    answers = await _submit_all(store, [_new(0), _new(1, name="away"), _new(2)])
    assert {type(answer) for answer in answers} == {DatabaseUnavailableError}
    assert len(store.batches) == 1


async def test_a_caller_that_leaves_changes_nothing() -> None:
    store = Store()
    writer = SubmissionWriter(store, 10)
    running = asyncio.create_task(writer.run())
    leaving = asyncio.create_task(writer.submit(_new(0)))
    staying = asyncio.create_task(writer.submit(_new(1)))
    while not store.batches:
        await asyncio.sleep(0)
    leaving.cancel()
    store.go.set()
    assert (await staying).reservation_id == "job-1"
    writer.close()
    await running
    assert [new.reservation.id for batch in store.batches for new in batch] == ["job-0", "job-1"]
    with pytest.raises(ProblemError) as caught:
        await writer.submit(_new(2))
    assert caught.value.status == 503


async def test_one_half_is_written_while_the_other_is_answered() -> None:
    """Nobody waits for everybody: 32 who ask together, and again when answered, are written 16 at a time."""
    store = Store()
    store.go.set()

    async def store_for_a_while(batch: Sequence[NewReservation]) -> list[Submitted]:
        for _ in range(5):
            await asyncio.sleep(0)  # the others get their turn, as they do while a database works
        return await store(batch)

    writer = SubmissionWriter(store_for_a_while, 100)
    running = asyncio.create_task(writer.run())

    async def asks(number: int) -> None:
        for turn in range(4):
            await writer.submit(_new(100 * number + turn))

    await asyncio.gather(*(asks(number) for number in range(32)))
    writer.close()
    await running
    assert [len(batch) for batch in store.batches] == [16] * 8


async def test_a_few_share_one_commit() -> None:
    store = Store()
    await _submit_all(store, [_new(number) for number in range(8)])
    assert [len(batch) for batch in store.batches] == [8]


async def test_who_has_waited_long_while_the_database_did_not_answer_waits_for_no_second_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    writer = SubmissionWriter(store, 100)
    running = asyncio.create_task(writer.run())
    first = asyncio.create_task(writer.submit(_new(1, name="away")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asyncio.create_task(writer.submit(_new(2)))
    await asyncio.sleep(0)
    monkeypatch.setattr(submission, "_LONG_S", -1.0)  # however short it was
    store.go.set()
    for submitted in (first, second):
        with pytest.raises(DatabaseUnavailableError):
            await submitted
    assert len(store.batches) == 1
    monkeypatch.undo()
    assert await writer.submit(_new(3)) == Submitted("job-3")
    writer.close()
    await running
