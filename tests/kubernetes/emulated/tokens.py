"""The emulator's service account tokens: who they are for is remembered, and told to who asks by a TokenReview."""

import base64
import json
from collections.abc import Callable

import attrs

from tests.kubernetes.emulated.store import JsonObject

_OWN_AUDIENCE = "https://kubernetes.default.svc"


@attrs.define
class Tokens:
    """Every token that was issued: of whom, and for whom."""

    _issued: dict[str, tuple[str, str, tuple[str, ...]]] = attrs.field(factory=dict)

    def issue(self, namespace: str, name: str, request: JsonObject) -> JsonObject:
        """Answer a TokenRequest. A token for others looks like the JSON web token that a real server makes."""
        audiences = tuple((request.get("spec") or {}).get("audiences") or ())
        token = f"emulated-{namespace}-{name}"
        if audiences:
            claims = {"sub": f"system:serviceaccount:{namespace}:{name}", "aud": audiences}
            parts = (b'{"alg":"none"}', json.dumps(claims).encode(), b"emulated")
            token = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
        self._issued[token] = (namespace, name, audiences or (_OWN_AUDIENCE,))
        return {"kind": "TokenRequest", "status": {"token": token}}

    def review(self, review: JsonObject, exists: Callable[[str, str], bool]) -> JsonObject:
        """Answer a TokenReview."""
        spec = review.get("spec") or {}
        wanted = spec.get("audiences") or [_OWN_AUDIENCE]
        namespace, name, audiences = self._issued.get(spec.get("token", ""), ("", "", ()))
        fitting = [audience for audience in wanted if audience in audiences]
        if not fitting or not exists(namespace, name):
            return {**review, "status": {"user": {}, "error": "invalid bearer token"}}
        user = {"username": f"system:serviceaccount:{namespace}:{name}", "uid": "emulated", "groups": []}
        return {**review, "status": {"authenticated": True, "user": user, "audiences": fitting}}
