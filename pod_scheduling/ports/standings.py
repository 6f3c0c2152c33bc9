"""Permission to use GPUs now, as the schedulability service says it."""

from typing import Protocol

from pod_scheduling.domain.enforcement.booking_rulings import Standing
from pod_scheduling.domain.enforcement.remembered_standings import StandingQuestion


class SourceSilentError(Exception):
    """There is no answer that could be used; the text says why, and holds no secret."""


class QuestionRefusedError(Exception):
    """The service answers, but not this question; the text says why."""


class StandingSource(Protocol):
    """Asks the service."""

    async def ask(self, question: StandingQuestion) -> Standing:
        """One answer. Raises SourceSilentError after a bounded time, and QuestionRefusedError."""
        ...


class Standings(Protocol):
    """Standings that are known, or can be found out quickly."""

    async def standing(self, question: StandingQuestion, limit_s: float) -> Standing | None:
        """The answer, waiting `limit_s` at most; what was last heard where there is none; None: nobody can say."""
        ...
