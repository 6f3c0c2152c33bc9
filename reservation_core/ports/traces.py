"""Traces of jobs from their submission until they run, for a collector of OpenTelemetry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

_MOST_KNOWN: Final = 20_000


@dataclass(frozen=True, slots=True)
class Span:
    """One step of a job and its time. `trace` is the job's (see `Traces.begin`); `error` is set if it failed."""

    name: str
    job: str
    trace: str
    begun: datetime
    ended: datetime
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    error: str | None = None


class Traces(Protocol):
    """Where spans go. Nothing waits for the collector: what it does not take in time is lost."""

    def begin(self) -> str:
        """A new trace, in the form of the header `traceparent` of W3C Trace Context."""
        ...

    def add_root(self, span: Span) -> None:
        """Add the span that a trace began with, which all others of this trace lie below."""
        ...

    def add(self, span: Span) -> None:
        """Add another span of a trace."""
        ...

    async def close(self) -> None:
        """Send what was added, for a bounded time."""
        ...


def trace_id_of(trace: str) -> str:
    """The id by which collectors find a trace: 32 hexadecimal digits."""
    return trace.split("-")[1]


class KnownTraces:
    """The ids of traces by job, of the rows that this process has read last: log lines that name a job get them."""

    def __init__(self, most: int = _MOST_KNOWN) -> None:
        self._most = most
        self._ids: dict[str, str] = {}

    def note(self, job: str, trace: str) -> None:
        """Remember the trace of a job; that of the row which was read longest ago is forgotten for it."""
        self._ids.pop(job, None)
        if len(self._ids) >= self._most:
            self._ids.pop(next(iter(self._ids)), None)
        self._ids[job] = trace_id_of(trace)

    def id_of(self, job: str) -> str | None:
        """The id of a job's trace, where this process knows it."""
        return self._ids.get(job)


known_traces: Final = KnownTraces()
