"""Questions in virtual time: one question for all, none while the service is silent, none that is known."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from pod_scheduling.domain.enforcement.booking_rulings import Standing
from pod_scheduling.domain.enforcement.remembered_standings import MemoryRules, StandingQuestion
from pod_scheduling.ports.standings import QuestionRefusedError, SourceSilentError
from pod_scheduling.usecases.enforcement.follow_standings import FollowedStandings, Outcome
from tests.virtual_time import run_virtually

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
YES = Standing(schedulable=True, reason="booked", until=START + timedelta(days=1))
NO = Standing(schedulable=False, reason="not booked")
ADA = StandingQuestion("ada", "lab", "h100", 2)


class LoopClock:
    """The time of day by the loop's clock."""

    def now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())


class Service:
    """Answers after `takes_s` what `says` is; an error is raised."""

    def __init__(self, says: Standing | Exception = YES, takes_s: float = 0.01) -> None:
        self.says = says
        self.takes_s = takes_s
        self.asked: list[tuple[float, StandingQuestion]] = []
        self.parallel = self.most_parallel = 0

    async def ask(self, question: StandingQuestion) -> Standing:
        self.asked.append((asyncio.get_running_loop().time(), question))
        self.parallel += 1
        self.most_parallel = max(self.parallel, self.most_parallel)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.parallel -= 1
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


class World:
    """The standings under test, followed in the background."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.outcomes: list[Outcome] = []
        self.standings = FollowedStandings(
            service, MemoryRules(fresh_s=5, kept_s=600), LoopClock(), lambda outcome, _: self.outcomes.append(outcome)
        )

    async def review(self, question: StandingQuestion = ADA, limit_s: float = 0.15) -> tuple[Standing | None, float]:
        """The answer, and how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        return await self.standings.standing(question, limit_s), round(loop.time() - began, 6)


def played(service: Service, play: Callable[[World], Awaitable[None]], *, followed: bool = True) -> World:
    async def whole() -> World:
        world = World(service)
        following = asyncio.create_task(world.standings.follow()) if followed else None
        await asyncio.sleep(0)
        await play(world)
        if following is not None:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            assert service.parallel == 0
        return world

    return run_virtually(whole())


def test_what_was_asked_once_is_known_from_then_on_without_waiting() -> None:
    service = Service()

    async def play(world: World) -> None:
        assert await world.review() == (YES, 0.01)
        for _ in range(500):
            await asyncio.sleep(1)
            assert await world.review() == (YES, 0)

    played(service, play)
    times = [at for at, _ in service.asked]
    assert 150 < len(times) < 210
    assert max(after - before for before, after in pairwise(times)) < 5


def test_what_nobody_wants_any_more_is_not_asked_for_ever() -> None:
    service = Service()

    async def play(world: World) -> None:
        await world.review()
        await asyncio.sleep(5000)

    played(service, play)
    assert 600 < service.asked[-1][0] + 6 < 620


def test_reviews_of_one_kind_share_a_question() -> None:
    service = Service(takes_s=0.1)

    async def play(world: World) -> None:
        assert await asyncio.gather(*(world.review() for _ in range(100))) == [(YES, 0.1)] * 100

    played(service, play, followed=False)
    assert len(service.asked) == 1


def test_a_slow_answer_holds_no_review_up_and_serves_the_next() -> None:
    service = Service(takes_s=1)

    async def play(world: World) -> None:
        assert await world.review() == (None, 0.15)
        await asyncio.sleep(0.9)
        assert await world.review() == (YES, 0)

    played(service, play)


def test_silence_is_bridged_by_what_was_last_heard_for_a_while() -> None:
    service = Service()

    async def play(world: World) -> None:
        await world.review()
        service.says = SourceSilentError("away")
        await asyncio.sleep(30)
        standing, took = await world.review()
        assert standing is not None
        assert (standing.schedulable, standing.fresh) == (True, False)
        assert took <= 0.15
        await asyncio.sleep(575)
        assert (await world.review())[0] is None
        service.says = YES
        await asyncio.sleep(1.1)
        assert (await world.review())[0] == YES

    played(service, play)


def test_a_silent_service_is_left_alone_and_reviews_do_not_wait_for_it() -> None:
    service = Service(SourceSilentError("away"), takes_s=2)
    waited: list[float] = []

    async def play(world: World) -> None:
        for number in range(1000):  # ten a second, each of another user
            standing, took = await world.review(StandingQuestion(f"u{number}", "lab", None, 1))
            assert standing is None
            waited.append(took)
            await asyncio.sleep(0.1 - min(took, 0.1))

    played(service, play)
    assert max(waited) <= 0.15
    late = waited[100:]
    assert sum(1 for took in late if took) < len(late) / 5
    assert service.most_parallel <= 64


def test_a_hundred_users_at_once_are_asked_about_a_few_at_a_time_when_refreshed() -> None:
    service = Service(takes_s=0.001)

    async def play(world: World) -> None:
        questions = [StandingQuestion(f"u{number}", "lab", None, 1) for number in range(60)]
        await asyncio.gather(*(world.review(question) for question in questions))
        service.most_parallel = 0
        await asyncio.sleep(4)
        assert {question for at, question in service.asked if at > 0.1} == set(questions)

    played(service, play)
    assert 1 < service.most_parallel <= 8


def test_however_many_are_known_so_many_a_second_are_asked_ahead() -> None:
    service = Service(takes_s=0.001)

    async def play(world: World) -> None:
        for number in range(2000):
            await world.review(StandingQuestion(f"u{number}", "lab", None, 1))
        service.asked.clear()
        await asyncio.sleep(100)

    played(service, play)
    assert 8_000 < len(service.asked) <= 10_200


def test_who_has_just_booked_is_not_turned_away_by_what_was_heard_before() -> None:
    service = Service(NO)

    async def play(world: World) -> None:
        assert (await world.review())[0] == NO
        service.says = YES
        await asyncio.sleep(0.6)
        assert (await world.review())[0] == YES

    played(service, play, followed=False)


def test_a_question_that_is_refused_says_nothing_about_others() -> None:
    service = Service(QuestionRefusedError("status 400"))

    async def play(world: World) -> None:
        for _ in range(20):
            assert await world.review() == (None, 0.01)
        service.says = YES
        assert (await world.review(StandingQuestion("bob", "lab", None, 1)))[0] == YES
        assert set(world.outcomes) == {"refused", "answered"}

    played(service, play)


def test_at_its_end_no_call_is_waited_for() -> None:
    service = Service(takes_s=1000)
    ended: list[float] = []

    async def play(world: World) -> None:
        following = asyncio.create_task(world.standings.follow())
        await world.review()
        following.cancel()
        await asyncio.wait([following])
        ended.append(asyncio.get_running_loop().time())

    played(service, play, followed=False)
    assert (ended, service.parallel) == ([0.15], 0)


def test_a_booking_that_has_ended_meanwhile_is_asked_about_at_once() -> None:
    service = Service(Standing(schedulable=True, reason="booked", until=START + timedelta(seconds=2)))

    async def play(world: World) -> None:
        await world.review()
        await asyncio.sleep(2)
        service.says = YES
        assert await world.review() == (YES, 0.01)

    played(service, play, followed=False)
