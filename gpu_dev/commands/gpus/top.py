"""`top`: all GPUs and their use now, live on a terminal."""

import os
import select
import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer

from gpu_dev.display.gpu_types import with_closed_nodes
from gpu_dev.display.output import Format, View, show_list
from gpu_dev.display.top_frames import TOP, Choice, Sort, chosen, fitted, frame, keys_in
from gpu_dev.errors import ClientError
from gpu_dev.options import Output
from gpu_dev.session import client_for
from gpu_dev.terminal import Rendered, clean, put
from gpu_dev.wire.nodes import GpuNowOut

app = typer.Typer(add_completion=False)

EVERY_S = 5.0
_SIZE_EVERY_S = 0.5
"""How often the terminal is asked for its size."""
_BEGIN = Rendered("\x1b[?1049h\x1b[?25l\x1b[?7l")
"""Another screen, without a cursor, on which long lines are cut."""
_END = Rendered("\x1b[?7h\x1b[?25h\x1b[?1049l")
_MOST_KEYS = 1024
_Look = tuple[list[GpuNowOut], View[GpuNowOut]]
"""The GPUs, and their table, which says which nodes take nothing new."""


@app.command()
def top(
    ctx: typer.Context,
    sort: Annotated[Sort, typer.Option(help="The order: by this value, the highest first.")] = Sort.UTILISATION,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The lowest first.")] = False,
    words: Annotated[
        str,
        typer.Option("--filter", metavar="WORDS", help="Only GPUs with these words in node, type, state or holder."),
    ] = "",
    mine: Annotated[bool, typer.Option("--mine", help="Only GPUs that you hold.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show all GPUs with their use now, and keep it current until q.

    On a terminal, keys change the order and the filter. Without a terminal it is printed once.
    """
    choice = Choice(sort=sort, is_reversed=reverse, words=words, only_yours=mine)
    with client_for(ctx) as client:

        def look() -> _Look:
            return list(client.use.now()), with_closed_nodes(TOP, client.nodes())

        if output not in (Format.TABLE, Format.WIDE):
            put(show_list(chosen(list(client.use.now()), choice), TOP, output))
        elif once or not (sys.stdin.isatty() and sys.stdout.isatty()):
            gpus, view = look()
            put(Rendered(f"{frame(gpus, choice, view=view)}\n"))
        else:
            _run(look, choice)


def _is_pressed(keyboard: int, lasts: Callable[[], bool]) -> bool:
    """Wait for a key while a frame `lasts`."""
    while lasts():
        if select.select([keyboard], [], [], _SIZE_EVERY_S)[0]:
            return True
    return False


def _run(look: Callable[[], _Look], choice: Choice) -> None:
    """Draw until the user quits; the terminal is afterwards as it was before."""
    from gpu_dev.sessions.terminals.raw_terminal import RawTerminal

    (gpus, view), trouble = look(), ""
    due = time.monotonic() + EVERY_S
    keyboard = sys.stdin.fileno()
    with RawTerminal(keyboard) as terminal:
        put(_BEGIN)
        try:
            while not choice.is_over:
                size = terminal.size()
                rows = size.rows
                choice = fitted(gpus, choice, rows, view)
                lines = [*trouble.split("\n"), *frame(gpus, choice, rows - 1, view).split("\n")][:rows]
                put(Rendered("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J"))
                if _is_pressed(keyboard, lambda: time.monotonic() < due and terminal.size() == size):  # noqa: B023 - at once
                    pressed = os.read(keyboard, _MOST_KEYS).decode(errors="replace")
                    if not pressed:
                        return
                    for key in keys_in(pressed):
                        choice = choice.press(key)
                elif time.monotonic() >= due:
                    try:
                        (gpus, view), trouble = look(), ""
                    except ClientError as error:
                        trouble = f"Not current: {clean(error.detail)}"
                    due = time.monotonic() + EVERY_S
        finally:
            put(_END)
