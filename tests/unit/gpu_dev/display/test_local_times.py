"""Times on a terminal: one format, in the zone of the machine, which is named."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gpu_dev.display.local_times import local_sentence, local_time, minute, slot_words, wall_words
from gpu_dev.errors import ApiError, NoSuchObjectError
from gpu_dev.main import report
from gpu_dev.wire.base import Problem


@pytest.fixture(autouse=True)
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_local_time_without_a_zone_reads_like_the_others() -> None:
    assert wall_words("2026-11-26T09:00") == "Thu 26 Nov 2026 09:00"


def test_a_time_has_its_day_and_zone() -> None:
    moment = datetime(2026, 11, 26, 13, 20, 5, tzinfo=UTC)
    assert minute(moment) == "Thu 26 Nov 2026 14:20 CET"
    assert local_time(moment) == "Thu 26 Nov 2026 14:20:05 CET"
    assert minute(None) == local_time(None) == ""


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ((11, 26, 13), (11, 26, 15), "Thu 26 Nov 2026 14:00 to 16:00 CET"),
        ((11, 26, 22), (11, 27, 2), "Thu 26 Nov 2026 23:00 to Fri 27 Nov 2026 03:00 CET"),
        ((10, 25, 0), (10, 25, 1), "Sun 25 Oct 2026 02:00 CEST to Sun 25 Oct 2026 02:00 CET"),
    ],
)
def test_a_slot_says_what_both_share_once(start: tuple[int, ...], end: tuple[int, ...], words: str) -> None:
    assert slot_words(*(datetime(2026, *at, tzinfo=UTC) for at in (start, end))) == words  # type: ignore[misc]


def test_the_servers_sentences_are_read_out_and_what_is_to_be_typed_stays() -> None:
    said = "Free until 2026-11-26T13:20:00Z. Write it such as 2030-01-31T09:00:00Z or 2026-03-29T03:00+02:00."
    assert local_sentence(said) == (
        "Free until Thu 26 Nov 2026 14:20 CET. Write it such as 2030-01-31T09:00:00Z or 2026-03-29T03:00+02:00."
    )


def test_a_long_list_of_times_is_shortened_with_the_number_left_out() -> None:
    shown = ", ".join(f"Tue {day} Dec 2026 10:00 CET" for day in (1, 8, 15, 22, 29))
    listed = ", ".join(f"2026-12-{day:02}T09:00Z" for day in (1, 8, 15, 22, 29))
    assert local_sentence(f"{listed}: Too long.") == f"{shown}: Too long."
    assert local_sentence(f"{', '.join([listed] * 2)}: Too long.") == f"{shown}, {shown}: Too long."
    more = f"{', '.join([listed] * 2)}, 2027-03-28T02:30, 2027-03-29T09:00Z: Too long."
    assert local_sentence(more) == f"{shown}, {shown} and 2 more: Too long."


def test_a_refusal_is_read_out_and_what_a_person_typed_stays(capsys: pytest.CaptureFixture[str]) -> None:
    detail = "Free until 2026-11-26T13:20:00Z."
    report(ApiError(Problem(type="urn:gpu-dev:problem:refused", title="Refused", status=422, detail=detail)))
    assert "until Thu 26 Nov 2026 14:20 CET." in capsys.readouterr().err
    report(NoSuchObjectError("No job is named eval-2026-01-01T00:00Z."))
    assert "named eval-2026-01-01T00:00Z." in capsys.readouterr().err
