"""What the values of the chart gpu-dev-server may be: their shape from values.yaml, the settings from the programs' own
classes, and bounds for both.

`python -m tests.chart.dev_server.dev_server_schema` writes values.schema.json.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from reservation_core.runtime.settings.components import (
    ApiSettings,
    CommonSettings,
    ExpirySettings,
    NodeAgentSettings,
    ProcessorSettings,
    SshGatewaySettings,
    UpdaterSettings,
)
from tests.chart.rendering import CHARTS, JsonObject
from tests.read_yaml import read_yaml

CHART = CHARTS / "gpu-dev-server"
FILE = CHART / "values.schema.json"

COMPONENTS: dict[str, type[CommonSettings]] = {
    "apiService": ApiSettings,
    "reservationProcessor": ProcessorSettings,
    "sshGateway": SshGatewaySettings,
    "availabilityUpdater": UpdaterSettings,
    "reservationExpiry": ExpirySettings,
    "nodeAgent": NodeAgentSettings,
}
# What the chart says by itself, or what has no place in a cluster.
OWN = {
    "GPU_DEV_AUTH__FILE",
    "GPU_DEV_CLUSTER",
    "GPU_DEV_CRON_JOBS",
    "GPU_DEV_DATABASE_PASSWORD",
    "GPU_DEV_DATABASE_REPLICA_URL",
    "GPU_DEV_DATABASE_URL",
    "GPU_DEV_ENFORCEMENT__ENABLED",
    "GPU_DEV_ENFORCEMENT__LEASE_NAMESPACE",
    "GPU_DEV_HEALTH_LISTEN",
    "GPU_DEV_HOME",
    "GPU_DEV_KUBERNETES__CONTEXT",
    "GPU_DEV_KUBERNETES__KUBECONFIG",
    "GPU_DEV_KUBERNETES__NAMESPACE",
    "GPU_DEV_KUBERNETES__POD_DEFAULTS",
    "GPU_DEV_LISTEN",
    "GPU_DEV_LOCAL_GPUS",
    "GPU_DEV_NODE_NAME",
    "GPU_DEV_POLICY_FILE",
    "GPU_DEV_SMTP_PASSWORD",
    "GPU_DEV_SSH__LISTEN",
    "GPU_DEV_WEB_OIDC_CLIENT_SECRET",
}

_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_NAME_OR_NONE = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$"
_AMOUNT = r"^[0-9]+(\.[0-9]+)?(m|k|[KMGTP]i?)?$"
_PLACE = r"^[A-Za-z0-9._:/@-]*$"
_CRON = r"^(@(hourly|daily|weekly|monthly)|[-0-9*/,A-Za-z]+( +[-0-9*/,A-Za-z?]+){4})$"
_TEXT = {"type": "string", "maxLength": 4096}
_TEXTS: JsonObject = {"type": "object", "additionalProperties": _TEXT}
_FREE: JsonObject = {"type": "object"}
_AMOUNTS: JsonObject = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "string", "pattern": _AMOUNT}, {"type": "number", "minimum": 0}]},
}

_SETTING: JsonObject = {"anyOf": [{"type": "string", "maxLength": 20000}, {"type": ["number", "boolean"]}]}


def _said(pattern: str, longest: int = 253) -> JsonObject:
    return {"type": "string", "pattern": pattern, "maxLength": longest}


# The first of these whose pattern fits a value's path says what it may be; for the rest its default's type does.
_RULES: tuple[tuple[str, JsonObject], ...] = (
    (r"\.(nodeSelector|annotations|labels|podAnnotations)$", _TEXTS),
    (r"\.(tolerations|hostAliases|topologySpreadConstraints)$",
     {"type": "array", "items": {"type": "object"}, "maxItems": 100}),
    (r"\.extraEnv$", {
        "type": "array",
        "maxItems": 100,
        "items": {"type": "object", "required": ["name"], "additionalProperties": False,
                  "properties": {"name": _said(r"^[-._A-Za-z][-._A-Za-z0-9]*$"),
                                 "value": {"type": "string", "maxLength": 32768}, "valueFrom": _FREE}},
    }),
    (r"\.imagePullSecrets$", {
        "type": "array",
        "items": {"type": "object", "required": ["name"], "additionalProperties": False,
                  "properties": {"name": _said(_NAME_OR_NONE)}},
    }),
    (r"\.resources\.(requests|limits)$|\.quota\.hard$|\.defaultRequest$", _AMOUNTS),
    (r"\.storageSize$", _said(r"^[0-9]+(\.[0-9]+)?[KMGTP]i$")),
    (r"^global\.prefix$", _said(r"^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$")),
    (r"^namespaces\.(controlplane|workloads)$", _said(_NAME)),
    (r"^cloudProvider\.name$", {"enum": ["", "aws", "gcp", "local"]}),
    (r"^cloudProvider\.(region|(aws|gcp)\..*)$", _said(r"^[A-Za-z0-9 ,._-]*$", 1000)),
    (r"^storage\.parameters$|^postgres\.backup\.upload\.env$", _TEXTS),
    (r"^storage\.(class|provisioner)$", _said(_NAME_OR_NONE)),
    (r"\.pullPolicy$", {"enum": ["Always", "IfNotPresent", "Never"]}),
    (r"\.repository$", _said(_PLACE.replace("@", ""))),
    (r"\.digest$", _said(r"^(sha256:[0-9a-f]{64})?$")),
    (r"\.imageRegistry$|\.upload\.image$|\.imageName$|\.toolsImage$", _said(_PLACE)),
    (r"\.tag$", _said(r"^[A-Za-z0-9._@:-]*$", 200)),
    (r"[sS]ecret$|\.existingCluster$|\.runtimeClassName$|\.className$", _said(_NAME_OR_NONE)),
    (r"\.schedule$", _said(_CRON, 100)),
    (r"^postgres\.auth\.(username|database)$", _said(r"^[a-z_][a-z0-9_]{0,62}$")),
    (r"^postgres\.auth\.ownerUsername$", _said(r"^([a-z_][a-z0-9_]{0,62})?$")),
    # Reading it from a file takes no blanks at its ends.
    (r"^postgres\.auth\.password$", {"type": "string", "pattern": r"^(\S([^\r\n]*\S)?)?$", "maxLength": 500}),
    (r"^postgres\.primaryIs$", {"enum": ["postgres-primary", "postgres-replica"]}),
    (r"^postgres\.begin$", {"enum": ["auto", "never", "anew"]}),
    (r"^postgres\.runAsUser$", {"type": "integer", "minimum": 1, "maximum": 2147483647}),
    (r"^postgres\.replication\.keepWal$", _said(r"^[0-9]+(MB|GB)$")),
    (r"^postgres\.configuration$", {
        "type": "object",
        "propertyNames": {"pattern": r"^[a-z][a-z0-9_.]{1,62}$"},
        "additionalProperties": {"anyOf": [{"type": "string", "pattern": r"^[^\r\n]*$", "maxLength": 500},
                                           {"type": ["number", "boolean"]}]},
    }),
    (r"ClusterIP$", _said(r"^[0-9a-f.:]*$", 45)),
    (r"^postgres\.backup\.upload\.command$", {"type": "array", "items": _TEXT, "maxItems": 100}),
    (r"^externalDatabase\.(url|replicaUrl)$", _said(r"^(postgres(ql)?(\+asyncpg)?://\S+)?$", 4000)),
    (r"^externalDatabase\.existingSecretReplicaKey$", _said(r"^[-._a-zA-Z0-9]*$")),
    (r"^externalDatabase\.existingSecretKey$", _said(r"^[-._a-zA-Z0-9]+$")),
    (r"\.nodePort$", {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 30000, "maximum": 32767}]}),
    (r"[pP]ort$", {"type": "integer", "minimum": 1, "maximum": 65535}),
    (r"\.service\.type$", {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}),
    (r"\.host$", _said(r"^(\*\.)?([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$")),
    (r"\.remoteUrl$", _said(r"^https?://[A-Za-z0-9.:/_-]+$", 500)),
    (r"^apiService\.replicas$|^(reservationProcessor|sshGateway)\.replicas$|\.maxReplicas$|\.instances$",
     {"type": "integer", "minimum": 1, "maximum": 100}),
    (r"Percentage$", {"type": "integer", "minimum": 1, "maximum": 100}),
    (r"patienceSeconds$|startupMinutes$|validDays$|\.(keep|backupAgeHours)$",
     {"type": "integer", "minimum": 1, "maximum": 86400}),
    (r"^priorityClasses\.(controlplane|jobs)$", {"type": "integer", "minimum": -1000000, "maximum": 1000000000}),
    (r"^networkPolicy\.(apiFrom|databaseFrom|metricsFrom|kubernetesAt|extraEgress)$",
     {"type": "array", "items": {"type": "object"}, "maxItems": 100}),
    (r"^networkPolicy\.jobsExcept$", {"type": "array", "items": _said(r"^[0-9.]+/[0-9]+$"), "maxItems": 100}),
    (r"\.httpRoute\.parentRefs$", {"type": "array", "items": {"type": "object", "required": ["name"]}, "maxItems": 32}),
    (r"\.httpRoute\.hostnames$",
     {"type": "array", "items": _said(r"^(\*\.)?[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"), "maxItems": 16}),
    (r"\.httpRoute\.timeouts$", {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _said(r"^([0-9]{1,5}(h|m|s|ms)){1,4}$") for name in ("request", "backendRequest")},
    }),
    (r"\.interval$", _said(r"^[0-9]+(ms|s|m|h)$")),
    (r"^apiService\.(policy|signIn\.file)$", {"type": "string", "maxLength": 262144}),
    (r"^workloads\.podDefaults$|^cloudNativePG\.backup$|\.affinity$", _FREE),
    (r"^apiService\.signIn\.cloud\.enabled$", {"type": ["boolean", "null"]}),
    (r"^kubeVersion$", _said(r"^(v?[0-9]+\.[0-9]+\.[0-9]+.*)?$")),
)  # fmt: skip


def names_of(settings: type[CommonSettings]) -> set[str]:
    """Every environment variable that a program's settings read."""
    return set(_names("GPU_DEV", settings))


