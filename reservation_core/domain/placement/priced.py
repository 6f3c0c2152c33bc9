"""The default: give away what is worth least to the usual tasks."""

from reservation_core.domain.placement.fgd import FragmentationDescent


class Priced(FragmentationDescent):
    """Every way in which what is free could still be used has a price."""
