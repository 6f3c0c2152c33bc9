"""Help texts: the terminal shows what the code says, in every command."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import rich.markup
import typer

from gpu_dev.main import COMMANDS
from reservation_core.domain.notices import NoticeKind
from reservation_core.domain.policy.limits import RuleName


def texts(command: Any) -> Iterator[str]:
    """Every text of a command's help, and of those below it."""
    yield from filter(None, [command.help, *(getattr(parameter, "help", None) for parameter in command.params)])
    for below in getattr(command, "commands", {}).values():
        yield from texts(below)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_word_of_help_is_taken_for_markup(name: str) -> None:
    entry = COMMANDS[name]
    command = typer.main.get_command(getattr(importlib.import_module(f"gpu_dev.commands.{entry.module}"), entry.app))
    for text in (entry.help, *texts(command)):
        assert rich.markup.render(text).plain == text


@pytest.mark.parametrize(("words", "names"), [("policy set", RuleName), ("notify set", NoticeKind)])
def test_help_lists_what_can_be_set(words: str, names: type[RuleName | NoticeKind]) -> None:
    command, word = words.split()
    entry = COMMANDS[command]
    module = importlib.import_module(f"gpu_dev.commands.{entry.module}")
    below: Any = typer.main.get_command(getattr(module, entry.app))
    for name in names:
        assert f"{name}: " in below.commands[word].epilog
