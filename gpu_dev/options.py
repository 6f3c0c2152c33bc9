"""Options and arguments that several commands share."""

from typing import Annotated

import typer

from gpu_dev.display.output import Format
from gpu_dev.session import complete_job_id

OwnJobId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="A job's name or id; the beginning of an id is enough if it is unique (default inside a job: that job).",
        autocompletion=complete_job_id,
    ),
]
JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A job's name or id; the beginning of an id is enough if it is unique.",
        autocompletion=complete_job_id,
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Output format.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again every 2 s until Ctrl-C.")]
JobIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Names or ids of your jobs.", autocompletion=complete_job_id),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Zone = Annotated[
    str | None,
    typer.Option("--time-zone", "-z", help="The time zone of times without offset (default: this machine's)."),
]
Rank = Annotated[int, typer.Option(min=0, help="The node of a job on several nodes, counted from 0.")]
