"""What a job or a booking runs, in words."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

_LONGEST_COMMAND = 300


def command_words(command: Sequence[str]) -> str:
    """A command as a shell reads it, cut where it is very long."""
    text = shlex.join(command)
    return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]} …"


def workload_words(
    command: Sequence[str], image: str | None, working_dir: str | None, env: Mapping[str, object] | Iterable[str]
) -> list[tuple[str, str]]:
    """The facts of a workload that are set, each with its title. Of variables only the names: values may be secret."""
    facts = (
        ("Command", command_words(command)),
        ("Image", image or ""),
        ("Working folder", working_dir or ""),
        ("Variables", ", ".join(env)),
    )
    return [(title, words) for title, words in facts if words]
