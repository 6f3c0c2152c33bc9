"""Settings of the placement of jobs."""

from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.runtime.settings.section import Section


class PlacementSettings(Section):
    """The choice among nodes with enough free GPUs."""

    # The choice of nodes and GPUs. priced: those worth least to typical jobs; fgd: the fewest GPUs are left that
    # typical jobs can't use; binpack: the fullest node; spread: the emptiest.
    policy: PlacementPolicy = DEFAULT_POLICY
