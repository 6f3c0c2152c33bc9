"""Allocations of pods that may have been bound before."""

import asyncio

from tests.unit.pod_scheduling.usecases.extender.allocating import (
    ONE,
    OTHER,
    RULES,
    allocate,
    keeps_out_while_it_is_unclear,
    take_back,
    told,
)
from tests.unit.pod_scheduling.usecases.extender.extender_world import Replica
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth


def test_what_may_have_been_bound_before_is_not_over_when_the_next_try_is_taken_back() -> None:
    async def story(truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        await asyncio.sleep(1)  # a bind was asked for, and not answered: it is tried anew
        assert replica.fits(ONE, "n2") == ("n2",)
        assert allocate(replica, ONE, "n2") is None
        take_back(replica, ONE)
        await asyncio.sleep(RULES.unclear_s - 2)
        assert replica.fits(OTHER, "n2") == ()
        await asyncio.sleep(RULES.assumed_s)
        assert replica.fits(OTHER, "n2") == ("n2",)
        assert truth.pods["one"].node is None

    told(story)


def test_what_we_are_binding_is_not_taken_back() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        binding = asyncio.create_task(replica.bind(ONE, "n2"))
        await asyncio.sleep(0)
        take_back(replica, ONE)
        assert replica.fits(OTHER, "n2") == ()
        await binding

    told(story)


def test_what_may_have_been_bound_before_is_over_however_often_it_is_tried_since() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        await asyncio.sleep(1)  # a bind was asked for, and came to nothing
        kept_out = 0
        for _ in range(60):  # its gang has not enough for all any more
            assert replica.fits(ONE, "n2") == ("n2",)
            assert allocate(replica, ONE, "n2") is None
            take_back(replica, ONE)
            kept_out += replica.fits(OTHER, "n2") == ()
            take_back(replica, OTHER)
            await asyncio.sleep(1)
        assert RULES.unclear_s <= kept_out <= RULES.unclear_s + 2

    told(story)


def test_what_may_have_been_bound_before_is_not_over_when_the_next_node_is_refused() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        await asyncio.sleep(1)  # a bind was asked for, and not answered: it is tried anew
        assert replica.fits(ONE, "n2") == ("n2",)
        assert allocate(replica, ONE, "nowhere") is not None
        take_back(replica, ONE)
        await keeps_out_while_it_is_unclear(replica)

    told(story)


def test_who_is_tried_a_third_time_may_still_be_bound_as_it_was_tried_the_second_time() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        for _ in range(2):
            await asyncio.sleep(60)  # a bind was asked for, and not answered: it is tried anew
            assert replica.fits(ONE, "n2") == ("n2",)
            assert allocate(replica, ONE, "n2") is None
        take_back(replica, ONE)
        await keeps_out_while_it_is_unclear(replica)

    told(story)


def test_what_may_have_been_bound_is_not_over_by_being_given_elsewhere_without_a_question() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        await asyncio.sleep(1)
        assert allocate(replica, ONE, "n2") is None
        take_back(replica, ONE)
        await asyncio.sleep(RULES.unclear_s - 2)
        assert replica.fits(OTHER, "n2") == ()

    told(story)
