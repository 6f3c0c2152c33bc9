"""Bodies of reviews: bounded one by one, together, and in time.

Anybody who reaches the port may send one. Large bodies share one budget, and a review beyond it gets 503, which API
servers retry by themselves; usual reviews are small, and go on beside it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request

SMALL_BYTES = 64 * 1024
"""So much of each body needs no room: more than most reviews have."""

RETRY_S = 1


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """`largest`: bytes of a body. `room`: bytes of all together, but for what is small of each. `most`: bodies at once.

    `patience_s`: how long one may take to come.
    """

    largest: int
    room: int
    most: int = 512
    patience_s: float = 10


class RefusedReviewBodyError(Exception):
    """A refused body; `status` and the text say why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status

    @property
    def busy(self) -> bool:
        """The error for a body without room; the review may be sent again."""
        return self.status == HTTPStatus.SERVICE_UNAVAILABLE

    @property
    def late(self) -> bool:
        """The error for a body that did not come in time."""
        return self.status == HTTPStatus.REQUEST_TIMEOUT


class ReviewBodies:
    """The bodies that are held now."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._held = 0
        self._bodies = 0

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[bytes]:
        """The request's body, which counts until the block's end. Raises RefusedReviewBodyError."""
        self._check_head(request)
        if self._bodies >= self._limits.most:
            raise _full()
        body = bytearray()
        self._bodies += 1
        try:
            await self._read(request, body)
            yield bytes(body)
        finally:
            self._bodies -= 1
            self._held -= _large_part(len(body))

    async def _read(self, request: Request, body: bytearray) -> None:
        try:
            async with asyncio.timeout(self._limits.patience_s) as patience:
                async for chunk in request.stream():
                    size = len(body) + len(chunk)
                    if size > self._limits.largest:
                        raise self._too_large()
                    more = _large_part(size) - _large_part(len(body))
                    if self._held + more > self._limits.room:
                        raise _full()
                    self._held += more
                    body += chunk
        except TimeoutError:
            if not patience.expired():
                raise
            raise RefusedReviewBodyError(408, f"the body did not come within {self._limits.patience_s:g} s") from None
        except ClientDisconnect:
            raise RefusedReviewBodyError(400, "the sender went away") from None

    def _check_head(self, request: Request) -> None:
        headers = request.headers
        if headers.get("content-type", "").split(";", 1)[0].strip().lower() != "application/json":
            raise RefusedReviewBodyError(
                415, "send an AdmissionReview as JSON, with the header Content-Type: application/json"
            )
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise RefusedReviewBodyError(415, "compressed bodies are not taken; send plain JSON")
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and (len(announced) > 19 or int(announced) > self._limits.largest):
            raise self._too_large()

    def _too_large(self) -> RefusedReviewBodyError:
        return RefusedReviewBodyError(413, f"the body has more than {self._limits.largest} bytes")


def _large_part(size: int) -> int:
    return max(0, size - SMALL_BYTES)


def _full() -> RefusedReviewBodyError:
    return RefusedReviewBodyError(503, "too much is under way at once; come again in a moment")
