"""`gpus` and `nodes`."""

from typing import Annotated

import typer

from gpu_dev.options import Output, Watch
from gpu_dev.output import Format, show_list
from gpu_dev.session import client_for
from gpu_dev.views import GPU, GPU_TYPE, NODE, summarise
from gpu_dev.watching import watch

gpus_app = typer.Typer(add_completion=False)
nodes_app = typer.Typer(add_completion=False)


@gpus_app.command()
def gpus(
    ctx: typer.Context,
    each: Annotated[bool, typer.Option("--each", "-e", help="One line a card: its state, holder and end.")] = False,
    gpu_type: Annotated[str | None, typer.Option("--type", help="Only this type.")] = None,
    output: Output = Format.TABLE,
    again: Watch = False,
) -> None:
    """Show by type how many GPUs are free, and when the next one is."""
    with client_for(ctx) as client:

        def render() -> tuple[str, bool]:
            cards = [card for card in client.gpus() if gpu_type is None or card.gpu_type == gpu_type.lower()]
            shown = show_list(cards, GPU, output) if each else show_list(summarise(cards), GPU_TYPE, output)
            return shown, False

        watch(client, render, again=again)


@nodes_app.command()
def nodes(ctx: typer.Context, output: Output = Format.TABLE, again: Watch = False) -> None:
    """List the nodes, how many of their GPUs are free, and why one is not available."""
    with client_for(ctx) as client:
        watch(client, lambda: (show_list(list(client.nodes()), NODE, output), False), again=again)
