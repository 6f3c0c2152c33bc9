"""Random lives of a job's GPUs: what they really did, which samples of it came when, and by which clocks.

Whole seconds since the beginning.
"""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from reservation_core.domain.gpu_use.idle_rules import IdleRule, IdleThen

EVERY_S = 10
MINUTE_S = 60
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
NEVER = 10**9
AHEAD_S = 10
FORGETS_S = 30
"""How long it takes to remove what a clock that went back has left."""
HELD_S = 600
"""Steps that are shorter, and back, never reach the ledger's time."""


class Sample(NamedTuple):
    """A sample with its time by the leader's clock. By the real clock the database has it from `seen` until `gone`."""

    at: int
    use: float | None
    seen: int
    gone: int = NEVER

    def is_there(self, real_s: int) -> bool:
        """Whether the database has it."""
        return self.seen <= real_s < self.gone


@dataclass
class History:
    """A job from `started_s` on, looked at by a leader whose clock is off by what `leader_off` says since when."""

    rule: IdleRule
    started_s: int
    ends_s: int
    truth: list[list[float]]
    samples: list[list[Sample]]
    looks: list[int]
    leader_off: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    keeps: set[int] = field(default_factory=set)
    rules_s: list[tuple[int, IdleRule | None]] = field(default_factory=list)
    exact: bool = True

    def leader_now(self, real_s: int) -> int:
        """The leader's clock."""
        return real_s + next(off for since, off in reversed(self.leader_off) if since <= real_s)

    @property
    def went_back_s(self) -> list[int]:
        """When the leader's clock went back."""
        return [real_s for (_, before), (real_s, after) in pairwise(self.leader_off) if after < before]

    def is_forgetting(self, real_s: int) -> bool:
        """Whether samples of times to come are still there: then none is stored and no job is judged."""
        return any(begun <= real_s < begun + FORGETS_S for begun in self.went_back_s)

    def rule_at(self, real_s: int) -> IdleRule | None:
        """The policy's rule."""
        return next((rule for since, rule in reversed(self.rules_s) if since <= real_s), self.rule)


def moment(seconds: int) -> datetime:
    """A time of a history."""
    return BEGIN + timedelta(seconds=seconds)


def draw_history(chance: random.Random) -> History:
    """A history of one to four GPUs."""
    rule = IdleRule(
        chance.choice([0.01, 0.05, 0.1, 0.1, 0.3]),
        timedelta(minutes=chance.choice([1, 5, 10, 20])),
        timedelta(minutes=chance.choice([1, 3, 10])),
        chance.choice([IdleThen.RELEASE, IdleThen.RELEASE, IdleThen.REQUEUE, IdleThen.WARN]),
    )
    started_s = chance.randrange(0, 1200)
    length_s = int(3 * (rule.window + rule.grace).total_seconds()) + chance.randrange(0, 1200)
    ends_s = started_s + length_s
    history = History(rule, started_s, ends_s, [], [], [])
    _let_clocks_step(chance, history)
    kind = chance.choice(["idle", "idle", "idle", "nearly idle", "gang", "notebook", "wakes", "sleeps", "any"])
    if history.went_back_s and chance.random() < 0.5:
        kind = "wakes"
    history.truth = _truth(chance, kind, history)
    history.samples = [_stored(history, _sampled(chance, gpu, history)) for gpu in history.truth]
    at = 0
    while at < ends_s:
        history.looks.append(at)
        at += chance.choice([10, 20, 35, 90, 300, chance.randrange(10, 900)])
    if chance.random() < 0.4:
        history.keeps = {look for look in history.looks if chance.random() < 0.4}
    if chance.random() < 0.15:
        other = IdleRule(rule.below, rule.window, 2 * rule.grace, chance.choice(list(IdleThen)))
        history.rules_s = [(chance.randrange(ends_s), chance.choice([None, other, rule]))]
    return history


