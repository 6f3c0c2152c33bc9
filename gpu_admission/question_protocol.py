"""Connections on which a scheduler's usual question is answered without a detour: as it comes, in one write.

Usual is what `usual_heads` knows, one at a time, on a connection that is kept. All else goes the server's own way, to
the ASGI application, where the same questions are answered. The server's parser sees nothing of usual ones: they are
looked for only where it is between two messages.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gpu_admission.questions import CallAtWork, ExtenderCondition, Told
from gpu_admission.usual_heads import UsualHeads
from reservation_core.runtime.http.bounded_protocol import BoundedProtocol, ServerBounds


class _UnderWay:
    """A question as the server sees it: until it is answered, what comes behind it waits, and nothing is closed."""

    __slots__ = ("disconnected", "keep_alive", "lacks", "message_event", "parts", "question", "response_complete")

    def __init__(self, question: CallAtWork, came: bytes, lacks: int) -> None:
        self.question = question
        self.parts = [came]
        self.lacks = lacks
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False
        self.message_event = _NOBODY_WAITS


class _NobodyWaits:
    def set(self) -> None:
        """Nobody waits for the parts of a usual question."""


_NOBODY_WAITS = _NobodyWaits()


class QuestionProtocol(BoundedProtocol):
    """`heads` know the questions by their paths, for all connections; a usual question's body has `patience_s`."""

    def __init__(
        self,
        heads: UsualHeads[CallAtWork],
        condition: ExtenderCondition,
        patience_s: float,
        bounds: ServerBounds,
        **more: Any,
    ) -> None:
        super().__init__(bounds, **more)
        self._heads = heads
        self._condition = condition
        self._patience_s = patience_s
        self._usual: _UnderWay | None = None
        self._idle: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        if self._idle is not None:
            self._idle.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take usual questions for ourselves, and leave all else to the server."""
        while data and not self.transport.is_closing():
            usual = self._usual
            if usual is not None and usual.lacks:
                data = self._go_on(usual, data)
                continue
            begun = self._heads.begun_by(data) if self._may_begin() else None
            if begun is None:
                super().data_received(data)
                return
            data = self._begin(*begun, data)

    def _may_begin(self) -> bool:
        before: Any = self.cycle
        return (
            self.between_messages
            and (before is None or before.response_complete)
            and not self.pipeline
            and not self.flow.write_paused
            and not self._condition.draining
        )

    def _begin(self, question: CallAtWork, begins: int, ends: int, data: bytes) -> bytes:
        """A usual question's head has come; what is behind the question."""
        self._unset_keepalive_if_required()
        self._head_came()
        lacks = ends - len(data)
        if lacks > 0:
            self._usual = usual = _UnderWay(question, data[begins:], lacks)
            self.cycle = usual  # type: ignore[assignment]
            self._late = self.loop.call_later(self._patience_s, self._is_late)
            return b""
        body = data[begins:ends]
        told = question.told_at_once(body)
        if told is None:
            self._usual = usual = _UnderWay(question, b"", 0)
            self.cycle = usual  # type: ignore[assignment]
            self._answer_later(usual, body)
        else:
            self._write(told, last=told.last or self._condition.draining)
            self.server_state.total_requests += 1
            if self._idle is None:
                self._idle = self.loop.call_later(self.timeout_keep_alive, self._look_idle)
        return data[ends:]

    def _go_on(self, usual: _UnderWay, data: bytes) -> bytes:
        """More of a usual question's body has come; what is behind the question."""
        behind = data[usual.lacks :]
        usual.parts.append(data[: usual.lacks])
        usual.lacks -= len(usual.parts[-1])
        if usual.lacks:
            return b""
        self._stop_waiting()
        body = b"".join(usual.parts)
        told = usual.question.told_at_once(body)
        if told is None:
            self._answer_later(usual, body)
        else:
            self._tell(usual, told)
        return behind

    def _answer_later(self, usual: _UnderWay, body: bytes) -> None:
        async def answer() -> None:
            self._tell(usual, await usual.question.told(body))

        task = self.loop.create_task(answer())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _is_late(self) -> None:
        self._late = None
        usual = self._usual
        if usual is not None and usual.lacks:
            self._tell(usual, usual.question.too_late())

    def _tell(self, usual: _UnderWay, told: Told) -> None:
        self._usual = None
        if usual.disconnected or self.transport.is_closing():
            return
        usual.response_complete = True
        self._write(told, last=told.last or not usual.keep_alive or self._condition.draining)
        self.on_response_complete()

    def _write(self, told: Told, *, last: bool) -> None:
        content = told.content
        head = b"".join([b"%b: %b\r\n" % header for header in self.server_state.default_headers])
        self.transport.write(
            b"%bcontent-type: application/json\r\n%b%bcontent-length: %d\r\n\r\n%b"
            % (STATUS_LINE[told.status], head, b"connection: close\r\n" if last else b"", len(content), content)
        )
        if last:
            self.transport.close()

    def _look_idle(self) -> None:
        """Close a connection on which nothing has come for long. The server does so itself after its own answers."""
        left_s = self.used_at + self.timeout_keep_alive - self.loop.time()
        before: Any = self.cycle
        if left_s > 0 or not (before is None or before.response_complete):
            self._idle = self.loop.call_later(max(left_s, 1.0), self._look_idle)
        else:
            self.timeout_keep_alive_handler()


def question_protocol(
    questions: Mapping[str, CallAtWork], condition: ExtenderCondition, patience_s: float
) -> Callable[..., BoundedProtocol]:
    """What makes these connections; the bodies of usual questions have so many seconds each."""
    heads = UsualHeads({path.encode(): question for path, question in questions.items()})

    def made(bounds: ServerBounds, **more: Any) -> BoundedProtocol:
        return QuestionProtocol(heads, condition, patience_s, bounds, **more)

    return made
