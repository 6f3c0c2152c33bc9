"""Write the generated pages of docs/reference from the code: settings, codes, rules, REST, commands and others.

`python -m tools.reference` (`make reference`) writes them; a test fails where a page differs from the code.
"""

import inspect
import re
import tokenize
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic_settings import BaseSettings

from gpu_dev.display.meanings import RULES
from gpu_dev.main import COMMANDS, app
from gpu_dev.slurm.reading.list_options import SCANCEL, SINFO, SQUEUE
from gpu_dev.slurm.reading.options import SBATCH, SRUN, Option
from pod_scheduling.runtime.settings.admission import AdmissionSettings
from pod_scheduling.runtime.settings.scheduler import SchedulerSettings
from pod_scheduling.runtime.settings.webhook import WebhookSettings
from reservation_core.domain.notices.kinds import KIND_MEANINGS, NoticeKind
from reservation_core.domain.policy.nouns import LIFTABLE, QUOTAS, RuleName
from reservation_core.domain.statuses import BookingReason, ReasonCode
from reservation_core.runtime.settings.components import (
    ApiSettings,
    ExpirySettings,
    NodeAgentSettings,
    ProcessorSettings,
    SshGatewaySettings,
    StandaloneSettings,
    UpdaterSettings,
)
from tools.meanings import BOOKING_REASONS, JOB_REASONS
from tools.rest_calls import rest_page

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PROGRAMS: dict[str, type[BaseSettings]] = {
    "standalone": StandaloneSettings,
    "api_service": ApiSettings,
    "reservation_processor": ProcessorSettings,
    "reservation_expiry": ExpirySettings,
    "ssh_gateway": SshGatewaySettings,
    "availability_updater": UpdaterSettings,
    "node agent": NodeAgentSettings,
    "admission_webhook": WebhookSettings,
    "gpu_scheduler": SchedulerSettings,
    "gpu_admission": AdmissionSettings,
}