def _names(prefix: str, model: type[BaseModel], joint: str = "_") -> Iterator[str]:
    for field, info in model.model_fields.items():
        name = f"{prefix}{joint}{field.upper()}"
        parts = [part for part in (info.annotation, *get_args(info.annotation)) if isinstance(part, type)]
        nested = [part for part in parts if issubclass(part, BaseModel)]
        if nested:
            yield from _names(name, nested[0], "__")
        else:
            yield name


def schema() -> JsonObject:
    """The whole schema."""
    values = read_yaml((CHART / "values.yaml").read_text())
    whole = _of("", values)
    assert isinstance(whole["properties"], dict)
    # The library chart's own values, of which it has none; and where templates keep what they have made once.
    whole["properties"] |= {"gpu-dev-library": _FREE, "keptDatabaseData": {"type": "object", "maxProperties": 0}}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"setting": _SETTING}, **whole}


def _of(path: str, default: Any) -> JsonObject:
    if path == "settings":
        return _settings(CommonSettings)
    component, _, last = path.partition(".")
    if last == "settings":
        return _settings(COMPONENTS[component])
    for pattern, rule in _RULES:
        if re.search(pattern, path):
            return rule
    match default:
        case bool():
            return {"type": "boolean"}
        case dict() if default:
            parts = {name: _of(f"{path}.{name}".lstrip("."), value) for name, value in default.items()}
            return {"type": "object", "additionalProperties": False, "properties": parts}
        case _:
            raise ValueError(f"{path} of values.yaml needs a rule: {default!r}")


def _settings(settings: type[CommonSettings]) -> JsonObject:
    names = sorted(names_of(settings) - OWN)
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"$ref": "#/definitions/setting"} for name in names},
    }


def written() -> str:
    """The file's text."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(written())
