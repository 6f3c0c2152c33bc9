"""GPUs of preemptible jobs for a booking that begins now: always there, and those whose jobs lose the least."""

import random
from itertools import combinations

import pytest

from reservation_core.domain.bookings.card_choice import BookableGpu, choose
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.usecases.bookings.take_lent_gpus import choose_lent


def world(chance: random.Random) -> tuple[list[BookableGpu], dict[int, str], dict[str, int]]:
    """Up to three nodes of up to four GPUs; some are taken for part of the time, others are held by up to four jobs."""
    jobs = [f"job-{number}" for number in range(chance.randint(0, 4))]
    cards: list[BookableGpu] = []
    holders: dict[int, str] = {}
    for node in range(chance.randint(1, 3)):
        gpu_type = chance.choice(["a100", "h100"])
        for index in range(chance.randint(1, 4)):
            busy = ((5, 9),) if chance.random() < 0.3 else ()
            cards.append(BookableGpu(len(cards), f"n{node}", index, gpu_type, chance.random() < 0.9, busy))
            if jobs and chance.random() < 0.6:
                holders[len(cards) - 1] = chance.choice(jobs)
    return cards, holders, {job: chance.randint(1, 9) for job in jobs}


def least_loss(cards: list[BookableGpu], wanted: Wanted, holders: dict[int, str], losses: dict[str, int]) -> int | None:
    """By trying every set of jobs that could give their GPUs back."""
    found = None
    for count in range(len(losses) + 1):
        for victims in combinations(losses, count):
            usable = [card for card in cards if holders.get(card.gpu_id) in (None, *victims)]
            loss = sum(losses[victim] for victim in victims)
            if choose(usable, wanted, 0, 7) is not None and (found is None or loss < found):
                found = loss
    return found


@pytest.mark.parametrize("seed", range(400))
def test_the_jobs_that_give_their_gpus_lose_the_least(seed: int) -> None:
    chance = random.Random(seed)
    cards, holders, losses = world(chance)
    wanted = Wanted(
        chance.randint(1, 3), chance.randint(1, 2), chance.choice([None, "h100"]), chance.choice([None, None, "n0"])
    )
    found = choose_lent(cards, wanted, 0, 7, holders, losses)
    least = least_loss(cards, wanted, holders, losses)
    assert (found is None) == (least is None)
    if found is None:
        return
    chosen = [card for card in cards if card.gpu_id in {gpu.gpu_id for gpu in found.chosen}]
    assert choose(chosen, wanted, 0, 7) is not None
    assert {holders[card.gpu_id] for card in chosen if card.gpu_id in holders} == found.victims
    assert sum(losses[victim] for victim in found.victims) == least
