"""The command or option that was meant, where another word of the same meaning was typed.

`users create` is `users add` here, and `--until` is `--end`.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from gpu_dev.errors import UsageError
from gpu_dev.plain_values import choices_of, word_meant
from gpu_dev.terminal import Rendered, put
from reservation_core.domain.short_durations import seconds_in
from reservation_core.domain.similar_names import similar

_MEANINGS = (
    frozenset({"add", "create", "make", "new", "set"}),
    frozenset({"cancel", "scancel"}),
    frozenset({"run", "srun"}),
    frozenset({"queue", "squeue"}),
    frozenset({"nodes", "sinfo"}),
    frozenset({"dev", "salloc"}),
    frozenset({"list", "sacct"}),
    frozenset({"cancel", "delete", "disable", "end", "kill", "remove", "revoke", "rm", "stop"}),
    frozenset({"jobs", "list", "ls", "ps"}),
    frozenset({"describe", "get", "info", "show"}),
    frozenset({"change", "edit", "move", "update"}),
    frozenset({"cordon", "drain", "offline"}),
    frozenset({"online", "resume", "uncordon", "undrain"}),
    frozenset({"book", "bookings", "calendar", "reservations"}),
    frozenset({"copy", "cp", "download", "rsync", "scp", "sync", "upload"}),
    frozenset({"avail", "available", "free", "gpus"}),
    frozenset({"explain", "reason", "wait", "why"}),
    frozenset({"limits", "policy", "quota", "quotas", "rules"}),
    frozenset({"log", "logs", "output", "tail"}),
    frozenset({"nvidia-smi", "monitor", "stats", "top"}),
    frozenset({"connect", "enter", "shell"}),
    frozenset({"sbatch", "start", "submit"}),
    frozenset({"me", "whoami", "status"}),
    frozenset({"disk", "disks", "storage", "volumes"}),
    frozenset({"history", "events"}),
    frozenset({"get", "info", "list", "members", "show"}),
    frozenset({"list", "ls", "mine", "targets"}),
    frozenset({"find", "free", "slots", "suggest", "when"}),
    frozenset({"kinds", "set"}),
)
_SLURM = frozenset({"sbatch", "scancel", "sinfo", "squeue", "srun"})
_LISTED = frozenset({"all", "list", "ls", "show"})
_ROLE_CHANGES = frozenset({"change", "demote", "edit", "grant", "promote", "role", "set", "set-role", "update"})
_OPTION_MEANINGS = (
    frozenset({"--expires", "--expires-in", "--for", "--lifetime"}),
    frozenset({"--duration", "--for", "--hours", "--length", "--minutes", "--time", "--time-limit"}),
    frozenset({"--by", "--for", "--duration"}),
    frozenset({"--actor", "--owner", "--user"}),
    frozenset({"--end", "--to", "--until"}),
    frozenset({"--begin", "--from", "--since", "--slot", "--start", "--when"}),
    frozenset({"--days", "--history"}),
    frozenset({"--days", "--from", "--last", "--month", "--past", "--week"}),
    frozenset({"--repeat", "--recurrence", "--rrule", "--series", "--weekly"}),
    frozenset({"--count", "--gpu-count", "--gpus", "--gpus-per-node", "--gres", "--ngpus", "--num-gpus"}),
    frozenset({"--gpu-type", "--model", "--type"}),
    frozenset({"--mem", "--memory", "--ram"}),
    frozenset({"--cores", "--cpus", "--cpus-per-task"}),
    frozenset({"--after", "--dependency", "--depends-on", "--needs"}),
    frozenset({"--job-name", "--name", "--title"}),
    frozenset({"--container", "--image"}),
    frozenset({"--chdir", "--cwd", "--workdir", "--working-dir"}),
    frozenset({"--account", "--project"}),
    frozenset({"--add-nodes", "--nodes"}),
    frozenset({"--requeue", "--retries", "--retry"}),
    frozenset({"--mount", "--disk", "--volume"}),
    frozenset({"--force", "--yes"}),
    frozenset({"--all", "--deleted"}),
    frozenset({"--last", "--lines", "--tail"}),
    frozenset({"-n", "--count", "--limit", "--max"}),
    frozenset({"--description", "--reason", "--title"}),
)
_OF_NOW = ("avail", "gpus", "nodes")
"""Commands that show what is free now, whatever somebody needs."""
_OF_SLOTS = ("--duration", "--end", "--for", "--gpus", "--start")
_SHOWN_ANYWAY = "Leave it out: the command shows that by itself."
_ANSWERS = {
    **{(command, option): _SHOWN_ANYWAY for command in _OF_NOW for option in ("--free", "--available")},
    ("queue", "--mine"): _SHOWN_ANYWAY,
    **{
        (command, option): "`gpu-dev book slots --gpus 2 --for 4h` finds when they are free."
        for command in _OF_NOW
        for option in _OF_SLOTS
    },
    **{("book", option): "`gpu-dev book create` takes it." for option in (*_OF_SLOTS, "--type")},
    **{
        (command, option): 'A job starts once GPUs are free. For a set time: gpu-dev book create --start "mon 9-17".'
        for command in ("submit", "run")
        for option in ("--at", "--begin", "--end", "--start", "--until")
    },
    ("list", "--name"): "`gpu-dev show NAME` shows one job.",
    ("list", "--today"): "`gpu-dev list --all` lists ended jobs, too, the newest first.",
    **{
        ("logs", option): "`gpu-dev logs ID | grep TEXT` prints these lines."
        for option in ("--filter", "--find", "--grep")
    },
    ("top", "--watch"): "Leave it out: in a terminal the command goes on.",
    ("usage", "--user"): "`gpu-dev usage --by user` has a line for each user.",
}
"""What to do instead, by a command and an option that it has not."""
_FORMATS = ("--csv", "--json", "--wide", "--yaml")
_RESUBMITTED = frozenset({"again", "rerun", "restart", "resubmit", "retry"})
_AT_THE_TOP = {"version": "--version", "docs": "--help", "man": "--help"}
_TOO_MANY = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)")
_ALIKE = 0.6
_SHOWN_ONE_BY_ONE = ("list", "status")
_SHORT = 3
_NAMED = 6
_CLOSE = 0.75


def help_asked(ctx: Any, args: list[str], commands: Mapping[str, Any]) -> list[str]:
    """`help NAME` as `NAME --help`; `help` alone, where no command has this name, shows the help and ends.

    What follows the names of commands is left out: a command is never run.
    """
    if args[0] != "help" or "help" in commands or ctx.resilient_parsing:
        return args
    if args[1:] in ([], ["help"]):
        put(Rendered(f"{ctx.get_help()}\n"))
        ctx.exit()
    name, *below = args[1:]
    in_group = below and getattr(commands.get(name), "commands", None)
    return [name, "help", *below] if in_group else [name, "--help"]


def refuse_synonym(ctx: Any, typed: str, commands: Mapping[str, Any]) -> None:
    """Raise a usage error that names the commands which mean the same as what was typed, if there are any.

    While a shell completes a line, nothing is refused.
    """
    if typed in commands or ctx.resilient_parsing:
        return
    if typed in _AT_THE_TOP and ctx.parent is None:
        ctx.fail(f"No such command {typed!r}. Did you mean {_AT_THE_TOP[typed]}?")
    if typed in _RESUBMITTED and ctx.parent is None:
        ctx.fail(f"No such command {typed!r}. `gpu-dev submit --again ID` submits a job again.")
    if ctx.parent is not None and ctx.command.invoke_without_command and typed in _LISTED:
        ctx.fail(f"No such command {typed!r}. `{ctx.command_path}` alone lists them.")
    if typed in _ROLE_CHANGES and ctx.info_name == "users":
        ctx.fail("The role of a user stays. Add a user with another name and that role, and disable the first one.")
    meant = sorted({name for words in _MEANINGS if typed in words for name in words & commands.keys()})
    if not meant and f"{typed}s" in commands:
        meant = [f"{typed}s"]
    if not meant and ctx.parent is None:
        meant = _below(typed, commands, by_meaning=similar(typed, commands, _ALIKE) is None)
    if meant:
        slurm = f" `gpu-dev slurm install` installs {typed}." if typed in _SLURM and ctx.parent is None else ""
        ctx.fail(f"No such command {typed!r}. Did you mean {' or '.join(map(repr, meant))}?{slurm}")
    if ctx.parent is not None and ctx.command.invoke_without_command and similar(typed, commands, _ALIKE) is None:
        ctx.fail(f"No such command {typed!r}. `{ctx.command_path}` alone lists all.")


def _below(typed: str, groups: Mapping[str, Any], *, by_meaning: bool) -> list[str]:
    """The commands of groups that have this name, or else by their meaning: `drain` is `nodes cordon`."""
    names = [(group, name) for group, command in groups.items() for name in getattr(command, "commands", {})]
    same = {word for words in _MEANINGS if typed in words for word in words}
    found = [one for one in names if one[1] == typed] or [one for one in names if by_meaning and one[1] in same]
    return [" ".join(one) for one in sorted(found)][:_NAMED]


def meant_option(typed: str, options: Collection[str]) -> str | None:
    """The one option that was probably meant: one of the same meaning, or the most similar one."""
    if typed == "--mine" and "--user" in options:  # whoever asks for a user does not mean --mine
        return "--user"
    meant = sorted(option for words in _OPTION_MEANINGS if typed in words for option in words.intersection(options))
    if meant:
        return similar(typed, meant, _ALIKE) or meant[0]
    word = typed.removeprefix("--")
    close = similar(word, [option.removeprefix("--") for option in options], _ALIKE if len(word) > _SHORT else _CLOSE)
    return None if close is None else f"--{close}"


def _answer_to(command: Any, ctx: Any, typed: str) -> str | None:
    """What to do instead of giving an option that a command has not, and that none of its options stands for."""
    if typed in _FORMATS:
        outputs = [parameter for parameter in command.params if "--output" in parameter.opts]
        word = typed.removeprefix("--")
        is_known = any(word in choices_of(output.type_descriptor.annotation) for output in outputs)
        return f"Did you mean --output {word}?" if is_known else None
    return _ANSWERS.get((" ".join(ctx.command_path.split()[1:]), typed))


def _argument_named(command: Any, typed: str) -> str | None:
    """The argument of a command that has the name of a typed option, such as SIZE for `--size`."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    names = [parameter.metavar or parameter.name.upper() for parameter in arguments]
    return next((name for name in names if name.lower() == typed.removeprefix("--")), None)


