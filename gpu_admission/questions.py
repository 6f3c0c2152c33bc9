"""What schedulers ask: a body in, an answer out, and each call counted.

Most questions are asked three times for every pod, so nothing stands between them and the connection that isn't needed:
see `question_protocol`. What comes in any unusual way comes through the ASGI application instead, and ends here, too.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter

import structlog
from starlette.types import Receive, Scope, Send

from gpu_admission.bodies import QuestionBodies, RefusedQuestionBodyError
from gpu_admission.json_walk import BadJsonError
from gpu_admission.metrics import Call, CallOutcome, ExtenderMetrics
from pod_scheduling.ports.extender import NotSyncedError

Answer = tuple[bytes, CallOutcome]

_KIND = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Told:
    """An answer as HTTP has it; `last`: the connection is closed after it."""

    status: int
    content: bytes
    last: bool = False


@dataclass(slots=True)
class ExtenderCondition:
    """How the process is. `draining`: it is about to end, and is not to be sent anything new."""

    draining: bool = False


@dataclass(frozen=True, slots=True)
class CallAnswers:
    """How one kind of call is answered, by its body; `problem` writes one as the asking scheduler's type has it.

    `at_once` answers where nothing has to be waited for, and gives None else; without it all is waited for.
    """

    call: Call
    answer: Callable[[bytes], Awaitable[Answer]]
    problem: Callable[[str], bytes]
    at_once: Callable[[bytes], Answer | None] | None = None


class CallAtWork:
    """One kind of call at work."""

    def __init__(
        self, asked: CallAnswers, bodies: QuestionBodies, metrics: ExtenderMetrics, condition: ExtenderCondition
    ) -> None:
        self._asked = asked
        self._bodies = bodies
        self._metrics = metrics
        self._condition = condition

    def told_at_once(self, body: bytes) -> Told | None:
        """The answer, or None where it has to be waited for: with `told`."""
        if self._asked.at_once is None:
            return None
        started = perf_counter()
        try:
            answer = self._asked.at_once(body)
        except Exception as problem:  # noqa: BLE001 - the boundary
            return self._refused(problem, started)
        return None if answer is None else self._answered(answer, started)

    async def told(self, body: bytes) -> Told:
        """The answer."""
        started = perf_counter()
        try:
            return self._answered(await self._asked.answer(body), started)
        except Exception as problem:  # noqa: BLE001 - the boundary
            return self._refused(problem, started)

    def too_late(self) -> Told:
        """The answer to a body that did not come in time."""
        return self._refused(self._bodies.late(), perf_counter())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as an ASGI application."""
        started = perf_counter()
        try:
            async with self._bodies.of(scope, receive) as body:
                told = self._answered(await self._asked.answer(body), started)
        except Exception as problem:  # noqa: BLE001 - the boundary
            told = self._refused(problem, started)
        headers = [(b"content-length", b"%d" % len(told.content)), _KIND]
        if told.last or self._condition.draining:  # what comes next is asked of another replica
            headers.append(_CLOSE)
        await send({"type": "http.response.start", "status": told.status, "headers": headers})
        await send({"type": "http.response.body", "body": told.content})

    def _answered(self, answer: Answer, started: float) -> Told:
        content, outcome = answer
        self._metrics.called(self._asked.call, outcome, perf_counter() - started)
        return Told(200, content)

    def _refused(self, problem: Exception, started: float) -> Told:
        status, outcome, last, why = 500, CallOutcome.ERROR, False, str(problem)
        match problem:
            case BadJsonError():
                status, outcome = 400, CallOutcome.BAD_REQUEST
            case RefusedQuestionBodyError():
                status, outcome, last = problem.status, CallOutcome.BAD_REQUEST, True
            case NotSyncedError():
                status, outcome = _status_of_silence(self._asked.call), CallOutcome.NOT_SYNCED
            case _:  # it is in the log, and what went wrong is nobody's business
                _log.error("call_failed", call=self._asked.call.value, exc_info=problem)
                why = "something went wrong in gpu-admission; its log says what"
        if outcome is CallOutcome.BAD_REQUEST:  # of such an answer a scheduler shows the status alone
            _log.warning("question_refused", call=self._asked.call.value, status=status, why=why)
        self._metrics.called(self._asked.call, outcome, perf_counter() - started)
        return Told(status, self._asked.problem(why), last)


def _status_of_silence(call: Call) -> int:
    """The status of an answer that nothing can be said now.

    kube-scheduler shows its user the text of an `Error`, and of any other status only its number; either way it asks
    again. What has no room for a text is told by the status alone.
    """
    return 200 if call in (Call.FILTER, Call.BIND) else 503
