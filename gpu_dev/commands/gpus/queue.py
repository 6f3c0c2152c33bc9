"""`queue`: who waits; `queue dlq`: the messages that could not be handled."""

from enum import StrEnum
from typing import Annotated

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.output import Format, View, as_data, show_list
from gpu_dev.display.views import DEAD_LETTER, QUEUE, wanted_in_words
from gpu_dev.errors import UsageError
from gpu_dev.following import place_note
from gpu_dev.options import Output, Watch
from gpu_dev.session import client_for
from gpu_dev.terminal import Rendered, harmless, put, say
from gpu_dev.watching import watch

app = typer.Typer(add_completion=False)
_DEAD_SUFFIX = "_dlq"
_NO_PLACE = 2**63
_CUT = "\nOnly the first {} by priority and arrival are shown, and others may start before them; more with --limit.\n"
_OF_NOBODY = View(QUEUE.name, QUEUE.columns, empty="No job waits.")


class DeadLetterQueueName(StrEnum):
    """The message queues that have dead letters."""

    GPU_JOBS = "gpu_jobs"
    POD_OPERATIONS = "pod_operations"
    NOTIFICATIONS = "notifications"


@app.callback(invoke_without_command=True)
def queue(
    ctx: typer.Context,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Show at most this many, the first by priority and arrival.")
    ] = 200,
    output: Output = Format.TABLE,
    again: Watch = False,
) -> None:
    """Show waiting jobs, why they wait, and until when. Users see their own jobs, and totals of all."""
    if ctx.invoked_subcommand is not None:
        return
    with client_for(ctx) as client:

        def render() -> tuple[str, bool]:
            page = client.queue(limit)
            if output in (Format.TABLE, Format.WIDE):
                page.items.sort(key=lambda entry: entry.queue_position or _NO_PLACE)
            totals = as_data(page.totals)
            view = QUEUE if page.totals else _OF_NOBODY
            text = show_list(page.items, view, output, next_cursor=page.next_cursor, totals=totals)
            if output in (Format.TABLE, Format.WIDE) and page.totals:
                words = ", ".join(
                    f"{one.jobs} {'job' if one.jobs == 1 else 'jobs'} for {wanted_in_words(one.gpus, one.gpu_type)}"
                    for one in page.totals
                )
                cut = _CUT.format(len(page.items)) if page.next_cursor is not None else ""
                text = Rendered(text + place_note(page.items, output) + harmless(f"{cut}\nIn the queue: {words}\n"))
            return text, False

        watch(client, render, again=again)


@app.command()
def dlq(
    ctx: typer.Context,
    queue_name: Annotated[DeadLetterQueueName | None, typer.Option("--queue", help="Only this queue.")] = None,
    redrive: Annotated[
        list[str] | None, typer.Option(metavar="QUEUE/ID", help="Send this message again (may be repeated).")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Send all of them again.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show messages that could not be handled, with their error, or send them again (administrators)."""
    queues = [queue_name] if queue_name else list(DeadLetterQueueName)
    chosen = [read_message(text, queue_name) for text in redrive or ()]
    if chosen and all_:
        raise UsageError("Give either --redrive QUEUE/ID or --all.")
    with client_for(ctx) as client:
        if all_:
            _send_again(client, dict.fromkeys(queues))
        elif chosen:
            _send_again(client, {name: [i for n, i in chosen if n is name] for name, _ in chosen})
        else:
            letters = [letter for name in queues for letter in client.dead_letters(name.value)]
            put(show_list(letters, DEAD_LETTER, output))


def read_message(text: str, queue_name: DeadLetterQueueName | None) -> tuple[DeadLetterQueueName, int]:
    """A message as `dlq` shows it (`gpu_jobs/12`, with or without `_dlq`), or its number where --queue is given.

    Raises UsageError.
    """
    queue_text, _, number = text.rpartition("/")
    name = queue_text.removesuffix(_DEAD_SUFFIX) or (queue_name.value if queue_name else "")
    if name not in set(DeadLetterQueueName) or not (number.isascii() and number.isdigit()):
        raise UsageError(
            f"{text!r} names no message. Write it as `gpu-dev queue dlq` shows it: gpu_jobs/12.",
            next_command="gpu-dev queue dlq",
        )
    if queue_name is not None and name != queue_name:
        raise UsageError(f"{text!r} is not in the queue {queue_name.value} that --queue names.")
    return DeadLetterQueueName(name), int(number)


def _send_again(client: GpuDevClient, chosen: dict[DeadLetterQueueName, list[int] | None]) -> None:
    for name, ids in chosen.items():
        count = client.redrive(name.value, ids).count
        put(f"{name.value}: {count} sent again\n")
        if ids is not None and count < len(set(ids)):
            gone = len(set(ids)) - count
            say(f"{name.value}: {gone} of the messages named {'is' if gone == 1 else 'are'} no longer there.")
