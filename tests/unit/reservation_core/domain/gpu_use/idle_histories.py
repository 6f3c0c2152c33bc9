"""Random lives of a job's GPUs: what they really did, which samples of it came when, and by which clocks.

Whole seconds since the beginning. A sample is `(at, utilisation, seen)`: its time by the node's clock, and when the
database had it.
"""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from reservation_core.domain.gpu_use.idle_rules import IdleRule, IdleThen

EVERY_S = 10
MINUTE_S = 60
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
Sample = tuple[int, float | None, int]


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
    kind = chance.choice(["idle", "idle", "idle", "nearly idle", "gang", "notebook", "wakes", "sleeps", "any"])
    truth = _truth(chance, kind, rule, ends_s)
    history = History(rule, started_s, ends_s, truth, [], [])
    _let_clocks_step(chance, history)
    node_steps = [(0, 0), *([(chance.randrange(ends_s), chance.randrange(-7200, 7200))] if not history.exact else [])]
    history.samples = [_sampled(chance, gpu, ends_s, node_steps) for gpu in truth]
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


def _truth(chance: random.Random, kind: str, rule: IdleRule, ends_s: int) -> list[list[float]]:
    slots = ends_s // EVERY_S + 1
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
        turn = chance.randrange(slots)
        busy = range(turn, slots) if kind == "wakes" else range(turn)
        for slot in busy:
            truth[-1][slot] = 1.0
    elif kind == "any":
        truth = [[chance.choice([0.0, low, low, chance.random()]) for _ in range(slots)] for _ in range(gpus)]
    return truth


def _let_clocks_step(chance: random.Random, history: History) -> None:
    if chance.random() < 0.2:
        history.exact = False
        for _ in range(chance.randrange(1, 3)):
            off = chance.choice([-3600, -90, 45, 300, 3600, chance.randrange(-7200, 7200)])
            history.leader_off.append((chance.randrange(history.ends_s), off))
        history.leader_off.sort()


def _sampled(chance: random.Random, truth: list[float], ends_s: int, node_steps: list[tuple[int, int]]) -> list[Sample]:
    """The samples of a GPU: some are missing while an agent restarts, some say nothing, some come late or twice."""
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
        off = next(off for since, off in reversed(node_steps) if since <= real)
        seen = real + (chance.randrange(5, 900) if late and chance.random() < late else 1)
        if outage_s and outage_s <= real < outage_s + 400:
            seen = max(seen, outage_s + 400)
        at = real + off + (chance.randrange(-jitter, jitter + 1) if jitter else 0)
        says_nothing = real in silent or (unknown and chance.random() < unknown)
        samples.append((at, None if says_nothing else utilisation, seen))
    return samples
