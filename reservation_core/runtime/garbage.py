"""Python's garbage collector, calmed: full collections over all that was loaded are what slow answers come from."""

import gc


def calm_garbage_collector() -> None:
    """Leave what is loaded by now alone for good, and collect the rest less often. Call it once, when all is set up."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
