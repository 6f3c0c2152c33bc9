"""Read options whose values are plainly right without pydantic, which Typer loads for every option: 40 ms of CPU.

All other values go Typer's way; its errors are said without the validator's terms.
"""

import os
import re
from collections.abc import Callable, Collection
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

_UNSURE = object()
_NUMBERS = {int: re.compile("-?[0-9]{1,18}"), float: re.compile("[0-9]{1,15}([.][0-9]{1,15})?")}
"""Python reads no integers of more than 4,300 digits, and no option needs so many."""
_MEANT = {
    "queued": ("waiting", "pending", "wait"),
    "succeeded": ("done", "finished", "completed", "ok"),
    "cancelled": ("canceled", "stopped", "killed"),
    "expired": ("timeout", "timed_out"),
    "project": ("team", "group"),
    "gpu_type": ("type", "model", "gpu", "gpus", "card"),
    "user": ("person", "people", "owner"),
    "confirmed": ("booked", "planned"),
    "active": ("now", "running", "open"),
}
_STEPS = {"hour": "1h", "day": "1d", "week": "7d", "month": "30d"}


class PlainValues:
    """Stands where Typer asks for a parameter's conversion; `typers_own` makes Typer's."""

    def __init__(self, typers_own: Callable[[], Any]) -> None:
        self._typers_own = typers_own

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command's function takes it. Raises what Typer raises."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind = param.type_descriptor.annotation
        value = _apart(value, kind)
        read = _read(value, kind, param.type_descriptor.parameter_info)
        if read is not _UNSURE:
            return read
        try:
            return self._typers_own().coerce(value, param=param, ctx=ctx)
        except typer.BadParameter as error:
            from reservation_core.domain.complaints import complaint

            error.message = complaint({"type": "value_error", "msg": error.message}) + _meant(value, kind, param.name)
            raise


def _meant(typed: Any, kind: Any, name: str) -> str:
    """The choice, or another option, that was probably meant."""
    from reservation_core.domain.similar_names import did_you_mean

    known = choices_of(kind)
    for word in typed if isinstance(typed, list | tuple) else [typed]:
        written = str(word).lower()
        if known and word not in known:
            if (written := word_meant(written, known)) in known:
                return f" Did you mean {written}?"
            step = _STEPS.get(written) if name == "by" else None
            return did_you_mean(written, known) if step is None else f" For figures over time, give --step {step}."
    return ""


def word_meant(typed: str, known: Collection[str]) -> str:
    """The one of these values that another word means: `succeeded` is meant by `done`; other words stay."""
    meanings = (meant for meant, words in _MEANT.items() if typed.lower() in words and meant in known)
    return typed if typed in known else next(meanings, typed)


def choices_of(kind: Any) -> list[str]:
    """The values of an enumeration, also of a list of them; empty for other types."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(choice.value) for choice in kind]
    return next(filter(None, map(choices_of, get_args(kind))), [])


def change_parameters(command: Any, *changes: Callable[[Any], None]) -> None:
    """Let these change each parameter of a command, and of those below it, when Typer asks for it."""
    typers_own = command.get_params

    def get_params(ctx: Any) -> Any:
        parameters = typers_own(ctx)
        for parameter in parameters:
            for change in changes:
                change(parameter)
        return parameters

    command.get_params = get_params
    for below in getattr(command, "commands", {}).values():
        change_parameters(below, *changes)


def read_plain(parameter: Any) -> None:
    """Let a parameter read plain values so."""
    if hasattr(parameter, "get_runtime_param") and "get_runtime_param" not in vars(parameter):
        light = PlainValues(parameter.get_runtime_param)
        parameter.get_runtime_param = lambda: light


def _read(value: Any, kind: Any, info: Any) -> Any:
    if get_origin(kind) is list and isinstance(value, list | tuple):
        (item_kind,) = get_args(kind)
        items = [_read(item, item_kind, info) for item in value]
        return _UNSURE if _UNSURE in items else items
    if kind is str:
        return value if isinstance(value, str) else _UNSURE
    if kind in _NUMBERS:
        number = kind(value) if isinstance(value, str) and _NUMBERS[kind].fullmatch(value) else value
        is_number = isinstance(number, kind) and (info.min is None or info.min <= number)
        return number if is_number and (info.max is None or number <= info.max) else _UNSURE
    if kind is Path:
        return Path(value) if isinstance(value, str) and _is_usual_path(value, info) else _UNSURE
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next((member for member in kind if value in (member, member.value)), _UNSURE)
    return _UNSURE


def _apart(value: Any, kind: Any) -> Any:
    """The values of an option that takes several words of a list: `queued,running` is two of them."""
    (item_kind, *_) = get_args(kind) or (None,)
    if get_origin(kind) is not list or not isinstance(item_kind, type) or not issubclass(item_kind, Enum):
        return value
    parts = [part.strip() for item in value for part in (item.split(",") if isinstance(item, str) else [item])]
    return [part for part in parts if part] or parts


def _is_usual_path(text: str, info: Any) -> bool:
    """Whether nothing is asked of a path but that it can be read if it exists."""
    asked = info.exists or info.writable or info.resolve_path or not (info.file_okay and info.dir_okay)
    return bool(text) and not asked and (os.access(text, os.R_OK) or not Path(text).exists())
