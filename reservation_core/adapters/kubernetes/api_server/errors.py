"""What an API server answers when it does not do what was asked: typed, with its own words kept short."""

import json
from collections.abc import Mapping
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping

_MOST_WORDS = 400


class ApiServerError(Exception):
    """An answer that asking again does not change. `reason` is the API's word for it, `message` its sentence."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class ObjectNotFoundError(ApiServerError):
    """There is no such object, namespace or kind."""


class ConflictError(ApiServerError):
    """The object exists, or is not the one that was meant."""


class ExpiredError(ApiServerError):
    """The server no longer knows that resourceVersion or continue token: list anew."""


class InvalidError(ApiServerError):
    """The server will never accept this object or request."""


class ApiServerForbidsError(ApiServerError):
    """We lack a permission, or admission refuses the object."""


def is_of_another(error: ApiServerError) -> bool:
    """Whether a patch that names a uid met another object of that name: a uid is then said to be unchangeable."""
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
    """The error that an answer means: a Status object, or else whatever stands between us and the server."""
    try:
        said = as_mapping(json.loads(body))
    except (ValueError, RecursionError):
        said = {}
    return status_error(said if said.get("kind") == "Status" else {}, status)


def status_error(said: Mapping[str, Any], status: int = 0) -> ApiServerError:
    """The error that a Status object means, as a watch delivers it; `status` where it has no code itself."""
    code = said.get("code")
    code = code if isinstance(code, int) and status == 0 else status
    message = said.get("message")
    text = message if isinstance(message, str) and message else "no explanation was given"
    if len(text) > _MOST_WORDS:
        text = text[:_MOST_WORDS] + "…"
    reason = said.get("reason")
    return _TYPES.get(code, ApiServerError)(code, reason if isinstance(reason, str) else "Unknown", text)
