"""Help texts: the terminal shows what the code says, in every command."""

import importlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import rich.markup
import typer
from typer.testing import CliRunner

from gpu_dev.display.command_examples import EXAMPLES, with_paths
from gpu_dev.main import COMMANDS, app
from reservation_core.domain.notices.kinds import NoticeKind
from reservation_core.domain.policy.nouns import RuleName


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


def of_name(name: str) -> Any:
    """A command as `gpu-dev NAME` finds it, examples included."""
    root: Any = typer.main.get_command(app)
    return root.resolve_command(typer.Context(root), [name])[1]


def test_every_command_has_examples_and_no_other_has() -> None:
    assert {path for name in COMMANDS for path, _ in with_paths(of_name(name), name)} == {*EXAMPLES}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_and_group_has_two_examples(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "-h"], env={"COLUMNS": "200"})
    examples = shown.stdout.partition("Examples:")[2]
    assert examples.count("gpu-dev") >= 2, shown.stdout


@pytest.mark.parametrize("name", ["up", "psql"])
def test_commands_that_start_other_programs_have_help_of_their_own(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "-h"])
    assert (shown.exit_code, "Examples:" in shown.stdout) == (0, True)


@pytest.mark.parametrize("path", EXAMPLES)
def test_paragraphs_break_where_the_terminal_ends_and_arguments_are_explained(path: str) -> None:
    name, *_ = path.split()
    command = dict(with_paths(of_name(name), name))[path]
    assert all("\n" not in paragraph for paragraph in command.help.split("\n\n"))
    for parameter in command.get_params(typer.Context(command)):
        assert parameter.help, parameter.name


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples_are_commands_as_they_can_be_typed(path: str) -> None:
    name, *_ = path.split()
    commands = dict(with_paths(of_name(name), name))
    for example in EXAMPLES[path]:
        assert example in commands[path].epilog
        assert rich.markup.render(example).plain == example
        words = [word for word in shlex.split(example.partition(" > ")[0]) if not word.startswith("GPU_DEV_")][1:]
        if words[:1] in (["--server"], ["--token-file"]):
            words = words[2:]
        words = words or ["status"]
        assert words[: len(path.split())] == path.split()
        commands[path].make_context(path, words[len(path.split()) :])


@pytest.mark.parametrize("path", EXAMPLES)
def test_values_of_options_are_named_without_types_of_python(path: str) -> None:
    name, *_ = path.split()
    command = dict(with_paths(of_name(name), name))[path]
    context = typer.Context(command)
    shown = " ".join(parameter.display_type_rich(context) for parameter in command.get_params(context))
    assert not {"str", "bool", "int", "float", "list"} & {*re.findall(r"\w+", shown)}
    assert "<" not in shown


def test_options_that_mean_something_where_they_are_left_out_say_what() -> None:
    words = "time-zone user project priority nodes step image retries limit working-dir"
    wanted = {f"--{word}" for word in words.split()}
    checked = set()
    for path in EXAMPLES:
        name, *_ = path.split()
        for option in dict(with_paths(of_name(name), name))[path].params:
            if (known := wanted & {*option.opts}) and not option.help.startswith(("Only ", "With --all")):
                checked |= known
                assert "default" in option.help or option.default is not None, (path, option.opts)
    assert checked == wanted


def test_values_of_options_say_what_can_be_typed() -> None:
    command = dict(with_paths(of_name("submit"), "submit"))["submit"]
    context = typer.Context(command)
    shown = {one.name: one.display_type_rich(context) for one in command.get_params(context)}
    assert (shown["gpus"], shown["duration"], shown["env"], shown["json_file"]) == ("NUMBER", "TEXT", "K=V", "FILE")
    assert (shown["output"], shown["wait"], shown["command"]) == ("table|wide|json|yaml|name", "", "")


_DESTROYING = {"cancel", "delete", "disable", "end", "fence", "remove", "remove-member", "revoke"}
_UNDONE_BY_A_COMMAND = {
    "projects remove-member": "`projects add` undoes it.",
    "slurm remove": "`slurm install` undoes it.",
}


def test_what_destroys_asks_first() -> None:
    """A command that ends more than it names, or what cannot be made again, has --yes for where nobody can be asked."""
    commands = {
        name: {
            option
            for parameter in dict(with_paths(of_name(name.split()[0]), name.split()[0]))[name].params
            for option in parameter.opts
        }
        for name in EXAMPLES
        if name.split()[-1] in _DESTROYING
    }
    assert {name for name, options in commands.items() if "--yes" not in options} == set(_UNDONE_BY_A_COMMAND)
    assert len(commands) > 10
