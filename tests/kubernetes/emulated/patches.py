"""The ways in which a PATCH changes an object: merge, JSON and (as far as these tests go) strategic merge."""

import json
from copy import deepcopy
from typing import Any

import jsonpatch

from tests.kubernetes.emulated.store import ApiError, JsonObject

# Lists that a strategic merge patch merges by a key of their items; every other list is replaced.
_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "port",
    "taints": "key",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_MERGES = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+json",
)


_DELETE_FROM = "$deleteFromPrimitiveList/"


def patched(old: JsonObject, content_type: str, body: bytes) -> JsonObject:
    """A changed copy of `old`. Raises ApiError 400, 415 and 422."""
    content_type = content_type.split(";", maxsplit=1)[0].strip()
    try:
        patch = json.loads(body)
    except ValueError as problem:
        raise ApiError(400, "BadRequest", f"error decoding patch: {problem}") from problem
    if content_type == "application/json-patch+json":
        try:
            return dict(jsonpatch.apply_patch(old, patch))
        except jsonpatch.JsonPatchException as problem:
            raise ApiError(422, "Invalid", f"the patch does not apply: {problem}") from problem
    if content_type in _MERGES:
        return dict(_merged(deepcopy(old), patch, strategic=content_type != "application/merge-patch+json"))
    raise ApiError(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content_type}")


def _merged(old: Any, patch: Any, *, strategic: bool, name: str = "") -> Any:
    if isinstance(patch, dict):
        base = old if isinstance(old, dict) else {}
        for key, value in patch.items():
            if value is None:
                base.pop(key, None)
            elif strategic and key.startswith(_DELETE_FROM):
                name = key.removeprefix(_DELETE_FROM)
                base[name] = [kept for kept in base.get(name, []) if kept not in value]
            elif strategic and key.startswith("$"):
                continue
            else:
                base[key] = _merged(base.get(key), value, strategic=strategic, name=key)
        return base
    if strategic and isinstance(patch, list) and isinstance(old, list):
        if name == "finalizers":
            return [*old, *(added for added in patch if added not in old)]
        if name in _MERGE_KEYS:
            return _merged_list(old, patch, _MERGE_KEYS[name])
    return patch


def _merged_list(old: list[Any], patch: list[Any], key: str) -> list[Any]:
    merged = {item.get(key): item for item in old}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item.get(key), None)
        else:
            merged[item.get(key)] = _merged(merged.get(item.get(key)), item, strategic=True)
    return list(merged.values())
