"""Read options whose values are plainly right without pydantic, which Typer loads for every option: 40 ms of CPU.

All other values go Typer's way; its errors are said without the validator's terms.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, get_args, get_origin

import typer

_UNSURE = object()
_MOST_DIGITS = 18
"""Python reads no integers of more than 4,300 digits, and no option needs so many."""


class PlainValues:
    """Stands where Typer asks for a parameter's conversion; `typers_own` makes Typer's."""

    def __init__(self, typers_own: Callable[[], Any]) -> None:
        self._typers_own = typers_own

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command's function takes it. Raises what Typer raises."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        read = _read(value, param.type_descriptor.annotation, param.type_descriptor.parameter_info)
        if read is not _UNSURE:
            return read
        try:
            return self._typers_own().coerce(value, param=param, ctx=ctx)
        except typer.BadParameter as error:
            from reservation_core.domain.complaints import complaint

            error.message = complaint({"type": "value_error", "msg": error.message})
            raise


def read_plain_values(command: Any) -> None:
    """Let a command, and those below it, read plain values so."""
    typers_own = command.get_params

    def get_params(ctx: Any) -> Any:
        parameters = typers_own(ctx)
        for parameter in parameters:
            _read_plain(parameter)
        return parameters

    command.get_params = get_params
    for below in getattr(command, "commands", {}).values():
        read_plain_values(below)


def _read_plain(parameter: Any) -> None:
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
    if kind is int:
        is_plain = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        number = int(value) if is_plain else value
        within = isinstance(number, int) and (info.min or 0) <= number and (info.max is None or number <= info.max)
        return number if within else _UNSURE
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next((member for member in kind if value in (member, member.value)), _UNSURE)
    return _UNSURE
