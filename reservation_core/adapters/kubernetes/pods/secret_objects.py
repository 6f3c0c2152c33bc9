"""The Secret object of a job's pod, and what the pod says of it: pure, without a client.

The pod names the Secret; a value is in the Secret alone, which the cluster deletes with its pod.
"""

import base64
from typing import Any

from reservation_core.adapters.kubernetes.pods.marks import attempt_labels
from reservation_core.domain.model import PodSpec
from reservation_core.domain.sessions.job_tokens import TOKEN_VARIABLE
from reservation_core.domain.sessions.secret_uses import FILES_VARIABLE

_VOLUME = "gpu-dev-secrets"
# A pod runs as one user, which the administrator's settings choose, and the volume belongs to root.
_READABLE = 0o444
_TOKEN = "_job-token"  # noqa: S105 - a key that no secret of a user can have


def has_secret(spec: PodSpec) -> bool:
    """Whether a pod has a Secret."""
    return bool(spec.secrets) or _token(spec) is not None


def secret_name(spec: PodSpec) -> str:
    """The name of a pod's Secret, which is the pod's."""
    return str(spec.name)


def build_secret(spec: PodSpec, namespace: str, owner_uid: str) -> dict[str, Any]:
    """The Secret of a pod whose uid is known, which makes the cluster delete it with the pod."""
    values = {secret.use.name: secret.value for secret in spec.secrets}
    if (token := _token(spec)) is not None:
        values[_TOKEN] = token
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": secret_name(spec),
            "namespace": namespace,
            "labels": attempt_labels(spec.name),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": str(spec.name), "uid": owner_uid}],
        },
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in values.items()},
    }


def secret_variables(spec: PodSpec) -> list[dict[str, Any]]:
    """The variables of the container that are secrets; the node's kubelet reads their values."""
    named = [(secret.use.env, secret.use.name) for secret in spec.secrets if secret.use.env is not None]
    if _token(spec) is not None:
        named.append((TOKEN_VARIABLE, _TOKEN))
    variables: list[dict[str, Any]] = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret_name(spec), "key": key}}}
        for variable, key in named
    ]
    if _has_files(spec):
        variables.append({"name": FILES_VARIABLE, "value": ""})
    return variables


def secret_mounts(spec: PodSpec) -> list[dict[str, Any]]:
    """The files of the container that are secrets."""
    return [
        {"name": _VOLUME, "mountPath": secret.use.path, "subPath": secret.use.name, "readOnly": True}
        for secret in spec.secrets
        if secret.use.path is not None
    ]


def secret_volumes(spec: PodSpec) -> list[dict[str, Any]]:
    """The volume of these files, which the kubelet keeps in memory."""
    if not _has_files(spec):
        return []
    keys = sorted({secret.use.name for secret in spec.secrets if secret.use.path is not None})
    items = [{"key": key, "path": key} for key in keys]
    return [{"name": _VOLUME, "secret": {"secretName": secret_name(spec), "defaultMode": _READABLE, "items": items}}]


def _token(spec: PodSpec) -> str | None:
    """The token that passes a job's files, and so is no part of a pod that others may read. None: the pod has none."""
    return dict(spec.env).get(TOKEN_VARIABLE) if spec.workload.sync is not None else None


def _has_files(spec: PodSpec) -> bool:
    return any(secret.use.path is not None for secret in spec.secrets)
