"""The chain of digests over the audit log: what is hashed, and how a chain is checked.

Digests are SHA-256 in lower-case hexadecimal, of the UTF-8 text of a JSON object: keys in the order of their code
points, no spaces, characters unescaped, times in UTC with six digits after the second and a `Z`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any

GENESIS = "0" * 64
"""The previous digest of the first link."""
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class AuditedEvent:
    """An event as it is stored; its digest covers every field."""

    id: int
    at: datetime
    actor: str
    kind: str
    reservation_id: str | None
    subject: str | None
    before: str | None
    after: str | None
    reason_code: str | None
    reason: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Link:
    """An event's place in the chain. `content` is the digest of the event, `digest` that of the link."""

    position: int
    event_id: int
    at: datetime
    content: str
    digest: str


@dataclass(frozen=True, slots=True)
class MissingEvent:
    """What a link says about an event that is missing."""

    id: int
    at: datetime
    content: str
    removed_by_retention: bool


@dataclass(frozen=True, slots=True)
class ChainLine:
    """A line of the audit log with its place in the chain, or without one if it was never chained.

    Either `event` or `missing` is set.
    """

    position: int | None
    previous: str | None
    digest: str | None
    event: AuditedEvent | None
    missing: MissingEvent | None


@dataclass(frozen=True, slots=True)
class Removals:
    """What the retention removed: events up to the id `through` whose time is before `before`."""

    before: datetime
    through: int

    def covers(self, event_id: int, at: datetime) -> bool:
        """Whether the retention can have removed a missing event."""
        return event_id <= self.through and at < self.before


@lru_cache(maxsize=64)  # an event's time is hashed twice, and those of a transaction are the same
def exact(at: datetime) -> str:
    """A time as it is hashed, to the microsecond."""
    utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return f"{utc.isoformat(timespec='microseconds')[:-6]}Z"


def content_digest(event: AuditedEvent) -> str:
    """The digest of an event. It is written field by field: an encoder that sorts takes three times as long."""
    data = _CANONICAL.encode(event.data) if event.data else "{}"
    return _digest(
        f'{{"actor":{_text(event.actor)},"after":{_text(event.after)},"at":"{exact(event.at)}",'
        f'"before":{_text(event.before)},"data":{data},"id":{event.id},"kind":{_text(event.kind)},'
        f'"reason":{_text(event.reason)},"reason_code":{_text(event.reason_code)},'
        f'"reservation_id":{_text(event.reservation_id)},"subject":{_text(event.subject)}}}'
    )


def link_digest(previous: str, position: int, event_id: int, at: datetime, content: str) -> str:
    """The digest of a link: it covers the one before it and its own fields."""
    return _digest(
        f'{{"at":"{exact(at)}","content":{_text(content)},"id":{event_id},"position":{position},'
        f'"previous":{_text(previous)}}}'
    )


def chained(head: Link, events: Iterable[AuditedEvent]) -> Iterator[Link]:
    """The links of these events, which follow `head` in the order of their ids."""
    position, previous = head.position, head.digest
    for event in events:
        position, content = position + 1, content_digest(event)
        previous = link_digest(previous, position, event.id, event.at, content)
        yield Link(position, event.id, event.at, content, previous)


def lines(
    before: Link | None, links: Iterable[Link], events: Iterable[AuditedEvent], removals: Removals
) -> Iterator[ChainLine]:
    """Links with their events, in the order of ids; events without a link and links without an event are lines, too.

    `before` is the link before the first, if it exists.
    """
    unchained: dict[int, list[AuditedEvent]] = {}
    for event in events:
        unchained.setdefault(event.id, []).append(event)
    previous = GENESIS if before is None else before.digest
    for link in links:
        for event_id in sorted(event_id for event_id in unchained if event_id < link.event_id):
            yield from map(_unchained_line, unchained.pop(event_id))
        first, *more = unchained.pop(link.event_id, [None])
        missing = MissingEvent(link.event_id, link.at, link.content, removals.covers(link.event_id, link.at))
        yield ChainLine(link.position, previous, link.digest, first, missing if first is None else None)
        yield from map(_unchained_line, more)
        previous = link.digest
    for event_id in sorted(unchained):
        yield from map(_unchained_line, unchained[event_id])


def _unchained_line(event: AuditedEvent | None) -> ChainLine:
    return ChainLine(None, None, None, event, None)


@dataclass
class ChainCheck:
    """Checks a stream of lines without keeping them. `noted`: a position and its digest from earlier."""

    noted: tuple[int, str] | None = None
    first: int | None = None
    head: tuple[int, str] | None = None
    events: int = 0
    removed: int = 0
    count: int = 0
    problems: list[str] = field(default_factory=list)

    def take(self, line: ChainLine) -> None:
        """Check the next line."""
        if line.position is None or line.digest is None or line.previous is None:
            where = "" if line.event is None else f" {line.event.id} of {exact(line.event.at)}"
            self._report(f"Event{where} is not in the chain: it was inserted later, or its link was removed.")
            return
        self._check_order(line.position, line.previous)
        if line.event is not None:
            self.events += 1
            event_id, at, content = line.event.id, line.event.at, content_digest(line.event)
        elif line.missing is not None:
            event_id, at, content = line.missing.id, line.missing.at, line.missing.content
            if line.missing.removed_by_retention:
                self.removed += 1
            else:
                self._report(f"Event {event_id} of {exact(at)} at position {line.position} was deleted.")
        else:
            self._report(f"Position {line.position} has no event.")
            return
        if link_digest(line.previous, line.position, event_id, at, content) != line.digest:
            self._report(f"Event {event_id} at position {line.position} is not as it was chained.")
        if self.noted is not None and line.position == self.noted[0] and line.digest != self.noted[1]:
            self._report(f"The digest at position {line.position} is not the one that was noted.")
        self.first = line.position if self.first is None else self.first
        self.head = (line.position, line.digest)

    def finish(self) -> None:
        """Check the end: no line follows."""
        position = None if self.noted is None else self.noted[0]
        if position is not None and (self.first is None or self.head is None or position > self.head[0]):
            self._report(f"The noted position {position} is beyond the end: lines are missing there.")
        elif position is not None and self.first is not None and position < self.first:
            self._report(
                f"The noted position {position} lies before the first one, {self.first}: it can't be compared."
                " Note a later one."
            )

    def _check_order(self, position: int, previous: str) -> None:
        if self.head is None:
            if position == 1 and previous != GENESIS:
                self._report("Position 1 names a digest before it, but is the first.")
        elif position > self.head[0] + 1:
            self._report(f"Lines are missing between positions {self.head[0]} and {position}.")
        elif position <= self.head[0]:
            self._report(f"Position {position} comes after position {self.head[0]}.")
        elif previous != self.head[1]:
            self._report(f"Position {position} does not follow the digest of position {self.head[0]}.")

    def _report(self, problem: str) -> None:
        self.count += 1
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)


def _text(value: str | None) -> str:
    return "null" if value is None else encode_basestring(value)


def _digest(canonical: str) -> str:
    return sha256(canonical.encode()).hexdigest()
