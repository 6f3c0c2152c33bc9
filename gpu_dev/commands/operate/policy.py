"""`policy list|show|set|remove` and `projects list|create|end|join|leave`: what is allowed, and for whom."""

import re
import shlex
from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.calendar_views import POLICY_VERDICT, PROJECT, RULE, format_rules
from gpu_dev.display.meanings import RULES, as_epilog
from gpu_dev.display.output import Format, show_list, show_one
from gpu_dev.errors import ApiError, UsageError
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.ids import require_known
from gpu_dev.inputs.requests import checked, make_request
from gpu_dev.options import Output, Yes
from gpu_dev.session import client_for
from gpu_dev.terminal import put
from gpu_dev.wire.policy import ProjectCreate, RulesIn
from reservation_core.domain.gpu_use.idle_rules import LEAST, LONGEST, typed_idle
from reservation_core.domain.policy.nouns import QueueOrder, RuleName
from reservation_core.domain.policy.nouns import Scope as RuleScope
from reservation_core.domain.policy.prices import typed_price
from reservation_core.domain.policy.rule_words import counted
from reservation_core.domain.similar_names import did_you_mean, similar
from reservation_core.domain.user_names import folded

app = typer.Typer(no_args_is_help=True, add_completion=False)
projects_app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 10_000
_LENGTHS = frozenset(
    {
        RuleName.MAX_DURATION,
        RuleName.MAX_ADVANCE,
        RuleName.MIN_NOTICE,
        RuleName.COOLDOWN,
        RuleName.NO_SHOW_GRACE,
        RuleName.INACTIVITY,
    }
)
_SHORTEST_GRACE_S = 60
_USUAL_PRIORITY = 1000
_USUAL_MOST = 100_000
_ONESELF = ("me", "mine", "my", "self")
_EVERYBODY = ("everybody", "everyone", "all")
_SUBJECTS = {
    "user": "user",
    "project": "project",
    "team": "project",
    "group": "project",
    "gpu_type": "gpu_type",
    "gpu": "gpu_type",
    "type": "gpu_type",
}
"""What the parts of a scope begin with, by the words that people type."""
_NO_NAMES = ("default", *_EVERYBODY, *_SUBJECTS)


def read_scope(text: str) -> str:
    """The scope of what was typed: pages name the default scope `everybody`. Raises UsageError."""
    wanted = folded(text)
    if wanted in _EVERYBODY:
        return "default"
    try:
        return str(RuleScope.parse("" if " " in wanted else wanted))  # no name has spaces
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a scope.{_scope_meant(wanted)} Scopes are default (everybody), user:NAME, project:NAME, "
            "gpu_type:TYPE, and user:NAME,gpu_type:TYPE."
        ) from error


def _scope_meant(text: str) -> str:
    """The question for the scope that was probably meant; empty without one."""
    text = re.sub(r"\bgpu\s+type\b", "gpu_type", text)
    if not text or text in _NO_NAMES:
        return ""
    if text in _ONESELF:
        return " `gpu-dev policy list` shows the rules that apply to you."
    if re.fullmatch(r"[^\s:=,]+", text):
        return did_you_mean(text, ("default", *_EVERYBODY)) or f" Did you mean user:{text} or gpu_type:{text}?"
    parts = [_part_meant(part) for part in re.split(r"\s*,\s*|\s+(?=\w+\s*[:=])", text)]
    try:
        meant = str(RuleScope.parse(",".join(part or "" for part in parts)))
    except ValueError:
        return ""
    return f" Did you mean {meant}?"


def _part_meant(text: str) -> str | None:
    """`project:vision` of `vision project`, `proj:vision` or `project=vision`; None for other texts."""
    marked = re.split(r"\s*[:=]\s*", text, maxsplit=1)
    words = marked if len(marked) > 1 else text.split()
    if len(words) != 2 or not all(words) or " " in words[1]:
        return None
    ordered = ((subject, name) for subject, name in (words, reversed(words)) if name not in _NO_NAMES)
    named = ((similar(subject, _SUBJECTS), name) for subject, name in ordered)
    return next((f"{_SUBJECTS[subject]}:{name}" for subject, name in named if subject is not None), None)


Scope = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE",
        callback=read_scope,
        help="default (everybody), user:ann, project:vision, gpu_type:h100, or user:ann,gpu_type:h100.",
    ),
]
ProjectName = Annotated[str, typer.Argument(metavar="NAME", help="A project's name.")]
Members = Annotated[list[str], typer.Argument(metavar="USER", help="Names of users.")]
OneOutput = Annotated[Format | None, typer.Option("--output", "-o", help="Output format.")]


