"""A job's events and its log as streams that survive a broken connection.

Events resume by `Last-Event-ID`. A log is always sent from its beginning, so a reconnection skips what was passed on:
by bytes for one pod, by lines of each rank (`[rank] `) for a gang, whose ranks interleave differently every time.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from gpu_dev.errors import ApiError
from gpu_dev.server.exchange import PATIENT_S, Exchange, read_answer
from gpu_dev.server.transport import SilenceError, TransportError
from gpu_dev.wire.audit_log import JobEvent
from gpu_dev.wire.jobs import Job
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus

EVENT_SILENCE_S = 45.0
"""The server sends something on an event stream every 15 s; after three times that the connection is dead."""
_RANK = re.compile(rb"\[(\d+)\] ")
_FINAL = frozenset(status.value for status in FINAL_STATUSES)
_SERVER_ERROR = 500
_TEXT = {"Accept": "text/plain, application/problem+json"}


class Patience:
    """Pauses between reconnections: they grow while nothing arrives, and start anew when something does."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._failures = 0

    def reward(self) -> None:
        """Start anew with short pauses, because something arrived."""
        self._failures = 0

    def spend(self, error: Exception | None = None) -> None:
        """Pause before the next attempt. Raises UnreachableError when the attempts after errors run out."""
        if error is not None and self._failures == len(PATIENT_S):
            raise self._exchange.unreachable(error) from error
        self._exchange.sleep(PATIENT_S[min(self._failures, len(PATIENT_S) - 1)])
        self._failures += 1


class ResumableLog:
    """Remembers how much of a log was passed on, so that a new read from its start repeats nothing.

    `attempt` is the one whose log it is, 0 the first one that prints anything.
    """

    def __init__(self, pods: int, attempt: int = 0) -> None:
        self._by_rank = pods > 1
        self.attempt = attempt
        self._passed_bytes = 0
        self._seen_bytes = 0
        self._passed_lines: dict[bytes, int] = {}
        self._seen_lines: dict[bytes, int] = {}
        self._partial = b""

    def go_on(self) -> None:
        """Turn to the next attempt, of which nothing was passed on."""
        self.attempt += 1
        self._passed_bytes, self._passed_lines = 0, {}

    def restart(self) -> None:
        """Prepare for the log's beginning."""
        self._seen_bytes = 0
        self._seen_lines = {}
        self._partial = b""

    def feed(self, chunk: bytes) -> bytes:
        """The part of the chunk that was not passed on before."""
        if self._by_rank:
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            return b"".join(self._new_line(line + b"\n") for line in lines)
        skip = min(max(self._passed_bytes - self._seen_bytes, 0), len(chunk))
        self._seen_bytes += len(chunk)
        self._passed_bytes = max(self._passed_bytes, self._seen_bytes)
        return chunk[skip:]

    def finish(self) -> bytes:
        """The rest of an ended log: a last line without a line break."""
        rest, self._partial = self._partial, b""
        return self._new_line(rest) if rest else b""

    def _new_line(self, line: bytes) -> bytes:
        match = _RANK.match(line)
        rank = match[1] if match else b""
        seen = self._seen_lines[rank] = self._seen_lines.get(rank, 0) + 1
        if seen <= self._passed_lines.get(rank, 0):
            return b""
        self._passed_lines[rank] = seen
        return line


def follow_log(
    exchange: Exchange, path: str, job: Callable[[], Job], log: ResumableLog, *, timestamps: bool = False
) -> Iterator[bytes]:
    """A job's output until the job has ended and all of it was read, over any number of connections and attempts.

    `log` may have been used before: reading then goes on where it stopped.
    """
    patience = Patience(exchange)
    while True:
        broken: Exception | None = None
        try:
            log.restart()
            asked = _asked(True, timestamps, log.attempt)
            with exchange.stream(f"{path}/logs", params=asked, headers={"Accept": "text/plain"}) as body:
                for chunk in body.chunks():
                    fresh = log.feed(chunk)
                    if fresh:
                        patience.reward()
                        yield fresh
        except TransportError as error:
            broken = error
        except ApiError as error:
            if error.problem.status < _SERVER_ERROR:
                raise
            broken = error
        # An orderly end is the log's end only if the attempt has ended: a server that shuts down ends streams as well.
        if broken is None:
            now = job()
            while 0 < now.attempt == log.attempt and now.status is JobStatus.QUEUED:
                patience.spend()  # it is to be retried; what it printed so far was read
                now = job()
            patience.reward()
            has_ended = now.status in FINAL_STATUSES
            if has_ended or now.attempt > log.attempt:
                yield log.finish()
            if has_ended and (now.attempt == log.attempt or log.attempt == 0):
                return
            if now.attempt > log.attempt > 0:
                log.go_on()
                continue
        patience.spend(broken)


def _asked(follow: bool, timestamps: bool, attempt: int | None) -> dict[str, str]:
    """The query; older servers refuse words that they don't know, so these are sent only where they are wanted."""
    asked = {"follow": "true" if follow else "false"} | ({"timestamps": "true"} if timestamps else {})
    return asked | ({"attempt": str(attempt)} if attempt else {})


def read_log(exchange: Exchange, path: str, *, timestamps: bool = False, attempt: int | None = None) -> Iterator[bytes]:
    """A job's output so far, by default of its newest attempt.

    Raises UnreachableError if the connection breaks in the middle.
    """
    try:
        with exchange.stream(f"{path}/logs", params=_asked(False, timestamps, attempt), headers=_TEXT) as body:
            yield from body.chunks()
    except TransportError as error:
        raise exchange.unreachable(error) from error


def follow_events(exchange: Exchange, path: str, job: Callable[[], Job], after: int) -> Iterator[JobEvent]:
    """A job's events after the id `after`, until its last one, over any number of connections, none twice."""
    patience = Patience(exchange)
    while True:
        broken: Exception | None = None
        # As with the log: if the job had ended before the stream was opened, the stream was complete.
        ended = job().status in FINAL_STATUSES
        try:
            for event in _events(exchange, path, after, EVENT_SILENCE_S):
                if event.id <= after:
                    continue
                after = event.id
                patience.reward()
                yield event
                if event.after in _FINAL:
                    return
        except TransportError as error:
            broken = error
        except ApiError as error:
            if error.problem.status < _SERVER_ERROR:
                raise
            broken = error
        if broken is None and ended:
            return
        patience.spend(broken)


def read_events(exchange: Exchange, path: str, after: int, quiet_s: float) -> Iterator[JobEvent]:
    """The events so far: the stream's beginning, until it is silent for `quiet_s` seconds."""
    try:
        yield from _events(exchange, path, after, quiet_s)
    except SilenceError:
        return
    except TransportError as error:
        raise exchange.unreachable(error) from error


def _events(exchange: Exchange, path: str, after: int, silence_s: float) -> Iterator[JobEvent]:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store", "Last-Event-ID": str(after)}
    with exchange.stream(f"{path}/events", headers=headers, silence_s=silence_s) as body:
        for data in _sent_data(body.chunks()):
            yield read_answer(JobEvent, data)


def _sent_data(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The data of server-sent events (WHATWG HTML, section 9.2.6) as this server sends them; one cut off is none."""
    partial = b""
    data: list[bytes] = []
    for chunk in chunks:
        *lines, partial = (partial + chunk).split(b"\n")
        for line in lines:
            name, _, value = line.removesuffix(b"\r").partition(b":")
            if name == b"data":
                data.append(value.removeprefix(b" "))
            elif not line.strip():
                if any(data):
                    yield b"\n".join(data)
                data = []
