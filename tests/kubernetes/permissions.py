"""What the manifests allow each account, and what a request needs: RBAC as far as our roles use it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.manifests import manifests

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[0-9a-z]+(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)
_STREAMS = ("pods/exec", "pods/attach", "pods/portforward")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource; `namespace` is empty for all of the cluster."""

    namespace: str
    group: str
    resource: str
    verb: str

    def covers(self, needed: "Permission") -> bool:
        """Whether who has this may do that."""
        where = self.namespace in ("", needed.namespace)
        return where and (self.group, self.resource, self.verb) == (needed.group, needed.resource, needed.verb)


def granted(account: str, *, enforcing: bool = True) -> set[Permission]:
    """What the manifests allow an account of the system's namespace, where bookings are enforced or not."""
    return allowed_by([manifest for _, manifest in manifests(enforcing=enforcing)], account, "gpu-dev-system")


def allowed_by(documents: list[JsonObject], account: str, system: str) -> set[Permission]:
    """What the roles and bindings among these allow an account of the namespace `system`."""
    return {permission for kind in ("Role", "ClusterRole") for permission in _bound(documents, kind, account, system)}


def _bound(documents: list[JsonObject], kind: str, account: str, system: str) -> Iterator[Permission]:
    roles = {_place(document): document for document in documents if document["kind"] == kind}
    for binding in documents:
        subject = {"kind": "ServiceAccount", "name": account, "namespace": system}
        if binding["kind"] == f"{kind}Binding" and subject in binding.get("subjects", ()):
            namespace = binding["metadata"].get("namespace", "")
            role = roles.get((namespace, binding["roleRef"]["name"]))
            yield from of_role(role, namespace) if role is not None else ()


def _place(document: JsonObject) -> tuple[str, str]:
    return document["metadata"].get("namespace", ""), document["metadata"]["name"]


def of_role(role: JsonObject, namespace: str) -> Iterator[Permission]:
    """What a role allows whom it is bound to there."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Permission(namespace, group, resource, verb)


def needed_by(method: str, path_and_query: str) -> set[Permission]:
    """All that a request needs: for streams API servers since 1.35 want `create`, whatever their method."""
    permission = needed(method, path_and_query)
    if permission is None:
        return set()
    return {permission, replace(permission, verb="create")} if permission.resource in _STREAMS else {permission}


def needed(method: str, path_and_query: str) -> Permission | None:
    """What a request needs; None for discovery, which everybody who is known may do."""
    parts = urlsplit(path_and_query)
    found = _PATH.fullmatch(parts.path)
    if found is None:
        return None
    if method == "GET":
        watches = parse_qs(parts.query).get("watch", ["false"])[0] in ("true", "1")
        verb = "get" if found["name"] else "watch" if watches else "list"
    else:
        verb = _VERBS[method]
    resource = f"{found['resource']}/{found['sub']}" if found["sub"] else found["resource"]
    return Permission(found["namespace"] or "", found["group"] or "", resource, verb)
