"""What was last heard of who may use GPUs: fresh for a while, then kept as the last that is known, then forgotten.

Times here are seconds of a clock that only goes forward; `now` is the time of day, which ends are compared with. Each
user has so many questions remembered at most: nobody's pods push out what is known of others.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from pod_scheduling.domain.enforcement.booking_rulings import Standing

_NO_IS_SETTLED_S = 0.5
"""A `no` older than this is asked about again, so that it does not turn away a user who has just booked."""


@dataclass(frozen=True, slots=True)
class StandingQuestion:
    """May this user use so many GPUs of a type (None: any) in this namespace?"""

    user: str
    namespace: str
    gpu_type: str | None
    gpus: int


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """For how many seconds an answer is fresh, and known at all; so long after a pod it is asked anew."""

    fresh_s: float = 5
    kept_s: float = 600
    most_users: int = 4096
    most_of_a_user: int = 32


@dataclass(frozen=True, slots=True)
class Recalled:
    """A remembered standing. `settled`: there is no need to ask again before it is used."""

    standing: Standing
    settled: bool


@dataclass(slots=True)
class _Heard:
    standing: Standing
    at_s: float
    wanted_s: float


class KnownStandings:
    """The memory. Its size is bounded: users, and questions of each, that came longest ago are forgotten first."""

    def __init__(self, rules: MemoryRules) -> None:
        self._rules = rules
        self._users: OrderedDict[str, OrderedDict[StandingQuestion, _Heard]] = OrderedDict()

    def hear(self, question: StandingQuestion, standing: Standing, at_s: float) -> None:
        """Remember an answer."""
        of_user = self._users.setdefault(question.user, OrderedDict())
        before = of_user.get(question)
        of_user[question] = _Heard(standing, at_s, at_s if before is None else before.wanted_s)
        if len(of_user) > self._rules.most_of_a_user:
            of_user.popitem(last=False)
        if len(self._users) > self._rules.most_users:
            self._users.popitem(last=False)

    def recall(self, question: StandingQuestion, at_s: float, now: datetime) -> Recalled | None:
        """Return the remembered standing; None: nothing, or it was too long ago."""
        of_user = self._users.get(question.user, OrderedDict())
        heard = of_user.get(question)
        if heard is None:
            return None
        age = at_s - heard.at_s
        if age > self._rules.kept_s:
            del of_user[question]
            return None
        heard.wanted_s = at_s
        of_user.move_to_end(question)
        self._users.move_to_end(question.user)
        standing = heard.standing
        over = standing.schedulable and standing.until is not None and standing.until <= now
        fresh = age <= self._rules.fresh_s and not over
        settled = fresh and (standing.schedulable or age <= _NO_IS_SETTLED_S)
        return Recalled(replace(standing, fresh=fresh), settled)

    def due(self, at_s: float) -> list[StandingQuestion]:
        """What should be asked before it is wanted again, the oldest answer first; what nobody wants is forgotten."""
        for question, heard in list(self._all()):
            if at_s - max(heard.wanted_s, heard.at_s) > self._rules.kept_s:
                del self._users[question.user][question]
        for user in [user for user, of_user in self._users.items() if not of_user]:
            del self._users[user]
        aged = [
            (heard.at_s, question)
            for question, heard in self._all()
            if at_s - heard.at_s >= self._rules.fresh_s / 2 and at_s - heard.wanted_s <= self._rules.kept_s
        ]
        return [question for _, question in sorted(aged, key=lambda aged_question: aged_question[0])]

    def _all(self) -> Iterator[tuple[StandingQuestion, _Heard]]:
        for of_user in self._users.values():
            yield from of_user.items()
