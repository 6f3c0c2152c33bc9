"""No job is released wrongly, in random histories, against an oracle that counts samples one by one.

`make explore` plays 100,000 of them, in 20 minutes of a processor; `GPU_DEV_TESTS_HISTORIES` is another number.
"""

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.gpu_use.idle_rules import IdleRule, IdleThen, IdleWarning
from reservation_core.domain.gpu_use.idleness import (
    IdleVerdict,
    IdleWindow,
    ReleaseDue,
    WarningDue,
    WarningOver,
    WatchedJob,
    judge,
)
from reservation_core.domain.gpu_use.roll_ups import Level, UsePoint
from tests.examples import PROFILE, Profile
from tests.unit.reservation_core.domain.gpu_use.idle_histories import (
    BEGIN,
    EVERY_S,
    MINUTE_S,
    History,
    Sample,
    draw_history,
    moment,
)

_USUALLY = {Profile.EXPLORING: "100000", Profile.REPEATABLE: "1600", Profile.QUICK: "100"}
HISTORIES = int(os.environ.get("GPU_DEV_TESTS_HISTORIES", _USUALLY[PROFILE]))
PARTS = max(4, HISTORIES // 5000)
"""Each takes a minute of a processor at most, which is far from the limit of a test on a busy machine."""
FULL = MINUTE_S // EVERY_S
ROUNDING = 1e-9


class Oracle:
    """Judges by hand what a leader should do at a look; and checks what was done with what was true."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.warned: tuple[int, int, int | None] | None = None
        """When the warning was given, by the real clock and by the leader's, and its end by the latter."""

    def verdict(self, counts_from: int, now: int, real: int) -> str:
        """Return `warn`, `over`, `release`, or nothing."""
        rule = self.history.rule_at(real)
        idle = rule is not None and self.is_idle(rule, counts_from, now, real)
        if self.warned is None:
            return "warn" if idle else ""
        _, warned_at, release_at = self.warned
        if rule is None or not idle or (rule.then is not IdleThen.WARN) is (release_at is None) or warned_at > now:
            return "over"
        if self.was_used(rule, warned_at, now, real):
            return "over"
        if release_at is None or now < release_at or now < warned_at + rule.grace.total_seconds():
            return ""
        return "release" if self.is_fresh(warned_at, now, real) else ""

    def is_idle(self, rule: IdleRule, counts_from: int, now: int, real: int) -> bool:
        end = now - now % MINUTE_S
        begin = end - int(rule.window.total_seconds())
        if begin < counts_from:
            return False
        here = [self.seen(samples, begin, now, real) for samples in self.history.samples]
        for samples in here:
            last = [(at, use) for at, use in samples if at >= end - MINUTE_S and use is not None]
            if not any(at < end for at, _ in last) or any(use >= rule.below for _, use in last):
                return False
        return all(self.active(samples, begin, end) < rule.below - ROUNDING for samples in here)

    def was_used(self, rule: IdleRule, warned_at: int, now: int, real: int) -> bool:
        since = warned_at - warned_at % MINUTE_S
        end = now - now % MINUTE_S
        for samples in self.history.samples:
            here = self.seen(samples, since, now, real)
            if any(use is not None and use >= rule.below for _, use in here):
                return True
            long_enough = since + MINUTE_S <= end - rule.window.total_seconds()
            if long_enough and self.active(here, since + MINUTE_S, end) >= rule.below - ROUNDING:
                return True
        return False

    def is_fresh(self, warned_at: int, now: int, real: int) -> bool:
        since = max(warned_at, now - 3 * EVERY_S)
        return all(
            any(use is not None for _, use in self.seen(samples, since, now, real)) for samples in self.history.samples
        )

    @staticmethod
    def seen(samples: Sequence[Sample], since: int, now: int, real: int) -> list[tuple[int, float | None]]:
        """The samples of a time that have come; of a time to come none are read."""
        return [(sample.at, sample.use) for sample in samples if since <= sample.at < now and sample.is_there(real)]

    @staticmethod
    def active(here: Sequence[tuple[int, float | None]], begin: int, end: int) -> float:
        """The part of a time in which a GPU was used, or may have been."""
        minutes: dict[int, list[float | None]] = {minute: [] for minute in range(begin, end, MINUTE_S)}
        for at, use in here:
            if begin <= at < end:
                minutes[at - at % MINUTE_S].append(use)
        total = 0.0
        for uses in minutes.values():
            known = [use for use in uses if use is not None]
            missing = max(0, FULL - len(known))
            total += (missing + (FULL - missing) * (sum(known) / len(known) if known else 1)) / FULL
        return total / len(minutes)

    def check_release(self, real: int) -> None:
        """Assert that what is released was really idle, and was warned in time."""
        history, rule = self.history, self.history.rule
        assert self.warned is not None
        warned_real, warned_at, release_at = self.warned
        assert release_at is not None
        assert release_at - warned_at >= rule.grace.total_seconds()
        assert history.leader_now(real) >= release_at
        window = int(rule.window.total_seconds())
        stepped = max(since for since, _ in history.leader_off if since <= real)
        for truth in history.truth:
            for since in (max(stepped, real - window), warned_real):
                slots = truth[since // EVERY_S : real // EVERY_S]
                lasted = window // EVERY_S if since < warned_real else len(slots)
                assert since < stepped or sum(slots) / max(1, lasted) < rule.below + JITTER
        if not history.exact:
            return
        assert real - warned_real >= rule.grace.total_seconds()
        assert real - history.started_s >= window + rule.grace.total_seconds()
        end = real - real % MINUTE_S
        for truth in history.truth:
            slots = truth[(end - window) // EVERY_S : end // EVERY_S]
            assert sum(slots) / len(slots) < rule.below + JITTER


JITTER = 0.35
"""Samples a few seconds off lie in another minute: of a window of one minute that may be a third."""


def played(history: History) -> list[tuple[int, str]]:
    """What became of the job, at which times; its verdicts are those of the oracle."""
    oracle = Oracle(history)
    counts_from, done = history.started_s, []
    warning: IdleWarning | None = None
    for real in history.looks:
        if real < history.started_s or history.is_forgetting(real):
            continue
        now = history.leader_now(real)
        rule = history.rule_at(real)
        window = IdleWindow.at(moment(now), rule or IdleRule(), timedelta(seconds=EVERY_S))
        since = int((window.reads_from(warning) - BEGIN).total_seconds())
        use = {gpu: points(samples, since, now, real) for gpu, samples in enumerate(history.samples)}
        fresh = fresh_gpus(history, window, warning, now, real)
        verdict = judge(WatchedJob(len(use), moment(counts_from), warning), rule, use, fresh, window, moment(now))
        due = oracle.verdict(counts_from, now, real)
        assert named(verdict) == due, (real, now)
        match verdict:
            case WarningDue():
                warning = verdict.warning
                ends = None if warning.release_at is None else int((warning.release_at - BEGIN).total_seconds())
                oracle.warned = (real, now, ends)
            case WarningOver():
                warning, oracle.warned, counts_from = None, None, now
            case ReleaseDue():
                oracle.check_release(real)
            case None if warning is not None and real in history.keeps:
                due = "keep"
                warning, oracle.warned, counts_from = None, None, now
        if due:
            done.append((real, due))
        if due == "release":
            break
    return done


def named(verdict: IdleVerdict | None) -> str:
    match verdict:
        case WarningDue():
            return "warn"
        case WarningOver():
            return "over"
        case ReleaseDue():
            return "release"
        case None:
            return ""


def points(samples: Sequence[Sample], since: int, now: int, real: int) -> list[UsePoint]:
    """Points by minute, as they are read from the database: from `since` on to now."""
    minutes: dict[int, list[float | None]] = {}
    for sample in samples:
        if since <= sample.at < now and sample.is_there(real):
            minutes.setdefault(sample.at - sample.at % MINUTE_S, []).append(sample.use)
    return [
        UsePoint(moment(minute), len(uses), utilisation=level(uses), unknown=sum(use is None for use in uses))
        for minute, uses in minutes.items()
    ]


def fresh_gpus(history: History, window: IdleWindow, warning: IdleWarning | None, now: int, real: int) -> set[int]:
    """The GPUs with samples as late as a release needs, as they are read from the database."""
    if warning is None:
        return set()
    since = window.fresh_from(warning, moment(now))
    return {
        gpu
        for gpu, samples in enumerate(history.samples)
        if any(
            since <= moment(sample.at) and sample.at < now and sample.is_there(real) and sample.use is not None
            for sample in samples
        )
    }


def level(uses: Sequence[float | None]) -> Level | None:
    known = [use for use in uses if use is not None]
    return Level(sum(known) / len(known), max(known)) if known else None


@pytest.mark.hypothesis  # for `make explore`, which plays all
@pytest.mark.parametrize("part", range(PARTS))
def test_no_job_is_released_wrongly(part: int) -> None:
    ends = dict.fromkeys(("warn", "over", "release", "keep"), 0)
    for seed in range(part, HISTORIES, PARTS):
        try:
            for _, due in played(draw_history(random.Random(seed))):
                ends[due] += 1
        except AssertionError as error:
            raise AssertionError(f"history {seed}") from error
    assert min(ends.values()) > HISTORIES // PARTS // 200, ends


def test_what_is_idle_is_warned_and_released_in_time() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        rule = IdleRule(0.1, timedelta(minutes=chance.choice([1, 5, 20])), timedelta(minutes=3), IdleThen.RELEASE)
        ends_s = 3600
        samples: list[Sample] = [Sample(at, 0.0, at + 1) for at in range(5, ends_s, EVERY_S)]
        history = History(rule, 300, ends_s, [[0.0] * 360], [samples], list(range(0, ends_s, 30)))
        [(warned, first), (released, second)] = played(history)
        assert (first, second) == ("warn", "release")
        assert warned <= 300 + rule.window.total_seconds() + MINUTE_S + 60
        assert released <= warned + 180 + 60


def test_nothing_is_released_without_a_sample_of_now() -> None:
    rule = IdleRule(0.1, timedelta(minutes=10), timedelta(minutes=5), IdleThen.RELEASE)
    until_stall: list[Sample] = [Sample(at, 0.0, at + 1) for at in range(5, 940, EVERY_S)]
    again: list[Sample] = [Sample(at, 0.0, at + 1) for at in range(975, 1200, EVERY_S)]
    stalled = History(rule, 0, 1200, [[0.0] * 120], [until_stall], [601, 971, 981, 1025])
    assert played(stalled) == [(601, "warn"), (1025, "over")]
    assert played(replace(stalled, looks=[601, 964])) == [(601, "warn"), (964, "release")]
    goes_on = replace(stalled, samples=[until_stall + again], looks=[601, 971, 981])
    assert played(goes_on) == [(601, "warn"), (981, "release")]


def test_one_missing_sample_after_a_warning_leaves_it() -> None:
    rule = IdleRule(0.1, timedelta(minutes=10), timedelta(minutes=5), IdleThen.RELEASE)
    samples: list[Sample] = [Sample(at, 0.0, at + 1) for at in range(5, 1200, EVERY_S) if at != 695]
    history = History(rule, 0, 1200, [[0.0] * 120], [samples], [601, 725, 906])
    assert played(history) == [(601, "warn"), (906, "release")]


def test_an_old_warning_makes_no_look_longer_than_a_day() -> None:
    now = moment(40 * 86_400)
    window = IdleWindow.at(now, IdleRule(), timedelta(seconds=EVERY_S))
    assert window.reads_from(IdleWarning(moment(0), moment(3600), None)) == now - timedelta(days=1)
    assert window.reads_from(None) == now - timedelta(hours=1)
