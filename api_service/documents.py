"""The parts of /openapi.json that FastAPI can't see: bodies, problems, headers and the credential.

Routes read their bodies themselves (see `bodies`), so their models are named in `reads(...)`; every problem that a
route answers with is named in `problems(...)`.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api_service.gate import FEED, LOGIN
from api_service.problems import MEDIA_TYPE
from reservation_core.contracts import base as contracts
from reservation_core.contracts import bookings as contracts_bookings
from reservation_core.contracts import dead_letters as contracts_dead_letters
from reservation_core.contracts import jobs as contracts_jobs
from reservation_core.contracts import maintenance as contracts_maintenance
from reservation_core.contracts import nodes as contracts_nodes
from reservation_core.contracts import notices as contracts_notices
from reservation_core.contracts import people as contracts_people
from reservation_core.contracts import policy as contracts_policy
from reservation_core.contracts import schedulability as contracts_schedulability
from reservation_core.contracts import sessions as contracts_sessions
from reservation_core.contracts import sign_in as contracts_sign_in
from reservation_core.contracts import simulations as contracts_simulations
from reservation_core.contracts.job_files import synced as contracts_synced
from reservation_core.contracts.job_terms import disks as contracts_disks

DESCRIPTION = """\
One place where people who share GPUs get them. Send a bearer token with every call under `/v1`. Errors are problem
details (RFC 9457) whose `type` is stable. Repeat a POST safely with an `Idempotency-Key`; change only what you have
seen with `If-Match`.
"""
_BODIES: tuple[type[BaseModel], ...] = (
    contracts_jobs.JobSubmit,
    contracts_jobs.JobExtend,
    contracts_people.TokenCreate,
    contracts_people.TokenRenew,
    contracts_sessions.SshKeyAdd,
    contracts_sessions.SshCertificateIssue,
    contracts_people.UserCreate,
    contracts_people.SecretSet,
    contracts_synced.FolderSend,
    contracts_disks.DiskCreate,
    contracts_disks.DiskChange,
    contracts_disks.SnapshotCreate,
    contracts_synced.ResultsKeep,
    contracts_sessions.AppTicketMake,
    contracts_dead_letters.Redrive,
    contracts_nodes.NodeFence,
    contracts_nodes.NodeCordon,
    contracts_nodes.GpuQuarantine,
    contracts_bookings.BookingCreate,
    contracts_bookings.BookingChange,
    contracts_maintenance.MaintenanceCreate,
    contracts_notices.NoticeTargetCreate,
    contracts_notices.NoticeTargetVerify,
    contracts_notices.NoticePreferences,
    contracts_policy.RulesIn,
    contracts_policy.ProjectCreate,
    contracts_policy.ExplainRequest,
    contracts_schedulability.SchedulabilityAsk,
    contracts_schedulability.PodsSeen,
    contracts_schedulability.SeedSchedulabilityAsk,
    contracts_sign_in.SignIn,
    contracts_simulations.SimulationCreate,
)
_REF = "#/components/schemas/"
_EXPLAINED: Mapping[int, str] = {
    400: "Malformed: not JSON, or a header or cursor that can't be read.",
    401: "The token or proof of identity is missing or not valid.",
    403: "The caller is known, but not allowed to do this.",
    404: "No such object exists, or it belongs to another user.",
    405: "The address does not take this method.",
    409: "Not possible in the present state, or the Idempotency-Key was used with another request.",
    412: "The object has changed since the version in If-Match.",
    413: "The body is too large.",
    414: "The address is too long.",
    415: "The body is not JSON.",
    422: "The request breaks rules; `broken_rules` lists them.",
    426: "The address takes WebSockets only.",
    429: "Too many requests in a short time, or too many open streams; Retry-After says when to try again.",
    503: "The database, the cluster or the server is not available at this moment.",
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same request gets the same answer; with another request 409. Kept for a day.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]{0,253}[!-~])?$"},
}
IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag that the change is meant for, or `*`.",
    "schema": {"type": "string", "pattern": r'^(\*|"[1-9][0-9]{0,8}")$'},
}
_SECURITY: Mapping[str, list[dict[str, list[str]]]] = {FEED: [{"feed": []}], LOGIN: []}
_ETAG = {"description": "The version, for If-Match.", "schema": {"type": "string"}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems a route under /v1 answers with; 401, 405, 422, 429, 500 and 503 belong to all."""
    every = sorted({401, 422, 429, 503, *statuses})
    return {
        status: {
            "description": _EXPLAINED[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": _REF + "Problem"}}},
        }
        for status in every
    }


def answers(status: int, description: str, *, etag: bool = False) -> dict[int | str, dict[str, Any]]:
    """The successful answer of a route, beyond its model."""
    return {status: {"description": description, **({"headers": {"ETag": _ETAG}} if etag else {})}}


def stream(media_type: str, description: str, example: str) -> dict[int | str, dict[str, Any]]:
    """A stream as the successful answer."""
    return {
        200: {
            "description": description,
            "content": {media_type: {"schema": {"type": "string"}, "example": example}},
        }
    }


def reads(model: type[BaseModel] | None, *, required: bool = True, if_match: bool = False) -> dict[str, Any]:
    """A POST's body and headers, as `openapi_extra`."""
    parameters = [_IDEMPOTENCY_KEY, *([IF_MATCH] if if_match else [])]
    if model is None:
        return {"parameters": parameters}
    schema = {"$ref": _REF + model.__name__}
    return {
        "parameters": parameters,
        "requestBody": {"required": required, "content": {"application/json": {"schema": schema}}},
    }


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """The body of a POST that can't be repeated, as `openapi_extra`."""
    schema = {"$ref": _REF + model.__name__}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def changes(model: type[BaseModel] | None) -> dict[str, Any]:
    """The body and headers of a PATCH, PUT or DELETE, as `openapi_extra`: such a call can be repeated as it is."""
    found: dict[str, Any] = {"parameters": [IF_MATCH]}
    if model is not None:
        schema = {"$ref": _REF + model.__name__}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return found


def openapi(app: FastAPI) -> dict[str, Any]:
    """The whole document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes, tags=app.openapi_tags
        )
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        _, inputs = models_json_schema([(model, "validation") for model in _BODIES], ref_template=_REF + "{model}")
        _, outputs = models_json_schema([(contracts.Problem, "serialization")], ref_template=_REF + "{model}")
        for found in (inputs, outputs):
            for name, schema in found["$defs"].items():
                schemas.setdefault(name, schema)
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "feed": {"type": "apiKey", "in": "query", "name": "token"},
        }
        for path, operations in document["paths"].items():
            for operation in operations.values():
                if path.startswith("/v1/"):
                    operation["security"] = _SECURITY.get(path, [{"bearer": []}])
                operation["responses"].setdefault(
                    "500",
                    {
                        "description": HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
                        "content": {MEDIA_TYPE: {"schema": {"$ref": _REF + "Problem"}}},
                    },
                )
        app.openapi_schema = document
    return app.openapi_schema
