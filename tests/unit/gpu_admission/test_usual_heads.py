"""Which heads are those of usual questions, and which are left to a parser that knows all others."""

import pytest

from gpu_admission.bodies import SMALL_BYTES
from gpu_admission.usual_heads import UsualHeads

LINES = [
    b"POST /scheduler/bind HTTP/1.1", b"Host: 127.0.0.1:3456", b"User-Agent: Go-http-client/1.1",
    b"Content-Length: 12", b"Content-Type: application/json", b"Accept-Encoding: gzip",
]  # fmt: skip


def head(*lines: bytes) -> bytes:
    return b"\r\n".join([*lines, b"", b""])


@pytest.fixture
def heads() -> UsualHeads[str]:
    return UsualHeads({b"/scheduler/bind": "bind", b"/scheduler/predicates": "filter"})


def test_a_usual_head_says_where_its_body_is(heads: UsualHeads[str]) -> None:
    begins = len(head(*LINES))
    for data in (head(*LINES), head(*LINES) + b"{", head(*LINES) + b"x" * 12 + head(*LINES)):
        assert heads.begun_by(data) == ("bind", begins, begins + 12)
    other = head(b"POST /scheduler/predicates HTTP/1.1", b"content-length: 7", b"CONTENT-TYPE: application/json")
    assert heads.begun_by(other) == ("filter", len(other), len(other) + 7)


@pytest.mark.parametrize(
    "lines",
    [
        [b"GET /scheduler/bind HTTP/1.1", *LINES[1:]],
        [b"POST /scheduler/bind HTTP/1.0", *LINES[1:]],
        [b"POST /scheduler/bind?x=1 HTTP/1.1", *LINES[1:]],
        [b"POST /scheduler/other HTTP/1.1", *LINES[1:]],
        [b"POST  /scheduler/bind HTTP/1.1", *LINES[1:]],
        [b" POST /scheduler/bind HTTP/1.1", *LINES[1:]],
        [*LINES, b"Connection: close"],
        [*LINES, b"Transfer-Encoding: chunked"],
        [*LINES, b"Expect: 100-continue"],
        [*LINES, b"Content-Length: 12"],
        [*LINES, b"content-length: 13"],
        [*LINES, b"Host : x"],
        [*LINES, b" folded"],
        [*LINES[:3], *LINES[4:]],
        [*LINES[:4], *LINES[5:]],
        [*LINES[:4], b"Content-Type: text/plain", LINES[5]],
        [*LINES[:3], b"Content-Length: 012", *LINES[4:]],
        [*LINES[:3], b"Content-Length: +12", *LINES[4:]],
        [*LINES[:3], b"Content-Length: 0", *LINES[4:]],
        [*LINES[:3], b"Content-Length: %d" % (SMALL_BYTES + 1), *LINES[4:]],
        [*LINES[:2], b"User-Agent: a\nContent-Length: 3", *LINES[3:]],
        [*LINES[:2], b"User-Agent: \xff", *LINES[3:]],
        [LINES[0], b"Host: " + b"x" * 3000, *LINES[2:]],
    ],
)
def test_whatever_differs_is_none(heads: UsualHeads[str], lines: list[bytes]) -> None:
    assert heads.begun_by(head(*lines)) is None
    assert heads.begun_by(head(*LINES)[:-1]) is None
    assert heads.begun_by(b"\r\n" + head(*LINES)) is None


def test_however_many_heads_there_were_each_is_read_right(heads: UsualHeads[str]) -> None:
    for length in [*range(1, 3000), *range(1, 3000, 7)]:
        data = head(*LINES[:3], b"Content-Length: %d" % length, *LINES[4:])
        assert heads.begun_by(data) == ("bind", len(data), len(data) + length)
    assert len(heads._known) <= 1024
