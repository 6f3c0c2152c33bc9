"""What people are told: every kind has words, and nothing that a user chose breaks out of its line."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.notices.kinds import NoticeKind
from reservation_core.domain.notices.messages import (
    NoticedEvent,
    NotifiedReservation,
    one_line,
    trial_notice,
    verification_notice,
)
from reservation_core.domain.notices.words import notice_of

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
BOOKING = NotifiedReservation(
    "bkg-1", "booking", "demo", "confirmed", 4, 2, "h100", NOW + timedelta(hours=1), NOW + timedelta(hours=3),
    offer_until=NOW + timedelta(minutes=15), release_at=NOW + timedelta(hours=1, minutes=30),
)  # fmt: skip
JOB = NotifiedReservation(
    "job-1", "job", None, "running", 1, 1, None, NOW - timedelta(hours=1), NOW + timedelta(minutes=10)
)


def told(kind: NoticeKind, about: NotifiedReservation = BOOKING, **fields: object) -> str:
    occurrence = NoticedEvent(kind, "event", NOW, "root", None)
    notice = notice_of(replace(occurrence, **fields), about, user="ada", delivery="evt-1-ntg-1")  # type: ignore[arg-type]
    return f"{notice.subject}\n{notice.text}"


@pytest.mark.parametrize("kind", NoticeKind)
@pytest.mark.parametrize("about", [BOOKING, JOB])
def test_every_kind_says_what_it_is_about(kind: NoticeKind, about: NotifiedReservation) -> None:
    text = told(kind, about)
    assert text.startswith("[gpu-dev] ")
    assert text.count(about.id) >= 2
    assert "None" not in text
    assert "booking_id" not in text, "a field of REST"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            NoticeKind.CONFIRMED,
            "4 x h100 on each of 2 nodes, from Tue 1 Jan 2030 13:00 to 15:00 UTC",
        ),
        (NoticeKind.MOVED, "was changed by root"),
        (NoticeKind.STARTING_SOON, "starts at Tue 1 Jan 2030 13:00 UTC (in 1 hour)"),
        (NoticeKind.ENDING_SOON, "ends at Tue 1 Jan 2030 15:00 UTC (in 3 hours)"),
        (NoticeKind.OFFERED, "held for you until Tue 1 Jan 2030 12:15 UTC"),
        (NoticeKind.NO_SHOW, "released at Tue 1 Jan 2030 13:30 UTC"),
        (NoticeKind.CANCELLED, "cancelled by root"),
        (NoticeKind.IDLE, "have been idle since"),
    ],
)
def test_what_counts_is_in_it(kind: NoticeKind, words: str) -> None:
    assert words in told(kind)


def test_times_in_reasons_are_written_as_all_others() -> None:
    why = "3 errors within 24 h: Xid 79 at 2030-01-01T11:00:00Z"
    assert "Xid 79 at Tue 1 Jan 2030 11:00 UTC" in told(NoticeKind.GPU_HEALTH, JOB, data={"gpu": "a/1", "why": why})
    cut = "The booking was cut to 2030-01-01T11:00:00Z to 2030-01-01T12:00:00Z."
    assert "cut to Tue 1 Jan 2030 11:00 to 12:00 UTC" in told(NoticeKind.MOVED, reason=cut)


def test_a_warning_of_idle_gpus_says_each_thing_once() -> None:
    data = {"idle_since": "2030-01-01T11:00:00+00:00", "release_at": "2030-01-01T12:30:00+00:00"}
    reason = "Its GPUs have been idle since 2030-01-01T11:00:00Z. They go to others at 2030-01-01T12:30:00Z."
    follows = "They go to others at Tue 1 Jan 2030 12:30 UTC if they still are."
    assert told(NoticeKind.IDLE, JOB, data=data, reason=reason).splitlines()[1:] == [
        "The GPUs of your job job-1 have been idle since Tue 1 Jan 2030 11:00 UTC.",
        "",
        f"{follows} If you need it, keep it: `gpu-dev keep job-1`.",
    ]


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (timedelta(seconds=45), "(in 45 seconds)"),
        (timedelta(minutes=1), "(in 1 minute)"),
        (timedelta(minutes=9, seconds=58), "(in 10 minutes)"),
        (timedelta(minutes=90), "(in 1 hour 30 minutes)"),
        (timedelta(hours=2), "(in 2 hours)"),
        (timedelta(hours=36), "(in 1 day 12 hours)"),
    ],
)
def test_the_time_that_is_left_is_exact(left: timedelta, words: str) -> None:
    assert words in told(NoticeKind.STARTING_SOON, replace(BOOKING, starts_at=NOW + left))


def test_what_begins_now_has_no_time_left() -> None:
    assert "(in " not in told(NoticeKind.STARTING_SOON, replace(BOOKING, starts_at=NOW + timedelta(milliseconds=1)))


@pytest.mark.parametrize("about", [BOOKING, None])
def test_of_a_pod_that_had_to_go_it_is_said_which_and_why(about: NotifiedReservation | None) -> None:
    data = {"namespace": "lab", "name": "train-0\nX", "why": "Its cards are needed for bkg-7."}
    reason = data["why"] if about is not None else None
    occurrence = NoticedEvent(NoticeKind.ENDED, "pod_displaced", NOW, "system", reason, data)
    notice = notice_of(occurrence, about, user="ada", delivery="evt-1-ntg-1")
    assert notice.subject == "[gpu-dev] pod lab/train-0 X: ended"
    assert notice.text == "Your pod lab/train-0 X is ended before its time.\n\nIts cards are needed for bkg-7."
    assert notice.about is about


def test_who_waited_in_vain_is_not_told_of_an_offer() -> None:
    assert "could not be booked" in told(NoticeKind.OFFER_EXPIRED, event="booking_wait_expired")
    assert "The offer for" in told(NoticeKind.OFFER_EXPIRED, event="booking_offer_expired")


def test_maintenance_says_what_becomes_of_it() -> None:
    window = {"starts_at": "2030-01-02T00:00:00+00:00", "ends_at": "2030-01-02T06:00:00+00:00"}
    text = told(NoticeKind.MAINTENANCE, JOB, data=window | {"job_ends_by": "2030-01-01T23:59:00+00:00"})
    assert "from Wed 2 Jan 2030 00:00 to 06:00 UTC" in text
    assert "ended by Tue 1 Jan 2030 23:59 UTC" in text
    assert "waits for other GPUs" in told(NoticeKind.MAINTENANCE, JOB, data=window)
    assert "gpu-dev book show bkg-1" in told(NoticeKind.MAINTENANCE, data=window)


def test_the_event_knows_better_than_the_row_that_has_changed_since() -> None:
    data = {"start": "2030-02-01T00:00:00+00:00", "end": "2030-02-02T00:00:00+00:00"}
    assert "from Fri 1 Feb 2030 00:00 to Sat 2 Feb 2030 00:00 UTC" in told(NoticeKind.CONFIRMED, data=data)


@pytest.mark.parametrize("value", [None, 7, "soon", "2030-01-01T00:00:00", ["x"]])
def test_what_an_event_says_in_no_known_form_is_nothing(value: object) -> None:
    assert "13:00 to 15:00 UTC" in told(NoticeKind.CONFIRMED, data={"start": value})


def test_a_job_that_ended_well_says_so() -> None:
    assert "has ended well" in told(NoticeKind.ENDED, JOB, event="succeeded")
    assert "has ended." in told(NoticeKind.ENDED, JOB, event="expired")


def test_a_promised_start_is_lost_before_it_or_missed_after_it() -> None:
    promised = {"promised_start_at": "2030-01-01T14:00:00Z", "estimated_start_at": "2030-01-03T09:00:00Z"}
    lost = told(NoticeKind.PROMISE_MISSED, JOB, data=promised)
    assert (
        "has lost its promised start, Tue 1 Jan 2030 14:00 UTC. Now it starts about Thu 3 Jan 2030 09:00 UTC." in lost
    )
    assert "it starts in time all the same" in lost
    missed = told(NoticeKind.PROMISE_MISSED, JOB, data=promised, at=NOW + timedelta(hours=2))
    assert "could not start at the time that was promised" in missed


@given(st.text(max_size=300), st.text(max_size=3000))
def test_names_and_reasons_stay_on_their_line(name: str, reason: str) -> None:
    notice = notice_of(
        NoticedEvent(NoticeKind.FAILED, "failed", NOW, "system", reason or None),
        replace(JOB, name=name or None), user="ada", delivery="d",
    )  # fmt: skip
    assert notice.subject.isprintable()
    assert len(notice.subject) < 250
    assert all(line.isprintable() for line in notice.text.split("\n"))
    assert len(notice.text.split("\n\n")) <= 3


@given(st.text(), st.integers(1, 50))
def test_one_line_is_one_and_not_longer(text: str, longest: int) -> None:
    line = one_line(text, longest)
    assert line.isprintable()
    assert len(line) <= longest


def test_what_is_no_event_has_words_too() -> None:
    assert "test" in trial_notice(user="ada", delivery="tst-1", at=NOW).text
    mail = verification_notice("code-abc", target="ntg-1", user="ada", delivery="ver-1", at=NOW)
    assert "code-abc" in mail.text
    assert "code-abc" not in mail.subject
