"""Errors as RFC 9457 problem details: which status each kind has, and how exceptions become answers.

`type` is the stable `urn:gpu-dev:problem:<code>`, `detail` says what to do next. Of a request, only the names of fields
are sent back: values may be secrets.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from reservation_core.contracts.base import BrokenRule, Problem, Slot
from reservation_core.domain import errors
from reservation_core.domain.complaints import complaint

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:gpu-dev:problem:"
MAX_BROKEN_RULES = 100
_MAX_PART = 64
# The validator's own names for the ways that a field can be read: nobody's business.
_INNER = re.compile(r"(function-\w+|literal|lax-or-strict|json-or-python)\[|constrained-\w+|IdleRuleIn$")

STATUS_OF: Mapping[type[errors.DomainError], int] = {
    errors.NotFoundError: 404,
    errors.JobNotRunningError: 409,
    errors.TooManyConnectionsError: 429,
    errors.AlreadyFinalError: 409,
    errors.NotExtendableError: 409,
    errors.NotIdleError: 409,
    errors.CalendarConflictError: 409,
    errors.LimitExceededError: 422,
    errors.NoSuchTypeError: 422,
    errors.NothingToSimulateError: 422,
    errors.NoImagesError: 422,
    errors.StaleVersionError: 412,
    errors.IdempotencyConflictError: 409,
    errors.NameTakenError: 409,
    errors.MisplacedRuleError: 422,
    errors.ForbiddenError: 403,
    errors.ChainTrimmedError: 409,
    errors.UnknownBookingError: 422,
    errors.UnknownSecretError: 422,
    errors.UnknownDiskError: 422,
    errors.DiskInUseError: 409,
    errors.NoDisksError: 422,
    errors.UnknownJobError: 422,
    errors.UnknownFolderError: 422,
    errors.InvalidFolderError: 422,
    errors.NoFilesError: 422,
    errors.NoSecretsKeyError: 409,
    errors.BookingNotUsableError: 409,
    errors.BeyondBookedShareError: 422,
    errors.NotKeptError: 422,
    errors.UnknownCallerError: 401,
    errors.UserDisabledError: 409,
    errors.NodeAnswersError: 409,
    errors.NodeNotFencedError: 409,
    errors.WrongCodeError: 422,
    errors.UnreachableTargetError: 409,
    errors.PublicKeyRefusedError: 422,
    errors.NotShareableError: 409,
    errors.NotOfferedError: 409,
    errors.NotBookableError: 409,
    errors.NotChangeableError: 409,
    errors.NotPermittedError: 409,
    errors.ProofRefusedError: 401,
    errors.SignInRefusedError: 403,
}
"""The status of every domain error; a test checks that none is missing."""

_NAMES_ITS_FIELD = re.compile(r"[a-z_]+(\.[a-z_]+)*: ")
"""A fault of several fields is said of the body, and begins with the field that is wrong."""

INVALID_TOKEN = {"WWW-Authenticate": 'Bearer realm="gpu-dev", error="invalid_token"'}
"""The headers of a 401 for an unknown token."""

_HTTP_PROBLEMS: Mapping[int, tuple[str, str]] = {
    400: ("bad_request", "The request is not well-formed HTTP. Look at /docs for what this call takes."),
    404: ("no_such_route", "There is nothing at this address. Look at /docs for what there is."),
    405: ("method_not_allowed", "This address does not take this method; the Allow header says which it takes."),
}

_UNKNOWN_NAMES: Mapping[str, str] = {
    "job_id": "No job has this id. `gpu-dev list` shows your jobs.",
    "booking_id": "No booking has this id. `gpu-dev book list` shows your bookings.",
    "window_id": "No maintenance window has this id. `gpu-dev maintenance list` lists all windows.",
    "token_id": "No token has this id. `gpu-dev tokens list` shows yours.",
    "key_id": "No SSH key has this id. `gpu-dev keys list` shows yours.",
    "target_id": "No notification address has this id. `gpu-dev notify targets` shows yours.",
    "node": "No node has this name. `gpu-dev nodes` lists all nodes.",
    "name": "No user has this name. `gpu-dev users me` shows your own.",
    "user": "No user has this name. `gpu-dev users me` shows your own.",
    "project": "No project has this name. `gpu-dev projects list` shows yours.",
    "disk": "No disk has this name. `gpu-dev disk list` shows all.",
    "snapshot": "No snapshot has this name. `gpu-dev disk list` shows your disks.",
    "secret": "No secret has this name. `gpu-dev secret list` shows yours.",
    "pod": "No unknown pod has this name. `gpu-dev pods` lists all unknown pods.",
}
"""The answers to parts of addresses that can't be the id or name of anything."""


