"""Answers that are not plainly right, read by their contracts, which say what is wrong."""

import importlib
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from pydantic import BaseModel, ValidationError

from gpu_dev.errors import OlderServerError, UnexpectedAnswerError
from gpu_dev.server.exchange import named_fields

S = TypeVar("S", bound=msgspec.Struct)


def contract_of(model: Any) -> type[BaseModel]:
    """The contract that a class of `gpu_dev.wire` is made from."""
    of = get_origin(model) or model
    module = importlib.import_module(of.__module__.replace("gpu_dev.wire", "reservation_core.contracts"))
    contract = getattr(module, of.__name__)
    parts = tuple(contract_of(part) for part in get_args(model))
    return contract[parts] if parts else contract  # type: ignore[no-any-return]


def read_checked(model: type[S], content: bytes | str, server_version: str | None) -> S:
    """Read an answer. Raises OlderServerError, UnexpectedAnswerError."""
    contract = contract_of(model)
    try:
        return msgspec.convert(contract.model_validate_json(content, extra="ignore").model_dump(), model)
    except ValidationError as error:
        found = error.errors()
        where = named_fields({".".join(map(str, one["loc"])) or "everything" for one in found})
        required = sum(field.is_required() for field in contract.model_fields.values())
        if all(one["type"] == "missing" for one in found) and len(found) < required:
            raise OlderServerError(f"its answer has no {where}", server_version) from error
        raise UnexpectedAnswerError(
            f"The answer is not as this command line expects it (see: {where}). "
            "Is this address a GPU Dev Server, and of the same version as this command line?"
        ) from error
