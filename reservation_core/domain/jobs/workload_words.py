"""What a job or a booking runs, in words."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Protocol

_LONGEST_COMMAND = 300


class Runnable(Protocol):
    """What runs: with variables as a mapping, or as pairs."""

    @property
    def command(self) -> Sequence[str]: ...
    @property
    def image(self) -> str | None: ...
    @property
    def working_dir(self) -> str | None: ...
    @property
    def env(self) -> Mapping[str, str | None] | tuple[tuple[str, str], ...]: ...


def workload_words(workload: Runnable | None) -> list[tuple[str, str]]:
    """The facts of a workload that are set, each with its title. Of variables only the names: values may be secret."""
    if workload is None:
        return []
    facts = (
        ("Command", _command_words(workload.command)),
        ("Image", workload.image or ""),
        ("Working folder", workload.working_dir or ""),
        ("Variables", ", ".join(dict(workload.env))),
    )
    return [(title, words) for title, words in facts if words]


def _command_words(command: Sequence[str]) -> str:
    """A command as a shell reads it, cut where it is very long."""
    text = shlex.join(command)
    return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]} …"
