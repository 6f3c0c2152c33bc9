"""`pods`: those that the ledger does not know; `pods end`."""

from itertools import islice
from typing import Annotated

import typer

from gpu_dev.display.output import Format, show_list
from gpu_dev.display.views import UNKNOWN_POD
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.ids import require_known
from gpu_dev.options import Output, Watch, Yes
from gpu_dev.session import client_for
from gpu_dev.terminal import put
from gpu_dev.watching import watch

app = typer.Typer(add_completion=False)
_MOST = 10_000


@app.callback(invoke_without_command=True)
def pods(ctx: typer.Context, output: Output = Format.TABLE, again: Watch = False) -> None:
    """List pods with this server's labels that belong to no known job (administrators).

    Some may be left after the database was restored from a backup. Their GPUs are not given out while they exist.
    """
    if ctx.invoked_subcommand is not None:
        return
    with client_for(ctx) as client:

        def render() -> tuple[str, bool]:
            return show_list(list(islice(client.unknown_pods(), _MOST)), UNKNOWN_POD, output), False

        watch(client, render, again=again)


@app.command()
def end(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="POD", help="Pods as `gpu-dev pods` shows them.")],
    yes: Yes = False,
) -> None:
    """End unknown pods (administrators); their work is lost."""
    with client_for(ctx) as client:
        if not yes:
            known = [pod.name for pod in islice(client.unknown_pods(), _MOST)]
            for name in names:
                require_known(name, known, "unknown pod", "gpu-dev pods")
        confirmed(f"End {' '.join(names)}? It may be a user's work.", yes=yes)
        for name in names:
            put(f"{client.end_unknown_pod(name).name}: will be ended\n")
