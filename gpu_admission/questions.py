"""What schedulers ask, as ASGI endpoints: a body in, an answer out, and each call counted.

Every pod costs three of these calls, so nothing stands between them and the server that isn't needed.
"""

from collections.abc import Awaitable, Callable
from time import perf_counter

import structlog
from starlette.types import Receive, Scope, Send

from gpu_admission.bodies import Bodies, RefusedBodyError
from gpu_admission.json_walk import BadJsonError
from gpu_admission.metrics import Call, Metrics, Outcome
from reservation_core.ports.extender import NotSyncedError

Answer = tuple[bytes, Outcome]

_KIND = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")
_log = structlog.get_logger(__name__)


class Condition:
    """How the process is. `draining`: it is about to end, and is not to be sent anything new."""

    def __init__(self) -> None:
        self.draining = False


class Question:
    """The endpoint of one kind of call. `told` writes a problem as the asking scheduler's type has it."""

    def __init__(
        self,
        call: Call,
        answer: Callable[[bytes], Awaitable[Answer]],
        told: Callable[[str], bytes],
        bodies: Bodies,
        metrics: Metrics,
        condition: Condition,
    ) -> None:
        self._call = call
        self._answer = answer
        self._told = told
        self._bodies = bodies
        self._metrics = metrics
        self._condition = condition

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. While draining, each answer is its connection's last: what comes next is asked of another replica."""
        status, content, close = await self._answered(scope, receive)
        headers = [(b"content-length", b"%d" % len(content)), _KIND]
        if close or self._condition.draining:
            headers.append(_CLOSE)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, bytes, bool]:
        """The status, the content, and whether the connection is to be closed."""
        told = self._told
        started = perf_counter()
        outcome = Outcome.ERROR
        try:
            async with self._bodies.of(scope, receive) as body:
                content, outcome = await self._answer(body)
        except BadJsonError as problem:
            outcome = Outcome.BAD_REQUEST
            return 400, told(str(problem)), False
        except RefusedBodyError as problem:
            outcome = Outcome.BAD_REQUEST
            return problem.status, told(str(problem)), True
        except NotSyncedError as problem:
            outcome = Outcome.NOT_SYNCED
            return _status_of_silence(self._call), told(str(problem)), False
        except Exception:  # noqa: BLE001 - the boundary: it is in the log, and what went wrong is nobody's business
            _log.exception("call_failed", call=self._call.value)
            return 500, told("something went wrong in gpu-admission; its log says what"), False
        else:
            return 200, content, False
        finally:
            self._metrics.called(self._call, outcome, perf_counter() - started)


def _status_of_silence(call: Call) -> int:
    """The status of an answer that nothing can be said now.

    kube-scheduler shows its user the text of an `Error`, and of any other status only its number; either way it asks
    again. What has no room for a text is told by the status alone.
    """
    return 200 if call in (Call.FILTER, Call.BIND) else 503
