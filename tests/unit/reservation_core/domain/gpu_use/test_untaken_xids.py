"""Xid errors between an agent and the processor, whichever answers are lost."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.domain.gpu_use.untaken_xids import UntakenXids

AT = datetime(2030, 1, 1, tzinfo=UTC)
FIRST = 1000


def seen(*xids: int | None) -> list[GpuSample]:
    return [GpuSample(f"GPU-{index}", AT, 0.5, xid=xid) for index, xid in enumerate(xids)]


def told(samples: Sequence[GpuSample]) -> list[int | None]:
    return [sample.xid for sample in samples]


def test_an_error_is_repeated_until_its_answer_is_confirmed() -> None:
    agent = UntakenXids(FIRST)
    agent.add(seen(None))
    arrived = agent.look
    agent.add(seen(79))
    assert told(agent.after(arrived)) == [79]  # this answer is lost
    agent.add(seen(None))
    assert told(agent.after(arrived)) == [79]
    arrived = agent.look
    agent.add(seen(None))
    assert told(agent.after(arrived)) == [None]


@pytest.mark.parametrize("after", [None, FIRST - 1, FIRST + 3])
def test_an_asker_that_confirms_nothing_has_the_last_look_alone(after: int | None) -> None:
    """As another leader may have stored the errors before."""
    agent = UntakenXids(FIRST)
    agent.add(seen(79))
    agent.add(seen(None))
    assert told(agent.after(after)) == [None]
    assert told(agent.after(FIRST)) == [79]


def test_an_error_waits_for_a_sample_of_its_gpu() -> None:
    agent = UntakenXids(FIRST)
    agent.add(seen(None, 79), FIRST)  # this answer is lost
    agent.add(seen(None), FIRST)
    assert told(agent.after(FIRST)) == [None]
    arrived = agent.look
    agent.add(seen(None, None))
    assert told(agent.after(arrived)) == [None, 79]


def test_an_error_that_arrived_is_not_told_again_when_its_gpu_has_been_silent() -> None:
    agent, arrived = UntakenXids(FIRST), FIRST
    heard = []
    for look in (seen(None), seen(79), seen(), seen(), seen(None), seen(None)):
        agent.add(look, arrived)
        heard += told(agent.after(arrived))
        arrived = agent.look
    assert [xid for xid in heard if xid is not None] == [79]


@pytest.mark.parametrize("after", [None, FIRST - 1, FIRST + 5])
def test_another_leader_has_no_error_of_a_silent_gpu_that_the_one_before_may_have(after: int | None) -> None:
    agent = UntakenXids(FIRST)
    agent.add(seen(None, 79), FIRST)
    assert told(agent.after(FIRST)) == [None, 79]
    agent.add(seen(None), after)
    assert told(agent.after(after)) == [None]
    arrived = agent.look
    agent.add(seen(None, None), arrived)
    assert told(agent.after(arrived)) == [None, None]


@pytest.mark.parametrize("silent", range(3))
def test_another_leader_has_an_error_that_waited_for_a_sample(silent: int) -> None:
    """No answer had it, so the leader before can't have it."""
    agent = UntakenXids(FIRST)
    agent.add(seen(None, 79), FIRST)  # this answer is lost
    agent.add(seen(None), FIRST)
    assert told(agent.after(FIRST)) == [None]
    for _ in range(silent):
        agent.add(seen(None), None)
        assert told(agent.after(None)) == [None]
    agent.add(seen(None, None), None)
    assert told(agent.after(None)) == [None, 79]
    arrived = agent.look
    agent.add(seen(None, None), arrived)
    assert told(agent.after(arrived)) == [None, None]


def test_an_asker_that_confirms_nothing_takes_no_error_from_the_leader() -> None:
    agent = UntakenXids(FIRST)
    agent.add(seen(None, 79), FIRST)  # this answer is lost
    for look in (seen(None), seen(None, None)):
        agent.add(look, None)
        agent.after(None)
    agent.add(seen(None, None), FIRST)
    assert told(agent.after(FIRST)) == [None, 79]


@pytest.mark.parametrize("seed", range(200))
def test_each_error_arrives_once(seed: int) -> None:
    chance = random.Random(seed)
    agent, arrived, sent, found = UntakenXids(FIRST), FIRST, [], []
    for look in range(40):
        xid = 100 + look if chance.random() < 0.3 else None
        agent.add(seen(xid))
        sent += [] if xid is None else [xid]
        if chance.random() < 0.3:
            agent.after(None)  # somebody else looks
        answer = told(agent.after(arrived))
        if chance.random() < 0.6:
            found += answer
            arrived = agent.look
    known = [xid for xid in found if xid is not None]
    assert len(known) == len(set(known))
    # Of several errors since the last answer the newest one is in a sample.
    assert set(known) <= set(sent)
    assert bool(known) == bool([xid for xid in sent if xid <= 100 + arrived - FIRST - 1])
