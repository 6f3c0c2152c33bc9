"""A waiting job's start in words: as learnt, as planned without a prediction, and as promised."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpu_dev.display.expected_starts import start_words
from gpu_dev.display.explaining import as_text, explain
from gpu_dev.display.output import Format, show_list, show_one
from gpu_dev.display.views import JOB, JOB_DETAILS, QUEUE
from gpu_dev.following import waiting_line
from gpu_dev.server.exchange import read_answer
from gpu_dev.wire.jobs import QueueEntry
from tests.unit.gpu_dev.examples import NOON, a_job, job_json

MINUTE = timedelta(minutes=1)
LIKELY = {"p50": NOON + 20 * MINUTE, "p90": NOON + 70 * MINUTE}
WORDS = "Sun 1 Mar 2026 21:20 JST, nine times in ten by 22:10 JST"


@pytest.fixture(autouse=True)
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def entry(**changed: Any) -> QueueEntry:
    return read_answer(QueueEntry, job_json(**changed))


def test_a_prediction_is_said_in_words_everywhere() -> None:
    job = a_job(estimated_start=LIKELY, promised_start_at=NOON + 240 * MINUTE)
    assert start_words(job) == WORDS
    tomorrow = a_job(estimated_start={"p50": NOON, "p90": NOON + timedelta(hours=3, minutes=1)})
    assert start_words(tomorrow) == "Sun 1 Mar 2026 21:00 JST, nine times in ten by Mon 2 Mar 2026 00:01 JST"
    assert f"starts about {WORDS}" in waiting_line(job)
    explained = as_text(explain(job, []))
    assert f"Starts about: {WORDS}." in explained
    assert "Promised start: Mon 2 Mar 2026 01:00:00 JST." in explained
    shown = [line.split(maxsplit=2) for line in show_one(job, JOB_DETAILS, Format.TABLE).splitlines()]
    assert ["starts", "about", WORDS] in shown
    assert ["promised", "start", "Mon 2 Mar 2026 01:00:00 JST"] in shown


@pytest.mark.parametrize("starts", [None, NOON + 300 * MINUTE])
def test_a_promise_that_a_missing_node_breaks_is_said_to_be_broken(starts: datetime | None) -> None:
    job = a_job(estimated_start_at=starts, promised_start_at=NOON + 240 * MINUTE)
    said = "Promised start: Mon 2 Mar 2026 01:00:00 JST, which can't be kept as things are now."
    assert said in as_text(explain(job, []))


def test_lists_show_the_median_and_wide_ones_the_rest() -> None:
    waiting = {"estimated_start": LIKELY, "promised_start_at": NOON + 240 * MINUTE}
    assert "21:20:00 JST" in show_list([a_job(**waiting)], JOB, Format.TABLE)
    narrow = show_list([entry(**waiting)], QUEUE, Format.TABLE)
    assert "21:20:00 JST" in narrow
    assert "22:10" not in narrow
    header, row = show_list([entry(**waiting)], QUEUE, Format.WIDE).splitlines()
    for title, shown in (("NINE IN TEN BY", "Sun 1 Mar 2026 22:10 JST"), ("PROMISED START", "Mon 2 Mar 2026 01:00:00")):
        assert row[header.index(title) :].startswith(shown)


def test_two_times_that_read_the_same_are_said_once() -> None:
    job = a_job(estimated_start={"p50": NOON, "p90": NOON + timedelta(seconds=59)})
    assert start_words(job) == "Sun 1 Mar 2026 21:00 JST"


def test_without_a_prediction_it_is_the_plans_start() -> None:
    assert start_words(a_job()) == "Sun 1 Mar 2026 22:00:00 JST"
    assert start_words(a_job(estimated_start_at=None)) == ""
    assert "22:00:00 JST" in show_list([entry()], QUEUE, Format.TABLE)
