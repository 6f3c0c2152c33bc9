"""Settings of the placement of jobs."""

from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.runtime.settings.section import Section


class PlacementSettings(Section):
    """The choice among nodes with enough free GPUs."""

    policy: PlacementPolicy = DEFAULT_POLICY
