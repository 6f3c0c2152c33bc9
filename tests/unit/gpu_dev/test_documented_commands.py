"""Command lines in guides: every `gpu-dev …` that a page, a chart or its notes show is one that the command line takes.

Read are blocks of commands, and code spans that begin with `gpu-dev`. Commands of another tool stand in a block whose
title, which readers see, is that tool's name (```` ```sh title="Slurm" ````), or in a table's column of that name.
`…` stands for what is omitted: of such a command, and of a code span that only names one, only the names are checked.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.exceptions import TyperException

from gpu_dev.errors import ClientError
from gpu_dev.main import app

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CHARTS = sorted([*ROOT.glob("charts/*/values*.yaml"), *ROOT.glob("charts/*/templates/NOTES.txt")])
_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`((?:GPU_DEV_\w+=\S+ )?gpu-dev(?:\s[^`]*)?)`")
_NAME = re.compile(r"gpu-dev [a-z]+(?: [a-z][a-z-]+)?")
_TEMPLATE = re.compile(r"{{.*?}}")
_SHELLS = {"", "sh", "console"}
WRONG = (TyperException, ClientError, AssertionError)
_PUNCTUATION = re.compile(r"[();<>|&]+")


def commands(text: str) -> Iterator[list[str]]:
    """The words after `gpu-dev` of every command line that a page shows."""
    for _, kind, block in _FENCE.findall(text):
        if kind in _SHELLS:
            yield from in_shell(prompted(block) if kind == "console" else block)
    for span in _SPAN.findall(_FENCE.sub("", text)):
        line = " ".join(span.replace(r"\|", "|").split())
        yield from in_shell(f"{line} …" if _NAME.fullmatch(line) else line)


def prompted(block: str) -> str:
    """The lines of a transcript that are typed, without their prompts."""
    return "\n".join(re.findall(r"^\w*\$ (.*)$", block, re.MULTILINE))


def in_shell(script: str) -> Iterator[list[str]]:
    """The words after `gpu-dev` of every simple command in a shell script."""
    left = script.replace("\\\n", " ").splitlines()
    while left:
        words = shell_words(left)
        command: list[str] = []
        for word in [*words, ";"]:
            if _PUNCTUATION.fullmatch(word):
                yield from ours(command)
                command = []
            else:
                command.append(word)


def shell_words(left: list[str]) -> list[str]:
    """The words of the first line of these, which is taken away; with the lines that its quotes go on in."""
    line = left.pop(0)
    if "gpu-dev" not in line:
        return []
    while True:
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            return list(lexer)
        except ValueError:
            line = f"{line}\n{left.pop(0)}"


def ours(words: list[str]) -> Iterator[list[str]]:
    """Nothing if these words are another program's."""
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    if words and words[0] == "gpu-dev":
        yield words[1:]


def parse(words: list[str]) -> None:
    """Read a command line as `gpu-dev` does, and do nothing. Raises one of WRONG for what it refuses."""
    if not words or words[0].isupper():  # `gpu-dev` alone, and `gpu-dev COMMAND --help`
        return
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and words[0][0] not in "-…":
        _, command, words = command.resolve_command(typer.Context(command), words)
    if {"--help", "-h", "--version"} & {*words}:  # these end it
        return
    if "…" in words:
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--") and word != "--"} <= known
        return
    command.make_context("gpu-dev", words)


@pytest.mark.parametrize("path", [*PAGES, *CHARTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_command_lines_in_guides_can_be_typed(path: Path) -> None:
    text = _TEMPLATE.sub("X", path.read_text(encoding="utf-8"))
    for words in [*commands(text), *(in_shell(text) if path.suffix == ".txt" else ())]:
        try:
            parse(words)
        except WRONG as error:
            pytest.fail(f"gpu-dev {shlex.join(words)}: {error}")


def test_what_is_read_of_a_page() -> None:
    page = (
        "Run `gpu-dev list --all`, `gpu-dev\nshow`, or `GPU_DEV_SERVER=x gpu-dev`.\n"
        "```\n. .venv/bin/activate; gpu-dev gpus # all\n"
        'kubectl get pods -n gpu-dev | grep "$(hostname)"\nsource <(gpu-dev completion bash)\n'
        "gpu-dev run --gpus 1 --for 1h -- sh -c 'a\nb' > file\n```\n"
        "```console\nada$ gpu-dev show ID\nIt isn't: gpu-dev nonsense\n```\n"
        '```sh title="Slurm"\ngpu-dev nothing\n```\n'
    )
    assert [*commands(page)] == [
        ["gpus"],
        ["completion", "bash"],
        ["run", "--gpus", "1", "--for", "1h", "--", "sh", "-c", "a\nb"],
        ["show", "ID"],
        ["list", "--all"],
        ["show", "…"],
        [],
    ]


@pytest.mark.parametrize("words", ["nothing", "list --every", "book create --gpus two", "extend ID", "book … --every"])
def test_a_command_line_that_is_wrong_is_found(words: str) -> None:
    with pytest.raises(WRONG):
        parse(words.split())