class ProblemError(Exception):
    """A request that is answered with a problem of the API's own making."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        broken_rules: Sequence[BrokenRule] | None = None,
        nearest_slots: Sequence[Slot] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.broken_rules = broken_rules
        self.nearest_slots = nearest_slots


def respond(
    status: int,
    code: str,
    detail: str,
    *,
    request_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    broken_rules: Sequence[BrokenRule] | None = None,
    nearest_slots: Sequence[Slot] | None = None,
) -> Response:
    """Make a problem the response. `request_id` becomes `instance`, so that the log can be searched for it."""
    problem = Problem(
        type=TYPE_PREFIX + code,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_printable(detail),
        instance=None if request_id is None else f"urn:gpu-dev:request:{request_id}",
        broken_rules=None if broken_rules is None else list(broken_rules),
        nearest_slots=None if nearest_slots is None else list(nearest_slots),
    )
    body = problem.model_dump_json(exclude_none=True).encode()
    return Response(body, status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def broken_rules(found: Iterable[Mapping[str, Any]]) -> list[BrokenRule]:
    """Every broken field as pydantic found it, by name and never by value."""
    rules = []
    for count, error in enumerate(found):
        if count == MAX_BROKEN_RULES:
            rules.append(BrokenRule(code="more", detail="More fields are wrong; correct these first."))
            break
        places = (str(part) for part in error["loc"] if not _INNER.match(str(part)))
        where = ".".join(_printable(part)[:_MAX_PART] for part in places)
        said = _printable(complaint(error))
        if where or not _NAMES_ITS_FIELD.match(said):
            said = f"{where or 'body'}: {said}"
        rules.append(BrokenRule(code=str(error["type"]), detail=said))
    return rules


def invalid(found: Iterable[Mapping[str, Any]]) -> ProblemError:
    """422 with every broken field."""
    rules = broken_rules(found)
    detail = "The request breaks the rules listed in `broken_rules`; correct these fields and send it again."
    return ProblemError(422, "invalid_request", detail, broken_rules=rules)


def _unknown_name(method: str, found: Sequence[Mapping[str, Any]]) -> ProblemError | None:
    """404 for an address with an id or name that nothing can have, unless the request would make what it names."""
    parts = [] if method == "PUT" else [str(error["loc"][1]) for error in found if error["loc"][0] == "path"]
    details = [_UNKNOWN_NAMES[part] for part in parts if part in _UNKNOWN_NAMES]
    return ProblemError(404, errors.NotFoundError.code, details[0]) if details else None


def of_validation(error: ValidationError) -> ProblemError:
    """422 of a body that does not fit its model."""
    return invalid(error.errors(include_url=False, include_input=False, include_context=False))


def of_exception(error: Exception, request: Request) -> Response | None:
    """The answer to an exception; None for an unforeseen one."""
    request_id = request.scope.get("request_id")
    match error:
        case ProblemError():
            found = error
        case errors.NotBookableError():
            found = not_bookable(error)
        case errors.UnknownCallerError() | errors.ProofRefusedError():
            found = ProblemError(STATUS_OF[type(error)], error.code, error.detail, headers=INVALID_TOKEN)
        case errors.DomainError():
            rules = [BrokenRule(code=rule.code, detail=rule.detail) for rule in error.broken_rules]
            found = ProblemError(STATUS_OF.get(type(error), 409), error.code, error.detail, broken_rules=rules or None)
        case RequestValidationError():
            # FastAPI's places begin with `path`, `query` or `header`: those words help and stay.
            found = _unknown_name(request.method, error.errors()) or invalid(error.errors())
        case HTTPException():
            code, detail = _HTTP_PROBLEMS.get(error.status_code, ("http_error", "The request can't be served."))
            headers = dict(error.headers or {})
            if error.status_code == 405:
                allowed = _allowed_methods(request)
                headers["Allow"] = ", ".join(allowed)
                docs = " Look at /docs for all calls." if request.url.path.startswith("/v1/") else ""
                detail = f"This address takes {', '.join(allowed)}, not {request.method}.{docs}"
            found = ProblemError(error.status_code, code, detail, headers=headers)
        case _:
            return None
    return respond(
        found.status,
        found.code,
        found.detail,
        request_id=request_id,
        headers=found.headers,
        broken_rules=found.broken_rules,
        nearest_slots=found.nearest_slots,
    )


def not_bookable(error: errors.NotBookableError) -> ProblemError:
    """409 with every broken rule, and the nearest free slots if there are any."""
    rules = [BrokenRule(code=rule.code, detail=rule.detail) for rule in error.broken_rules]
    slots = [Slot(start=start, end=end) for start, end in error.nearest]
    return ProblemError(
        STATUS_OF[type(error)],
        error.code,
        error.detail,
        broken_rules=rules or None,
        nearest_slots=slots or None,
    )


def _allowed_methods(request: Request) -> list[str]:
    """The methods of all routes that match the path; Starlette names those of the first."""
    methods: set[str] = set()
    for route in (*request.app.state.operations, *request.app.state.pages):
        if route.path_regex.match(request.scope["path"]):
            methods |= route.methods
    return sorted(methods)


def _printable(text: str) -> str:
    """Escape lone surrogates, which JSON can't carry: names of fields come from the client."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
