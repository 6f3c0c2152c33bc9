"""Errors of the API server, typed by status, with shortened messages."""

import json
from collections.abc import Mapping
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping

_MOST_WORDS = 400


class ApiServerError(Exception):
    """A refusal that a retry does not change, with the `reason` and `message` of the Status object."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class ObjectNotFoundError(ApiServerError):
    """The object, namespace or kind does not exist."""


class ConflictError(ApiServerError):
    """The object exists already, or has another uid or version."""


class ExpiredError(ApiServerError):
    """The resourceVersion or continue token has expired: list again."""


class InvalidError(ApiServerError):
    """The server will never accept this object or request."""


class ApiServerForbidsError(ApiServerError):
    """We lack a permission, or admission refuses the object."""


def is_another_object(error: ApiServerError) -> bool:
    """Whether a patch with a uid met another object of the same name (the server then calls the uid immutable)."""
    return isinstance(error, ConflictError) or (isinstance(error, InvalidError) and "metadata.uid" in error.message)


_TYPES: Mapping[int, type[ApiServerError]] = {
    400: InvalidError,
    403: ApiServerForbidsError,
    404: ObjectNotFoundError,
    405: InvalidError,
    409: ConflictError,
    410: ExpiredError,
    413: InvalidError,
    415: InvalidError,
    422: InvalidError,
}


def api_error(status: int, body: bytes) -> ApiServerError:
    """The error of an answer whose body is a Status object, or anything a proxy sent."""
    try:
        answer = as_mapping(json.loads(body))
    except (ValueError, RecursionError):
        answer = {}
    return status_error(answer if answer.get("kind") == "Status" else {}, status)


def status_error(thing: Mapping[str, Any], status: int = 0) -> ApiServerError:
    """The error of a Status object; `status` is the HTTP status, 0 for an event of a watch."""
    code = thing.get("code")
    code = code if isinstance(code, int) and status == 0 else status
    message = thing.get("message")
    text = message if isinstance(message, str) and message else "no explanation was given"
    if len(text) > _MOST_WORDS:
        text = text[:_MOST_WORDS] + "…"
    reason = thing.get("reason")
    return _TYPES.get(code, ApiServerError)(code, reason if isinstance(reason, str) else "Unknown", text)
