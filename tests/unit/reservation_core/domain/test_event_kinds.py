"""The kinds of events, as the domain and the SQL statements write them."""

import re
from pathlib import Path
from typing import get_args

import pytest

from reservation_core.domain.event_kinds import (
    BookingEventKind,
    EventKind,
    JobEventKind,
    known_kind,
    unknown_kind_words,
)

ROOT = Path(__file__).parents[4]
KINDS = {kind.value for kinds in get_args(EventKind) for kind in kinds}
_INSERT = re.compile(r"INSERT INTO events \([^)]*\bkind\b[^)]*\)\s+(?:SELECT|VALUES)(.*?)(?:\n\)|;|\nFROM)", re.DOTALL)
_NOTIFIED = re.compile(r"INSERT INTO notice_events \(event, kind\) VALUES(.*?);", re.DOTALL)


def test_a_kind_of_another_subject_or_version_is_unknown() -> None:
    assert known_kind(BookingEventKind, "booking_moved") is BookingEventKind.MOVED
    assert known_kind(BookingEventKind, "started") is None
    assert known_kind(JobEventKind, "frobnicated") is None


@pytest.mark.parametrize(
    ("typed", "question"),
    [
        ("booking_mved", " Did you mean booking_moved?"),
        ("snapshot", " Did you mean snapshot_deleted, snapshot_taken?"),
        ("user", " Did you mean user_created, user_disabled, user_enabled?"),
        ("foo", ""),
    ],
)
def test_an_unknown_kind_is_answered_with_those_that_are_meant(typed: str, question: str) -> None:
    assert unknown_kind_words(typed) == f"There are no events of the kind {typed!r}.{question}"


def test_of_many_kinds_the_first_are_named() -> None:
    assert unknown_kind_words("booking").endswith(", booking_offered …?")


def test_statements_write_known_kinds() -> None:
    statements = [
        values
        for path in (ROOT / "reservation_core/adapters/postgres").rglob("*.sql")
        for values in _INSERT.findall(path.read_text())
    ]
    literal = [values for values in statements if not re.search(r"\bi\.kind|\bw\.kind|:kind|:event_kind", values)]
    assert len(literal) >= 7
    for values in literal:
        assert KINDS & set(re.findall(r"'([a-z_]+)'", values)), values


def test_notifications_are_sent_of_known_kinds() -> None:
    notified = {
        event
        for path in (ROOT / "migrations/versions").rglob("*.sql")
        for rows in _NOTIFIED.findall(path.read_text())
        for event in re.findall(r"\('([a-z_]+)',", rows)
    }
    assert len(notified) > 20
    assert notified <= KINDS