class RuleWord(StrEnum):
    """What a word of `policy set` is for."""

    UNLIMITED = "unlimited"
    NOTHING = "none"


@app.command("list")
def list_rules(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List the rules that apply to you; administrators see all."""
    with client_for(ctx) as client:
        put(show_list(list(islice(client.policy.rules(), _MOST)), RULE, output))


@app.command()
def show(ctx: typer.Context, scope: Scope, output: Output = Format.TABLE) -> None:
    """Show the rules of one scope."""
    with client_for(ctx) as client:
        put(show_one(client.policy.rule(scope), RULE, output))


@app.command("set", epilog=as_epilog("Rules:", RULES))
def set_rules(
    ctx: typer.Context,
    scope: Scope,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RULE=VALUE",
            help="Such as max_gpus=4 max_duration=7d; `=unlimited` removes the limit, `=none` deletes the rule.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which jobs and bookings would break the rules.")
    ] = False,
    output: OneOutput = None,
) -> None:
    """Change the rules of a scope (administrators); rules that are not named stay."""
    typed = read_rules(words)
    with client_for(ctx) as client:
        try:
            stored, tag = client.policy.fields_with_etag(scope)
        except ApiError as error:
            if error.problem.status != 404:
                raise
            stored, tag = {}, None
        fields = {name: value for name, value in (stored | typed).items() if value is not None}
        if not fields:
            raise UsageError(
                f"No rule of {scope} would be left. Remove them all instead.",
                next_command=f"gpu-dev policy remove {shlex.quote(scope)}",
            )
        if dry_run:
            verdict = client.policy.would_put_rules(scope, fields, if_match=tag)
            put(show_one(verdict, POLICY_VERDICT, output or Format.TABLE))
            return
        changed = client.policy.put_rules(scope, fields, if_match=tag)
    put(show_one(changed, RULE, output or Format.TABLE))


@app.command()
def remove(ctx: typer.Context, scope: Scope, yes: Yes = False, output: OneOutput = None) -> None:
    """Delete all rules of a scope (administrators). It shows them, and asks first."""
    with client_for(ctx) as client:
        if not yes:
            stored = client.policy.rule(scope)
            confirmed(f"Delete the rules of {stored.scope}: {format_rules(stored.rules)}?", yes=yes)
        dropped = client.policy.delete_rules(scope)
    put(f"{dropped.scope}: its rules are deleted\n" if output is None else show_one(dropped, RULE, output))


@projects_app.command("list")
def list_projects(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List your projects; administrators see all."""
    with client_for(ctx) as client:
        put(show_list(list(islice(client.policy.projects(), _MOST)), PROJECT, output))


@projects_app.command()
def create(
    ctx: typer.Context,
    name: ProjectName,
    title: Annotated[str | None, typer.Option(help="A description.")] = None,
    member: Annotated[list[str] | None, typer.Option(help="A member (may be repeated).")] = None,
    output: OneOutput = None,
) -> None:
    """Create a project (administrators)."""
    fields = {"name": name} if title is None else {"name": name, "title": title}
    with client_for(ctx) as client:
        if member:
            next(client.users(), None)  # refused to all but administrators, who alone can look up other users
        # A project without some of them would be in the way of the next try.
        members = [client.user(user).name for user in member or ()]
        project = client.policy.create_project(make_request(ProjectCreate, fields, name="NAME"))
        for user in members:
            project = client.policy.add_member(name, user)
    put(show_one(project, PROJECT, output or Format.TABLE))


@projects_app.command()
def end(
    ctx: typer.Context,
    name: ProjectName,
    yes: Yes = False,
    output: OneOutput = None,
) -> None:
    """End a project for good (administrators): nothing new is submitted or booked for it, and its rules are deleted.

    It asks first. Jobs and bookings of the project go on.
    """
    with client_for(ctx) as client:
        if not yes:
            confirmed(_ending(client, name), yes=yes)
        project = client.policy.end_project(name)
    put(f"{project.name} has ended\n" if output is None else show_one(project, PROJECT, output))


def _ending(client: GpuDevClient, name: str) -> str:
    """The question before a project ends, with what is lost. Raises NoSuchObjectError."""
    projects = {project.name: project for project in islice(client.policy.projects(), _MOST)}
    require_known(name, projects, "project", "gpu-dev projects list")
    members = len(projects[name].members)
    lost = f"Its {counted(members, 'member')} can ask for nothing more for it; its jobs and bookings go on."
    rules = [rule.scope for rule in islice(client.policy.rules(), _MOST) if rule.project == name]
    deleted = f" Its rules are deleted: {', '.join(rules)}." if rules else ""
    return f"End {name} for good? {lost}{deleted}"


@projects_app.command()
def add(
    ctx: typer.Context,
    name: ProjectName,
    users: Members,
    output: OneOutput = None,
) -> None:
    """Add members to a project (administrators)."""
    with client_for(ctx) as client:
        project = [client.policy.add_member(name, user) for user in users][-1]
    put(show_one(project, PROJECT, output or Format.TABLE))


@projects_app.command()
def remove_member(
    ctx: typer.Context,
    name: ProjectName,
    users: Members,
    output: OneOutput = None,
) -> None:
    """Remove members from a project (administrators)."""
    with client_for(ctx) as client:
        project = [client.policy.remove_member(name, user) for user in users][-1]
    put(show_one(project, PROJECT, output or Format.TABLE))


def read_rules(words: Iterable[str]) -> dict[str, Any]:
    """Rules by name, the last of a name, as the wire has them; None for `=none`. Raises UsageError."""
    typed = dict(map(read_rule, words))
    if not all(map(_is_plain, typed, typed.values())):
        from gpu_dev.server.checked_answers import contract_of

        checked(contract_of(RulesIn), typed, **{name: name for name in typed})
    return typed


def _is_plain(name: str, value: Any) -> bool:
    """Whether a rule may have a value that `read_rule` read; false where only the contract can tell."""
    if not isinstance(value, int | float):
        return True
    if name in _LENGTHS:
        return value >= _SHORTEST_GRACE_S
    return 0 <= value <= (_USUAL_PRIORITY if name == RuleName.PRIORITY else _USUAL_MOST)


def read_rule(word: str) -> tuple[str, Any]:
    """`max_gpus=4` as the wire has it; None for `=none`. Raises UsageError."""
    name, equals, text = word.partition("=")
    try:
        rule = RuleName(name)
    except ValueError as error:
        meant = did_you_mean(name, RuleName)
        raise UsageError(f"{name!r} is no rule.{meant} There are: {', '.join(RuleName)}.") from error
    if not equals or not text:
        raise UsageError(f"Write {name}=VALUE, {name}=unlimited, or {name}=none to delete the rule.")
    if text == RuleWord.NOTHING:
        return rule.value, None
    if rule is RuleName.COST_PER_GPU_HOUR:
        price = typed_price(text)
        if price is None:
            raise UsageError(f"{text!r} is no price. Write an amount and its unit, such as {name}=2.50EUR.")
        return rule.value, price
    if rule is RuleName.ORDER:
        if text not in list(QueueOrder):
            raise UsageError(f"{text!r} is no order. Write {' or '.join(f'{name}={order}' for order in QueueOrder)}.")
        return rule.value, text
    if text == RuleWord.UNLIMITED:
        return rule.value, text
    if rule is RuleName.IDLE:
        return rule.value, _read_idle(text)
    if rule in _LENGTHS:
        return rule.value, int(_read_length(word, name, text).total_seconds())
    try:
        return rule.value, float(text) if rule is RuleName.MAX_GPU_HOURS_PER_WEEK else int(text)
    except ValueError as error:
        raise UsageError(f"{word!r}: {name} is a number, `unlimited` or `none`.") from error


def _read_length(word: str, name: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except UsageError as error:
        fault = str(error).removeprefix(f"{text!r} is not a duration. ")
        raise UsageError(f"{word!r}: {name} is a duration, `unlimited` or `none`. {fault}") from error


def _read_idle(text: str) -> dict[str, Any]:
    """`10%,1h,30m,release` as the wire has it. Raises UsageError."""
    idle = typed_idle(text)
    if idle is None or not all(LEAST <= length <= LONGEST for length in (idle.window, idle.grace)):
        raise UsageError(
            f"{text!r} is no rule about idle GPUs. Write how little use is idle, for how long, how long a warning "
            "lasts, and `warn`, `requeue` or `release`: idle=10%,1h,30m,release. Both times are from a minute to a day."
        )
    return {
        "below": idle.below,
        "window": int(idle.window.total_seconds()),
        "grace": int(idle.grace.total_seconds()),
        "then": idle.then.value,
    }
