"""Machines whose clocks differ: what one has closed is free for the other at once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import JobStatus
from tests.clocks import SettableClock
from tests.integration.reservation_core.usecases.world import World, pod

AHEAD = timedelta(seconds=40)


@pytest.mark.parametrize(("releasing", "planning"), [(AHEAD, -AHEAD), (-AHEAD, AHEAD), (AHEAD, timedelta(0))])
async def test_a_released_card_is_given_away_at_once(world: World, releasing: timedelta, planning: timedelta) -> None:
    now = datetime.now(UTC)
    one = replace(world, clock=SettableClock(now + releasing))
    other = replace(world, clock=SettableClock(now + planning))
    await one.ran(gpus=2)  # keeps the other node busy
    first = await one.ran(gpus=2)
    cards = {card.gpu_id for card in await one.cards(first)}
    await one.see(one.cluster.show(pod(first), PodPhase.FINISHED, exit_code=0))
    await one.operate()
    await one.see(one.cluster.show(pod(first), PodPhase.GONE))
    assert (await one.row(first)).status is JobStatus.SUCCEEDED
    second = await other.started(gpus=2)
    assert {card.gpu_id for card in await other.cards(second)} == cards
