"""Names in the addresses of calls that change something: a mistyped `dry_run` must not do what it was to try out."""

from collections.abc import Iterator
from urllib.parse import parse_qsl

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from api_service.problems import ProblemError, broken_rules

CHANGING = frozenset({"DELETE", "PATCH", "POST", "PUT"})
"""The methods of calls that change something. Those that only read say themselves which names they know."""


def refuse_unknown_names(query: bytes, route: APIRoute) -> None:
    """Refuse names that a call does not know. Raises ProblemError (422), which says what it knows."""
    known = sorted(known_names(route))
    given = {name: None for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)}
    unknown = [name for name in given if name not in known]
    if unknown:
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        rules = broken_rules({"type": "extra_forbidden", "loc": ("query", name), "msg": ""} for name in unknown)
        detail = f"This call does not know every parameter in the address: {takes}. Nothing was changed."
        raise ProblemError(422, "invalid_request", detail, broken_rules=rules)


def known_names(route: APIRoute) -> set[str]:
    """The names that a route takes in its address: those that the framework reads, and those that it reads itself."""
    described = (route.openapi_extra or {}).get("parameters", ())
    return {*_read_names(route.dependant), *(one["name"] for one in described if one["in"] == "query")}


def _read_names(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        model = parameter.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from (field.alias or name for name, field in model.model_fields.items())
        else:
            yield parameter.alias
    for below in dependant.dependencies:
        yield from _read_names(below)
