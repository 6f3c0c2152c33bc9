"""The command that was meant, where another word of the same meaning was typed: `users create` is `users add` here."""

from collections.abc import Mapping
from typing import Any

_MEANINGS = (
    frozenset({"add", "create", "make", "new"}),
    frozenset({"cancel", "delete", "end", "kill", "remove", "revoke", "rm", "stop"}),
    frozenset({"jobs", "list", "ls", "ps"}),
    frozenset({"describe", "get", "info", "show"}),
    frozenset({"change", "edit", "move", "update"}),
)


def refuse_synonym(ctx: Any, typed: str, commands: Mapping[str, Any]) -> None:
    """Raise a usage error that names the commands which mean the same as what was typed, if there are any.

    While a shell completes a line, nothing is refused.
    """
    if typed in commands or ctx.resilient_parsing:
        return
    meant = sorted(name for words in _MEANINGS if typed in words for name in words & commands.keys())
    if meant:
        ctx.fail(f"No such command {typed!r}. Did you mean {' or '.join(map(repr, meant))}?")


def suggest_by_meaning(command: Any) -> None:
    """Let a group of commands, and those below it, answer a synonym of a command with that command."""
    commands = getattr(command, "commands", {})
    if not commands:
        return
    typers_own = command.resolve_command

    def resolve_command(ctx: Any, args: list[str]) -> Any:
        refuse_synonym(ctx, args[0], commands)
        return typers_own(ctx, args)

    command.resolve_command = resolve_command
    for below in commands.values():
        suggest_by_meaning(below)
