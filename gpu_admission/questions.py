"""Questions of schedulers: a body in, an answer out, and every call counted."""

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


@dataclass(slots=True)
class ExtenderCondition:
    """The state of the process. `draining`: it is about to end, and new questions belong to another replica."""

    draining: bool = False


@dataclass(frozen=True, slots=True)
class QuestionRoute:
    """An ASGI application for one kind of call, answered by its body; `problem` writes one in the scheduler's type."""

    call: Call
    answer: Callable[[bytes], Awaitable[Answer]]
    problem: Callable[[str], bytes]
    bodies: QuestionBodies
    metrics: ExtenderMetrics
    condition: ExtenderCondition

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one question."""
        started = perf_counter()
        status, closes = 200, False
        try:
            async with self.bodies.of(scope, receive) as body:
                content, outcome = await self.answer(body)
        except Exception as problem:  # noqa: BLE001 - the boundary
            status, outcome, why = self._refusal(problem)
            content = self.problem(why)
            closes = isinstance(problem, RefusedQuestionBodyError)
        self.metrics.called(self.call, outcome, perf_counter() - started)
        headers = [(b"content-length", b"%d" % len(content)), _KIND]
        if closes or self.condition.draining:  # the next question is for another replica
            headers.append(_CLOSE)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _refusal(self, problem: Exception) -> tuple[int, CallOutcome, str]:
        """The status of an answer without what was asked for, its outcome, and its text."""
        match problem:
            case BadJsonError():
                return self._bad_request(400, str(problem))
            case RefusedQuestionBodyError():
                return self._bad_request(problem.status, str(problem))
            case NotSyncedError():
                return _status_of_silence(self.call), CallOutcome.NOT_SYNCED, str(problem)
            case _:  # the details are for the log alone
                _log.error("call_failed", call=self.call.value, exc_info=problem)
                return 500, CallOutcome.ERROR, "something went wrong in gpu-admission; its log says what"

    def _bad_request(self, status: int, why: str) -> tuple[int, CallOutcome, str]:
        # Of such an answer a scheduler shows the status alone.
        _log.warning("question_refused", call=self.call.value, status=status, why=why)
        return status, CallOutcome.BAD_REQUEST, why


def _status_of_silence(call: Call) -> int:
    """The status of an answer that nothing can be said now.

    kube-scheduler shows its user the text of an `Error`, and of any other status only its number; either way it asks
    again. What has no room for a text is told by the status alone.
    """
    return 200 if call in (Call.FILTER, Call.BIND) else 503
