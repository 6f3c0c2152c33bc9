"""Asking the person at the terminal for what is missing, and failing clearly where there is no terminal."""

import shlex
import sys
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from gpu_dev.errors import DeclinedError, UsageError
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.terminal import harmless, say

T = TypeVar("T")


class Interrupted(StrEnum):
    """What somebody who pressed Ctrl-C wants to become of the job."""

    CANCEL = "cancel"
    DETACH = "detach"
    GO_ON = "go-on"


def can_ask() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> str:
    """The person's answer to a question. Raises EOFError at the end of input.

    Question and echo stay off stdout, which may be a pipe that waits for the answer of the command.
    """
    sys.stderr.write(f"{harmless(question)} ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()


def needed(value: T | None, option: str, question: str, read: Callable[[str], T], example: str) -> T:
    """The value, or what the person answers (asked again until it can be read).

    Raises UsageError, with a command that would do, where nobody can be asked.
    """
    if value is not None:
        return value
    if not can_ask():
        raise UsageError(f"{option} is missing, and there is no terminal to ask for it.", next_command=example)
    while True:
        try:
            return read(ask(question))
        except EOFError as error:
            raise UsageError(f"{option} is missing.", next_command=example) from error
        except UsageError as error:
            say(error.detail)


def confirmed(question: str, *, yes: bool) -> None:
    """Return when the person says yes (or has said --yes).

    Raises DeclinedError otherwise, and UsageError, with the same command and --yes, where nobody can be asked.
    """
    if yes:
        return
    if not can_ask():
        words = sys.argv[1:]
        words.insert(words.index("--") if "--" in words else len(words), "--yes")
        raise UsageError(
            "This needs confirmation. Add --yes to run it without a terminal.",
            next_command=shlex.join(["gpu-dev", *words]),
        )
    try:
        answer = ask(f"{question} [y/N]")
    except EOFError:
        answer = ""
    if answer.lower() not in ("y", "yes"):
        raise DeclinedError("Nothing was done.")


def read_gpus(text: str) -> int:
    """A number of cards on one node. Raises UsageError."""
    from reservation_core.contracts.base import MAX_GPUS_PER_NODE

    if not (text.strip().isascii() and text.strip().isdigit()) or int(text) > MAX_GPUS_PER_NODE:
        raise UsageError(f"{text!r} is not a number of GPUs from 0 to {MAX_GPUS_PER_NODE}.")
    return int(text)


def needed_gpus(gpus: int | None, example: str) -> int:
    """How many cards on each node."""
    return needed(gpus, "--gpus", "How many GPUs?", read_gpus, example)


def needed_duration(text: str | None, example: str) -> timedelta:
    """For how long."""
    given = None if text is None else parse_duration(text)
    return needed(given, "--for", "For how long (such as 4h, 90m, 2d)?", parse_duration, example)


def ask_after_interrupt(job_id: str) -> Interrupted:
    """What to do after Ctrl-C; a second Ctrl-C, or the end of input, detaches."""
    try:
        while True:
            answer = ask(f"\n{job_id}: [c]ancel the job, [d]etach and let it go on, or [g]o on?").lower() or "g"
            for choice in Interrupted:
                if choice.value.startswith(answer):
                    return choice
    except (KeyboardInterrupt, EOFError):
        return Interrupted.DETACH
