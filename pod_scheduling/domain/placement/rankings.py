"""The placement policies at work."""

from collections.abc import Iterable
from typing import assert_never

from pod_scheduling.domain.placement.binpack import Binpack
from pod_scheduling.domain.placement.fragmentation_descent import FragmentationDescent
from pod_scheduling.domain.placement.priced import Priced
from pod_scheduling.domain.placement.ranking import Ranking
from pod_scheduling.domain.placement.spread import Spread
from pod_scheduling.domain.placement.tasks import Task
from reservation_core.domain.cards.placement_policies import PlacementPolicy


def ranking_of(policy: PlacementPolicy, usual: Iterable[tuple[Task, int]] = ()) -> Ranking:
    """A policy at work; `usual` are the tasks that are known to come, and how often each did."""
    ranking = _new(policy)
    for task, times in usual:
        ranking.learn(task, times)
    return ranking


def _new(policy: PlacementPolicy) -> Ranking:
    match policy:
        case PlacementPolicy.BINPACK:
            return Binpack()
        case PlacementPolicy.SPREAD:
            return Spread()
        case PlacementPolicy.FGD:
            return FragmentationDescent()
        case PlacementPolicy.PRICED:
            return Priced()
        case _:
            assert_never(policy)
