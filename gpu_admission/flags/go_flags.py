"""Command lines as Go programs of the Kubernetes world read them: `--name=value`, `--name value`, `-v4`, `--switch`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


class FlagError(Exception):
    """The command line can't be used; the text names the option and says what to write."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One option. `alone` is what it means without a value, as a switch; None where it needs one.

    `check` raises ValueError, with what the value has to be, for values that it can't have.
    """

    name: str
    value: str
    about: str
    check: Callable[[str], object] = str
    alone: str | None = None
    short: str | None = None


def read_flags(arguments: Sequence[str], flags: Sequence[Flag]) -> Mapping[str, str]:
    """The options given, by name; of one that is repeated the last value counts. Raises FlagError.

    Names may be written with `_` for `-`. Values that begin with a dash are values all the same.
    """
    long = {flag.name: flag for flag in flags}
    short = {flag.short: flag for flag in flags if flag.short}
    found: dict[str, str] = {}
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        if argument == "--":
            if waiting:
                raise _surplus(waiting[-1])
        elif argument.startswith("--"):
            flag, value = _long(argument, long, waiting)
            _keep(found, flag, value, f"--{flag.name}")
        elif argument.startswith("-") and argument != "-":
            _shorts(argument, short, long, waiting, found)
        else:
            raise _surplus(argument)
    return found


def help_text(program: str, about: str, flags: Sequence[Flag]) -> str:
    heads = [f"  {f'-{flag.short}, ' if flag.short else '    '}--{flag.name} {flag.value}".rstrip() for flag in flags]
    width = min(max(map(len, heads)), 44) + 2
    lines = [f"{head:<{width}}{flag.about}" for head, flag in zip(heads, flags, strict=True)]
    return "\n".join([f"usage: {program} [OPTION ...]", "", about, "", *lines, ""])


def _long(argument: str, flags: Mapping[str, Flag], waiting: list[str]) -> tuple[Flag, str]:
    name, equals, value = argument[2:].partition("=")
    flag = flags.get(name.replace("_", "-"))
    if flag is None:
        raise FlagError(f"there is no option --{name}; --help lists those that there are")
    return flag, value if equals else _value_of(flag, f"--{name}", waiting)


def _shorts(
    argument: str, short: Mapping[str, Flag], long: Mapping[str, Flag], waiting: list[str], found: dict[str, str]
) -> None:
    rest = argument[1:]
    while rest:
        letter, rest = rest[0], rest[1:]
        flag = short.get(letter)
        if flag is None:
            name = argument[1:].partition("=")[0].replace("_", "-")
            hint = f"write -{argument}" if name in long else "--help lists those that there are"
            raise FlagError(f"there is no option -{letter}, as in {argument}; {hint}")
        if rest.startswith("="):
            value, rest = rest[1:], ""
        elif flag.alone is not None:
            value = flag.alone
        elif rest:
            value, rest = rest, ""
        else:
            value = _value_of(flag, f"-{letter}", waiting)
        _keep(found, flag, value, f"-{letter}")


def _value_of(flag: Flag, written: str, waiting: list[str]) -> str:
    if flag.alone is not None:
        return flag.alone
    if not waiting:
        raise FlagError(f"{written} needs a value: {written} {flag.value}")
    return waiting.pop()


def _keep(found: dict[str, str], flag: Flag, value: str, written: str) -> None:
    try:
        flag.check(value)
    except ValueError as problem:
        raise FlagError(f"{written} must be {problem}; it is {value[:200]!r}") from None
    found[flag.name] = value


def _surplus(argument: str) -> FlagError:
    return FlagError(
        f"{argument[:200]!r} is no option, and nothing else is taken. The value of a switch is written with =, such as"
        " --logtostderr=true"
    )
