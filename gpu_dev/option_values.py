"""The values of options in help: `TEXT`, `NUMBER`, `FILE` or the choices, in place of names of Python's types."""

from typing import Any

_NAMES = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER"}


def name_value(parameter: Any) -> None:
    """Let help name a parameter's values so; arguments have names of their own."""
    if hasattr(parameter, "display_type_rich"):
        parameter.display_type_rich = lambda ctx: value_name(parameter, ctx)


def value_name(parameter: Any, ctx: Any) -> str:
    """What help says of a parameter's values; empty for what needs none."""
    is_option = parameter.param_type_name == "option"
    if is_option and (parameter.metavar is not None or parameter.is_flag):
        return parameter.metavar or ""
    described = parameter.type_descriptor
    if described.is_choice:
        return (
            str(parameter.display_type(ctx)).removeprefix("<").removesuffix(">").removeprefix("list[").removesuffix("]")
        )
    if not is_option:
        return ""
    if described.is_path:
        return "FILE"
    return _NAMES.get(described.ranged_type_name if described.is_ranged else parameter.bare_type(), "TEXT")
