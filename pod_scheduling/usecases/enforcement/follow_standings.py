"""Know who may use GPUs before it is asked: what was wanted lately is asked again and again, and remembered.

So most reviews need no question, a question that several reviews have is asked once, and while the service is silent
nobody waits for it.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

import structlog

from pod_scheduling.domain.enforcement.booking_rulings import Standing
from pod_scheduling.domain.enforcement.remembered_standings import KnownStandings, MemoryRules, StandingQuestion
from pod_scheduling.ports.standings import QuestionRefusedError, SourceSilentError, StandingSource
from reservation_core.domain.network.circuit import Circuit
from reservation_core.ports.clock import Clock

Outcome = Literal["answered", "silent", "refused"]
_PARALLEL = 8
_AHEAD_PER_S = 100
"""So many questions a second are asked ahead at most; what is not, reviews ask themselves."""
_MOST_CALLS = 64
_log = structlog.get_logger(__name__)


class FollowedStandings:
    """See pod_scheduling.ports.standings.Standings. `told` is called with each question's outcome and its seconds."""

    def __init__(
        self, source: StandingSource, rules: MemoryRules, clock: Clock, told: Callable[[Outcome, float], None]
    ) -> None:
        self._source = source
        self._clock = clock
        self._told = told
        self._look_every_s = rules.fresh_s / 4
        self._known = KnownStandings(rules)
        self._circuit = Circuit()
        self._calls: dict[StandingQuestion, asyncio.Task[Standing | None]] = {}

    async def standing(self, question: StandingQuestion, limit_s: float) -> Standing | None:
        """The answer, waiting `limit_s` at most; what was last heard where there is none; None: nobody can say."""
        at_s = asyncio.get_running_loop().time()
        recalled = self._known.recall(question, at_s, self._clock.now())
        if recalled is not None and recalled.settled:
            return recalled.standing
        last = None if recalled is None else recalled.standing
        call = self._call(question, at_s)
        if call is None:
            return last
        # The call goes on when this review can wait no more: the next one will know.
        done, _ = await asyncio.wait({call}, timeout=limit_s)
        return (call.result() if done else None) or last

    async def follow(self) -> None:
        """Repeat recent questions until cancelled; then no call is under way any more."""
        try:
            while True:
                await self._refresh()
                await asyncio.sleep(self._look_every_s)
        finally:
            for call in (calls := list(self._calls.values())):
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        calls: set[asyncio.Task[Standing | None]] = set()
        most = max(1, int(_AHEAD_PER_S * self._look_every_s))
        for question in self._known.due(loop.time())[:most]:
            call = self._call(question, loop.time())
            if call is None:
                break
            calls.add(call)
            if len(calls) >= _PARALLEL:
                _, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        if calls:
            await asyncio.wait(calls)

    def _call(self, question: StandingQuestion, at_s: float) -> asyncio.Task[Standing | None] | None:
        """The call that finds it out, one for all who want it; None: the service is not asked now."""
        if (call := self._calls.get(question)) is not None:
            return call
        if len(self._calls) >= _MOST_CALLS or not self._circuit.may_ask(at_s):
            return None
        call = self._calls[question] = asyncio.create_task(self._ask(question))
        call.add_done_callback(lambda _: self._calls.pop(question))
        return call

    async def _ask(self, question: StandingQuestion) -> Standing | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        was_open = self._circuit.open
        try:
            standing = await self._source.ask(question)
        except SourceSilentError as problem:
            self._circuit.failed(loop.time())
            self._told("silent", loop.time() - began)
            if self._circuit.open and not was_open:
                _log.warning("schedulability_silent", problem=str(problem))
            return None
        except QuestionRefusedError as problem:
            self._circuit.answered()
            self._told("refused", loop.time() - began)
            _log.warning("schedulability_refused", user=question.user, problem=str(problem))
            return None
        self._circuit.answered()
        self._told("answered", loop.time() - began)
        if was_open:
            _log.info("schedulability_answers")
        self._known.hear(question, standing, began)
        return standing
