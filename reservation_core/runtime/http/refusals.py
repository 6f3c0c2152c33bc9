"""Answers to refused clients, and the count and log of refusals."""

import json
from http import HTTPStatus
from typing import assert_never

import structlog

from reservation_core.domain.network.http_limits import HttpLimits, Refusal

_LOG_EVERY_S = 60.0
RETRY_S = 1
_log = structlog.get_logger(__name__)


class Refusals:
    """Counts a server's refusals. A reason is logged at most once a minute, with its number of occurrences."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Refusal, 0)
        self._logged: dict[Refusal, tuple[float, int]] = {}

    def add(self, refusal: Refusal, client: object, now: float) -> None:
        """Count a refusal of a client's address; `now` is in seconds of a monotonic clock."""
        self.counts[refusal] += 1
        at, count = self._logged.get(refusal, (-_LOG_EVERY_S, 0))
        if now - at >= _LOG_EVERY_S:
            self._logged[refusal] = now, self.counts[refusal]
            address = client[0] if isinstance(client, tuple) and client else None
            _log.warning("http_refused", reason=refusal.value, client=address, times=self.counts[refusal] - count)


def answers(limits: HttpLimits) -> dict[Refusal, bytes]:
    """Whole HTTP responses (RFC 9457 problems) by reason, empty where the connection is closed without an answer."""
    return {refusal: _answer(refusal, limits) for refusal in Refusal}


def _answer(refusal: Refusal, limits: HttpLimits) -> bytes:
    answer = _status_and_detail(refusal, limits)
    if answer is None:
        return b""
    status, detail = answer
    problem = {
        "type": f"urn:gpu-dev:problem:{refusal.value}",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
    }
    content = json.dumps(problem).encode()
    retry = f"Retry-After: {RETRY_S}\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/problem+json\r\n"
        f"Content-Length: {len(content)}\r\n{retry}Connection: close\r\n\r\n"
    )
    return head.encode() + content


def _status_and_detail(refusal: Refusal, limits: HttpLimits) -> tuple[HTTPStatus, str] | None:
    match refusal:
        case Refusal.MALFORMED:
            return HTTPStatus.BAD_REQUEST, "The request is not well-formed HTTP/1.1. Correct it."
        case Refusal.HEAD_TOO_LARGE:
            detail = f"The request's head has more than {limits.head_bytes} bytes. Send fewer or shorter header fields."
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail
        case Refusal.TOO_MANY_FIELDS:
            detail = f"The request has more than {limits.head_fields} header fields. Send fewer."
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail
        case Refusal.URL_TOO_LONG:
            detail = f"The request's URL has more than {limits.url_bytes} bytes. Send a shorter one."
            return HTTPStatus.REQUEST_URI_TOO_LONG, detail
        case Refusal.UPGRADE_WITH_BODY:
            detail = "This server speaks only HTTP/1.1. Send a request that has a body without the header Upgrade."
            return HTTPStatus.BAD_REQUEST, detail
        case Refusal.HEAD_TOO_SLOW:
            detail = f"The request's head did not come within {limits.head_s:g} s. Send the request again."
            return HTTPStatus.REQUEST_TIMEOUT, detail
        case Refusal.BODY_TOO_SLOW:
            detail = (
                f"The request's body came too slowly: send {limits.body_bytes_per_s:g} bytes a second, and all within "
                f"{limits.body_s:g} s."
            )
            return HTTPStatus.REQUEST_TIMEOUT, detail
        case Refusal.SERVER_FULL:
            return HTTPStatus.SERVICE_UNAVAILABLE, "The server has too many connections. Try again in a moment."
        case Refusal.ADDRESS_FULL:
            detail = f"Your address has {limits.connections_per_address} connections already. Close some, or try again."
            return HTTPStatus.SERVICE_UNAVAILABLE, detail
        case (
            Refusal.READER_TOO_SLOW
            | Refusal.TOO_MANY_PIPELINED
            | Refusal.HANDSHAKE
            | Refusal.DISPLACED
            | Refusal.NO_DESCRIPTORS
        ):
            return None
        case _:
            assert_never(refusal)
