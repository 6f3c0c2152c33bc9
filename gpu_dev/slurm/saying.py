"""Errors, warnings and help of Slurm's commands."""

from collections.abc import Iterable, Mapping, Sequence

from gpu_dev.slurm.reading.options import Option, Takes, Treatment
from gpu_dev.slurm.reading.words import Given, Remark, Words
from gpu_dev.terminal import put, say


class RefusedError(Exception):
    """The command can't be carried out; what is wrong has been said."""


def refuse(program: str, remarks: Iterable[Remark], consequence: str) -> None:
    """Say all that is wrong, and raise RefusedError if there is something."""
    wrong = list(dict.fromkeys(map(str, remarks)))
    for text in wrong:
        say(f"{program}: error: {text}")
    if wrong:
        say(f"{program}: {consequence}")
        raise RefusedError


def warn(program: str, remarks: Iterable[Remark]) -> None:
    """Say what has no effect."""
    for text in dict.fromkeys(map(str, remarks)):
        say(f"{program}: warning: {text}")


def show_help(usage: str, table: Mapping[str, Option], given: Sequence[Given]) -> bool:
    """Print what was asked for instead of a command: the options or the version."""
    asked = {one.option.name for one in given}
    if "version" in asked:
        import importlib.metadata

        put(f"gpu-dev {importlib.metadata.version('gpu-dev-server')}, in place of Slurm\n")
        return True
    if not asked & {"help", "usage"}:
        return False
    parts = [usage]
    for treatment in Treatment:
        if options := [option for option in table.values() if option.treatment is treatment]:
            parts.append(f"\nOptions that are {treatment.value}:")
            parts += (f"  {_written(option):<26}{option.here}" for option in options)
    put("\n".join(parts) + "\n")
    return True


def _written(option: Option) -> str:
    value = {Takes.NOTHING: "", Takes.VALUE: "=VALUE", Takes.OPTIONAL: "[=VALUE]"}[option.takes]
    letter = f"-{option.letter}, " if option.letter else ""
    return f"{letter}{option.flag}{value}"


def remarks_of(typed: Words) -> tuple[list[Remark], list[Remark]]:
    """What stands against options that were typed, and what is passed over."""
    refusals = [*typed.refusals]
    warnings = []
    for one in typed.given:
        if one.option.treatment is Treatment.REFUSED:
            refusals.append(Remark(one.line, one.text, one.option.here))
        elif one.option.treatment is Treatment.PASSED_OVER:
            warnings.append(Remark(one.line, one.text, f"It is passed over. {one.option.here}"))
    return refusals, warnings


def last_values(typed: Words) -> dict[str, str | None]:
    """The values of the options that were typed, by name; of several of one name the last one counts."""
    return {one.option.name: one.value for one in typed.given}
