"""`gpus`; `nodes`, `nodes fence|unfence`, `nodes cordon|uncordon` and `nodes quarantine|release`."""

from typing import Annotated

import typer

from gpu_dev.display.gpu_types import summarise, with_closed_nodes
from gpu_dev.display.local_times import local_sentence
from gpu_dev.display.output import Format, show_list
from gpu_dev.display.views import GPU, GPU_TYPE, NODE
from gpu_dev.errors import UsageError
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.ids import require_known
from gpu_dev.options import Output, Watch, Yes
from gpu_dev.session import check_type, client_for
from gpu_dev.terminal import put
from gpu_dev.watching import watch

gpus_app = typer.Typer(add_completion=False)
nodes_app = typer.Typer(add_completion=False)


@gpus_app.command()
def gpus(
    ctx: typer.Context,
    each: Annotated[
        bool, typer.Option("--each", "-e", help="One line for each GPU: its state, holder and end.")
    ] = False,
    gpu_type: Annotated[str | None, typer.Option("--type", help="Only this type.")] = None,
    output: Output = Format.TABLE,
    again: Watch = False,
) -> None:
    """Show by type how many GPUs are free, what their nodes have beside them, and when the next GPU is free.

    A free GPU stays free for an hour. One that is taken soon is free now, but a promised job, a booking or maintenance
    takes it within the hour.
    """
    with client_for(ctx) as client:

        def render() -> tuple[str, bool]:
            cards = list(client.gpus())
            if gpu_type is not None:
                wanted = check_type(client, gpu_type, (card.gpu_type for card in cards))
                cards = [card for card in cards if card.gpu_type == wanted]
            if each:
                return show_list(cards, with_closed_nodes(GPU, client.nodes()), output), False
            return show_list(summarise(cards, client.nodes()), GPU_TYPE, output), False

        watch(client, render, again=again)


@nodes_app.callback(invoke_without_command=True)
def nodes(ctx: typer.Context, output: Output = Format.TABLE, again: Watch = False) -> None:
    """List the nodes, how many of their GPUs are free (for an hour) or taken soon, and why one is not available."""
    if ctx.invoked_subcommand is not None:
        return
    with client_for(ctx) as client:
        watch(client, lambda: (show_list(list(client.nodes()), NODE, output), False), again=again)


@nodes_app.command()
def fence(
    ctx: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node's name, as `gpu-dev nodes` lists it.")],
    reason: Annotated[str | None, typer.Option(help="The reason, for the audit log.")] = None,
    yes: Yes = False,
) -> None:
    """Declare that a node has no power: jobs with pods there end, and the GPUs that they hold elsewhere become free.

    For administrators. The server cannot check it: if these pods still run, two jobs may use the same GPUs or files.
    The node gets nothing new until `gpu-dev nodes unfence`.
    """
    with client_for(ctx) as client:
        if not yes:
            require_known(node, (known.name for known in client.nodes()), "node", "gpu-dev nodes")
        confirmed(f"Is the machine {node} switched off, so that nothing runs on it? Its jobs will end.", yes=yes)
        fenced = client.fence_node(node, reason)
    put(f"{fenced.name} is fenced. When it is back and well: gpu-dev nodes unfence {fenced.name}\n")


@nodes_app.command()
def unfence(ctx: typer.Context, node: Annotated[str, typer.Argument(metavar="NODE", help="A fenced node.")]) -> None:
    """Remove a fence: the node's GPUs are available again as soon as it is ready (administrators)."""
    with client_for(ctx) as client:
        freed = client.unfence_node(node)
    put(f"{freed.name} is not fenced any more{'' if freed.ready else ', and not ready yet'}\n")


@nodes_app.command()
def cordon(
    ctx: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node's name, as `gpu-dev nodes` lists it.")],
    reason: Annotated[str | None, typer.Option(help="The reason, for the audit log and for waiting users.")] = None,
) -> None:
    """Keep new jobs and bookings off a node; running jobs and existing bookings stay (administrators)."""
    with client_for(ctx) as client:
        cordoned = client.cordon_node(node, reason)
    put(f"{cordoned.name} gets nothing new. To undo:  gpu-dev nodes uncordon {cordoned.name}\n")


@nodes_app.command()
def uncordon(ctx: typer.Context, node: Annotated[str, typer.Argument(metavar="NODE", help="A cordoned node.")]) -> None:
    """Remove a cordon (administrators)."""
    with client_for(ctx) as client:
        freed = client.uncordon_node(node)
    beside = f", but: {local_sentence(freed.detail)}" if freed.detail else ": new jobs may start there"
    put(f"{freed.name} is not cordoned any more{beside}\n")


@nodes_app.command()
def quarantine(
    ctx: typer.Context,
    gpu: Annotated[str, typer.Argument(metavar="NODE/GPU", help="A GPU: its node and its index there.")],
    reason: Annotated[str | None, typer.Option(help="The reason, for the audit log and for users.")] = None,
) -> None:
    """Give a GPU to no new job or booking; a job that has it goes on (administrators)."""
    node, index = _place(gpu)
    with client_for(ctx) as client:
        client.quarantine_gpu(node, index, reason)
    put(f"{node}/{index} is quarantined. To undo:  gpu-dev nodes release {node}/{index}\n")


@nodes_app.command()
def release(
    ctx: typer.Context,
    gpu: Annotated[str, typer.Argument(metavar="NODE/GPU", help="A quarantined GPU.")],
) -> None:
    """End the quarantine of a GPU: jobs and bookings get it again (administrators)."""
    node, index = _place(gpu)
    with client_for(ctx) as client:
        freed = client.release_gpu(node, index)
    beside = f", but: {local_sentence(freed.detail)}" if freed.detail else ": new jobs may get it"
    put(f"{node}/{index} is not quarantined any more{beside}\n")


def _place(gpu: str) -> tuple[str, int]:
    """The node and the index that `node/index` names. Raises UsageError."""
    node, _, index = gpu.rpartition("/" if "/" in gpu else ":")
    if not node or not (index.isascii() and index.isdigit()):
        raise UsageError(
            f"{gpu!r} is no GPU. Give its node and its index there, such as node1/0 (see `gpu-dev gpus --each`)."
        )
    return node, int(index)
