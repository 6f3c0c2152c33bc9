"""Connections on which a scheduler's usual question is answered without a detour: as it comes, in one write.

Usual is: one POST at a time to a path of the schedulers', of JSON that is announced and not large, on a connection that
is kept. All else goes the server's own way, to the ASGI application, where the same questions are answered.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gpu_admission.bodies import SMALL_BYTES
from gpu_admission.patient_protocol import PatientProtocol
from gpu_admission.questions import Condition, Question, Told

_KEPT = frozenset({b"host", b"user-agent", b"accept", b"accept-encoding", b"content-type", b"content-length"})
"""What may stand in the head of a usual question."""


class _UnderWay:
    """A question as the server sees it: until it is answered, what comes behind it waits, and nothing is closed."""

    __slots__ = ("answering", "body", "disconnected", "keep_alive", "message_event", "question", "response_complete")

    def __init__(self, question: Question) -> None:
        self.question = question
        self.body: list[bytes] = []
        self.answering = False
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False
        self.message_event = _NOBODY_WAITS


class _NobodyWaits:
    def set(self) -> None:
        """Nobody waits for the parts of a usual question."""


_NOBODY_WAITS = _NobodyWaits()


class QuestionProtocol(PatientProtocol):
    """`questions` are by their path."""

    def __init__(self, questions: Mapping[bytes, Question], condition: Condition, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._questions = questions
        self._condition = condition
        self._usual: _UnderWay | None = None

    def on_headers_complete(self) -> None:
        """Take a usual question for ourselves."""
        question = self._questions.get(self.url)
        if question is None or not self._is_usual():
            super().on_headers_complete()
            return
        self._head_came()
        self._usual = _UnderWay(question)
        self.cycle = self._usual  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """Keep a part of a usual question."""
        usual = self._usual
        if usual is None or usual.answering:
            super().on_body(body)
        else:
            usual.body.append(body)

    def on_message_complete(self) -> None:
        """Answer a usual question."""
        usual = self._usual
        if usual is None or usual.answering:
            super().on_message_complete()
            return
        self._body_came()
        usual.answering = True
        body = usual.body[0] if len(usual.body) == 1 else b"".join(usual.body)
        usual.body.clear()
        told = usual.question.told_at_once(body)
        if told is not None:
            self._tell(usual, told)
            return
        task = self.loop.create_task(self._tell_later(usual, body))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def data_received(self, data: bytes) -> None:
        """What is not all there has to come in time."""
        super().data_received(data)
        usual = self._usual
        if usual is not None and not usual.answering:
            self._await_body(self._is_late)

    def _is_usual(self) -> bool:
        before: Any = self.cycle
        kind, length = b"", b""
        for name, value in self.headers:
            if name not in _KEPT:
                return False
            if name == b"content-type":
                kind = value
            elif name == b"content-length":
                length = value
        return (
            kind == b"application/json"
            and length.isdigit()
            and len(length) < 10
            and 0 < int(length) <= SMALL_BYTES
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and (before is None or before.response_complete)
            and not self.pipeline
            and not self.flow.write_paused
            and not self._condition.draining
            and (self.limit_concurrency is None or len(self.connections) < self.limit_concurrency)
        )

    async def _tell_later(self, usual: _UnderWay, body: bytes) -> None:
        self._tell(usual, await usual.question.told(body))

    def _is_late(self) -> None:
        usual = self._usual
        if usual is not None and not usual.answering:
            usual.answering = True
            self._tell(usual, usual.question.too_late())

    def _tell(self, usual: _UnderWay, told: Told) -> None:
        self._usual = None
        if usual.disconnected or self.transport.is_closing():
            return
        content = told.content
        last = told.last or not usual.keep_alive or self._condition.draining
        head = b"".join(b"%b: %b\r\n" % each for each in self.server_state.default_headers)
        self.transport.write(
            b"%bcontent-type: application/json\r\n%b%bcontent-length: %d\r\n\r\n%b"
            % (STATUS_LINE[told.status], head, b"connection: close\r\n" if last else b"", len(content), content)
        )
        usual.response_complete = True
        if last:
            self.transport.close()
        self.on_response_complete()


def question_protocol(
    questions: Mapping[str, Question], condition: Condition, patience_s: float
) -> Callable[..., asyncio.Protocol]:
    """What makes these connections; heads, bodies and new connections have so many seconds each."""
    by_path = {path.encode(): question for path, question in questions.items()}

    def made(*args: Any, **more: Any) -> asyncio.Protocol:
        return QuestionProtocol(by_path, condition, patience_s, *args, **more)

    return made
