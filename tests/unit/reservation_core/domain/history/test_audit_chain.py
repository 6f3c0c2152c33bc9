"""The chain of digests: what is hashed, and that no change of it passes."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.contracts.audit_log import ChainLineOut
from reservation_core.domain.history.audit_chain import (
    GENESIS,
    AuditedEvent,
    ChainCheck,
    ChainLine,
    Link,
    Removals,
    chained,
    content_digest,
    lines,
    link_digest,
)

AT = datetime(2030, 1, 2, 3, 4, 5, 60, UTC)
NOTHING_REMOVED = Removals(datetime(1970, 1, 1, tzinfo=UTC), 0)
BEFORE_ALL = Link(0, 0, datetime(1970, 1, 1, tzinfo=UTC), GENESIS, GENESIS)


def event(number: int, **fields: object) -> AuditedEvent:
    standard: dict[str, object] = {
        "id": number, "at": AT + timedelta(seconds=number), "actor": "ann", "kind": "node_fenced",
        "reservation_id": None, "subject": f"node-{number}", "before": None, "after": None, "reason_code": None,
        "reason": None, "data": {},
    }  # fmt: skip
    return AuditedEvent(**{**standard, **fields})  # type: ignore[arg-type]


def log(count: int = 6) -> list[ChainLine]:
    """A whole log, with holes between the ids."""
    events = [event(3 * number) for number in range(1, count + 1)]
    return list(lines(BEFORE_ALL, chained(BEFORE_ALL, events), events, NOTHING_REMOVED))


def problems(checked: list[ChainLine], noted: tuple[int, str] | None = None) -> list[str]:
    check = ChainCheck(noted)
    for line in checked:
        check.take(line)
    check.finish()
    assert check.count == len(check.problems)
    return check.problems


def test_what_is_hashed_is_what_the_documents_say() -> None:
    """Others check exports by this."""
    made = event(7, reason="für ☃", data={"b": 1.5, "a": [None, 2]})
    text = (
        '{"actor":"ann","after":null,"at":"2030-01-02T03:04:12.000060Z","before":null,"data":{"a":[null,2],"b":1.5},'
        '"id":7,"kind":"node_fenced","reason":"für ☃","reason_code":null,"reservation_id":null,"subject":"node-7"}'
    )
    content = sha256(text.encode()).hexdigest()
    assert content_digest(made) == content
    link = f'{{"at":"2030-01-02T03:04:12.000060Z","content":"{content}","id":7,"position":1,"previous":"{GENESIS}"}}'
    assert link_digest(GENESIS, 1, 7, made.at, content) == sha256(link.encode()).hexdigest()
    elsewhere = replace(made, at=made.at.astimezone(timezone(timedelta(hours=5))))
    assert content_digest(elsewhere) == content


TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]))
DATA = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.floats(allow_nan=False) | TEXTS, max_size=3)


@given(st.integers(-(2**63), 2**63), st.lists(TEXTS, min_size=6, max_size=6), st.text(max_size=9), DATA)
def test_any_event_is_hashed_as_sorted_json(number: int, texts: list[str | None], kind: str, data: object) -> None:
    names = ("reservation_id", "subject", "before", "after", "reason_code", "reason")
    made = event(1, **{"id": number, "kind": kind, "data": data, **dict(zip(names, texts, strict=True))})
    fields = {**asdict(made), "at": made.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert content_digest(made) == sha256(text.encode()).hexdigest()


def test_a_whole_log_is_whole_from_any_line_on() -> None:
    whole = log()
    for first in range(len(whole)):
        assert problems(whole[first:]) == []
    check = ChainCheck()
    for line in whole:
        check.take(line)
    assert (check.first, check.events, check.head) == (1, 6, (6, whole[-1].digest))


@pytest.mark.parametrize(
    "change",
    [
        {"actor": "eve"}, {"kind": "node_unfenced"}, {"at": AT}, {"id": 8}, {"reservation_id": "job-a"},
        {"subject": None}, {"before": "x"}, {"after": "x"}, {"reason_code": "x"}, {"reason": "x"}, {"data": {"x": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_a_change_of_any_field_is_found(change: dict[str, object]) -> None:
    for number in range(6):
        changed = log()
        line = changed[number]
        assert line.event is not None
        changed[number] = replace(line, event=replace(line.event, **change))
        assert problems(changed) == [
            f"Event {changed[number].event.id} at position {number + 1} is not as it was chained."  # type: ignore[union-attr]
        ]


CHANGES: list[tuple[str, Callable[[list[ChainLine]], list[ChainLine]], str]] = [
    ("one removed", lambda log: log[:2] + log[3:], "Lines are missing between positions 2 and 4."),
    ("two swapped", lambda log: [log[0], log[2], log[1], *log[3:]], "Position 2 comes after position 3."),
    ("one twice", lambda log: [*log[:3], *log[2:]], "Position 3 comes after position 3."),
    ("one inserted", lambda log: [*log[:2], ChainLine(None, None, None, event(8), None), *log[2:]], "Event 8 of"),
    ("no genesis", lambda log: [replace(log[0], previous="1" * 64), *log[1:]], "Position 1 names a digest before it"),
    ("no event", lambda log: [*log[:2], replace(log[2], event=None), *log[3:]], "Position 3 has no event."),
]


@pytest.mark.parametrize(
    ("change", "said"), [listed_case[1:] for listed_case in CHANGES], ids=[listed_case[0] for listed_case in CHANGES]
)
def test_removed_inserted_and_moved_lines_are_found(
    change: Callable[[list[ChainLine]], list[ChainLine]], said: str
) -> None:
    assert any(problem.startswith(said) for problem in problems(change(log())))


def test_a_line_that_was_made_anew_does_not_fit_the_next() -> None:
    whole = log()
    before = Link(2, 6, AT, GENESIS, whole[1].digest or "")
    forged = event(9, actor="eve")
    changed = [*whole[:2], *lines(before, chained(before, [forged]), [forged], NOTHING_REMOVED), *whole[3:]]
    assert problems(changed) == ["Position 4 does not follow the digest of position 3."]


def test_a_chain_that_was_made_anew_lacks_what_was_noted() -> None:
    whole = log()
    events = [line.event for line in whole if line.event is not None]
    events[2] = replace(events[2], actor="eve")
    anew = list(lines(BEFORE_ALL, chained(BEFORE_ALL, events), events, NOTHING_REMOVED))
    noted = (5, whole[4].digest or "")
    assert problems(anew) == []
    assert problems(whole, noted) == []
    assert problems(anew, noted) == ["The digest at position 5 is not the one that was noted."]
    assert problems(whole[:4], noted) == ["The noted position 5 is beyond the end: lines are missing there."]
    assert problems([], noted) == ["The noted position 5 is beyond the end: lines are missing there."]
    assert len(problems(whole[5:], noted)) == 1


def test_what_retention_removed_is_told_from_what_was_deleted() -> None:
    events = [event(number) for number in range(1, 7)]
    links = list(chained(BEFORE_ALL, events))
    removals = Removals(AT + timedelta(seconds=4), 5)
    # 2 was old and is gone; 4 was not old; 6 was recorded later.
    kept = [audited for audited in events if audited.id not in (2, 4)]
    assert problems(list(lines(BEFORE_ALL, links, kept, removals))) == [
        "Event 4 of 2030-01-02T03:04:09.000060Z at position 4 was deleted."
    ]
    # To say that it was old changes its time, which is in the digest of its link.
    links[3] = replace(links[3], at=AT)
    said = problems(list(lines(BEFORE_ALL, links, kept, removals)))
    assert said == ["Event 4 at position 4 is not as it was chained."]


def test_events_beside_the_chain_are_shown() -> None:
    whole = [event(number) for number in (1, 3, 5)]
    links = list(chained(BEFORE_ALL, whole))
    others = [event(-4), event(2), replace(whole[1], actor="eve"), event(4)]
    shown = list(lines(BEFORE_ALL, links, [whole[0], whole[1], whole[2], *others], NOTHING_REMOVED))
    assert [(line.position, line.event and line.event.id) for line in shown] == [
        (None, -4), (1, 1), (None, 2), (2, 3), (None, 3), (None, 4), (3, 5),
    ]  # fmt: skip
    assert len(problems(shown)) == 4


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(data=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), JSON, max_size=3),
       at=st.datetimes(timezones=st.just(UTC)))  # fmt: skip
def test_a_line_on_the_wire_is_the_same_line(data: dict[str, object], at: datetime) -> None:
    made = event(1, data=data, at=at)
    [line] = lines(BEFORE_ALL, chained(BEFORE_ALL, [made]), [made], NOTHING_REMOVED)
    read = ChainLineOut.model_validate_json(ChainLineOut.of(line).model_dump_json()).line()
    assert problems([read]) == []
