"""AdmissionReview v1 as the API server sends it, and the answer that it takes. Half a question gets no answer."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, assert_never

from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview, Requester, Untouched, Verdict

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
_UID_LENGTH = 256
_MOST_WARNINGS = 10


class BadReviewError(ValueError):
    """The body is no AdmissionReview v1; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class ReviewQuestion:
    """A review and the uid that its answer has to repeat. `review` is None for what is not a pod."""

    uid: str
    review: PodReview | None


def read_question(body: bytes) -> ReviewQuestion:
    """The question in a request's body. Raises BadReviewError."""
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadReviewError("the body is not JSON in UTF-8") from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise BadReviewError(f"the body is not an object of kind {KIND}")
    version = found.get("apiVersion")
    if version != API_VERSION:
        told = version if isinstance(version, str) and len(version) <= 64 else "something else"
        raise BadReviewError(
            f"apiVersion must be {API_VERSION}, not {told}. Set admissionReviewVersions: [v1] in the webhook's"
            " configuration."
        )
    request = found.get("request")
    if not isinstance(request, dict):
        raise BadReviewError("the review holds no request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not 0 < len(uid) <= _UID_LENGTH:
        raise BadReviewError(f"request.uid must be a text of 1 to {_UID_LENGTH} characters")
    return ReviewQuestion(uid, _review(request))


def written_answer(uid: str, verdict: Verdict) -> bytes:
    """The answer's body."""
    response: dict[str, Any] = {"uid": uid, "allowed": not isinstance(verdict, Denied)}
    match verdict:
        case Denied():
            response["status"] = {"code": 403, "reason": "Forbidden", "message": verdict.reason}
        case Untouched() | Patched():
            if verdict.warnings:
                response["warnings"] = list(verdict.warnings[:_MOST_WARNINGS])
            if isinstance(verdict, Patched) and verdict.operations:
                patch = json.dumps([operation.as_json() for operation in verdict.operations])
                response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
        case _:
            assert_never(verdict)
    return json.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response}).encode()


def _review(request: Mapping[str, Any]) -> PodReview | None:
    resource = request.get("resource")
    if not isinstance(resource, dict):
        raise BadReviewError("request.resource must say what is asked about")
    if (resource.get("group") or "", resource.get("resource")) != ("", "pods"):
        return None
    if resource.get("version") != "v1":
        raise BadReviewError("pods are spoken of in version v1 here")
    try:
        operation = Operation(str(request.get("operation")))
    except ValueError:
        raise BadReviewError("request.operation must be CREATE, UPDATE, DELETE or CONNECT") from None
    user = _object(request, "userInfo") or {}
    groups = user.get("groups") or ()
    return PodReview(
        operation=operation,
        pod=_object(request, "object"),
        old_pod=_object(request, "oldObject"),
        subresource=_text(request, "subResource"),
        namespace=_text(request, "namespace"),
        requester=Requester(_text(user, "username"), tuple(group for group in groups if isinstance(group, str))),
        dry_run=request.get("dryRun") is True,
    )


def _object(request: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    value = request.get(name)
    if value is not None and not isinstance(value, dict):
        raise BadReviewError(f"request.{name} must be an object")
    return value


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if value is not None and not isinstance(value, str):
        raise BadReviewError(f"request.{name} must be a text")
    return value or ""


def _no_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")