def _place_of(command: Any, ctx: Any, word: str) -> str:
    """The question whether a word that has no place is an option's: `list running` may mean `list --status running`."""
    if (option := _option_for(command, word)) is not None:
        return f". Did you mean {option}?"
    siblings = getattr(getattr(ctx.parent, "command", None), "commands", {})
    if command.name not in _SHOWN_ONE_BY_ONE or "show" not in siblings:
        return ""
    from reservation_core.domain.statuses import JobStatus

    status = word_meant(word, list(JobStatus))
    if status in list(JobStatus):
        return f". Did you mean `gpu-dev list --status {status}`?" if command.name == "status" else ""
    if word.isascii() and " " not in word and word != "mine" and not _is_time(word):
        return f". Did you mean `{ctx.parent.command_path} show {word}`?"
    return ""


def _option_for(command: Any, word: str) -> str | None:
    """The option of a command that a word is plainly meant for, with its value."""
    for parameter in command.params:
        option: str | None = next((name for name in parameter.opts if name.startswith("--")), None)
        if option == f"--{word}" and parameter.is_flag:
            return option
        value = word_meant(word, choices_of(parameter.type_descriptor.annotation))
        if option is not None and _fits(option, parameter, value):
            return f"{option} {value}"
    return None


def _fits(option: str, parameter: Any, word: str) -> bool:
    """Whether a word is plainly a value of an option: one of its few, a type of GPUs, or a length."""
    if option in ("--type", "--filter"):
        return re.fullmatch(r"[a-z]+[0-9]+[a-z]*", word.lower()) is not None
    choices = choices_of(parameter.type_descriptor.annotation)
    if option in ("--by", "--for") and not choices:
        return word[:1].isdigit() and not word.isdigit() and seconds_in(word) is not None
    return word in choices


