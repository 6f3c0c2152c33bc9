"""The names of the placement policies, as settings use them."""

from enum import StrEnum


class PlacementPolicy(StrEnum):
    """How nodes and GPUs are chosen.

    `binpack` fills the fullest node; `spread` the emptiest. `fgd` leaves the fewest GPUs that typical tasks can't use.
    `priced`, the default, gives away what is worth least to typical tasks.
    """

    BINPACK = "binpack"
    SPREAD = "spread"
    FGD = "fgd"
    PRICED = "priced"


DEFAULT_POLICY = PlacementPolicy.PRICED