def _truth(chance: random.Random, kind: str, history: History) -> list[list[float]]:
    rule, slots = history.rule, history.ends_s // EVERY_S + 1
    gpus = chance.randrange(1, 4)
    low = rule.below * chance.choice([0, 0, 0.5, 0.9])
    truth = [[low] * slots for _ in range(gpus)]
    if kind == "nearly idle":
        level = chance.choice([0.5, 0.99, 1.0, 1.01]) * rule.below
        truth = [[min(1.0, level)] * slots for _ in range(gpus)]
    elif kind == "gang":
        truth.append([chance.choice([rule.below, 0.5, 1.0])] * slots)
    elif kind == "notebook":  # cells are run now and then, one GPU of them
        at = chance.randrange(slots)
        while at < slots:
            truth[0][at] = 1.0
            at += chance.randrange(1, 120)
    elif kind in ("wakes", "sleeps"):
        turn = chance.choice([chance.randrange(slots), *(real_s // EVERY_S for real_s in history.went_back_s)])
        busy = range(turn, slots) if kind == "wakes" else range(turn)
        for slot in busy:
            truth[-1][slot] = 1.0
    elif kind == "any":
        truth = [[chance.choice([0.0, low, low, chance.random()]) for _ in range(slots)] for _ in range(gpus)]
    return truth


def _let_clocks_step(chance: random.Random, history: History) -> None:
    if chance.random() < 0.2:
        history.exact = False
        off = 0
        for real_s in sorted(chance.sample(range(1, history.ends_s), chance.randrange(1, 3))):
            by = chance.choice([-3600, -HELD_S, -2 * HELD_S, 45, 300, 3600, chance.randrange(-7200, 7200)])
            off += max(by, 0) if by > -HELD_S else by
            history.leader_off.append((real_s, off))


def _stored(history: History, samples: list[Sample]) -> list[Sample]:
    """What the database has of them, when: the first of each time, and none of times that come again."""
    stored: list[Sample] = []
    kept: dict[int, Sample] = {}
    forgets = [begun + FORGETS_S for begun in history.went_back_s]
    for sample in sorted(samples, key=lambda sample: sample.seen):
        while forgets and forgets[0] <= sample.seen:
            stored += _forget(kept, history, forgets.pop(0))
        timely = sample.at <= history.leader_now(sample.seen) + AHEAD_S
        if timely and not history.is_forgetting(sample.seen):
            kept.setdefault(sample.at, sample)
    for real_s in forgets:
        stored += _forget(kept, history, real_s)
    return [*stored, *kept.values()]


def _forget(kept: dict[int, Sample], history: History, real_s: int) -> list[Sample]:
    to_come = [at for at in kept if at > history.leader_now(real_s)]
    return [kept.pop(at)._replace(gone=real_s) for at in to_come]


def _sampled(chance: random.Random, truth: list[float], history: History) -> list[Sample]:
    """The samples of a GPU: some are missing while an agent restarts, some say nothing, some come late or twice."""
    ends_s = history.ends_s
    gaps: list[range] = []
    for _ in range(chance.choice([0, 0, 0, 0, 0, 1, 2, 4])):
        first = chance.randrange(ends_s)
        gaps.append(range(first, first + chance.choice([10, 30, 60, 180, 900])))
    silent = range(0)
    if chance.random() < 0.1:
        first = chance.randrange(ends_s)
        silent = range(first - first % MINUTE_S, first + chance.choice([60, 600]))
    lost = chance.choice([0.0, 0.0, 0.0, 0.0, 0.02, 0.3])
    late = chance.choice([0.0, 0.0, 0.1])
    outage_s = chance.choice([0, 0, 0, chance.randrange(ends_s)])
    unknown = chance.choice([0.0, 0.0, 0.0, 0.1, 1.0])
    jitter = chance.choice([0, 0, 3])
    samples: list[Sample] = []
    for slot, utilisation in enumerate(truth):
        real = slot * EVERY_S + EVERY_S // 2
        if (lost and chance.random() < lost) or any(real in gap for gap in gaps):
            continue
        seen = real + (chance.randrange(5, 900) if late and chance.random() < late else 1)
        if outage_s and outage_s <= real < outage_s + 400:
            seen = max(seen, outage_s + 400)
        at = history.leader_now(real) + (chance.randrange(-jitter, jitter + 1) if jitter else 0)
        says_nothing = real in silent or (unknown and chance.random() < unknown)
        samples.append(Sample(at, None if says_nothing else utilisation, seen))
    return samples