def _is_time(word: str) -> bool:
    # Loaded only here: few commands need times.
    from gpu_dev.inputs.machine_zone import local_now
    from gpu_dev.inputs.times import parse_past, parse_slot

    now = local_now()
    try:
        return bool(parse_slot(word, now, None) or parse_past(word, now, None))
    except UsageError:
        return False


def suggest_options(command: Any) -> None:
    """Let a command answer an option that it has not with the one that was meant."""
    typers_own = command.parse_args

    def parse_args(ctx: Any, args: list[str]) -> Any:
        try:
            return typers_own(ctx, args)
        except Exception as caught:
            error: Any = caught
            typed = getattr(error, "option_name", None)  # the library keeps the class of this error to itself
            if type(error).__name__ == "MissingParameter" and getattr(error.param, "help", None):
                said = error.param.help
                # The library goes on with the choices, after a full stop of its own.
                error.message = said.removesuffix(".") if error.param.type_descriptor.is_choice else said
            if (extra := _TOO_MANY.fullmatch(getattr(error, "message", ""))) is not None:
                error.message = f"Nothing may follow here: {extra[1]}{_place_of(command, ctx, extra[1])}"
            if typed is not None and hasattr(error, "possibilities"):
                options = [name for parameter in command.params for name in parameter.opts if name.startswith("--")]
                error.possibilities = None
                error.message = f"No such option: {typed}"
                if (argument := _argument_named(command, typed)) is not None:
                    error.message += f". Write {argument} without an option name."
                elif (answer := _answer_to(command, ctx, typed)) is not None:
                    error.message += f". {answer}"
                elif (meant := meant_option(typed, options)) is not None:
                    error.message += f". Did you mean {meant}?"
            raise

    command.parse_args = parse_args


def suggest_by_meaning(command: Any) -> None:
    """Let a group of commands, and those below it, answer a synonym of a command with that command.

    The same goes for options of commands.
    """
    commands = getattr(command, "commands", {})
    suggest_options(command)
    if not commands:
        return
    typers_own = command.resolve_command

    def resolve_command(ctx: Any, args: list[str]) -> Any:
        args = help_asked(ctx, args, commands)
        refuse_synonym(ctx, args[0], commands)
        return typers_own(ctx, args)

    command.resolve_command = resolve_command
    for below in commands.values():
        suggest_by_meaning(below)