def page(title: str, lead: str, columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """A page of one table as Markdown."""
    lines = [f"# {title}", "", f"{lead} This page is generated: `make reference` writes it.", ""]
    return "\n".join([*lines, *table(columns, rows)]) + "\n"


def table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table."""
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield f"| {' | '.join(_cell(text) for text in row)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def settings_page() -> str:
    """Every environment variable that a program reads."""
    found: dict[str, tuple[str, list[str], str]] = {}
    for program, model in PROGRAMS.items():
        for variable, default, meaning in _variables(model, "GPU_DEV_"):
            known = found.setdefault(variable, (default, [], meaning))
            known[1].append(program)
    rows = (
        (f"`{name}`", default, "every program" if len(programs) == len(PROGRAMS) else ", ".join(programs), meaning)
        for name, (default, programs, meaning) in sorted(found.items())
    )
    lead = (
        "Environment variables, their defaults and the programs that read them. Names that end in `_S`, `_DAYS` or "
        "`_BYTES` take seconds, days or bytes, and those that end in `_PER_S` so many a second. Lists are written "
        "`a,b` or as JSON."
    )
    return page("Settings", lead, ("variable", "default", "read by", "meaning"), rows)


def _variables(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _variables(field.annotation, f"{variable}__")
            continue
        default = field.get_default(call_default_factory=True) if not field.is_required() else None
        said = "required" if field.is_required() else _default(default)
        yield variable, said, _sentence(_comments(_owner(model, name)).get(name, ""))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _default(value: object) -> str:
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, tuple | list):
        return f"`{','.join(str(element) for element in value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{getattr(value, 'value', value)}`"


def _owner(model: type[BaseModel], name: str) -> type:
    """The class whose body has the field."""
    return next(owner for owner in model.__mro__ if name in inspect.get_annotations(owner) or owner is object)


def _comments(owner: type) -> dict[str, str]:
    """What the comments above and beside the fields of a class say."""
    if owner is object:
        return {}
    said: dict[str, str] = {}
    above: list[str] = []
    field = ""
    for token in tokenize.generate_tokens(StringIO(inspect.getsource(owner)).readline):
        beside = token.line[: token.start[1]].strip()
        if token.type == tokenize.COMMENT and not beside:
            above.append(token.string.lstrip("# "))
        elif token.type == tokenize.COMMENT and field:
            said[field] = " ".join([*filter(None, [said.get(field)]), token.string.lstrip("# ")])
        elif token.type == tokenize.NAME and re.match(rf"    {token.string}:", token.line) and token.start[1] == 4:
            field = token.string
            said[field] = " ".join(above)
            above = []
        elif token.type == tokenize.NL and not token.line.strip():
            above = []
    return said


def codes_page() -> str:
    """Why a job or booking is in its state."""
    jobs = ((f"`{code}`", "job", JOB_REASONS[code]) for code in ReasonCode)
    bookings = ((f"`{code}`", "booking", BOOKING_REASONS[code]) for code in BookingReason)
    lead = "`reason.code` of jobs and bookings. Codes are stable; `reason.detail` is for people and changes."
    return page("Reason codes", lead, ("code", "of a", "meaning"), iter([*jobs, *bookings]))


def rules_page() -> str:
    """The fields of a rule."""
    rows = (
        (f"`{rule}`", RULES[rule], "yes" if rule in QUOTAS else "no", "yes" if rule in LIFTABLE else "no")
        for rule in RuleName
    )
    lead = "Fields of a rule, in policy files and in `broken_rules`. [Policy](../guides/policy.md) is the guide."
    return page("Rules", lead, ("rule", "meaning", "counts what is held", "an exception may remove it"), rows)


def notifications_page() -> str:
    """What a notification can be about."""
    rows = ((f"`{kind}`", KIND_MEANINGS[kind]) for kind in NoticeKind)
    lead = "Kinds of notifications, as webhooks carry them. [Notifications](../guides/notifications.md) is the guide."
    return page("Notification kinds", lead, ("kind", "sent when"), rows)


def commands_page() -> str:
    """Every command with its options."""
    root: Any = typer.main.get_command(app)
    lead = "Every command and its options. [`gpu-dev`](cli.md) says how they are used."
    rows: list[tuple[str, ...]] = []
    for name in COMMANDS:
        _, command, _ = root.resolve_command(typer.Context(root), [name])
        rows += _commands(command, f"gpu-dev {name}")
    return page("Commands", lead, ("command", "what it does", "options"), iter(rows))


def _commands(command: Any, name: str) -> Iterator[tuple[str, ...]]:
    below = getattr(command, "commands", {})
    if not below or getattr(command, "invoke_without_command", False):
        options = [
            f"`{max(parameter.opts, key=len)}`" for parameter in command.params if parameter.opts[0].startswith("-")
        ]
        yield f"`{name}`", (command.help or "").split("\n\n")[0], " ".join(options)
    for word, inner in below.items():
        yield from _commands(inner, f"{name} {word}")


def slurm_page() -> str:
    """Every option of Slurm's commands, and its meaning here."""
    tables = {"sbatch": SBATCH, "srun": SRUN, "squeue": SQUEUE, "scancel": SCANCEL, "sinfo": SINFO}
    rows: dict[tuple[str, str], tuple[list[str], Option]] = {}
    for command, table_of_command in tables.items():
        for option in table_of_command.values():
            rows.setdefault((option.flag, option.here), ([], option))[0].append(command)
    lead = (
        "Options of Slurm's commands, as `sbatch`, `srun`, `squeue`, `scancel` and `sinfo` of this project take them. "
        "An option that is passed over is named in a warning; one that is refused ends the command before it does "
        "anything. [Coming from Slurm](../coming-from/slurm.md) is the guide."
    )
    columns = ("option", "of", "is", "meaning here, or why there is none")
    return page("Options of Slurm", lead, columns, (_slurm_row(*row) for row in rows.values()))


def _slurm_row(commands: list[str], option: Option) -> tuple[str, ...]:
    flag = f"`{option.flag}`" + (f", `-{option.letter}`" if option.letter else "")
    return flag, ", ".join(f"`{command}`" for command in commands), option.treatment.value, option.here


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "reason-codes.md": codes_page,
    "rules.md": rules_page,
    "notification-kinds.md": notifications_page,
    "rest-calls.md": rest_page,
    "commands.md": commands_page,
    "slurm-options.md": slurm_page,
}


def main() -> None:
    """Write every page."""
    for name, made in PAGES.items():
        (FOLDER / name).write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
