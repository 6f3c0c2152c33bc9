"""Events and logs over connections that break: nothing twice, nothing lost."""

from collections.abc import Callable, Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dev.errors import ApiError, UnreachableError
from gpu_dev.server.exchange import PATIENT_S
from gpu_dev.server.streams import ResumableLog
from reservation_core.contracts.audit_log import JobEvent
from reservation_core.contracts.base import ReasonOut
from tests.unit.gpu_dev.examples import NOON, a_client, job_json

RUNNING = {"code": "running", "detail": "Running."}


class Broken(httpx.SyncByteStream):
    """A body that ends in the middle with a broken connection (`whole=False`) or in order."""

    def __init__(self, *chunks: bytes, whole: bool = False) -> None:
        self.chunks = chunks
        self.whole = whole

    def __iter__(self) -> Iterator[bytes]:
        yield from self.chunks
        if not self.whole:
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


def event(number: int, after: str | None = None) -> bytes:
    one = JobEvent(
        id=number,
        at=NOON,
        kind="k",
        actor="system",
        before=None,
        after=after,
        reason=ReasonOut.model_validate(RUNNING),
        data={},
    )
    return f"id: {number}\nevent: k\ndata: {one.model_dump_json()}\n\n".encode()


def served(
    streams: list[httpx.SyncByteStream | Exception], statuses: list[str], seen: list[httpx.Headers] | None = None
) -> Callable[[httpx.Request], httpx.Response]:
    """A server that gives one of the streams after another, and one status after another (the last for ever)."""
    left = iter(streams)
    waiting = list(statuses)

    def handler(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith(("/logs", "/events")):
            status = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            return httpx.Response(200, text=job_json(status=status, reason=RUNNING))
        if seen is not None:
            seen.append(request.headers)
        one = next(left)
        if isinstance(one, Exception):
            raise one
        kind = "text/event-stream" if request.url.path.endswith("/events") else "text/plain"
        return httpx.Response(200, headers={"content-type": kind}, stream=one)

    return handler


def test_events_resume_after_the_last_one_seen() -> None:
    seen: list[httpx.Headers] = []
    streams: list[httpx.SyncByteStream | Exception] = [
        Broken(event(1), event(2), b"id: 3\nevent: k\nda"),
        httpx.ConnectError("refused"),
        Broken(b": still here\n\n", event(2), event(3), whole=True),
        Broken(event(4), event(9, "succeeded"), event(10), whole=True),
    ]
    found = [one.id for one in a_client(served(streams, ["running"], seen)).follow_events("job-7f3k9q2m")]
    assert found == [1, 2, 3, 4, 9]
    assert [headers["last-event-id"] for headers in seen] == ["0", "2", "2", "3"]


@given(st.data())
def test_events_arrive_in_pieces_of_any_size(data: st.DataObject) -> None:
    sent = b": here\n\ndata:\n\n" + event(1) + event(2).replace(b"\n", b"\r\n") + event(3, "failed")
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=20)))
    pieces = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    client = a_client(served([Broken(*pieces, whole=True)], ["running"]))
    assert [(one.id, one.after) for one in client.follow_events("job-7f3k9q2m")] == [
        (1, None),
        (2, None),
        (3, "failed"),
    ]


def test_events_of_a_job_that_had_ended_end() -> None:
    client = a_client(served([Broken(whole=True)], ["succeeded"]))
    assert list(client.follow_events("job-7f3k9q2m", after=9)) == []


def test_events_are_asked_for_once_more_when_the_job_ended_in_between() -> None:
    streams: list[httpx.SyncByteStream | Exception] = [Broken(event(1), whole=True), Broken(event(2, "failed"))]
    client = a_client(served(streams, ["running", "failed"]))
    assert [one.id for one in client.follow_events("job-7f3k9q2m")] == [1, 2]


def test_a_log_goes_on_where_it_broke() -> None:
    pauses: list[float] = []
    streams: list[httpx.SyncByteStream | Exception] = [
        Broken(b"step 1\nst"),
        Broken(b"step"),
        Broken(b"st", b"ep 1\nstep 2\n", b"ste", whole=True),
        Broken(b"step 1\nstep 2\nstep 3\n", whole=True),
    ]
    client = a_client(served(streams, ["running", "succeeded"]), pauses)
    assert b"".join(client.follow_log("job-7f3k9q2m", ResumableLog(1))) == b"step 1\nstep 2\nstep 3\n"
    assert len(pauses) == 3


def test_the_order_in_which_ranks_speak_may_change_on_the_way() -> None:
    streams: list[httpx.SyncByteStream | Exception] = [
        Broken(b"[0] a\n[1] x\n[0] b\n[1] y"),
        Broken(b"[1] x\n[1] y\n[1] z\n[0] a\n[0] b\n[0] c", whole=True),
    ]
    client = a_client(served(streams, ["succeeded"]))
    printed = b"".join(client.follow_log("job-7f3k9q2m", ResumableLog(2)))
    assert sorted(printed.splitlines()) == [b"[0] a", b"[0] b", b"[0] c", b"[1] x", b"[1] y", b"[1] z"]


@given(st.binary(max_size=200), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 50)), max_size=6))
def test_any_breaks_of_a_log_pass_every_byte_once(whole: bytes, breaks: list[tuple[int, int]]) -> None:
    log = ResumableLog(1)
    passed = b""
    for until, size in [*breaks, (len(whole), 7)]:
        log.restart()
        part = whole[:until]
        passed += b"".join(log.feed(part[at : at + size]) for at in range(0, len(part), size))
    assert passed + log.finish() == whole


@given(
    st.lists(st.lists(st.sampled_from([b"", b"a", b"[0] quoted", b"b"]), max_size=6), min_size=2, max_size=4),
    st.lists(st.tuples(st.randoms(), st.integers(0, 200), st.integers(1, 20)), max_size=5),
    st.randoms(),
)
def test_any_breaks_of_a_gangs_log_pass_every_line_once(ranks, breaks, last) -> None:  # type: ignore[no-untyped-def]
    def interleaved(random) -> bytes:  # type: ignore[no-untyped-def]
        left = [list(lines) for lines in ranks]
        out = b""
        while any(left):
            rank = random.choice([i for i, lines in enumerate(left) if lines])
            out += b"[%d] %s\n" % (rank, left[rank].pop(0))
        return out

    log = ResumableLog(len(ranks))
    passed = b""
    for random, until, size in [*breaks, (last, 10_000, 5)]:
        log.restart()
        part = interleaved(random)[:until]
        passed += b"".join(log.feed(part[at : at + size]) for at in range(0, len(part), size))
    passed += log.finish()
    for rank, lines in enumerate(ranks):
        mark = b"[%d] " % rank
        assert [one.removeprefix(mark) for one in passed.splitlines() if one.startswith(mark)] == lines


def test_a_server_that_stays_away_is_given_up() -> None:
    pauses: list[float] = []
    streams: list[httpx.SyncByteStream | Exception] = [
        Broken(b"a"),
        *(httpx.ConnectError("refused") for _ in range(len(PATIENT_S))),
    ]
    with pytest.raises(UnreachableError):
        b"".join(a_client(served(streams, ["running"]), pauses).follow_log("job-7f3k9q2m", ResumableLog(1)))
    assert pauses == list(PATIENT_S)


def test_a_refusal_in_between_is_told() -> None:
    calls = iter([httpx.Response(200, stream=Broken(b"a")), httpx.Response(404, text="gone")])
    with pytest.raises(ApiError, match="gone"):
        b"".join(a_client(lambda request: next(calls)).follow_log("job-7f3k9q2m", ResumableLog(1)))
