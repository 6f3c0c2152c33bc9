"""The placement policies by name: what settings speak of, without what a policy needs to work."""

from enum import StrEnum


class PlacementPolicy(StrEnum):
    """How nodes and cards are chosen.

    `binpack` fills the fullest node; `spread` the emptiest. `fgd` leaves the fewest cards that the usual tasks can't
    use. `priced`, the default, gives away what is worth least to the usual tasks.
    """

    BINPACK = "binpack"
    SPREAD = "spread"
    FGD = "fgd"
    PRICED = "priced"


DEFAULT_POLICY = PlacementPolicy.PRICED
