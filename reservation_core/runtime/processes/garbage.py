"""Python's garbage collector, calmed: full collections over all that was loaded are what slow answers come from."""

import gc


def calm_garbage_collector(*, in_small_parts: bool = False) -> None:
    """Leave what is loaded by now alone for good, and collect the rest less often. Call it once, when all is set up.

    `in_small_parts` is for who keeps most of what it makes, as a planner its picture: seldom would mean long there
    (measured: 45 ms at a time), and all that is kept is looked through once or twice anyway.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*((1_000, 5, 10_000) if in_small_parts else (50_000, 20, 50)))
