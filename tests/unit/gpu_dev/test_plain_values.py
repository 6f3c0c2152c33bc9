"""Options read without pydantic: the same values, and Typer's own errors."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from gpu_dev.plain_values import change_parameters, read_plain


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def outcome(words: list[str], *, plain: bool) -> tuple[int, str, dict[str, Any]]:
    """The exit code, the errors and what the command got."""
    got: dict[str, Any] = {}
    app = typer.Typer(add_completion=False)

    @app.command()
    def command(
        names: Annotated[list[str] | None, typer.Argument()] = None,
        colour: Annotated[Colour, typer.Option()] = Colour.RED,
        colours: Annotated[list[Colour] | None, typer.Option()] = None,
        count: Annotated[int | None, typer.Option(min=1, max=9)] = None,
        below_zero: Annotated[int, typer.Option(min=-100, max=100)] = -5,
        share: Annotated[float, typer.Option()] = 0.5,
        part: Annotated[float | None, typer.Option(min=0.5, max=9)] = None,
        file: Annotated[Path | None, typer.Option()] = None,
        readable: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
        loud: Annotated[bool, typer.Option("--loud")] = False,
    ) -> None:
        got.update(locals())

    built: Any = typer.main.get_command(app)
    if plain:
        change_parameters(built, read_plain)
    written = io.StringIO()
    with redirect_stdout(written), redirect_stderr(written), pytest.raises(SystemExit) as ended:
        built.main(words, prog_name="command")
    got.pop("got", None)
    return int(ended.value.code or 0), written.getvalue(), got


@pytest.mark.parametrize(
    "words",
    [
        "", "a b", "--colour blue", "--colour green", "--colours red --colours blue", "--colours red --colours x",
        "--count 1", "--count 9", "--count 10", "--count 0", "--count -1", "--count x", "--count 007", "--count ''",
        "--below-zero -7", "--below-zero -101", "--share 2", "--share x", "--loud", "--nothing", "--help",
        "--below-zero -100", "--below-zero --5", "--below-zero -", "--share 0.25", "--share -2", "--share 1e3",
        "--share .5", "--share 5.", "--share inf", "--share 1_0", "--part 0.5", "--part 0.4", "--part 9",
        "--part 9.01", "--file /etc/passwd", "--file /nowhere/x", "--file ''", "--file /etc", "--file -",
        "--readable /etc/passwd", "--readable /etc", "--readable /nowhere/x",
        f"--count {'9' * 5000}", "--count 0000000000000000000007",
    ],
)  # fmt: skip
def test_plain_values_are_as_typer_reads_them(words: str) -> None:
    given = [word.strip("'") for word in words.split()]
    code, said, got = outcome(given, plain=True)
    theirs = outcome(given, plain=False)
    assert (code, got) == (theirs[0], theirs[2])
    # Errors are said in other words: without the terms of the validator.
    assert code == 2 or said == theirs[1]
    assert "Input should" not in said
    assert "Value error" not in said


def test_words_of_a_list_may_stand_together_with_commas() -> None:
    both = [Colour.RED, Colour.BLUE]
    for words in (["--colours", "red,blue,"], ["--colours", "red, blue"], ["--colours", "red", "--colours", "blue"]):
        assert outcome(words, plain=True)[2]["colours"] == both
    code, said, _ = outcome(["--colours", "red,bleu"], plain=True)
    assert (code, "'bleu' is not one of" in said) == (2, True)
    assert outcome(["--colours", ","], plain=True)[0] == 2


def test_the_program_that_a_command_becomes_inherits_nothing_of_it() -> None:
    program = (
        "import os, sys\n"
        "import gpu_dev.main\n"
        "from gpu_dev.__main__ import start\n"
        "show = 'import os; print(os.environ.get(\"PYDANTIC_DISABLE_PLUGINS\"))'\n"
        "def become():\n"
        "    print(os.environ['PYDANTIC_DISABLE_PLUGINS'], flush=True)\n"
        "    os.execv(sys.executable, [sys.executable, '-c', show])\n"
        "gpu_dev.main.main = become\n"
        "start()\n"
    )
    for given, seen in (({}, "1\nNone\n"), ({"PYDANTIC_DISABLE_PLUGINS": "true"}, "true\ntrue\n")):
        environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **given}
        command = [sys.executable, "-c", program]
        assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == seen
