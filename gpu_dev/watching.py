"""`--watch`: repeat an answer until it can't change any more, or until Ctrl-C."""

import sys
from collections.abc import Callable

from gpu_dev.client import GpuDevClient
from gpu_dev.terminal import Rendered, put

EVERY_S = 2.0
_CLEAR = Rendered("\x1b[H\x1b[2J\x1b[3J")


def watch(client: GpuDevClient, render: Callable[[], tuple[str, bool]], *, again: bool) -> None:
    """Show what `render` returns: a text, and whether it is the last. With `again`, every 2 s until then or Ctrl-C.

    On a terminal the text replaces the one before; elsewhere it is written again only if it has changed.
    """
    text, last = render()
    on_terminal = again and sys.stdout.isatty()
    put(_CLEAR if on_terminal else "")
    put(text)
    while again and not last:
        client.pause(EVERY_S)
        before = text
        text, last = render()
        if on_terminal or text != before:
            put(_CLEAR if on_terminal else "")
            put(text)
